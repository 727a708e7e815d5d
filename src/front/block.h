/* block.h - allocation and freeing, once for every name that programs use.
 *
 *   block_alloc           pop from the bin of the size's class
 *     alloc_miss          no heap, an empty bin, or a large size
 *       thread_attach       a thread without a heap: adopt an orphan or make one
 *       bin_refill          a batch of blocks from a slab
 *         batch_take           a partly free slab, else a new one
 *           span_alloc          free units, else the region grows
 *       large_alloc         a span of its own
 *
 *   block_free            push into the bin of the block's class
 *     free_miss           not the thread's own slab, or nothing live there
 *       remote_mark          another heap's block: set its mark or its remote bit
 *       large_free          a span of its own
 *       block_fault         a wrong call: one line, abort
 *     bin_flush           the bin is full: half of it back to the slabs
 *       batch_give           a wholly free slab goes back to the space
 *         span_free           later purged by purge_due
 */
#ifndef FRONT_BLOCK_H
#define FRONT_BLOCK_H

#include "base/counted.h"
#include "base/thread.h"
#include "front/alloc.h"
#include "front/block_secure.h"
#include "front/free.h"
#include "front/thread.h"

/* Like block_alloc, but the block is zeroed. */
HAK_CHECKED void *block_alloc_zeroed(size_t size);
/* The same, but never from a named heap. */
HAK_CHECKED void *block_alloc_own_zeroed(size_t size);
/* `align` is a power of two. Returns NULL with errno ENOMEM when out of memory. */
HAK_CHECKED void *block_alloc_aligned(size_t align, size_t size);
HAK_CHECKED size_t block_alloc_batch(size_t size, size_t count, void **blocks);

/* The body of block_alloc; `miss` serves what the bins cannot. */
HAK_INLINE void *block_alloc_or(size_t size, void *(*miss)(size_t size)) {
  bin_t *bin;
  void *block; /* the bin is heap_bin_for's; a pop in each branch spares a jump */
  if (HAK_LIKELY(size <= HAK_TABLE_MAX)) {
    block = bin_pop(bin = heap_bin_at(thread_fast_heap, heap_small_index(size)));
  } else {
    if (HAK_UNLIKELY(size > HAK_SMALL_MAX)) return miss(size);
    block = bin_pop(bin = heap_bin_at(thread_fast_heap, heap_mid_index(size)));
  }
  if (HAK_UNLIKELY(block == NULL)) return miss(size);
  counted_take(bin_usable(bin));
  return block;
}

HAK_INLINE void *block_alloc(size_t size) { return HAK_SECURE ? alloc_secure(size) : block_alloc_or(size, alloc_miss); }

/* Never from a named heap that is the thread's default: while one is, every bin of the fast path is empty. */
HAK_INLINE void *block_alloc_own(size_t size) { return HAK_SECURE ? alloc_secure_own(size) : block_alloc_or(size, alloc_miss_own); }

/* The body of block_free. With `gate`, `limit` is region.gated_limit: for a block beyond it, nothing is done, and false leaves the block to
 * the caller. */
HAK_INLINE bool block_free_below(uintptr_t limit, bool gate, void *block, size_t size, const char *function) {
  uintptr_t place = region_index(block);
  if (gate && HAK_UNLIKELY(place >= limit)) return false;
  if (gate && !__builtin_constant_p(size)) HAK_HIDE_VAR(size); /* keeps it in its register: gcc moved it for the caller's sake */
  if (HAK_SECURE) {
    free_secure(block, size, function);
    return true;
  }
  if (HAK_UNLIKELY(place >= limit)) goto miss;
  uint64_t *live = owner_load(&region.live);
  bin_t *bin = bin_of_unit(live, region_index_unit(place));
  if (HAK_UNLIKELY(owner_load(&bin->shared.thread) != thread_self())) goto miss;
  if (HAK_UNLIKELY(size > bin->shared.block_size)) goto miss;
  if (HAK_CHECKS) {
    size_t index = place >> 6;
    uint64_t word = owner_load(&live[index]);
    HAK_HIDE_VAR(index);
    if (HAK_UNLIKELY(!bits_test_and_clear64(&word, place))) goto miss;
    owner_store(&live[index], word);
  }
  counted_give(bin_usable(bin));
  if (HAK_UNLIKELY(bin_push(bin, block))) free_overflow(bin);
  return true;
miss:
  free_miss(block, size, function);
  return true;
}

/* `size` is the size that the caller states, or 0 if it states none. A block that is smaller ends the process. */
HAK_INLINE void block_free(void *block, size_t size, const char *function) {
  (void)block_free_below(owner_load(&region.limit), false, block, size, function);
}

#endif
