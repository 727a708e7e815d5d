#include "jemalloc.h"

#include <time.h>

static snapshot_t taken;

static uint64_t now_ns(void) {
  struct timespec now;
  (void)clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static __attribute__((constructor)) void start(void) { taken.started_ns = now_ns(); }

uint64_t snapshot_active(const hak_stats_t *stats) {
  return stats->committed - (stats->span_free < stats->committed ? stats->span_free : stats->committed);
}

static holding_t holding_of(hak_heap_t *heap) {
  hak_heap_usage_t usage = {.struct_size = sizeof usage};
  if (!hak_heap_usage_get(heap, &usage)) return (holding_t){0, 0, 0, 0};
  return (holding_t){usage.live - usage.large_bytes, usage.large_bytes, usage.large_blocks, usage.slab_bytes + usage.large_bytes};
}

static holding_t holding_all(void) {
  holding_t all = {0, 0, taken.stats.large_blocks, snapshot_active(&taken.stats)};
  for (uint32_t i = 0; i < taken.bins; i++) all.small += taken.bin[i].live_blocks * taken.bin[i].block_size;
  all.large = taken.stats.live > all.small ? taken.stats.live - all.small : 0;
  return all;
}

static void take_off(uint64_t *from, uint64_t what) { *from -= what < *from ? what : *from; }

/* The automatic arena holds what no other arena holds. */
static void look_at_arenas(void) {
  holding_t rest = taken.all = holding_all();
  for (unsigned i = 1; i < arena_count(); i++) {
    hak_heap_t *heap;
    holding_t other = arena_heap(i, &heap) ? holding_of(heap) : (holding_t){0, 0, 0, 0};
    taken.arena[i] = other;
    take_off(&rest.small, other.small);
    take_off(&rest.large, other.large);
    take_off(&rest.large_blocks, other.large_blocks);
    take_off(&rest.active, other.active);
  }
  taken.arena[ARENA_AUTOMATIC] = rest;
}

void snapshot_forget(unsigned arena) { taken.arena[arena] = (holding_t){0, 0, 0, 0}; }

void snapshot_refresh(void) {
  hak_stats_t stats = {.struct_size = sizeof stats};
  (void)hak_stats_get(&stats);
  taken.stats = stats;
  slabs_look(&taken);
  look_at_arenas();
  taken.epoch++;
}

const snapshot_t *snapshot(void) {
  if (taken.epoch == 0) snapshot_refresh();
  return &taken;
}
