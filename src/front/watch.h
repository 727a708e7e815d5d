/* watch.h - watched allocations: every small one misses, to be counted, to get a guard slot now and then, or to be an event.
 *
 * The tables of a watched heap lead to no bin.  Another thread may see to that, since one whose allocations all hit takes no slow path;
 * what it does meanwhile is seen once more after WATCH_AGAIN_MS. */
#ifndef FRONT_WATCH_H
#define FRONT_WATCH_H

#include "front/heap.h"
#include "kit/event.h"

/* --- what is counted while the process is armed ---
 *
 * Blocks and the bytes asked for, exactly, by group: the size classes, then large blocks by the power of two above their size, and from
 * EVENT_BYTES on those of which each is an event.  A thread counts in its heap without atomic read-modify-writes: what a signal handler
 * allocates in the midst of that may be lost.  Of blocks aligned to more than a granule the bytes are the class's.
 *
 * All from when the thread's tables lead to no bin; what it allocates by hits until then is no event either.  What fails is not counted. */
#define WATCH_LARGE CLASS_COUNT
#define WATCH_LARGE_FROM 15u /* as a power of two; as many groups as lead to EVENT_BYTES */
#define WATCH_CERTAIN (WATCH_LARGE + 19u - WATCH_LARGE_FROM)
#define WATCH_GROUPS (WATCH_CERTAIN + 1)
_Static_assert(WATCH_GROUPS <= EVENT_GROUPS, "there are numbers for all");
_Static_assert(EVENT_BYTES == 1u << 19 && HAK_SLAB_ALWAYS == 1u << WATCH_LARGE_FROM, "the groups of large blocks lie between");

/* The group of a large block, or one past its class's alignment. */
unsigned watch_group_of_large(size_t size);
/* The calling thread, of this heap, has got a small block of `size` bytes. */
void watch_small(heap_t *heap, size_t size);
/* Somebody has got another block: a large one or a named heap's. */
void watch_other(unsigned group, size_t size);

typedef struct watch_counts {
  _Atomic uint64_t other_blocks[WATCH_GROUPS], other_bytes[WATCH_GROUPS];
} watch_counts_t;
extern watch_counts_t watch_others; /* those of watch_other, for readers outside */
/* What was counted of a group, in all heaps. Any thread. */
typedef struct watch_sum {
  uint64_t blocks, bytes;
} watch_sum_t;
watch_sum_t watch_counted(unsigned group);

/* --- who is watched --- */

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
