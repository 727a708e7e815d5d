/* huge.c - which superslabs may be huge pages, whether they pay, and when they stop being huge. */
#include "space/huge.h"

#include "fake_os.h"
#include "kit/options.h"
#include "space.h"
#include "space/move.h"
#include "space/purge.h"
#include "space/span.h"
#include "space/split.h"
#include "unit.h"

enum { WORD = HAK_UNITS_PER_SUPERSLAB, DENSE = 64, PROBES = 16, HEAP_UNITS = 16 * WORD };

static void start_huge(int64_t huge) {
  CHECK(option_set(OPTION_decay_ms, -1));
  CHECK(option_set(OPTION_idle_percent, 1000000));
  CHECK(option_set(OPTION_huge, huge));
  CHECK(option_set(OPTION_move, 0));
  huge_start();
  REQUIRE(region_init(SMALL_REGION));
}

static uint32_t take(uint32_t units, uint64_t align, span_use_t use) {
  bool zero;
  uint32_t start = span_alloc(units, align, use, &zero);
  CHECK(start != SPAN_NONE);
  if (start == SPAN_NONE) exit(1);
  return start;
}

static uint32_t take_large(uint32_t superslabs) { return take(superslabs * WORD, WORD, SPAN_PLAIN); }
static bool is_huge(uint32_t unit) { return load_relaxed(&region.superslabs[unit / WORD].huge) != 0; }

/* What the count must be. */
static uint32_t huge_now(void) {
  uint32_t n = 0;
  for (uint32_t s = 0; s < region_superslabs(); s++) n += load_relaxed(&region.superslabs[s].huge);
  return n;
}

static uint32_t rows_now(void) {
  uint32_t rows = 0;
  for (uint32_t s = 0; s < region_superslabs(); s++) rows += is_huge(s * WORD) && (s == 0 || !is_huge((s - 1) * WORD));
  return rows;
}

/* Frees large blocks that were found to have this many resident pages, this many times. */
static void learn(size_t resident, int times) {
  fake_os_set_resident(resident);
  for (int i = 0; i < times; i++) {
    uint32_t start = take_large(1);
    huge_learn(start, WORD);
    span_free(start, WORD);
    CHECK(purge_all() > 0); /* superslabs become huge only if they are clean */
  }
}

/* ---- large blocks ---- */

TEST(large_blocks_are_huge_once_two_were_dense) {
  start_huge(1);
  (void)take_large(20);
  CHECK_EQ(huge_now(), 0);
  learn(DENSE, 1);
  (void)take_large(20);
  CHECK_EQ(huge_now(), 0);
  learn(DENSE, 1);
  uint32_t start = take_large(PROBES);
  CHECK_EQ(huge_count(), PROBES - 1); /* one is left out to learn from */
  CHECK_EQ(huge_now(), PROBES - 1);
  CHECK_EQ(fake_os_made(true), (PROBES - 1) * HAK_SUPERSLAB);
  CHECK(!is_huge(start) && is_huge(start + WORD));
  (void)take_large(PROBES);
  CHECK_EQ(huge_count(), 2 * (PROBES - 1));
}

TEST(blocks_that_are_not_dense_are_not_huge) {
  start_huge(1);
  learn(DENSE, 2);
  size_t looked_at = fake_os_looked_at(); /* 64 pages, or as many as half a superslab has */
  learn(looked_at * 15 / 16 - 1, 1); /* one such block is enough, and it is the one to learn from */
  (void)take_large(PROBES);
  CHECK_EQ(huge_now(), 0);
  learn(looked_at * 15 / 16, 2);
  (void)take_large(PROBES);
  CHECK(huge_now() > 0);
}

static void check_sample(size_t page, size_t pages) {
  fake_os_set_page_size(page);
  start_huge(1);
  learn(pages, 2);
  CHECK_EQ(fake_os_looked_at(), pages);
  (void)take_large(PROBES);
  CHECK(huge_now() > 0);
}

TEST(what_is_looked_at_lies_in_the_superslab_with_large_pages) { check_sample((size_t)64 << 10, 16); }
TEST(what_is_looked_at_lies_in_the_superslab_with_middle_pages) { check_sample((size_t)16 << 10, 64); }

TEST(nothing_is_learnt_from_what_is_huge_moved_or_small) {
  start_huge(1);
  learn(DENSE, 2);
  uint32_t start = take_large(2), moved = take_large(1);
  REQUIRE(is_huge(start + WORD));
  CHECK(option_set(OPTION_move, 1));
  uint64_t counted = os_counts.other;
  fake_os_set_resident(0);
  huge_learn(start + WORD, WORD);
  huge_learn(start, WORD - 1); /* no whole superslab */
  huge_learn(start + 1, WORD);
  store_relaxed(&region.superslabs[moved / WORD].huge, 0);
  store_relaxed(&region.superslabs[moved / WORD].moved, 1);
  huge_learn(moved, WORD);
  CHECK_EQ(os_counts.other, counted); /* residency was not queried */
  huge_learn(start, 2 * WORD);
  CHECK_EQ(os_counts.other, counted + 1);
}

TEST(zeroed_blocks_and_parts_of_a_superslab_are_not_huge) {
  start_huge(1);
  learn(DENSE, 2);
  (void)take_large(1); /* the probe */
  (void)take(4 * WORD, WORD, SPAN_ZEROED);
  (void)take(WORD - 1, WORD, SPAN_PLAIN);
  CHECK_EQ(huge_now(), 0);
}

/* ---- slabs ---- */

TEST(slabs_are_huge_once_the_heap_is_large_and_in_use) {
  start_huge(1);
  for (uint32_t i = 0; i < HEAP_UNITS; i++) (void)take(1, 1, SPAN_SLAB);
  CHECK_EQ(huge_now(), 0);
  uint32_t first = take(1, 1, SPAN_SLAB);
  CHECK(is_huge(first));
  for (uint32_t i = 1; i < WORD; i++) (void)take(1, 1, SPAN_SLAB);
  CHECK_EQ(huge_count(), 1);
  CHECK_EQ(fake_os_made(true), HAK_SUPERSLAB);
}

TEST(slabs_of_a_heap_that_is_partly_idle_are_not_huge) {
  start_huge(1);
  uint32_t start = take(HEAP_UNITS + 5 * WORD, 1, SPAN_SLAB), idle = HEAP_UNITS / 16 + 8;
  REQUIRE(start == 0);
  for (uint32_t i = 0; i < idle; i++) span_free(2 * i, 1);
  (void)take(WORD / 2, WORD, SPAN_SLAB);
  CHECK_EQ(huge_now(), 0);
  CHECK(purge_all() > 0);
  (void)take(2 * WORD, WORD, SPAN_SLAB);
  CHECK(huge_now() > 0);
}

TEST(a_superslab_that_is_partly_mapped_is_not_huge) {
  fake_os_set_address_limit((uint64_t)1 << 40);
  start_huge(1);
  uint32_t fill = take(HEAP_UNITS, 1, SPAN_SLAB);
  CHECK_EQ(fill, 0);
  uint32_t frontier = load_relaxed(&region.units);
  if (frontier > HEAP_UNITS) (void)take(frontier - HEAP_UNITS, 1, SPAN_ZEROED);
  uint64_t before = huge_now();
  uint32_t beyond = (frontier + WORD - 1) / WORD * WORD;
  REQUIRE(os_map_at(region_address(beyond + 9), os_page_size()) == OS_MAPPED);
  (void)take(1, WORD, SPAN_SLAB);
  for (uint32_t i = 0; i < 4; i++) (void)take(1, 1, SPAN_SLAB);
  CHECK(!is_huge(beyond));
  CHECK(huge_now() >= before);
}

/* ---- whether any may be huge ---- */

static void check_system(int64_t option, const char *text, bool expected) {
  fake_os_set_file("/sys/kernel/mm/transparent_hugepage/enabled", text);
  start_huge(option);
  learn(DENSE, 2);
  (void)take_large(PROBES);
  CHECK_EQ(huge_now() != 0, expected);
}

TEST(the_option_0_makes_nothing_huge) { check_system(0, "[always] madvise never\n", false); }
TEST(the_option_1_asks_nobody) { check_system(1, "always madvise [never]\n", true); }
TEST(the_option_2_follows_a_system_that_says_always) { check_system(2, "[always] madvise never\n", true); }
TEST(the_option_2_does_not_ask_unseen_where_the_system_says_madvise) { check_system(2, "always [madvise] never\n", false); }
TEST(the_option_2_follows_a_system_that_says_never) { check_system(2, "always madvise [never]\n", false); }
TEST(the_option_2_follows_a_system_that_says_nothing) { check_system(2, "", false); }

TEST(the_system_is_asked_at_start_and_never_again) {
  fake_os_set_file("/sys/kernel/mm/transparent_hugepage/enabled", "[always] madvise never\n");
  start_huge(2);
  uint64_t read = fake_os_calls(FAKE_ONLY(FAKE_READ));
  learn(DENSE, 2);
  (void)take_large(PROBES);
  CHECK(huge_now() != 0);
  CHECK_EQ(fake_os_calls(FAKE_ONLY(FAKE_READ)), read);
}

/* ---- the price, where the system gives huge pages on request ---- */

enum { UNIT_NS = 10000, SMALL_NS = UNIT_NS * WORD, CREDIT = 4, PAUSE = 16 };

/* Starts a heap whose next superslab measures the price of small pages. */
static void start_tried(uint64_t huge_ns) {
  fake_os_set_file("/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
  fake_os_set_prices(UNIT_NS, huge_ns);
  start_huge(2);
  (void)take(HEAP_UNITS, WORD, SPAN_SLAB);
  CHECK_EQ(huge_figures().small_price, 0);
}

/* Lets slabs begin this many superslabs; returns how many became huge. */
static uint32_t begin_slabs(uint32_t superslabs) {
  uint32_t huge = 0;
  for (uint32_t i = 0; i < superslabs; i++) {
    uint32_t start = take(1, WORD, SPAN_SLAB);
    huge += is_huge(start);
    if (load_relaxed(&region.superslabs[start / WORD].free) != 0) (void)take(WORD - 1, 1, SPAN_SLAB);
  }
  return huge;
}

static void check_prices(uint64_t trials, uint64_t losses) {
  huge_figures_t figures = huge_figures();
  CHECK_EQ(figures.trials, trials);
  CHECK_EQ(figures.losses, losses);
}

TEST(huge_pages_that_pay_are_asked_for_but_for_one_to_compare) {
  start_tried(SMALL_NS / 3);
  CHECK_EQ(begin_slabs(1), 0);
  CHECK_EQ(huge_figures().small_price, SMALL_NS);
  CHECK_EQ(begin_slabs(PROBES - 1), PROBES - 1);
  CHECK_EQ(huge_figures().huge_price, SMALL_NS / 3);
  CHECK_EQ(fake_os_made(true), (PROBES - 1) * HAK_SUPERSLAB);
  fake_os_set_prices(2 * UNIT_NS, SMALL_NS / 3);
  CHECK_EQ(begin_slabs(PROBES), PROBES - 1);
  CHECK_EQ(huge_figures().small_price, SMALL_NS * 5 / 4); /* a mean */
  check_prices(2 * (PROBES - 1), 0);
}

TEST(after_a_dear_one_none_is_asked_for_for_a_while) {
  uint64_t loss_ms = 10;
  start_tried(SMALL_NS + loss_ms * 1000000);
  CHECK_EQ(begin_slabs(3), 1); /* the probe stays small, and one superslab is huge */
  check_prices(1, 1);
  fake_os_pass_time(PAUSE * loss_ms - 1);
  CHECK_EQ(begin_slabs(1), 0);
  fake_os_pass_time(1);
  CHECK_EQ(begin_slabs(2), 1);
  check_prices(2, 2);
}

TEST(what_was_saved_pays_for_some_dear_ones) {
  start_tried(SMALL_NS / 8);
  CHECK_EQ(begin_slabs(1 + 2 * CREDIT), 2 * CREDIT); /* at most the price of four superslabs is saved up */
  fake_os_set_prices(UNIT_NS, 2 * SMALL_NS);
  CHECK_EQ(begin_slabs(CREDIT), CREDIT);
  check_prices(3 * CREDIT, 0);
  CHECK_EQ(begin_slabs(3), 1);
  check_prices(3 * CREDIT + 1, 1);
}

TEST(a_huge_page_that_did_not_come_is_a_loss) {
  start_tried(SMALL_NS / 16 - 1);
  REQUIRE(grow(4 * WORD)); /* new memory starts with small pages */
  uint64_t small = fake_os_made(false);
  CHECK_EQ(begin_slabs(3), 0);
  check_prices(2, 2);
  CHECK_EQ(fake_os_made(true), 2 * HAK_SUPERSLAB);
  CHECK_EQ(fake_os_made(false), small + 2 * HAK_SUPERSLAB);
  CHECK_EQ(huge_now(), 0);
}

TEST(a_huge_page_that_was_refused_is_a_loss) {
  start_tried(SMALL_NS / 3);
  CHECK_EQ(begin_slabs(1), 0);
  fake_os_fail(FAKE_ONLY(FAKE_POPULATE), 1, UINT64_MAX);
  CHECK_EQ(begin_slabs(2), 0);
  fake_os_fail_none();
  check_prices(1, 1);
}

TEST(without_a_clock_or_a_price_none_is_tried) {
  fake_os_set_file("/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
  fake_os_set_resident(DENSE);
  start_huge(2);
  (void)take(HEAP_UNITS, WORD, SPAN_SLAB);
  CHECK_EQ(begin_slabs(3), 0);
  fake_os_set_prices(UNIT_NS, SMALL_NS / 3);
  fake_os_fail(FAKE_ONLY(FAKE_POPULATE), 1, UINT64_MAX);
  CHECK_EQ(begin_slabs(PROBES), 0);
  fake_os_fail_none();
  check_prices(0, 0);
  CHECK_EQ(fake_os_made(true), 0);
}

TEST(large_blocks_are_neither_looked_at_nor_tried) {
  start_tried(SMALL_NS / 3);
  learn(DENSE, 2);
  (void)take_large(PROBES);
  check_prices(0, 0);
  CHECK_EQ(fake_os_looked_at(), 0); /* a filter that hakmem does not see may forbid the call */
  CHECK_EQ(huge_now(), 0);
}

/* ---- the end ---- */

/* As numpy asks for huge pages for each large array, and never takes it back. */
TEST(a_purge_takes_back_what_the_program_has_advised) {
  start_huge(0);
  uint32_t start = take_large(PROBES);
  CHECK_EQ(huge_count(), 0);
  uint64_t small = fake_os_made(false);
  CHECK(purge_span(start + 1, 2 * WORD)); /* one whole superslab */
  CHECK_EQ(fake_os_made(false) - small, HAK_SUPERSLAB);
  CHECK(purge_span(start + 1, WORD)); /* none */
  CHECK_EQ(fake_os_made(false) - small, HAK_SUPERSLAB);
}

TEST(a_purge_ends_the_huge_superslabs_that_it_meets) {
  start_huge(1);
  learn(DENSE, 2);
  uint32_t start = take_large(PROBES);
  REQUIRE(huge_count() == PROBES - 1);
  uint64_t small = fake_os_made(false);
  CHECK(purge_span(start + 3 * WORD + 4, 2 * WORD)); /* part of three superslabs */
  for (uint32_t s = 1; s < PROBES; s++) CHECK_EQ(is_huge(start + s * WORD), s < 3 || s > 5);
  CHECK_EQ(huge_count(), PROBES - 4);
  CHECK_EQ(fake_os_made(false) - small, 3 * HAK_SUPERSLAB);
  CHECK(purge_span(start, 1)); /* the span has no huge superslab, and no whole one */
  CHECK_EQ(fake_os_made(false) - small, 3 * HAK_SUPERSLAB);
  span_free(start, PROBES * WORD);
  CHECK(purge_all() > 0);
  CHECK_EQ(huge_count(), 0);
  CHECK_EQ(huge_now(), 0);
}

/* Each row adds two to the mappings of the process, whose number is limited. */
TEST(rows_of_huge_superslabs_are_a_quarter_of_all_mappings_at_most) {
  enum { ROWS = 25, MOST = 3 * ROWS };
  fake_os_set_map_limit(ROWS * 8);
  start_huge(1);
  learn(DENSE, 2);
  uint32_t first = take(MOST * WORD, WORD, SPAN_ZEROED) / WORD;
  for (uint32_t s = first; s < first + MOST; s += 2) huge_large_begin(s);
  CHECK_EQ(huge_count(), ROWS);
  CHECK_EQ(rows_now(), ROWS);
  CHECK(!split_take(SPLIT_MOVE));
  while (!is_huge(first * WORD) || !is_huge((first + 2) * WORD)) first++;
  do huge_large_begin(first + 1); /* between two huge ones; it stays small if it is the one to compare with */
  while (!is_huge((first + 1) * WORD));
  CHECK_EQ(rows_now(), ROWS - 1);
  CHECK(split_take(SPLIT_MOVE)); /* two rows have become one */
  huge_end(first + 1, first + 2);
  split_give(SPLIT_MOVE);
  CHECK(!split_take(SPLIT_MOVE)); /* and are two again */
  huge_end(first, first + 1);
  CHECK(split_take(SPLIT_MOVE));
  CHECK(!split_take(SPLIT_MOVE));
  huge_large_begin(first + 3), huge_large_begin(first + 3); /* three in a row */
  CHECK_EQ(rows_now(), ROWS - 2);
  split_give(SPLIT_MOVE), split_add(SPLIT_HUGE), split_add(SPLIT_HUGE); /* two too many, as if two threads had counted neighbours */
  huge_large_begin(first), huge_large_begin(first);
  CHECK_EQ(rows_now(), ROWS - 1);
  huge_end(first, first + MOST);
  CHECK_EQ(huge_count(), 0);
  split_give(SPLIT_HUGE); /* and one too few */
  CHECK(split_take(SPLIT_MOVE));
}

TEST(the_count_follows_pages_that_move) {
  start_huge(1);
  CHECK(option_set(OPTION_move, 1));
  learn(DENSE, 2);
  uint32_t from = take_large(4), to = take(4 * WORD, WORD, SPAN_ZEROED);
  REQUIRE(is_huge(from + WORD) && !is_huge(to));
  uint32_t before = huge_now();
  CHECK_EQ(huge_count(), before);
  CHECK_EQ(move_pages(from, to, 4 * WORD), 4 * WORD);
  CHECK(is_huge(to + WORD) && !is_huge(from + WORD));
  CHECK_EQ(huge_count(), huge_now());
  size_t used = rows_now() + 4; /* those that were moved count too */
  for (size_t left = os_map_limit() / 8 - used; left > 0; left--) CHECK(split_take(SPLIT_MOVE));
  CHECK(!split_take(SPLIT_MOVE));
  CHECK(purge_span(from, 4 * WORD) && purge_span(to, 4 * WORD));
  CHECK_EQ(huge_now(), 0);
  CHECK_EQ(huge_count(), 0);
}
