/* repair.c - the repair in a fork's child: a thread that left unseen stands for one that stayed in the parent. */
#include "front/repair.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "front/alloc.h"
#include "front/block.h"
#include "front/heaps.h"
#include "front/named.h"
#include "front/supply.h"
#include "front/thread.h"
#include "heaps.h"
#include "kit/pressure.h"
#include "os/os.h"
#include "slab/batch.h"
#include "space/span.h"

/* ---- a child of fork: a thread that left unseen stands for one that stayed in the parent ---- */

static void fork_here(void) {
  thread_before_fork();
  thread_after_fork();
}

static heap_t *lost_heap(void **blocks) {
  run_thread(allocate_unseen, blocks);
  for (heap_t *heap = heap_first(); heap != NULL; heap = load_relaxed(&heap->next)) {
    if (heap != thread_heap && load_relaxed(&heap->state) == HEAP_ATTACHED) return heap;
  }
  return NULL;
}

/* Not lock_acquire: the thread that vanished before may have had the same number, and no thread may wait while it holds a lock. */
static void *lock_and_vanish(void *lock) {
  CHECK(lock_try(lock));
  return NULL;
}

static void *forked_blocks[1000];

/* Attaches as a slow path does: a thread that attaches outside of one is counted as inside. */
static void attach_inside(void) {
  thread_enter();
  REQUIRE(thread_attach() != NULL);
  thread_leave();
}

static void free_some_remotely(void) {
  for (int i = 0; i < 1000; i += 3) {
    block_free(forked_blocks[i], 0, "free");
    forked_blocks[i] = NULL;
  }
}

/* Gives this thread a heap, and makes a lost thread's heap, with its lock held and blocks in its bins. */
static heap_t *start_forked(void) {
  start_heap();
  void *own = block_alloc(100);
  CHECK(own != NULL);
  block_free(own, 0, "free");
  heap_t *lost = lost_heap(forked_blocks);
  free_some_remotely(); /* no thread has collected them */
  if (lost == NULL) return NULL;
  run_thread(lock_and_vanish, &lost->owner.lock);
  store_relaxed(&lost->inside, 1);
  return lost;
}

/* The child takes a slow path. */
static void enter_once(void) {
  thread_enter();
  thread_leave();
}

static bool is_repaired(heap_t *lost) {
  return !os_forked() && load_relaxed(&lost->state) == HEAP_ORPHAN && load_relaxed(&lost->owner.lock.holder) == 0;
}

/* Checks the heap after a repair: what was live is live, nothing else is, and all of it can be freed. */
static void check_repaired(heap_t *lost) {
  CHECK(is_repaired(lost));
  CHECK_EQ(load_relaxed(&lost->owner.thread), 0);
  CHECK_EQ(load_relaxed(&thread_heap->owner.thread), thread_self());
  CHECK_EQ(load_relaxed(&thread_heap->state), HEAP_ATTACHED);
  check_heaps();
  heap_trim_others(); /* bins of a lost thread keep their blocks until a thread adopts the heap, or until this call */
  for (unsigned c = 0; c < CLASS_COUNT; c++) {
    bin_t *bin = heap_bin(lost, c);
    CHECK_EQ(racy_load(&bin->top), -bin->capacity);
    CHECK_EQ(load_relaxed(&lost->owner.pending[c]), 0);
  }
  hak_stats_t stats = check_census();
  CHECK(stats.live == usable_of(forked_blocks, 1000) && stats.remote == 0);
  for (int i = 0; i < 1000; i++) block_free(forked_blocks[i], 0, "free");
  heap_trim(thread_heap);
  stats = check_census();
  for (heap_t *heap = heap_first(); heap != NULL; heap = load_relaxed(&heap->next)) CHECK_EQ(load_relaxed(&heap->owner.free_bytes), 0);
  CHECK(stats.live == 0 && stats.cached == 0 && stats.remote == 0 && stats.slabs == 0);
  CHECK_EQ(stats.span_free, stats.committed);
}

/* The kernel copied the heap before the class's first use, and the slab after it. */
TEST(a_child_adds_the_bin_that_a_slab_needs) {
  heap_t *lost = start_forked();
  REQUIRE(lost != NULL);
  unsigned c = class_of(100);
  bin_t *bin = heap_bin(lost, c);
  REQUIRE(lost->has_bin[c] && bin->shared.thread != 0);
  racy_store(&bin->top, -bin->capacity);
  lost->has_bin[c] = false; /* the table still leads to the bin */
  fork_here();
  enter_once();
  CHECK(lost->has_bin[c] && bin_found(lost, 100) == bin);
  CHECK_EQ(bin->shared.thread, 0); /* otherwise a thread with the lost thread's number would push into it */
  check_heaps();
}

/* The copy was made during the first use of a class. */
TEST(a_child_finds_no_bin_that_its_heap_has_not) {
  heap_t *lost = start_forked();
  REQUIRE(lost != NULL);
  unsigned c = class_of(30000);
  REQUIRE(!lost->has_bin[c]);
  lost->bin_at[heap_mid_index(30000)] = lost->bin_at_class[c];
  lost->bin_at[heap_small_index(100)] = 0;
  fork_here();
  enter_once();
  CHECK(bin_found(lost, 30000) == &lost->none);
  check_repaired(lost);
  CHECK(bin_found(lost, 100) == heap_bin(lost, class_of(100)));
}

TEST(a_child_with_a_handler_is_repaired_when_it_next_enters) {
  heap_t *lost = start_forked();
  REQUIRE(lost != NULL);
  fork_here();
  CHECK(!is_repaired(lost));
  enter_once();
  check_repaired(lost);
}

TEST(a_child_without_a_handler_is_repaired_when_it_next_enters) {
  heap_t *lost = start_forked();
  REQUIRE(lost != NULL);
  os_fork_note();
  thread_enter();
  CHECK(is_repaired(lost));
  thread_leave();
  check_repaired(lost);
}

TEST(a_fork_inside_a_slow_path_is_repaired_when_it_leaves) {
  heap_t *lost = start_forked();
  REQUIRE(lost != NULL);
  thread_enter();
  thread_before_fork();
  thread_after_fork(); /* as from a signal handler */
  CHECK(os_forked());
  CHECK_EQ(load_relaxed(&lost->state), HEAP_ATTACHED);
  thread_leave();
  CHECK_EQ(thread_inside, 0);
  check_repaired(lost);
}

/* As if the thread waited for the lock of its first heap when a handler forked. */
TEST(a_thread_without_a_heap_stays_counted) {
  REQUIRE(start_forked() != NULL);
  thread_fast_heap = &heap_none;
  thread_heap = NULL;
  thread_enter();
  os_fork_note();
  heap_after_fork(NULL);
  CHECK(!os_forked());
  thread_leave();
  for (unsigned i = 0; i < HEAPLESS_LINES; i++) CHECK_EQ(load_relaxed(&heapless[i].heapless_inside), 0);
}

TEST(only_the_outermost_leave_repairs) {
  heap_t *lost = start_forked();
  REQUIRE(lost != NULL);
  thread_enter();
  os_fork_note();
  thread_enter();
  CHECK(os_forked() && load_relaxed(&lost->state) == HEAP_ATTACHED);
  thread_leave();
  CHECK(os_forked() && load_relaxed(&lost->state) == HEAP_ATTACHED);
  thread_leave();
  check_repaired(lost);
}

TEST(what_was_begun_before_a_fork_is_ended_under_its_own_lock) {
  heap_t *lost = start_forked();
  REQUIRE(lost != NULL);
  thread_enter();
  REQUIRE(lock_try(&thread_heap->owner.lock));
  fork_here();
  CHECK(os_forked() && lock_is_mine(&thread_heap->owner.lock));
  lock_release(&thread_heap->owner.lock);
  thread_leave();
  check_repaired(lost);
}

/* Another thread was collecting for this heap when the process forked. */
TEST(a_child_does_not_wait_for_who_held_its_lock) {
  heap_t *lost = start_forked();
  REQUIRE(lost != NULL);
  run_thread(lock_and_vanish, &thread_heap->owner.lock);
  thread_enter();
  os_fork_note();
  heap_trim(thread_heap);
  thread_leave();
  check_repaired(lost);
}

static void *take_first(void *unused) {
  void *block = block_alloc(100);
  CHECK(block != NULL && thread_heap != NULL && load_relaxed(&thread_heap->owner.thread) == thread_self());
  block_free(block, 0, "free");
  return unused;
}

/* The new thread has the number of the one that holds the lock, as the next thread mostly has. */
TEST(a_child_may_start_a_thread_before_it_comes_by) {
  heap_t *lost = start_forked();
  REQUIRE(lost != NULL);
  fork_here();
  run_thread(take_first, NULL);
  CHECK(!os_forked() && load_relaxed(&lost->owner.lock.holder) == 0);
  CHECK_EQ(load_relaxed(&thread_heap->state), HEAP_ATTACHED);
  CHECK(thread_heap->thread == thread_self() && load_relaxed(&thread_heap->owner.thread) == thread_self());
  check_repaired(lost);
}

/* That handler ran before hakmem's: the kernel has reported the fork, but it is not known yet which thread forked. */
TEST(a_child_may_start_a_thread_in_another_librarys_handler) {
  heap_t *lost = start_forked();
  REQUIRE(lost != NULL);
  thread_before_fork();
  os_fork_note();
  run_thread(take_first, NULL);
  CHECK(!os_forked());
  thread_after_fork();
  CHECK(!os_forked()); /* the repair is not repeated: what the child has begun since stays */
  check_repaired(lost);
}

TEST(so_it_may_where_the_forker_has_no_heap) {
  start_heap();
  heap_t *lost = lost_heap(forked_blocks);
  REQUIRE(lost != NULL && thread_heap == NULL);
  thread_before_fork();
  os_fork_note();
  run_thread(take_first, NULL);
  CHECK(!os_forked());
  thread_after_fork();
  CHECK(!os_forked());
}

/* The other thread was forking too, and might pass for the forker. */
TEST(where_the_forker_has_no_heap_no_other_survives) {
  start_heap();
  heap_t *lost = lost_heap(forked_blocks);
  REQUIRE(lost != NULL && thread_heap == NULL);
  heap_show_fork(lost, true);
  fork_here();
  enter_once();
  CHECK(is_repaired(lost));
}

/* If the kernel wipes no page, the child's page says that a thread is repairing which does not exist there. */
TEST(a_child_of_one_that_is_just_repaired_waits_for_nobody) {
  const uintptr_t gone = 4096;
  heap_t *lost = start_forked();
  REQUIRE(lost != NULL);
  os_fork_note();
  REQUIRE(os_fork_claim(gone));
  fork_here();
  CHECK(!os_fork_is_claimed());
  enter_once();
  check_repaired(lost);
}

static void *repair_as_the_callback_thread(void *unused) {
  store_relaxed(&pressure.callback_thread, thread_self());
  enter_once();
  return unused;
}

static void *repair_simply(void *unused) {
  enter_once();
  return unused;
}

/* A thread that no longer exists was reporting a limit to the program. */
TEST(a_childs_thread_with_the_number_of_a_callback_thread_is_none) {
  REQUIRE(start_forked() != NULL);
  fork_here();
  run_thread(repair_as_the_callback_thread, NULL);
  CHECK_EQ(load_relaxed(&pressure.callback_thread), 0);
}

TEST(who_forks_in_the_callback_goes_on_telling_in_the_child) {
  REQUIRE(start_forked() != NULL);
  store_relaxed(&pressure.callback_thread, thread_self());
  fork_here();
  run_thread(repair_simply, NULL);
  CHECK_EQ(load_relaxed(&pressure.callback_thread), thread_self());
  store_relaxed(&pressure.callback_thread, (uintptr_t)0);
}

TEST(a_parents_fork_leaves_no_mark) {
  start_heap();
  CHECK(block_alloc(100) != NULL);
  thread_before_fork();
  CHECK_EQ(thread_heap->forking, 1);
  thread_after_fork_here();
  CHECK_EQ(thread_heap->forking, 0);
}

TEST(a_child_without_a_heap_is_repaired_too) {
  start_heap();
  heap_t *lost = lost_heap(forked_blocks);
  REQUIRE(lost != NULL && thread_heap == NULL);
  fork_here();
  enter_once();
  CHECK(is_repaired(lost));
  CHECK_EQ(check_census().live, usable_of(forked_blocks, 1000));
  REQUIRE(thread_attach() != NULL);
  CHECK(thread_heap == lost);
  for (int i = 0; i < 1000; i++) block_free(forked_blocks[i], 0, "free");
  heap_trim(thread_heap);
  CHECK_EQ(check_census().slabs, 0);
  check_heaps();
}

/* Puts a mark into a slab's record; counting the slab's free blocks clears it. This shows whether the repair has checked the slab. */
static bool slab_is_counted_again(const heap_t *lost, uint32_t *pending) {
  unit_t *slab = unit_head((uint32_t)region_unit(forked_blocks[1]));
  const uint8_t mark = 255;
  CHECK(slab_owner(slab) == &lost->owner);
  slab->age = mark;
  fork_here();
  thread_enter();
  *pending = load_relaxed(&lost->owner.pending[class_of(100)]); /* an audit at the end may collect them */
  thread_leave();
  return slab->age != mark;
}

TEST(where_no_thread_was_at_work_a_child_orphans_heaps_and_looks_at_no_slab) {
  start_heap();
  attach_inside();
  heap_t *lost = lost_heap(forked_blocks);
  REQUIRE(lost != NULL);
  free_some_remotely(); /* a check of all slabs would collect them */
  uint32_t pending = 0;
  CHECK(load_relaxed(&lost->owner.pending[class_of(100)]) != 0);
  CHECK(!slab_is_counted_again(lost, &pending));
  CHECK(pending != 0);
  check_repaired(lost);
}

TEST(where_another_thread_was_at_work_a_child_makes_the_lists_of_its_lock_anew) {
  heap_t *lost = start_forked();
  REQUIRE(lost != NULL);
  uint32_t pending = 0;
  CHECK(slab_is_counted_again(lost, &pending));
  CHECK_EQ(pending, 0);
}

TEST(where_a_thread_without_a_heap_was_at_work_its_units_are_free_in_a_child) {
  start_heap();
  attach_inside();
  heap_t *lost = lost_heap(forked_blocks);
  REQUIRE(lost != NULL);
  bool zero;
  uint32_t start = span_alloc(5, 1, SPAN_PLAIN, &zero); /* by a thread that no longer exists */
  REQUIRE(start != SPAN_NONE);
  units_enter(start, 5, UNIT_LARGE, CLASS_NONE);
  for (uint32_t i = 0; i < 2; i++) store_relaxed(&unit_at(start + i)->kind, (uint8_t)UNIT_FREE); /* only partly left, or partly entered */
  unit_at(start)->notified = true;
  store_relaxed(&heapless_of(1)->heapless_inside, 1);
  fork_here();
  enter_once();
  CHECK_EQ(load_relaxed(&heapless_of(1)->heapless_inside), 0);
  for (uint32_t unit = start; unit < start + 5; unit++) {
    CHECK_EQ(load_relaxed(&unit_at(unit)->kind), UNIT_FREE);
    CHECK(!unit_at(unit)->notified);
    CHECK((load_relaxed(&region.superslabs[unit / WORD_UNITS].free) >> unit % WORD_UNITS & 1) != 0);
  }
  check_repaired(lost);
}

/* A thread that no longer exists had claimed the block for its free, and was waiting for the kernel or for a lock. */
static void is_free_in_a_child(unit_t *first, heap_t *lost) {
  uint32_t start = unit_number(first), units = load_relaxed(&first->units);
  CHECK(region_clear_live(region_address(start)));
  fork_here();
  enter_once();
  for (uint32_t unit = start; unit < start + units; unit++) CHECK_EQ(load_relaxed(&unit_at(unit)->kind), UNIT_FREE);
  check_repaired(lost);
}

static unit_t *span_of(const void *block) { return unit_head((uint32_t)region_unit(block)); }

TEST(a_large_block_that_was_being_freed_is_free_in_a_child) {
  if (!HAK_CHECKS) check_skip("without live bits nothing tells");
  heap_t *lost = start_forked();
  REQUIRE(lost != NULL);
  void *block = block_alloc((size_t)3 << 20);
  REQUIRE(block != NULL);
  is_free_in_a_child(span_of(block), lost);
}

static void is_no_named_heaps_in_a_child(bool locked) {
  if (!HAK_CHECKS) check_skip("as above");
  heap_t *lost = start_forked(), *named = named_new("cache");
  REQUIRE(lost != NULL && named != NULL);
  void *block = alloc_from(named, 200000, 1, SPAN_PLAIN, "test"), *other = alloc_from(named, 200000, 1, SPAN_PLAIN, "test");
  REQUIRE(block != NULL && other != NULL);
  if (locked) run_thread(lock_and_vanish, &named->owner.lock);
  CHECK(region_clear_live(block));
  fork_here();
  enter_once();
  CHECK_EQ(kind_of(block), UNIT_FREE);
  CHECK(named_count(named, "test").large_blocks == 1);
  named_end(named, "test");
  CHECK_EQ(kind_of(other), UNIT_FREE);
  check_repaired(lost);
}

TEST(a_named_heaps_large_block_that_was_being_freed_is_free_in_a_child) { is_no_named_heaps_in_a_child(false); }
TEST(so_is_one_of_a_heap_whose_lists_are_made_anew) { is_no_named_heaps_in_a_child(true); }

/* The fork came while a thread that no longer exists gave a hole back. */
TEST(blocks_that_were_held_for_the_kernel_are_free_again_in_a_child) {
  heap_t *lost = start_forked();
  REQUIRE(lost != NULL);
  unit_t *slab = unit_head((uint32_t)region_unit(forked_blocks[1]));
  uint32_t unit = unit_number(slab), blocks = slab_class(slab)->blocks;
  _Atomic uint64_t *bits = region_bits(region.free_bits, unit, (blocks - 1) / 64);
  REQUIRE((load_relaxed(bits) >> (blocks - 1) % 64 & 1) != 0);
  lost->owner.held = (slab_held_t){.unit = unit, .first = blocks - 1, .last = blocks - 1, .units = slab_class(slab)->units};
  store_relaxed(bits, load_relaxed(bits) & ~((uint64_t)1 << (blocks - 1) % 64));
  fork_here();
  enter_once();
  check_repaired(lost);
}

/* If another lock is held by a thread that does not exist here. */
static _Noreturn void lock_within_a_repair(heap_t *heap) {
  (void)signal(SIGALRM, SIG_DFL);
  alarm(20); /* otherwise it would wait forever */
  os_fork_note();
  CHECK(os_fork_claim(thread_self()));
  heap_lock(heap); /* as from a handler's malloc */
  _exit(0);
}

TEST(a_handler_that_interrupts_a_repair_does_not_wait_for_a_lock_that_was_left_behind) {
  heap_t *lost = start_forked();
  REQUIRE(lost != NULL);
  (void)fflush(NULL);
  pid_t child = fork();
  if (child == 0) lock_within_a_repair(lost);
  int status = 0;
  REQUIRE(child > 0 && waitpid(child, &status, 0) == child);
  CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

TEST(nothing_is_repaired_where_nothing_forked) {
  heap_t *lost = start_forked();
  REQUIRE(lost != NULL);
  heap_after_fork(thread_heap);
  thread_enter();
  thread_leave();
  CHECK(!is_repaired(lost));
  CHECK_EQ(load_relaxed(&lost->state), HEAP_ATTACHED);
}

TEST(a_second_fork_is_repaired_again) {
  heap_t *lost = start_forked();
  REQUIRE(lost != NULL);
  fork_here();
  enter_once();
  CHECK(is_repaired(lost));
  run_thread(lock_and_vanish, &lost->owner.lock);
  store_relaxed(&lost->inside, 1);
  fork_here();
  enter_once();
  check_repaired(lost);
}

/* ---- bins as a fork found them ---- */

#define BIN_SIZE 4500 /* a size whose class has many of the lost heap's blocks */

static bin_t *lost_bin(heap_t *lost) { return heap_bin(lost, class_of(BIN_SIZE)); }

static heap_t *the_lost;

static void *next_of_its_class(void) {
  for (int i = 0; i < 1000; i++) {
    void *block = forked_blocks[i];
    if (block == NULL || class_of(block_usable_size(block)) != class_of(BIN_SIZE)) continue;
    forked_blocks[i] = NULL;
    return block;
  }
  CHECK(false);
  return NULL;
}

/* Acts under the number of the lost thread: fills its bin up to one block. */
static void fill_as_a_namesake(bin_t *bin) {
  heap_set_thread(the_lost, thread_self());
  while (racy_load(&bin->top) < -1) block_free(next_of_its_class(), 0, "free");
}

static void *overflow_as_a_namesake(void *unused) {
  bin_t *bin = lost_bin(the_lost);
  fill_as_a_namesake(bin);
  block_free(next_of_its_class(), 0, "free");
  CHECK(thread_heap == the_lost);
  CHECK(racy_load(&bin->top) < 0);
  check_heaps();
  return unused;
}

/* Another thread has taken the heap between the push and what follows. */
static void *overflow_too_late(void *unused) {
  bin_t *bin = lost_bin(the_lost);
  fill_as_a_namesake(bin);
  void *block = next_of_its_class();
  CHECK(!HAK_CHECKS || region_clear_live(block));
  CHECK(bin_push(bin, block));
  enter_once();
  CHECK(heaps_take(2, the_lost) == the_lost);
  free_overflow(bin);
  CHECK(thread_heap != NULL && thread_heap != the_lost);
  CHECK_EQ(racy_load(&bin->top), 0);
  return unused;
}

static void fork_with_two_lost(void) {
  CHECK(option_set(OPTION_insight, 0)); /* the free of a sampled block is a slow path */
  start_heap();
  attach_inside();
  const heap_t *before = heaps_take(1, NULL); /* of a thread that is lost too; this heap or the next is older than the lost one */
  run_thread(allocate_unseen, forked_blocks);
  the_lost = heap_of(slab_owner(unit_head((uint32_t)region_unit(forked_blocks[1]))));
  const heap_t *after = heaps_take(3, NULL); /* the first orphan */
  REQUIRE(before != NULL && after != NULL);
  REQUIRE(before->number < the_lost->number || after->number < the_lost->number);
  fork_here();
}

/* libc gives a new thread the stack of an ended one, and with it the number. */
TEST(a_childs_thread_that_is_a_namesake_of_one_that_is_gone_takes_up_the_heap_that_it_frees_into) {
  fork_with_two_lost();
  run_thread(overflow_as_a_namesake, NULL);
  check_repaired(the_lost);
}

TEST(a_childs_thread_that_is_a_namesake_leaves_a_bin_alone_that_is_another_threads_by_now) {
  fork_with_two_lost();
  run_thread(overflow_too_late, NULL);
}

/* Adopts the heap and uses its bin from both ends. */
static void *use_the_lost(void *unused) {
  static void *blocks[300];
  attach_inside();
  CHECK(thread_heap == the_lost);
  check_heaps();
  for (int i = 0; i < 300; i++) memset(blocks[i] = block_alloc(BIN_SIZE), i, BIN_SIZE);
  for (int i = 0; i < 300; i++) CHECK_EQ(*(uint8_t *)blocks[i], (uint8_t)i);
  for (int i = 0; i < 300; i++) block_free(blocks[i], 0, "free");
  check_heaps();
  return unused;
}

static void is_used_again_in_a_child(void) {
  fork_here();
  run_thread(use_the_lost, NULL);
  check_repaired(the_lost);
}

static void find_full(void) {
  REQUIRE((the_lost = start_forked()) != NULL);
  bin_t *bin = lost_bin(the_lost);
  bool full = false;
  for (void *block; !full; full = bin_push(bin, block)) {
    REQUIRE(batch_take(&the_lost->owner, class_of(BIN_SIZE), &bin->shared, &block, 1) == 1);
  }
}

TEST(a_bin_that_a_fork_found_full_is_flushed_before_it_is_used_again) {
  find_full();
  is_used_again_in_a_child();
}

/* A handler's free pushed one more block; that block is lost. */
TEST(a_bin_that_a_fork_found_more_than_full_has_its_name_again) {
  find_full();
  CHECK(!bin_push(lost_bin(the_lost), the_lost));
  fork_here();
  run_thread(use_the_lost, NULL);
}

/* The fork came while the bin became smaller or larger: the entries were on their way, and are lost. */
static void resized(intptr_t before, intptr_t now) {
  REQUIRE((the_lost = start_forked()) != NULL);
  bin_t *bin = lost_bin(the_lost);
  while (bin_count(bin) > 0) {
    void *block = entry_block(bin_pop_entry(bin));
    (void)batch_give(&the_lost->owner, &block, 1);
  }
  intptr_t bottom = before > now ? -before : -now;
  CHECK(before <= bin_reserve(class_of(BIN_SIZE)) && now <= bin_reserve(class_of(BIN_SIZE)));
  for (intptr_t i = -before; i < 0; i++) racy_store(&bin_entries(bin)[i], the_lost); /* leftovers of other entries */
  racy_store(&bin_entries(bin)[bottom - 1], BIN_END);
  racy_store(&bin->top, bottom);
  racy_store(&bin->capacity, now);
  is_used_again_in_a_child();
}

TEST(a_bin_that_a_fork_found_becoming_smaller_has_both_its_ends) { resized(32, 16); }
TEST(a_bin_that_a_fork_found_becoming_larger_has_both_its_ends) { resized(16, 32); }

/* Its thread was giving blocks back while another thread had taken some from below. */
TEST(a_bin_that_looked_empty_and_is_barred_is_empty) {
  REQUIRE((the_lost = start_forked()) != NULL);
  bin_t *bin = lost_bin(the_lost);
  while (bin_count(bin) > 0) {
    void *block = entry_block(bin_pop_entry(bin));
    (void)batch_give(&the_lost->owner, &block, 1);
  }
  racy_store(&bin->top, -bin->capacity);
  bin->barred = true;
  bin->taken = 5;
  store_relaxed(&bin->gone, 5);
  is_used_again_in_a_child();
}

/* A handler runs between the push that fills a bin and the flush. */
TEST(a_block_that_is_pushed_over_a_bins_name_is_given_back_and_the_name_written_anew) {
  void *blocks[200];
  CHECK(option_set(OPTION_insight, 0)); /* the free of a sampled block takes another path */
  start_heap();
  for (int i = 0; i < 200; i++) REQUIRE((blocks[i] = block_alloc(BIN_SIZE)) != NULL);
  bin_t *bin = heap_bin(thread_heap, class_of(BIN_SIZE));
  int i = 0;
  for (; racy_load(&bin->top) < -1; i++) block_free(blocks[i], 0, "free");
  CHECK(!HAK_CHECKS || region_clear_live(blocks[i]));
  CHECK(bin_push(bin, blocks[i++]));
  block_free(blocks[i++], 0, "free"); /* in the handler */
  CHECK_EQ(racy_load(&bin->top), 1);
  free_overflow(bin);
  check_heaps();
  for (; i < 200; i++) block_free(blocks[i], 0, "free");
  heap_trim(thread_heap);
  hak_stats_t stats = check_census();
  CHECK(stats.live == 0 && stats.cached == 0 && stats.remote == 0 && stats.slabs == 0);
}

TEST(a_block_that_went_past_the_bin_is_counted) {
  start_heap();
  attach_inside();
  void *block = heap_take_one(thread_heap, class_of(BIN_SIZE));
  REQUIRE(block != NULL);
  hak_stats_t stats = check_census();
  CHECK(stats.refills == 1 && stats.refill_blocks == 1);
}
