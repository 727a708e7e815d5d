/* heaps.h - all heaps, and whose each is.
 *
 * A heap stays for good, since others than its thread may reach it when nobody
 * has it any more; the memory of its bins may be given back, and is zero then.
 * Orphans are handed on last in, first out; no walk finds them, or a thread's own.
 *
 * A fork's child may find any step half done: each list changes by one store. */
#ifndef FRONT_HEAPS_H
#define FRONT_HEAPS_H

#include "front/heap.h"

/* All heaps ever made, newest first; follow `next`. Any thread. */
heap_t *heap_first(void);
extern heap_t *_Atomic heaps_newest; /* the same, for readers outside */
/* Gives the thread a heap: the one that an earlier thread with its number has left behind unseen, whose frees go there already; else
 * an orphan, `wanted` if that is one of the newest, one without bins, or a new one. NULL when out of memory. */
HAK_CHECKED heap_t *heaps_take(uintptr_t thread, const heap_t *wanted);
/* The same for one that has no slabs and no blocks. */
HAK_CHECKED heap_t *heaps_take_empty(uintptr_t thread);
/* A named heap becomes an orphan, or one without bins. */
void heaps_end_named(heap_t *heap, heap_state_t state);
/* An attached heap is its thread's no more: an orphan, one without bins, shared or named. */
void heaps_give(heap_t *heap, heap_state_t state);
/* The same: an orphan. False, and nothing done, if there are so many already; not where its thread has it again. */
HAK_CHECKED bool heaps_keep(heap_t *heap, uint32_t most);
/* How many heaps threads have / are orphans. */
uint32_t heaps_attached(void);
uint32_t heaps_orphaned(void);
/* In a fork's child: lists and counts anew; heaps of gone threads become orphans. Those of the calling thread and of the one that
 * has forked stay; each may be NULL. */
void heaps_after_fork(const heap_t *mine, const heap_t *forker, bool inside);
/* Collects remote frees of all heaps, for owners that are idle. False: there were none. */
bool heaps_collect(void);
/* The lists and counts of heaps. */
HAK_AUDITS(void heaps_audit(void);)

#endif
