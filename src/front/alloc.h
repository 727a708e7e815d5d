/* alloc.h - allocation where the thread's bin has nothing ready. */
#ifndef FRONT_ALLOC_H
#define FRONT_ALLOC_H

#include "base/bits.h"
#include "space/span.h"

/* Serves what malloc's fast path cannot: the thread has no heap, its bin is empty, or the size is large. Returns NULL with errno ENOMEM
 * when out of memory. */
HAK_CHECKED void *alloc_miss(size_t size);
/* The same for any request, also one that no bin serves because it is larger than SMALL_REQUEST_MAX or aligned more strictly than its
 * class. `use` matters for large blocks only. */
HAK_CHECKED void *alloc_any(size_t size, size_t align, span_use_t use);
/* Both again, but never from the named heap that is the thread's default: for what replaces a block of malloc. */
HAK_CHECKED void *alloc_miss_own(size_t size);
HAK_CHECKED void *alloc_own(size_t size, size_t align, span_use_t use);
/* Allocates from a named heap; `function` is the program's call. Returns NULL with errno ENOMEM when out of memory, or at the heap's
 * limit. */
struct heap;
HAK_CHECKED void *alloc_from(struct heap *heap, size_t size, size_t align, span_use_t use, const char *function);
/* Takes the block from the lowest slab with room. It bypasses the bin, which may hold blocks that were freed in emptier slabs: for programs
 * that move blocks in order to empty slabs (compat/jemalloc). */
HAK_CHECKED void *alloc_uncached(size_t size);
/* Called on a slow path when memory is out: gives back what is cached anywhere. Returns false if nothing is known to be cached, so that
 * another try would fail as well. */
HAK_CHECKED bool trim_all(void);
/* Sets errno; returns NULL. */
void *out_of_memory(void);

#endif
