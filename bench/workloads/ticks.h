/* ticks.h - times single calls by the processor's time counter, and keeps the times in a histogram. */
#ifndef BENCH_TICKS_H
#define BENCH_TICKS_H

#include "figures.h"

/* ---- The counter ---- */

/* Instructions before and after an interval are not timed with it. The counters of all processors agree, and run at one rate,
 * whatever the processor's clock rate. */
#if defined(__x86_64__)
#include <x86intrin.h>

static inline uint64_t ticks_begin(void) {
  _mm_lfence();
  uint64_t now = __rdtsc();
  _mm_lfence();
  return now;
}

static inline uint64_t ticks_end(void) {
  unsigned processor;
  uint64_t now = __rdtscp(&processor);
  _mm_lfence();
  return now;
}
#elif defined(__aarch64__)
static inline uint64_t ticks_begin(void) {
  uint64_t now;
  __asm__ volatile("isb\n\tmrs %0, cntvct_el0\n\tisb" : "=r"(now)::"memory");
  return now;
}

static inline uint64_t ticks_end(void) { return ticks_begin(); }
#else
static inline uint64_t ticks_begin(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static inline uint64_t ticks_end(void) { return ticks_begin(); }
#endif

/* Nanoseconds in a tick, measured by the kernel's clock. */
static inline double ticks_calibrate(void) {
  double begin = workload_seconds();
  uint64_t first = ticks_begin();
  workload_sleep(50000000);
  uint64_t last = ticks_end();
  return (workload_seconds() - begin) * 1e9 / (double)(last - first);
}

/* ---- The histogram ---- */

/* A bucket's width is 1/32 of the value's power of two: values are known to 3 %, and below 64 ticks exactly. */
enum { TICKS_FINE = 5, TICKS_BUCKETS = (64 - TICKS_FINE + 1) << TICKS_FINE };

typedef struct ticks_histogram {
  uint64_t slow_from; /* ticks; set by the histogram's owner */
  uint64_t count, most, slow, slow_sum;
  uint64_t buckets[TICKS_BUCKETS];
} ticks_histogram_t;

static inline uint32_t ticks_bucket(uint64_t value) {
  if (value < 1 << TICKS_FINE) return (uint32_t)value;
  uint32_t shift = 63 - (uint32_t)__builtin_clzll(value) - TICKS_FINE;
  return (shift << TICKS_FINE) + (uint32_t)(value >> shift);
}

/* The middle of a bucket. */
static inline double ticks_middle(uint32_t bucket) {
  uint32_t shift = bucket >> TICKS_FINE;
  if (shift <= 1) return bucket;
  uint64_t width = UINT64_C(1) << (shift - 1);
  uint64_t least = ((bucket & ((1 << TICKS_FINE) - 1)) + (UINT64_C(1) << TICKS_FINE)) << (shift - 1);
  return (double)least + (double)(width - 1) / 2;
}

static inline void ticks_add(ticks_histogram_t *histogram, uint64_t begin, uint64_t end) {
  uint64_t value = end > begin ? end - begin : 0;
  histogram->count++;
  histogram->buckets[ticks_bucket(value)]++;
  if (value > histogram->most) histogram->most = value;
  if (value >= histogram->slow_from) {
    histogram->slow++;
    histogram->slow_sum += value;
  }
}

static inline void ticks_merge(ticks_histogram_t *into, const ticks_histogram_t *from) {
  into->count += from->count;
  into->slow += from->slow;
  into->slow_sum += from->slow_sum;
  into->most = into->most > from->most ? into->most : from->most;
  for (uint32_t i = 0; i < TICKS_BUCKETS; i++) into->buckets[i] += from->buckets[i];
}

/* The smallest value that more than `share` of all values do not exceed. */
static inline double ticks_percentile(const ticks_histogram_t *histogram, double share) {
  uint64_t wanted = (uint64_t)(share * (double)histogram->count), seen = 0;
  for (uint32_t i = 0; i < TICKS_BUCKETS; i++) {
    seen += histogram->buckets[i];
    if (seen > wanted) return ticks_middle(i) < (double)histogram->most ? ticks_middle(i) : (double)histogram->most;
  }
  return (double)histogram->most;
}

/* The median time of an empty interval, which every call's time includes. */
static inline double ticks_overhead(void) {
  static ticks_histogram_t nothing = {.slow_from = UINT64_MAX};
  for (int i = 0; i < 10000; i++) {
    uint64_t begin = ticks_begin();
    ticks_add(&nothing, begin, ticks_end());
  }
  return ticks_percentile(&nothing, 0.5);
}

#endif
