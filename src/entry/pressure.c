/* pressure.c - sets the program's callback for scarce memory: include/hakmem/pressure.h.  front/plea.h says when it is called and how. */
#include "hakmem/pressure.h"

#include "front/plea.h"

HAK_COLD void hak_on_pressure(hak_pressure_callback_t *callback, void *argument) { plea_set(callback, argument); }
