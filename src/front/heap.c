#include "front/heap.h"

#include "base/check.h"
#include "kit/options.h"
#include "kit/random.h"
#include "os/os.h"
#include "slab/batch.h"
#include "slab/remote.h"

#define NONE_TOP ((intptr_t)(offsetof(heap_t, none_entry) / sizeof(void *) + 1))
heap_t heap_none = {.none = {.top = NONE_TOP, .capacity = -NONE_TOP}, .none_entry = BIN_END};

__thread uint32_t thread_inside;
HAK_APART heapless_t heapless[HEAPLESS_LINES];
HAK_APART bins_retired_t bins_retired[CLASS_COUNT];

/* --- layout ------------------------------------------------------------------------------ */

/* Lays out the classes' bins one after the other from word `at` on: for each, a BIN_END, its entries and the bin itself. Returns how many
 * words they take. */
static size_t bins_place(heap_t *heap, size_t at) {
  const size_t line = HAK_CACHE_LINE / 8, start = at;
  for (unsigned c = 0; c < CLASS_COUNT; c++) {
    at = bits_round_up(at + 1 + (size_t)bin_reserve(c), line);
    HAK_ASSERT(at <= UINT16_MAX);
    if (heap != NULL) heap->bin_at_class[c] = (uint16_t)at;
    at += sizeof(bin_t) / 8;
  }
  return at - start;
}

size_t heap_bins_bytes(void) { return bits_round_up(bins_place(NULL, 0) * 8, os_page_size()); }

/* Sets what malloc finds for the sizes of the class: its bin, if it has one. */
void heap_set_table(heap_t *heap, unsigned c) {
  bool leads = load_relaxed(&heap->has_bin[c]) && !load_relaxed(&heap->watched);
  uint16_t at = leads ? heap->bin_at_class[c] : 0;
  size_t above = c == 0 ? 0 : class_info[c - 1].size;
  if (c == CLASS_ZERO) racy_store(&heap->bin_at[0], at);
  for (size_t i = above / HAK_GRANULE + 1; i < HEAP_TABLE_SMALL && i * HAK_GRANULE <= class_info[c].size; i++) {
    racy_store(&heap->bin_at[i], at);
  }
  for (size_t i = above / HEAP_TABLE_STEP + 1; i < HEAP_TABLE_MID && i * HEAP_TABLE_STEP <= class_info[c].size; i++) {
    racy_store(&heap->bin_at[HEAP_TABLE_SMALL + i], at);
  }
}

void heap_set_watched(heap_t *heap, bool watched) {
  store_relaxed(&heap->watched, watched);
  for (unsigned c = 0; c < CLASS_COUNT; c++) heap_set_table(heap, c);
}

void heap_add_bin(heap_t *heap, unsigned c) {
  bin_init(heap_bin(heap, c), c, load_relaxed(&heap->owner.thread));
  store_relaxed(&heap->has_bin[c], true);
  heap_set_table(heap, c);
}

uint32_t heap_guard_interval(heap_t *heap) {
  if (option_get(OPTION_guard) == 0) return UINT32_MAX;
  return random_below(&heap->random, (uint32_t)option_get(OPTION_guard_every) * 2 - 1);
}

void heap_init(heap_t *heap, char *bins) {
  heap->none = heap_none.none;
  heap->none_entry = BIN_END;
  heap->bins = bins;
  (void)bins_place(heap, (size_t)(bins - (char *)heap) / 8);
  owner_init(&heap->owner);
  heap->random = os_random_seed() ^ (uintptr_t)heap;
  heap->until_guarded = heap_guard_interval(heap);
}

void heap_set_thread(heap_t *heap, uintptr_t thread) {
  atomic_store(&heap->owner.thread, thread); /* before the lock is released: see remote_help */
  for (unsigned c = heap_next_bin(heap, 0); c < CLASS_COUNT; c = heap_next_bin(heap, c + 1)) {
    bin_t *bin = heap_bin(heap, c);
    if (HAK_UNLIKELY(owner_load(&bin->top) > 0)) owner_store(&bin->top, 0); /* a fork, and a block over shared.thread: bin_flush */
    racy_store(&bin->shared.thread, thread);
  }
}

void heap_set_default(heap_t *heap, heap_t *named) {
  heap_t *before = heap->default_heap;
  if (named != NULL) add_relaxed(&named->named.users, 1);
  heap->default_heap = named;
  if (before != NULL) add_relaxed(&before->named.users, (uint32_t)-1);
}

void heap_free_remotely(void *block) {
  uint32_t unit = (uint32_t)region_unit(block);
  unit_t *slab = remote_mark(racy_load(region_bin(region.live, unit)), unit, block);
  if (slab != NULL) remote_announce(slab);
}

void heap_give_block(heap_t *heap, void *block) {
  if (slab_owner(unit_head((uint32_t)region_unit(block))) == &heap->owner) (void)batch_give(&heap->owner, &block, 1);
  else heap_free_remotely(block);
}

void heap_retire_bins(heap_t *heap) {
  for (unsigned c = heap_next_bin(heap, 0); c < CLASS_COUNT; c = heap_next_bin(heap, c + 1)) {
    bin_t *bin = heap_bin(heap, c);
    /* The counts are taken out, since pages that the program has locked are not cleared. */
    add_relaxed(&bins_retired[c].refills, atomic_exchange_explicit(&bin->refills, 0, memory_order_relaxed));
    add_relaxed(&bins_retired[c].flushes, atomic_exchange_explicit(&bin->flushes, 0, memory_order_relaxed));
    add_relaxed(&bins_retired[c].refill_blocks, atomic_exchange_explicit(&bin->refill_blocks, 0, memory_order_relaxed));
    add_relaxed(&bins_retired[c].flush_blocks, atomic_exchange_explicit(&bin->flush_blocks, 0, memory_order_relaxed));
    store_relaxed(&heap->has_bin[c], false);
    heap_set_table(heap, c);
  }
  heap->budget.extra_bytes = 0;
  atomic_signal_fence(memory_order_seq_cst); /* a fork's child must not take zeroes for a bin */
  (void)os_purge(heap->bins, heap_bins_bytes());
}
