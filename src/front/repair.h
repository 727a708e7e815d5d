/* repair.h - in a fork's child, repairs what threads that are gone had begun.
 *
 * Nothing is locked before a fork, and most children never allocate: so the repair waits for the child's first slow path.
 * The child finds all that another thread had written up to one point of its program, and nothing later: docs/protocols.md
 * explains why.  So if no other thread was on a slow path, all is as it must be, except that the heaps' threads are gone.
 *
 * If one was, units may be claimed and in no span, and the lists, counts and pending stacks of owners whose lock was held may
 * be half-changed.  Kinds, owners and bits of slabs never are: lists, counts and stacks are made anew from them. */
#ifndef FRONT_REPAIR_H
#define FRONT_REPAIR_H

#include "front/heap.h"

/* In a fork's child, once: makes the heaps of threads that are gone orphans, and repairs what one of them had begun. Does nothing
 * elsewhere. Called where a thread enters or leaves the allocator, or waits for a heap's lock. `mine` is the calling thread's heap, or
 * NULL. */
void heap_after_fork(heap_t *mine);
/* Called by the fork handlers with the thread's heap or NULL: before the fork, and after it in the parent. */
void heap_show_fork(heap_t *mine, bool forking);
/* Called by the fork handler in the child: notes which heap is the forker's, since a thread that the child starts may reach a slow path
 * first. Another library's handler may have started one: if that thread has repaired the child already, or is about to, nothing is
 * noted. */
void heap_note_fork(heap_t *mine);
/* Whether there was a repair in this process or in one that it was forked from: a block may be lost for good. */
bool repair_was_made(void);
/* How many such repairs there were, give or take those that several threads have begun. */
uint32_t repair_count(void);

/* Takes the heap's lock. Only where the thread has nothing else under way, since in a fork's child the repair may run while it waits. */
void heap_lock(heap_t *heap);
/* The same for a thread whose own heap, or NULL, is `mine`. */
void heap_lock_as(heap_t *heap, heap_t *mine);
HAK_INLINE void heap_unlock(heap_t *heap) { lock_release(&heap->owner.lock); }

#endif
