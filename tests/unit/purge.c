/* purge.c - when free units are given back, which ones, and what is counted; span.c tests decay by time too. */
#include "space/purge.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "fake_os.h"
#include "kit/options.h"
#include "space.h"
#include "space/huge.h"
#include "space/ledger.h"
#include "space/move.h"
#include "space/span.h"
#include "unit.h"

enum { WORD = HAK_UNITS_PER_SUPERSLAB, SINGLES = 10 * WORD };

static void start_purge(int64_t idle_percent) {
  CHECK(option_set(OPTION_decay_ms, 86400000));
  CHECK(option_set(OPTION_idle_percent, idle_percent));
  CHECK(option_set(OPTION_huge, 1));
  REQUIRE(region_init(SMALL_REGION));
}

static uint32_t take(uint32_t units, uint64_t align, span_use_t use) {
  bool zero;
  uint32_t start = span_alloc(units, align, use, &zero);
  CHECK(start != SPAN_NONE);
  if (start == SPAN_NONE) exit(1);
  memset(region_address(start), 0x5a, units * HAK_UNIT);
  return start;
}

static void check_counts(void) {
  ledger_census_t census = ledger_census();
  CHECK_EQ(ledger_used_units(), census.used_units);
  CHECK_EQ(ledger_idle_units(), census.dirty_free_units);
}

static uint32_t dirty_free(uint32_t superslab) {
  superslab_t *s = &region.superslabs[superslab];
  return bits_count32(load_relaxed(&s->free) & load_relaxed(&s->dirty));
}

/* ---- by growth ---- */

/* 320 units in use, of which 64 become idle: every other one of the lowest four superslabs. */
static void make_idle(void) {
  for (uint32_t i = 0; i < SINGLES; i++) CHECK_EQ(take(1, 1, SPAN_SLAB), i);
  CHECK_EQ(purge_due(), 0);
  for (uint32_t i = 0; i < 4 * WORD; i += 2) span_free(i, 1);
  check_counts();
}

TEST(growth_gives_back_what_is_idle_beyond_the_share) {
  start_purge(10);
  make_idle();
  CHECK_EQ(purge_due(), 0); /* the heap has not grown since */
  (void)take(64, 1, SPAN_PLAIN);
  /* 320 units are in use and 64 are idle; 32 may stay idle. */
  CHECK_EQ(purge_due(), 32 * HAK_UNIT);
  CHECK_EQ(purge_bytes(), 32 * HAK_UNIT);
  check_counts();
  /* From the top. */
  for (uint32_t s = 0; s < 4; s++) CHECK_EQ(dirty_free(s), s < 2 ? 16 : 0);
  for (uint32_t i = 2 * WORD; i < 4 * WORD; i++)
    CHECK(i % 2 == 0 ? unit_is_zero(region_address(i), HAK_UNIT) : *(char *)region_address(i) == 0x5a);
  CHECK_EQ(purge_due(), 0); /* once for each growth */
}

TEST(growth_gives_back_nothing_where_all_is_to_be_kept) {
  start_purge(10);
  CHECK(option_set(OPTION_decay_ms, -1));
  make_idle();
  (void)take(64, 1, SPAN_PLAIN);
  CHECK_EQ(purge_due(), 0);
  check_counts();
}

TEST(growth_gives_back_no_more_than_it_takes) {
  start_purge(0);
  make_idle();
  (void)take(40, 1, SPAN_PLAIN);
  CHECK_EQ(purge_due(), 48 * HAK_UNIT); /* 40, in whole superslabs */
  check_counts();
}

/* Units that were given back no longer count in the highest size so far: the next growth counts as growth again. */
TEST(growth_after_a_purge_is_measured_from_what_stayed) {
  start_purge(10);
  make_idle();
  (void)take(64, 1, SPAN_PLAIN);
  CHECK_EQ(purge_due(), 32 * HAK_UNIT);
  CHECK(option_set(OPTION_idle_percent, 0));
  (void)take(32, 1, SPAN_PLAIN); /* as many as were given back */
  CHECK_EQ(purge_due(), 32 * HAK_UNIT);
  CHECK_EQ(ledger_idle_units(), 0);
  check_counts();
}

/* Alternates at the heap's highest size: 64 units in one place, then 64 single units in others. Each finds the other's units idle. */
static size_t take_in_turn(uint64_t ms) {
  uint32_t large = take(64, 1, SPAN_PLAIN);
  fake_os_pass_time(ms);
  size_t given = purge_due();
  span_free(large, 64);
  for (uint32_t i = 0; i < 4 * WORD; i += 2) CHECK_EQ(take(1, 1, SPAN_SLAB), i);
  fake_os_pass_time(ms);
  given += purge_due();
  for (uint32_t i = 0; i < 4 * WORD; i += 2) span_free(i, 1);
  return given;
}

TEST(growth_gives_back_half_of_the_heap_in_all) {
  start_purge(0);
  make_idle();
  for (unsigned turn = 0; turn < 10; turn++) (void)take_in_turn(10000);
  CHECK_EQ(purge_bytes(), (SINGLES + 64) / 2 * HAK_UNIT);
}

TEST(growth_gives_back_nothing_while_much_of_it_is_soon_needed_again) {
  start_purge(0);
  make_idle();
  for (unsigned turn = 0; turn < 10; turn++) {
    CHECK_EQ(take_in_turn(0), turn == 0 ? 64 * HAK_UNIT : 0);
    CHECK_EQ(purge_again_bytes(), 64 * HAK_UNIT); /* only in the first round: after that they stayed resident */
    CHECK(!purge_growth_pays());
  }
  fake_os_pass_time(1000);
  CHECK(purge_growth_pays());
  (void)take(128, 1, SPAN_PLAIN);
  CHECK_EQ(purge_due(), 64 * HAK_UNIT);
  /* Time makes up for units that were needed again, but not in advance. */
  fake_os_pass_time(100000);
  for (uint32_t i = 0; i < 4 * WORD; i += 2) CHECK_EQ(take(1, 1, SPAN_SLAB), i);
  CHECK_EQ(purge_again_bytes(), 128 * HAK_UNIT);
  CHECK(!purge_growth_pays());
}

/* Units given back by time may be needed again any number of times, zeroed blocks may stay unwritten, and large blocks are written late. */
TEST(only_what_growth_gave_back_and_small_spans_write_counts_as_needed_again) {
  start_purge(0);
  make_idle();
  CHECK_EQ(purge_all(), 64 * HAK_UNIT);
  for (uint32_t i = 0; i < 4 * WORD; i += 2) CHECK_EQ(take(1, 1, SPAN_SLAB), i);
  CHECK_EQ(purge_again_bytes(), 0);
  for (uint32_t i = 0; i < 4 * WORD; i += 2) span_free(i, 1);
  (void)take(64, 1, SPAN_PLAIN);
  CHECK_EQ(purge_due(), 64 * HAK_UNIT);
  for (uint32_t i = 0; i < 4 * WORD; i += 2) CHECK_EQ(take(1, 1, SPAN_ZEROED), i);
  CHECK_EQ(purge_again_bytes(), 0);
  CHECK(purge_growth_pays());
}

TEST(blocks_of_more_than_half_a_superslab_do_not_count_as_needing_pages_again) {
  start_purge(0);
  uint32_t first = take(WORD / 2 + 1, WORD, SPAN_PLAIN);
  (void)take(WORD / 2 + 1, WORD, SPAN_PLAIN);
  (void)purge_due();
  span_free(first, WORD / 2 + 1);
  (void)take(64, 1, SPAN_PLAIN);
  CHECK_EQ(purge_due(), (WORD / 2 + 1) * HAK_UNIT);
  CHECK_EQ(take(WORD / 2 + 1, WORD, SPAN_PLAIN), first);
  CHECK_EQ(purge_again_bytes(), 0);
}

TEST(a_share_that_is_not_exceeded_is_kept) {
  start_purge(25);
  make_idle();
  (void)take(64, 1, SPAN_PLAIN);
  CHECK_EQ(purge_due(), 0);
  CHECK_EQ(ledger_idle_units(), 64);
}

TEST(growth_below_the_highest_so_far_purges_nothing) {
  start_purge(0);
  make_idle();
  for (uint32_t i = 4 * WORD; i < SINGLES; i++) span_free(i, 1);
  CHECK_EQ(purge_all(), (64 + SINGLES - 4 * WORD) * HAK_UNIT);
  (void)take(1, 1, SPAN_SLAB);
  span_free(0, 1);
  (void)take(100, 1, SPAN_PLAIN); /* fresh units, but the heap was larger before */
  CHECK_EQ(purge_due(), 0);
  CHECK_EQ(ledger_idle_units(), 1);
}

TEST(growth_of_less_than_a_superslab_is_not_settled_yet) {
  start_purge(0);
  make_idle();
  (void)take(WORD - 1, 1, SPAN_PLAIN);
  CHECK_EQ(purge_due(), 0);
  (void)take(2, 1, SPAN_PLAIN);
  CHECK(purge_due() > 0);
}

TEST(reuse_and_zeroed_blocks_are_no_growth) {
  start_purge(0);
  make_idle();
  uint32_t large = take(64, 1, SPAN_ZEROED);
  CHECK_EQ(purge_due(), 0);
  span_free(large, 64);
  CHECK_EQ(take(64, 1, SPAN_PLAIN), large);
  CHECK_EQ(purge_due(), 0);
  CHECK_EQ(fake_os_calls(FAKE_ONLY(FAKE_PURGE)), 0);
}

TEST(a_purge_by_growth_that_fails_leaves_all_as_it_was) {
  start_purge(0);
  make_idle();
  (void)take(64, 1, SPAN_PLAIN);
  fake_os_fail(FAKE_ONLY(FAKE_PURGE), 1, UINT64_MAX);
  CHECK_EQ(purge_due(), 0);
  CHECK(fake_os_injected() > 0);
  CHECK_EQ(purge_bytes(), 0);
  CHECK(!ledger_in_flight());
  check_counts();
}

/* ---- by time, without a clock ---- */

TEST(a_step_is_made_only_if_nobody_else_made_one) {
  start_purge(1000000);
  (void)take(1, 1, SPAN_SLAB);
  span_free(take(8, 1, SPAN_SLAB), 8);
  CHECK(purge_step(purge_last_step() + 1, NULL));
  CHECK(purge_step(purge_last_step() + 1, NULL));
  CHECK_EQ(ledger_idle_units(), 8);
  CHECK(purge_step(purge_last_step(), NULL)); /* finds the idle units */
  CHECK_EQ(ledger_idle_units(), 8);
  CHECK(purge_step(purge_last_step(), NULL));
  CHECK_EQ(ledger_idle_units(), 0);
  CHECK(!purge_step(purge_last_step(), NULL)); /* nothing is left to do */
  CHECK_EQ(purge_bytes(), 8 * HAK_UNIT);
  check_counts();
}

static _Atomic uint32_t stop_now;
static void stop_steps(void *start) {
  (void)start;
  store_relaxed(&stop_now, 1u);
}

/* Whoever waits for the keeper's end waits for one call of the kernel, which takes longer the more it is to give back. */
TEST(a_step_that_has_to_stop_gives_back_no_more_than_a_part) {
  enum { WHOLE = 3072, PART = 1024 };
  start_purge(1000000);
  (void)take(1, 1, SPAN_SLAB);
  span_free(take(WHOLE, 1, SPAN_SLAB), WHOLE);
  store_relaxed(&stop_now, 1u);
  for (int i = 0; i < 2; i++) CHECK(!purge_step(purge_last_step(), &stop_now)); /* nothing is found cold */
  store_relaxed(&stop_now, 0u);
  CHECK(purge_step(purge_last_step(), &stop_now));
  fake_os_during(FAKE_PURGE, stop_steps);
  CHECK(purge_step(purge_last_step(), &stop_now));
  fake_os_during(FAKE_PURGE, NULL);
  CHECK(purge_bytes() > 0 && purge_bytes() <= (PART + 2 * HAK_UNITS_PER_SUPERSLAB) * HAK_UNIT);
  store_relaxed(&stop_now, 0u);
  while (purge_step(purge_last_step(), &stop_now)) continue;
  CHECK_EQ(purge_bytes(), WHOLE * HAK_UNIT);
  check_counts();
}

/* Otherwise the thread that makes the steps would never end if the program has locked its memory. */
TEST(steps_end_where_nothing_can_be_given_back) {
  start_purge(1000000);
  uint32_t start = take(20, 1, SPAN_SLAB);
  for (uint32_t i = 0; i < 20; i += 2) span_free(start + i, 1);
  CHECK(purge_step(purge_last_step(), NULL));
  fake_os_fail(FAKE_ONLY(FAKE_PURGE), 1, UINT64_MAX);
  for (int i = 0; i < 3; i++) CHECK(!purge_step(purge_last_step(), NULL));
  fake_os_fail_none();
  CHECK_EQ(ledger_idle_units(), 10);
  check_counts();
}

/* As if all memory were locked: otherwise this would be thousands of calls a second. */
static void is_asked_once(int64_t decay) {
  start_purge(1000000);
  CHECK(option_set(OPTION_decay_ms, decay));
  uint32_t start = take(20, 1, SPAN_SLAB);
  fake_os_fail(FAKE_ONLY(FAKE_PURGE), 1, UINT64_MAX);
  for (uint32_t i = 0; i < 20; i += 2) span_free(start + i, 1);
  for (int i = 0; i < 10; i++) fake_os_pass_time(600), (void)purge_due();
  CHECK_EQ(fake_os_injected(), 10);
  REQUIRE(span_claim(start + 4, 1));
  span_free(start + 4, 1);
  for (int i = 0; i < 10; i++) fake_os_pass_time(600), (void)purge_due();
  CHECK_EQ(fake_os_injected(), 11);
  CHECK_EQ(purge_all(), 0); /* an explicit request */
  CHECK_EQ(fake_os_injected(), 21);
  fake_os_fail_none();
  CHECK_EQ(purge_all(), 10 * HAK_UNIT);
  check_counts();
}

TEST(what_the_kernel_has_refused_it_is_not_asked_for_again_before_it_was_used) { is_asked_once(1000); }
TEST(nor_where_all_that_is_idle_goes_back_at_once) { is_asked_once(0); }

/* ---- at once ---- */

static uint32_t apart[8];

/* Takes eight spans, each of a whole superslab. */
static void start_at_once(void) {
  start_purge(1000000);
  CHECK(option_set(OPTION_decay_ms, 0));
  for (unsigned i = 0; i < 8; i++) apart[i] = take(WORD, WORD, SPAN_SLAB);
  (void)purge_due();
}

/* Otherwise each free would scan all superslabs: in a large heap, or if a locked unit stays idle for good. */
TEST(where_all_goes_back_at_once_only_where_something_became_idle_is_looked) {
  start_at_once();
  span_free(apart[4], 5);
  ledger_range_t range = ledger_take_idle();
  CHECK(range.from == apart[4] / WORD && range.end == range.from + 1);
  range = ledger_take_idle();
  CHECK(range.from >= range.end);
  span_free(apart[6], 7);
  CHECK_EQ(purge_due(), 7 * HAK_UNIT);
  CHECK_EQ(purge_due(), 0);
  CHECK_EQ(ledger_idle_units(), 5);
  /* From the lowest to the highest, except for what was given back before. */
  span_free(apart[5], 1);
  span_free(apart[3], 2);
  CHECK_EQ(purge_due(), 8 * HAK_UNIT);
  CHECK_EQ(ledger_idle_units(), 0);
  range = ledger_take_idle();
  CHECK(range.from >= range.end);
  check_counts();
}

TEST(what_became_idle_before_all_is_to_go_back_at_once_goes_too) {
  start_at_once();
  for (int decay = -1; decay <= 1000; decay += 1001) {
    CHECK(option_set(OPTION_decay_ms, decay));
    for (unsigned i = 0; i < 8; i++) span_free(apart[i], WORD);
    CHECK_EQ(purge_due(), 0);
    CHECK(option_set(OPTION_decay_ms, 0));
    CHECK_EQ(purge_due(), 8 * WORD * HAK_UNIT);
    for (unsigned i = 0; i < 8; i++) apart[i] = take(WORD, WORD, SPAN_SLAB);
  }
}

TEST(what_was_refused_goes_back_when_it_is_asked_for_again) {
  start_at_once();
  fake_os_fail(FAKE_ONLY(FAKE_PURGE), 1, UINT64_MAX);
  span_free(apart[1], 1);
  span_free(apart[6], 1);
  CHECK_EQ(purge_due(), 0);
  fake_os_fail_none();
  CHECK_EQ(purge_due(), 0);
  fake_os_pass_time(60000);
  CHECK_EQ(purge_due(), 2 * HAK_UNIT);
  check_counts();
}

/* The range that a thread which no longer exists had taken to purge. */
TEST(a_child_sweeps_all) {
  start_at_once();
  span_free(apart[1], 1);
  span_free(apart[6], 1);
  (void)ledger_take_idle();
  CHECK_EQ(purge_due(), 0);
  ledger_recover();
  CHECK_EQ(purge_due(), 2 * HAK_UNIT);
}

TEST(a_step_leaves_what_was_used_since_the_last) {
  start_purge(1000000);
  uint32_t used = take(8, 1, SPAN_SLAB), idle = take(8, 1, SPAN_SLAB);
  span_free(used, 8);
  span_free(idle, 8);
  CHECK(purge_step(purge_last_step(), NULL));
  REQUIRE(span_claim(used, 8));
  span_free(used, 8);
  CHECK(purge_step(purge_last_step(), NULL));
  CHECK_EQ(ledger_idle_units(), 8);
  CHECK(unit_is_zero(region_address(idle), 8 * HAK_UNIT));
  CHECK(*(char *)region_address(used) == 0x5a);
}

/* ---- a span in use ---- */

TEST(a_purged_span_reads_as_zero_and_stays_in_use) {
  start_purge(1000000);
  uint32_t before = take(3, 1, SPAN_PLAIN), span = take(70, 1, SPAN_PLAIN), after = take(3, 1, SPAN_PLAIN);
  CHECK(purge_span(span, 70));
  CHECK(unit_is_zero(region_address(span), 70 * HAK_UNIT));
  CHECK(*((char *)region_address(before + 3) - 1) == 0x5a && *(char *)region_address(after) == 0x5a);
  CHECK(!unit_is_free(span) && !unit_is_free(span + 69));
  CHECK_EQ(purge_bytes(), 70 * HAK_UNIT);
  CHECK_EQ(fake_os_calls(FAKE_ONLY(FAKE_PURGE)), 1);
  check_counts();
}

/* Under sanitizers, mlock does nothing, so this is the system call. */
static void lock_page_of(uint32_t unit) {
  REQUIRE(syscall(SYS_mlock, region_address(unit), 1) == 0);
  if (madvise(region_address(unit), HAK_UNIT, MADV_DONTNEED) == 0) check_skip("locked pages are given back here");
}

/* As if the program had locked a page. */
TEST(a_unit_that_cannot_be_purged_keeps_no_other_from_it) {
  start_purge(0);
  uint32_t span = take(21 * WORD, WORD, SPAN_PLAIN);
  lock_page_of(span + 5 * WORD);
  span_free(span, 21 * WORD);
  CHECK_EQ(purge_all(), (21 * WORD - 1) * HAK_UNIT);
  check_counts();
}

TEST(only_who_asks_gets_locked_units_back) {
  start_purge(1000000);
  uint32_t span = take(2 * WORD, WORD, SPAN_PLAIN);
  fake_os_lock(region_address(span + 5));
  fake_os_give_back_locked(true);
  span_free(span, 2 * WORD);
  while (purge_step(purge_last_step(), NULL)) continue;
  CHECK_EQ(ledger_idle_units(), 1);
  CHECK_EQ(purge_all(), HAK_UNIT);
  CHECK(unit_is_zero(region_address(span + 5), HAK_UNIT));
  CHECK_EQ(ledger_idle_units(), 0);
  check_counts();
}

/* Several in each superslab, as many as one may have. */
TEST(units_that_cannot_be_purged_keep_no_other_from_it_however_many) {
  enum { SUPERSLABS = 21, EACH = 4, FIRST = 5 };
  struct rlimit limit;
  REQUIRE(getrlimit(RLIMIT_MEMLOCK, &limit) == 0);
  if (limit.rlim_cur < (SUPERSLABS * EACH + 1) * (rlim_t)sysconf(_SC_PAGESIZE)) check_skip("too few pages may be locked");
  start_purge(0);
  uint32_t span = take(SUPERSLABS * WORD, WORD, SPAN_PLAIN);
  for (uint32_t s = 0; s < SUPERSLABS; s++) {
    for (uint32_t i = 0; i < EACH; i++) lock_page_of(span + s * WORD + FIRST + 7 * i);
  }
  span_free(span, SUPERSLABS * WORD);
  CHECK_EQ(purge_all(), SUPERSLABS * (WORD - EACH) * HAK_UNIT);
  for (uint32_t s = 0; s < SUPERSLABS; s++) CHECK_EQ(dirty_free(span / WORD + s), EACH);
  check_counts();
}

/* At most two calls for each superslab, and more for the parts of only two superslabs: then all seems to be locked. */
TEST(a_part_is_halved_no_more_often_than_its_bound) {
  start_purge(0);
  span_free(take(21 * WORD, WORD, SPAN_PLAIN), 21 * WORD);
  fake_os_fail(FAKE_ONLY(FAKE_PURGE), 1, UINT64_MAX);
  CHECK_EQ(purge_all(), 0);
  CHECK_EQ(fake_os_injected(), 2 * 21 - 1 + 2 * 2 * 15);
}

TEST(a_span_that_cannot_be_purged_keeps_its_content) {
  start_purge(1000000);
  uint32_t span = take(5, 1, SPAN_PLAIN);
  fake_os_fail(FAKE_ONLY(FAKE_PURGE), 1, 1);
  CHECK(!purge_span(span, 5));
  CHECK(*(char *)region_address(span) == 0x5a);
  CHECK_EQ(purge_bytes(), 0);
}

/* ---- what the kernel was advised about superslabs ---- */

/* A superslab in use whose pages were moved there. */
static uint32_t moved_superslab(void) {
  uint32_t from = take(2 * WORD, WORD, SPAN_SLAB), to = take(2 * WORD, WORD, SPAN_SLAB);
  CHECK_EQ(move_pages(from, to, WORD), WORD);
  CHECK_EQ(load_relaxed(&region.superslabs[to / WORD].moved), 1);
  return to;
}

TEST(a_moved_superslab_that_is_purged_whole_is_mapped_anew) {
  start_purge(1000000);
  uint32_t start = moved_superslab();
  CHECK(purge_span(start, WORD - 1)); /* not the whole superslab */
  CHECK_EQ(fake_os_calls(FAKE_ONLY(FAKE_RENEW)), 0);
  CHECK(purge_span(start + 1, 2 * WORD - 1));
  CHECK_EQ(fake_os_calls(FAKE_ONLY(FAKE_RENEW)), 0);
  span_free(start, 2 * WORD);
  CHECK_EQ(purge_all(), 2 * WORD * HAK_UNIT);
  CHECK_EQ(fake_os_calls(FAKE_ONLY(FAKE_RENEW)), 1);
  CHECK_EQ(load_relaxed(&region.superslabs[start / WORD].moved), 0);
  CHECK(unit_is_zero(region_address(start), 2 * WORD * HAK_UNIT));
  check_counts();
}

TEST(a_locked_superslab_that_is_purged_stays_the_mapping_that_was_locked) {
  start_purge(1000000);
  uint32_t start = moved_superslab();
  fake_os_lock(region_address(start));
  fake_os_give_back_locked(true);
  span_free(start, 2 * WORD);
  CHECK_EQ(purge_all(), 2 * WORD * HAK_UNIT);
  CHECK_EQ(fake_os_calls(FAKE_ONLY(FAKE_RENEW)), 0);
  check_counts();
}

TEST(a_superslab_that_cannot_be_mapped_anew_is_so_the_next_time) {
  start_purge(1000000);
  uint32_t start = moved_superslab();
  fake_os_fail(FAKE_ONLY(FAKE_RENEW), 1, 1);
  CHECK(purge_span(start, 2 * WORD));
  CHECK_EQ(load_relaxed(&region.superslabs[start / WORD].moved), 1);
  CHECK(unit_is_zero(region_address(start), WORD * HAK_UNIT));
  CHECK(purge_span(start, 2 * WORD));
  CHECK_EQ(load_relaxed(&region.superslabs[start / WORD].moved), 0);
}

static bool claimed_meanwhile;
static void claim_it(void *start) {
  CHECK(ledger_in_flight());
  claimed_meanwhile |= span_claim((uint32_t)region_unit(start), 1);
}

TEST(nobody_gets_a_unit_while_it_is_purged) {
  start_purge(1000000);
  span_free(take(40, 1, SPAN_SLAB), 40);
  fake_os_during(FAKE_PURGE, claim_it);
  CHECK_EQ(purge_all(), 40 * HAK_UNIT);
  CHECK(!claimed_meanwhile);
  CHECK(!ledger_in_flight());
}

TEST(recovery_counts_anew) {
  start_purge(1000000);
  uint32_t kept = take(20, 1, SPAN_SLAB);
  span_free(take(7, 1, SPAN_SLAB), 7);
  ledger_note_use(1000, 500, 500); /* by a thread that no longer exists */
  ledger_recover();
  check_counts();
  CHECK_EQ(purge_all(), 7 * HAK_UNIT);
  CHECK(!unit_is_free(kept));
}
