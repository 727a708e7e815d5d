/* large.h - blocks of more than HAK_SMALL_MAX bytes, and of more than HAK_SMALL_MAX_ZEROED where they are zeroed or grown: each is a span
 * of its own and belongs to no thread.
 *
 * Any thread may free any of them; the calls on one block must not overlap. */
#ifndef SLAB_LARGE_H
#define SLAB_LARGE_H

#include "slab/large_cache.h"
#include "slab/large_secure.h"

/* What large_allocs and large_frees count, with the takes and puts of each large_cache_t. */
extern _Atomic uint64_t large_alloc_count, large_free_count;

/* The size to request of a large block: a large alignment may need one even for a size that slabs have. */
HAK_INLINE size_t large_request(size_t size) { return size > SMALL_REQUEST_MAX ? size : SMALL_REQUEST_MAX + 1; }
/* The usable size that a request gets; 0 if it exceeds what can be had. */
size_t large_good_size(size_t size);
/* Returns a block, which is zero if `use` says so; NULL when out of memory.  `align` is a power of two. */
HAK_CHECKED void *large_alloc(size_t size, size_t align, span_use_t use);
/* For a block whose size was raised by large_request: notes the size that the program asked for. */
void large_note_size(void *block, size_t size);
/* As large_alloc with SPAN_GROWN or SPAN_GROWING, at a place where the block may grow further; `home` as in span.h. */
HAK_CHECKED void *large_alloc_to_grow(size_t size, span_use_t use, uint32_t home);
/* What a block of `old` bytes is moved for when realloc makes it larger; `large`: its record if it is a large one.  A further step that is
 * small for its size is probably one of many: the copies cost more than what is left free behind the block.  (CPython's lists grow by an
 * eighth and a few bytes.) */
HAK_INLINE span_use_t large_use_to_grow(const unit_t *large, size_t old, size_t size) {
  bool again = large != NULL && large->use >= SPAN_GROWN;
  return again && size - old <= old / 8 + 64 ? SPAN_GROWING : SPAN_GROWN;
}
void large_free(unit_t *first);
/* The same with the cache of a thread, for that thread alone. large_take_cached returns NULL if nothing in the cache fits.
 * large_put_cached returns the units that are cached then, or 0 if there is no room.  Not in the secure library. */
HAK_CHECKED void *large_take_cached(large_cache_t *cache, size_t size, span_use_t use);
HAK_CHECKED uint32_t large_put_cached(large_cache_t *cache, unit_t *first, uint32_t most);
/* Whether such a block could be had if all others were freed. */
HAK_CHECKED bool large_may_fit(size_t size, size_t align);
/* Makes usable what the secure library keeps back of freed blocks; false if there is none, as in the other libraries. */
bool large_trim(void);
/* Makes `size` bytes usable in place; false if that cannot be. New bytes are not zeroed. */
HAK_CHECKED bool large_resize(unit_t *first, size_t size);
/* Whether the span behind the block is in any thread's cache; it may no longer be so. */
HAK_CHECKED bool large_is_before_cached(const unit_t *first);
/* Moves the content of a live block into another, `to`, which is not smaller; what `from` holds afterwards is undefined. */
void large_move(unit_t *from, void *to);

#endif
