/* watch.h - watched allocations: every small one misses, so that it is counted, may get a guard slot, or may become an event.
 *
 * The tables of a watched heap lead to no bin.  Another thread may set them so, since a thread whose allocations all hit takes no slow
 * path.  What the heap's thread undoes meanwhile is set once more after WATCH_AGAIN_MS. */
#ifndef FRONT_WATCH_H
#define FRONT_WATCH_H

#include "front/heap.h"
#include "kit/event.h"

/* --- what is counted while the process is armed ---
 *
 * Blocks and requested bytes, exactly, by group: the size classes, then large blocks by the power of two above their size, then blocks
 * of EVENT_BYTES or more, each of which is an event.  A thread counts in its heap without atomic read-modify-writes: what a signal
 * handler allocates in the middle of that may be lost.  Of blocks aligned to more than a granule, the class's bytes are counted.
 *
 * Counting begins once the thread's tables lead to no bin; what it allocates by hits until then is no event either.  An allocation that
 * fails is not counted. */
#define WATCH_LARGE CLASS_COUNT
#define WATCH_LARGE_FROM 15u /* as a power of two; there is a group for each power below EVENT_BYTES */
#define WATCH_CERTAIN (WATCH_LARGE + 19u - WATCH_LARGE_FROM)
#define WATCH_GROUPS (WATCH_CERTAIN + 1)
_Static_assert(WATCH_GROUPS <= EVENT_GROUPS, "there are numbers for all");
_Static_assert(EVENT_BYTES == 1u << 19 && HAK_SMALL_MAX_ZEROED == 1u << WATCH_LARGE_FROM, "the groups of large blocks lie between");

/* The group of a large block, also of one that is large because it is aligned more strictly than its class. */
unsigned watch_group_of_large(size_t size);
/* Counts a small block of `size` bytes that the calling thread, whose heap this is, has got. */
void watch_small(heap_t *heap, size_t size);
/* Counts any other block: a large one or a named heap's. Any thread. */
void watch_other(unsigned group, size_t size);

typedef struct watch_counts {
  _Atomic uint64_t other_blocks[WATCH_GROUPS], other_bytes[WATCH_GROUPS];
} watch_counts_t;
extern watch_counts_t watch_others; /* what watch_other has counted, also for readers outside */
/* What was counted for a group, in all heaps. Any thread. */
typedef struct watch_sum {
  uint64_t blocks, bytes;
} watch_sum_t;
watch_sum_t watch_counted(unsigned group);

/* --- who is watched --- */

/* From the start, for good: with HAKMEM_STATS or HAKMEM_GUARD. */
extern _Atomic bool watch_always;
HAK_INLINE bool watch_wanted(void) { return load_relaxed(&watch_always) || event_armed(); }

/* Sets the tables of the calling thread's heap as watch_wanted says. */
void watch_heap(heap_t *heap);
/* Makes the heaps of all threads watched, except those that are locked at the moment. From a slow path. */
void watch_heaps(void);
/* Does what is due while the process is armed: watch_heaps, every WATCH_AGAIN_MS. From a slow path. */
void watch_step(void);
HAK_INLINE void watch_due(void) {
  if (HAK_UNLIKELY(event_armed())) watch_step();
}

#endif
