/* supply.h - what a thread's heap gets and gives back: a heap for the thread, batches of blocks, what lies unused.
 *
 * Each function takes the heap's lock, and is called by the heap's thread, unless it says otherwise. */
#ifndef FRONT_SUPPLY_H
#define FRONT_SUPPLY_H

#include "front/heap.h"
#include "space/span.h"

/* Attaches a heap to the calling thread: an orphan, `wanted` if possible, or a new one. NULL when out of memory. */
HAK_CHECKED heap_t *heap_attach(const heap_t *wanted);
/* With the heap's lock, which it releases: lets another thread have the heap. What the bins hold stays in them if it is little, else it
 * goes back to the slabs. Another thread may have the heap when this returns. */
void heap_detach(heap_t *heap);

/* Refills the heap's empty bin of the class and pops an entry; NULL when out of memory. */
HAK_CHECKED void *heap_refill(heap_t *heap, unsigned size_class);
/* Takes one entry, bypassing the bins: for alloc_uncached, and under memcheck, which would take entries of bins for the program's
 * pointers. */
HAK_CHECKED void *heap_take_one(heap_t *heap, unsigned size_class);
/* Gives half of the blocks in a full bin of the heap back. */
void heap_flush(heap_t *heap, bin_t *bin);
/* Takes back a freed block that is in no bin: pushes it into a bin if it is from this heap's slabs, else frees it remotely. `heap` may be
 * NULL. */
void heap_take_back(heap_t *heap, void *block);

/* Takes one of the thread's cached large blocks; NULL if none fits. `heap` may be NULL. */
HAK_CHECKED void *heap_take_large(heap_t *heap, size_t size, span_use_t use);
/* Caches a large block that is not live any more. CACHED_NONE: it was not cached, and the caller has to free it. CACHED_AS_NOTED: it was
 * cached. CACHED_MORE: it was cached, and the heap caches more than was noted for the keeper. `heap` may be NULL. */
typedef enum heap_cached { CACHED_NONE, CACHED_AS_NOTED, CACHED_MORE } heap_cached_t;
HAK_CHECKED heap_cached_t heap_cache_large(heap_t *heap, unit_t *first);

/* If a tick is due: shrinks unused bins, near a memory limit others too, and ages the large cache. */
void heap_tick(heap_t *heap);
/* Gives back the blocks in bins, the cached large blocks, remote frees and wholly free slabs. */
void heap_trim(heap_t *heap);
/* Whether a trim may give anything back. */
HAK_CHECKED bool heap_may_trim(heap_t *heap);
/* By any thread, for all heaps whose lock is free: gives back remote frees, wholly free slabs, and what orphans have in bins and caches.
 * What live threads have in their bins is left to drain_bins. */
void heap_trim_others(void);
/* The same two where an allocation has failed: they look for frees that nobody has announced only while there may be some, since that takes
 * time in proportion to the heap. */
void heap_trim_briefly(heap_t *heap);
void heap_trim_others_briefly(void);
/* All of that, and then free pages. With `now` it also takes what live threads have in their bins, and gives back all free pages; else only
 * the pages that are due. `heap` is the thread's, or NULL. The caller holds no lock. Returns the bytes of the pages. */
size_t heap_collect(heap_t *heap, bool now);

#endif
