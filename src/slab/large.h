/* large.h - blocks of more than HAK_SMALL_MAX bytes, zeroed and grown ones of more than HAK_SLAB_ALWAYS: a span each, owned by
 * nobody.
 * Any thread may free any; the calls on one block must not overlap. */
#ifndef SLAB_LARGE_H
#define SLAB_LARGE_H

#include "slab/kept.h"
#include "slab/large_secure.h"

/* Sources of large_allocs and large_frees, with each kept_t. */
extern _Atomic uint64_t large_alloc_count, large_free_count;

/* What a request that needs a large block is one of: an alignment may need one for a size that does not. */
HAK_INLINE size_t large_request(size_t size) { return size > SMALL_MAX ? size : SMALL_MAX + 1; }
/* The usable size that a request gets; 0 if it exceeds what can be had. */
size_t large_good_size(size_t size);
/* NULL when out of memory; zero if `use` says so. `align` is a power of two. */
HAK_CHECKED void *large_alloc(size_t size, size_t align, span_use_t use);
/* In the secure library, for one that was asked for with less than large_request tells: that is its size. */
void large_note_size(void *block, size_t size);
/* The same as large_alloc, SPAN_GROWN and where it may grow more: span.h. */
HAK_CHECKED void *large_alloc_to_grow(size_t size, uint32_t home);
void large_free(unit_t *first);
/* The same from what a thread keeps, for that thread: NULL if it has nothing, and the units that it keeps then, or 0 if there is no room.
 * Not in the secure library. */
HAK_CHECKED void *large_take_kept(kept_t *kept, size_t size, span_use_t use);
HAK_CHECKED uint32_t large_keep(kept_t *kept, unit_t *first, uint32_t most);
/* Whether such a block could be had if all others were freed. */
HAK_CHECKED bool large_may_fit(size_t size, size_t align);
/* What the secure library keeps back of freed blocks becomes usable; false if there is none, as elsewhere. */
bool large_trim(void);
/* Makes `size` bytes usable in place; false if that cannot be. New bytes are not zeroed. */
HAK_CHECKED bool large_resize(unit_t *first, size_t size);
/* Whether what lies behind it is kept, by any thread, for all that is known. */
HAK_CHECKED bool large_is_before_kept(const unit_t *first);
/* Brings the content of a live block into another, `to`, that is not smaller; what `from` holds then is lost. */
void large_move(unit_t *from, void *to);

#endif
