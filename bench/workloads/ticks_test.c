/* ticks_test.c - tests the histogram that times single calls; not a workload. */
#include "ticks.h"

static void check(bool holds, const char *what) {
  if (!holds) workload_fail(what);
}

/* Every value is near the middle of its bucket, and buckets are in the order of values. */
static void test_buckets(void) {
  uint32_t last = 0;
  for (uint64_t value = 0; value < UINT64_MAX / 2; value += value / 100 + 1) {
    uint32_t bucket = ticks_bucket(value);
    check(bucket >= last && bucket < TICKS_BUCKETS, "buckets are out of order");
    double middle = ticks_middle(bucket), off = middle > (double)value ? middle - (double)value : (double)value - middle;
    check(value < 64 ? off == 0 : off <= (double)value / 32, "a bucket is far from its value");
    last = bucket;
  }
  check(ticks_bucket(UINT64_MAX) == TICKS_BUCKETS - 1, "the greatest value has no bucket");
}

static bool near(double one, double other) { return one > other * 0.97 && one < other * 1.03; }

/* 1 to 1,000,000, each once, in two histograms that are then merged. */
static void test_percentiles(void) {
  static ticks_histogram_t one = {.slow_from = 900001}, other = {.slow_from = 900001};
  for (uint64_t value = 1; value <= 1000000; value++) ticks_add(value % 2 ? &one : &other, 5, 5 + value);
  ticks_merge(&one, &other);
  check(one.count == 1000000 && one.most == 1000000, "the count or the greatest is wrong");
  check(one.slow == 100000 && one.slow_sum == UINT64_C(100000) * (900001 + 1000000) / 2, "the slow ones are wrong");
  check(near(ticks_percentile(&one, 0.5), 500000), "p50 is wrong");
  check(near(ticks_percentile(&one, 0.99), 990000), "p99 is wrong");
  check(near(ticks_percentile(&one, 0.9999), 999900) && ticks_percentile(&one, 0.9999) <= 1000000, "p99.99 is wrong");
}

/* 0 to 9, each once. */
static void test_exact(void) {
  static ticks_histogram_t few = {.slow_from = 100};
  for (uint64_t value = 0; value < 10; value++) ticks_add(&few, 0, value);
  check(ticks_percentile(&few, 0.5) == 5 && ticks_percentile(&few, 0) == 0, "a middle is wrong");
  check(ticks_percentile(&few, 0.95) == 9 && ticks_percentile(&few, 1) == 9, "an end is wrong");
}

/* Two in ten thousand are slow: p99.99 must see them and p99 must not. */
static void test_tail(void) {
  static ticks_histogram_t rare = {.slow_from = 1000};
  for (int i = 0; i < 100000; i++) ticks_add(&rare, 0, i % 5000 == 0 ? 123456 : 40);
  check(ticks_percentile(&rare, 0.99) == 40 && near(ticks_percentile(&rare, 0.9999), 123456) && rare.slow == 20, "the tail is wrong");
  ticks_add(&rare, 7, 5);
  check(rare.buckets[0] == 1, "a clock that goes back is not taken for nothing");
}

static void test_clock(void) {
  double tick = ticks_calibrate();
  uint64_t begin = ticks_begin();
  workload_sleep(20000000);
  double took = (double)(ticks_end() - begin) * tick;
  check(took > 19e6, "the clock is too slow");
  check(ticks_overhead() * tick < 1e6, "the clock takes too long");
}

int main(void) {
  test_buckets();
  test_percentiles();
  test_exact();
  test_tail();
  test_clock();
  return 0;
}
