/* move.c - moving pages to another address: contents, limits, failures, and threads that
 * allocate, free, purge and move at the same time. */
#include "space/move.h"

#include <pthread.h>

#include "fake_os.h"
#include "kit/options.h"
#include "space/ledger.h"
#include "space.h"
#include "space/purge.h"
#include "space/span.h"
#include "space/split.h"
#include "unit.h"

enum { WORD = HAK_UNITS_PER_SUPERSLAB };

static void start_move(void) {
  CHECK(option_set(OPTION_decay_ms, -1));
  CHECK(option_set(OPTION_idle_percent, 1000000));
  REQUIRE(region_init(SMALL_REGION));
}

static uint64_t moves(void) { return fake_os_calls(FAKE_ONLY(FAKE_MOVE)); }

/* The first and last word of each unit hold the number of the unit that was filled. */
static void fill(uint32_t start, uint32_t units) {
  for (uint32_t unit = start; unit < start + units; unit++) {
    uint64_t *words = region_address(unit);
    words[0] = words[HAK_UNIT / 8 - 1] = 0x5a5a0000 + unit;
  }
}

static bool holds(uint32_t start, uint32_t units, uint32_t filled_at) {
  bool same = true;
  for (uint32_t i = 0; i < units; i++) {
    uint64_t *words = region_address(start + i);
    same &= words[0] == 0x5a5a0000 + filled_at + i && words[HAK_UNIT / 8 - 1] == words[0];
  }
  return same;
}

static bool is_zero(uint32_t start, uint32_t units) { return unit_is_zero(region_address(start), units * HAK_UNIT); }

static uint32_t take(uint32_t superslabs, span_use_t use, bool *zero) {
  uint32_t start = span_alloc(superslabs * WORD, WORD, use, zero);
  CHECK(start != SPAN_NONE);
  if (start == SPAN_NONE) exit(1);
  return start;
}

static uint32_t take_filled(uint32_t superslabs) {
  bool zero;
  uint32_t start = take(superslabs, SPAN_SLAB, &zero);
  fill(start, superslabs * WORD);
  return start;
}

/* Makes one idle superslab between others that are in use. */
static uint32_t one_idle(void) {
  uint32_t idle = take_filled(1);
  (void)take_filled(1);
  span_free(idle, WORD);
  return idle;
}

static void check_counts(void) {
  ledger_census_t census = ledger_census();
  CHECK_EQ(ledger_used_units(), census.used_units);
  CHECK_EQ(ledger_idle_units(), census.dirty_free_units);
}

/* ---- idle superslabs ---- */

TEST(a_large_block_gets_the_pages_of_an_idle_superslab) {
  start_move();
  uint32_t idle = one_idle();
  bool zero = true;
  uint32_t start = take(2, SPAN_PLAIN, &zero);
  CHECK(!zero);
  CHECK_EQ(moves(), 1);
  CHECK_EQ(move_count(), 1);
  CHECK(holds(start, WORD, idle) && is_zero(start + WORD, WORD));
  check_counts();
  CHECK_EQ(ledger_idle_units(), 0);
  CHECK_EQ(take(1, SPAN_ZEROED, &zero), idle); /* free again, and clean */
  CHECK(zero && is_zero(idle, WORD));
}

/* In parts, from the top, one part for each block. */
TEST(a_large_heap_is_looked_through_for_idle_superslabs) {
  enum { SUPERSLABS = 1100 };
  CHECK(option_set(OPTION_decay_ms, -1));
  CHECK(option_set(OPTION_idle_percent, 1000000));
  REQUIRE(region_init((uint64_t)4 * SUPERSLABS * HAK_SUPERSLAB));
  bool zero;
  uint32_t idle = take(1, SPAN_SLAB, &zero);
  for (uint32_t s = 1; s < SUPERSLABS; s++) (void)take(1, SPAN_SLAB, &zero);
  while (load_relaxed(&region.units) < 3 * SUPERSLABS * WORD / 2) (void)take(1, SPAN_SLAB, &zero);
  span_free(idle, WORD);
  unsigned blocks = 0;
  while (blocks < 9 && moves() == 0) {
    (void)take(2, SPAN_PLAIN, &zero);
    blocks++;
  }
  CHECK(blocks > 1);
  CHECK_EQ(moves(), 1);
  check_counts();
}

static void get_nothing_moved(span_use_t use) {
  bool zero = false;
  uint32_t start = take(2, use, &zero);
  CHECK(zero && is_zero(start, 2 * WORD));
  CHECK_EQ(move_count(), 0);
  check_counts();
}

TEST(slabs_and_zeroed_blocks_get_fresh_pages) {
  start_move();
  (void)one_idle();
  get_nothing_moved(SPAN_ZEROED);
  get_nothing_moved(SPAN_SLAB);
  CHECK_EQ(moves(), 0);
}

TEST(nothing_moves_with_the_option_off) {
  start_move();
  CHECK(option_set(OPTION_move, 0));
  (void)one_idle();
  get_nothing_moved(SPAN_PLAIN);
  uint32_t from = take_filled(1), to = take_filled(1);
  CHECK_EQ(move_pages(from, to, WORD), 0);
  CHECK(holds(from, WORD, from) && holds(to, WORD, to));
  CHECK_EQ(moves(), 0);
}

TEST(a_superslab_that_is_partly_used_or_partly_clean_is_not_idle) {
  start_move();
  uint32_t used = take_filled(1), clean = take_filled(1);
  (void)take_filled(1);
  span_free(clean, 1);
  CHECK_EQ(purge_all(), HAK_UNIT);
  span_free(clean + 1, WORD - 1);
  span_free(used, 5);
  span_free(used + 6, WORD - 6);
  CHECK(ledger_idle_units() >= WORD);
  get_nothing_moved(SPAN_PLAIN);
  CHECK_EQ(moves(), 0);
}

TEST(the_highest_idle_superslab_goes_first) {
  start_move();
  uint32_t low = take_filled(1);
  (void)take_filled(1);
  uint32_t high = take_filled(1);
  (void)take_filled(1);
  REQUIRE(low < high);
  span_free(low, WORD);
  span_free(high, WORD);
  bool zero;
  uint32_t start = take(2, SPAN_PLAIN, &zero);
  CHECK(holds(start, WORD, high) && holds(start + WORD, WORD, low));
}

TEST(a_move_that_fails_changes_nothing) {
  start_move();
  uint32_t idle = one_idle();
  fake_os_fail(FAKE_ONLY(FAKE_MOVE), 1, UINT64_MAX);
  get_nothing_moved(SPAN_PLAIN);
  CHECK(fake_os_injected() > 0);
  CHECK(holds(idle, WORD, idle) && unit_is_free(idle));
  CHECK_EQ(ledger_idle_units(), WORD);
  bool zero = true;
  CHECK_EQ(take(1, SPAN_ZEROED, &zero), idle);
  CHECK(!zero);
}

static bool claimed_meanwhile;
static void claim_it(void *start) { claimed_meanwhile = span_claim((uint32_t)region_unit(start), 1); }

TEST(nobody_gets_a_unit_while_its_pages_move) {
  start_move();
  (void)one_idle();
  fake_os_during(FAKE_MOVE, claim_it);
  bool zero;
  (void)take(2, SPAN_PLAIN, &zero);
  CHECK_EQ(move_count(), 1);
  CHECK(!claimed_meanwhile);
}

static uint32_t dirty_meanwhile[64];
static void note_dirty(void *start) {
  (void)start;
  for (uint32_t s = 0; s < region_superslabs() && s < 64; s++) dirty_meanwhile[s] = load_relaxed(&region.superslabs[s].dirty);
}

/* A child forked between the two steps would otherwise take the pages that have come for zero. */
TEST(the_target_is_dirty_before_pages_come) {
  start_move();
  (void)one_idle();
  fake_os_during(FAKE_MOVE, note_dirty);
  bool zero;
  uint32_t start = take(2, SPAN_PLAIN, &zero);
  CHECK_EQ(move_count(), 1);
  CHECK_EQ(dirty_meanwhile[start / WORD], UINT32_MAX);
}

/* ---- blocks ---- */

TEST(the_pages_of_whole_superslabs_move_and_the_rest_stays) {
  start_move();
  uint32_t from = take_filled(3), to = take_filled(3);
  CHECK_EQ(move_pages(from, to, 2 * WORD + 31), 2 * WORD);
  CHECK_EQ(move_count(), 2);
  CHECK(holds(to, 2 * WORD, from) && holds(to + 2 * WORD, WORD, to + 2 * WORD));
  CHECK(is_zero(from, 2 * WORD) && holds(from + 2 * WORD, WORD, from + 2 * WORD));
  span_free(from, 3 * WORD);
  check_counts();
  CHECK_EQ(ledger_idle_units(), WORD);
  span_free(to, 3 * WORD);
  check_counts();
  CHECK_EQ(ledger_idle_units(), 4 * WORD);
}

TEST(what_does_not_start_at_a_superslab_does_not_move) {
  start_move();
  uint32_t from = take_filled(2), to = take_filled(2);
  CHECK_EQ(move_pages(from + 1, to, WORD), 0);
  CHECK_EQ(move_pages(from, to + 1, WORD), 0);
  CHECK_EQ(move_pages(from, to, WORD - 1), 0);
  CHECK_EQ(moves(), 0);
}

TEST(a_move_that_fails_in_the_midst_says_how_far_it_came) {
  start_move();
  uint32_t from = take_filled(3), to = take_filled(3);
  fake_os_fail(FAKE_ONLY(FAKE_MOVE), 2, 1);
  CHECK_EQ(move_pages(from, to, 3 * WORD), WORD);
  CHECK(holds(to, WORD, from) && holds(from + WORD, 2 * WORD, from + WORD));
  CHECK_EQ(move_count(), 1);
  CHECK_EQ(load_relaxed(&region.superslabs[to / WORD + 1].moved), 0);
  span_free(from, 3 * WORD);
  check_counts();
}

/* Each moved superslab adds two to the mappings of the process, whose number is limited. */
TEST(a_quarter_of_all_mappings_is_for_superslabs_that_were_moved) {
  enum { MOST = 125 };
  fake_os_set_map_limit(1000);
  CHECK(option_set(OPTION_idle_percent, 1000000));
  REQUIRE(region_init((uint64_t)20 << 30));
  bool zero;
  uint32_t from = take(1, SPAN_SLAB, &zero), to = take(MOST + 2, SPAN_SLAB, &zero);
  for (uint32_t s = 0; s < MOST; s++) CHECK_EQ(move_pages(from, to + s * WORD, WORD), WORD);
  CHECK_EQ(move_pages(from, to + MOST * WORD, WORD), 0);
  CHECK_EQ(move_pages(from, to + 1 * WORD, WORD), WORD); /* this target has its mappings already */
  CHECK_EQ(move_count(), MOST + 1);
  CHECK(purge_span(to, WORD)); /* one fewer is counted */
  CHECK_EQ(move_pages(from, to + MOST * WORD, WORD), WORD);
  CHECK_EQ(move_pages(from, to + (MOST + 1) * WORD, WORD), 0);
  fake_os_fail(FAKE_ONLY(FAKE_MOVE), 1, 1);
  CHECK(purge_span(to + WORD, WORD));
  CHECK_EQ(move_pages(from, to + (MOST + 1) * WORD, WORD), 0); /* the kernel refuses, so the target gets no mappings */
  CHECK_EQ(move_pages(from, to + (MOST + 1) * WORD, WORD), WORD);
}

TEST(guards_leave_moves_nothing_once_half_of_all_mappings_is_used) {
  fake_os_set_map_limit(1000);
  start_move();
  bool zero;
  uint32_t from = take(1, SPAN_SLAB, &zero), to = take(1, SPAN_SLAB, &zero);
  for (int i = 0; i < 250; i++) CHECK(split_take(SPLIT_GUARD));
  CHECK(!split_take(SPLIT_GUARD));
  CHECK_EQ(move_pages(from, to, WORD), 0);
  split_give(SPLIT_GUARD);
  CHECK_EQ(move_pages(from, to, WORD), WORD);
  CHECK(!split_take(SPLIT_GUARD));
}

/* ---- threads ---- */

/* While a superslab's pages move, no other thread can take it; this must not look like the end of memory. */
static _Atomic bool is_taken;
static uint32_t taken;

static void *take_one(void *unused) {
  bool zero;
  taken = span_alloc(1, 1, SPAN_SLAB, &zero);
  store_release(&is_taken, true);
  return unused;
}

static pthread_t taker;
static void start_taker(void *start) {
  (void)start;
  fake_os_during(FAKE_MOVE, NULL);
  CHECK(pthread_create(&taker, NULL, take_one, NULL) == 0);
  for (int i = 0; i < 100 && !load_acquire(&is_taken); i++) os_sleep_us(1000);
}

TEST(a_move_is_no_end_of_memory_for_others) {
  start_move();
  uint32_t idle = one_idle();
  while (grow(load_relaxed(&region.units) + 1)) continue;
  bool zero;
  uint32_t rest = (uint32_t)(SMALL_REGION >> HAK_SUPERSLAB_SHIFT) - 2;
  fake_os_during(FAKE_MOVE, start_taker);
  uint32_t start = take(rest, SPAN_PLAIN, &zero); /* all there is but the idle superslab */
  CHECK_EQ(start, 2 * WORD);
  pthread_join(taker, NULL);
  CHECK_EQ(taken, idle);
}

#if defined(RACY_ATOMIC)
enum { ROUNDS = 600 };
#else
enum { ROUNDS = 1500 };
#endif
enum { WORKERS = 3, HELD = 12 };
static _Atomic uint8_t owner_of[SMALL_REGION >> HAK_UNIT_SHIFT];
static _Atomic bool ended;

typedef struct held {
  uint32_t start, units;
} held_t;

static void mark(held_t held, uint8_t from, uint8_t to) {
  for (uint32_t u = held.start; u < held.start + held.units; u++) CHECK_EQ(atomic_exchange(&owner_of[u], to), from);
}

static uint64_t tag(uint8_t me, uint32_t i) { return ((uint64_t)me << 32) + i + 1; }

/* A word for each page: a tag that counts from the start of the span. */
static void write_tags(held_t held, uint8_t me) {
  for (uint32_t i = 0; i < held.units; i++) {
    uint64_t *words = region_address(held.start + i);
    for (size_t at = 0; at < HAK_UNIT / 8; at += 512) words[at] = tag(me, i);
  }
}

static void check_tags(held_t held, uint8_t me) {
  for (uint32_t i = 0; i < held.units; i++) {
    const uint64_t *words = region_address(held.start + i);
    for (size_t at = 0; at < HAK_UNIT / 8; at += 512) CHECK_EQ(words[at], tag(me, i));
  }
}

static void check_no_tags(held_t held) {
  for (uint32_t i = 0; i < held.units; i++) {
    const uint64_t *words = region_address(held.start + i);
    for (size_t at = 0; at < HAK_UNIT / 8; at += 512) CHECK_EQ(words[at], 0);
  }
}

static held_t hold(uint64_t *state, uint8_t me) {
  bool zero = false;
  held_t held = {.units = unit_below(state, 3) != 0 ? 1 + unit_below(state, 20) : WORD * (1 + unit_below(state, 3))};
  uint64_t align = held.units % WORD == 0 ? WORD : 1;
  held.start = span_alloc(held.units, align, (span_use_t)unit_below(state, 3), &zero);
  if (held.start == SPAN_NONE) return (held_t){0};
  mark(held, 0, me);
  if (zero) check_no_tags(held);
  write_tags(held, me);
  return held;
}

/* Moves the span to a new place: whole superslabs by moving their pages, the rest by copying. */
static held_t move(held_t held, uint8_t me) {
  bool zero;
  held_t to = {.start = span_alloc(held.units, WORD, SPAN_PLAIN, &zero), .units = held.units};
  if (to.start == SPAN_NONE) return held;
  mark(to, 0, me);
  write_tags(to, (uint8_t)(me + 100));
  uint32_t moved = move_pages(held.start, to.start, held.units);
  for (uint32_t i = moved; i < held.units; i++) memcpy(region_address(to.start + i), region_address(held.start + i), HAK_UNIT);
  mark(held, me, 0);
  span_free(held.start, held.units);
  return to;
}

static void *work(void *number) {
  uint8_t me = (uint8_t)((uintptr_t)number + 1);
  uint64_t state = unit_seed() + me;
  held_t held[HELD] = {{0, 0}};
  for (int round = 0; round < ROUNDS && check_failures() == 0; round++) {
    held_t *one = &held[unit_below(&state, HELD)];
    if (one->units == 0) {
      *one = hold(&state, me);
      continue;
    }
    check_tags(*one, me);
    if (unit_below(&state, 3) == 0) {
      *one = move(*one, me);
      check_tags(*one, me);
      continue;
    }
    mark(*one, me, 0);
    span_free(one->start, one->units);
    one->units = 0;
  }
  for (uint32_t n = 0; n < HELD; n++) {
    if (held[n].units == 0) continue;
    mark(held[n], me, 0);
    span_free(held[n].start, held[n].units);
  }
  return NULL;
}

static void *purge_and_step(void *unused) {
  for (int i = 0; !load_relaxed(&ended); i++) {
    CHECK(purge_step(purge_last_step() + 1, NULL)); /* as if another thread had made the step */
    bool more = purge_step(purge_last_step(), NULL);
    if (!more || i % 4 == 0) (void)purge_due();
    if (i % 32 == 0) (void)purge_all();
    os_sleep_us(500);
  }
  return unused;
}

TEST(contents_survive_while_others_purge_step_and_move) {
  start_move();
  CHECK(option_set(OPTION_idle_percent, 5));
  pthread_t workers[WORKERS], purger;
  REQUIRE(pthread_create(&purger, NULL, purge_and_step, NULL) == 0);
  for (uintptr_t i = 0; i < WORKERS; i++) REQUIRE(pthread_create(&workers[i], NULL, work, (void *)i) == 0);
  for (int i = 0; i < WORKERS; i++) pthread_join(workers[i], NULL);
  store_relaxed(&ended, true);
  pthread_join(purger, NULL);
  CHECK(move_count() > 0 && purge_bytes() > 0);
  CHECK_EQ(ledger_census().free_units, units_mapped());
  check_counts();
  (void)purge_all();
  check_counts();
  for (uint32_t unit = 0; unit < load_relaxed(&region.units); unit++) CHECK(is_zero(unit, 1));
}
