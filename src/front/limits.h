/* limits.h - what limits the process's memory, looked at now and then, and what is done when it is near.
 *
 * The kernel is asked by a thread of the program on a slow path: when the heap has grown by what pressure_step says, and where there
 * is a limit, or the program's own is passed, also with time; never within LIMITS_PAUSE_MS of the last time, but where an allocation
 * would fail. It opens files for that, so it is not done once the process has put itself under a filter (os_filters): what is left is
 * reckoned then from how the heap grows. A heap of less than 8 MiB asks nothing unless a limit of the program's own is set. While the
 * program makes no calls and memory lies idle the keeper looks, at the same times and to the same effect; it has opened the files before
 * it was confined.
 *
 * One thread looks at a time: it has set pressure.look_at to UINT64_MAX.  What the levels change stands in kit/pressure.h. */
#ifndef FRONT_LIMITS_H
#define FRONT_LIMITS_H

#include "kit/pressure.h"
#include "front/heap.h"

#define LIMITS_PAUSE_MS 10

/* Once, at start, when options are known. */
void limits_start(void);
/* An option of limits was changed: looks on the next slow path. */
void limits_changed(void);

/* Looks if it is time to, by growth or by the clock: from a slow path, where no lock is held, once purge_turns has changed. `heap` is the
 * thread's, or NULL. */
void limits_due(heap_t *heap);
/* An allocation has failed: gives back what is idle where HAKMEM_LIMIT_HARD may be the cause, and asks the kernel anew.
 * False: it is not. */
HAK_CHECKED bool limits_make_room(heap_t *heap);
/* Gives back all that can be, at whatever cost; the bytes. */
size_t limits_give_all(heap_t *heap);

#endif
