/* pressure.h - a callback into the program when memory becomes scarce: near a container's limit, or near limits set for the heap.
 *
 * hakmem gives back idle memory by itself.  Memory that the program holds, such as caches, only the program can free: the callback tells it
 * when.  docs/containers.md describes the limits, and HAKMEM_LIMIT_SOFT and HAKMEM_LIMIT_HARD. */
#ifndef HAKMEM_PRESSURE_H
#define HAKMEM_PRESSURE_H

#include "hakmem/hakmem.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How scarce memory is. Since 0.1. */
#define HAK_PRESSURE_NEAR 1    /* at most an eighth of the limit is left, or 1 GiB if the limit is above 8 GiB */
#define HAK_PRESSURE_URGENT 2  /* at most half of that is left; or HAKMEM_LIMIT_SOFT is exceeded */
#define HAK_PRESSURE_FAILING 3 /* an allocation is about to fail, because of HAKMEM_LIMIT_HARD or because the system has no more memory */

/* What the callback receives. Later versions add fields only at the end. Since 0.1. */
typedef struct hak_pressure {
  uint32_t struct_size; /* the number of bytes filled */
  uint32_t level;       /* HAK_PRESSURE_* */
  uint64_t used;        /* bytes that count against the limit: of this heap, or of everything in the container, plus what the heap
                           has recently grown by, which may not be written to yet */
  uint64_t limit;       /* bytes: the nearest limit, the container's or HAKMEM_LIMIT_SOFT; or HAKMEM_LIMIT_HARD, if an allocation is about
                           to fail because of it: if set in percent, the size this heap may reach. 0: no limit is known */
  uint64_t wanted;      /* bytes of the allocation that is about to fail, otherwise 0 */
} hak_pressure_t;

/* The callback returns about how many bytes it has freed, 0 for none.  It may allocate and free; its own allocations do not call it again.
 * It runs in whichever thread allocates, inside the allocating call: it must not take a lock that the program holds while it allocates, and
 * must not leave by longjmp, an exception or pthread_exit.  The thread is not cancelled while in it.  errno is preserved. */
typedef size_t hak_pressure_callback_t(const hak_pressure_t *pressure, void *argument);

/* Sets the callback for scarce memory, in place of the previous one; NULL for none.  It is called when memory becomes scarce, then at most
 * once a second while it stays so, and whenever an allocation is about to fail that would fit if enough were freed; by one thread at a
 * time.  If it reports that it freed something, hakmem gives that back to the system and retries an allocation that was about to fail.
 * When hak_on_pressure returns, no other thread is in the previous callback, so the caller must hold no lock that the previous callback
 * takes.  A fork's child keeps the callback.  Thread-safe, not async-signal-safe.  Since 0.1. */
HAK_API void hak_on_pressure(hak_pressure_callback_t *callback, void *argument);

#ifdef __cplusplus
}
#endif
#endif
