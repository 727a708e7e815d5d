/* trim.c - what an allocation that fails looks through, and what it finds there.  Walks over all slabs of a heap are counted. */
#include "fake_os.h"
#include "front/alloc.h"
#include "front/supply.h"
#include "heaps.h"
#include "slab/remote.h"

static unsigned looks;

void __real_remote_look_at_all(slab_owner_t *owner);
void __wrap_remote_look_at_all(slab_owner_t *owner);
void __wrap_remote_look_at_all(slab_owner_t *owner) {
  looks++;
  __real_remote_look_at_all(owner);
}

/* More than heaps are walked in. */
enum { SIZE = 3000, BLOCKS = 2000, LATER_MS = 1000 };
static void *blocks[BLOCKS];

/* Takes blocks until an allocation fails. */
static void take_all(void) {
  CHECK(option_set(OPTION_insight, 0)); /* what marks a sampled block as live is its record */
  start_heap();
  for (int i = 0; i < BLOCKS; i++) REQUIRE((blocks[i] = block_alloc(SIZE)) != NULL);
  fake_os_fail(FAKE_TAKING, 1, UINT64_MAX);
  for (size_t size = 64 * HAK_UNIT; size >= SIZE; size = size > HAK_UNIT ? size - HAK_UNIT : size == HAK_UNIT ? SIZE : 0) {
    while (block_alloc(size) != NULL) continue;
  }
}

static void *free_one(void *block) {
  block_free(block, 0, "free");
  return NULL;
}

/* As free leaves a block whose slab seemed announced, while its owner opened the slab and did not see the mark yet. */
static void *free_unseen(void *block) {
  CHECK(!HAK_CHECKS || region_clear_live(block));
  uint32_t unit = (uint32_t)region_unit(block);
  unit_t *slab = remote_mark(racy_load(region_bin(region.live, unit)), unit, block);
  CHECK(slab != NULL);
  return NULL;
}

static const void *slab_under(const void *block) { return unit_head((uint32_t)region_unit(block)); }

/* The number of the first of `count` blocks in one slab, from `at` on. */
static int together(int at, int count) {
  while (slab_under(blocks[at]) != slab_under(blocks[at + count - 1])) at++;
  return at;
}

/* What bins hold makes each failure give something back. */
TEST(failures_of_one_thread_do_not_walk_over_its_slabs) {
  take_all();
  fake_os_pass_time(LATER_MS);
  looks = 0;
  for (int i = 0; i < 100; i++) {
    block_free(blocks[i], 0, "free");
    CHECK(block_alloc(64 * HAK_UNIT) == NULL);
    fake_os_pass_time(LATER_MS / 100);
  }
  CHECK_EQ(looks, 0);
  for (int i = 0; i < 100; i++) CHECK((blocks[i] = block_alloc(SIZE)) != NULL);
  check_heaps();
}

TEST(a_failure_brings_in_each_time_what_others_have_announced) {
  take_all();
  for (int i = 0; i < 200; i++) {
    CHECK(block_alloc(SIZE) == NULL);
    run_thread(free_one, blocks[i]);
    CHECK((blocks[i] = block_alloc(SIZE)) != NULL);
  }
  check_heaps();
}

/* Both times nothing is announced; the second is directly after the first look. */
TEST(a_failure_finds_what_was_not_visible_when_its_slab_was_opened) {
  take_all();
  CHECK(block_alloc(SIZE) == NULL);
  int first = together(0, 4);
  run_thread(free_one, blocks[first]);
  CHECK((blocks[first] = block_alloc(SIZE)) != NULL); /* has opened the slab */
  for (int i = 1; i < 3; i++) {
    run_thread(free_unseen, blocks[first + i]);
    CHECK((blocks[first + i] = block_alloc(SIZE)) != NULL);
  }
  run_thread(free_unseen, blocks[first + 3]);
  fake_os_pass_time(LATER_MS);
  CHECK((blocks[first + 3] = block_alloc(SIZE)) != NULL);
  check_heaps();
}

/* The freer stays in the parent, before its announcement. */
TEST(a_failure_in_a_forks_child_finds_what_nobody_will_announce) {
  take_all();
  CHECK(block_alloc(SIZE) == NULL);
  run_thread(free_unseen, blocks[0]);
  thread_before_fork();
  thread_after_fork();
  CHECK((blocks[0] = block_alloc(SIZE)) != NULL);
  check_heaps();
}

/* One look after such marks are visible is the last, until a slab is opened again. */
TEST(looks_end_once_every_mark_is_visible) {
  take_all();
  CHECK(block_alloc(SIZE) == NULL);
  run_thread(free_one, blocks[0]);
  CHECK((blocks[0] = block_alloc(SIZE)) != NULL);
  looks = 0;
  CHECK(block_alloc(SIZE) == NULL && looks > 0);
  fake_os_pass_time(LATER_MS);
  looks = 0;
  CHECK(block_alloc(SIZE) == NULL && looks > 0);
  fake_os_pass_time(LATER_MS);
  looks = 0;
  for (int i = 1; i < 100; i++) {
    block_free(blocks[i], 0, "free");
    CHECK(block_alloc(64 * HAK_UNIT) == NULL);
  }
  CHECK_EQ(looks, 0);
  run_thread(free_one, blocks[100]);
  CHECK(block_alloc(64 * HAK_UNIT) == NULL && looks > 0);
  check_heaps();
}

/* A trim that the program requests looks everywhere. */
TEST(a_requested_trim_looks_at_all_slabs) {
  start_heap();
  REQUIRE(block_alloc(SIZE) != NULL);
  looks = 0;
  (void)heap_collect(thread_heap, true);
  CHECK_EQ(looks, 2); /* the thread's heap alone, and among all */
}
