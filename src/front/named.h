/* named.h - named heaps: heaps that the program makes, takes blocks from by name, and ends at once.
 *
 * A named heap is a heap_t that no thread has.  Its lock gives it to a thread for one operation; its bins hold no blocks.  What is freed
 * comes as remote frees, from any thread.  Large blocks are in a list of its owner, and whose they are is told by their unit.
 *
 * The live bits of its blocks are changed by atomic read-modify-writes alone, as are the records of those that are sampled.  So a block
 * is claimed by one: by its free, or by the heap's end.  A free that has claimed its block, and waits for the lock or is on its way to
 * a mark, finds what it needs after the end: a slab with a block out stays, as an orphan's. */
#ifndef FRONT_NAMED_H
#define FRONT_NAMED_H

#include "front/heap.h"
#include "space/span.h"

/* All of these are calls that a slow path makes.
 *
 * A new heap, with at most HEAP_NAME - 1 characters of the name; NULL when out of memory. */
HAK_CHECKED heap_t *named_new(const char *name);
/* Frees all its blocks, and gives the heap back.  Ends the process if a thread takes from it instead of its own. */
void named_end(heap_t *heap, const char *function);
/* Frees all its blocks; the heap stays, also as the default of threads. */
void named_reset(heap_t *heap, const char *function);

/* One entry (slab/sample.h) of the class, not live yet.  NULL: out of memory, or `*refused`: the heap is at its limit. */
HAK_CHECKED void *named_take(heap_t *heap, unsigned size_class, const char *function, bool *refused);
/* A large block; the same. */
HAK_CHECKED void *named_take_large(heap_t *heap, size_t size, size_t align, span_use_t use, const char *function, bool *refused);
/* large_resize of a block that is `owned`. */
HAK_CHECKED bool named_resize_large(unit_t *first, size_t size);
/* A large block that was `owned`, and that its caller has claimed, is its heap's no more. */
void named_let_go(unit_t *first);

/* Tags of named heaps have this bit: those of threads are the program's own. */
#define NAMED_TAG ((uint32_t)1 << 31)

/* The named heap that the live block is from; NULL for any other. */
HAK_CHECKED heap_t *named_of(const unit_t *span);

/* Brings in what was freed, and gives wholly free slabs back; returns how many bytes these had. */
size_t named_collect(heap_t *heap, const char *function);
void named_set_limit(heap_t *heap, uint64_t bytes, const char *function);

/* Has `call` called for each span that blocks of the heap are taken from, from now on, before the first of them is returned; also for what
 * a large block grows by in place.  It may advise the kernel about the span, without a change of what is there: core dumps have it again
 * once it is the heap's no more.  Called without a lock, on a slow path: other threads may have blocks of the span meanwhile. */
void named_tell(heap_t *heap, heap_told_t *call, const char *function);

typedef struct named_figures {
  uint64_t live, blocks, allocs, slab_bytes, large_bytes, large_blocks;
} named_figures_t;
/* Exact, after what was freed is brought in. */
named_figures_t named_count(heap_t *heap, const char *function);
/* Ends the process if this is no named heap. */
void named_require(const heap_t *heap, const char *function);

#endif
