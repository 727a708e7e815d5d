/* handover.h - the bins that a thread leaves as they are when it ends, for the next thread.
 *
 * Where threads come and go, each would give the contents of its bins back, block by block, and the next would fetch as much again.
 * So a thread that ends leaves its bins as they are, if they hold few bytes and tie up few slabs, and if few heaps are parked in this
 * way already.  The next thread gets a parked heap first.  If no thread gets it within decay_ms, the blocks go back.
 *
 * A heap is parked from handover_park to handover_unpark.  No thread has it meanwhile; a fork's child finds it so, too. */
#ifndef FRONT_HANDOVER_H
#define FRONT_HANDOVER_H

#include "front/heap.h"

/* Parks a heap that no thread has, with its bins still full. Returns false if the bins are empty or hold too much, if enough heaps are
 * parked already, if time-based decay is off, near a memory limit, and in the secure library. The caller holds the heap's lock. */
HAK_CHECKED bool handover_park(heap_t *heap);
/* The heap is parked no more: a thread gets it, or its bins are emptied. The caller holds the heap's lock. */
void handover_unpark(heap_t *heap);
/* Empties the bins of heaps that have been parked for decay_ms or longer at `now_ms`; returns how many stay parked. The caller holds no
 * lock. */
uint32_t handover_age(uint64_t now_ms);
/* Empties the bins of all parked heaps, whatever their age. The caller holds no lock. */
void handover_release(void);
/* About how many bytes of free blocks lie in parked bins, and in the slabs of these heaps. */
uint64_t handover_parked_bytes(void);
/* In a fork's child: counts these bytes anew. */
void handover_after_fork(void);

#endif
