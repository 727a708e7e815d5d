/* handover.c - the blocks that a thread leaves in its bins when it ends go to the next thread, or back to their slabs. */
#include "front/handover.h"

#include <pthread.h>

#include "fake_os.h"
#include "front/block.h"
#include "front/drain.h"
#include "front/shared.h"
#include "front/supply.h"
#include "front/thread.h"
#include "heaps.h"
#include "kit/options.h"
#include "kit/pressure.h"

/* ---- what others find before a new heap is given to all ---- */

static void (*before_given)(heap_t *heap);

void __real_heaps_give(heap_t *heap, heap_state_t state);
void __wrap_heaps_give(heap_t *heap, heap_state_t state);
void __wrap_heaps_give(heap_t *heap, heap_state_t state) {
  void (*now)(heap_t *heap) = state == HEAP_SHARED ? before_given : NULL;
  if (now != NULL) before_given = NULL;
  if (now != NULL) now(heap);
  __real_heaps_give(heap, state);
}

/* ---- parked bins ---- */

enum { LEFT_SIZE = 1000, LEFT_FEW = 40 /* in one slab */ };

static void *_Atomic block_on_top; /* the block that a thread has freed last */

static void take_and_free(size_t size, int count) {
  void *blocks[LEFT_FEW];
  for (int i = 0; i < count; i++) REQUIRE((blocks[i] = block_alloc(size)) != NULL);
  for (int i = 0; i < count; i++) block_free(blocks[i], 0, "free");
  store_relaxed(&block_on_top, blocks[count - 1]);
}

static void *leave_few(void *unused) {
  take_and_free(LEFT_SIZE, LEFT_FEW);
  return unused;
}

static void *find_them(void *unused) {
  void *block = block_alloc(LEFT_SIZE);
  CHECK(block == load_relaxed(&block_on_top));
  block_free(block, 0, "free");
  return unused;
}

/* Lets time pass and ages the parked heaps; returns how many stay parked. */
static uint32_t left_after(uint64_t ms) {
  fake_os_pass_time(ms);
  return handover_age(os_now_ms());
}

static void start_handover(void) {
  start_heap();
  CHECK(option_set(OPTION_decay_ms, 1000) && option_set(OPTION_keeper, 0));
  (void)left_after(1000);
}

TEST(the_next_thread_finds_what_the_last_one_had_in_its_bins) {
  start_handover();
  run_thread(leave_few, NULL);
  CHECK(check_census().cached >= LEFT_FEW / 2 * LEFT_SIZE && check_census().live == 0);
  check_heaps();
  uint64_t slabs = check_census().slabs;
  for (int i = 0; i < 3; i++) run_thread(find_them, NULL);
  CHECK(count_heaps(false) == 1 && check_census().slabs == slabs);
  CHECK(thread_attach() != NULL); /* the heap now belongs to this thread */
  CHECK_EQ(left_after(1000) + left_after(1000), 0);
  CHECK(check_census().cached > 0);
}

TEST(what_nobody_takes_up_in_time_goes_back) {
  start_handover();
  run_thread(leave_few, NULL);
  CHECK_EQ(left_after(999), 1); /* too soon after the last check */
  CHECK_EQ(left_after(1), 1);
  CHECK(left_after(999) == 1 && check_census().cached > 0);
  CHECK_EQ(left_after(1), 0);
  hak_stats_t stats = check_census();
  CHECK(stats.cached == 0 && stats.slabs == 0 && stats.live == 0);
  CHECK_EQ(drain_waiting(), 0);
  run_thread(leave_few, NULL); /* each heap has a time of its own */
  CHECK(left_after(1000) == 1 && check_census().cached > 0);
}

/* The last look's time was another clock's. */
TEST(it_goes_back_too_when_time_does) {
  start_handover();
  fake_os_pass_time(1000000);
  (void)left_after(0);
  run_thread(leave_few, NULL);
  CHECK_EQ(left_after((uint64_t)-500), 1); /* a little earlier: another thread's time */
  CHECK_EQ(left_after((uint64_t)-500000), 1);
  CHECK_EQ(left_after(1000), 0);
}

TEST(a_threads_slow_paths_see_to_what_others_have_left) {
  start_handover();
  CHECK(thread_attach() != NULL);
  run_thread(leave_few, NULL);
  uint64_t left = check_census().cached;
  for (int i = 0; i < 1000; i++) {
    fake_os_pass_time(10);
    block_free(block_alloc(HAK_SMALL_MAX + 1), 0, "free");
  }
  CHECK(left > 0 && check_census().cached == 0);
}

static uint32_t heaps_with_blocks(void) {
  uint32_t count = 0;
  for (heap_t *heap = heap_first(); heap != NULL; heap = load_relaxed(&heap->next)) {
    count += load_relaxed(&heap->has_bin[class_of(LEFT_SIZE)]) && bin_count(heap_bin(heap, class_of(LEFT_SIZE))) > 0;
  }
  return count;
}

static pthread_barrier_t many_leave;

static void *leave_together(void *unused) {
  take_and_free(LEFT_SIZE, 1);
  pthread_barrier_wait(&many_leave);
  return unused;
}

static void leave_many_at_once(unsigned count) {
  pthread_t threads[16];
  pthread_barrier_init(&many_leave, NULL, count);
  for (unsigned i = 0; i < count; i++) REQUIRE(pthread_create(&threads[i], NULL, leave_together, NULL) == 0);
  for (unsigned i = 0; i < count; i++) pthread_join(threads[i], NULL);
  pthread_barrier_destroy(&many_leave);
}

TEST(few_threads_leave_what_they_have_and_none_leaves_much) {
  start_handover();
  leave_many_at_once(12);
  CHECK_EQ(heaps_with_blocks(), 8);
  heap_trim_others();
  CHECK_EQ(heaps_with_blocks(), 0);
  CHECK_EQ(left_after(0), 0);
  leave_many_at_once(12); /* their places are free again */
  CHECK_EQ(heaps_with_blocks(), 8);
}

static void *attach_and_stay(void *barrier) {
  CHECK(thread_attach() != NULL);
  take_and_free(LEFT_SIZE, 1);
  pthread_barrier_wait(barrier);
  pthread_barrier_wait(barrier);
  return NULL;
}

TEST(what_a_thread_has_left_is_not_shared_by_others) {
  enum { THREADS = 16 };
  pthread_t leaver, threads[THREADS];
  pthread_barrier_t leaves, end;
  start_handover();
  pthread_barrier_init(&leaves, NULL, 2);
  pthread_barrier_init(&end, NULL, THREADS + 1);
  REQUIRE(pthread_create(&leaver, NULL, attach_and_stay, &leaves) == 0);
  pthread_barrier_wait(&leaves);
  const heap_t *left = heap_first();
  for (int i = 0; i < THREADS; i++) REQUIRE(pthread_create(&threads[i], NULL, attach_and_stay, &end) == 0);
  pthread_barrier_wait(&end);
  pthread_barrier_wait(&leaves);
  REQUIRE(pthread_join(leaver, NULL) == 0);
  void *block = block_alloc(LEFT_SIZE);
  CHECK(block != NULL && thread_heap == NULL && handover_parked_bytes() > 0);
  CHECK_EQ(load_relaxed(&left->state), HEAP_ORPHAN); /* another heap may be one: if two threads make the same shared heap, one stays */
  check_census();
  block_free(block, 0, "free");
  pthread_barrier_wait(&end);
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  pthread_barrier_destroy(&leaves);
  pthread_barrier_destroy(&end);
}

/* Leaves blocks in a bin whose blocks lie in several slabs, and some of another class. */
static void *leave_two_classes(void *unused) {
  for (int i = 0; i < 4; i++) take_and_free(16384, LEFT_FEW);
  CHECK(bin_count(heap_bin_for(thread_heap, 16384)) > 0);
  take_and_free(LEFT_SIZE, LEFT_FEW);
  return unused;
}

static heap_t *making;
/* From each shared heap; where there is none yet, one is made. */
static void take_shared(heap_t *heap) {
  static uint8_t taken[512];
  static void *blocks[sizeof taken];
  making = heap;
  for (unsigned i = 0; i < sizeof taken; i++) {
    void *entry = heap_take_shared(class_of(LEFT_SIZE), &taken[i], false);
    REQUIRE(entry != NULL);
    blocks[i] = entry_block(entry);
    CHECK(slab_owner(unit_head((uint32_t)region_unit(blocks[i]))) != &heap->owner);
  }
  for (unsigned i = 0; i < sizeof taken; i++) {
    region_set_live(blocks[i]);
    block_free(blocks[i], 0, "free");
  }
}

static void *only_attach(void *barrier) {
  CHECK(thread_attach() != NULL);
  pthread_barrier_wait(barrier);
  pthread_barrier_wait(barrier);
  return NULL;
}

/* In a fork's child it would be an orphan, since no thread has it. */
TEST(a_heap_is_shared_before_others_find_it) {
  enum { THREADS = 16 };
  pthread_t threads[THREADS];
  pthread_barrier_t end;
  CHECK(option_set(OPTION_insight, 0)); /* what marks a sampled block as live is its record */
  start_handover();
  pthread_barrier_init(&end, NULL, THREADS + 1);
  for (int i = 0; i < THREADS; i++) REQUIRE(pthread_create(&threads[i], NULL, only_attach, &end) == 0);
  pthread_barrier_wait(&end);
  before_given = take_shared;
  void *block = block_alloc(LEFT_SIZE);
  REQUIRE(block != NULL && thread_heap == NULL && making != NULL);
  CHECK(slab_owner(unit_head((uint32_t)region_unit(block))) != &making->owner);
  CHECK(load_relaxed(&making->state) == HEAP_ORPHAN && making->owner.orphan);
  check_census();
  block_free(block, 0, "free");
  pthread_barrier_wait(&end);
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  pthread_barrier_destroy(&end);
}

TEST(blocks_that_keep_several_slabs_are_not_left) {
  start_handover();
  run_thread(leave_two_classes, NULL);
  heap_t *heap = heap_first();
  CHECK_EQ(bin_count(heap_bin_for(heap, 16384)), 0);
  CHECK(bin_count(heap_bin_for(heap, LEFT_SIZE)) > 0 && check_census().slabs == 1);
  CHECK_EQ(handover_parked_bytes(), class_info[class_of(LEFT_SIZE)].blocks * class_info[class_of(LEFT_SIZE)].size);
  CHECK_EQ(drain_waiting(), 0);
  handover_release();
  CHECK(check_census().slabs == 0 && handover_parked_bytes() == 0);
  run_thread(leave_few, NULL);
  CHECK(handover_parked_bytes() > 0);
  CHECK(thread_attach() == heap && handover_parked_bytes() == 0 && drain_waiting() > 0);
}

static void *leave_much(void *bytes) {
  for (unsigned c = 0; c < CLASS_ZERO; c++) {
    uint32_t blocks = class_info[c].blocks < LEFT_FEW ? class_info[c].blocks : LEFT_FEW;
    take_and_free(class_info[c].size, (int)blocks);
  }
  for (unsigned c = 0; c < CLASS_ZERO; c++) {
    CHECK(load_relaxed(&thread_heap->owner.slab_count[c]) <= 1);
    if (thread_heap->has_bin[c]) *(size_t *)bytes += bin_count(heap_bin(thread_heap, c)) * class_info[c].size;
  }
  return NULL;
}

TEST(a_thread_with_much_in_its_bins_leaves_nothing) {
  size_t bytes = 0;
  start_handover();
  run_thread(leave_much, &bytes);
  CHECK(bytes > (size_t)512 << 10);
  CHECK(check_census().cached == 0 && left_after(0) == 0);
}

TEST(nothing_is_left_where_nothing_goes_back_with_time) {
  start_handover();
  for (int64_t decay = -1; decay <= 0; decay++) {
    CHECK(option_set(OPTION_decay_ms, decay));
    run_thread(leave_few, NULL);
    CHECK(check_census().cached == 0 && left_after(0) == 0);
  }
  CHECK(option_set(OPTION_decay_ms, 1000));
  store_relaxed(&pressure.level, (uint32_t)PRESSURE_NEAR);
  run_thread(leave_few, NULL);
  CHECK(check_census().cached == 0 && left_after(0) == 0);
}

/* Immediately, however recently the other heaps were checked. */
TEST(what_threads_have_left_is_found_when_memory_runs_out) {
  start_handover();
  run_thread(leave_few, NULL);
  fake_os_fail(FAKE_TAKING, 1, UINT64_MAX);
  for (int i = 0; i < 3; i++) {
    CHECK(handover_parked_bytes() > 0);
    void *all = block_alloc(units_mapped() * HAK_UNIT);
    CHECK(all != NULL && handover_parked_bytes() == 0);
    block_free(all, 0, "free");
    run_thread(leave_few, NULL);
  }
}
