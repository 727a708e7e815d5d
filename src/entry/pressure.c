/* pressure.c - the program's call when memory is scarce: include/hakmem/pressure.h.  What it is told, and when, is front/plea.h. */
#include "hakmem/pressure.h"

#include "front/plea.h"

HAK_COLD void hak_on_pressure(hak_pressure_callback_t *callback, void *argument) { plea_set(callback, argument); }
