/* limits.h - checks the memory limits of the process now and then, and acts when one is near.
 *
 * A thread of the program asks the kernel on a slow path: when the heap has grown by pressure_step and, if there is a limit or the soft
 * limit is exceeded, also by time.  It never asks within LIMITS_PAUSE_MS of the last time, except where an allocation would fail.  To ask
 * it opens files, so it does not ask once the process has put itself under a filter (os_filters): from then on, the room that is left is
 * estimated from how the heap grows.  A heap of less than 8 MiB asks nothing unless the program has set a limit of its own.  While the
 * program makes no calls and memory lies idle, the keeper checks, at the same times and to the same effect; it has opened the files before
 * it was confined.
 *
 * One thread checks at a time: the one that has set pressure.look_at to UINT64_MAX.  kit/pressure.h says what each level changes. */
#ifndef FRONT_LIMITS_H
#define FRONT_LIMITS_H

#include "kit/pressure.h"
#include "front/heap.h"

#define LIMITS_PAUSE_MS 10

/* To be called once, at start, when options are known. */
void limits_start(void);
/* An option of limits was changed: the next slow path checks the limits. */
void limits_changed(void);

/* Checks the limits if that is due by growth or by time. Called on a slow path that holds no lock, once purge_epoch has changed. `heap` is
 * the thread's, or NULL. */
void limits_due(heap_t *heap);
/* For an allocation that has failed: if HAKMEM_LIMIT_HARD may be the cause, gives back what is idle and asks the kernel anew. Returns false
 * if that has made no room. */
HAK_CHECKED bool limits_make_room(heap_t *heap);
/* Gives back all that it can, at whatever cost; returns the bytes. */
size_t limits_give_all(heap_t *heap);

#endif
