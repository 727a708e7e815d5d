/* span.c - spans, checked against a model: an array that says for each unit which span has it.
 *
 * The model knows what the bitmaps must show, which place best fit must choose,
 * and which units are zero; the clock is the fake's. */
#include "space/span.h"

#include <pthread.h>

#include "base/config.h"
#include "fake_os.h"
#include "kit/options.h"
#include "kit/pressure.h"
#include "space/ledger.h"
#include "space/purge.h"
#include "space.h"
#include "unit.h"

#if defined(RACY_ATOMIC) /* ThreadSanitizer: twenty times slower */
enum { STEPS = 500, THREAD_STEPS = 2000 };
#else
enum { STEPS = 5000, THREAD_STEPS = 20000 };
#endif
enum { MODEL_UNITS = 16384, SPANS = 512, WORD = HAK_UNITS_PER_SUPERSLAB };

typedef struct model {
  uint16_t owner[MODEL_UNITS]; /* 0: free or not mapped; otherwise the span's number + 1 */
  bool dirty[MODEL_UNITS];     /* written since it was mapped or purged */
  bool cold[MODEL_UNITS];      /* was free and dirty at the last step, and not used since */
  uint64_t step_ms;            /* the time of that step */
  struct {
    uint32_t start, units;
  } spans[SPANS];
} model_t;

static model_t model;
static uint64_t seed;

static bool model_free(uint32_t unit) { return unit_is_mapped(unit) && model.owner[unit] == 0; }

/* ---- the model's view ---- */

/* Compares the whole state of the model and the bitmaps. */
static void check_all(void) {
  uint64_t free = 0, dirty_free = 0;
  uint32_t units = load_relaxed(&region.units);
  REQUIRE(units <= MODEL_UNITS);
  for (uint32_t unit = 0; unit < units; unit++) {
    if (!unit_is_mapped(unit)) continue;
    bool is_free = model.owner[unit] == 0;
    if (unit_is_free(unit) != is_free) check_fail(__FILE__, __LINE__, "unit %u is %s", unit, is_free ? "lost" : "free while in use");
    free += is_free;
    dirty_free += is_free && model.dirty[unit];
  }
  ledger_census_t census = ledger_census();
  CHECK_EQ(census.free_units, free);
  CHECK_EQ(census.dirty_free_units, dirty_free);
  CHECK_EQ(ledger_used_units(), census.used_units);
  CHECK_EQ(ledger_idle_units(), dirty_free);
}

static bool is_aligned(uint32_t start, uint64_t align) { return ((region.base >> HAK_UNIT_SHIFT) + start) % align == 0; }

/* A request for a span. */
typedef struct wish {
  uint32_t units;
  uint64_t align;
  bool within; /* in one superslab, the lowest with room; otherwise anywhere */
  bool warm;   /* prefers the place with the fewest units to fault in */
} wish_t;

/* The free run around the unit, before the span was taken: returns its length and stores where it begins. */
static uint32_t run_around(uint32_t unit, bool within, uint32_t *first) {
  uint32_t last = unit;
  uint32_t low = within ? unit / WORD * WORD : 0;
  uint32_t high = within ? low + WORD : load_relaxed(&region.units);
  for (*first = unit; *first > low && model_free(*first - 1);) --*first;
  while (last + 1 < high && model_free(last + 1)) last++;
  return last - *first + 1;
}

/* The cost of a place: units to fault in, then the length of the run. 0 if the span does not fit, or if the run has an earlier place for
 * it. */
static uint64_t cost_at(uint32_t start, const wish_t *wish) {
  if (!is_aligned(start, wish->align) || (wish->within && start % WORD + wish->units > WORD)) return 0;
  if (start + wish->units > load_relaxed(&region.units)) return 0;
  uint64_t fresh = 0;
  for (uint32_t i = 0; i < wish->units; i++) {
    if (!model_free(start + i)) return 0;
    fresh += wish->warm && !model.dirty[start + i];
  }
  uint32_t first, length = run_around(start, wish->within, &first);
  while (!is_aligned(first, wish->align)) first++;
  return first == start ? fresh << 32 | length : 0;
}

/* The least cost, which best fit should find; 0 if there is no place. */
static uint64_t least_cost(const wish_t *wish, uint32_t *superslab) {
  uint64_t least = 0;
  for (uint32_t start = 0; start < load_relaxed(&region.units); start++) {
    if (wish->within && least != 0 && start % WORD == 0) break;
    uint64_t cost = cost_at(start, wish);
    if (cost == 0) continue;
    if (least == 0 || cost < least) least = cost;
    *superslab = start / WORD;
  }
  return least;
}

/* ---- operations on both ---- */

static void soil(uint32_t unit) {
  uint64_t *words = region_address(unit);
  words[0] = words[HAK_UNIT / 16] = words[HAK_UNIT / 8 - 1] = ~(uint64_t)unit;
  model.dirty[unit] = true;
  model.cold[unit] = false;
}

static bool superslab_is(uint32_t s, bool free, bool dirty) {
  for (uint32_t unit = s * WORD; unit < (s + 1) * WORD; unit++) {
    if (free && !model_free(unit)) return false;
    if (model.dirty[unit] != dirty) return false;
  }
  return true;
}

/* A superslab of clean units that a large block takes whole gets the pages of the
 * highest idle superslab, which is clean then. */
static void model_furnish(uint32_t start, uint32_t units) {
  for (uint32_t s = (start + WORD - 1) / WORD; (s + 1) * WORD <= start + units; s++) {
    if (!superslab_is(s, false, false)) continue;
    uint32_t source = load_relaxed(&region.units) / WORD;
    while (source-- > 0) {
      bool own = source * WORD < start + units && (source + 1) * WORD > start;
      if (own || !superslab_is(source, true, true)) continue;
      memset(&model.dirty[source * WORD], false, WORD);
      memset(&model.dirty[s * WORD], true, WORD);
      break;
    }
  }
}

static void check_zero(uint32_t start, uint32_t units, bool zero) {
  bool clean = true;
  for (uint32_t i = 0; i < units; i++) clean = clean && !model.dirty[start + i];
  CHECK_EQ(zero, clean);
  for (uint32_t i = 0; i < units; i++) {
    if (model.dirty[start + i]) continue;
    const uint64_t *words = region_address(start + i);
    CHECK(words[0] == 0 && words[HAK_UNIT / 16] == 0 && words[HAK_UNIT / 8 - 1] == 0);
  }
}

static void model_take(unsigned span, uint32_t start, uint32_t units) {
  for (uint32_t i = 0; i < units; i++) {
    if (model.owner[start + i] != 0) check_fail(__FILE__, __LINE__, "unit %u is handed out twice", start + i);
    model.owner[start + i] = (uint16_t)(span + 1);
    soil(start + i);
  }
}

static void take_for(unsigned span, uint32_t units, uint64_t align, span_use_t use) {
  bool within = units <= WORD / 2 && align <= WORD;
  uint32_t superslab = 0;
  uint32_t grown_from = load_relaxed(&region.units);
  wish_t wish = {units, align, within, !within && use != SPAN_ZEROED};
  uint64_t least = least_cost(&wish, &superslab);
  bool zero = false;
  uint32_t start = span_alloc(units, align, use, &zero);
  REQUIRE(start != SPAN_NONE);
  CHECK(((uintptr_t)region_address(start) >> HAK_UNIT_SHIFT) % align == 0);
  if (least != 0) {
    CHECK_EQ(load_relaxed(&region.units), grown_from);
    CHECK_EQ(cost_at(start, &wish), least);
    if (within) CHECK_EQ(start / WORD, superslab);
  }
  if (use == SPAN_PLAIN) model_furnish(start, units);
  check_zero(start, units, zero);
  model_take(span, start, units);
  model.spans[span].start = start;
  model.spans[span].units = units;
}

static void take(unsigned span, uint32_t units, uint64_t align) { take_for(span, units, align, SPAN_SLAB); }

static void give(unsigned span) {
  uint32_t start = model.spans[span].start, units = model.spans[span].units;
  for (uint32_t i = 0; i < units; i++) {
    CHECK_EQ(*(uint64_t *)region_address(start + i), ~(uint64_t)(start + i));
    model.owner[start + i] = 0;
  }
  model.spans[span].units = 0;
  span_free(start, units);
}

/* Grows a span in place if the units behind it are free, or can be mapped. */
static void claim(unsigned span, uint32_t more) {
  uint32_t end = model.spans[span].start + model.spans[span].units;
  uint32_t frontier = load_relaxed(&region.units);
  bool can = true;
  for (uint32_t unit = end; can && unit < end + more && unit < frontier; unit++) can = model_free(unit);
  bool claimed = span_claim(end, more);
  if (end + more <= frontier || !can) CHECK_EQ(claimed, can); /* beyond the frontier something may be in the way */
  if (!claimed) return;
  model_furnish(end, more);
  for (uint32_t unit = end; unit < end + more; unit++) CHECK(unit_is_mapped(unit) && !unit_is_free(unit));
  model_take(span, end, more);
  model.spans[span].units += more;
}

/* Purges the free dirty units: all of them, or only the cold ones. Returns how many were purged. */
static uint64_t model_purge(bool all) {
  uint64_t purged = 0;
  for (uint32_t unit = 0; unit < load_relaxed(&region.units); unit++) {
    bool pending = model_free(unit) && model.dirty[unit];
    bool due = pending && (all || model.cold[unit]);
    if (due) model.dirty[unit] = false;
    model.cold[unit] = pending && !due;
    purged += due;
  }
  return purged;
}

static void purge(void) {
  uint64_t want = model_purge(true);
  CHECK_EQ(purge_all(), want * HAK_UNIT);
}

static void decay(void) {
  int64_t decay_ms = option_get(OPTION_decay_ms);
  uint64_t want = 0;
  bool due = decay_ms >= 0 && os_now_ms() - model.step_ms >= (uint64_t)decay_ms / 2;
  if (due && ledger_census().dirty_free_units > 0) {
    want = model_purge(decay_ms == 0);
    model.step_ms = os_now_ms();
  }
  uint64_t before = purge_bytes();
  (void)purge_due();
  CHECK(purge_step(purge_last_step() + 1, NULL)); /* the rest of the step */
  CHECK_EQ(purge_bytes() - before, want * HAK_UNIT);
}

static void start_space(uint64_t address_limit) {
  seed = unit_seed();
  CHECK(option_set(OPTION_decay_ms, 100)); /* only the tests call purge_due */
  CHECK(option_set(OPTION_idle_percent, 1000000));
  fake_os_set_address_limit(address_limit);
  REQUIRE(region_init(SMALL_REGION));
}

/* ---- randomized ---- */

static uint32_t random_units(void) {
  uint32_t kind = unit_below(&seed, 16);
  if (kind < 10) return 1 + unit_below(&seed, 4);
  if (kind < 15) return 1 + unit_below(&seed, 40);
  return 1 + unit_below(&seed, 200);
}

static uint64_t random_align(void) { return unit_below(&seed, 4) != 0 ? 1 : (uint64_t)1 << unit_below(&seed, 8); }

static void random_step(void) {
  unsigned span = unit_below(&seed, SPANS);
  bool live = model.spans[span].units != 0;
  uint32_t what = unit_below(&seed, 100);
  if (live && what < 60) give(span);
  else if (live && what < 80) claim(span, 1 + unit_below(&seed, 6));
  else if (!live && what < 90) take_for(span, random_units(), random_align(), (span_use_t)unit_below(&seed, 3));
  else if (what == 99) purge();
  if (unit_below(&seed, 8) == 0) decay();
  fake_os_pass_time(unit_below(&seed, 10));
}

static void random_run(int steps) {
  static const int64_t decays[] = {100, 0, 400, -1};
  for (int step = 0; step < steps && check_failures() == 0; step++) {
    if (step % 250 == 0) CHECK(option_set(OPTION_decay_ms, decays[step / 250 % 4]));
    random_step();
    if (step % 64 == 0) check_all();
  }
  for (unsigned span = 0; span < SPANS; span++) {
    if (model.spans[span].units != 0) give(span);
  }
  check_all();
  purge();
  check_all();
  CHECK_EQ(ledger_census().free_units, units_mapped());
}

TEST(random_spans_match_the_model) {
  start_space(UINT64_MAX);
  random_run(STEPS);
}

TEST(random_spans_match_the_model_under_a_limit) {
  start_space((uint64_t)1 << 40);
  random_run(STEPS);
}

TEST(random_spans_match_the_model_among_foreign_mappings) {
  start_space((uint64_t)1 << 40);
  uint32_t end = load_relaxed(&region.units);
  for (uint32_t unit = end + 7; unit < end + 2000; unit += 1 + unit_below(&seed, 300)) {
    CHECK(os_map_at(region_address(unit), os_page_size()) == OS_MAPPED);
  }
  random_run(STEPS);
  CHECK(units_mapped() < load_relaxed(&region.units));
}

/* ---- one property each ---- */

TEST(neighbours_coalesce_in_any_order_of_frees) {
  start_space(UINT64_MAX);
  for (int round = 0; round < 50; round++) {
    for (unsigned i = 0; i < 64; i++) take(i, 1, 1);
    unsigned order[64];
    for (unsigned i = 0; i < 64; i++) order[i] = i;
    for (unsigned i = 63; i > 0; i--) {
      unsigned j = unit_below(&seed, i + 1), swap = order[i];
      order[i] = order[j];
      order[j] = swap;
    }
    for (unsigned i = 0; i < 64; i++) give(order[i]);
    uint32_t before = load_relaxed(&region.units);
    take(0, 64, 1);
    CHECK_EQ(load_relaxed(&region.units), before);
    give(0);
  }
  check_all();
}

TEST(every_alignment_up_to_a_gib_is_kept) {
  start_space((uint64_t)1 << 46); /* unreserved: places for 64 GiB */
  for (uint64_t align = 1; align <= (uint64_t)1 << 12; align *= 2) {
    for (uint32_t units = 1; units < 70; units += 17) {
      bool zero = false;
      uint32_t start = span_alloc(units, align, SPAN_ZEROED, &zero);
      REQUIRE(start != SPAN_NONE);
      CHECK(zero);
      CHECK(((uintptr_t)region_address(start) >> HAK_UNIT_SHIFT) % align == 0);
      span_free(start, units);
      (void)purge_all();
    }
  }
}

TEST(absurd_requests_are_out_of_memory) {
  fake_os_set_random_seed(UINT64_MAX); /* not a multiple of 4 TiB */
  start_space(UINT64_MAX);
  bool zero = false;
  uint32_t before = load_relaxed(&region.units);
  CHECK(span_alloc((uint32_t)(HAK_REGION_MAX >> HAK_UNIT_SHIFT), 1, SPAN_ZEROED, &zero) == SPAN_NONE);
  CHECK(span_alloc(UINT32_MAX, 1, SPAN_ZEROED, &zero) == SPAN_NONE);
  CHECK(span_alloc(1, (uint64_t)1 << 40, SPAN_ZEROED, &zero) == SPAN_NONE);
  CHECK(span_alloc(1, HAK_REGION_MAX >> HAK_UNIT_SHIFT, SPAN_ZEROED, &zero) == SPAN_NONE);
  CHECK(!span_claim(load_relaxed(&region.units) + 1, 1));
  CHECK(!span_claim(0, UINT32_MAX));
  CHECK(!span_claim(load_relaxed(&region.units), (uint32_t)(HAK_REGION_MAX >> HAK_UNIT_SHIFT)));
  CHECK_EQ(load_relaxed(&region.units), before);
  check_all();
}

enum { AT_ONCE = 200 };
static pthread_barrier_t at_once;

static void *take_at_once(void *unused) {
  bool zero;
  pthread_barrier_wait(&at_once);
  CHECK(span_alloc(1, 1, SPAN_ZEROED, &zero) != SPAN_NONE);
  return unused;
}

/* All find nothing, and wait for the lock of growth. */
TEST(threads_that_miss_at_once_grow_once) {
  start_space((uint64_t)1 << 40);
  bool zero;
  pthread_t threads[AT_ONCE];
  for (uint32_t i = 0; i < 20; i++) {
    while (ledger_census().free_units > 0) REQUIRE(span_alloc(1, 1, SPAN_ZEROED, &zero) != SPAN_NONE);
    uint32_t before = load_relaxed(&region.units);
    pthread_barrier_init(&at_once, NULL, AT_ONCE);
    for (int t = 0; t < AT_ONCE; t++) REQUIRE(pthread_create(&threads[t], NULL, take_at_once, NULL) == 0);
    for (int t = 0; t < AT_ONCE; t++) REQUIRE(pthread_join(threads[t], NULL) == 0);
    CHECK(load_relaxed(&region.units) - before <= AT_ONCE + before / 16 + 2 * HAK_UNITS_PER_SUPERSLAB);
  }
}

TEST(growth_that_has_come_is_not_made_again) {
  start_space((uint64_t)1 << 40);
  uint32_t before = load_relaxed(&region.units);
  REQUIRE(region_grow(before, 1));
  uint32_t after = load_relaxed(&region.units);
  CHECK(after > before && region_grow(before, 1));
  CHECK_EQ(load_relaxed(&region.units), after);
}

TEST(a_full_region_serves_again_after_frees) {
  start_space(UINT64_MAX);
  bool zero = false;
  uint32_t count = 0, starts[MODEL_UNITS];
  while (count < MODEL_UNITS && (starts[count] = span_alloc(1, 1, SPAN_ZEROED, &zero)) != SPAN_NONE) count++;
  CHECK_EQ(count, SMALL_REGION >> HAK_UNIT_SHIFT);
  CHECK_EQ(ledger_census().free_units, 0);
  ledger_note_in_flight(true); /* by a thread that a signal handler has interrupted: it ends only after this call */
  CHECK(span_alloc(1, 1, SPAN_ZEROED, &zero) == SPAN_NONE);
  ledger_note_in_flight(false);
  for (uint32_t i = 0; i < count; i += 2) span_free(starts[i], 1);
  CHECK(span_alloc(2, 1, SPAN_ZEROED, &zero) == SPAN_NONE);
  for (uint32_t i = 0; i < count; i += 2) CHECK(span_alloc(1, 1, SPAN_ZEROED, &zero) != SPAN_NONE);
  CHECK(span_alloc(1, 1, SPAN_ZEROED, &zero) == SPAN_NONE);
}

static void another_purge(void) {
  ledger_note_in_flight(true);
  ledger_note_in_flight(false);
}

/* As if other threads freed all the time, and so gave memory back. */
TEST(what_purges_cannot_bring_is_not_waited_for) {
  start_space(UINT64_MAX);
  bool zero;
  uint32_t all = SMALL_REGION >> HAK_UNIT_SHIFT, first = span_alloc(all, 1, SPAN_ZEROED, &zero);
  REQUIRE(first != SPAN_NONE);
  for (uint32_t unit = 0; unit < all; unit += 4) span_free(first + unit, 2);
  fake_os_set_alone(true);
  ledger_note_in_flight(true);
  CHECK(span_alloc(all / 2 + 1, 1, SPAN_ZEROED, &zero) == SPAN_NONE); /* more than is free */
  CHECK_EQ(fake_os_slept_us(), 0);
  fake_os_set_meanwhile(another_purge);
  CHECK(span_alloc(4, 1, SPAN_ZEROED, &zero) == SPAN_NONE); /* more than is free in one run, while purges come and go */
  CHECK(fake_os_slept_us() > 0 && fake_os_slept_us() < 100000);
  uint64_t asleep = fake_os_slept_us();
  ledger_note_hidden(4); /* but it waits if hidden units may be enough */
  CHECK(span_alloc(4, 1, SPAN_ZEROED, &zero) == SPAN_NONE);
  CHECK(fake_os_slept_us() - asleep > 4000000);
  ledger_note_hidden(-4);
  fake_os_set_meanwhile(NULL);
  asleep = fake_os_slept_us();
  CHECK(span_alloc(4, 1, SPAN_ZEROED, &zero) == SPAN_NONE); /* or if a purge does not end */
  CHECK(fake_os_slept_us() - asleep > 4000000);
  asleep = fake_os_slept_us();
  ledger_set_cap(ledger_used_units() + 1); /* not even enough if all idle memory went back */
  CHECK(span_alloc(2, 1, SPAN_ZEROED, &zero) == SPAN_NONE);
  CHECK_EQ(fake_os_slept_us(), asleep);
  ledger_note_in_flight(false);
}

TEST(a_span_grows_past_the_frontier_unless_something_is_in_the_way) {
  start_space((uint64_t)1 << 40);
  take(0, 1, 1);
  uint32_t frontier = load_relaxed(&region.units);
  claim(0, frontier + 10); /* free up to the frontier */
  CHECK_EQ(model.spans[0].units, frontier + 11);
  check_all();
  take(1, 1, 1);
  uint32_t end = load_relaxed(&region.units);
  claim(0, (uint32_t)(SMALL_REGION >> HAK_UNIT_SHIFT)); /* the other span is in the way */
  CHECK_EQ(model.spans[0].units, frontier + 11);
  CHECK_EQ(load_relaxed(&region.units), end); /* nothing was mapped for it */
  uint32_t after = model.spans[1].start + 1;
  frontier = load_relaxed(&region.units);
  REQUIRE(os_map_at(region_address(frontier), os_page_size()) == OS_MAPPED);
  *(char *)region_address(frontier) = 0x5a;
  claim(1, frontier - after + 1);
  CHECK_EQ(model.spans[1].units, 1);
  CHECK_EQ(*(char *)region_address(frontier), 0x5a);
  check_all();
}

static uint32_t take_at_home(uint32_t units, uint32_t home) {
  bool zero;
  uint32_t start = span_alloc_to_grow(units, SPAN_GROWN, home, &zero);
  CHECK(start != SPAN_NONE && start % WORD + units <= WORD);
  return start;
}

TEST(what_may_grow_lies_apart_from_that_of_other_homes) {
  start_space((uint64_t)1 << 40);
  for (unsigned i = 0; i < 3; i++) take(i, WORD, 1);
  for (unsigned i = 0; i < 3; i++) give(i);
  uint32_t frontier = load_relaxed(&region.units), homes = frontier / WORD - 1, starts[3];
  REQUIRE(homes >= 2);
  for (uint32_t home = 0; home < 3; home++) CHECK_EQ((starts[home] = take_at_home(1, home)) / WORD, home);
  for (uint32_t home = 0; home < 3; home++) CHECK(span_claim(starts[home] + 1, 8));
  CHECK_EQ(take_at_home(1, homes + 1) / WORD, 1); /* the second home again */
  CHECK_EQ(load_relaxed(&region.units), frontier);
  /* If a home is full, free units elsewhere are used before fresh memory. */
  while (ledger_used_units() + 23 < frontier) (void)take_at_home(1, 2);
  CHECK(take_at_home(16, 2) / WORD == 1 && load_relaxed(&region.units) == frontier);
}

static uint32_t take_to_grow_on(uint32_t units) {
  bool zero;
  uint32_t start = span_alloc_to_grow(units, SPAN_GROWING, 0, &zero);
  CHECK(start != SPAN_NONE);
  return start;
}

/* Blocks of one size, taken in turn, can all grow to the next power of two. */
TEST(what_grows_step_by_step_has_as_much_room_behind_it) {
  start_space(UINT64_MAX);
  static const uint32_t lengths[] = {1, 3, 5, 16, 20, 33, 300};
  for (unsigned i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
    uint32_t units = lengths[i], starts[3], room = 1;
    while (room <= units) room *= 2;
    if (room > units + 256) room = units + 256;
    for (unsigned n = 0; n < 3; n++) {
      starts[n] = take_to_grow_on(units);
      CHECK(starts[n] % (room < WORD ? room : WORD) == 0); /* whole superslabs can be moved */
      for (uint32_t unit = starts[n] + units; unit < starts[n] + room; unit++) CHECK(unit_is_free(unit));
    }
    for (unsigned n = 0; n < 3 && units <= 2 * WORD; n++) CHECK(span_claim(starts[n] + units, room - units));
  }
}

/* 16 MiB at most. */
TEST(a_huge_block_that_grows_asks_for_no_more_room_than_others) {
  start_space(UINT64_MAX);
  (void)take_to_grow_on(1024);
  CHECK(load_relaxed(&region.units) <= 1024 + 256 + 3 * WORD);
}

static void fill_up(void) {
  bool zero;
  uint32_t taken = 0, frontier = load_relaxed(&region.units);
  while (ledger_used_units() < frontier && span_alloc(1, 1, SPAN_SLAB, &zero) != SPAN_NONE) taken++;
  CHECK(taken > 5);
}

/* Nobody reserves it. */
TEST(what_lies_behind_a_block_that_grows_may_be_taken) {
  start_space(UINT64_MAX);
  bool zero;
  uint32_t first = take_to_grow_on(3);
  CHECK_EQ(span_alloc(1, 1, SPAN_SLAB, &zero), first + 3); /* the tightest run */
}

TEST(where_a_limit_leaves_no_other_place_a_block_that_grows_has_no_room) {
  start_space(UINT64_MAX);
  uint32_t first = take_to_grow_on(3);
  fill_up();
  span_free(first, 3);
  ledger_set_cap(ledger_heap_units()); /* what is free is resident: it may be used again */
  uint64_t before = load_relaxed(&pressure.refused);
  CHECK_EQ(take_to_grow_on(2), first);
  CHECK_EQ(take_to_grow_on(1), first + 2);
  CHECK_EQ(load_relaxed(&pressure.refused), before);
}

TEST(where_the_kernel_gives_no_other_place_a_block_that_grows_has_no_room) {
  start_space(UINT64_MAX);
  uint32_t first = take_to_grow_on(3);
  fill_up();
  span_free(first, 3);
  fake_os_fail(1u << FAKE_MAP_AT, 1, UINT64_MAX);
  CHECK_EQ(take_to_grow_on(2), first);
  CHECK_EQ(take_to_grow_on(1), first + 2);
}

/* One that is longer than a superslab starts at one even so, if it can. */
TEST(what_has_no_room_can_be_moved_if_it_is_long) {
  start_space(UINT64_MAX);
  uint32_t first = take_to_grow_on(2 * WORD + 9);
  fill_up();
  span_free(first + 5, 2 * WORD + 4);
  fake_os_fail(1u << FAKE_MAP_AT, 1, UINT64_MAX);
  CHECK_EQ(take_to_grow_on(WORD + 1), first + WORD);
  CHECK_EQ(take_to_grow_on(WORD - 5), first + 5); /* and where none has such a start */
}

static uint32_t take_superslabs(uint32_t superslabs) {
  bool zero;
  uint32_t start = span_alloc(superslabs * WORD, WORD, SPAN_SLAB, &zero);
  CHECK(start != SPAN_NONE && start % WORD == 0);
  return start / WORD;
}

static void free_superslabs(uint32_t first, uint32_t superslabs) { span_free(first * WORD, superslabs * WORD); }

enum { HOLED = 200, HOLE = 4 };

/* Full, except for a hole of HOLE units in each of the lowest superslabs. */
static void start_holed(uint64_t bytes) {
  CHECK(option_set(OPTION_decay_ms, -1));
  REQUIRE(region_init(bytes));
  for (uint32_t s = 0; s < HOLED; s++) REQUIRE(take_superslabs(1) == s);
  uint32_t frontier = load_relaxed(&region.units);
  while (ledger_used_units() < frontier) (void)take_superslabs(1);
  for (uint32_t s = 0; s < HOLED; s++) span_free(s * WORD, HOLE);
}

static uint32_t take_more(void) {
  bool zero;
  return span_alloc(HOLE + 1, 1, SPAN_SLAB, &zero);
}

TEST(holes_that_are_too_short_are_not_all_looked_at) {
  start_holed((uint64_t)2 * HOLED * HAK_SUPERSLAB);
  uint32_t frontier = load_relaxed(&region.units), far = (HOLED - 5) * WORD, found = 0;
  span_free(far + HOLE, 1);
  CHECK_EQ(take_more(), frontier);
  for (int i = 0; i < 4 && found != far; i++) found = take_more(); /* each search checks other holes */
  CHECK_EQ(found, far);
  span_free(10 * WORD + HOLE, 1);
  CHECK_EQ(take_more(), 10 * WORD); /* and the lowest one each time */
}

TEST(all_are_before_memory_is_out) {
  start_holed((uint64_t)HOLED * HAK_SUPERSLAB);
  uint32_t far = (HOLED - 5) * WORD;
  CHECK_EQ(take_more(), SPAN_NONE);
  span_free(far + HOLE, 1);
  CHECK_EQ(take_more(), far);
}

TEST(a_large_heap_is_looked_at_in_part) {
  enum { SUPERSLABS = 2000 };
  CHECK(option_set(OPTION_decay_ms, -1));
  REQUIRE(region_init((uint64_t)2 * SUPERSLABS * HAK_SUPERSLAB));
  for (uint32_t s = 0; s < SUPERSLABS; s++) REQUIRE(take_superslabs(1) == s);
  uint32_t frontier = load_relaxed(&region.units);
  while (ledger_used_units() < frontier) (void)take_superslabs(1);
  free_superslabs(5, 2);
  free_superslabs(600, 1); /* a better place, but too far away */
  CHECK_EQ(take_superslabs(1), 5);
  CHECK_EQ(take_superslabs(1), 6);
  free_superslabs(3, 1); /* as good as the next two, but the last search ended behind it */
  free_superslabs(500, 1);
  CHECK_EQ(take_superslabs(1), 500);
  CHECK_EQ(take_superslabs(1), 600);
  CHECK_EQ(take_superslabs(1), 3); /* nothing is left there: all of the heap is searched before fresh memory is used */
  CHECK_EQ(load_relaxed(&region.units), frontier);
  (void)take_superslabs(1);
  CHECK(load_relaxed(&region.units) > frontier);
}

TEST(a_purge_that_fails_leaves_the_units_dirty) {
  start_space(UINT64_MAX);
  take(0, 20, 1);
  take(1, 3, 1);
  give(0);
  fake_os_fail(FAKE_ONLY(FAKE_PURGE), 1, UINT64_MAX);
  CHECK_EQ(purge_all(), 0);
  check_all();
  take(2, 20, 1); /* check_zero: not zero */
  give(2);
  fake_os_fail_none();
  purge();
  take(2, 20, 1);
  check_all();
}

/* ---- decay, by the fake's clock ---- */

static uint64_t dirty_free(void) { return ledger_census().dirty_free_units; }

static bool is_clean(uint32_t start, uint32_t units) {
  for (uint32_t unit = start; unit < start + units; unit++) {
    if ((load_relaxed(&region.superslabs[unit / WORD].dirty) >> unit % WORD & 1) != 0) return false;
  }
  return unit_is_zero(region_address(start), units * HAK_UNIT);
}

static uint32_t used_and_freed(uint32_t units) {
  bool zero = false;
  uint32_t start = span_alloc(units, 1, SPAN_ZEROED, &zero);
  CHECK(start != SPAN_NONE);
  if (start != SPAN_NONE) span_free(start, units);
  return start;
}

/* Makes a step while one is due, so that the time of the next is known. */
static void first_step(int64_t decay_ms) {
  CHECK(option_set(OPTION_decay_ms, decay_ms));
  fake_os_pass_time((uint64_t)decay_ms);
  CHECK_EQ(purge_due(), 0);
}

TEST(free_units_are_purged_by_the_second_step_and_not_before) {
  start_space(UINT64_MAX);
  (void)used_and_freed(10);
  first_step(1000);
  CHECK_EQ(dirty_free(), 10);
  for (int ms = 0; ms < 499; ms++) {
    fake_os_pass_time(1);
    CHECK_EQ(purge_due(), 0);
  }
  CHECK_EQ(dirty_free(), 10);
  CHECK_EQ(fake_os_calls(FAKE_ONLY(FAKE_PURGE)), 0);
  fake_os_pass_time(1);
  CHECK_EQ(purge_due(), 10 * HAK_UNIT);
  CHECK_EQ(dirty_free(), 0);
  uint64_t calls = fake_os_calls(FAKE_ONLY(FAKE_PURGE));
  fake_os_pass_time(10000);
  CHECK_EQ(purge_due(), 0);
  CHECK_EQ(fake_os_calls(FAKE_ONLY(FAKE_PURGE)), calls);
}

/* However long ago the last call was, a step purges only what an earlier step has seen free. */
TEST(the_first_step_purges_nothing) {
  start_space(UINT64_MAX);
  (void)used_and_freed(10);
  fake_os_pass_time((uint64_t)1 << 40);
  CHECK_EQ(purge_due(), 0);
  CHECK_EQ(dirty_free(), 10);
  CHECK_EQ(purge_due(), 0); /* no second step immediately */
  CHECK_EQ(dirty_free(), 10);
}

TEST(what_is_freed_between_steps_waits_for_two_of_them) {
  start_space(UINT64_MAX);
  uint32_t first = used_and_freed(4);
  first_step(100);
  bool zero = false;
  CHECK_EQ(span_alloc(4, 1, SPAN_ZEROED, &zero), first); /* used since, so the second step does not purge it */
  uint32_t second = span_alloc(3, 1, SPAN_ZEROED, &zero);
  REQUIRE(second != SPAN_NONE);
  span_free(first, 4);
  span_free(second, 3);
  fake_os_pass_time(50);
  CHECK_EQ(purge_due(), 0);
  CHECK_EQ(dirty_free(), 7);
  fake_os_pass_time(50);
  CHECK_EQ(purge_due(), 7 * HAK_UNIT);
  CHECK_EQ(dirty_free(), 0);
}

TEST(a_unit_that_is_used_again_and_again_is_not_purged) {
  start_space(UINT64_MAX);
  bool zero = false;
  uint32_t idle = span_alloc(10, 1, SPAN_ZEROED, &zero), busy = span_alloc(1, 1, SPAN_ZEROED, &zero);
  REQUIRE(idle != SPAN_NONE && busy != SPAN_NONE);
  span_free(idle, 10);
  span_free(busy, 1);
  first_step(100);
  for (int step = 0; step < 20; step++) {
    CHECK(span_claim(busy, 1));
    span_free(busy, 1);
    fake_os_pass_time(50);
    CHECK_EQ(purge_due(), step == 0 ? 10 * HAK_UNIT : 0); /* the idle neighbours, once */
    CHECK_EQ(dirty_free(), 1);
  }
  fake_os_pass_time(50);
  CHECK_EQ(purge_due(), HAK_UNIT);
}

TEST(a_unit_that_is_in_use_is_not_purged) {
  start_space(UINT64_MAX);
  uint32_t start = used_and_freed(4);
  first_step(100);
  CHECK(span_claim(start + 1, 2));
  memset(region_address(start + 1), 0x5a, 2 * HAK_UNIT);
  fake_os_pass_time(50);
  CHECK_EQ(purge_due(), 2 * HAK_UNIT);
  for (size_t i = 0; i < 2 * HAK_UNIT; i += 512) CHECK(((char *)region_address(start + 1))[i] == 0x5a);
  CHECK(is_clean(start, 1) && span_claim(start, 1));
}

TEST(alloc_and_free_do_not_purge_by_themselves) {
  start_space(UINT64_MAX);
  for (int64_t decay_ms = 0; decay_ms <= 100; decay_ms += 50) {
    CHECK(option_set(OPTION_decay_ms, decay_ms));
    for (int i = 0; i < 30; i++) {
      fake_os_pass_time(100);
      (void)used_and_freed(40);
    }
  }
  CHECK_EQ(fake_os_calls(FAKE_ONLY(FAKE_PURGE)), 0);
}

static void *purge_under_way(void *begun) {
  ledger_note_in_flight(true);
  pthread_barrier_wait(begun);
  os_sleep_us(100000);
  (void)purge_all();
  ledger_note_in_flight(false);
  return NULL;
}

TEST(a_hard_limit_refuses_nothing_while_what_is_idle_goes_back) {
  start_space((uint64_t)1 << 40);
  bool zero = false;
  uint32_t idle[4];
  for (int i = 0; i < 4; i++) {
    idle[i] = span_alloc(4, 1, SPAN_ZEROED, &zero);
    REQUIRE(idle[i] != SPAN_NONE && span_alloc(1, 1, SPAN_ZEROED, &zero) != SPAN_NONE);
  }
  for (int i = 0; i < 4; i++) span_free(idle[i], 4);
  ledger_set_cap(ledger_used_units() + ledger_idle_units());
  CHECK(span_alloc(8, 1, SPAN_ZEROED, &zero) == SPAN_NONE); /* no other thread gives memory back */
  pthread_t thread;
  pthread_barrier_t begun;
  pthread_barrier_init(&begun, NULL, 2);
  REQUIRE(pthread_create(&thread, NULL, purge_under_way, &begun) == 0);
  pthread_barrier_wait(&begun);
  CHECK(span_alloc(8, 1, SPAN_ZEROED, &zero) != SPAN_NONE);
  pthread_join(thread, NULL);
  CHECK(span_alloc(16, 1, SPAN_ZEROED, &zero) == SPAN_NONE);
}

TEST(a_decay_of_zero_purges_at_each_call) {
  start_space(UINT64_MAX);
  CHECK(option_set(OPTION_decay_ms, 0));
  for (int i = 0; i < 5; i++) { /* the clock stands still */
    uint32_t start = used_and_freed(5);
    CHECK_EQ(dirty_free(), 5);
    CHECK_EQ(purge_due(), 5 * HAK_UNIT);
    CHECK_EQ(dirty_free(), 0);
    CHECK(is_clean(start, 5) && span_claim(start, 5));
    span_free(start, 5);
    CHECK_EQ(purge_due(), 5 * HAK_UNIT);
  }
}

TEST(a_decay_of_minus_one_never_purges) {
  start_space(UINT64_MAX);
  CHECK(option_set(OPTION_decay_ms, -1));
  (void)used_and_freed(5);
  for (int i = 0; i < 20; i++) {
    fake_os_pass_time((uint64_t)1 << 40);
    CHECK_EQ(purge_due(), 0);
  }
  CHECK_EQ(dirty_free(), 5);
  CHECK_EQ(fake_os_calls(FAKE_ONLY(FAKE_PURGE)), 0);
  CHECK_EQ(purge_all(), 5 * HAK_UNIT);
}

TEST(a_decay_set_anew_holds_from_the_next_step) {
  start_space(UINT64_MAX);
  (void)used_and_freed(5);
  first_step(100000);
  fake_os_pass_time(100);
  CHECK_EQ(purge_due(), 0);
  CHECK(option_set(OPTION_decay_ms, 200));
  CHECK_EQ(purge_due(), 5 * HAK_UNIT);
}

TEST(a_purge_that_failed_is_tried_again_after_a_minute) {
  start_space(UINT64_MAX);
  (void)used_and_freed(5);
  first_step(100);
  fake_os_fail(FAKE_ONLY(FAKE_PURGE), 1, UINT64_MAX);
  fake_os_pass_time(50);
  CHECK_EQ(purge_due(), 0);
  CHECK_EQ(fake_os_injected(), 9); /* five units, then each half, and so on */
  CHECK_EQ(dirty_free(), 5);
  fake_os_fail_none();
  size_t given = 0;
  int ms = 0;
  for (; given == 0 && ms < 100000; ms += 50) {
    fake_os_pass_time(50);
    given = purge_due();
  }
  CHECK(given == 5 * HAK_UNIT && ms > 59000 && ms < 61000);
  CHECK_EQ(dirty_free(), 0);
}

TEST(the_clock_may_pass_32_bits) {
  start_space(UINT64_MAX);
  fake_os_set_time(UINT32_MAX - 1300);
  (void)used_and_freed(5);
  first_step(1000);
  fake_os_pass_time(499);
  CHECK_EQ(purge_due(), 0);
  fake_os_pass_time(1);
  CHECK_EQ(purge_due(), 5 * HAK_UNIT);
}

/* ---- recovery ---- */

static uint32_t used_in_model(uint32_t unit) {
  uint16_t owner = model.owner[unit];
  return owner != 0 && model.spans[owner - 1].start == unit ? model.spans[owner - 1].units : 0;
}

TEST(recovery_frees_just_what_no_span_covers) {
  start_space((uint64_t)1 << 40);
  CHECK(os_map_at(region_address(load_relaxed(&region.units) + 5), os_page_size()) == OS_MAPPED);
  for (unsigned i = 0; i < 100; i++) take(i, random_units(), 1);
  for (unsigned i = 0; i < 100; i += 3) give(i);
  check_all();
  /* Units that lost threads had claimed and not yet entered. */
  bool zero = false;
  for (int i = 0; i < 20; i++) {
    uint32_t start = span_alloc(1 + unit_below(&seed, 40), 1, SPAN_ZEROED, &zero);
    REQUIRE(start != SPAN_NONE);
    for (uint32_t unit = start; unit < start + 40; unit++) {
      if (!unit_is_free(unit) && model.owner[unit] == 0) model.dirty[unit] = true;
    }
  }
  span_recover(used_in_model);
  check_all();
  for (unsigned i = 0; i < 100; i += 3) take(i, random_units(), 1);
  check_all();
}

/* ---- threads ---- */

static _Atomic uint8_t taken_by[MODEL_UNITS];

static void *take_and_give(void *number) {
  uint64_t state = unit_seed() + (uintptr_t)number;
  uint8_t me = (uint8_t)(uintptr_t)number;
  struct {
    uint32_t start, units;
  } mine[32] = {{0, 0}};
  for (int i = 0; i < THREAD_STEPS; i++) {
    unsigned n = unit_below(&state, 32);
    if (mine[n].units != 0) {
      for (uint32_t u = 0; u < mine[n].units; u++) {
        CHECK_EQ(*(uint64_t *)region_address(mine[n].start + u), me); /* a purge would have cleared it */
        CHECK_EQ(atomic_exchange(&taken_by[mine[n].start + u], 0), me);
      }
      span_free(mine[n].start, mine[n].units);
      mine[n].units = 0;
      continue;
    }
    bool zero = false;
    uint32_t units = 1 + unit_below(&state, 24);
    uint32_t start = span_alloc(units, 1, SPAN_ZEROED, &zero);
    if (start == SPAN_NONE) continue;
    for (uint32_t u = 0; u < units; u++) {
      CHECK_EQ(atomic_exchange(&taken_by[start + u], me), 0);
      uint64_t *words = region_address(start + u);
      if (zero) CHECK_EQ(words[0], 0);
      words[0] = me;
    }
    mine[n].start = start;
    mine[n].units = units;
    if (i % 64 == 0) fake_os_pass_time(1);
  }
  for (unsigned n = 0; n < 32; n++) {
    for (uint32_t u = 0; u < mine[n].units; u++) atomic_store(&taken_by[mine[n].start + u], 0);
    if (mine[n].units != 0) span_free(mine[n].start, mine[n].units);
  }
  return NULL;
}

static _Atomic bool purger_stops;

static void *purge_all_the_time(void *unused) {
  while (!load_relaxed(&purger_stops)) {
    (void)purge_all();
    for (int i = 0; i < 8; i++) (void)purge_due();
  }
  return unused;
}

TEST(threads_never_share_a_unit) {
  start_space(UINT64_MAX);
  CHECK(option_set(OPTION_decay_ms, 4));
  pthread_t threads[4], purger;
  REQUIRE(pthread_create(&purger, NULL, purge_all_the_time, NULL) == 0);
  for (uintptr_t i = 0; i < 4; i++) REQUIRE(pthread_create(&threads[i], NULL, take_and_give, (void *)(i + 1)) == 0);
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  store_relaxed(&purger_stops, true);
  pthread_join(purger, NULL);
  CHECK_EQ(ledger_census().free_units, units_mapped());
  (void)purge_all();
  CHECK_EQ(ledger_census().dirty_free_units, 0);
}
