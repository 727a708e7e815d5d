/* event.c - with what chance allocations become events, and what the events stand for. */
#include "kit/event.h"
#include "kit/request.h"

#include "fake_os.h"
#include "unit.h"

enum { DRAWS = 200000 };

/* Whether `got` fits n draws with chance p; false in one correct run of 10,000. */
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
  event_count(1, bytes);
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
  } want[] = {{1, 524288.5}, {16, 32768.5}, {4096, 128.500651}, {32768, 16.505207}, {524287, 1.581978}, {524288, 1}, {(size_t)1 << 40, 1}};
  CHECK(event_of(SITE_NONE) == NULL && event_of(SITE_MOST) == NULL);
  for (unsigned i = 0; i < sizeof want / sizeof want[0]; i++) {
    double objects = objects_of(want[i].bytes);
    CHECK(objects > want[i].objects * 0.9999 - 0.001 && objects < want[i].objects * 1.0001 + 0.001);
  }
  CHECK_EQ(load_relaxed(&event_of(SITE_NONE)->events), sizeof want / sizeof want[0]);
}

static bool large_blocks_are_counted_well(void) {
  const event_site_t *sums = event_of(SITE_NONE);
  uint64_t before = sums == NULL ? 0 : load_relaxed(&sums->events);
  for (unsigned i = 0; i < DRAWS / 10; i++) event_try(2, 131072);
  sums = event_of(SITE_NONE);
  return sums != NULL && is_near((double)(load_relaxed(&sums->events) - before), DRAWS / 10, 0.221199217); /* 1 - exp(-1/4) */
}

/* The draws depend on an address, so they differ in each run: only two bad results in a row are a failure. */
TEST(large_blocks_are_events_by_their_chance) { CHECK(large_blocks_are_counted_well() || large_blocks_are_counted_well()); }

/* The events of each site are counted by group; if a site finds no room, its group still counts them. */
TEST(events_are_summed_up_by_site_and_group) {
  CHECK(event_row_at(0) == NULL);
  event_count(3, 100);
  event_count(3, 100);
  event_count(4, EVENT_BYTES);
  const event_row_t *three = event_row_at(3), *four = event_row_at(4);
  REQUIRE(three != NULL && four != NULL);
  CHECK(load_relaxed(&three->key) == event_key(SITE_NONE, 3) && load_relaxed(&four->key) == event_key(SITE_NONE, 4));
  CHECK(load_relaxed(&three->sums.events) == 2 && load_relaxed(&four->sums.events) == 1);
  CHECK_EQ(load_relaxed(&four->sums.bytes), EVENT_BYTES);
  CHECK_EQ(load_relaxed(&four->sums.objects), 1 << EVENT_OBJECT_BITS);
  CHECK(load_relaxed(&event_row_at(5)->key) == 0 && event_row_at(EVENT_ROWS) == NULL);
}

TEST(a_forks_child_is_armed_only_if_it_is_for_good) {
  store_relaxed(&event_until_ms, os_now_ms() + 1000);
  event_after_fork();
  CHECK(!event_armed());
  store_relaxed(&event_until_ms, EVENT_ALWAYS);
  event_after_fork();
  CHECK(event_armed());
}

TEST(a_request_is_taken_once_and_a_child_answers_none) {
  uint64_t number = 0;
  CHECK(!request_waits() && !request_take(&number));
  store_relaxed(&request_wanted, 7);
  CHECK(request_waits() && request_take(&number) && number == 7);
  CHECK(!request_waits() && !request_take(&number));
  CHECK_EQ(load_relaxed(&request_done), 0);
  request_finish(number);
  CHECK_EQ(load_relaxed(&request_done), 7);
  store_relaxed(&request_wanted, UINT64_MAX);
  request_after_fork();
  CHECK(!request_waits() && load_relaxed(&request_done) == 7);
}

TEST(a_request_that_is_taken_back_while_a_thread_is_at_it_waits_for_nobody_else) {
  uint64_t number = 0, next = 0;
  store_relaxed(&request_wanted, 1);
  CHECK(request_take(&number));
  store_relaxed(&request_wanted, 0);
  CHECK(!request_take(&next));
  request_finish(number);
  CHECK_EQ(load_relaxed(&request_done), 1);
}

TEST(of_two_requests_the_later_one_stays_done) {
  uint64_t first = 0, second = 0;
  store_relaxed(&request_wanted, 1);
  CHECK(request_take(&first));
  store_relaxed(&request_wanted, 2);
  CHECK(request_take(&second) && second == 2);
  request_finish(second);
  request_finish(first);
  CHECK_EQ(load_relaxed(&request_done), 2);
}

TEST(arming_ends_when_its_time_is_over) {
  store_relaxed(&event_until_ms, os_now_ms() + 1000);
  CHECK(!event_expire() && event_armed());
  fake_os_pass_time(999);
  CHECK(!event_expire() && event_armed());
  fake_os_pass_time(1);
  event_count(1, 100); /* the block was counted while the process was armed */
  CHECK(!event_armed() && !event_expire());
  CHECK(event_of(SITE_NONE) != NULL && load_relaxed(&event_of(SITE_NONE)->events) == 1);
}

TEST(the_later_of_two_times_stands) {
  event_arm(5000);
  event_arm(3000);
  CHECK_EQ(load_relaxed(&event_until_ms), 5000);
  event_arm(6000);
  CHECK_EQ(load_relaxed(&event_until_ms), 6000);
  store_relaxed(&event_until_ms, EVENT_ALWAYS);
  event_arm(7000);
  CHECK(load_relaxed(&event_until_ms) == EVENT_ALWAYS);
}

TEST(without_memory_nothing_is_counted) {
  fake_os_fail(FAKE_ONLY(FAKE_MAP), 1, UINT64_MAX);
  event_count(1, 100);
  CHECK(event_of(SITE_NONE) == NULL);
  fake_os_fail_none();
  event_count(1, 100);
  CHECK(event_of(SITE_NONE) != NULL);
}
