/* keeper.c - the keeper over the real lower layers: when it starts, what it gives back, when it ends.
 *
 * The fake runs a new thread immediately and to its end, and sleeping moves its clock.
 * os_thread_sleep_ms is wrapped: what the program does during the sleep is done there. */
#include "front/keeper.h"

#include <pthread.h>

#include "fake_os.h"
#include "front/block.h"
#include "front/boot.h"
#include "front/drain.h"
#include "front/handover.h"
#include "front/resize.h"
#include "front/thread.h"
#include "kit/options.h"
#include "kit/pressure.h"
#include "kit/request.h"
#include "space/ledger.h"
#include "slab/hole.h"
#include "slab/remote.h"
#include "space/purge.h"
#include "space/span.h"
#include "unit.h"

enum { DECAY_MS = 1000, PERIOD_MS = DECAY_MS / 2, SMALL_BLOCKS = 32768, SMALL_SIZE = 512, SMALL_KEPT = 64 };

static uint64_t slept_ms;
static uint32_t naps;
static uint32_t holds; /* made during the sleep */
static void (*meanwhile)(void);

bool __real_os_thread_sleep_ms(os_thread_t *thread, uint64_t milliseconds);
bool __wrap_os_thread_sleep_ms(os_thread_t *thread, uint64_t milliseconds);
bool __wrap_os_thread_sleep_ms(os_thread_t *thread, uint64_t milliseconds) {
  bool goes_on = __real_os_thread_sleep_ms(thread, milliseconds);
  slept_ms += milliseconds;
  naps++;
  uint32_t holds_before = holds;
  if (meanwhile != NULL) meanwhile();
  return goes_on && holds == holds_before; /* whoever holds a real keeper waits for its end */
}

static void start(void) {
  CHECK(option_set(OPTION_decay_ms, DECAY_MS) && option_set(OPTION_region_mb, 1024));
  boot_finish();
}

/* Leaves the bytes idle: the free is the last slow path. */
static void leave_idle(size_t bytes) {
  char *block = block_alloc(bytes);
  REQUIRE(block != NULL);
  memset(block, 1, bytes);
  block_free(block, 0, "free");
}

static uint64_t idle_bytes(void) { return ledger_census().dirty_free_units << HAK_UNIT_SHIFT; }

/* NULL ends the list. */
static void *free_all(void *blocks) {
  for (void **block = blocks; *block != NULL; block++) block_free(*block, 0, "free");
  return NULL;
}

static void free_by_another(void **blocks) {
  pthread_t freer;
  REQUIRE(pthread_create(&freer, NULL, free_all, blocks) == 0 && pthread_join(freer, NULL) == 0);
}

/* Another thread frees blocks of a thread that takes no slow path, while that thread's lock is held. */
TEST(remote_frees_to_an_idle_thread_are_collected) {
  static void *blocks[SMALL_BLOCKS + 1];
  start();
  for (int i = 0; i < SMALL_BLOCKS; i++) REQUIRE((blocks[i] = block_alloc(SMALL_SIZE)) != NULL);
  slab_owner_t *owner = &thread_heap->owner;
  lock_acquire(&owner->lock);
  free_by_another(blocks);
  lock_release(&owner->lock);
  CHECK(ledger_census().free_units < SMALL_BLOCKS * SMALL_SIZE >> HAK_UNIT_SHIFT);
  uint32_t before = keeper_starts(); /* these could collect nothing */
  leave_idle((size_t)50 << 20);
  CHECK_EQ(keeper_starts(), before + 1);
  CHECK(load_relaxed(&owner->pending_classes) == 0 && load_relaxed(&owner->slab_count[class_of(SMALL_SIZE)]) <= 1);
  CHECK_EQ(idle_bytes(), 0);
}

/* Too few slabs wait for others to help, and nothing else is idle: of 17 slabs, the sixteenth starts the keeper. */
TEST(what_waits_for_an_idle_thread_is_collected_though_nothing_else_is_idle) {
  enum { LAGGING = 17 * 8 };
  static void *blocks[LAGGING + 1];
  start();
  for (int i = 0; i < LAGGING; i++) REQUIRE((blocks[i] = block_alloc(32768)) != NULL);
  slab_owner_t *owner = &thread_heap->owner;
  uint32_t slabs = load_relaxed(&owner->slab_count[class_of(32768)]);
  free_by_another(blocks);
  CHECK_EQ(keeper_starts(), 1);
  CHECK(slabs > 16 && load_relaxed(&owner->slab_count[class_of(32768)]) <= slabs - 16 + 1);
  CHECK_EQ(idle_bytes(), 0);
}

/* ---- idle spans ---- */

TEST(idle_memory_is_given_back_without_a_further_call) {
  start();
  leave_idle((size_t)50 << 20);
  CHECK_EQ(keeper_starts(), 1);
  CHECK_EQ(idle_bytes(), 0);
  CHECK(purge_bytes() >= (uint64_t)50 << 20);
}

/* ---- bins ---- */

static void barrier(void) {}

/* Changes the number of blocks in the bin each time before the keeper looks. */
static void *one;
static void take_or_free_one(void) {
  if (one == NULL) {
    one = block_alloc(SMALL_SIZE);
    return;
  }
  block_free(one, 0, "free");
  one = NULL;
}

TEST(what_a_resting_thread_has_in_its_bins_is_taken) {
  static void *blocks[SMALL_BLOCKS];
  start();
  fake_os_set_barrier(barrier);
  for (int i = 0; i < 64; i++) REQUIRE((blocks[i] = block_alloc(SMALL_SIZE)) != NULL);
  for (int i = 0; i < 64; i++) block_free(blocks[i], 0, "free");
  bin_t *bin = heap_bin_for(thread_heap, SMALL_SIZE);
  uint32_t before = bin_count(bin);
  meanwhile = take_or_free_one;
  leave_idle((size_t)50 << 20);
  CHECK(keeper_starts() == 1 && before > 4 && bin_count(bin) + 1 >= before);
  meanwhile = NULL;
  leave_idle((size_t)50 << 20);
  CHECK(keeper_starts() == 2 && bin_count(bin) == 1);
}

static void *use_and_end(void *heap) {
  void *block = block_alloc(SMALL_SIZE);
  CHECK(block != NULL);
  block_free(block, 0, "free");
  *(heap_t **)heap = thread_heap;
  return NULL;
}

static heap_t *left_heap;
static void leave_at_the_third_nap(void) {
  pthread_t other;
  if (naps != 3) return;
  REQUIRE(pthread_create(&other, NULL, use_and_end, &left_heap) == 0 && pthread_join(other, NULL) == 0);
  REQUIRE(left_heap != NULL && left_heap != thread_heap);
  CHECK(bin_count(heap_bin_for(left_heap, SMALL_SIZE)) > 0);
}

/* The keeper runs for another reason, which is done by then, and stays for this. */
TEST(what_a_thread_has_left_as_it_ended_goes_back) {
  start();
  REQUIRE(thread_attach() != NULL);
  meanwhile = leave_at_the_third_nap;
  leave_idle((size_t)50 << 20);
  REQUIRE(left_heap != NULL);
  CHECK(keeper_starts() == 1 && bin_count(heap_bin_for(left_heap, SMALL_SIZE)) == 0);
  CHECK(!owner_has_slabs(&left_heap->owner) && idle_bytes() == 0);
}

static pthread_barrier_t all_have;

static void *use_classes_and_end(void *unused) {
  for (unsigned c = 0; c < CLASS_ZERO; c++) {
    if (class_info[c].units > 1) continue;
    void *block = block_alloc(class_info[c].size);
    CHECK(block != NULL);
    block_free(block, 0, "free");
  }
  pthread_barrier_wait(&all_have);
  return unused;
}

/* Free blocks in the slabs that parked bins keep count as much as free spans. */
TEST(what_threads_have_left_starts_it) {
  enum { THREADS = 8 };
  pthread_t others[THREADS];
  start();
  REQUIRE(pthread_barrier_init(&all_have, NULL, THREADS) == 0);
  for (int i = 0; i < THREADS; i++) REQUIRE(pthread_create(&others[i], NULL, use_classes_and_end, NULL) == 0);
  for (int i = 0; i < THREADS; i++) REQUIRE(pthread_join(others[i], NULL) == 0);
  CHECK(keeper_starts() > 0 && handover_parked_bytes() < (uint64_t)4 << 20);
}

/* ---- requests while it runs ---- */

static uint64_t done_after_ms;
static void ask_at_the_first_nap(void) {
  if (naps == 1) store_relaxed(&request_wanted, 1);
  if (load_relaxed(&request_done) != 1 || done_after_ms != 0) return;
  done_after_ms = slept_ms;
  CHECK_EQ(handover_parked_bytes(), 0);
}

TEST(it_does_what_is_asked_for_though_nothing_is_due_for_long) {
  start();
  CHECK(option_set(OPTION_decay_ms, 600000));
  pthread_t other;
  heap_t *heap = NULL;
  REQUIRE(thread_attach() != NULL);
  REQUIRE(pthread_create(&other, NULL, use_and_end, &heap) == 0 && pthread_join(other, NULL) == 0);
  CHECK(handover_parked_bytes() > 0);
  meanwhile = ask_at_the_first_nap;
  leave_idle((size_t)50 << 20);
  CHECK(keeper_starts() == 1 && idle_bytes() == 0);
  CHECK(done_after_ms > 0 && done_after_ms <= 3000);
}

static void shorten_at_the_first_nap(void) {
  if (naps == 1) CHECK(option_set(OPTION_decay_ms, 100));
  if (idle_bytes() == 0 && done_after_ms == 0) done_after_ms = slept_ms;
}

TEST(it_goes_by_what_the_options_are_now) {
  start();
  CHECK(option_set(OPTION_decay_ms, 600000));
  meanwhile = shorten_at_the_first_nap;
  leave_idle((size_t)50 << 20);
  CHECK(keeper_starts() == 1 && idle_bytes() == 0);
  CHECK(done_after_ms > 0 && done_after_ms <= 3000);
}

static void not_for_ever(void) {
  if (naps <= 100) return;
  check_fail(__FILE__, __LINE__, "it does not end");
  exit(1);
}

/* Fills the bins, which grow with use, up to some MiB for each thread. */
static void fill_bins(void) {
  enum { EACH = 512, ROUNDS = 20 };
  void *blocks[EACH];
  for (size_t size = 64; size <= (size_t)32 << 10; size += size / 8) {
    for (int round = 0; round < ROUNDS; round++) {
      for (int i = 0; i < EACH; i++) REQUIRE((blocks[i] = block_alloc(size)) != NULL);
      for (int i = 0; i < EACH; i++) block_free(blocks[i], 0, "free");
    }
  }
  drain_note(thread_heap);
}

static pthread_barrier_t turn;

static void *fill_and_wait(void *unused) {
  fill_bins();
  pthread_barrier_wait(&turn);
  pthread_barrier_wait(&turn);
  return unused;
}

/* As if the kernel had no barrier for all threads: what is in bins stays there. */
TEST(it_ends_though_nothing_can_be_taken_from_bins) {
  pthread_t other;
  start();
  CHECK(option_set(OPTION_keeper, 0));
  fill_bins();
  REQUIRE(pthread_barrier_init(&turn, NULL, 2) == 0 && pthread_create(&other, NULL, fill_and_wait, NULL) == 0);
  pthread_barrier_wait(&turn);
  CHECK(option_set(OPTION_keeper, 1) && drain_waiting() >= (uint64_t)4 << 20);
  meanwhile = not_for_ever;
  leave_idle((size_t)50 << 20);
  uint32_t starts = keeper_starts();
  CHECK(starts > 0 && drain_waiting() == 0);
  leave_idle((size_t)1 << 20);
  CHECK_EQ(keeper_starts(), starts);
  pthread_barrier_wait(&turn);
  REQUIRE(pthread_join(other, NULL) == 0);
}

TEST(it_sleeps_and_ends_when_nothing_is_left) {
  start();
  leave_idle((size_t)50 << 20);
  CHECK(slept_ms >= DECAY_MS && slept_ms <= 3 * DECAY_MS);
  CHECK_EQ(slept_ms, naps * PERIOD_MS);
  for (int i = 0; i < 100; i++) leave_idle((size_t)1 << 20);
  CHECK_EQ(keeper_starts(), 1);
}

TEST(it_starts_anew_as_often_as_there_is_something) {
  start();
  for (uint32_t i = 1; i <= 5; i++) {
    leave_idle((size_t)50 << 20);
    CHECK_EQ(keeper_starts(), i);
    CHECK_EQ(idle_bytes(), 0);
  }
}

TEST(little_memory_does_not_start_it) {
  start();
  leave_idle(((size_t)4 << 20) - HAK_UNIT);
  CHECK_EQ(keeper_starts(), 0);
  CHECK(idle_bytes() > 0 && slept_ms == 0);
  leave_idle((size_t)4 << 20);
  CHECK_EQ(keeper_starts(), 1);
}

TEST(options_keep_it_from_starting) {
  CHECK(option_set(OPTION_keeper, 0));
  start();
  leave_idle((size_t)50 << 20);
  CHECK_EQ(keeper_starts(), 0);
  CHECK(option_set(OPTION_keeper, 1) && option_set(OPTION_decay_ms, -1));
  leave_idle((size_t)50 << 20);
  CHECK_EQ(keeper_starts(), 0);
  CHECK(idle_bytes() >= (uint64_t)50 << 20);
  CHECK(option_set(OPTION_decay_ms, DECAY_MS));
  leave_idle((size_t)50 << 20);
  CHECK_EQ(keeper_starts(), 1);
}

TEST(a_short_decay_does_not_make_it_busy) {
  start();
  CHECK(option_set(OPTION_decay_ms, 2));
  leave_idle((size_t)50 << 20);
  CHECK_EQ(keeper_starts(), 1);
  CHECK_EQ(slept_ms, naps * 10);
}

/* Otherwise each slow path would pay for the attempt. */
TEST(a_thread_that_cannot_be_had_is_asked_for_once_a_second) {
  start();
  fake_os_fail(FAKE_ONLY(FAKE_THREAD), 1, 2);
  for (uint64_t asked = 1; asked <= 2; asked++) {
    leave_idle((size_t)50 << 20);
    for (int i = 0; i < 3; i++) leave_idle((size_t)1 << 20);
    CHECK_EQ(fake_os_calls(FAKE_ONLY(FAKE_THREAD)), asked);
    CHECK(keeper_starts() == 0 && idle_bytes() >= (uint64_t)50 << 20);
    fake_os_pass_time(1000);
  }
  leave_idle((size_t)1 << 20);
  CHECK(keeper_starts() == 1 && idle_bytes() <= (uint64_t)1 << 20);
}

/* As if the program had locked its memory. */
TEST(it_ends_though_nothing_can_be_given_back) {
  start();
  fake_os_fail(FAKE_ONLY(FAKE_PURGE), 1, UINT64_MAX);
  leave_idle((size_t)50 << 20);
  CHECK(keeper_starts() == 1 && idle_bytes() >= (uint64_t)50 << 20);
  CHECK(slept_ms <= 3 * DECAY_MS);
}

/* ---- the program meanwhile ---- */

/* Uses a little of the idle memory, every other time, for a while. */
static void work_a_little(void) {
  static void *block;
  if (naps > 20) return;
  if (block != NULL) block_free(block, 0, "free");
  block = block == NULL ? block_alloc((size_t)10 << 20) : NULL;
}

TEST(it_leaves_a_program_alone_that_comes_by_itself) {
  start();
  meanwhile = work_a_little;
  leave_idle((size_t)50 << 20);
  CHECK_EQ(keeper_starts(), 1); /* no second keeper beside the first */
  CHECK(naps > 20);
}

static uint64_t purges_asleep;
static void steal_the_step(void) {
  if (naps > 1 && naps <= 5) CHECK_EQ(fake_os_calls(FAKE_ONLY(FAKE_PURGE)), purges_asleep);
  if (naps > 4) return;
  /* Makes the step that is due, as malloc_trim would, one part for each tick of the clock. */
  for (int part = 0; part < 40; part++) {
    leave_idle(HAK_SMALL_MAX + 1);
    (void)purge_due();
    fake_os_pass_time(1);
  }
  purges_asleep = fake_os_calls(FAKE_ONLY(FAKE_PURGE));
}

TEST(a_step_that_the_program_made_is_not_made_again) {
  start();
  meanwhile = steal_the_step;
  leave_idle((size_t)50 << 20);
  CHECK_EQ(keeper_starts(), 1);
  CHECK(naps > 4 && purges_asleep > 0);
  CHECK_EQ(idle_bytes(), 0);
}

static uint64_t purges_of_calls;

/* The program calls the allocator at a time when a step is due. */
static void make_calls(void) {
  uint64_t before = fake_os_calls(FAKE_ONLY(FAKE_PURGE));
  if (naps < 4) leave_idle((size_t)1 << 20);
  purges_of_calls += fake_os_calls(FAKE_ONLY(FAKE_PURGE)) - before;
}

TEST(the_programs_calls_leave_the_steps_to_it) {
  start();
  meanwhile = make_calls;
  leave_idle((size_t)50 << 20);
  CHECK_EQ(keeper_starts(), 1);
  CHECK_EQ(purges_of_calls, 0);
  CHECK_EQ(idle_bytes(), 0);
}

static void keep_for_good(void) { CHECK(option_set(OPTION_decay_ms, -1)); }

TEST(it_ends_when_memory_is_to_be_kept) {
  start();
  meanwhile = keep_for_good;
  leave_idle((size_t)50 << 20);
  CHECK_EQ(keeper_starts(), 1);
  CHECK(naps <= 2);
}

/* ---- what the process changes about itself ---- */

/* The fake runs the keeper inside a slow path; a thread that changes the process is outside of them. */
static bool hold_outside(void) {
  uint32_t inside = thread_inside;
  thread_inside = 0;
  bool held = keeper_hold();
  thread_inside = inside;
  holds++;
  return held;
}

static bool was_held;
static uint32_t naps_held;
static void hold(void) {
  if (was_held) return;
  was_held = hold_outside();
  naps_held = naps;
}

TEST(it_ends_at_once_when_it_is_held) {
  start();
  meanwhile = hold;
  leave_idle((size_t)50 << 20);
  CHECK(was_held && naps == naps_held);
  CHECK(idle_bytes() >= (uint64_t)50 << 20);
  meanwhile = NULL;
  leave_idle((size_t)50 << 20);
  CHECK_EQ(keeper_starts(), 1);
  keeper_release();
  leave_idle((size_t)50 << 20);
  CHECK_EQ(keeper_starts(), 2);
  CHECK_EQ(idle_bytes(), 0);
}

/* As a signal handler does that interrupts something that the keeper may wait for. */
TEST(inside_of_a_slow_path_nobody_waits_for_it) {
  start();
  thread_inside = 1;
  CHECK(!keeper_hold());
  thread_inside = 0;
  leave_idle((size_t)50 << 20);
  CHECK_EQ(keeper_starts(), 1);
}

TEST(holds_add_up) {
  start();
  CHECK(keeper_hold() && keeper_hold());
  for (uint32_t i = 0; i < 2; i++) {
    leave_idle((size_t)50 << 20);
    CHECK_EQ(keeper_starts(), 0);
    keeper_release();
  }
  leave_idle((size_t)50 << 20);
  CHECK_EQ(keeper_starts(), 1);
}

static void hold_again(void) {
  if (hold_outside()) keeper_release();
}

TEST(a_program_that_ends_it_again_and_again_gets_one_a_second) {
  start();
  meanwhile = hold_again;
  for (int i = 0; i < 200 && keeper_starts() < 17; i++) {
    leave_idle((size_t)50 << 20);
  }
  CHECK_EQ(keeper_starts(), 17);
  for (int i = 0; i < 10; i++) leave_idle((size_t)50 << 20);
  CHECK_EQ(keeper_starts(), 17);
  fake_os_pass_time(1000);
  for (int i = 0; i < 10; i++) leave_idle((size_t)50 << 20);
  CHECK(keeper_starts() >= 18 && keeper_starts() <= 20);
}

/* One process for each line: the conditions that it runs under, and what the keeper does there. */
static void check_credentials(int64_t option, bool own_filter, bool filtered, bool privileged, bool starts, bool confined) {
  CHECK(option_set(OPTION_keeper, option));
  fake_os_set_credentials(filtered, privileged);
  start();
  store_relaxed(&os_filters, own_filter);
  leave_idle((size_t)50 << 20);
  CHECK_EQ(keeper_starts(), starts);
  if (starts) CHECK_EQ(fake_os_confined(), confined);
}

TEST(without_filters_it_is_confined) { check_credentials(1, false, false, false, true, true); }
TEST(with_privileges_it_is_confined) { check_credentials(1, false, false, true, true, true); }
TEST(under_a_filter_there_is_none_beside_one_thread) { check_credentials(1, false, true, false, os_multi_threaded(), false); }
TEST(under_a_filter_there_is_none_with_privileges) { check_credentials(1, false, true, true, false, false); }
TEST(under_a_filter_of_its_own_there_is_none) { check_credentials(1, true, false, false, false, false); }
TEST(the_option_2_starts_it_anywhere) { check_credentials(2, true, true, true, true, true); }

static void *do_nothing(void *unused) { return unused; }

TEST(under_a_filter_it_starts_where_libc_has_started_threads) {
  pthread_t thread;
  REQUIRE(pthread_create(&thread, NULL, do_nothing, NULL) == 0 && pthread_join(thread, NULL) == 0);
  if (!os_multi_threaded()) check_skip("this libc does not tell");
  check_credentials(1, false, true, false, true, false);
}

TEST(what_may_not_be_is_asked_for_again_after_a_second) {
  check_credentials(1, false, true, true, false, false);
  fake_os_set_credentials(false, false);
  leave_idle((size_t)50 << 20);
  CHECK_EQ(keeper_starts(), 0);
  fake_os_pass_time(1000);
  leave_idle((size_t)50 << 20);
  CHECK_EQ(keeper_starts(), 1);
}

/* ---- a fork while it sleeps ---- */

/* The fake runs the keeper inside a slow path; a thread that forks is outside of them. */
static void fork_once(void) {
  uint32_t inside = thread_inside;
  meanwhile = NULL;
  thread_inside = 0;
  thread_before_fork();
  thread_after_fork(); /* in the child, which has no keeper */
  leave_idle((size_t)50 << 20);
  thread_inside = inside;
  thread_show_inside(thread_heap, true);
  CHECK_EQ(keeper_starts(), 1); /* a start is counted after the keeper has run: the first is not counted yet */
  CHECK_EQ(idle_bytes(), 0);
}

TEST(a_child_gets_its_own) {
  start();
  REQUIRE(thread_attach() != NULL);
  meanwhile = fork_once;
  leave_idle((size_t)50 << 20);
  CHECK(meanwhile == NULL);
  CHECK_EQ(keeper_starts(), 2);
}

/* ---- bins that hold little ---- */

enum { LITTLE = 400 };
static pthread_barrier_t little_taken, little_done;

static void note(void) {
  lock_acquire(&thread_heap->owner.lock);
  drain_note(thread_heap);
  owner_unlock(&thread_heap->owner);
}

/* Each bin holds so little that it stays there; all of them hold 4 MiB. */
static void *free_little(void *unused) {
  enum { FREED = 24 };
  void *blocks[FREED];
  CHECK(thread_attach() != NULL); /* a thread that takes few blocks would otherwise have no heap */
  for (int i = 0; i < FREED; i++) CHECK((blocks[i] = block_alloc(SMALL_SIZE)) != NULL);
  for (int i = 0; i < FREED; i++) block_free(blocks[i], 0, "free");
  note();
  pthread_barrier_wait(&little_taken);
  pthread_barrier_wait(&little_done);
  return unused;
}

/* Notes that the bin holds much; most of it is then taken by hits, which note nothing. */
static void *free_much_and_take(void *unused) {
  enum { FREED = 64, TAKEN = 48 };
  void *blocks[FREED];
  CHECK(thread_attach() != NULL);
  for (int i = 0; i < FREED; i++) CHECK((blocks[i] = block_alloc(SMALL_SIZE)) != NULL);
  for (int i = 0; i < FREED; i++) block_free(blocks[i], 0, "free");
  note();
  CHECK(bin_count(heap_bin_for(thread_heap, SMALL_SIZE)) > TAKEN);
  for (int i = 0; i < TAKEN; i++) CHECK((blocks[i] = block_alloc(SMALL_SIZE)) != NULL);
  pthread_barrier_wait(&little_taken);
  pthread_barrier_wait(&little_done);
  for (int i = 0; i < TAKEN; i++) block_free(blocks[i], 0, "free");
  return unused;
}

static void end_beside(void *(*run)(void *)) {
  static pthread_t threads[LITTLE];
  start();
  fake_os_set_barrier(barrier);
  REQUIRE(thread_attach() != NULL && option_set(OPTION_keeper, 0));
  REQUIRE(pthread_barrier_init(&little_taken, NULL, LITTLE + 1) == 0 && pthread_barrier_init(&little_done, NULL, LITTLE + 1) == 0);
  for (int i = 0; i < LITTLE; i++) REQUIRE(pthread_create(&threads[i], NULL, run, NULL) == 0);
  pthread_barrier_wait(&little_taken);
  CHECK(option_set(OPTION_keeper, 1));
  meanwhile = not_for_ever;
  leave_idle((size_t)50 << 20);
  CHECK(keeper_starts() > 0 && drain_waiting() < HAK_UNIT);
  meanwhile = NULL;
  pthread_barrier_wait(&little_done);
  for (int i = 0; i < LITTLE; i++) pthread_join(threads[i], NULL);
}

TEST(it_ends_where_each_of_many_threads_has_little) { end_beside(free_little); }
TEST(it_ends_where_many_threads_have_less_than_was_noted) { end_beside(free_much_and_take); }

/* A thread with much in its bins that does not exist in the child. */
static void *fill_and_vanish(void *heap) {
  fill_bins();
  *(heap_t **)heap = thread_heap;
  pthread_barrier_wait(&all_have); /* so that no two of the threads have the same number */
  thread_fast_heap = &heap_none;
  thread_heap = NULL;
  return NULL;
}

static void fork_and_rest(void) {
  thread_before_fork();
  thread_after_fork();
  leave_idle((size_t)1 << 20);
}

TEST(what_a_child_finds_in_the_bins_of_gone_threads_goes_back) {
  enum { THREADS = 4 };
  heap_t *heaps[THREADS];
  start();
  REQUIRE(thread_attach() != NULL && option_set(OPTION_keeper, 0));
  pthread_t others[THREADS];
  REQUIRE(pthread_barrier_init(&all_have, NULL, THREADS) == 0);
  for (int i = 0; i < THREADS; i++) REQUIRE(pthread_create(&others[i], NULL, fill_and_vanish, &heaps[i]) == 0);
  for (int i = 0; i < THREADS; i++) REQUIRE(pthread_join(others[i], NULL) == 0);
  REQUIRE(drain_waiting() >= (uint64_t)4 << 20 && option_set(OPTION_keeper, 1));
  meanwhile = not_for_ever;
  fork_and_rest();
  CHECK_EQ(keeper_starts(), 1);
  CHECK_EQ(drain_waiting(), 0);
  for (int i = 0; i < THREADS; i++) {
    CHECK_EQ(load_relaxed(&heaps[i]->state), HEAP_ORPHAN);
    for (unsigned c = 0; c < CLASS_ZERO; c++) CHECK(!heaps[i]->has_bin[c] || bin_count(heap_bin(heaps[i], c)) == 0);
  }
}

/* ---- holes ---- */

static char *small[SMALL_BLOCKS];

/* Frees 16 MiB of small blocks but for one block in each 32 KiB. */
static void leave_holes(void) {
  for (int i = 0; i < SMALL_BLOCKS; i++) {
    REQUIRE((small[i] = block_alloc(SMALL_SIZE)) != NULL);
    memset(small[i], i % 251, SMALL_SIZE);
  }
  for (int i = 0; i < SMALL_BLOCKS; i++) {
    if (i % SMALL_KEPT != 0) block_free(small[i], 0, "free");
  }
}

static void check_kept(void) {
  for (int i = 0; i < SMALL_BLOCKS; i += SMALL_KEPT) {
    CHECK(block_usable_size(small[i]) == SMALL_SIZE && small[i][0] == (char)(i % 251));
    CHECK(memcmp(small[i], small[i] + 1, SMALL_SIZE - 1) == 0);
  }
}

TEST(holes_are_given_back_as_well) {
  if (os_page_size() > (size_t)32 << 10) check_skip("there is a block that stays on every page");
  start();
  size_t before = check_resident();
  leave_holes();
  uint64_t purged = fake_os_calls(FAKE_ONLY(FAKE_PURGE));
  CHECK(keeper_starts() > 0 && purged > 200);
  CHECK(check_resident() < before + ((size_t)10 << 20));
  check_kept();
  for (int i = 0; i < SMALL_BLOCKS; i++) {
    if (i % SMALL_KEPT != 0) REQUIRE((small[i] = block_alloc(SMALL_SIZE)) != NULL);
    memset(small[i], i % 251, SMALL_SIZE);
  }
  check_kept();
  for (int i = 0; i < SMALL_BLOCKS; i++) block_free(small[i], 0, "free");
}

TEST(holes_stay_where_memory_is_to_be_kept) {
  start();
  CHECK(option_set(OPTION_decay_ms, -1));
  leave_holes();
  CHECK(keeper_starts() == 0 && fake_os_calls(FAKE_ONLY(FAKE_PURGE)) == 0);
  check_kept();
}

/* Blocks that were scanned and have no holes do not start the keeper again. */
TEST(free_blocks_without_holes_start_it_once) {
  start();
  for (int i = 0; i < SMALL_BLOCKS; i++) REQUIRE((small[i] = block_alloc(SMALL_SIZE)) != NULL);
  for (int i = 0; i < SMALL_BLOCKS; i += 2) block_free(small[i], 0, "free");
  uint32_t starts = keeper_starts();
  CHECK(starts >= 1);
  CHECK_EQ(fake_os_calls(FAKE_ONLY(FAKE_PURGE)), 0);
  for (int i = 0; i < 1000; i++) leave_idle(HAK_UNIT);
  CHECK_EQ(keeper_starts(), starts);
}

/* ---- watching ---- */

enum { LOOK_MS = 100, LOOKS = 40 };
static uint32_t looks, opened;
static bool opens = true;

static bool open_watch(void) {
  opened++;
  if (!opens) keeper_watch(NULL, NULL, false);
  return opens;
}

static void look_often(void) {
  if (++looks % LOOKS == 0) (void)hold_outside();
}

static void come_by(void) {
  thread_enter();
  thread_leave_with_upkeep();
}

static void watch(bool children) {
  start();
  keeper_watch(open_watch, look_often, children);
  come_by();
}

TEST(it_watches_a_process_that_does_nothing) {
  watch(false);
  CHECK(keeper_starts() == 1 && looks == LOOKS);
  CHECK(slept_ms >= (LOOKS - 1) * LOOK_MS && slept_ms <= (LOOKS + 5) * LOOK_MS);
  come_by(); /* the keeper is held */
  CHECK_EQ(keeper_starts(), 1);
  keeper_release();
  come_by();
  CHECK(keeper_starts() == 2 && looks == 2 * LOOKS && opened == 2);
}

TEST(it_watches_where_memory_is_to_be_kept) {
  start();
  CHECK(option_set(OPTION_decay_ms, -1));
  char *block = block_alloc((size_t)50 << 20);
  REQUIRE(block != NULL);
  memset(block, 1, (size_t)50 << 20);
  keeper_watch(open_watch, look_often, false);
  block_free(block, 0, "free");
  CHECK_EQ(looks, LOOKS);
  CHECK(idle_bytes() >= (uint64_t)50 << 20);
}

TEST(it_gives_back_while_it_watches) {
  start();
  char *block = block_alloc((size_t)50 << 20);
  REQUIRE(block != NULL);
  memset(block, 1, (size_t)50 << 20);
  keeper_watch(open_watch, look_often, false);
  block_free(block, 0, "free");
  CHECK_EQ(looks, LOOKS);
  CHECK_EQ(idle_bytes(), 0);
}

TEST(where_there_is_nothing_to_watch_it_is_as_before) {
  opens = false;
  watch(false);
  for (int i = 0; i < 10; i++) come_by();
  CHECK(opened == 1 && looks == 0);
  CHECK_EQ(keeper_starts(), 1);
  leave_idle((size_t)50 << 20);
  CHECK_EQ(keeper_starts(), 2);
  CHECK_EQ(idle_bytes(), 0);
}

TEST(without_the_option_nobody_watches) {
  CHECK(option_set(OPTION_keeper, 0));
  watch(false);
  CHECK(keeper_starts() == 0 && opened == 0);
}

TEST(it_watches_under_a_filter_confined) {
  fake_os_set_credentials(true, true);
  watch(false);
  CHECK(keeper_starts() == 1 && fake_os_confined());
}

static void be_a_child(bool watches) {
  watch(watches);
  REQUIRE(looks == LOOKS && thread_attach() != NULL);
  thread_before_fork();
  thread_after_fork();
  come_by();
  CHECK_EQ(opened, watches ? 2 : 1);
  CHECK_EQ(looks, watches ? 2 * LOOKS : LOOKS);
  CHECK_EQ(keeper_generation(), 1);
}

TEST(a_child_watches_too) { be_a_child(true); }
TEST(a_child_does_not_watch) { be_a_child(false); }

/* ---- watching limits of memory ---- */

enum { NEXT_MS = 400, FULL_AT = 10 };
static bool apart_before;
static uint64_t next_ms = NEXT_MS, looked_ms; /* in ms of sleep, at the last check */

static bool open_limits(bool apart) {
  opened++;
  apart_before = apart;
  return opens;
}

/* The container is full at a certain check; the heap is then purged, as front/limits.c does it. */
static uint64_t look_until_full(void) {
  if (looks++ > 0) CHECK(slept_ms - looked_ms <= NEXT_MS);
  looked_ms = slept_ms;
  if (looks == FULL_AT) (void)purge_all();
  return next_ms;
}

/* No slow path checks the limits of the system that the test runs on. */
static void contain(keeper_next_t *look) {
  start();
  keeper_watch_limits(open_limits, look);
  store_relaxed(&pressure.contained, true);
  store_relaxed(&pressure.look_at, UINT64_MAX);
}

static void watch_limits(int64_t decay_ms) {
  contain(look_until_full);
  CHECK(option_set(OPTION_decay_ms, decay_ms));
}

TEST(it_watches_limits_where_memory_is_to_be_kept) {
  watch_limits(-1);
  leave_idle((size_t)50 << 20);
  CHECK(keeper_starts() == 1 && opened == 1 && !apart_before);
  CHECK(looks >= FULL_AT && looks <= FULL_AT + 1000 / NEXT_MS + 1 && slept_ms < FULL_AT * NEXT_MS + 1000); /* then nothing idle is left */
  CHECK_EQ(idle_bytes(), 0);
  leave_idle((size_t)1 << 20);
  CHECK_EQ(keeper_starts(), 1);
}

TEST(it_watches_limits_between_its_steps) {
  watch_limits(3600000);
  leave_idle((size_t)50 << 20);
  CHECK(keeper_starts() == 1 && looks >= FULL_AT);
}

static uint64_t come_near(void) {
  if (++looks == 3) pressure_set(PRESSURE_URGENT, PRESSURE_MAX, 95, 100);
  return NEXT_MS;
}

/* The keeper then waits a 64th of an hour. */
TEST(a_step_is_sooner_when_a_limit_comes_near) {
  contain(come_near);
  CHECK(option_set(OPTION_decay_ms, 3600000));
  leave_idle((size_t)50 << 20);
  CHECK_EQ(idle_bytes(), 0);
  CHECK(slept_ms > 3600000 / 64 / 2 && slept_ms < 3600000 / 2);
}

TEST(without_a_limit_there_is_nothing_to_watch) {
  watch_limits(-1);
  store_relaxed(&pressure.contained, false);
  leave_idle((size_t)50 << 20);
  CHECK(keeper_starts() == 0 && opened == 0);
  CHECK(option_set(OPTION_decay_ms, DECAY_MS));
  leave_idle((size_t)50 << 20);
  CHECK(keeper_starts() == 1 && opened == 0 && looks == 0);
  CHECK_EQ(slept_ms, naps * PERIOD_MS);
}

TEST(what_cannot_be_opened_is_not_tried_again) {
  opens = false;
  watch_limits(-1);
  for (int i = 0; i < 3; i++) leave_idle((size_t)50 << 20);
  CHECK(keeper_starts() == 1 && opened == 1 && looks == 0);
  CHECK(idle_bytes() >= (uint64_t)50 << 20);
}

TEST(it_ends_when_there_is_no_limit_to_look_at_any_more) {
  next_ms = 0;
  watch_limits(-1);
  leave_idle((size_t)50 << 20);
  CHECK(keeper_starts() == 1 && looks == 1);
  CHECK(idle_bytes() >= (uint64_t)50 << 20);
}

static uint64_t look_full_now_and_then(void) {
  uint32_t aging;
  if (++looks % FULL_AT == 0) (void)hole_step(true, &aging);
  return NEXT_MS;
}

TEST(holes_are_looked_for_as_well) {
  if (os_page_size() > (size_t)32 << 10) check_skip("there is a block that stays on every page");
  contain(look_full_now_and_then);
  CHECK(option_set(OPTION_decay_ms, -1));
  leave_holes();
  CHECK(keeper_starts() > 0 && looks >= FULL_AT);
  CHECK(fake_os_calls(FAKE_ONLY(FAKE_PURGE)) > 100);
  uint32_t starts = keeper_starts();
  come_by();
  CHECK_EQ(keeper_starts(), starts);
  check_kept();
}

/* The calls that the keeper would need might end the process. */
TEST(beside_a_filter_limits_are_not_watched) {
  pthread_t thread;
  REQUIRE(pthread_create(&thread, NULL, do_nothing, NULL) == 0 && pthread_join(thread, NULL) == 0);
  if (!os_multi_threaded()) check_skip("this libc does not tell");
  fake_os_set_credentials(true, false);
  watch_limits(DECAY_MS);
  leave_idle((size_t)50 << 20);
  CHECK(keeper_starts() == 1 && opened == 0 && looks == 0);
  CHECK_EQ(idle_bytes(), 0);
}

static bool open_nothing(void) { return true; }

static void end_soon(void) {
  static uint32_t came;
  if (++came == LOOKS) (void)hold_outside();
}

/* A black box has its own set of open files already. */
TEST(it_watches_limits_and_more) {
  contain(come_near);
  keeper_watch(open_nothing, end_soon, false);
  come_by();
  CHECK(keeper_starts() == 1 && opened == 1 && apart_before && looks > 0);
}
