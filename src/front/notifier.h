/* notifier.h - asks the program to free memory, and gives back what it frees: include/hakmem/pressure.h.
 *
 * The program is asked where an allocation ends, outside any slow path and with no lock of ours held, by one thread at a time
 * (pressure.callback_thread).  An allocation within its callback does not ask again. */
#ifndef FRONT_NOTIFIER_H
#define FRONT_NOTIFIER_H

#include "hakmem/pressure.h"
#include "kit/pressure.h"

/* Sets the callback; any thread. Waits while another thread is in the callback set before. */
void notifier_set(hak_pressure_callback_t *callback, void *argument);

/* For the end of an allocation, with no lock held: calls the program back if there is a level to report. */
void notifier_report(void);
/* For an allocation of `size` bytes that has failed. Returns true if it should be tried again: the program says that it has freed
 * something, or another thread is still asking it. */
HAK_CHECKED bool notifier_reclaim(size_t size);

#endif
