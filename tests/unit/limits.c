/* limits.c - when the memory limits are checked. */
#include "front/limits.h"

#include "front/supply.h"
#include "front/watch.h"
#include "heaps.h"
#include "kit/options.h"
#include "kit/pressure.h"
#include "slab/remote.h"

static void (*meanwhile)(void);

void __real_pressure_set(pressure_level_t level, pressure_source_t source, uint64_t use, uint64_t limit);
void __wrap_pressure_set(pressure_level_t level, pressure_source_t source, uint64_t use, uint64_t limit);
void __wrap_pressure_set(pressure_level_t level, pressure_source_t source, uint64_t use, uint64_t limit) {
  void (*now)(void) = meanwhile;
  meanwhile = NULL;
  __real_pressure_set(level, source, use, limit);
  if (now != NULL) now();
}

static void start_limits(void) {
  start_heap();
  REQUIRE(thread_attach() != NULL);
  CHECK(option_set(OPTION_container, 0));
}

static void limit_to_little(void) {
  CHECK(option_set(OPTION_limit_soft, 1 << 20));
  limits_changed();
}

/* By then the check has read the options. */
TEST(an_option_that_changes_during_a_check_is_noticed_soon) {
  start_limits();
  void *block = block_alloc((size_t)16 << 20);
  REQUIRE(block != NULL);
  CHECK(option_set(OPTION_limit_soft, 1 << 30));
  limits_changed();
  meanwhile = limit_to_little;
  limits_due(thread_heap);
  CHECK(meanwhile == NULL);
  limits_due(thread_heap);
  CHECK_EQ(pressure_now(), PRESSURE_URGENT);
  CHECK(load_relaxed(&pressure.look_at) != 0); /* and that is all */
}

/* The time of the last check was another clock's. */
TEST(a_check_is_due_when_time_goes_back) {
  start_limits();
  void *block = block_alloc((size_t)16 << 20);
  REQUIRE(block != NULL);
  fake_os_pass_time(1000000);
  limit_to_little();
  limits_due(thread_heap);
  CHECK_EQ(pressure_now(), PRESSURE_URGENT);
  CHECK(option_set(OPTION_limit_soft, 0));
  limits_due(thread_heap); /* too early */
  CHECK_EQ(pressure_now(), PRESSURE_URGENT);
  fake_os_pass_time((uint64_t)-500000);
  limits_due(thread_heap);
  CHECK_EQ(pressure_now(), PRESSURE_NONE);
}

static void *free_it(void *block) {
  block_free(block, 0, "free");
  return NULL;
}

/* The heap may have become an orphan since its state was read: what was freed meanwhile waits for the lock's holder. */
TEST(who_arms_a_heap_collects_what_was_freed_meanwhile) {
  start_limits();
  void *block = block_alloc(1000);
  REQUIRE(block != NULL);
  heap_lock(thread_heap);
  thread_heap->owner.orphan = true;
  heap_set_thread(thread_heap, 0);
  run_thread(free_it, block);
  heap_unlock(thread_heap);
  CHECK(check_census().remote > 0);
  watch_heaps();
  CHECK_EQ(check_census().remote, 0);
}
