/* handover.h - what threads that have ended leave in their bins to the next.
 *
 * Where threads come and go, each would give back what its bins have, block by block, and the next take as much again.  So a thread
 * that ends leaves its bins as they are, if they hold and keep little and few heaps are left so: the next thread gets such a heap
 * first.  What nobody has taken up in decay_ms goes back.
 *
 * A heap is left so from handover_leave to handover_end; no thread has it then, also as a fork's child finds it. */
#ifndef FRONT_HANDOVER_H
#define FRONT_HANDOVER_H

#include "front/heap.h"

/* Leaves the heap, which is no thread's any more, with what its bins have.  False: that is nothing or too much, so many are left
 * already, or nothing goes back with time. With its lock. */
HAK_CHECKED bool handover_leave(heap_t *heap);
/* It is no more: a thread gets it, or its bins are emptied. With its lock. */
void handover_end(heap_t *heap);
/* Empties the bins of those that were left for decay_ms or longer, as of `now_ms`; how many are left.  Where no lock is held. */
uint32_t handover_age(uint64_t now_ms);
/* The same for all at once. */
void handover_release(void);
/* Bytes of free blocks that are left so, with what is free in their slabs; about. */
uint64_t handover_waiting(void);
/* In a fork's child: counts them anew. */
void handover_after_fork(void);

#endif
