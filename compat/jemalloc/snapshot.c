#include "jemalloc.h"

#include <time.h>

static snapshot_t taken;

static uint64_t now_ns(void) {
  struct timespec now;
  (void)clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static __attribute__((constructor)) void start(void) { taken.started_ns = now_ns(); }

void snapshot_refresh(void) {
  hak_stats_t stats = {.struct_size = sizeof stats};
  (void)hak_stats_get(&stats);
  taken.stats = stats;
  slabs_look(&taken);
  taken.epoch++;
}

const snapshot_t *snapshot(void) {
  if (taken.epoch == 0) snapshot_refresh();
  return &taken;
}
