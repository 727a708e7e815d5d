/* region.c - the region: where it lies, its zones, growth, and foreign mappings in its way. */
#include "space/region.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/config.h"
#include "fake_os.h"
#include "space.h"
#include "unit.h"

/* ThreadSanitizer has no shadow for the high places. */
#if defined(RACY_ATOMIC)
#define LOW_PLACES_ALONE() check_skip("not under ThreadSanitizer")
#else
#define LOW_PLACES_ALONE() (void)0
#endif

enum {
  ZONES = 7,
  MANY_UNITS = 100000
}; /* so many that every zone must grow beyond its first page, whatever the page size; except the zone of rooms, which is not tested */

static region_bin_t some_bin;

/* Writes the first and the last byte of each of the unit's records: this faults if a zone is too short. */
static void touch_unit(uint32_t unit) {
  char *block = region_address(unit);
  block[0] = 1;
  block[HAK_UNIT - 1] = 1;
  racy_store(region_bin(region.live, unit), &some_bin);
  for (size_t at = 0; at < HAK_UNIT; at += HAK_UNIT - HAK_GRANULE) region_set_live(block + at);
  for (uint32_t word = 0; word < 64; word++) {
    store_relaxed(region_bits(region.free_bits, unit, word), 1);
    store_relaxed(region_bits(region.remote_bits, unit, word), 1);
    if (word >= REGION_MARKED_BLOCKS / 64) continue;
    store_relaxed(region_marks(unit, word), 1);
    store_relaxed(region_marks_seen(unit, word), 1);
  }
  memset(region.unit_records + (size_t)unit * 64, 1, 64);
  memset(region.remotes + (size_t)unit * REGION_REMOTE_BYTES, 1, REGION_REMOTE_BYTES);
}

/* What must hold between two calls. */
static void check_region(void) {
  uint32_t units = load_relaxed(&region.units);
  CHECK(region.base != 0 && region.base % HAK_SUPERSLAB == 0);
  CHECK(region.minus_base + region.base == 0);
  CHECK(region.limit >= (uintptr_t)units << HAK_UNIT_SHIFT >> REGION_LIMIT_SHIFT);
  uint32_t superslabs = 0;
  for (uint32_t s = 0; s * HAK_UNITS_PER_SUPERSLAB < units; s++) {
    uint32_t mapped = load_relaxed(&region.superslabs[s].mapped);
    CHECK((load_relaxed(&region.superslabs[s].free) & ~mapped) == 0);
    superslabs += mapped != 0;
  }
  CHECK_EQ(region_census().superslabs, superslabs);
}

/* Everything mapped so far is usable, together with its records. */
static void check_usable(void) {
  check_region();
  for (uint32_t unit = 0; unit < load_relaxed(&region.units); unit++) {
    if (unit_is_mapped(unit)) touch_unit(unit);
  }
}

/* ---- the start ---- */

TEST(a_region_starts_with_one_superslab) {
  REQUIRE(region_init(SMALL_REGION));
  CHECK_EQ(load_relaxed(&region.units), HAK_UNITS_PER_SUPERSLAB);
  CHECK_EQ(units_mapped(), HAK_UNITS_PER_SUPERSLAB);
  CHECK(region_census().mapped < (uint64_t)3 << 20);
  check_usable();
}

TEST(new_units_are_free_and_zero) {
  REQUIRE(region_init(SMALL_REGION));
  for (uint32_t unit = 0; unit < load_relaxed(&region.units); unit++) {
    CHECK(unit_is_free(unit));
    CHECK(unit_is_zero(region_address(unit), HAK_UNIT));
    CHECK(racy_load(region_bin(region.live, unit)) == &region_no_bin);
  }
}

/* Checks how many units the blocks may ever take. */
static void check_bound(uint64_t bytes) {
  CHECK(region_may_hold(bytes >> HAK_UNIT_SHIFT, 1));
  CHECK(!region_may_hold((bytes >> HAK_UNIT_SHIFT) + 1, 1));
}

TEST(the_default_bound_is_four_times_physical_memory) {
  fake_os_set_physical_memory((uint64_t)16 << 30);
  REQUIRE(region_init(0));
  check_bound((uint64_t)64 << 30);
  check_usable();
}

TEST(the_default_bound_is_no_less_than_64_gib) {
  fake_os_set_physical_memory((uint64_t)1 << 20);
  REQUIRE(region_init(0));
  check_bound(HAK_REGION_MIN);
}

TEST(the_default_bound_is_no_more_than_4_tib) {
  LOW_PLACES_ALONE();
  fake_os_set_physical_memory((uint64_t)1 << 50);
  REQUIRE(region_init(0));
  check_bound(HAK_REGION_MAX);
}

TEST(a_bound_that_is_asked_for_is_kept_to_the_superslab) {
  REQUIRE(region_init((uint64_t)5 << 20));
  check_bound((uint64_t)6 << 20);
  while (grow(load_relaxed(&region.units) + 1)) continue;
  CHECK_EQ(units_mapped(), 3 * HAK_UNITS_PER_SUPERSLAB);
  check_usable();
}

TEST(under_an_address_limit_little_is_mapped) {
  fake_os_set_address_limit((uint64_t)64 << 20);
  REQUIRE(region_init(0));
  CHECK(region_census().mapped < (uint64_t)1 << 20);
  REQUIRE(grow(20));
  CHECK(region_census().mapped < (uint64_t)2 << 20);
  check_usable();
}

/* ---- the places ---- */

#define TIB ((uintptr_t)1 << 40)

/* The lowest and the highest place that chance may choose. */
static void check_place(uint64_t seed, uintptr_t zones, uintptr_t zones_end, uintptr_t blocks, uintptr_t blocks_end) {
  LOW_PLACES_ALONE();
  fake_os_set_random_seed(seed);
  REQUIRE(region_init(0));
  CHECK((uintptr_t)region_bin(region.live, 0) >= zones && (uintptr_t)region.superslabs < zones_end);
  CHECK(region.base >= blocks && region.base + HAK_REGION_MIN <= blocks_end);
  check_usable();
}

TEST(the_lowest_place) { check_place(0, 64 * TIB, 64 * TIB + ((uintptr_t)4 << 30), 101 * TIB, 101 * TIB + HAK_REGION_MIN); }
TEST(the_highest_place) { check_place(UINT64_MAX, 79 * TIB, 80 * TIB, 119 * TIB, 120 * TIB); }

typedef struct addresses {
  uintptr_t base, live;
} addresses_t;

/* Where a process with this random number has its region; zeros if it has none. */
static addresses_t addresses_of(uint64_t random) {
  addresses_t addresses = {0, 0};
  int ends[2], status = 0;
  if (pipe(ends) != 0) return addresses;
  pid_t child = fork();
  if (child == 0) {
    fake_os_set_random_seed(random);
    bool made = region_init(0);
    addresses = (addresses_t){region.base, (uintptr_t)region.live};
    _exit(!made || write(ends[1], &addresses, sizeof addresses) != sizeof addresses);
  }
  if (waitpid(child, &status, 0) != child || status != 0 || read(ends[0], &addresses, sizeof addresses) < 0) addresses.base = 0;
  close(ends[0]), close(ends[1]);
  return addresses;
}

TEST(zones_and_blocks_have_a_chance_each) {
  addresses_t none = addresses_of(0);
  CHECK(none.base != 0);
  for (unsigned bit = 24; bit < 32; bit++) {
    addresses_t low = addresses_of((uint64_t)1 << bit), high = addresses_of((uint64_t)1 << bit << 32);
    CHECK(low.base == none.base && low.live > none.live);
    CHECK(high.base > none.base && high.live == none.live);
  }
}

TEST(another_place_serves_where_a_zone_is_taken) {
  fake_os_set_random_seed(0);
  char *zone = (char *)(64 * TIB), *other = (char *)(TIB / 16);
  if (os_map_at(zone, os_page_size()) != OS_MAPPED || os_map_at(other, os_page_size()) != OS_MAPPED) {
    check_skip("a sanitizer's shadow is there");
  }
  CHECK(os_unmap(other, os_page_size()));
  REQUIRE(region_init(0));
  CHECK(region.base < (uintptr_t)1 << 38);
  CHECK(os_map_at((char *)(64 * TIB) + REGION_BIN_OFFSET, os_page_size()) == OS_MAPPED); /* the failed attempt there was undone */
  check_usable();
}

TEST(where_the_blocks_begin_something_may_lie) {
  LOW_PLACES_ALONE();
  fake_os_set_random_seed(0);
  char *first = (char *)(101 * TIB);
  REQUIRE(os_map_at(first, os_page_size()) == OS_MAPPED);
  first[0] = 1;
  REQUIRE(region_init(0));
  CHECK(region.base == 101 * TIB && !unit_is_mapped(0));
  check_usable();
  CHECK_EQ(first[0], 1);
}

/* A process has one region, so each page size is tested in a check of its own. */
static void run_with_pages(size_t page) {
  fake_os_set_page_size(page);
  REQUIRE(region_init(SMALL_REGION));
  REQUIRE(grow(100));
  check_usable();
  for (uint32_t s = 0; s * HAK_UNITS_PER_SUPERSLAB < load_relaxed(&region.units); s++) store_relaxed(&region.superslabs[s].free, 0);
  REQUIRE(grow(3000)); /* the zones grow too */
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
      CHECK(grow(40));
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

TEST(a_failed_start_can_be_made_again) { start_again(UINT64_MAX, FAKE_TAKING, UINT64_MAX); }
TEST(a_start_survives_any_one_failure) { start_again(UINT64_MAX, FAKE_ANY, 1); }
TEST(a_failed_start_can_be_made_again_under_a_limit) { start_again((uint64_t)64 << 20, FAKE_TAKING, UINT64_MAX); }

/* ---- growth ---- */

TEST(growth_gives_as_many_units_in_a_row_as_asked) {
  REQUIRE(region_init(SMALL_REGION * 4));
  for (uint32_t want = 1; want <= 2048; want = want * 3 / 2 + 1) {
    for (uint32_t s = 0; s * HAK_UNITS_PER_SUPERSLAB < load_relaxed(&region.units); s++) store_relaxed(&region.superslabs[s].free, 0);
    uint32_t before = load_relaxed(&region.units);
    REQUIRE(grow(want));
    uint32_t after = load_relaxed(&region.units);
    CHECK(after - before >= want);
    for (uint32_t unit = before; unit < after; unit++) CHECK(unit_is_free(unit) && unit_is_mapped(unit));
    check_region();
  }
}

TEST(growth_ends_where_a_superslab_does) {
  REQUIRE(region_init(SMALL_REGION));
  for (uint32_t want = 1; want < 200; want += 13) {
    REQUIRE(grow(load_relaxed(&region.units) % 64 + want));
    CHECK_EQ(load_relaxed(&region.units) % HAK_UNITS_PER_SUPERSLAB, 0);
  }
}

TEST(free_units_at_the_end_count_toward_a_growth) {
  fake_os_set_address_limit((uint64_t)1 << 30);
  REQUIRE(region_init(0));
  REQUIRE(grow(64));
  uint32_t before = load_relaxed(&region.units);
  REQUIRE(grow(before + 40));
  CHECK(load_relaxed(&region.units) >= before + 40);
  CHECK(load_relaxed(&region.units) <= before + before / 4 + 40);
}

TEST(growth_ends_at_the_capacity_and_uses_all_of_it) {
  REQUIRE(region_init(SMALL_REGION));
  while (grow(load_relaxed(&region.units) + 1)) continue;
  CHECK_EQ(load_relaxed(&region.units), SMALL_REGION >> HAK_UNIT_SHIFT);
  CHECK_EQ(units_mapped(), SMALL_REGION >> HAK_UNIT_SHIFT);
  CHECK(!grow(UINT32_MAX));
  check_region();
  touch_unit(load_relaxed(&region.units) - 1);
}

TEST(a_growth_may_take_just_what_is_left) {
  REQUIRE(region_init(SMALL_REGION));
  uint32_t before = load_relaxed(&region.units);
  store_relaxed(&region.superslabs[0].free, 0);
  CHECK(grow((uint32_t)(SMALL_REGION >> HAK_UNIT_SHIFT) - before));
  CHECK_EQ(load_relaxed(&region.units), SMALL_REGION >> HAK_UNIT_SHIFT);
}

TEST(a_failed_growth_changes_nothing_and_can_be_repeated) {
  REQUIRE(region_init(SMALL_REGION));
  uint32_t before = load_relaxed(&region.units);
  for (uint64_t k = 1; k <= 8; k++) {
    fake_os_fail(FAKE_ANY, k, UINT64_MAX);
    if (grow(before + 4096)) break;
    CHECK_EQ(load_relaxed(&region.units), before);
    check_region();
  }
  fake_os_fail_none();
  CHECK(grow(before + 4096));
  check_usable();
}

static void hold_all(void) {
  for (uint32_t s = 0; s * HAK_UNITS_PER_SUPERSLAB < load_relaxed(&region.units); s++) store_relaxed(&region.superslabs[s].free, 0);
}

TEST(a_growth_that_cannot_have_its_whole_step_takes_what_it_needs) {
  REQUIRE(region_init(SMALL_REGION));
  REQUIRE(grow(1024));
  REQUIRE(grow(1025));
  uint32_t before = load_relaxed(&region.units);
  hold_all();
  fake_os_fail(FAKE_ONLY(FAKE_MAP_AT), 1, 1);
  REQUIRE(grow(1));
  CHECK_EQ(fake_os_injected(), 1);
  CHECK_EQ(load_relaxed(&region.units), before + 1);
}

TEST(once_a_step_was_refused_steps_are_small) {
  REQUIRE(region_init(SMALL_REGION));
  hold_all();
  fake_os_fail(FAKE_ONLY(FAKE_MAP_AT), 1, 1);
  REQUIRE(grow(1));
  fake_os_fail_none();
  hold_all();
  uint32_t before = load_relaxed(&region.units);
  REQUIRE(grow(1));
  CHECK(load_relaxed(&region.units) < before + HAK_UNITS_PER_SUPERSLAB);
}

/* Runs the check in a child process. */
static void apart(void (*check)(unsigned n), unsigned n) {
  int status = 0;
  pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    check(n);
    _exit(check_failures() != 0);
  }
  REQUIRE(waitpid(child, &status, 0) == child);
  if (status != 0) check_fail(__FILE__, __LINE__, "number %u: status %#x", n, (unsigned)status);
}

TEST(zones_do_not_grow_for_blocks_that_cannot_be) {
  REQUIRE(region_init(0));
  uint64_t before = region_census().mapped;
  fake_os_fail(FAKE_ONLY(FAKE_MAP_AT), 1, 1);
  CHECK(!grow(100000));
  CHECK_EQ(region_census().mapped, before);
}

static void fail_in_zones(unsigned zone) {
  fake_os_set_address_limit((uint64_t)1 << 40);
  REQUIRE(region_init(0));
  uint32_t end = load_relaxed(&region.units);
  fake_os_fail(FAKE_ONLY(FAKE_MAP_AT), 2 + zone, UINT64_MAX);
  CHECK(!grow(MANY_UNITS));
  fake_os_fail_none();
  CHECK_EQ(os_map_at(region_address(end), os_page_size()), OS_MAPPED);
  CHECK(os_unmap(region_address(end), os_page_size()));
  CHECK_EQ(load_relaxed(&region.units), end);
  CHECK(grow(1000));
  check_usable();
}

TEST(blocks_are_not_kept_that_zones_have_no_room_for) {
  for (unsigned zone = 0; zone < ZONES; zone++) apart(fail_in_zones, zone);
}

/* The process is not told when another process lowers its limit. */
TEST(steps_are_small_once_there_is_a_limit) {
  REQUIRE(region_init(SMALL_REGION));
  REQUIRE(grow(4000));
  uint32_t before = load_relaxed(&region.units);
  fake_os_set_address_limit((uint64_t)1 << 40);
  hold_all();
  REQUIRE(grow(1));
  CHECK(load_relaxed(&region.units) - before <= 64);
}

/* ---- what may be held ---- */

TEST(as_much_may_be_held_as_the_bound_allows) {
  REQUIRE(region_init(SMALL_REGION));
  uint64_t most = SMALL_REGION >> HAK_UNIT_SHIFT;
  uint32_t before = load_relaxed(&region.units);
  hold_all();
  for (uint64_t align = 1; align <= (uint64_t)1 << 31; align *= 2) {
    uint64_t lowest = bits_round_up(region.base >> HAK_UNIT_SHIFT, align) - (region.base >> HAK_UNIT_SHIFT);
    uint64_t room = lowest < most ? most - lowest : 0;
    CHECK(!region_may_hold(room + 1, align));
    if (room > 0) CHECK(region_may_hold(room, align));
  }
  CHECK(region_may_hold(1, 1) && region_may_hold(before, 1));
  CHECK(!region_may_hold(UINT32_MAX, 1));
  CHECK_EQ(load_relaxed(&region.units), before);
  CHECK(grow((uint32_t)most - before));
}

TEST(what_the_kernel_refuses_may_not_be_held) {
  REQUIRE(region_init(SMALL_REGION));
  uint32_t before = load_relaxed(&region.units);
  fake_os_fail(FAKE_TAKING, 1, UINT64_MAX);
  CHECK(!region_may_hold(before + 1, 1));
  CHECK(region_may_hold(before, 1)); /* the existing blocks may be freed */
  fake_os_fail_map_at_as(OS_TAKEN);
  CHECK(region_may_hold(before + 1, 1)); /* further up */
}

/* ---- foreign mappings ---- */

/* Maps one foreign page at the start of a unit. */
static char *put_foreign(uint32_t unit) {
  char *page = region_address(unit);
  if (os_map_at(page, os_page_size()) != OS_MAPPED) return NULL;
  memset(page, 0x5a, os_page_size());
  return page;
}

static void check_foreign(const char *page) { CHECK(page[0] == 0x5a && page[os_page_size() - 1] == 0x5a); }

TEST(what_lies_in_the_way_is_stepped_over) {
  fake_os_set_address_limit((uint64_t)1 << 30);
  REQUIRE(region_init(0));
  uint32_t end = load_relaxed(&region.units);
  char *near = put_foreign(end + 1), *far = put_foreign(end + 100);
  REQUIRE(near != NULL && far != NULL);
  REQUIRE(grow(64));
  CHECK(!unit_is_mapped(end + 1));
  REQUIRE(grow(300));
  CHECK(!unit_is_mapped(end + 100));
  check_usable();
  check_foreign(near);
  check_foreign(far);
  CHECK(grow(500));
  check_usable();
  check_foreign(far);
}

TEST(a_foreign_run_that_is_long_is_passed_too) {
  fake_os_set_address_limit((uint64_t)1 << 30);
  REQUIRE(region_init(0));
  uint32_t end = load_relaxed(&region.units);
  REQUIRE(os_map_at(region_address(end), 1000 * HAK_UNIT) == OS_MAPPED);
  REQUIRE(grow(32));
  CHECK(load_relaxed(&region.units) >= end + 1032);
  for (uint32_t unit = end; unit < end + 1000; unit++) CHECK(!unit_is_mapped(unit));
  check_usable();
}

/* The first page behind the used part of a zone. */
static char *behind_zone(unsigned zone, uint32_t superslabs) {
  char *const starts[] = {
      (char *)region_bin(region.live, 0), (char *)region.live, region.free_bits, region.unit_records, region.remotes, region.samples,
      (char *)region.superslabs};
  const size_t bytes[] = {256, 16384, REGION_MAPS_BYTES, 2048, 1024, 32 * REGION_SAMPLE_BYTES, sizeof(superslab_t)};
  return starts[zone] + bits_round_up(superslabs * bytes[zone], os_page_size());
}

static void meet_foreign_page(unsigned zone) {
  fake_os_set_address_limit((uint64_t)1 << 40);
  size_t page = os_page_size();
  REQUIRE(region_init(0));
  char *end = behind_zone(zone, (load_relaxed(&region.units) + 31) / 32);
  REQUIRE(os_map_at(end, page) == OS_MAPPED);
  end[0] = 0x5a;
  CHECK(!grow(MANY_UNITS));
  region_after_fork(false);
  uint32_t units = load_relaxed(&region.units);
  CHECK(units < MANY_UNITS && !grow(MANY_UNITS));
  CHECK_EQ(os_map_at(region_address(units), page), OS_MAPPED); /* no addresses are held for blocks in vain */
  CHECK(os_map_at(end, page) == OS_TAKEN && end[0] == 0x5a);
  check_usable();
}

/* A zone that cannot grow in place is out of memory. Existing zones stay, also in a fork's child, and so does the heap. */
TEST(a_foreign_mapping_behind_a_zone_ends_growth) {
  for (unsigned zone = 0; zone < ZONES; zone++) apart(meet_foreign_page, zone);
}

/* Only what is mapped ahead meets the foreign mapping; what is needed does not. */
TEST(a_foreign_mapping_far_behind_a_zone_does_no_harm_yet) {
  REQUIRE(region_init(SMALL_REGION));
  char *far = behind_zone(1, 20);
  REQUIRE(os_map_at(far, os_page_size()) == OS_MAPPED);
  far[0] = 0x5a;
  hold_all();
  CHECK(grow(300)); /* 11 superslabs */
  CHECK_EQ(far[0], 0x5a);
  check_usable();
}

TEST(fork_unmaps_only_what_a_growth_has_mapped) {
  fake_os_set_address_limit((uint64_t)1 << 40);
  REQUIRE(region_init(0));
  char *foreign = put_foreign(load_relaxed(&region.units));
  REQUIRE(foreign != NULL && grow(64));
  region_after_fork(false);
  check_foreign(foreign);
  check_usable();
  CHECK(grow(100));
}

/* ---- a child of fork, with another thread that is stuck inside its call ---- */

static _Atomic bool is_stuck;

static fake_call_t stuck_where; /* before the kernel has mapped the range, or after */
static unsigned stuck_after;    /* the number of mappings before that */

static void get_stuck(void *start) {
  (void)start;
  if (stuck_after-- > 0) return;
  fake_os_during(stuck_where, NULL);
  store_release(&is_stuck, true);
  for (;;) os_sleep_us(100000);
}

static void *grow_region(void *unused) {
  CHECK(!grow(MANY_UNITS)); /* it never returns */
  return unused;
}

/* The other thread is stuck while it maps the blocks, or one of the zones. */
static void grow_beside_one_that_is_stuck(unsigned where) {
  fake_os_set_address_limit((uint64_t)1 << 40); /* each zone has to grow */
  REQUIRE(region_init(0));
  uint32_t before = load_relaxed(&region.units);
  pthread_t thread;
  stuck_after = where;
  fake_os_during(stuck_where, get_stuck);
  REQUIRE(pthread_create(&thread, NULL, grow_region, NULL) == 0 && pthread_detach(thread) == 0);
  while (!load_acquire(&is_stuck)) os_sleep_us(100);
  region_after_fork(false);
  CHECK(grow(MANY_UNITS));
  CHECK(load_relaxed(&region.units) >= before + MANY_UNITS - HAK_UNITS_PER_SUPERSLAB);
  if (where > 0 || stuck_where == FAKE_MAP_AT) CHECK_EQ(units_mapped(), load_relaxed(&region.units)); /* otherwise some are stepped over */
  touch_unit(before);
  touch_unit(load_relaxed(&region.units) - 1);
}

/* Blocks that are already mapped are used. */
TEST(a_child_can_grow_though_another_thread_was_growing) {
  stuck_where = FAKE_MAP_AT;
  for (unsigned where = 0; where <= ZONES; where++) apart(grow_beside_one_that_is_stuck, where);
}

/* The kernel has mapped the range but no one has been told: the range belongs to the zone. */
TEST(a_child_can_grow_though_another_thread_has_just_mapped) {
  stuck_where = FAKE_MAPPED;
  for (unsigned where = 0; where <= ZONES; where++) apart(grow_beside_one_that_is_stuck, where);
}
