/* drain.h - what threads have in their bins, taken by another.
 *
 * A hit of malloc or free takes no lock, makes no atomic access and looks at no flag.  Yet what lies deep in a bin can be had: a pop
 * that meets a bar, a bit of the entry, goes the slow path, and there waits for the heap's lock.
 *
 *   1. a bar is set at the last entry but one
 *   2. each thread of the process passes a barrier: os_barrier
 *   3. the bin's top is looked at, and 2. once more
 *   4. if the bar still stands, two or more below that top, it and what lies below it are ours
 *
 * Why: had the thread gone below the bar and come up again, it would have written over it, and 3. has that brought to us.  So at 2. it
 * was above, with one pop at most under way that has not seen the bar: of the uppermost entry.  Whatever it does next
 * sees the bar.  A thread that is not where this wants it, or moves meanwhile, loses nothing but a moment at the bar.
 *
 * In the secure library a hit takes any of BIN_REACH entries, and looks how many there are: there that number is the bar.  What waits in a
 * quarantine is marked, seen and taken in the same steps. */
#ifndef FRONT_DRAIN_H
#define FRONT_DRAIN_H

#include "front/heap.h"

/* Takes what it can from the bins of all heaps that threads have, but `mine`'s, and gives it back to their slabs; the blocks.  None
 * where another thread is about it, or the kernel has no such barrier.  What these threads keep of large blocks goes back in any case.
 * No lock may be held. */
uint64_t drain_bins(const heap_t *mine);
/* The same for threads whose bins have held much, and did not change, from one call to the third after it; adds to *aging those that
 * are on the way there.  What threads keep of large blocks becomes older, or goes back, as does what a fork's child finds in the
 * bins of those that it has not.  For the keeper. */
uint64_t drain_resting(uint32_t *aging);
/* Gives all that is in the heap's bins back to its slabs: with its lock, by its thread or where none has it. */
void drain_empty(heap_t *heap);
/* What could be taken from the heap's bins and of what it keeps, as far as drain_waiting counts it: with its lock, now and then. */
void drain_note(heap_t *heap);
/* Bytes that were noted and not taken since; about.  0 once it is known that none can be taken. */
uint64_t drain_waiting(void);
/* In a fork's child: who was about it is gone, and what was noted is counted anew. */
void drain_after_fork(void);

#endif
