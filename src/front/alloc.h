/* alloc.h - allocation where the thread's bin has nothing ready. */
#ifndef FRONT_ALLOC_H
#define FRONT_ALLOC_H

#include "base/bits.h"
#include "space/span.h"

/* What the fast path of malloc leaves: no heap, an empty bin, or a large size. NULL with errno ENOMEM when out of memory. */
HAK_CHECKED void *alloc_miss(size_t size);
/* The same past any bin for what is larger than SMALL_MAX or aligned to more than its class is; `use` counts for large blocks. */
HAK_CHECKED void *alloc_any(size_t size, size_t align, span_use_t use);
/* From a named heap, which `function` was called with. NULL with errno ENOMEM when out of memory, or at the heap's limit. */
struct heap;
HAK_CHECKED void *alloc_from(struct heap *heap, size_t size, size_t align, span_use_t use, const char *function);
/* From the lowest slab with room, past the bin, which may hold what was freed in emptier ones: for programs that move blocks to get
 * slabs empty (compat/jemalloc). */
HAK_CHECKED void *alloc_uncached(size_t size);
/* Where memory is out: gives back what is cached anywhere, on a slow path. False: nothing is, for all that is known, and the next try
 * will fail as well. */
HAK_CHECKED bool trim_all(void);
/* Sets errno; returns NULL. */
void *out_of_memory(void);

#endif
