/* watch.h - watched allocations: every small one misses, to be counted, to get a guard slot now and then, or to be an event.
 *
 * The tables of a watched heap lead to no bin.  Another thread may see to that, since one whose allocations all hit takes no slow path;
 * what it does meanwhile is seen once more after WATCH_AGAIN_MS. */
#ifndef FRONT_WATCH_H
#define FRONT_WATCH_H

#include "front/heap.h"
#include "kit/event.h"

/* From the start, for good: HAKMEM_STATS, HAKMEM_GUARD. */
extern _Atomic bool watch_always;
HAK_INLINE bool watch_wanted(void) { return load_relaxed(&watch_always) || event_armed(); }

/* Makes the tables of the calling thread's heap what is wanted. */
void watch_heap(heap_t *heap);
/* Has the heaps of all threads watched, but those that are locked just now. From a slow path. */
void watch_heaps(void);
/* What is due while the process is armed: watch_heaps, every WATCH_AGAIN_MS. From a slow path. */
void watch_step(void);
HAK_INLINE void watch_due(void) {
  if (HAK_UNLIKELY(event_armed())) watch_step();
}

#endif
