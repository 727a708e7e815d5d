/* resize.c - large blocks that keep their pages: what is noted of them, and that neither a lock nor an inspection is needed. */
#include "front/resize.h"

#include "front/alloc.h"
#include "front/inspect.h"
#include "front/named.h"
#include "front/supply.h"
#include "heaps.h"
#include "slab/large.h"
#include "slab/sample.h"

static unsigned inspections;

block_info_t __real_block_inspect(const void *p);
block_info_t __wrap_block_inspect(const void *p);
block_info_t __wrap_block_inspect(const void *p) {
  inspections++;
  return __real_block_inspect(p);
}

enum { SIZE = 1000000 };
static size_t rounded(size_t size) { return bits_round_up(size, os_page_size()); }
static uint32_t slow_paths(void) { return load_relaxed(&thread_heap->slow_paths); }

/* Calls realloc for sizes that need the same pages. */
static void resize_within(char *block, size_t most) {
  for (size_t less = os_page_size(); less-- > 0;) {
    CHECK(block_realloc(block, most - less) == block);
    CHECK_EQ(block_usable_size(block), most);
  }
}

TEST(a_large_block_that_keeps_its_pages_takes_no_slow_path) {
  start_heap();
  REQUIRE(thread_attach() != NULL);
  for (size_t most = rounded(LARGE_REQUEST_MIN + HAK_SMALL_MAX); most < 5 * SIZE; most = rounded(most * 2)) {
    char *block = block_alloc(most);
    REQUIRE(block != NULL);
    memset(block, 5, most);
    inspections = 0;
    uint32_t before = slow_paths();
    resize_within(block, most);
    CHECK(block_expand(block, most - 1));
    CHECK_EQ(slow_paths(), before);
    CHECK_EQ(inspections, 1); /* hak_expand's */
    CHECK(block[0] == 5 && block[most - 1] == 5);
    block_free(block, 0, "free");
  }
  check_heaps();
}

/* One byte more, or a page less. */
TEST(a_large_block_that_needs_other_pages_gets_them) {
  start_heap();
  size_t most = rounded(SIZE), page = os_page_size();
  char *block = block_alloc(most);
  REQUIRE(block != NULL);
  resize_within(block, most);
  CHECK((block = block_realloc(block, most + 1)) != NULL);
  CHECK_EQ(block_usable_size(block), most + page);
  CHECK_EQ(check_census().live, most + page);
  CHECK(block_realloc(block, most - page) == block);
  CHECK_EQ(block_usable_size(block), most - page);
  CHECK_EQ(check_census().live, most - page);
  CHECK((block = block_realloc(block, 100)) != NULL); /* less than a large block has */
  CHECK_EQ(block_usable_size(block), class_usable(class_of(100)));
  block_free(block, 0, "free");
  CHECK_EQ(check_census().live, 0);
}

/* From the size on at which blocks that are zeroed are large, their usable size is that of a class. */
TEST(a_zeroed_block_that_is_large_keeps_its_class) {
  start_heap();
  size_t size = LARGE_REQUEST_MIN + 1000;
  char *block = block_alloc_zeroed(size);
  REQUIRE(block != NULL && kind_of(block) == UNIT_LARGE);
  size_t usable = block_usable_size(block);
  CHECK(usable >= size && usable <= HAK_SMALL_MAX);
  inspections = 0;
  CHECK(block_realloc(block, usable) == block && block_usable_size(block) == usable);
  CHECK_EQ(inspections, 0);
  block_free(block, 0, "free");
}

TEST(what_was_requested_last_is_noted_of_a_sampled_block) {
  start_heap();
  size_t most = rounded(SIZE), page = os_page_size();
  char *block = block_alloc(most);
  REQUIRE(block != NULL);
  const sample_t *sample = sample_of((uint32_t)region_unit(block));
  REQUIRE(sample_state(sample) == SAMPLE_LIVE);
  sample_t before = *sample;
  CHECK(block_realloc(block, most - page + 1) == block);
  CHECK_EQ(load_relaxed(&sample->asked), most - page + 1);
  CHECK(load_relaxed(&sample->state) == load_relaxed(&before.state) && load_relaxed(&sample->site) == load_relaxed(&before.site));
  CHECK(block_realloc(block, most) == block);
  CHECK_EQ(load_relaxed(&sample->asked), most);
}

/* Grows blocks in turn, each by what `step` returns for its size; returns how often one was moved once it was large. */
enum { IN_TURN = 16, TURN_MOST = 4 << 20 };
static unsigned grow_in_turn(size_t (*step)(size_t size)) {
  static char *blocks[IN_TURN];
  unsigned moves = 0;
  for (int i = 0; i < IN_TURN; i++) CHECK((blocks[i] = block_alloc(2 * HAK_SMALL_MAX)) != NULL);
  for (size_t size = 2 * HAK_SMALL_MAX; size < TURN_MOST;) {
    size += step(size);
    for (int i = 0; i < IN_TURN; i++) {
      char *before = blocks[i];
      CHECK((blocks[i] = block_realloc(before, size)) != NULL);
      moves += blocks[i] != before;
    }
  }
  for (int i = 0; i < IN_TURN; i++) block_free(blocks[i], 0, "free");
  return moves;
}

static size_t step_fixed(size_t size) {
  (void)size;
  return 16384;
}
static size_t step_of_a_list(size_t size) { return size / 8 + 56; } /* as CPython's */

TEST(a_further_step_that_is_small_for_the_size_is_one_of_many) {
  enum { OLD = 1 << 20, SMALL = OLD / 8 };
  unit_t first = {.use = SPAN_PLAIN};
  CHECK(large_use_to_grow(NULL, OLD, OLD + SMALL) == SPAN_GROWN && large_use_to_grow(&first, OLD, OLD + SMALL) == SPAN_GROWN);
  first.use = SPAN_GROWN;
  CHECK(large_use_to_grow(&first, OLD, OLD + SMALL) == SPAN_GROWING && large_use_to_grow(&first, OLD, OLD + 2 * SMALL) == SPAN_GROWN);
  first.use = SPAN_GROWING;
  CHECK(large_use_to_grow(&first, OLD, OLD + SMALL) == SPAN_GROWING);
}

/* Five doublings; the first step may move a block too. */
TEST(blocks_that_grow_in_turn_are_copied_once_a_doubling) {
  start_heap();
  CHECK(grow_in_turn(step_fixed) <= 6 * IN_TURN);
  CHECK(grow_in_turn(step_of_a_list) <= 6 * IN_TURN);
  check_heaps();
}

TEST(a_named_heaps_large_block_that_keeps_its_pages_stays_counted_as_it_is) {
  start_heap();
  heap_t *heap = named_new("cache");
  REQUIRE(heap != NULL);
  size_t most = rounded(SIZE);
  char *block = alloc_from(heap, most, 1, SPAN_PLAIN, "test");
  REQUIRE(block != NULL);
  named_set_limit(heap, most, "test"); /* leaves no room for one page more, nor for a copy */
  resize_within(block, most);
  CHECK(block_realloc(block, most + 1) == NULL);
  named_figures_t figures = named_count(heap, "test");
  CHECK(figures.live == most && figures.large_blocks == 1 && figures.blocks == 1);
  block_free(block, 0, "free");
  CHECK_EQ(named_count(heap, "test").live, 0);
  named_end(heap, "test");
}

/* Whatever is not the start of a live large block. */
TEST(only_a_live_large_block_has_its_size) {
  start_heap();
  char *block = block_alloc(SIZE), *small = block_alloc(100), *none = block_alloc(0);
  REQUIRE(block != NULL && small != NULL && none != NULL);
  CHECK_EQ(block_usable_size(block + HAK_UNIT), 0);
  CHECK_EQ(block_usable_size(block + HAK_GRANULE), 0);
  CHECK_EQ(block_usable_size(none), 0);
  CHECK_EQ(block_usable_size(&block), 0);
  CHECK_EQ(block_usable_size((void *)UINTPTR_MAX), 0);
  CHECK_EQ(block_usable_size(region_address(load_relaxed(&region.units))), 0);
  CHECK_EQ(block_usable_size(small), class_usable(class_of(100)));
  block_free(block, 0, "free"); /* is cached, and its unit's record stays */
  CHECK(!HAK_CHECKS || block_usable_size(block) == 0);
  if (thread_heap != NULL) heap_trim(thread_heap);
  CHECK_EQ(block_usable_size(block), 0);
}
