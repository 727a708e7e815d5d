/* pressure.c - sets the callback for scarce memory: include/hakmem/pressure.h.  front/notifier.h says when it is called and how. */
#include "hakmem/pressure.h"

#include "front/notifier.h"

HAK_COLD void hak_on_pressure(hak_pressure_callback_t *callback, void *argument) { notifier_set(callback, argument); }
