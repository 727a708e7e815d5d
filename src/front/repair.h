/* repair.h - a fork's child makes whole what threads that are gone had begun.
 *
 * Nothing is locked before a fork, and most children never allocate: so the repair waits for the child's first slow path.
 * What the child finds of another thread is what that had written up to one instruction of its own: docs/design.md
 * tells why.  So where no other thread was on a slow path, all is as it must be but for the heaps' owners.
 *
 * Where one was, units may be claimed and in no span, and lists, counts and pending stacks may be half-changed: those
 * of owners whose lock was held.  Kinds, owners and bits of slabs never are: what was begun is made anew from them. */
#ifndef FRONT_REPAIR_H
#define FRONT_REPAIR_H

#include "front/heap.h"

/* In a fork's child, once, while no thread is inside anything of ours: orphans the heaps of threads that are gone, and repairs what
 * one of them had begun. `mine` is the calling thread's heap, or NULL.  Does nothing elsewhere. */
void heap_after_fork(heap_t *mine);
/* From the fork handlers, with the thread's heap or NULL: before, and after in the parent. */
void heap_show_fork(heap_t *mine, bool forking);
/* In the child, whose one thread may take a slow path later than one that it starts. Nothing is noted where that one has repaired already,
 * or is about to: another library's handler may have started it. */
void heap_note_fork(heap_t *mine);
/* Whether there was one, in this process or in one that it was forked from: a block may be lost for good. */
bool repair_was_made(void);

/* Waits for the heap's lock, only where the thread is inside nothing else: in a child the repair may run meanwhile. */
void heap_lock(heap_t *heap);
/* The same by a thread whose own heap is another, or NULL. */
void heap_lock_as(heap_t *heap, heap_t *mine);
HAK_INLINE void heap_unlock(heap_t *heap) { lock_release(&heap->owner.lock); }

#endif
