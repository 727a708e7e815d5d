/* bin.h - a heap's bounded stack of free blocks of one size class.
 *
 * malloc pops, free pushes; neither touches the block.  An empty stack shows
 * BIN_END below its first entry, so that pop needs no bound; push needs none
 * either: it checks for a full stack after it has pushed.  The entry of a sampled
 * block (slab/sample.h) has the same top bit, and leads to the slow path too.  The
 * entries lie just below the bin itself and `top` counts up to 0:
 *
 *     (reserve) | BIN_END | entry ... entry | (room) | bin
 *                        -capacity    top - 1       0
 *
 * The capacity begins small.  It doubles with refills and flushes up to
 * bin_kb, and where the two come in turn, which a larger bin would have
 * spared, beyond that as far as the reserve and the heap's budget go.  It
 * halves when the bin was neither refilled nor flushed between two ticks.
 *
 * Only the heap's thread touches a bin, and the thread that repairs it in a
 * fork's child: whenever top and capacity change together, the bin looks empty meanwhile.
 * What lies below a bar another thread may take: drain.h. */
#ifndef FRONT_BIN_H
#define FRONT_BIN_H

#include "base/atomics.h"
#include "base/bits.h"
#include "slab/slab.h"

typedef struct bin {
  region_bin_t shared; /* read for each block that another thread frees: a line of its own */
  HAK_ALIGNED(HAK_CACHE_LINE) intptr_t top; /* -capacity when empty, 0 when full; hot */
  intptr_t capacity;   /* entries */
  uint8_t last;        /* bin_event_t */
  bool used;           /* refilled or flushed since the last tick */
  bool barred;         /* its thread is to settle it. With owner->lock, as the next four */
  uint16_t taken;      /* so many of the lowest entries another thread has; the uppermost of them is a BIN_END */
  _Atomic uint16_t gone; /* the same; in the secure library those below a bar too, which its hits leave alone */
  int16_t bar, seen;   /* where the drain under way has set a bar, 0: nowhere; the top that it has seen since */
  uint32_t batch;      /* blocks to bring with the next refill */
  _Atomic uint64_t refills; /* statistics, as are the next three */
  _Atomic uint64_t flushes;
  _Atomic uint64_t refill_blocks;
  _Atomic uint64_t flush_blocks;
} bin_t;
_Static_assert(sizeof(bin_t) == 2 * HAK_CACHE_LINE, "what the owner writes is one line");

/* What the bins of a heap share. */
typedef struct bin_budget {
  size_t extra_bytes; /* that capacities beyond bin_kb stand for */
  _Atomic uint32_t grown, shrunk;
} bin_budget_t;

/* A hit takes one of so many of the uppermost entries: in the secure library at random (front/secure.c). */
#define BIN_REACH (HAK_SECURE ? 4 : 1)

/* Hot, as `top` is. */
HAK_INLINE void **bin_entries(bin_t *bin) { return (void **)(void *)bin; }
/* What a program may use of a block. */
HAK_INLINE size_t bin_usable(const bin_t *bin) { return bin->shared.size_class == CLASS_ZERO ? 0 : bin->shared.block_size; }
/* Blocks in it; of another thread's bin a guess. */
HAK_INLINE uint32_t bin_count(const bin_t *bin) {
  intptr_t count = racy_load(&bin->top) + racy_load(&bin->capacity) - load_relaxed(&bin->gone);
  return count > 0 ? (uint32_t)count : 0;
}

/* The bin that takes the unit's blocks.  What free asks of a bin lies in the region's zone of bins, since it is found beside the live
 * map: the region knows it as the first member alone. */
HAK_INLINE bin_t *bin_of_unit(uint64_t *live, size_t unit) { return (bin_t *)(void *)owner_load(region_bin(live, unit)); }

#define BIN_END ((void *)(ENTRY_SAMPLED | ENTRY_BAR))

/* NULL where there is none, or the next is sampled. */
HAK_INLINE void *bin_pop(bin_t *bin) {
  intptr_t top = owner_load(&bin->top);
  char *block = owner_load(&bin_entries(bin)[top - 1]);
  HAK_RESULT(block);
  if (HAK_UNLIKELY(entry_is_sampled(block))) return NULL;
  if (block == NULL) __builtin_unreachable(); /* so that callers need not ask again */
  owner_store(&bin->top, top - 1);
  if (HAK_CHECKS) {
    uint64_t *live = (uint64_t *)owner_load(&region.live_bias);
    size_t index = region_live_index(block);
    uint64_t word = owner_load(&live[index]);
    HAK_FORGET(index);
    bits_set64(&word, (uintptr_t)block >> HAK_GRANULE_SHIFT);
    owner_store(&live[index], word);
  }
  return block;
}

/* The next entry, off the fast path: its block is not live yet. NULL where there is none, or it is barred. */
HAK_INLINE void *bin_pop_entry(bin_t *bin) {
  intptr_t top = owner_load(&bin->top);
  void *entry = owner_load(&bin_entries(bin)[top - 1]);
  if (entry_is_barred(entry)) return NULL;
  owner_store(&bin->top, top - 1);
  return entry;
}

/* True: the bin is full, and has to be flushed before the next. */
HAK_CHECKED HAK_INLINE bool bin_push(bin_t *bin, void *block) {
  intptr_t top = owner_load(&bin->top);
  owner_store(&bin_entries(bin)[top], block);
  atomic_signal_fence(memory_order_release); /* a fork's child must not find a top without its entry */
  top++;
  owner_store(&bin->top, top);
  return top == 0;
}

/* Counts a block of the class that did not go through the bin. With owner->lock. */
HAK_INLINE void bin_count_taken(bin_t *bin) {
  owner_add(&bin->refills, 1);
  owner_add(&bin->refill_blocks, 1);
}

/* Entries that a bin of the class may ever have. */
intptr_t bin_reserve(unsigned size_class);
void bin_init(bin_t *bin, unsigned size_class, uintptr_t thread);
/* With owner->lock: pops an entry, of a batch that it brings if need be; NULL when out of memory. */
HAK_CHECKED void *bin_refill(bin_t *bin, slab_owner_t *owner, bin_budget_t *budget);
/* With owner->lock: gives half of a full bin back, unless there is room by now. */
void bin_flush(bin_t *bin, slab_owner_t *owner, bin_budget_t *budget);
/* With owner->lock, in a fork's child, of a bin whose thread may have been in the midst of a change: gives it its ends back. */
void bin_recover(bin_t *bin, slab_owner_t *owner, bin_budget_t *budget);
/* With owner->lock: gives all back. */
void bin_empty(bin_t *bin, slab_owner_t *owner);
/* With owner->lock, now and then: makes an unused bin smaller. */
void bin_tick(bin_t *bin, slab_owner_t *owner, bin_budget_t *budget);

/* By another thread, with owner->lock; in this order, with a barrier in all threads after each of the first two: drain.h. */
bool bin_set_bar(bin_t *bin); /* false: the bin has too little below it */
void bin_see_top(bin_t *bin);
uint32_t bin_take_below(bin_t *bin, slab_owner_t *owner); /* gives back what is below the bar; how many blocks */

#endif
