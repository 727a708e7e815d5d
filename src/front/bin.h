/* bin.h - a heap's bounded stack of free blocks of one size class.
 *
 * malloc pops and free pushes; neither touches the block.  BIN_END lies below the
 * first entry, so that pop needs no bounds check.  Push needs none either: it checks
 * for a full stack after it has pushed.  The entry of a sampled block (slab/sample.h)
 * has the same top bit as BIN_END, and leads to the slow path too.  The
 * entries lie just below the bin itself and `top` counts up to 0:
 *
 *     (reserve) | BIN_END | entry ... entry | (room) | bin
 *                        -capacity    top - 1       0
 *
 * The capacity begins small and doubles at refills and flushes, up to bin_kb.
 * Where refills and flushes alternate, which a larger bin would have avoided, it
 * grows beyond bin_kb as far as the reserve and the heap's budget allow.  It
 * halves when the bin was neither refilled nor flushed between two ticks.
 *
 * Only the heap's thread touches a bin, or for an orphan the holder of owner->lock.
 * While top and capacity change together the bin looks empty, for the sake of a fork's child.
 * Another thread may take the entries below a bar: drain.h. */
#ifndef FRONT_BIN_H
#define FRONT_BIN_H

#include "base/atomics.h"
#include "base/bits.h"
#include "slab/slab.h"

typedef struct bin {
  region_bin_t shared; /* read whenever another thread frees a block: a cache line of its own */
  HAK_ALIGNED(HAK_CACHE_LINE) intptr_t top; /* -capacity when empty, 0 when full; hot */
  intptr_t capacity;   /* entries */
  uint8_t last;        /* bin_event_t */
  bool used;           /* refilled or flushed since the last tick */
  bool barred;         /* its thread has to settle it. Guarded by owner->lock, as are the next four */
  uint16_t taken;      /* how many of the lowest entries another thread has taken; the uppermost of them is a BIN_END */
  _Atomic uint16_t gone; /* the same, read without the lock; in the secure library also those below a bar, which hits leave alone */
  int16_t bar, seen;   /* where the current drain has set a bar, 0 if nowhere; the top that it has read since */
  uint32_t batch;      /* how many blocks the next refill brings */
  _Atomic uint64_t refills; /* statistics, as are the next three */
  _Atomic uint64_t flushes;
  _Atomic uint64_t refill_blocks;
  _Atomic uint64_t flush_blocks;
} bin_t;
_Static_assert(sizeof(bin_t) == 2 * HAK_CACHE_LINE, "what the owner writes is one line");

/* What the bins of a heap share. */
typedef struct bin_budget {
  size_t extra_bytes; /* bytes of the blocks that capacities beyond bin_kb have room for */
  _Atomic uint32_t grown, shrunk;
} bin_budget_t;

/* A hit takes one of this many uppermost entries; the secure library chooses it at random (front/secure.c). */
#define BIN_REACH (HAK_SECURE ? 4 : 1)

/* The entries have negative indices; hot, as `top` is. */
HAK_INLINE void **bin_entries(bin_t *bin) { return (void **)(void *)bin; }
/* The bytes of a block that a program may use. */
HAK_INLINE size_t bin_usable(const bin_t *bin) { return bin->shared.size_class == CLASS_ZERO ? 0 : bin->shared.block_size; }
/* How many blocks the bin has; an estimate if it is another thread's. */
HAK_INLINE uint32_t bin_count(const bin_t *bin) {
  intptr_t count = racy_load(&bin->top) + racy_load(&bin->capacity) - load_relaxed(&bin->gone);
  return count > 0 ? (uint32_t)count : 0;
}

/* The bin that takes the unit's blocks. Free finds a pointer to the bin's first member in the region's zone of bins, which lies beside the
 * live map; the region knows nothing else of the bin. */
HAK_INLINE bin_t *bin_of_unit(uint64_t *live, size_t unit) { return (bin_t *)(void *)owner_load(region_bin(live, unit)); }

#define BIN_END ((void *)(ENTRY_SAMPLED | ENTRY_BAR))

/* Returns NULL if the bin is empty, or if the next entry is sampled or barred. */
HAK_INLINE void *bin_pop(bin_t *bin) {
  intptr_t top = owner_load(&bin->top);
  char *block = owner_load(&bin_entries(bin)[top - 1]);
  HAK_RESULT(block);
  if (HAK_UNLIKELY(entry_is_sampled(block))) return NULL;
  if (block == NULL) __builtin_unreachable(); /* spares callers another check */
  owner_store(&bin->top, top - 1);
  if (HAK_CHECKS) {
    uint64_t *live = (uint64_t *)owner_load(&region.live_bias);
    size_t index = region_live_index(block);
    uint64_t word = owner_load(&live[index]);
    HAK_HIDE_VAR(index);
    bits_set64(&word, (uintptr_t)block >> HAK_GRANULE_SHIFT);
    owner_store(&live[index], word);
  }
  return block;
}

/* Pops an entry off the fast path; its block is not live yet. Returns NULL if the bin is empty or the entry is barred. */
HAK_INLINE void *bin_pop_entry(bin_t *bin) {
  intptr_t top = owner_load(&bin->top);
  void *entry = owner_load(&bin_entries(bin)[top - 1]);
  if (entry_is_barred(entry)) return NULL;
  owner_store(&bin->top, top - 1);
  return entry;
}

/* Returns true if the bin is full now, and must be flushed before the next push. */
HAK_CHECKED HAK_INLINE bool bin_push(bin_t *bin, void *block) {
  intptr_t top = owner_load(&bin->top);
  owner_store(&bin_entries(bin)[top], block);
  atomic_signal_fence(memory_order_release); /* a fork's child must not find a top without its entry */
  top++;
  owner_store(&bin->top, top);
  return top == 0;
}

/* Counts a block of the class that bypassed the bin. The caller holds owner->lock. */
HAK_INLINE void bin_count_taken(bin_t *bin) {
  owner_add(&bin->refills, 1);
  owner_add(&bin->refill_blocks, 1);
}

/* The most entries that a bin of the class can ever have. */
intptr_t bin_reserve(unsigned size_class);
void bin_init(bin_t *bin, unsigned size_class, uintptr_t thread);
/* With owner->lock: pops an entry, after fetching a batch of blocks if the bin is empty. NULL when out of memory. */
HAK_CHECKED void *bin_refill(bin_t *bin, slab_owner_t *owner, bin_budget_t *budget);
/* With owner->lock: gives half of a full bin's blocks back, or none if there is room by now. */
void bin_flush(bin_t *bin, slab_owner_t *owner, bin_budget_t *budget);
/* With owner->lock, in a fork's child: restores the ends of a bin whose thread may have been in the middle of a change. */
void bin_recover(bin_t *bin, slab_owner_t *owner, bin_budget_t *budget);
/* With owner->lock: gives all blocks back. */
void bin_empty(bin_t *bin, slab_owner_t *owner);
/* With owner->lock, now and then: shrinks a bin that was not used since the last call; near a memory limit, any bin. */
void bin_tick(bin_t *bin, slab_owner_t *owner, bin_budget_t *budget);

/* For another thread, with owner->lock: called in this order, with a barrier in all threads after each of the first two (drain.h). */
bool bin_set_bar(bin_t *bin); /* false: too few entries, or one has just changed */
void bin_see_top(bin_t *bin);
uint32_t bin_take_below(bin_t *bin, slab_owner_t *owner); /* gives back the barred block and those below it; returns how many */

#endif
