/* drain.h - takes blocks out of the bins of other threads.
 *
 * A hit of malloc or free takes no lock, makes no atomic access and checks no flag.  Yet another thread can take what lies deep in a
 * bin: a pop that meets a bar, which is a bit of the entry, takes the slow path, and waits there for the heap's lock.
 *
 *   1. a bar is set at the last entry but one
 *   2. each thread of the process passes a full barrier: os_barrier (membarrier, an asymmetric barrier)
 *   3. the bin's top is read, and step 2 repeated
 *   4. if the bar still stands, two or more entries below that top, it and everything below it are ours
 *
 * Why this is safe: had the thread popped the barred entry and pushed again, it would have overwritten the bar, and the barrier of
 * step 3 has made that store visible to us.  So at step 2 the thread was above the bar, with at most one pop under way that had not
 * seen the bar: the pop of the uppermost entry.  Whatever the thread does next sees the bar.  A thread that is elsewhere, or moves
 * meanwhile, loses no more than a moment at the bar.
 *
 * In the secure library a hit takes any of the BIN_REACH uppermost entries, and reads how many entries there are: there that number is
 * the bar.  Blocks in a quarantine are marked, seen and taken in the same steps. */
#ifndef FRONT_DRAIN_H
#define FRONT_DRAIN_H

#include "front/heap.h"

/* Takes what it can from the bins of all heaps that threads have, except `mine`, and gives it back to their slabs. Returns how many
 * blocks; none if another thread is draining, or if the kernel has no such barrier. The large blocks that these heaps cache go back in
 * any case. The caller holds no lock. */
uint64_t drain_bins(const heap_t *mine);
/* The same, by the keeper, for threads whose bins have held much and have not changed from one call to the third after it. Adds to *aging
 * the heaps that are on the way there, and those that cache large blocks. It also ages the large blocks that heaps cache, and gives the old
 * ones back, as well as what a fork's child finds in the bins of threads that it does not have. Returns 0 if nothing went back. */
uint64_t drain_idle(uint32_t *aging);
/* Gives all blocks in the heap's bins back to their slabs. By the heap's thread, or by any if none has the heap; with the heap's lock. */
void drain_empty(heap_t *heap);
/* Notes, for drain_waiting, how much could be taken from the heap's bins and from the large blocks that it caches. With its lock, now and
 * then. */
void drain_note(heap_t *heap);
/* About how many bytes were noted and not taken since. 0 once it is known that none can be taken. */
uint64_t drain_waiting(void);
/* In a fork's child: forgets a drain under way, whose thread is gone, and counts anew what was noted. */
void drain_after_fork(void);

#endif
