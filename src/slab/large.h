/* large.h - blocks of more than HAK_SMALL_MAX bytes: a span each, owned by nobody.
 * Any thread may free any; the calls on one block must not overlap. */
#ifndef SLAB_LARGE_H
#define SLAB_LARGE_H

#include "slab/slab.h"

/* Sources of large_allocs and large_frees. */
extern _Atomic uint64_t large_alloc_count, large_free_count;

/* The usable size that a request gets; 0 if it exceeds what can be had. */
size_t large_good_size(size_t size);
/* NULL when out of memory. *zero: the block is known to be zero. `align` is a power of two. */
HAK_CHECKED void *large_alloc(size_t size, size_t align, bool *zero);
void large_free(slab_t *slab);
/* Makes `size` bytes usable in place; false if that cannot be. New bytes are not zeroed;
 * *zero tells whether those beyond the old usable size are. */
HAK_CHECKED bool large_resize(slab_t *slab, size_t size, bool *zero);

#endif
