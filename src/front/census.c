#include "front/census.h"

#include "os/os.h"
#include "kit/meta.h"
#include "kit/pressure.h"
#include "space/huge.h"
#include "space/ledger.h"
#include "space/move.h"
#include "space/purge.h"
#include "space/span.h"
#include "slab/batch.h"
#include "slab/hole.h"
#include "slab/large.h"
#include "slab/remote.h"
#include "slab/unit.h"
#include "front/heaps.h"
#include "front/keeper.h"
#include "front/named.h"
#include "front/quarantine.h"
#include "front/watch.h"

/* Each unit lies in one span or is free, and each block of a slab is in one state, so that the sums hold while nothing moves:
 *
 *   committed = live + cached + remote + slab_free + span_free
 *   a slab's bytes = (live + cached + remote + free blocks) * block size + tail;   slab_free = free blocks and tails
 *
 * A slab's record has the number of its free blocks, and its marks and remote bits show those that wait to be collected.  Neither
 * distinguishes a live block from one in a bin: both are out.  So every block that is out counts as live first, and then the blocks
 * in bins are subtracted, class by class.  Nothing is locked: where two reads of a moving heap disagree, a figure is cut to what is
 * possible. */

/* Blocks of no bytes take addresses, but no memory. */
static uint32_t class_bytes(unsigned c) { return c == CLASS_ZERO ? 0 : class_info[c].size; }

/* An allocation wastes about half the step between its class and the one below. */
static uint64_t class_rounding(unsigned c) {
  if (c == CLASS_ZERO) return 0;
  uint32_t below = c == 0 ? 0 : class_info[c - 1].size;
  return (class_info[c].size - below) / 2;
}

static void census_slab(hak_stats_t *stats, hak_class_stats_t *of_class, const unit_t *slab) {
  unsigned c = load_relaxed(&slab->size_class);
  if (c >= CLASS_COUNT) return; /* it has become another span meanwhile */
  uint64_t size = class_bytes(c);
  uint64_t free = load_relaxed(&slab->free);
  uint64_t waiting = remote_waiting(slab);
  if (free > class_info[c].blocks) free = class_info[c].blocks;
  if (waiting > class_info[c].blocks - free) waiting = class_info[c].blocks - free;
  stats->slabs++;
  stats->remote += waiting * size;
  stats->slab_free += class_info[c].units * HAK_UNIT - (class_info[c].blocks - free) * size;
  of_class[c].slabs++;
  of_class[c].free_blocks += free;
  of_class[c].remote_blocks += waiting;
  of_class[c].live_blocks += class_info[c].blocks - free - waiting; /* census_classes subtracts what bins hold */
}

/* A request ends anywhere in its block's last page, so that half a page is left over on average. */
static void census_large(hak_stats_t *stats, hak_class_stats_t *of_class, const unit_t *first) {
  (void)of_class;
  uint64_t bytes = load_relaxed(&first->bytes), room = load_relaxed(&first->units) * HAK_UNIT, half = os_page_size() / 2;
  if (bytes > room) bytes = room;
  stats->large_blocks++;
  stats->live += bytes;
  stats->requested += bytes > half ? bytes - half : 0;
  stats->slab_free += room - bytes;
}

/* Cached large blocks: free, but for their thread alone. */
static void census_cached(hak_stats_t *stats, hak_class_stats_t *of_class, const unit_t *first) {
  (void)of_class;
  uint64_t bytes = load_relaxed(&first->units) * HAK_UNIT;
  stats->span_free += bytes;
  stats->purge_pending += bytes;
}

static void census_meta(hak_stats_t *stats, hak_class_stats_t *of_class, const unit_t *first) {
  (void)of_class;
  stats->metadata += load_relaxed(&first->units) * HAK_UNIT;
}

/* Returns after how many units the next span may begin. */
static uint32_t census_unit(hak_stats_t *stats, hak_class_stats_t *of_class, uint32_t unit) {
  static void (*const count_of_kind[])(hak_stats_t *stats, hak_class_stats_t *of_class, const unit_t *first) = {
      [UNIT_SLAB] = census_slab,
      [UNIT_LARGE] = census_large,
      [UNIT_META] = census_meta,
      [UNIT_CACHED] = census_cached,
  };
  const unit_t *first = unit_at(unit);
  uint8_t kind = load_acquire(&first->kind);
  if (count_of_kind[kind] == NULL) return 1;
  count_of_kind[kind](stats, of_class, first);
  uint32_t units = load_relaxed(&first->units);
  return units > 0 ? units : 1;
}

static bool is_orphan(const heap_t *heap) { return load_relaxed(&heap->state) == HEAP_ORPHAN; }

/* Bare heaps are spare memory that no thread has: what their bins have counted is in bins_retired. */
static void census_heaps(hak_stats_t *stats, hak_class_stats_t *of_class) {
  uint64_t counted = 0;
  for (heap_t *heap = heap_first(); heap != NULL; heap = load_relaxed(&heap->next)) {
    bool bare = load_relaxed(&heap->state) == HEAP_BARE;
    stats->heaps += !bare;
    stats->heaps_orphaned += is_orphan(heap);
    stats->remote_frees += load_relaxed(&heap->owner.remote_frees);
    stats->large_allocs += load_relaxed(&heap->owner.large_cache.takes);
    stats->large_frees += load_relaxed(&heap->owner.large_cache.puts);
    stats->bins_grown += load_relaxed(&heap->budget.grown);
    stats->bins_shrunk += load_relaxed(&heap->budget.shrunk);
    counted += load_relaxed(&heap->counted_allocs);
    for (unsigned c = 0; c < CLASS_COUNT; c++) {
      if (HAK_SECURE) of_class[c].cached_blocks += quarantine_waiting(heap, c);
      if (!load_relaxed(&heap->has_bin[c])) continue;
      bin_t *bin = heap_bin(heap, c);
      of_class[c].cached_blocks += bin_count(bin);
      of_class[c].refills += load_relaxed(&bin->refills);
      of_class[c].flushes += load_relaxed(&bin->flushes);
      stats->flush_blocks += load_relaxed(&bin->flush_blocks); /* first: a block comes before it goes back */
      stats->refill_blocks += load_relaxed(&bin->refill_blocks);
    }
  }
  for (unsigned c = 0; c < CLASS_COUNT; c++) {
    of_class[c].refills += load_relaxed(&bins_retired[c].refills);
    of_class[c].flushes += load_relaxed(&bins_retired[c].flushes);
    stats->refill_blocks += load_relaxed(&bins_retired[c].refill_blocks);
    stats->flush_blocks += load_relaxed(&bins_retired[c].flush_blocks);
  }
  stats->bin_hits = load_relaxed(&watch_always) ? counted : 0;
}

static void census_classes(hak_stats_t *stats, hak_class_stats_t *of_class) {
  for (unsigned c = 0; c < CLASS_COUNT; c++) {
    hak_class_stats_t *s = &of_class[c];
    s->block_size = class_bytes(c);
    s->slab_size = class_info[c].units * HAK_UNIT;
    s->live_blocks -= s->cached_blocks < s->live_blocks ? s->cached_blocks : s->live_blocks;
    stats->live += s->live_blocks * s->block_size;
    stats->requested += s->live_blocks * (s->block_size - class_rounding(c));
    stats->cached += s->cached_blocks * s->block_size;
    stats->refills += s->refills;
    stats->flushes += s->flushes;
  }
  /* Exact if every allocation is counted; else a lower bound: what refills brought and bins did not give back. */
  uint64_t refilled = stats->refill_blocks > stats->flush_blocks ? stats->refill_blocks - stats->flush_blocks : 0;
  uint64_t allocs = stats->bin_hits > 0 ? stats->bin_hits : refilled;
  stats->bin_hits = allocs > stats->refills ? allocs - stats->refills : 0;
}

static void census_counters(hak_stats_t *stats) {
  region_census_t region_figures = region_census();
  ledger_census_t span = ledger_census();
  stats->span_free += span.free_units << HAK_UNIT_SHIFT;
  stats->purge_pending += span.dirty_free_units << HAK_UNIT_SHIFT;
  stats->metadata += region_figures.metadata + meta_bytes();
  stats->reserved = region_figures.mapped + meta_bytes();
  stats->superslabs = region_figures.superslabs;
  stats->committed = stats->live + stats->cached + stats->remote + stats->slab_free + stats->span_free;
  stats->large_allocs += load_relaxed(&large_alloc_count);
  stats->large_frees += load_relaxed(&large_free_count);
  stats->purged = purge_bytes();
  stats->holes_purged = hole_bytes();
  stats->purged_again = purge_again_bytes();
  stats->populated = slab_populated_bytes();
  stats->lead_slabs = batch_lead_slabs();
  stats->superslabs_moved = move_count();
  stats->superslabs_huge = huge_count();
  huge_figures_t huge = huge_figures();
  stats->huge_trials = huge.trials;
  stats->huge_losses = huge.losses;
  stats->huge_price_ns = huge.huge_price;
  stats->small_price_ns = huge.small_price;
  stats->guards_left_out = guards_left_out();
  stats->keeper_starts = keeper_starts();
  stats->sys_mmap = load_relaxed(&os_counts.mmap);
  stats->sys_munmap = load_relaxed(&os_counts.munmap);
  stats->sys_mprotect = load_relaxed(&os_counts.mprotect);
  stats->sys_madvise = load_relaxed(&os_counts.madvise);
  stats->sys_mremap = load_relaxed(&os_counts.mremap);
  stats->sys_other = load_relaxed(&os_counts.other);
  stats->limit = load_relaxed(&pressure.limit);
  stats->limit_use = load_relaxed(&pressure.use);
  stats->limit_level = load_relaxed(&pressure.level);
  stats->limit_given = load_relaxed(&pressure.given);
  stats->limit_percent = load_relaxed(&pressure.given_percent);
  stats->limit_looks = load_relaxed(&pressure.looks);
  stats->limit_refused = load_relaxed(&pressure.refused);
}

HAK_COLD void census_take(hak_stats_t *stats, hak_class_stats_t *of_class) {
  hak_class_stats_t classes[CLASS_COUNT] = {{0}};
  *stats = (hak_stats_t){.struct_size = sizeof *stats, .classes = CLASS_COUNT};
  uint32_t units = load_acquire(&region.units);
  for (uint32_t unit = 0; unit < units;) unit += census_unit(stats, classes, unit);
  census_heaps(stats, classes);
  census_classes(stats, classes);
  census_counters(stats);
  if (of_class == NULL) return;
  for (unsigned c = 0; c < CLASS_COUNT; c++) of_class[c] = classes[c];
}

HAK_COLD uint64_t large_bytes(const hak_stats_t *stats, const hak_class_stats_t *of_class) {
  uint64_t small = 0;
  for (unsigned c = 0; c < CLASS_COUNT; c++) small += of_class[c].live_blocks * of_class[c].block_size;
  return stats->live > small ? stats->live - small : 0;
}

static void census_of(heap_t *heap, hak_heap_stats_t *stats) {
  *stats = (hak_heap_stats_t){
      .orphaned = is_orphan(heap),
      .remote_frees = load_relaxed(&heap->owner.remote_frees),
  };
  for (unsigned c = 0; c < CLASS_COUNT; c++) {
    const bin_t *bin = heap_bin(heap, c);
    uint64_t slabs = load_relaxed(&heap->owner.slab_count[c]);
    stats->slabs += slabs;
    stats->slab_bytes += slabs * class_info[c].units * HAK_UNIT;
    uint64_t waiting = HAK_SECURE ? quarantine_waiting(heap, c) : 0;
    stats->cached += (bin_count(bin) + waiting) * class_bytes(c);
    stats->refills += load_relaxed(&bin->refills);
    stats->flushes += load_relaxed(&bin->flushes);
    stats->refill_blocks += load_relaxed(&bin->refill_blocks);
    stats->flush_blocks += load_relaxed(&bin->flush_blocks);
  }
}

HAK_COLD bool census_next_heap(const heap_t **at, hak_heap_stats_t *stats) {
  heap_t *heap = *at == NULL ? heap_first() : load_relaxed(&(*at)->next);
  while (heap != NULL && load_relaxed(&heap->state) == HEAP_BARE) heap = load_relaxed(&heap->next);
  if (heap == NULL) return false;
  *at = heap;
  census_of(heap, stats);
  return true;
}

HAK_COLD bool census_heap(uint32_t number, hak_heap_stats_t *stats) {
  heap_t *heap = heap_first();
  while (heap != NULL && (load_relaxed(&heap->state) == HEAP_BARE || number-- > 0)) heap = load_relaxed(&heap->next);
  if (heap != NULL) census_of(heap, stats);
  return heap != NULL;
}

static uint64_t not_below_0(int64_t bytes) { return bytes > 0 ? (uint64_t)bytes : 0; }

static void name_of(const heap_t *heap, char name[HEAP_NAME]) {
  for (size_t i = 0; i + 1 < HEAP_NAME; i++) name[i] = load_relaxed(&heap->named.name[i]);
  name[HEAP_NAME - 1] = '\0';
}

HAK_COLD bool census_name(const unit_t *span, uint32_t tag, char name[HEAP_NAME]) {
  const heap_t *heap = named_of(span);
  if (heap == NULL || load_relaxed(&heap->named.tag) != tag) return false;
  name_of(heap, name);
  return true;
}

static void census_named(const heap_t *heap, census_named_t *named) {
  const slab_owner_t *owner = &heap->owner;
  int64_t slab_bytes = load_relaxed(&owner->slab_bytes), free_bytes = load_relaxed(&owner->free_bytes);
  int64_t large = load_relaxed(&owner->large_bytes);
  *named = (census_named_t){
      .tag = load_relaxed(&heap->named.tag),
      .limit = load_relaxed(&heap->named.limit),
      .live = not_below_0(slab_bytes - free_bytes) + not_below_0(large),
      .peak = load_relaxed(&heap->named.peak),
      .large_bytes = not_below_0(large),
      .large_blocks = load_relaxed(&owner->large_blocks),
      .allocs = load_relaxed(&heap->named.allocs),
      .refused = load_relaxed(&heap->named.refused),
  };
  name_of(heap, named->name);
  for (unsigned c = 0; c < CLASS_COUNT; c++) {
    named->slab_bytes += (uint64_t)load_relaxed(&owner->slab_count[c]) * class_info[c].units * HAK_UNIT;
  }
}

HAK_COLD bool census_next_named(const heap_t **at, census_named_t *named) {
  const heap_t *heap = *at == NULL ? heap_first() : load_relaxed(&(*at)->next);
  while (heap != NULL && !load_relaxed(&heap->named.given)) heap = load_relaxed(&heap->next);
  if (heap == NULL) return false;
  *at = heap;
  census_named(heap, named);
  return true;
}
