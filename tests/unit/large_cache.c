/* large_cache.c - the large blocks that a thread caches: which come back, how many may stay, and when they go. */
#include "slab/large_cache.h"

#include <pthread.h>
#include <sys/mman.h>

#include "fake_os.h"
#include "front/block.h"
#include "front/boot.h"
#include "front/census.h"
#include "front/drain.h"
#include "front/heaps.h"
#include "front/repair.h"
#include "front/resize.h"
#include "front/supply.h"
#include "front/thread.h"
#include "kit/options.h"
#include "kit/pressure.h"
#include "kit/request.h"
#include "space.h"
#include "space/ledger.h"
#include "space/dontfork.h"
#include "slab/large.h"
#include "unit.h"

enum { LARGE = 40000, HELD = 600 }; /* one unit each; with this many in use, a thread may keep as much as it ever can */
static char *held[HELD];

/* Takes a span, if the size is LARGE_REQUEST_MIN or more. */
static void *take(size_t size) { return alloc_any(size, 1, SPAN_GROWN); }

static void start_kept(void) {
  CHECK(option_set(OPTION_decay_ms, -1) && option_set(OPTION_region_mb, 1024));
  boot_finish();
  for (unsigned i = 0; i < HELD; i++) REQUIRE((held[i] = take(LARGE)) != NULL);
  block_free(take(100), 0, "free"); /* the thread has a heap from its first small block */
  REQUIRE(thread_heap != NULL);
}

static void give(void *block) { block_free(block, 0, "free"); }
static large_cache_t *mine(void) { return &thread_heap->owner.large_cache; }

static hak_stats_t check_sums(void) {
  hak_stats_t stats;
  census_take(&stats, NULL);
  CHECK_EQ(stats.live + stats.cached + stats.remote + stats.slab_free + stats.span_free, stats.committed);
  CHECK_EQ(stats.committed, (uint64_t)units_mapped() * HAK_UNIT);
  CHECK_EQ(stats.large_allocs - stats.large_frees, stats.large_blocks);
  CHECK_EQ(ledger_census().used_units, ledger_used_units());
  return stats;
}

TEST(a_block_of_as_many_units_comes_from_what_the_thread_keeps) {
  start_kept();
  char *one = held[0], *wide = take(3 * HAK_UNIT - 5000);
  uint64_t used = ledger_used_units(), live = check_sums().live;
  memset(one, 1, LARGE);
  give(one);
  give(wide);
  CHECK_EQ(large_cache_units(mine()), 4);
  CHECK_EQ(ledger_used_units(), used);
  CHECK(check_sums().live < live);
  CHECK(take(3 * HAK_UNIT) == wide);
  CHECK(unit_head((uint32_t)region_unit(wide))->bytes == 3 * HAK_UNIT);
  CHECK(take(HAK_UNIT) == one);
  CHECK_EQ(large_cache_units(mine()), 0);
  CHECK(mine()->takes == 2 && mine()->puts == 2);
  give(one);
  CHECK(take(2 * HAK_UNIT) != one);
  (void)check_sums();
}

TEST(what_it_gives_is_zero_and_aligned_where_that_was_asked_for) {
  start_kept();
  memset(held[0], 1, LARGE);
  char *one = held[0];
  give(one);
  CHECK(block_alloc_zeroed(LARGE) == one && unit_is_zero(one, LARGE));
  give(one);
  char *aligned = block_alloc_aligned((size_t)1 << 20, LARGE);
  CHECK((uintptr_t)aligned % ((size_t)1 << 20) == 0 && aligned != one);
}

TEST(a_thread_keeps_a_share_and_no_more_than_there_is_room_for) {
  void *spans[3][LARGE_CACHE_WAYS];
  start_kept();
  for (unsigned i = 0; i < 3 * LARGE_CACHE_WAYS; i++)
    spans[i / LARGE_CACHE_WAYS][i % LARGE_CACHE_WAYS] = take((i / LARGE_CACHE_WAYS + 1) * HAK_UNIT);
  for (unsigned i = 0; i < LARGE_CACHE_WAYS; i++) give(spans[0][i]);
  give(held[0]); /* the thread keeps enough spans of that length already */
  CHECK_EQ(large_cache_units(mine()), LARGE_CACHE_WAYS);
  for (unsigned i = 0; i < LARGE_CACHE_WAYS; i++) give(spans[1][i]);
  CHECK_EQ(large_cache_units(mine()), 3 * LARGE_CACHE_WAYS);
  for (unsigned i = 0; i < LARGE_CACHE_WAYS; i++) give(spans[2][i]);
  CHECK_EQ(large_cache_units(mine()), LARGE_CACHE_UNITS - (LARGE_CACHE_UNITS - 3 * LARGE_CACHE_WAYS) % 3);
  CHECK_EQ(check_sums().live, (uint64_t)(HELD - 1) * large_good_size(LARGE));
  CHECK(large_cache_flush(mine()) && !large_cache_flush(mine()));
  void *longest = take(LARGE_CACHE_LONGEST * HAK_UNIT), *longer = take((LARGE_CACHE_LONGEST + 1) * HAK_UNIT);
  give(longest), give(longer);
  CHECK_EQ(large_cache_units(mine()), LARGE_CACHE_LONGEST);
  for (unsigned i = 1; i < HELD; i++) give(held[i]);
  CHECK(large_cache_flush(mine()));
  char *two[] = {take(LARGE), take(LARGE), take(LARGE)};
  for (unsigned i = 0; i < 3; i++) give(two[i]); /* hardly anything is in use */
  CHECK_EQ(large_cache_units(mine()), 2);
}

TEST(what_it_gives_is_what_it_has_kept_last) {
  start_kept();
  for (unsigned i = 0; i < 3; i++) give(held[i]);
  CHECK(take(LARGE) == held[2]);
  give(held[3]);
  for (unsigned i = 4; i-- > 0;) CHECK(i == 2 || take(LARGE) == held[i]);
}

TEST(it_keeps_nothing_where_memory_is_short_or_goes_back_at_once) {
  start_kept();
  store_relaxed(&pressure.level, (uint32_t)PRESSURE_NEAR);
  give(held[0]);
  CHECK_EQ(large_cache_units(mine()), 0);
  store_relaxed(&pressure.level, (uint32_t)PRESSURE_NONE);
  CHECK(option_set(OPTION_decay_ms, 0));
  give(held[1]);
  CHECK_EQ(large_cache_units(mine()), 0);
}

TEST(who_only_takes_what_he_keeps_looks_at_what_is_due_now_and_then) {
  start_kept();
  give(held[0]);
  for (int offset = 0; offset < 8; offset++) { /* whichever call the loop starts with */
    heap_tick(thread_heap);
    uint64_t before = load_relaxed(&thread_heap->slow_paths), pairs = 0;
    uint64_t asked = load_relaxed(&request_done) + 1;
    store_relaxed(&request_wanted, asked);
    for (; load_relaxed(&request_done) != asked; pairs++) {
      REQUIRE(pairs < 4);
      give(take(LARGE));
    }
    CHECK_EQ(load_relaxed(&thread_heap->slow_paths), before + 2 * pairs);
    give(take(LARGE));
  }
  fake_os_pass_time(1001);
  uint64_t ticked = thread_heap->last_tick_ms;
  for (int i = 0; i < 32; i++) give(take(LARGE));
  CHECK_EQ(thread_heap->last_tick_ms, ticked + 1001);
}

/* This may be the thread's last call for a long time, and what it keeps now may be enough to start the keeper. */
TEST(who_keeps_more_than_before_looks_at_what_is_due) {
  start_kept();
  for (int offset = 0; offset < 8; offset++) { /* whichever call it is */
    heap_tick(thread_heap);
    uint64_t asked = load_relaxed(&request_done) + 1;
    store_relaxed(&request_wanted, asked);
    give(held[offset]);
    CHECK_EQ(load_relaxed(&request_done), asked);
  }
}

TEST(what_nobody_asks_for_goes_at_the_second_look) {
  start_kept();
  give(held[0]), give(held[1]);
  CHECK_EQ(large_cache_age(mine()), 0);
  give(take(LARGE)); /* one of the two has been used */
  CHECK_EQ(large_cache_age(mine()), 1);
  CHECK_EQ(large_cache_units(mine()), 1);
  CHECK_EQ(large_cache_age(mine()), 1);
  CHECK_EQ(large_cache_units(mine()), 0);
  (void)check_sums();
  give(held[2]);
  for (int i = 0; i < 3; i++) { /* by the thread's own slow paths, once a second */
    fake_os_pass_time(1001);
    for (int k = 0; k < 64; k++) heap_tick(thread_heap);
  }
  CHECK_EQ(large_cache_units(mine()), 0);
  give(held[3]);
  uint32_t aging = 0;
  CHECK(drain_idle(&aging) == 0 && aging == 1); /* by the keeper */
  CHECK(drain_idle(&aging) == 1 && large_cache_units(mine()) == 0);
}

TEST(fresh_memory_and_long_runs_come_after_what_is_kept) {
  start_kept();
  for (unsigned i = 0; i < 4; i++) give(held[i]);
  CHECK(ledger_idle_units() == 0 && large_cache_units(mine()) == 4);
  char *four = take(4 * HAK_UNIT); /* no other memory is idle */
  CHECK(four == held[0] && large_cache_units(mine()) == 0);
  give(held[5]), give(held[6]);
  char *grown = take(LARGE);
  CHECK(grown != NULL && take((LARGE_CACHE_LONGEST + 1) * HAK_UNIT) != NULL);
  CHECK_EQ(large_cache_units(mine()), 0);
}

TEST(a_block_grows_into_what_is_kept_behind_it) {
  start_kept();
  CHECK(held[1] == held[0] + HAK_UNIT);
  give(held[1]);
  CHECK(large_cache_units(mine()) == 1 && block_expand(held[0], 2 * HAK_UNIT));
  CHECK_EQ(large_cache_units(mine()), 0);
  (void)check_sums();
}

/* --- other threads ------------------------------------------------------------------------ */

static pthread_barrier_t kept, looked_at;

static void *keep(void *heap) {
  give(take(100));
  give(held[0]), give(held[1]);
  CHECK_EQ(large_cache_units(mine()), 2);
  *(heap_t **)heap = thread_heap;
  pthread_barrier_wait(&kept);
  pthread_barrier_wait(&looked_at);
  return NULL;
}

/* Starts a thread that keeps two blocks until end_keeper. */
static heap_t *start_keeper(pthread_t *thread) {
  static heap_t *heap;
  start_kept();
  pthread_barrier_init(&kept, NULL, 2);
  pthread_barrier_init(&looked_at, NULL, 2);
  if (pthread_create(thread, NULL, keep, &heap) != 0) abort();
  pthread_barrier_wait(&kept);
  return heap;
}

static void end_keeper(pthread_t thread) {
  pthread_barrier_wait(&looked_at);
  pthread_join(thread, NULL);
  (void)check_sums();
}

TEST(a_trim_by_another_thread_takes_what_one_keeps) {
  pthread_t thread;
  heap_t *heap = start_keeper(&thread);
  CHECK(drain_waiting() >= 2 * HAK_UNIT);
  (void)drain_bins(thread_heap);
  CHECK_EQ(large_cache_units(&heap->owner.large_cache), 0);
  uint32_t aging = 0;
  (void)drain_idle(&aging);
  CHECK(aging == 0 && drain_waiting() < HAK_UNIT);
  end_keeper(thread);
}

TEST(a_thread_that_ends_or_trims_keeps_nothing) {
  pthread_t thread;
  heap_t *heap = start_keeper(&thread);
  end_keeper(thread);
  CHECK_EQ(large_cache_units(&heap->owner.large_cache), 0);
  give(held[2]);
  CHECK(large_cache_units(mine()) == 1 && heap_may_trim(thread_heap));
  heap_trim(thread_heap);
  CHECK_EQ(large_cache_units(mine()), 0);
  (void)check_sums();
}

/* A thread that takes only large blocks has no heap at first. */
static void *free_large_alone(void *most) {
  size_t size = *(const size_t *)most;
  for (unsigned i = 0; i < 3; i++) give(take(size));
  CHECK(thread_heap == NULL);
  void *block = take(size);
  give(block);
  if (size > LARGE_CACHE_LONGEST * HAK_UNIT) {
    CHECK(thread_heap == NULL);
    return NULL;
  }
  if (thread_heap == NULL) return NULL;
  CHECK(large_cache_units(mine()) == 1 && take(size) == block);
  give(block);
  return thread_heap;
}

TEST(a_thread_that_frees_large_blocks_alone_gets_a_heap_to_keep_them_in) {
  size_t kept_size = LARGE, too_large = (LARGE_CACHE_LONGEST + 1) * HAK_UNIT;
  void *heap;
  pthread_t thread;
  start_kept();
  thread_watch_exits();
  REQUIRE(pthread_create(&thread, NULL, free_large_alone, &kept_size) == 0 && pthread_join(thread, &heap) == 0);
  REQUIRE(heap != NULL);
  CHECK(load_relaxed(&((heap_t *)heap)->state) == HEAP_ORPHAN && large_cache_units(&((heap_t *)heap)->owner.large_cache) == 0);
  REQUIRE(pthread_create(&thread, NULL, free_large_alone, &too_large) == 0 && pthread_join(thread, &heap) == 0);
  CHECK(heap == NULL);
  (void)check_sums();
}

static uint32_t superslab_of_growing(void) { return (uint32_t)region_unit(take(LARGE)) / HAK_UNITS_PER_SUPERSLAB; }

static void *grow_at_home(void *unused) {
  block_free(take(100), 0, "free");
  uint32_t homes = region_superslabs() - 1;
  CHECK(thread_heap->number != 0 && homes > thread_heap->number);
  CHECK_EQ(superslab_of_growing(), 1 + (thread_heap->number - 1) % homes);
  return unused;
}

TEST(what_grows_lies_apart_by_threads) {
  pthread_t thread;
  start_kept();
  void *wide = take(200 * HAK_UNIT);
  for (unsigned i = 0; i < HELD; i++) give(held[i]);
  give(wide);
  (void)large_cache_flush(mine());
  CHECK(thread_heap->number == 0 && superslab_of_growing() == 0);
  REQUIRE(pthread_create(&thread, NULL, grow_at_home, NULL) == 0 && pthread_join(thread, NULL) == 0);
}

/* If a block cannot grow in place because of other threads' blocks, the thread still keeps what it keeps. */
TEST(what_is_kept_stays_unless_it_lies_behind_a_block_that_grows) {
  start_kept();
  void *wide = take(16 * HAK_UNIT);
  char *one = take(LARGE), *wall = take(LARGE), *other = take(LARGE);
  REQUIRE(wall == one + HAK_UNIT && other == wall + HAK_UNIT);
  give(wide);
  give(other);
  CHECK(block_realloc(one, 2 * HAK_UNIT) != one);
  CHECK_EQ(large_cache_units(mine()), 2);
  CHECK(block_realloc(wall, 2 * HAK_UNIT) == wall);
}

/* A thread that stayed in the parent was about to take this span. */
TEST(a_fork_loses_no_span_that_was_on_its_way) {
  pthread_t thread;
  heap_t *heap = start_keeper(&thread);
  uint64_t used = ledger_used_units();
  CHECK_EQ(large_cache_take(&heap->owner.large_cache, 1), region_unit(held[1]));
  give(held[2]);
  thread_before_fork();
  store_relaxed(&heap->inside, 1);
  thread_after_fork();
  thread_enter(), thread_leave();
  CHECK(large_cache_units(&heap->owner.large_cache) == 0 && large_cache_units(mine()) == 0);
  CHECK_EQ(ledger_used_units(), used - 3);
  (void)check_sums();
  give(held[3]);
  CHECK(take(LARGE) == held[3]);
}

/* ---- a fork's child that lacks pages ---- */

/* As if the kernel had left these pages out. */
static void lose(char *start, size_t bytes) {
  REQUIRE(munmap(start, bytes) == 0);
  dontfork_after_fork();
  CHECK(dontfork_seen());
}

static size_t last_page(void) { return HAK_UNIT - os_page_size(); }

TEST(what_a_fork_left_out_is_mapped_when_it_is_handed_out) {
  start_kept();
  dontfork_after_fork();
  CHECK(!dontfork_seen());
  char *one = held[0], *two = take(3 * HAK_UNIT);
  memset(one, 1, HAK_UNIT);
  memset(two, 2, 3 * HAK_UNIT);
  lose(one + last_page(), os_page_size());
  lose(two + HAK_UNIT, HAK_UNIT);
  CHECK(!dontfork_is_mapped(one + last_page(), 1) && dontfork_is_mapped(one, last_page()) && !dontfork_is_mapped(one, last_page() + 1));
  give(one);
  CHECK(!dontfork_is_mapped(one, HAK_UNIT)); /* it is kept as it is */
  CHECK(take(LARGE) == one && dontfork_is_mapped(one, HAK_UNIT));
  CHECK(one[0] == 1 && one[last_page() - 1] == 1 && unit_is_zero(one + last_page(), os_page_size()));
  give(two);
  CHECK(large_cache_flush(mine()));
  char *again = take(3 * HAK_UNIT);
  REQUIRE(again == two && dontfork_is_mapped(two, 3 * HAK_UNIT));
  memset(two, 3, 3 * HAK_UNIT);
  give(one);
  lose(one, HAK_UNIT);
  CHECK((one = block_alloc_zeroed(LARGE)) != NULL && unit_is_zero(one, LARGE));
}

TEST(what_grows_in_place_is_mapped) {
  start_kept();
  char *one = take(2 * HAK_UNIT), *two = take(2 * HAK_UNIT);
  REQUIRE(two == one + 2 * HAK_UNIT);
  give(two);
  CHECK(large_cache_flush(mine()));
  lose(two, 2 * HAK_UNIT);
  CHECK(large_resize(unit_head((uint32_t)region_unit(one)), 4 * HAK_UNIT));
  memset(one, 1, 4 * HAK_UNIT);
}

TEST(what_cannot_be_mapped_is_not_handed_out) {
  start_kept();
  char *one = held[0];
  give(one);
  lose(one, HAK_UNIT);
  uint64_t used = ledger_used_units();
  fake_os_fail(1u << FAKE_MAP_AT, 1, UINT64_MAX);
  CHECK(take(LARGE) == NULL);
  CHECK_EQ(large_cache_units(mine()), 0);
  CHECK(unit_is_free((uint32_t)region_unit(one)) && ledger_used_units() < used);
  fake_os_fail_none();
  CHECK(take(LARGE) == one);
  memset(one, 1, LARGE);
  (void)check_sums();
}
