/* supply.h - what comes into a thread's heap and goes out of it: a heap for the thread, batches of blocks, what lies unused.
 *
 * Each takes the heap's lock.  By the heap's thread, where nothing else is said. */
#ifndef FRONT_SUPPLY_H
#define FRONT_SUPPLY_H

#include "front/heap.h"
#include "space/span.h"

/* An orphan, if it can be `wanted`, or a new heap, attached to the calling thread. NULL when out of memory. */
HAK_CHECKED heap_t *heap_attach(const heap_t *wanted);
/* With its lock, which it releases: lets another thread have the heap, with what its bins have if that is little; else that goes back to
 * the slabs. It may be gone then. */
void heap_detach(heap_t *heap);

/* Brings blocks of the class into its empty bin and pops one; NULL when out of memory. */
HAK_CHECKED void *heap_refill(heap_t *heap, unsigned size_class);
/* One block past the bins: memcheck would take their entries for pointers of the program's. */
HAK_CHECKED void *heap_take_one(heap_t *heap, unsigned size_class);
/* Gives half of a full bin of the heap back. */
void heap_flush(heap_t *heap, bin_t *bin);
/* Takes a free block that is in no bin: into a bin if it is from this heap's slabs, else it is a remote free. `heap` may be NULL. */
void heap_take_back(heap_t *heap, void *block);

/* A large block of those that the thread keeps; NULL if none has the size. `heap` may be NULL. */
HAK_CHECKED void *heap_take_large(heap_t *heap, size_t size, span_use_t use);
/* Keeps one that is not live any more, unless it is to be freed: KEEP_NONE.  With KEEP_MORE the heap keeps more than others knew to be
 * worth looking for. `heap` may be NULL. */
typedef enum heap_keep { KEEP_NONE, KEEP_AS_NOTED, KEEP_MORE } heap_keep_t;
HAK_CHECKED heap_keep_t heap_keep_large(heap_t *heap, unit_t *first);

/* Makes unused bins smaller if it is time to, near a limit of memory others too, and lets large blocks go that were not asked for again. */
void heap_tick(heap_t *heap);
/* Gives the bins' blocks, kept large ones, collected remote frees and wholly free slabs back. */
void heap_trim(heap_t *heap);
/* Whether anything was freed to the heap since that was last done. */
HAK_CHECKED bool heap_may_trim(heap_t *heap);
/* For all heaps, as far as that can be done from outside, by any thread: remote frees, wholly free slabs, and what orphans' heaps have;
 * what live threads have is drain_bins' to take. */
void heap_trim_others(void);
/* All of that, and then free pages: all with `now`, and what live threads have in their bins, else what is due. `heap` is the thread's,
 * or NULL; not where a lock is held. The bytes given back. */
size_t heap_collect(heap_t *heap, bool now);

#endif
