/* plea.h - the program is asked to free, and what it frees is given back: include/hakmem/pressure.h.
 *
 * It is asked where an allocation ends, outside of any slow path and with no lock of ours held, by one thread at a time (pressure.teller).
 * A thread that is asking is not asked. */
#ifndef FRONT_PLEA_H
#define FRONT_PLEA_H

#include "hakmem/pressure.h"
#include "kit/pressure.h"

/* Any thread. Waits for a thread that is in the callback before. */
void plea_set(hak_pressure_callback_t *callback, void *argument);

/* After a call that has allocated, with no lock held: tells the program, if there is something to tell. */
void plea_tell(void);
/* An allocation of so many bytes has failed. True: the program says that it has freed something, or another thread has asked it just now:
 * try again. */
HAK_CHECKED bool plea_for(size_t size);

#endif
