/* named.h - named heaps: heaps that the program makes, takes blocks from explicitly, and frees in one step.
 *
 * A named heap is a heap_t that no thread has.  A thread takes its lock for one operation at a time.  Its bins hold no blocks: what is
 * freed, by any thread, comes as remote frees.  Large blocks are in a list of its owner, and the record of their first unit names
 * that owner.
 *
 * The live bits of its blocks change by atomic read-modify-writes alone, as do the records of sampled blocks.  So each block is claimed
 * once: by its free, or by the end of the heap.  A free that has claimed its block, and waits for the lock or has not set its mark
 * yet, finds what it needs even after that end: a slab with a block out stays, as an orphan's. */
#ifndef FRONT_NAMED_H
#define FRONT_NAMED_H

#include "front/heap.h"
#include "space/span.h"

/* All of these are called on a slow path.
 *
 * Makes a heap; at most HEAP_NAME - 1 characters of the name are kept. Returns NULL when out of memory. */
HAK_CHECKED heap_t *named_new(const char *name);
/* Frees all blocks of the heap, and the heap. Ends the process if it is a thread's default heap. */
void named_end(heap_t *heap, const char *function);
/* Frees all blocks of the heap, which stays, also as the default heap of threads. */
void named_reset(heap_t *heap, const char *function);

/* Takes one entry (slab/sample.h) of the class; its block is not live yet. Returns NULL when out of memory, or, with *refused set, if the
 * heap is at its limit. */
HAK_CHECKED void *named_take(heap_t *heap, unsigned size_class, const char *function, bool *refused);
/* The same for a large block. */
HAK_CHECKED void *named_take_large(heap_t *heap, size_t size, size_t align, span_use_t use, const char *function, bool *refused);
/* large_resize for a block that is `owned`. */
HAK_CHECKED bool named_resize_large(unit_t *first, size_t size);
/* Takes a large block out of its heap's list: a block that was `owned`, and that the caller has claimed. */
void named_let_go(unit_t *first);

/* Tags of named heaps have this bit; the program sets those of threads itself. */
#define NAMED_TAG ((uint32_t)1 << 31)

/* The named heap that a live block of this span is from; NULL if it is from no named heap. */
HAK_CHECKED heap_t *named_of(const unit_t *span);

/* Collects remote frees, and gives wholly free slabs back; returns how many bytes these had. */
size_t named_collect(heap_t *heap, const char *function);
void named_set_limit(heap_t *heap, uint64_t bytes, const char *function);

/* From now on, `hook` is called for each span that blocks of the heap are taken from, before the first of these blocks is returned; also
 * for what a large block grows by in place. `hook` may advise the kernel about the span, without a change of its contents; core dumps have
 * the span again once it is not the heap's any more. It is called on a slow path, without a lock: other threads may have blocks of the span
 * by then. */
void named_set_span_hook(heap_t *heap, span_hook_t *hook, const char *function);

typedef struct named_figures {
  uint64_t live, blocks, allocs, slab_bytes, large_bytes, large_blocks;
} named_figures_t;
/* Collects remote frees first, so that the figures are exact. */
named_figures_t named_count(heap_t *heap, const char *function);
/* Ends the process if this is no named heap. */
void named_require(const heap_t *heap, const char *function);

#endif
