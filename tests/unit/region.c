/* region.c - the region: reserved or not, its zones, growth, what lies in the way. */
#include "space/region.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/config.h"
#include "fake_os.h"
#include "space.h"
#include "unit.h"

static region_bin_t some_bin;

/* A write to the first and the last byte of each record of the unit: a fault, if a zone is short. */
static void touch_unit(uint32_t unit) {
  char *block = region_address(unit);
  block[0] = 1;
  block[HAK_UNIT - 1] = 1;
  hot_poke(region_bin(region.live, unit), &some_bin);
  for (size_t at = 0; at < HAK_UNIT; at += HAK_UNIT - HAK_GRANULE) region_set_live(block + at);
  for (uint32_t word = 0; word < 64; word++) {
    atomic_set(region_bits(region.free_bits, unit, word), 1);
    atomic_set(region_bits(region.remote_bits, unit, word), 1);
  }
  memset(region.slabs + (size_t)unit * 64, 1, 64);
  memset(region.remotes + (size_t)unit * 16, 1, 16);
}

/* What must hold between two calls. */
static void check_region(void) {
  uint32_t units = atomic_seen(&region.units);
  CHECK(region.base != 0 && region.base % HAK_SUPERSLAB == 0);
  CHECK(region.minus_base + region.base == 0);
  CHECK(region.limit >= (uintptr_t)units << HAK_UNIT_SHIFT >> REGION_LIMIT_SHIFT);
  uint32_t superslabs = 0;
  for (uint32_t s = 0; s * HAK_UNITS_PER_SUPERSLAB < units; s++) {
    uint32_t mapped = atomic_seen(&region.superslabs[s].mapped);
    CHECK((atomic_seen(&region.superslabs[s].free) & ~mapped) == 0);
    superslabs += mapped != 0;
  }
  CHECK_EQ(region_census().superslabs, superslabs);
}

/* Everything mapped so far is usable, together with its records. */
static void check_usable(void) {
  check_region();
  for (uint32_t unit = 0; unit < atomic_seen(&region.units); unit++) {
    if (unit_is_mapped(unit)) touch_unit(unit);
  }
}

/* ---- the start ---- */

TEST(a_reserved_region_starts_with_one_superslab) {
  REQUIRE(region_init(SMALL_REGION));
  CHECK_EQ(fake_os_calls(FAKE_ONLY(FAKE_RESERVE)), 1);
  CHECK_EQ(atomic_seen(&region.units), HAK_UNITS_PER_SUPERSLAB);
  CHECK_EQ(units_mapped(), HAK_UNITS_PER_SUPERSLAB);
  CHECK(region_census().reserved > SMALL_REGION);
  check_usable();
}

TEST(new_units_are_free_and_zero) {
  REQUIRE(region_init(SMALL_REGION));
  for (uint32_t unit = 0; unit < atomic_seen(&region.units); unit++) {
    CHECK(unit_is_free(unit));
    CHECK(unit_is_zero(region_address(unit), HAK_UNIT));
    CHECK(hot_peek(region_bin(region.live, unit)) == &region_no_bin);
  }
}

TEST(the_default_size_is_four_times_physical_memory) {
  fake_os_set_physical_memory((uint64_t)32 << 30);
  REQUIRE(region_init(0));
  uint64_t reserved = region_census().reserved, wanted = (uint64_t)128 << 30;
  CHECK(reserved >= wanted && reserved < wanted + wanted / 16 + ((uint64_t)2 << 30));
  check_usable();
}

TEST(the_default_size_has_a_lower_bound) {
  fake_os_set_physical_memory((uint64_t)1 << 20);
  REQUIRE(region_init(0));
  CHECK(region_census().reserved >= HAK_REGION_MIN);
}

TEST(the_default_size_has_an_upper_bound) {
  fake_os_set_physical_memory((uint64_t)1 << 50);
  REQUIRE(region_init(0)); /* as much of it as the machine lets us reserve */
  CHECK(region_census().reserved < HAK_REGION_MAX + HAK_REGION_MAX / 16 + ((uint64_t)2 << 30));
}

TEST(a_reserve_that_is_refused_is_halved) {
  fake_os_fail(FAKE_ONLY(FAKE_RESERVE), 1, 3);
  REQUIRE(region_init(SMALL_REGION * 16));
  CHECK_EQ(fake_os_calls(FAKE_ONLY(FAKE_RESERVE)), 4);
  uint64_t reserved = region_census().reserved;
  CHECK(reserved > SMALL_REGION * 2 && reserved < SMALL_REGION * 5);
  check_usable();
}

TEST(without_any_reserve_addresses_are_taken_as_needed) {
  fake_os_fail(FAKE_ONLY(FAKE_RESERVE), 1, UINT64_MAX);
  REQUIRE(region_init(SMALL_REGION));
  CHECK_EQ(fake_os_calls(FAKE_ONLY(FAKE_COMMIT)), 0);
  check_usable();
}

TEST(under_an_address_limit_nothing_is_reserved) {
  fake_os_set_address_limit((uint64_t)64 << 20);
  REQUIRE(region_init(0));
  CHECK_EQ(fake_os_calls(FAKE_ONLY(FAKE_RESERVE) | FAKE_ONLY(FAKE_COMMIT)), 0);
  CHECK(region_census().reserved < (uint64_t)2 << 20);
  check_usable();
}

TEST(the_second_place_serves_when_the_first_is_taken) {
  fake_os_set_address_limit((uint64_t)64 << 20);
  fake_os_set_random_seed(0x2000);
  char *first = (char *)(((uintptr_t)1 << 44) + 0x2000 * HAK_SUPERSLAB);
  char *second = (char *)(((uintptr_t)1 << 36) + 0x2000 * HAK_SUPERSLAB);
  CHECK(os_map_at(first, os_page_size()) != OS_NOMEM);
  if (os_map_at(second, os_page_size()) != OS_MAPPED) check_skip("a sanitizer's shadow is there");
  CHECK(os_unmap(second, os_page_size()));
  REQUIRE(region_init(0));
  CHECK(region.base < (uintptr_t)1 << 40);
  check_usable();
}

/* A process has one region, so each page size is a check of its own. */
static void run_with_pages(size_t page) {
  fake_os_set_page_size(page);
  REQUIRE(region_init(SMALL_REGION));
  REQUIRE(region_grow(100));
  check_usable();
  region_release_reserve();
  REQUIRE(region_grow(100));
  check_usable();
}

TEST(pages_of_4_kib_give_usable_zones) { run_with_pages(4096); }
TEST(pages_of_16_kib_give_usable_zones) { run_with_pages(16384); }
TEST(pages_of_64_kib_give_usable_zones) { run_with_pages(65536); }

/* ---- the start, when it fails ---- */

/* Fails the k-th call of the first region_init, for every k, then tries again. */
static void start_again(uint64_t limit, unsigned kinds, uint64_t count) {
  for (uint64_t k = 1;; k++) {
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      fake_os_set_address_limit(limit);
      fake_os_fail(kinds, k, count);
      bool first = region_init(SMALL_REGION);
      if (fake_os_injected() == 0) _exit(first ? 77 : 1);
      fake_os_fail_none();
      CHECK(first || region_init(SMALL_REGION));
      CHECK(region_grow(40));
      check_usable();
      _exit(check_failures() != 0);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) return;
    if (status != 0) check_fail(__FILE__, __LINE__, "after call %llu failed: status %#x", (unsigned long long)k, (unsigned)status);
    REQUIRE(k < 1000);
  }
}

TEST(a_failed_start_can_be_made_again_reserved) { start_again(UINT64_MAX, FAKE_ONLY(FAKE_COMMIT), UINT64_MAX); }
TEST(a_start_survives_any_one_failure) { start_again(UINT64_MAX, FAKE_ANY, 1); }
TEST(a_failed_start_can_be_made_again_unreserved) { start_again((uint64_t)64 << 20, FAKE_TAKING, UINT64_MAX); }

/* ---- growth ---- */

TEST(growth_gives_as_many_units_in_a_row_as_asked) {
  REQUIRE(region_init(SMALL_REGION * 4));
  for (uint32_t want = 1; want <= 2048; want = want * 3 / 2 + 1) {
    for (uint32_t s = 0; s * HAK_UNITS_PER_SUPERSLAB < atomic_seen(&region.units); s++) atomic_set(&region.superslabs[s].free, 0);
    uint32_t before = atomic_seen(&region.units);
    REQUIRE(region_grow(want));
    uint32_t after = atomic_seen(&region.units);
    CHECK(after - before >= want);
    for (uint32_t unit = before; unit < after; unit++) CHECK(unit_is_free(unit) && unit_is_mapped(unit));
    check_region();
  }
}

TEST(free_units_at_the_end_count_toward_a_growth) {
  fake_os_set_address_limit((uint64_t)1 << 30);
  REQUIRE(region_init(0));
  REQUIRE(region_grow(64));
  uint32_t before = atomic_seen(&region.units);
  REQUIRE(region_grow(before + 40));
  CHECK(atomic_seen(&region.units) >= before + 40);
  CHECK(atomic_seen(&region.units) <= before + before / 4 + 40);
}

TEST(growth_ends_at_the_capacity_and_uses_all_of_it) {
  REQUIRE(region_init(SMALL_REGION));
  while (region_grow(atomic_seen(&region.units) + 1)) continue;
  CHECK_EQ(atomic_seen(&region.units), SMALL_REGION >> HAK_UNIT_SHIFT);
  CHECK_EQ(units_mapped(), SMALL_REGION >> HAK_UNIT_SHIFT);
  CHECK(!region_grow(UINT32_MAX));
  check_region();
  touch_unit(atomic_seen(&region.units) - 1);
}

TEST(a_growth_may_take_just_what_is_left) {
  REQUIRE(region_init(SMALL_REGION));
  uint32_t before = atomic_seen(&region.units);
  atomic_set(&region.superslabs[0].free, 0);
  CHECK(region_grow((uint32_t)(SMALL_REGION >> HAK_UNIT_SHIFT) - before));
  CHECK_EQ(atomic_seen(&region.units), SMALL_REGION >> HAK_UNIT_SHIFT);
}

TEST(a_failed_growth_changes_nothing_and_can_be_repeated) {
  REQUIRE(region_init(SMALL_REGION));
  uint32_t before = atomic_seen(&region.units);
  for (uint64_t k = 1; k <= 8; k++) {
    fake_os_fail(FAKE_ANY, k, UINT64_MAX);
    if (region_grow(before + 4096)) break;
    CHECK_EQ(atomic_seen(&region.units), before);
    check_region();
  }
  fake_os_fail_none();
  CHECK(region_grow(before + 4096));
  check_usable();
}

TEST(a_growth_that_cannot_have_its_whole_step_takes_what_it_needs) {
  REQUIRE(region_init(SMALL_REGION));
  REQUIRE(region_grow(1024));
  REQUIRE(region_grow(1025)); /* zones are ahead now, so that the next call is the blocks' */
  uint32_t before = atomic_seen(&region.units);
  for (uint32_t s = 0; s * HAK_UNITS_PER_SUPERSLAB < before; s++) atomic_set(&region.superslabs[s].free, 0);
  fake_os_fail(FAKE_ONLY(FAKE_COMMIT), 1, 1);
  REQUIRE(region_grow(1));
  CHECK_EQ(fake_os_injected(), 1);
  CHECK_EQ(atomic_seen(&region.units), before + 1);
}

/* ---- foreign mappings ---- */

/* Maps one page of somebody else's at the start of a unit. */
static char *put_foreign(uint32_t unit) {
  char *page = region_address(unit);
  if (os_map_at(page, os_page_size()) != OS_MAPPED) return NULL;
  memset(page, 0x5a, os_page_size());
  return page;
}

static void check_foreign(const char *page) {
  CHECK(page[0] == 0x5a && page[os_page_size() - 1] == 0x5a);
}

TEST(what_lies_in_the_way_is_stepped_over) {
  fake_os_set_address_limit((uint64_t)1 << 30);
  REQUIRE(region_init(0));
  uint32_t end = atomic_seen(&region.units);
  char *near = put_foreign(end + 1), *far = put_foreign(end + 100);
  REQUIRE(near != NULL && far != NULL);
  REQUIRE(region_grow(64));
  CHECK(!unit_is_mapped(end + 1));
  REQUIRE(region_grow(300));
  CHECK(!unit_is_mapped(end + 100));
  check_usable();
  check_foreign(near);
  check_foreign(far);
  CHECK(region_grow(500));
  check_usable();
  check_foreign(far);
}

TEST(a_foreign_run_that_is_long_is_passed_too) {
  fake_os_set_address_limit((uint64_t)1 << 30);
  REQUIRE(region_init(0));
  uint32_t end = atomic_seen(&region.units);
  REQUIRE(os_map_at(region_address(end), 1000 * HAK_UNIT) == OS_MAPPED);
  REQUIRE(region_grow(32));
  CHECK(atomic_seen(&region.units) >= end + 1032);
  for (uint32_t unit = end; unit < end + 1000; unit++) CHECK(!unit_is_mapped(unit));
  check_usable();
}

/* A zone that cannot grow where it lies is out of memory; what is there stays, in a fork's child too. */
TEST(a_foreign_mapping_beside_a_zone_survives_growth_and_fork) {
  fake_os_set_address_limit((uint64_t)1 << 40);
  REQUIRE(region_init(0));
  size_t page = os_page_size();
  /* The first page behind what the live zone uses. */
  char *end = (char *)region.live + bits_round_up((uintptr_t)((atomic_seen(&region.units) + 31) / 32) << 14, page);
  REQUIRE(os_map_at(end, page) == OS_MAPPED);
  end[0] = 0x5a;
  bool grown = region_grow(256); /* it may fail: zones lie at fixed places */
  CHECK(end[0] == 0x5a);
  CHECK(grown == (atomic_seen(&region.units) >= 256));
  region_after_fork();
  CHECK(os_map_at(end, page) == OS_TAKEN && end[0] == 0x5a);
}

TEST(fork_unmaps_only_what_a_growth_has_mapped) {
  fake_os_set_address_limit((uint64_t)1 << 40);
  REQUIRE(region_init(0));
  char *foreign = put_foreign(atomic_seen(&region.units));
  REQUIRE(foreign != NULL && region_grow(64));
  region_after_fork();
  check_foreign(foreign);
  check_usable();
  CHECK(region_grow(100));
}

/* ---- the reserve given back ---- */

TEST(growth_goes_on_after_the_reserve_is_given_back) {
  REQUIRE(region_init(SMALL_REGION));
  check_usable();
  uint64_t before = region_census().reserved;
  region_release_reserve();
  uint64_t after = region_census().reserved;
  CHECK(before > SMALL_REGION && after < (uint64_t)16 << 20);
  check_usable();
  region_release_reserve(); /* the second time does nothing */
  CHECK_EQ(region_census().reserved, after);
  uint32_t end = atomic_seen(&region.units);
  char *foreign = put_foreign(end + 3);
  REQUIRE(foreign != NULL && region_grow(200));
  check_foreign(foreign);
  CHECK(!unit_is_mapped(end + 3));
  check_usable();
}

TEST(giving_the_reserve_back_frees_all_but_what_is_in_use) {
  REQUIRE(region_init(SMALL_REGION));
  uint32_t end = atomic_seen(&region.units);
  region_release_reserve();
  /* Whatever is not in use can be mapped by others: the last unit's place, for one. */
  CHECK(os_map_at(region_address((uint32_t)(SMALL_REGION >> HAK_UNIT_SHIFT) - 1), HAK_UNIT) == OS_MAPPED);
  CHECK(os_map_at(region_address(end), HAK_UNIT) == OS_MAPPED);
  CHECK(os_map_at((char *)region_address(end) - HAK_UNIT, HAK_UNIT) == OS_TAKEN);
}

/* The kernel may be out of mappings: what stays reserved must stay usable. */
TEST(a_reserve_that_cannot_be_given_back_is_still_of_use) {
  REQUIRE(region_init(SMALL_REGION));
  fake_os_fail(FAKE_ONLY(FAKE_UNMAP), 1, UINT64_MAX);
  region_release_reserve();
  fake_os_fail_none();
  CHECK(region_grow(3000)); /* zones as well */
  check_usable();
}

/* ---- a child of fork, where another thread was at work: here that thread is stuck inside its call ---- */

static _Atomic bool is_stuck;

static void get_stuck(void *start) {
  (void)start;
  fake_os_during(FAKE_COMMIT, NULL);
  atomic_publish(&is_stuck, true);
  for (;;) os_sleep_us(100000);
}

static void *grow_region(void *unused) {
  CHECK(!region_grow(1000)); /* it never returns */
  return unused;
}

static void *release_reserve(void *unused) {
  region_release_reserve();
  return unused;
}

static void start_stuck(fake_call_t call, void *(*run)(void *)) {
  pthread_t thread;
  fake_os_during(call, get_stuck);
  REQUIRE(pthread_create(&thread, NULL, run, NULL) == 0 && pthread_detach(thread) == 0);
  while (!atomic_take(&is_stuck)) os_sleep_us(100);
}

TEST(a_child_can_grow_though_another_thread_was_growing) {
  REQUIRE(region_init(SMALL_REGION));
  start_stuck(FAKE_COMMIT, grow_region);
  region_after_fork();
  CHECK(region_grow(1000));
  check_usable();
}

TEST(a_child_ends_what_another_thread_was_giving_back) {
  REQUIRE(region_init(SMALL_REGION));
  start_stuck(FAKE_UNMAP, release_reserve);
  region_after_fork();
  CHECK(region_census().reserved < (uint64_t)16 << 20);
  CHECK(region_grow(200));
  check_usable();
}
