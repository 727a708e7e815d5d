/* event.c - by what chance allocations are events, and what those stand for. */
#include "kit/event.h"

#include "fake_os.h"
#include "unit.h"

enum { DRAWS = 200000 };

/* Of n draws with chance p, but for one run in 10,000. */
static bool is_near(double got, double n, double p) {
  double off = got - n * p, bound = 3.9 * __builtin_sqrt(n * p * (1 - p));
  return off > -bound && off < bound;
}

TEST(distances_are_exponential) {
  static const double beyond[] = {0.904837418, 0.367879441, 0.135335283, 0.006737947}; /* exp(-0.1), -1, -2, -5 */
  static const double means[] = {0.1, 1, 2, 5};
  uint64_t random = 12345;
  double sum = 0, count[4] = {0};
  for (unsigned i = 0; i < DRAWS; i++) {
    int64_t distance = event_distance(&random);
    REQUIRE(distance > 0);
    sum += (double)distance;
    for (unsigned m = 0; m < 4; m++) count[m] += (double)distance > means[m] * (double)EVENT_BYTES;
  }
  for (unsigned m = 0; m < 4; m++) CHECK(is_near(count[m], DRAWS, beyond[m]));
  double mean = sum / DRAWS / (double)EVENT_BYTES, error = 3.9 / __builtin_sqrt(DRAWS);
  CHECK(mean > 1 - error && mean < 1 + error);
}

static double objects_of(size_t bytes) {
  const event_site_t *sums = event_of(SITE_NONE);
  uint64_t before = sums == NULL ? 0 : load_relaxed(&sums->objects), bytes_before = sums == NULL ? 0 : load_relaxed(&sums->bytes);
  event_count(bytes);
  sums = event_of(SITE_NONE);
  CHECK(sums != NULL);
  if (sums == NULL) return 0;
  double objects = (double)(load_relaxed(&sums->objects) - before) / (1 << EVENT_OBJECT_BITS);
  double of_bytes = (double)(load_relaxed(&sums->bytes) - bytes_before) / (double)bytes;
  CHECK(of_bytes > objects * 0.999 - 1 && of_bytes < objects * 1.001 + 1);
  return objects;
}

TEST(an_event_stands_for_the_inverse_of_its_chance) {
  static const struct {
    size_t bytes;
    double objects;
  } want[] = {{1, 524288.5},      {16, 32768.5},       {4096, 128.500651},  {32768, 16.505207},
              {524288, 1.581977}, {2097152, 1.018657}, {(size_t)1 << 40, 1}};
  CHECK(event_of(SITE_NONE) == NULL && event_of(SITE_MOST) == NULL);
  for (unsigned i = 0; i < sizeof want / sizeof want[0]; i++) {
    double objects = objects_of(want[i].bytes);
    CHECK(objects > want[i].objects * 0.9999 - 0.001 && objects < want[i].objects * 1.0001 + 0.001);
  }
  CHECK_EQ(load_relaxed(&event_of(SITE_NONE)->events), sizeof want / sizeof want[0]);
}

TEST(large_blocks_are_events_by_their_chance) {
  for (unsigned i = 0; i < DRAWS / 10; i++) event_try(131072);
  const event_site_t *sums = event_of(SITE_NONE);
  REQUIRE(sums != NULL);
  CHECK(is_near((double)load_relaxed(&sums->events), DRAWS / 10, 0.221199217)); /* 1 - exp(-1/4) */
}

TEST(arming_ends_when_its_time_is_over) {
  store_relaxed(&event_until_ms, os_now_ms() + 1000);
  CHECK(!event_expire() && event_armed());
  fake_os_pass_time(999);
  CHECK(!event_expire() && event_armed());
  fake_os_pass_time(1);
  event_count(100);
  CHECK(!event_armed() && !event_expire());
  CHECK(event_of(SITE_NONE) == NULL);
}

TEST(without_memory_nothing_is_counted) {
  fake_os_fail(FAKE_ONLY(FAKE_MAP), 1, UINT64_MAX);
  event_count(100);
  CHECK(event_of(SITE_NONE) == NULL);
  fake_os_fail_none();
  event_count(100);
  CHECK(event_of(SITE_NONE) != NULL);
}
