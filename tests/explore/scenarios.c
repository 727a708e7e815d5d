/* scenarios.c - the scenarios that product.c does not generate.  Mostly with blocks of 8192 bytes: eight fill a slab of one unit. */
#include "front/boot.h"
#include "judge.h"
#include "kit/options.h"
#include "program.h"
#include "slab/sample.h"
#include "space/ledger.h"
#include "space/purge.h"
#include "space/span.h"
#include "target.h"

#define BIG ((size_t)8192)
#define BIG_BLOCKS 8
/* So small that one word of the live map covers several blocks. */
#define TINY ((size_t)16)

static void *a[2 * BIG_BLOCKS];

/* The thread has taken the blocks a[0..count). */
static void taken_by(unsigned identity, unsigned count, size_t size) {
  start();
  target_run_as(identity);
  for (unsigned i = 0; i < count; i++) a[i] = take(size);
}

static void given_back(unsigned from, unsigned end) {
  for (unsigned i = from; i < end; i++) give(a[i]);
}

static void give_0(void) { give(a[0]); }
static void give_1(void) { give(a[1]); }
static void take_one(void) { (void)take(BIG); }
static void take_other_class(void) { (void)take(64); }
static void take_and_give(void) { give(take(BIG)); }

/* --- the owner is there ---------------------------------------------------------------------- */

static void some_tiny(void) { taken_by(0, 4, TINY); }
static void tiny_pop_and_push(void) { give(a[3]), (void)take(TINY); }

/* The slab's marker has freed block a[0] before, so that the mark is already toggled once. */
static void freed_before(void) {
  taken_by(0, BIG_BLOCKS, BIG);
  target_run_as(1);
  give(a[0]);
  target_run_as(0);
  target_trim();
  a[0] = take(BIG);
}

/* A slab with two words of remote bits, of which the first and the last block are left. */
static void two_words(void) {
  enum { BLOCKS = 128 };
  void *blocks[BLOCKS];
  start();
  target_run_as(0);
  for (unsigned i = 0; i < BLOCKS; i++) blocks[i] = take(HAK_UNIT / BLOCKS);
  for (unsigned i = 1; i + 1 < BLOCKS; i++) give(blocks[i]);
  target_trim();
  a[0] = blocks[0];
  a[1] = blocks[BLOCKS - 1];
}

static void with_holes(void) {
  taken_by(0, BIG_BLOCKS, BIG);
  given_back(2, BIG_BLOCKS);
  target_trim();
}

/* --- the owner goes -------------------------------------------------------------------------- */

static void two_blocks_left(void) {
  taken_by(0, BIG_BLOCKS, BIG);
  given_back(2, BIG_BLOCKS);
}

/* The thread has ended without the allocator's knowledge; the first actor has the same thread_self(). */
static void ended_unseen(void) {
  two_blocks_left();
  target_forget_thread();
}

/* An orphan of a thread that is no actor. */
static void an_orphan(void) {
  taken_by(EXPLORE_ACTORS - 1, 2 * BIG_BLOCKS, BIG);
  given_back(2, BIG_BLOCKS);
  given_back(BIG_BLOCKS + 1, 2 * BIG_BLOCKS);
  target_end_thread();
}

/* --- a fork ------------------------------------------------------------------------------------ */

/* What the other threads were doing stays half-done; the child allocates and frees, which repairs all. */
static void fork_and_use(void) {
  target_fork();
  give(take(BIG));
  give(a[0]);
  target_trim();
}

/* One thread of the child repairs it, and another forks. A third thread would wait for the repair where the explorer cannot see it. */
static void left_behind(void) {
  taken_by(EXPLORE_ACTORS - 1, BIG_BLOCKS, BIG);
  given_back(2, BIG_BLOCKS);
  target_left_behind(EXPLORE_ACTORS - 1);
}

/* The forker has no heap, and the owner is actor 0. */
static void trim_and_take(void) { target_trim(), take_one(); }
static void run_out(void) { take_one(), take_one(), take_one(), give(a[1]); }

/* --- the start ------------------------------------------------------------------------------- */

static void take_and_give_first(void) { give(take(64)); }

static void judge_first_use(void) {
  if (load_relaxed(&region.units) != HAK_UNITS_PER_SUPERSLAB) explore_fail("the region was made more than once");
  judge_end();
}

/* Two starts fail, at every place that they try; the next one succeeds. */
static void start_refused(void) {
  enum { STARTS = 2, PLACES = 6, TRIES = 2 };
  start();
  explore_expect();
  memory_refuse(STARTS * PLACES * TRIES);
}

static void take_if_there_is(void) {
  void *block = target_take(64);
  if (block != NULL) target_give(block);
  else explore_show();
}

/* --- double frees ---------------------------------------------------------------------------- */

static void give_0_wrongly(void) { give_wrongly(a[0]); }
static void full_slab_of_third(void) { taken_by(2, BIG_BLOCKS, BIG); }

/* If the owner and another thread free a block at the same moment, both frees may pass, as the owner claims it by a plain store.  The
 * block is then in the owner's bin and also waits to be collected.  Every continuation ends in the line: when the block leaves the bin,
 * or at the second free by those who have got it meanwhile. */
static void full_slab_of_first(void) { taken_by(0, BIG_BLOCKS, BIG); }
static void *kept;
static void give_and_take(void) { give_0_wrongly(), kept = target_take(BIG); }
static void give_take_and_give(void) { give_and_take(), target_free(kept); }

static void found_in_bin(void) {
  target_run_as(0);
  target_trim();
  explore_fail("two frees have passed");
}

static void found_when_freed(void) {
  void *blocks[2 * BIG_BLOCKS];
  target_run_as(0);
  target_trim();
  for (unsigned i = 0; i < 2 * BIG_BLOCKS; i++) blocks[i] = target_take(BIG);
  for (unsigned i = 0; i < 2 * BIG_BLOCKS; i++) target_free(blocks[i]);
  target_free(kept);
  explore_fail("two frees have passed");
}

/* --- spans ----------------------------------------------------------------------------------- */

/* Units in use: [0, 20) throughout, [20, 24) until one actor frees them, [48, 64) throughout. The
 * free units between cross the end of the first superslab. */
enum { GOOD = 20, LATER = 4, ACROSS = 24, REST = 16, UNITS_MOST = 256 };

static uint32_t spans[5];
static bool unit_taken[UNITS_MOST];

static uint32_t take_span(uint32_t units) {
  bool zero;
  uint32_t at = span_alloc(units, 1, SPAN_SLAB, &zero);
  if (at > UNITS_MOST - units) explore_fail("no span of %u units, but %u", units, at);
  for (uint32_t i = at; i < at + units; i++) {
    if (unit_taken[i]) explore_fail("unit %u is in two spans", i);
    unit_taken[i] = true;
    target_write(region_address(i));
  }
  return at;
}

static void give_span(uint32_t at, uint32_t units) {
  for (uint32_t i = at; i < at + units; i++) {
    unit_taken[i] = false;
    target_write(region_address(i));
  }
  span_free(at, units);
}

static void two_superslabs(void) {
  start();
  if (!boot()) explore_fail("no region");
  spans[0] = take_span(GOOD);
  spans[1] = take_span(LATER);
  uint32_t across = take_span(ACROSS);
  spans[2] = take_span(REST);
  give_span(across, ACROSS);
  if (spans[1] != GOOD || across != GOOD + LATER || spans[2] != across + ACROSS) explore_fail("spans lie elsewhere");
}

static void span_across(void) { spans[3] = take_span(GOOD); }

static void spans_within(void) {
  uint32_t at = take_span(2);
  spans[4] = take_span(2);
  give_span(at, 2);
}

static void span_given(void) { give_span(spans[1], LATER); }

static void judge_spans(void) {
  give_span(spans[0], GOOD);
  give_span(spans[2], REST);
  give_span(spans[3], GOOD);
  give_span(spans[4], 2);
  judge_nothing_used();
  if (ledger_used_units() != 0 || target_grow_locked()) explore_fail("figures or locks are left");
}

/* Two superslabs: the first is full; the second is full except for its last unit. */
static void one_unit_left(void) {
  start();
  if (!boot()) explore_fail("no region");
  spans[0] = take_span(31);
  spans[1] = take_span(1);
  spans[2] = take_span(31);
  if (spans[1] != 31 || spans[2] != 32) explore_fail("spans lie elsewhere");
}

static void lower_unit_given(void) { give_span(spans[1], 1); }
static void unit_taken_meanwhile(void) { spans[3] = take_span(1); }

/* One unit is free and must be found, whichever it is and whatever hints the searches have left. */
static void judge_one_unit_left(void) {
  uint32_t units = load_relaxed(&region.units);
  spans[4] = take_span(1);
  if (load_relaxed(&region.units) != units) explore_fail("the region has grown though a unit was free");
  give_span(spans[0], 31);
  give_span(spans[2], 31);
  give_span(spans[3], 1);
  give_span(spans[4], 1);
  judge_nothing_used();
}

static void some_idle(void) {
  start();
  if (!boot()) explore_fail("no region");
  spans[0] = take_span(LATER);
  spans[1] = take_span(LATER);
  give_span(spans[0], LATER);
}

static void purge_everything(void) { (void)purge_all(); }
static void span_taken(void) { spans[2] = take_span(LATER); }

static void judge_purged(void) {
  give_span(spans[1], LATER);
  give_span(spans[2], LATER);
  judge_nothing_used();
  if (ledger_used_units() != 0 || ledger_in_flight()) explore_fail("figures are left");
}

/* With decay_ms=0: what a thread has freed is given back by the end of its own sweep, or by another thread's sweep. */
static void at_once(void) {
  start();
  if (!boot()) explore_fail("no region");
  if (!option_set(OPTION_decay_ms, 0)) explore_fail("nothing goes back at once");
  spans[0] = take_span(HAK_UNITS_PER_SUPERSLAB - 1);
  spans[1] = take_span(1);
  spans[2] = take_span(LATER);
  spans[3] = take_span(LATER);
  (void)purge_due();
}

static void given_and_swept(uint32_t at, uint32_t units) {
  give_span(at, units);
  (void)purge_due();
}
static void low_given_and_swept(void) { given_and_swept(spans[0], HAK_UNITS_PER_SUPERSLAB - 1); }
static void high_given_and_swept(void) { given_and_swept(spans[2], LATER); }
static void high_given_too(void) { given_and_swept(spans[3], LATER); }

static void judge_swept(void) {
  if (ledger_census().dirty_free_units != 0) explore_fail("idle units that no sweep looks at");
  give_span(spans[1], 1);
  if (unit_taken[spans[0]]) give_span(spans[0], HAK_UNITS_PER_SUPERSLAB - 1);
  if (unit_taken[spans[3]]) give_span(spans[3], LATER);
  if (!option_set(OPTION_decay_ms, -1)) explore_fail("memory goes back with time");
  judge_nothing_used();
}

/* --- growth ---------------------------------------------------------------------------------- */

static void one_superslab_full(void) {
  start();
  if (!boot()) explore_fail("no region");
  spans[0] = take_span(31);
  spans[1] = take_span(1);
}

static void span_beyond(void) { spans[2] = take_span(31); }
static void span_beyond_too(void) { spans[3] = take_span(31); }
static void blocks_taken(void) { give(take(BIG)); }

static void judge_grown(void) {
  give_span(spans[0], 31);
  give_span(spans[1], 1);
  give_span(spans[2], 31);
  give_span(spans[3], 31);
  judge_end();
}

/* An address that the region may or may not cover yet; no block begins there. */
static void free_beyond(void) { target_free(region_address(HAK_UNITS_PER_SUPERSLAB + 3)); }

/* The zones end where the units end. */
static void zones_full(void) {
  start();
  bool zero;
  if (!boot() || span_alloc(8 * HAK_UNITS_PER_SUPERSLAB, 1, SPAN_SLAB, &zero) != 0) explore_fail("spans lie elsewhere");
}

static void zones_extended(void) {
  bool zero;
  if (span_alloc(HAK_UNITS_PER_SUPERSLAB, 1, SPAN_SLAB, &zero) == SPAN_NONE) explore_fail("no span");
}

/* Skips the fast path, which reads the limit relaxed: see region.limit in docs/memory_orders.md. */
static void free_beyond_zones(void) { target_free_missed(region_address(8 * HAK_UNITS_PER_SUPERSLAB + 3)); }

static uint32_t last_units;

static void full_but(uint32_t units) {
  start();
  if (!boot()) explore_fail("no region");
  bool zero;
  last_units = units;
  spans[0] = span_alloc(last_units, 1, SPAN_SLAB, &zero);
  for (uint32_t size = 1 << 13; size > 0; size /= 2) {
    while (span_alloc(size, 1, SPAN_SLAB, &zero) != SPAN_NONE) {
    }
  }
  span_free(spans[0], last_units);
}

static void full_of_spans(void) { full_but(LATER); }
static void full_of_long_spans(void) { full_but(GOOD); } /* too long for the search in single superslabs */

/* Units that a purge has claimed count as free: the span must be found. */
static void last_span_taken(void) {
  bool zero;
  uint32_t at = span_alloc(last_units, 1, SPAN_SLAB, &zero);
  if (at != spans[0]) explore_fail("no span, though one is free");
}

static void judge_last_span(void) {
  if (ledger_in_flight()) explore_fail("figures are left");
}

/* --- looks from outside ------------------------------------------------------------------------ */

static void look(void) { target_look(); }

/* --- guard slots ------------------------------------------------------------------------------- */

static void two_slots(void) {
  start();
  if (!boot()) explore_fail("no region");
  target_guard_slots(2);
}

static void one_slot_used(void) {
  two_slots();
  a[0] = target_guarded(100);
  a[1] = target_guarded(100);
  target_give(a[0]);
}

static void slot_used(void) {
  void *block = target_guarded(100);
  if (block == NULL) return; /* another actor is making the slots, or uses all of them */
  target_write(block);
  target_give(block);
}

static void slot_given(void) { target_give(a[1]); }
static void judge_nothing(void) {}

/* --- sampled blocks ---------------------------------------------------------------------------- */

/* The thread holds a slab's blocks; a[0] is sampled. */
static void sampled_by(unsigned identity) {
  start_sampled();
  target_run_as(identity);
  for (unsigned slabs = 0; slabs < 16 && a[0] == NULL; slabs++) {
    void *blocks[BIG_BLOCKS];
    for (unsigned i = 0; i < BIG_BLOCKS; i++) {
      blocks[i] = take(BIG);
      if (sample_is_live(blocks[i])) a[0] = blocks[i];
    }
    for (unsigned i = 0, n = 1; i < BIG_BLOCKS; i++) {
      if (a[0] != NULL && blocks[i] != a[0]) a[n++] = blocks[i];
    }
  }
  if (a[0] == NULL) explore_fail("no block is sampled");
}

static void sampled(void) { sampled_by(0); }
static void sampled_second(void) {
  sampled();
  void *block = a[0];
  a[0] = a[1], a[1] = block;
}
static void sampled_of_third(void) { sampled_by(2); }
static void sampled_orphan(void) {
  sampled();
  target_end_thread();
}
static void sampled_used_again(void) {
  for (unsigned i = 0; i < BIG_BLOCKS; i++) (void)take(BIG);
}

/* --- named heaps ----------------------------------------------------------------------------- */

/* Two blocks in one slab, and a large one. */
static void some_named(void) {
  start();
  target_named_new();
  a[0] = target_named_take(BIG);
  a[1] = target_named_take(BIG);
  a[2] = target_named_take(HAK_SMALL_MAX + 1);
}

static void named_free(void *block) {
  giving++;
  target_free_if_live(block);
  giving--;
}
static void named_free_0(void) { named_free(a[0]); }
static void named_free_large(void) { named_free(a[2]); }
static void named_take_and_give(void) { give(target_named_take(BIG)); }
static void named_large(void) { give(target_named_take(HAK_SMALL_MAX + 1)); }

static void judge_named_ended(void) { judge_end_live(); }
static void judge_named(void) {
  target_named_end();
  judge_end_live();
}

/* The child keeps using the named heap. It may not if the heap was ending at the fork: fork_and_take is for that. */
static void fork_and_use_named(void) {
  target_fork();
  give(target_named_take(BIG));
  target_named_end();
  give(take(BIG));
}
static void fork_and_take(void) {
  target_fork();
  give(take(BIG));
  target_trim();
}

/* --- large blocks that a thread caches --------------------------------------------------------- */

/* One large block in use, and one cached. */
static void one_cached(void) {
  taken_by(0, 2, HAK_SMALL_MAX + 1);
  a[2] = take(BIG);
  give(a[1]);
  if (large_cache_units(&target_heap_of(0)->owner.large_cache) != units_of(HAK_SMALL_MAX + 1)) explore_fail("it is not cached");
}
static void take_and_give_large(void) { give(take(HAK_SMALL_MAX + 1)); }
static void take_large(void) { (void)take(HAK_SMALL_MAX + 1); }
static void give_large_and_take(void) { give(a[0]), (void)take(HAK_SMALL_MAX + 1); }
static void fork_and_use_large(void) {
  target_fork();
  give(take(HAK_SMALL_MAX + 1));
  give(a[0]);
  take_large();
  target_trim();
}

/* --- bins that others drain -------------------------------------------------------------------- */

/* Three or more blocks in the bin, and some in another bin. */
static void bin_of_some(void) {
  taken_by(0, BIG_BLOCKS, BIG);
  given_back(2, BIG_BLOCKS);
  void *others[] = {take(BIG / 2), take(BIG / 2), take(BIG / 2)};
  for (unsigned i = 0; i < 3; i++) give(others[i]);
  memory_meet_barriers();
}
static void bin_of_some_sampled(void) {
  sampled();
  for (unsigned i = 3; i < BIG_BLOCKS; i++) give(a[i]);
  memory_meet_barriers();
}

static void pop_and_push(void) {
  void *one = take(BIG), *other = take(BIG), *third = take(BIG);
  give(other), give(third), give(one);
}
/* The thread has popped two blocks while a drain set the bar at the lower one. */
static void bin_barred_late(void) {
  bin_of_some();
  a[2] = take(BIG), a[3] = take(BIG);
  target_bar_above(BIG);
}
static void up_and_down(void) { give(a[2]), give(a[3]), (void)take(BIG), (void)take(BIG); }
static void up(void) { give(a[2]), give(a[3]); }
static void pop_two(void) { (void)take(BIG), (void)take(BIG); }
static void pop_all(void) {
  for (unsigned i = 0; i < BIG_BLOCKS; i++) (void)take(BIG);
}
static void use_other(void) { give(take(BIG / 2)); }
static void push_two(void) { give(a[0]), give(a[1]); }
static void end_with_blocks(void) { give(take(BIG)), target_end_thread(); }

/* --- parked heaps ------------------------------------------------------------------------------ */

/* A heap to be parked when its thread ends: six blocks are in its bin, and two are in use. */
static void to_be_handed_over(unsigned identity) {
  taken_by(identity, BIG_BLOCKS, BIG);
  given_back(2, BIG_BLOCKS);
  if (!option_set(OPTION_decay_ms, 1000)) explore_fail("nothing goes back with time");
}
static void about_to_end(void) { to_be_handed_over(0); }
/* A parked heap; the next check empties it. */
static void handed_over(void) {
  to_be_handed_over(EXPLORE_ACTORS - 1);
  heap_t *heap = target_heap_of(EXPLORE_ACTORS - 1);
  target_end_thread();
  target_age_parked();
  if (bin_count(heap_bin_for(heap, BIG)) == 0) explore_fail("nothing is left");
}
static void age_twice(void) { target_age_parked(), target_age_parked(); }
static void take_both_and_end(void) { (void)take(BIG), give(take(BIG)), target_end_thread(); }

/* Empties the parked bins; from then on no heap is parked. */
static void nothing_is_left(void) {
  age_twice();
  if (!option_set(OPTION_decay_ms, -1)) explore_fail("memory goes back with time");
}
static void judge_handed_over(void) { nothing_is_left(), judge_end_live(); }
static void judge_handed_over_forked(void) { nothing_is_left(), judge_forked(); }

/* --- a signal handler that allocates --------------------------------------------------------- */

static void exit_interrupted(void) { two_blocks_left(), explore_handle(take_one); }
static void retire_interrupted(void) { taken_by(0, 1, BIG), given_back(0, 1), target_many_orphans(), explore_handle(take_one); }
/* While the library starts, there may be no memory for the handler. */
static void first_interrupted(void) { start(), explore_expect(), explore_handle(take_if_there_is); }
static void hits_interrupted(void) { bin_of_some(), explore_handle(take_and_give); }
static void refill_interrupted(void) { taken_by(0, BIG_BLOCKS, BIG), explore_handle(take_and_give); }
static void take_three(void) { (void)take(BIG), (void)take(BIG), (void)take(BIG); }
static void trim_interrupted(void) { two_blocks_left(), explore_handle(take_and_give); }
static void large_interrupted(void) { one_cached(), explore_handle(take_and_give_large); }
static void drain_interrupted(void) {
  taken_by(1, BIG_BLOCKS, BIG);
  given_back(2, BIG_BLOCKS);
  memory_meet_barriers();
  explore_handle(take_and_give);
}
static void adoption_interrupted(void) { an_orphan(), explore_handle(take_and_give); }
static void handover_interrupted(void) { handed_over(), explore_handle(take_and_give); }
static void sampled_interrupted(void) { sampled(), explore_handle(take_and_give); }

/* --- the table ------------------------------------------------------------------------------- */

enum { EVERY = EXPLORE_EVERY };
#define DOUBLE_FREE "hakmem: double free: free("

const scenario_t scenarios[] = {
    {"ended_unseen", ended_unseen, {take_and_give, give_0, take_one}, judge_end, NULL, 2, EVERY},
    {"two_adopters", an_orphan, {take_one, take_one}, judge_end, NULL, EVERY, EVERY},
    {"adopter_and_freer", an_orphan, {take_one, give_0}, judge_end, NULL, EVERY, EVERY},
    {"three_adopters", an_orphan, {take_one, take_one, give_0}, judge_end, NULL, 1, 2},
    {"forked_trim", two_blocks_left, {trim_and_take, fork_and_use, give_1}, judge_forked, NULL, 1, 2},
    {"forked_use", two_blocks_left, {run_out, fork_and_use, take_and_give}, judge_forked, NULL, EVERY, EVERY},
    {"forked_exit", two_blocks_left, {target_end_thread, fork_and_use, give_1}, judge_forked, NULL, 1, 2},
    {"forked_adoption", an_orphan, {take_and_give, fork_and_use, give_1}, judge_forked, NULL, 1, 2},
    {"forked_again", left_behind, {take_and_give, fork_and_use}, judge_forked, NULL, EVERY, EVERY},
    {"forked_holes", with_holes, {target_purge_holes, fork_and_use, give_1}, judge_forked, NULL, EVERY, EVERY},
    {"first_use", start, {take_and_give_first, take_and_give_first}, judge_first_use, NULL, 3, EVERY},
    {"first_use_by_three", start, {take_and_give_first, take_and_give_first, take_and_give_first}, judge_first_use, NULL, 1, 3},
    {"first_use_refused", start_refused, {take_if_there_is, take_if_there_is, take_if_there_is}, judge_end, NULL, EVERY, EVERY},
    {"live_map", some_tiny, {tiny_pop_and_push, give_0, give_1}, judge_end_live, NULL, EVERY, EVERY},
    {"two_words", two_words, {target_trim, give_0, give_1}, judge_end, NULL, EVERY, EVERY},
    {"freed_again", freed_before, {target_trim, give_0}, judge_end, NULL, EVERY, EVERY},
    {"holes", with_holes, {take_and_give, give_0, target_purge_holes}, judge_end, NULL, EVERY, EVERY},
    {"holes_meanwhile", with_holes, {take_other_class, target_purge_holes, give_0}, judge_end, NULL, 1, 3},
    {"holes_twice", with_holes, {target_purge_holes, target_purge_holes, give_0}, judge_end, NULL, EVERY, EVERY},
    {"spans", two_superslabs, {span_across, spans_within, span_given}, judge_spans, NULL, 3, EVERY},
    {"unit_given_below", one_unit_left, {unit_taken_meanwhile, lower_unit_given}, judge_one_unit_left, NULL, EVERY, EVERY},
    {"growth", one_superslab_full, {span_beyond, span_beyond_too, blocks_taken}, judge_grown, NULL, 1, 2},
    {"growth_and_purge", one_superslab_full, {span_beyond, span_beyond_too, purge_everything}, judge_grown, NULL, 1, 2},
    {"wrong_free_beyond", one_superslab_full, {span_beyond, free_beyond}, judge_nothing, "hakmem: ", EVERY, EVERY},
    {"wrong_free_beyond_zones", zones_full, {zones_extended, free_beyond_zones}, judge_nothing, "hakmem: ", EVERY, EVERY},
    {"purged_meanwhile", full_of_spans, {purge_everything, last_span_taken}, judge_last_span, NULL, EVERY, EVERY},
    {"purged_meanwhile_long", full_of_long_spans, {purge_everything, last_span_taken}, judge_last_span, NULL, EVERY, EVERY},
    {"looked_at", two_blocks_left, {target_end_thread, give_0, take_one, look}, judge_end, NULL, 0, 1},
    {"named_end", some_named, {target_named_end, named_free_0, named_free_large}, judge_named_ended, NULL, 2, 3},
    {"named_shared", some_named, {named_take_and_give, give_0, named_take_and_give}, judge_named, NULL, 2, EVERY},
    {"named_large", some_named, {named_large, named_free_large, give_1}, judge_named, NULL, 2, 3},
    {"named_forked", some_named, {named_large, fork_and_use_named, give_1}, judge_forked, NULL, EVERY, EVERY},
    {"named_forked_end", some_named, {target_named_end, fork_and_take, named_free_0}, judge_forked, NULL, 1, 2},
    {"handed_over", handed_over, {take_both_and_end, target_age_parked, give_0}, judge_handed_over, NULL, 2, 4},
    {"handed_over_at_the_end", about_to_end, {target_end_thread, age_twice, take_and_give}, judge_handed_over, NULL, 2, 4},
    {"handed_over_forked", about_to_end, {target_end_thread, fork_and_use, age_twice}, judge_handed_over_forked, NULL, EVERY, EVERY},
    {"cached_taken", one_cached, {take_large, target_trim_others, give_large_and_take}, judge_end_live, NULL, 2, 4},
    {"cached_released", one_cached, {take_and_give_large, target_trim_others, take_large}, judge_end_live, NULL, 2, 4},
    {"cached_aged", one_cached, {take_and_give_large, target_age_large_caches, target_age_large_caches}, judge_end_live, NULL, 2, 4},
    {"cached_forked", one_cached, {take_and_give_large, fork_and_use_large, target_age_large_caches}, judge_forked, NULL, 1, 2},
    {"drained", bin_of_some, {pop_and_push, target_trim_others}, judge_end_live, NULL, EVERY, EVERY},
    {"drained_late", bin_barred_late, {up_and_down, target_take_barred}, judge_end_live, NULL, EVERY, EVERY},
    {"drained_late_and_left", bin_barred_late, {up, target_take_barred}, judge_end_live, NULL, EVERY, EVERY},
    {"drained_two", bin_of_some, {pop_two, target_trim_others}, judge_end_live, NULL, EVERY, EVERY},
    {"drained_to_the_end", bin_of_some, {pop_all, target_trim_others}, judge_end_live, NULL, 2, 4},
    {"drained_and_freed", bin_of_some, {take_and_give, target_trim_others, push_two}, judge_end_live, NULL, EVERY, EVERY},
    {"drained_twice", bin_of_some, {pop_and_push, target_trim_others, target_trim_others}, judge_end_live, NULL, 1, 3},
    {"drained_again", bin_of_some, {use_other, target_trim_others, target_trim_others}, judge_end_live, NULL, EVERY, EVERY},
    {"drained_exit", bin_of_some, {end_with_blocks, target_trim_others, give_0}, judge_end_live, NULL, 1, 3},
    {"drained_forked", bin_of_some, {fork_and_use, target_trim_others}, judge_forked, NULL, EVERY, EVERY},
    {"drained_sampled", bin_of_some_sampled, {pop_and_push, target_trim_others}, judge_end_live, NULL, EVERY, EVERY},
    {"guard_slots_made", two_slots, {slot_used, slot_used, slot_used}, judge_nothing, NULL, 2, 3},
    {"guard_slots", one_slot_used, {slot_used, slot_given, slot_used}, judge_nothing, NULL, 2, 3},
    {"two_purges", some_idle, {purge_everything, purge_everything, span_taken}, judge_purged, NULL, 2, EVERY},
    {"purged_at_once", at_once, {low_given_and_swept, high_given_and_swept}, judge_swept, NULL, EVERY, EVERY},
    {"purged_at_once_beside", at_once, {high_given_and_swept, high_given_too}, judge_swept, NULL, EVERY, EVERY},
    {"interrupted_exit", exit_interrupted, {target_end_thread, take_one}, judge_end, NULL, 1, 2},
    {"interrupted_retire", retire_interrupted, {target_end_thread, take_one}, judge_end, NULL, 1, 2},
    {"interrupted_first", first_interrupted, {take_and_give_first, take_and_give_first}, judge_end, NULL, 0, 1},
    {"interrupted_hits", hits_interrupted, {pop_and_push, target_trim_others}, judge_end_live, NULL, 1, 2},
    {"interrupted_refill", refill_interrupted, {take_three, give_0}, judge_end_live, NULL, EVERY, EVERY},
    {"interrupted_trim", trim_interrupted, {target_trim, give_0}, judge_end_live, NULL, EVERY, EVERY},
    {"interrupted_large", large_interrupted, {take_and_give_large, target_trim_others}, judge_end_live, NULL, 1, 2},
    {"interrupted_drain", drain_interrupted, {target_trim_others, pop_and_push}, judge_end_live, NULL, 1, 2},
    {"interrupted_adoption", adoption_interrupted, {take_and_give, take_one, give_0}, judge_end, NULL, 0, 2},
    {"interrupted_handover", handover_interrupted, {take_both_and_end, target_age_parked}, judge_handed_over, NULL, EVERY, EVERY},
    {"interrupted_sampled", sampled_interrupted, {sampled_used_again, give_0}, judge_end_live, NULL, EVERY, EVERY},
    {"double_free_flushed", full_slab_of_first, {give_0_wrongly, give_0_wrongly}, found_in_bin, DOUBLE_FREE, EVERY, EVERY},
    {"double_free_used", full_slab_of_first, {give_take_and_give, give_0_wrongly}, found_in_bin, DOUBLE_FREE, EVERY, EVERY},
    {"double_free_kept", full_slab_of_first, {give_and_take, give_0_wrongly}, found_when_freed, DOUBLE_FREE, EVERY, EVERY},
    {"sampled_freed", sampled, {sampled_used_again, give_0, give_1}, judge_end_live, NULL, 2, EVERY},
    {"sampled_orphan", sampled_orphan, {sampled_used_again, give_0, give_1}, judge_end_live, NULL, 1, 3},
    {"sampled_forked", sampled, {take_and_give, fork_and_use, give_1}, judge_forked, NULL, 1, 2},
    {"sampled_forked_freed", sampled_second, {take_and_give, fork_and_use, give_1}, judge_forked, NULL, 1, 2},
    {"sampled_double", sampled_of_third, {give_0_wrongly, give_0_wrongly}, judge_end, DOUBLE_FREE, EVERY, EVERY},
    {"double_free", full_slab_of_third, {give_0_wrongly, give_0_wrongly, take_other_class}, judge_end, DOUBLE_FREE, EVERY, EVERY},
};
const size_t scenario_count = sizeof scenarios / sizeof scenarios[0];
