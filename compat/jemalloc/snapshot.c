#include "jemalloc.h"

#include <pthread.h>
#include <time.h>

static snapshot_t taken;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void before_fork(void) { (void)pthread_mutex_lock(&lock); }
static void after_fork(void) { (void)pthread_mutex_unlock(&lock); }

static uint64_t now_ns(void) {
  struct timespec now;
  (void)clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static __attribute__((constructor)) void start(void) {
  taken.started_ns = now_ns();
  (void)pthread_atfork(before_fork, after_fork, after_fork);
}

static void refresh(void) {
  hak_stats_t stats = {.struct_size = sizeof stats};
  (void)hak_stats_get(&stats);
  slabs_look(&taken);
  taken.stats = stats;
  taken.epoch++;
}

void snapshot_refresh(void) {
  (void)pthread_mutex_lock(&lock);
  refresh();
  (void)pthread_mutex_unlock(&lock);
}

const snapshot_t *snapshot(void) {
  (void)pthread_mutex_lock(&lock);
  if (taken.epoch == 0) refresh();
  (void)pthread_mutex_unlock(&lock);
  return &taken;
}
