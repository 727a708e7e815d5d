/* heaps.h - what the tests of whole heaps share: a start, threads, and what must hold whenever no thread is at work. */
#ifndef HEAPS_H
#define HEAPS_H

#include "front/heap.h"

#include <pthread.h>

#include "front/block.h"
#include "front/boot.h"
#include "front/census.h"
#include "front/heaps.h"
#include "front/resize.h"
#include "front/thread.h"
#include "kit/options.h"
#include "space.h"
#include "unit.h"

/* ---- what must hold whenever no thread is at work ---- */

static inline void check_bin(const heap_t *heap, bin_t *bin, unsigned c) {
  CHECK(bin->shared.size_class == c && bin->shared.block_size == class_info[c].size);
  CHECK_EQ(bin->shared.thread, load_relaxed(&heap->owner.thread));
  CHECK(bin->capacity <= bin_reserve(c));
  intptr_t top = racy_load(&bin->top);
  CHECK(top >= -bin->capacity && top < 0);
  CHECK(bin_entries(bin)[-bin->capacity - 1] == BIN_END); /* below the first entry: the end of a pop */
  for (intptr_t i = -bin->capacity; i < top; i++) {
    void *block = entry_block(racy_load(&bin_entries(bin)[i]));
    unit_t *slab = unit_head((uint32_t)region_unit(block));
    CHECK(slab_class(slab) == &class_info[c] && slab_owner(slab) == &heap->owner);
    CHECK(*region_bin(region.live, region_unit(block)) == &bin->shared);
    CHECK(!HAK_CHECKS || !region_is_live(block));
  }
}

static inline uint64_t count_heaps(bool orphans_only) {
  uint64_t count = 0;
  for (heap_t *heap = heap_first(); heap != NULL; heap = load_relaxed(&heap->next)) {
    uint32_t state = load_relaxed(&heap->state);
    count += state == HEAP_ORPHAN || (!orphans_only && state != HEAP_BARE);
  }
  return count;
}

static inline void check_heaps(void) {
  for (heap_t *heap = heap_first(); heap != NULL; heap = load_relaxed(&heap->next)) {
    for (unsigned c = 0; c < CLASS_COUNT; c++) {
      if (heap->has_bin[c]) check_bin(heap, heap_bin(heap, c), c);
      else CHECK_EQ(load_relaxed(&heap->owner.slab_count[c]), 0);
    }
  }
}

/* What the bins of all heaps have counted. */
static inline void check_bin_figures(const hak_stats_t *stats, const hak_class_stats_t *classes) {
  uint64_t refills = 0, flushes = 0, refill_blocks = 0, flush_blocks = 0;
  for (unsigned c = 0; c < CLASS_COUNT; c++) {
    uint64_t of_class[2] = {bins_retired[c].refills, bins_retired[c].flushes};
    refill_blocks += bins_retired[c].refill_blocks;
    flush_blocks += bins_retired[c].flush_blocks;
    for (heap_t *heap = heap_first(); heap != NULL; heap = load_relaxed(&heap->next)) {
      const bin_t *bin = heap_bin(heap, c);
      of_class[0] += bin->refills;
      of_class[1] += bin->flushes;
      refill_blocks += bin->refill_blocks;
      flush_blocks += bin->flush_blocks;
    }
    CHECK(classes[c].refills == of_class[0] && classes[c].flushes == of_class[1]);
    refills += of_class[0];
    flushes += of_class[1];
  }
  CHECK(stats->refills == refills && stats->flushes == flushes);
  CHECK(stats->refill_blocks == refill_blocks && stats->flush_blocks == flush_blocks);
}

/* The figures add up, and the parts are what is mapped. */
static inline hak_stats_t check_census(void) {
  hak_stats_t stats;
  hak_class_stats_t classes[CLASS_COUNT];
  census_take(&stats, classes);
  CHECK_EQ(stats.live + stats.cached + stats.remote + stats.slab_free + stats.span_free, stats.committed);
  CHECK_EQ(stats.committed, (uint64_t)units_mapped() * HAK_UNIT);
  uint64_t slabs = 0, cached = 0;
  for (unsigned c = 0; c < CLASS_COUNT; c++) {
    const hak_class_stats_t *s = &classes[c];
    CHECK_EQ(s->live_blocks + s->cached_blocks + s->free_blocks + s->remote_blocks, s->slabs * class_info[c].blocks);
    slabs += s->slabs;
    cached += s->cached_blocks * s->block_size;
  }
  CHECK_EQ(slabs, stats.slabs);
  CHECK_EQ(cached, stats.cached);
  CHECK(stats.requested <= stats.live);
  check_bin_figures(&stats, classes);
  return stats;
}

static inline void start_heap(void) {
  CHECK(option_set(OPTION_decay_ms, -1) && option_set(OPTION_region_mb, 1024));
  boot_finish();
}

static inline void run_thread(void *(*run)(void *), void *argument) {
  pthread_t thread;
  REQUIRE(pthread_create(&thread, NULL, run, argument) == 0);
  pthread_join(thread, NULL);
}

static inline uint64_t usable_of(void *const *blocks, int count) {
  uint64_t bytes = 0;
  for (int i = 0; i < count; i++) bytes += blocks[i] != NULL ? block_usable_size(blocks[i]) : 0;
  return bytes;
}

static inline unit_kind_t kind_of(const void *block) { return load_relaxed(&unit_head((uint32_t)region_unit(block))->kind); }

static inline void *allocate_and_leave(void *blocks) {
  for (int i = 0; i < 1000; i++) ((void **)blocks)[i] = block_alloc((size_t)i * 7 % 5000);
  return NULL;
}

/* A thread that ends without its destructor (no key was to be had) leaves a
 * heap with its name on it; the next thread there gets it by that name. */
static inline void *allocate_unseen(void *blocks) {
  (void)allocate_and_leave(blocks);
  thread_fast_heap = &heap_none;
  thread_heap = NULL; /* what the destructor looks at */
  return (void *)thread_self();
}

static inline const bin_t *bin_found(heap_t *heap, size_t size) {
  size_t index = size <= HAK_TABLE_MAX ? heap_small_index(size) : heap_mid_index(size);
  CHECK(index < sizeof heap->bin_at / sizeof heap->bin_at[0]);
  return heap_bin_at(heap, index);
}

#endif
