/* heaps.h - all heaps, and which thread has each.
 *
 * A heap is never freed, since other threads may still reach it when no thread
 * has it; the memory of its bins may be given back, and reads as zero then.
 * Orphans are handed on last in, first out; to find one, or a thread's own heap, takes no walk over all heaps.
 *
 * A fork's child may find any step half done, so each list changes by one store. */
#ifndef FRONT_HEAPS_H
#define FRONT_HEAPS_H

#include "front/heap.h"

/* All heaps ever made, newest first; follow `next`. Any thread. */
heap_t *heap_first(void);
extern heap_t *_Atomic heaps_newest; /* the same, for readers outside */
/* Gives the thread a heap. The first choice is one that an earlier thread with the same number has left behind unseen, since this thread's
 * frees go there already; then an orphan (`wanted` if that is among the newest), then a bare heap, then a new one. NULL when out of
 * memory. */
HAK_CHECKED heap_t *heaps_take(uintptr_t thread, const heap_t *wanted);
/* Gives the thread a heap that has no slabs and no blocks. NULL when out of memory. */
HAK_CHECKED heap_t *heaps_take_empty(uintptr_t thread);
/* Makes a named or shared heap an orphan or a bare heap. */
void heaps_end_unattached(heap_t *heap, heap_state_t state);
/* Takes an attached heap from its thread; the heap becomes an orphan, bare, shared or named. Does nothing if the heap would be an orphan or
 * bare and its thread has taken it again. */
void heaps_give(heap_t *heap, heap_state_t state);
/* The same for an orphan, but does nothing and returns false if there are `most` orphans already. Returns true if its thread has taken it
 * again. */
HAK_CHECKED bool heaps_keep(heap_t *heap, uint32_t most);
/* How many heaps are attached; how many are orphans. */
uint32_t heaps_attached(void);
uint32_t heaps_orphaned(void);
/* In a fork's child: rebuilds the lists and counts. The heaps of threads that are gone become orphans; the calling thread's heap, `mine`,
 * and that of the thread that has forked stay attached. Either may be NULL. `inside`: the caller is on a slow path already, and keeps a
 * lock that it holds. */
void heaps_after_fork(const heap_t *mine, const heap_t *forker, bool inside);
/* Collects the remote frees of all heaps whose lock is free, since their owners may be idle. Returns false if there were none. */
bool heaps_collect(void);
/* Checks the lists and counts of heaps. */
HAK_AUDITS(void heaps_audit(void);)

#endif
