/* hole.c - whole free pages inside slabs: when they are found, that no live block is
 * among them, and what happens to the slab while the kernel works. */
#include "slab/hole.h"

#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include "base/thread.h"
#include "fake_os.h"
#include "kit/options.h"
#include "slab/batch.h"
#include "slab/large.h"
#include "slab/remote.h"
#include "slabs.h"
#include "space.h"
#include "space/ledger.h"
#include "space/span.h"
#include "unit.h"

enum { BLOCKS_MOST = 4096, FILL = 0x5a };

static slab_owner_t owner;
static region_bin_t bins[CLASS_COUNT];
static uint64_t seed;
static void *blocks[BLOCKS_MOST];

static void start_holes(size_t page) {
  seed = unit_seed();
  fake_os_set_page_size(page);
  REQUIRE(region_init(SMALL_REGION));
  owner_init(&owner);
  for (unsigned c = 0; c < CLASS_ZERO; c++) bins[c] = (region_bin_t){.block_size = class_info[c].size, .size_class = c};
  store_relaxed(&owner.thread, thread_self());
}

/* Takes all blocks of a new slab of the class into blocks[0..), filled. */
static unit_t *full_slab(unsigned c) {
  uint32_t count = class_info[c].blocks;
  if (take_blocks(&owner, c, &bins[c], blocks, count) != count) return NULL;
  for (uint32_t i = 0; i < count; i++) memset(blocks[i], FILL, class_info[c].size);
  return unit_head((uint32_t)region_unit(blocks[0]));
}

static bool is_filled(const char *block, size_t bytes) { return block[0] == FILL && memcmp(block, block + 1, bytes - 1) == 0; }

static uint64_t purges(void) { return fake_os_calls(FAKE_ONLY(FAKE_PURGE)); }

static size_t step(uint32_t aging) {
  uint32_t seen = 0;
  size_t purged = hole_step(false, &seen);
  CHECK_EQ(seen, aging);
  return purged;
}

static size_t step_now(void) {
  uint32_t unused = 0;
  return hole_step(true, &unused);
}

/* ---- when ---- */

TEST(a_slab_is_left_alone_until_nothing_happened_to_it_between_two_steps) {
  start_holes(4096);
  unsigned c = class_of(512);
  unit_t *slab = full_slab(c);
  REQUIRE(slab != NULL);
  CHECK_EQ(step(0), 0); /* full: there are no holes */
  give_blocks(&owner, &blocks[8], 16);
  CHECK_EQ(step(1), 0);
  give_blocks(&owner, &blocks[24], 8); /* the slab changed, so it starts to age again */
  CHECK_EQ(step(1), 0);
  void *block = NULL;
  CHECK_EQ(take_blocks(&owner, c, &bins[c], &block, 1), 1);
  CHECK_EQ(step(1), 0);
  CHECK_EQ(purges(), 0);
  CHECK_EQ(step(0), 2 * 4096); /* the first of the three pages has a block in use */
  CHECK_EQ(purges(), 1);
  CHECK_EQ(hole_bytes(), 2 * 4096);
  CHECK(is_filled(block, 512));
}

TEST(what_was_purged_is_not_purged_again) {
  start_holes(4096);
  REQUIRE(full_slab(class_of(512)) != NULL);
  give_blocks(&owner, &blocks[8], 16);
  CHECK_EQ(step(1), 0);
  CHECK_EQ(step(0), 2 * 4096);
  for (int i = 0; i < 4; i++) (void)hole_step(false, &(uint32_t){0});
  CHECK_EQ(step_now(), 0);
  CHECK_EQ(purges(), 1);
}

TEST(a_page_counts_again_after_a_block_of_it_was_out) {
  start_holes(4096);
  unsigned c = class_of(512);
  REQUIRE(full_slab(c) != NULL);
  give_blocks(&owner, &blocks[8], 24); /* pages 1 to 3 */
  unit_head((uint32_t)region_unit(blocks[0]))->returned = true;
  CHECK_EQ(step_now(), 3 * 4096);
  CHECK(!unit_head((uint32_t)region_unit(blocks[0]))->returned); /* otherwise a batch would bring the pages in */
  void *taken[9];
  CHECK_EQ(take_blocks(&owner, c, &bins[c], taken, 9), 9); /* page 1 and a block of page 2 */
  for (int i = 0; i < 9; i++) memset(taken[i], FILL, 512);
  give_blocks(&owner, taken, 9);
  CHECK_EQ(step_now(), 2 * 4096);
  CHECK_EQ(step_now(), 0);
}

TEST(much_that_is_free_makes_looking_worthwhile) {
  start_holes(4096);
  unsigned c = class_of(32768);
  CHECK(!(hole_bytes_since_look(&owner) > HOLE_WORTH));
  static void *held[200];
  uint32_t count = 0;
  while (count < 200) count += take_blocks(&owner, c, &bins[c], &held[count], 1);
  CHECK(!(hole_bytes_since_look(&owner) > HOLE_WORTH));
  for (uint32_t i = 0; i < 200; i += 2) give_blocks(&owner, &held[i], 1); /* 3.1 MiB */
  CHECK(!(hole_bytes_since_look(&owner) > HOLE_WORTH));
  for (uint32_t i = 1; i < 100; i += 8) give_blocks(&owner, &held[i], 1);
  CHECK_EQ((hole_bytes_since_look(&owner) > HOLE_WORTH), load_relaxed(&owner.free_bytes) > HOLE_WORTH);
  for (uint32_t i = 3; i < 200; i += 8) give_blocks(&owner, &held[i], 1);
  CHECK((hole_bytes_since_look(&owner) > HOLE_WORTH));
  (void)step_now();
  CHECK(!(hole_bytes_since_look(&owner) > HOLE_WORTH));
}

/* A large block counts as its units; a part passes no more units than it may. */
TEST(a_part_passes_large_blocks_and_finds_the_slab_behind) {
  start_holes(4096);
  void *large = large_alloc(4 * HOLE_PART_UNITS * HAK_UNIT, 1, SPAN_PLAIN);
  unit_t *slab = full_slab(class_of_request(64));
  REQUIRE(large != NULL && slab != NULL && unit_number(slab) == region_unit(large) + 4 * HOLE_PART_UNITS);
  give_blocks(&owner, blocks, slab_class(slab)->blocks - 1);
  CHECK_EQ(hole_round_part(true, 1), 0); /* the part stops at its limit */
  CHECK(hole_round_part(false, 1) > 0);
}

/* If a round is worthwhile, it takes as many parts as it needs to scan all slabs, and then ends. */
TEST(a_round_goes_on_until_all_slabs_were_looked_at) {
  enum { SLABS = 7 };
  start_holes(4096);
  static void *held[SLABS][BLOCKS_MOST];
  for (int i = 0; i < SLABS; i++) {
    REQUIRE(full_slab(class_of(512)) != NULL);
    memcpy(held[i], blocks, sizeof blocks);
  }
  for (int i = 0; i < SLABS; i++) {
    give_blocks(&owner, &held[i][8], 8);
    give_blocks(&owner, &held[i][64], 8);
  }
  CHECK_EQ(hole_round_part(true, 1), 2 * 2 * 4096); /* two slabs for each unit */
  CHECK_EQ(hole_round_part(false, 2), 4 * 2 * 4096);
  CHECK_EQ(hole_round_part(false, 2), 2 * 4096);
  for (int i = 0; i < SLABS; i++) give_blocks(&owner, &held[i][32], 8);
  CHECK_EQ(hole_round_part(false, 8), 0);
  CHECK_EQ(hole_round_part(true, 8), SLABS * 4096);
}

TEST(a_slab_whose_owner_is_at_work_waits) {
  start_holes(4096);
  REQUIRE(full_slab(class_of(512)) != NULL);
  give_blocks(&owner, &blocks[8], 16);
  lock_acquire(&owner.lock);
  CHECK_EQ(step_now(), 0);
  CHECK_EQ(step(0), 0);
  lock_release(&owner.lock);
  CHECK_EQ(step_now(), 2 * 4096);
  CHECK(!lock_is_mine(&owner.lock));
}

/* ---- what ---- */

static size_t page_now;
static uint8_t state[BLOCKS_MOST]; /* 1: in use, and filled */

/* Counts the whole pages on which no block is in use. */
static uint32_t free_pages(const unit_t *slab) {
  const class_info_t *info = slab_class(slab);
  size_t used = (size_t)info->blocks * info->size;
  uint32_t pages = 0;
  for (size_t at = 0; at < used; at += page_now) {
    bool is_free = true;
    for (uint32_t i = 0; i < info->blocks; i++) {
      size_t start = (size_t)i * info->size;
      is_free &= !(state[i] != 0 && start < at + page_now && start + info->size > at);
    }
    pages += is_free;
  }
  return pages;
}

/* Frees some blocks of a full slab; then the holes are purged, blocks in use keep their content, and all free bits return. */
static void check_class(unsigned c, uint32_t one_in) {
  const class_info_t *info = &class_info[c];
  unit_t *slab = full_slab(c);
  REQUIRE(slab != NULL);
  memset(state, 1, sizeof state);
  uint32_t freed = 0;
  for (uint32_t i = 0; i < info->blocks; i++) {
    if (unit_below(&seed, one_in) == 0 && i != info->blocks / 2) continue;
    if (i == info->blocks / 2) continue; /* this block holds the slab */
    state[i] = 0;
    give_blocks(&owner, &blocks[i], 1);
    freed++;
  }
  if (freed == 0) return;
  CHECK_EQ(step_now(), free_pages(slab) * page_now);
  CHECK_EQ(load_relaxed(&slab->free), freed);
  for (uint32_t i = 0; i < info->blocks; i++) {
    if (state[i] != 0) CHECK(is_filled(blocks[i], info->size));
  }
  uint32_t taken = 0;
  static void *again[BLOCKS_MOST];
  while (taken < freed) taken += take_blocks(&owner, c, &bins[c], &again[taken], freed - taken);
  for (uint32_t i = 0; i < freed; i++) {
    uint32_t index = class_block_at(c, (size_t)((char *)again[i] - (char *)blocks[0]));
    CHECK(index < info->blocks && again[i] == blocks[index] && state[index]++ == 0);
  }
  CHECK_EQ(slab->holes, 0);
}

static void check_every_class(size_t page) {
  start_holes(page);
  page_now = page;
  for (unsigned c = 0; c < CLASS_ZERO && check_failures() == 0; c++) {
    check_class(c, 8);
    check_class(c, 100);
    check_class(c, BLOCKS_MOST);
  }
}

TEST(the_whole_free_pages_of_any_class_go_and_nothing_else) { check_every_class(4096); }
TEST(the_same_with_pages_of_16_kib) { check_every_class(16384); }
TEST(the_same_with_pages_of_64_kib) { check_every_class(65536); }

TEST(purged_pages_read_as_zero_in_the_last_unit_too) {
  if (sysconf(_SC_PAGESIZE) > 4096) check_skip("the kernel purges no pages of 4 KiB");
  start_holes(4096);
  unsigned c = class_of(32768);
  CHECK_EQ(class_info[c].units, 4);
  unit_t *slab = full_slab(c);
  REQUIRE(slab != NULL);
  give_blocks(&owner, &blocks[3], 5);
  CHECK_EQ(step_now(), 5 * 32768);
  CHECK(slab->holes == UINT64_MAX << 24);
  CHECK(unit_is_zero(blocks[3], 5 * 32768));
  for (int i = 0; i < 3; i++) CHECK(is_filled(blocks[i], 32768));
  CHECK_EQ(purges(), 1);
}

TEST(a_new_slab_has_no_holes_of_an_old_one) {
  start_holes(4096);
  unsigned c = class_of(512);
  unit_t *slab = full_slab(c);
  REQUIRE(slab != NULL);
  give_blocks(&owner, blocks, class_info[c].blocks);
  CHECK_EQ(step_now(), HAK_UNIT);
  slab_release_empty(&owner);
  CHECK_EQ(load_relaxed(&slab->kind), UNIT_FREE);
  void *block = NULL;
  CHECK_EQ(take_blocks(&owner, c, &bins[c], &block, 1), 1);
  CHECK(block == blocks[0] && slab->holes == 0);
  CHECK_EQ(step_now(), HAK_UNIT - 4096);
}

TEST(a_superslab_with_holes_is_not_huge) {
  start_holes(4096);
  unit_t *slab = full_slab(class_of(512));
  REQUIRE(slab != NULL);
  _Atomic uint32_t *huge = &region.superslabs[unit_number(slab) / HAK_UNITS_PER_SUPERSLAB].huge;
  store_relaxed(huge, 1);
  uint64_t small = fake_os_made(false);
  give_blocks(&owner, &blocks[8], 8);
  CHECK_EQ(step_now(), 4096);
  CHECK_EQ(load_relaxed(huge), 0);
  CHECK_EQ(fake_os_made(false) - small, HAK_SUPERSLAB);
}

TEST(a_purge_that_fails_changes_nothing) {
  start_holes(4096);
  unit_t *slab = full_slab(class_of(512));
  REQUIRE(slab != NULL);
  give_blocks(&owner, &blocks[8], 8);
  give_blocks(&owner, &blocks[24], 8);
  fake_os_fail(FAKE_ONLY(FAKE_PURGE), 1, UINT64_MAX);
  CHECK_EQ(step_now(), 0);
  CHECK_EQ(purges(), 2); /* the holes behind may succeed */
  CHECK_EQ(slab->holes, 0);
  CHECK_EQ(hole_bytes(), 0);
  CHECK_EQ(load_relaxed(&slab->free), 16);
  CHECK(is_filled(blocks[8], 8 * 512));
  fake_os_fail_none();
  CHECK_EQ(step_now(), 2 * 4096);
}

/* As if the program had locked a page: here the second of pages 1 to 4. */
TEST(a_page_that_does_not_go_keeps_no_other) {
  start_holes(4096);
  unit_t *slab = full_slab(class_of(512));
  REQUIRE(slab != NULL);
  give_blocks(&owner, &blocks[8], 32);
  give_blocks(&owner, &blocks[48], 8);
  uint64_t calls = purges();
  fake_os_lock((char *)blocks[0] + 2 * 4096);
  CHECK_EQ(step_now(), 4 * 4096);
  CHECK_EQ(load_relaxed(&slab->holes), 1u << 1 | 1u << 3 | 1u << 4 | 1u << 6);
  CHECK_EQ(purges() - calls, 1 + 4 + 1);
  CHECK(is_filled(blocks[16], 8 * 512));
  if (sysconf(_SC_PAGESIZE) <= 4096) CHECK(unit_is_zero(blocks[24], 2 * 4096)); /* the kernel purges whole pages only */
  CHECK_EQ(load_relaxed(&slab->free), 40);
  CHECK_EQ(step_now(), 0); /* an explicit request tries the refused page again */
  CHECK_EQ(purges() - calls, 7);
  fake_os_lock(NULL);
  CHECK_EQ(step_now(), 4096);
}

TEST(only_who_asks_gets_a_locked_page_back) {
  start_holes(4096);
  REQUIRE(full_slab(class_of(512)) != NULL);
  give_blocks(&owner, &blocks[8], 32);
  fake_os_lock((char *)blocks[0] + 2 * 4096);
  fake_os_give_back_locked(true);
  CHECK_EQ(step(1), 0);
  CHECK_EQ(step(0), 3 * 4096);
  CHECK_EQ(step_now(), 4096);
}

TEST(a_page_that_did_not_go_is_asked_for_once_a_minute) {
  start_holes(4096);
  unsigned c = class_of(512);
  REQUIRE(full_slab(c) != NULL);
  give_blocks(&owner, &blocks[8], 8);
  fake_os_lock(blocks[8]);
  CHECK_EQ(step(1), 0);
  for (int i = 0; i < 10; i++) CHECK_EQ(step(0), 0);
  CHECK_EQ(purges(), 1);
  /* Even if the slab changes; new holes are purged. */
  give_blocks(&owner, &blocks[24], 8);
  CHECK_EQ(step(1), 0);
  CHECK_EQ(step(0), 4096);
  CHECK_EQ(purges(), 2);
  fake_os_pass_time(60000);
  for (int i = 0; i < 10; i++) CHECK_EQ(step(0), 0);
  CHECK_EQ(purges(), 3);
  fake_os_lock(NULL);
  fake_os_pass_time(60000);
  CHECK_EQ(step(0), 4096);
  fake_os_pass_time(60000);
  CHECK_EQ(step(0), 0);
  CHECK_EQ(purges(), 4);
  /* A slab that is made there later does not inherit the refusals. */
  fake_os_lock(blocks[0]);
  give_blocks(&owner, blocks, 8);
  CHECK_EQ(step_now(), 0);
  fake_os_lock(NULL);
  give_blocks(&owner, &blocks[16], 8);
  give_blocks(&owner, &blocks[32], class_info[c].blocks - 32);
  slab_release_empty(&owner);
  REQUIRE(full_slab(c) != NULL);
  give_blocks(&owner, blocks, 8);
  CHECK_EQ(step(1), 0);
  CHECK_EQ(step(0), 4096);
}

TEST(of_a_large_slab_that_is_all_locked_few_pages_are_asked_for) {
  start_holes(4096);
  unsigned c = class_of(32768);
  unit_t *slab = full_slab(c);
  REQUIRE(slab != NULL);
  give_blocks(&owner, &blocks[1], class_info[c].blocks - 1);
  fake_os_fail(FAKE_ONLY(FAKE_PURGE), 1, UINT64_MAX);
  CHECK_EQ(step(1), 0);
  CHECK_EQ(step(0), 0);
  CHECK_EQ(purges(), 1 + 16);
  void *block = NULL;
  CHECK_EQ(take_blocks(&owner, c, &bins[c], &block, 1), 1);
  give_blocks(&owner, &block, 1);
  CHECK_EQ(step(1), 0);
  CHECK_EQ(step(0), 0);
  CHECK_EQ(purges(), 1 + 16);
}

/* ---- meanwhile ---- */

static void *taken_meanwhile;
static unsigned class_meanwhile;

static void take_one(void *start) {
  (void)start;
  fake_os_during(FAKE_PURGE, NULL);
  CHECK(lock_try(&owner.lock)); /* the lock is free while the kernel works */
  CHECK_EQ(take_blocks(&owner, class_meanwhile, &bins[class_meanwhile], &taken_meanwhile, 1), 1);
  lock_release(&owner.lock);
}

/* All blocks of the class's only slab are out of it for the moment; that does not mean that memory is exhausted. */
TEST(a_slab_that_is_all_holes_is_not_out_of_memory) {
  start_holes(4096);
  class_meanwhile = class_of(512);
  unit_t *slab = full_slab(class_meanwhile);
  REQUIRE(slab != NULL);
  give_blocks(&owner, blocks, class_info[class_meanwhile].blocks);
  fake_os_during(FAKE_PURGE, take_one);
  CHECK_EQ(step_now(), HAK_UNIT + HAK_UNIT - 4096); /* and the holes of the new slab */
  REQUIRE(taken_meanwhile != NULL);
  CHECK(region_unit(taken_meanwhile) != unit_number(slab));
  give_blocks(&owner, &taken_meanwhile, 1);
  slab_release_empty(&owner);
  CHECK_EQ(ledger_census().free_units, units_mapped());
}

static uint32_t held_meanwhile;

static void step_too(void *start) {
  (void)start;
  fake_os_during(FAKE_PURGE, NULL);
  held_meanwhile = owner.held.unit;
  CHECK_EQ(step_now(), 0);
  CHECK(owner.held.units != 0 && owner.held.unit == held_meanwhile);
}

/* If a process forks while an owner has two holes, the child finds only one of them. */
TEST(an_owner_has_one_hole_at_a_time) {
  start_holes(4096);
  unit_t *first = full_slab(class_of(512));
  REQUIRE(first != NULL);
  give_blocks(&owner, &blocks[8], 8);
  unit_t *second = full_slab(class_of(1024));
  REQUIRE(second != NULL);
  give_blocks(&owner, &blocks[4], 4);
  fake_os_during(FAKE_PURGE, step_too);
  CHECK_EQ(step_now(), 2 * 4096); /* the second hole comes after the first */
  CHECK(held_meanwhile == unit_number(first) || held_meanwhile == unit_number(second));
  CHECK_EQ(owner.held.units, 0);
}

static unit_t *beside[2];
static _Atomic bool beside_ended;
static pthread_t beside_thread;

static void *ask_beside(void *unused) {
  (void)step_now();
  CHECK(load_relaxed(&beside[0]->holes) != 0 && load_relaxed(&beside[1]->holes) != 0);
  store_release(&beside_ended, true);
  return unused;
}

/* Waits until the other thread has finished, which is immediately if it does not wait. */
static void begin_beside(void *start) {
  (void)start;
  fake_os_during(FAKE_PURGE, NULL);
  REQUIRE(pthread_create(&beside_thread, NULL, ask_beside, NULL) == 0);
  for (int ms = 0; ms < 200 && !load_acquire(&beside_ended); ms++) os_sleep_us(1000);
  CHECK(!load_acquire(&beside_ended));
}

/* As if malloc_trim were called while the keeper is in the kernel, or has lost its processor. */
TEST(who_asks_waits_for_another_thread_that_is_at_a_hole) {
  start_holes(4096);
  REQUIRE((beside[0] = full_slab(class_of(512))) != NULL);
  give_blocks(&owner, &blocks[8], 8);
  REQUIRE((beside[1] = full_slab(class_of(1024))) != NULL);
  give_blocks(&owner, &blocks[4], 4);
  CHECK_EQ(step(2), 0);
  fake_os_during(FAKE_PURGE, begin_beside);
  (void)step(0); /* the first hole, and perhaps the second */
  REQUIRE(pthread_join(beside_thread, NULL) == 0);
  CHECK_EQ(owner.held.units, 0);
}

TEST(blocks_outside_of_the_holes_can_be_taken_meanwhile) {
  start_holes(4096);
  class_meanwhile = class_of(512);
  unit_t *slab = full_slab(class_meanwhile);
  REQUIRE(slab != NULL);
  give_blocks(&owner, &blocks[0], 1);
  give_blocks(&owner, &blocks[8], 16);
  fake_os_during(FAKE_PURGE, take_one);
  CHECK_EQ(step_now(), 2 * 4096);
  CHECK(taken_meanwhile == blocks[0] && is_filled(blocks[0], 512));
  CHECK_EQ(load_relaxed(&slab->free), 16);
}

static uint32_t left_to_give;
static void give_the_rest(void *start) {
  (void)start;
  fake_os_during(FAKE_PURGE, NULL);
  REQUIRE(lock_try(&owner.lock));
  give_blocks(&owner, blocks, left_to_give);
  lock_release(&owner.lock);
}

TEST(a_slab_whose_last_block_comes_back_meanwhile_ends) {
  start_holes(4096);
  unsigned c = class_of(512);
  unit_t *slab = full_slab(c);
  void *other;
  REQUIRE(slab != NULL && take_blocks(&owner, c, &bins[c], &other, 1) == 1);
  left_to_give = 8;
  give_blocks(&owner, &blocks[8], class_info[c].blocks - 8);
  fake_os_during(FAKE_PURGE, give_the_rest);
  uint32_t unused = 0;
  CHECK_EQ(hole_step(true, &unused) % 4096, 0);
  CHECK_EQ(load_relaxed(&slab->kind), UNIT_FREE);
  CHECK(unit_is_free(unit_number(slab)));
  CHECK_EQ(load_relaxed(&owner.slab_count[c]), 1);
}

/* A fork may come when blocks_return has ended the slab, and before it notes that nothing is held: then the units may be another's. */
TEST(a_hole_of_a_slab_that_has_ended_is_in_nobody_elses_slab) {
  static slab_owner_t another;
  start_holes(4096);
  owner_init(&another);
  unsigned c = class_of(512);
  unit_t *slab;
  REQUIRE(lock_try(&another.lock));
  REQUIRE(take_blocks(&another, c, &bins[c], blocks, class_info[c].blocks) == class_info[c].blocks);
  lock_release(&another.lock);
  slab = unit_head((uint32_t)region_unit(blocks[0]));
  owner.held = (slab_held_t){.unit = unit_number(slab), .first = 8, .last = 15, .units = 1, .thread = thread_self()};
  hole_recover(&owner);
  CHECK_EQ(load_relaxed(region_bits(region.free_bits, unit_number(slab), 0)), 0);
  CHECK_EQ(owner.held.units, 0);
  store_relaxed(&slab->kind, (uint8_t)UNIT_INSIDE); /* or part of another span */
  store_relaxed(&remote_of(unit_number(slab))->owner, &owner);
  owner.held.units = 1;
  hole_recover(&owner);
  CHECK_EQ(load_relaxed(region_bits(region.free_bits, unit_number(slab), 0)), 0);
  store_relaxed(&slab->kind, (uint8_t)UNIT_SLAB); /* its own, which is still there */
  owner.held.units = 1;
  hole_recover(&owner);
  CHECK_EQ(load_relaxed(region_bits(region.free_bits, unit_number(slab), 0)), UINT64_C(0xff00));
}

/* ---- threads ---- */

#if defined(RACY_ATOMIC) /* ThreadSanitizer */
enum { ROUNDS = 10000 };
#else
enum { ROUNDS = 40000 };
#endif
enum { WORKERS = 3, HELD = 12, CLASSES = 2 }; /* few blocks of few classes, so that slabs come and go */
static slab_owner_t owners[WORKERS];
static _Atomic bool ended;

static void *take_and_give(void *number) {
  slab_owner_t *mine = &owners[(uintptr_t)number];
  uint64_t state_of_random = unit_seed() + (uintptr_t)number;
  static _Thread_local char *held[HELD];
  static _Thread_local unsigned class_of_held[HELD];
  char mark = (char)((uintptr_t)number + 1);
  store_relaxed(&mine->thread, thread_self());
  for (int round = 0; round < ROUNDS && check_failures() == 0; round++) {
    uint32_t n = unit_below(&state_of_random, HELD);
    lock_acquire(&mine->lock);
    if (held[n] == NULL) {
      class_of_held[n] = CLASS_ZERO - 1 - unit_below(&state_of_random, CLASSES);
      CHECK_EQ(take_blocks(mine, class_of_held[n], &bins[class_of_held[n]], (void **)&held[n], 1), 1);
      lock_release(&mine->lock);
      memset(held[n], mark, class_info[class_of_held[n]].size);
      continue;
    }
    lock_release(&mine->lock);
    CHECK(held[n][0] == mark && memcmp(held[n], held[n] + 1, class_info[class_of_held[n]].size - 1) == 0);
    lock_acquire(&mine->lock);
    give_blocks(mine, (void **)&held[n], 1);
    lock_release(&mine->lock);
    held[n] = NULL;
  }
  for (uint32_t n = 0; n < HELD; n++) {
    lock_acquire(&mine->lock);
    if (held[n] != NULL) give_blocks(mine, (void **)&held[n], 1);
    lock_release(&mine->lock);
  }
  return NULL;
}

static void *look_for_holes(void *unused) {
  uint32_t aging = 0;
  for (bool now = false; !load_relaxed(&ended); now = !now) (void)hole_step(now, &aging);
  return unused;
}

/* Long enough for the workers to make some calls. */
static void nap(void *start) {
  (void)start;
  os_sleep_us(20);
}

TEST(blocks_survive_while_holes_are_purged_around_them) {
  start_holes(4096);
  for (int i = 0; i < WORKERS; i++) owner_init(&owners[i]);
  pthread_t workers[WORKERS], looker;
  fake_os_during(FAKE_PURGE, nap);
  REQUIRE(pthread_create(&looker, NULL, look_for_holes, NULL) == 0);
  for (uintptr_t i = 0; i < WORKERS; i++) REQUIRE(pthread_create(&workers[i], NULL, take_and_give, (void *)i) == 0);
  for (int i = 0; i < WORKERS; i++) pthread_join(workers[i], NULL);
  store_relaxed(&ended, true);
  pthread_join(looker, NULL);
  CHECK(hole_bytes() > 0);
  for (int i = 0; i < WORKERS; i++) {
    slab_release_empty(&owners[i]);
    CHECK_EQ(load_relaxed(&owners[i].free_bytes), 0);
  }
  CHECK_EQ(ledger_census().free_units, units_mapped());
}
