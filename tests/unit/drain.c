/* drain.c - blocks in the bins of other threads are taken while those threads run. */
#include "front/drain.h"

#include "fake_os.h"
#include "front/block.h"
#include "front/supply.h"
#include "heaps.h"

/* ---- blocks in the bins of other threads ---- */

enum { DRAINED = 60, DRAINED_SIZE = 1000 };
static void *drained[DRAINED];
static unsigned barriers;

static void bin_fill(void) {
  start_heap();
  for (int i = 0; i < DRAINED; i++) REQUIRE((drained[i] = block_alloc(DRAINED_SIZE)) != NULL);
  for (int i = 0; i < DRAINED; i++) block_free(drained[i], 0, "free");
  REQUIRE(bin_count(heap_bin_for(thread_heap, DRAINED_SIZE)) > 8);
}

/* The thread goes on as if nothing had happened. */
static void bin_use(void) {
  for (int i = 0; i < DRAINED; i++) {
    REQUIRE((drained[i] = block_alloc(DRAINED_SIZE)) != NULL);
    for (int k = 0; k < i; k++) CHECK(drained[k] != drained[i]);
  }
  CHECK_EQ(check_census().live, usable_of(drained, DRAINED));
  for (int i = 0; i < DRAINED; i++) block_free(drained[i], 0, "free");
  check_heaps();
  CHECK_EQ(check_census().live, 0);
}

static void barrier_counted(void) { barriers++; }
static void *drain_others(void *taken) {
  *(uint64_t *)taken = drain_bins(thread_heap);
  return NULL;
}

TEST(what_lies_in_the_bin_of_another_thread_can_be_taken) {
  bin_fill();
  fake_os_set_barrier(barrier_counted);
  bin_t *bin = heap_bin_for(thread_heap, DRAINED_SIZE);
  uint64_t in_bin = bin_count(bin), taken = 0, free_before = (uint64_t)load_relaxed(&thread_heap->owner.free_bytes);
  run_thread(drain_others, &taken);
  CHECK(barriers == 3 && taken == in_bin - 1 && bin_count(bin) == 1);
  CHECK_EQ((uint64_t)load_relaxed(&thread_heap->owner.free_bytes) - free_before, taken * bin->shared.block_size);
  CHECK(check_census().cached == bin->shared.block_size && check_census().live == 0);
  run_thread(drain_others, &taken);
  CHECK_EQ(taken, 0);
  bin_use();
  run_thread(drain_others, &taken); /* the bins are whole again */
  CHECK(taken > 8);
  bin_use();
}

static void *collect_what_is_due(void *unused) {
  (void)heap_collect(thread_heap, false);
  return unused;
}
static void *collect_all(void *unused) {
  (void)heap_collect(thread_heap, true);
  return unused;
}

TEST(a_thread_that_gives_back_what_it_has_leaves_others_theirs) {
  bin_fill();
  fake_os_set_barrier(barrier_counted);
  uint64_t in_bin = bin_count(heap_bin_for(thread_heap, DRAINED_SIZE));
  run_thread(collect_what_is_due, NULL);
  CHECK_EQ(bin_count(heap_bin_for(thread_heap, DRAINED_SIZE)), in_bin);
  run_thread(collect_all, NULL);
  CHECK_EQ(bin_count(heap_bin_for(thread_heap, DRAINED_SIZE)), 1);
}

TEST(a_process_of_one_thread_asks_for_no_barrier) {
  bin_fill();
  fake_os_set_barrier(barrier_counted);
  CHECK(drain_bins(thread_heap) == 0 && barriers == 0);
  (void)heap_collect(thread_heap, true);
  CHECK_EQ(barriers, 0);
}

TEST(where_there_is_no_barrier_bins_stay_as_they_are) {
  bin_fill();
  uint64_t in_bin = bin_count(heap_bin_for(thread_heap, DRAINED_SIZE)), taken = 1;
  run_thread(drain_others, &taken);
  CHECK(taken == 0 && bin_count(heap_bin_for(thread_heap, DRAINED_SIZE)) == in_bin);
  CHECK(!heap_bin_for(thread_heap, DRAINED_SIZE)->barred);
  bin_use();
}

/* What the thread does while it is drained: at the first, second or third barrier it takes and frees this many blocks. */
static unsigned at_barrier, moves_down, moves_up;

static void move_at_barrier(void) {
  if (++barriers != at_barrier) return;
  for (unsigned i = 0; i < moves_down; i++) REQUIRE((drained[i] = block_alloc(DRAINED_SIZE)) != NULL);
  for (unsigned i = 0; i < moves_up; i++) block_free(drained[i], 0, "free");
}

TEST(a_thread_that_moves_while_it_is_drained_loses_nothing) {
  bin_fill();
  fake_os_set_barrier(move_at_barrier);
  for (at_barrier = 1; at_barrier <= 3; at_barrier++) {
    for (moves_down = 0; moves_down <= 8; moves_down++) {
      for (moves_up = 0; moves_up <= moves_down; moves_up++) {
        barriers = 0;
        (void)drain_bins(NULL); /* its own bins, as another thread would drain them: it is on no slow path */
        for (unsigned i = moves_up; i < moves_down; i++) block_free(drained[i], 0, "free");
        CHECK_EQ(check_census().live, 0);
        bin_use();
      }
    }
  }
}

/* If many threads have waited together, a few bins stay for the next threads and the others are emptied. */
