/* remote.c - frees by threads that do not own the slab, first step by step in
 * one thread that plays both parts, then with real threads. */
#include "slab/remote.h"

#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>

#include "base/thread.h"
#include "fake_os.h"
#include "kit/options.h"
#include "slab/batch.h"
#include "slab/hole.h"
#include "slabs.h"
#include "space.h"
#include "space/ledger.h"
#include "space/span.h"
#include "unit.h"

enum { HELP_AT_MOST = 200, HELP_AT_LEAST = 64 }; /* slabs queued: by the first number a freer must have helped; from the second it may */

static slab_owner_t owner;
static region_bin_t bins[CLASS_COUNT];
static uint64_t seed;

static void start_remote(void) {
  seed = unit_seed();
  CHECK(option_set(OPTION_decay_ms, -1));
  REQUIRE(region_init(SMALL_REGION));
  owner_init(&owner);
  for (unsigned c = 0; c < CLASS_ZERO; c++) bins[c] = (region_bin_t){.block_size = class_info[c].size, .size_class = c};
  store_relaxed(&owner.thread, (uintptr_t)0x1230); /* another thread's number: this thread plays the freer */
}

static unit_t *slab_holding(const void *block) { return unit_head((uint32_t)region_unit(block)); }

/* Frees as a thread does that does not own the block; returns false if the block is not live. */
static bool remotely_freed(void *block) {
  uint32_t unit = (uint32_t)region_unit(block);
  if (!region_clear_live(block)) return false;
  unit_t *unannounced = remote_mark(racy_load(region_bin(region.live, unit)), unit, block);
  if (unannounced != NULL) remote_announce(unannounced);
  return true;
}

static void free_remotely(void *block) { CHECK(remotely_freed(block)); }

/* Takes all blocks of one slab of the class, live. */
static uint32_t take_slab(unsigned c, void **blocks) {
  uint32_t count = class_info[c].blocks;
  if (take_blocks(&owner, c, &bins[c], blocks, count) != count) return 0;
  for (uint32_t i = 0; i < count; i++) region_set_live(blocks[i]);
  return count;
}

static uint32_t free_in(const unit_t *slab) { return load_relaxed(&slab->free); }

/* Frees as a thread does that finds the slab queued although the owner has collected it by then. */
static void free_unannounced(void *block) {
  uint32_t unit = (uint32_t)region_unit(block);
  CHECK(region_clear_live(block));
  (void)!remote_mark(racy_load(region_bin(region.live, unit)), unit, block);
}

/* The first word of the slab's marks, and of its remote bits. */
static uint64_t marks_of(const unit_t *slab) { return load_relaxed(region_marks(unit_number(slab), 0)); }
static uint64_t remote_bits_of(const unit_t *slab) { return load_relaxed(region_bits(region.remote_bits, unit_number(slab), 0)); }

/* ---- one freer ---- */

TEST(a_remote_free_waits_until_the_owner_collects) {
  start_remote();
  for (unsigned c = 0; c < CLASS_ZERO; c++) {
    void *blocks[4096];
    uint32_t count = take_slab(c, blocks);
    REQUIRE(count > 0);
    unit_t *slab = slab_holding(blocks[0]);
    uint64_t before = load_relaxed(&owner.remote_frees);
    for (uint32_t i = 0; i < count; i += 2) {
      free_remotely(blocks[i]);
      CHECK(!region_is_live(blocks[i]));
    }
    CHECK_EQ(free_in(slab), 0);
    CHECK_EQ(remote_waiting(slab), (count + 1) / 2);
    CHECK_EQ(load_relaxed(&owner.pending[c]), unit_number(slab) + 1);
    remote_collect(&owner);
    CHECK_EQ(free_in(slab), (count + 1) / 2);
    CHECK_EQ(remote_waiting(slab), 0);
    CHECK_EQ(load_relaxed(&owner.pending[c]), 0);
    CHECK_EQ(load_relaxed(&owner.remote_frees) - before, (count + 1) / 2);
  }
}

TEST(the_next_miss_of_the_owner_collects) {
  start_remote();
  void *blocks[4096], *again[4096];
  uint32_t count = take_slab(3, blocks);
  for (uint32_t i = 0; i < count; i++) free_remotely(blocks[i]);
  CHECK_EQ(take_blocks(&owner, 3, &bins[3], again, count), count);
  CHECK_EQ(load_relaxed(&owner.slab_count[3]), 1);
  for (uint32_t i = 0; i < count; i++) CHECK(again[i] == blocks[i]);
}

TEST(a_miss_of_one_class_leaves_the_others_until_memory_would_grow) {
  start_remote();
  void *blocks[4096], *other[4096], *again[4096];
  uint32_t count = take_slab(3, blocks), others = take_slab(5, other);
  REQUIRE(count > 0 && others > 0);
  for (uint32_t i = 0; i < count / 2; i++) free_remotely(blocks[i]);
  for (uint32_t i = 0; i < others; i++) free_remotely(other[i]);
  CHECK_EQ(take_blocks(&owner, 3, &bins[3], again, count / 2), count / 2);
  CHECK_EQ(remote_waiting(slab_holding(other[0])), others);
  CHECK_EQ(take_blocks(&owner, 3, &bins[3], again, 1), 1); /* this takes a new slab, but first collects everything that waits */
  CHECK_EQ(remote_waiting(slab_holding(other[0])), 0);
  CHECK_EQ(free_in(slab_holding(other[0])), others);
}

/* If few blocks come back, the owner does not collect for each of them; later it takes all that have come together. */
TEST(who_frees_gets_ahead) {
  enum { FEW = 5 };
  start_remote();
  void *blocks[4096], *more[4096], *other[4096];
  uint32_t count = take_slab(3, blocks), others = take_slab(5, other);
  REQUIRE(count > 8 * FEW && others > 0);
  for (uint32_t i = 0; i < FEW; i++) free_remotely(blocks[i]);
  for (uint32_t i = 0; i < others; i++) free_remotely(other[i]);
  uint64_t before = batch_lead_slabs();
  CHECK_EQ(take_blocks(&owner, 3, &bins[3], more, 1), 1);
  CHECK_EQ(batch_lead_slabs(), before + 1);
  CHECK_EQ(load_relaxed(&owner.slab_count[3]), 2);
  CHECK_EQ(free_in(slab_holding(other[0])), others); /* everything that waited was collected first */
  for (uint32_t i = FEW; i < count; i++) free_remotely(blocks[i]);
  CHECK_EQ(take_blocks(&owner, 3, &bins[3], more, count + FEW - 1), count + FEW - 1);
  CHECK_EQ(remote_waiting(slab_holding(blocks[0])), count - FEW);
  CHECK_EQ(take_blocks(&owner, 3, &bins[3], more, count - FEW), count - FEW);
  CHECK_EQ(batch_lead_slabs(), before + 1);
  CHECK_EQ(load_relaxed(&owner.slab_count[3]), 2);
}

TEST(nobody_gets_ahead_of_enough_or_unless_wanted) {
  start_remote();
  void *blocks[4096], *more[4096];
  uint32_t count = take_slab(3, blocks);
  REQUIRE(count > 8);
  for (uint32_t i = 0; i < count / 4; i++) free_remotely(blocks[i]);
  CHECK_EQ(take_blocks(&owner, 3, &bins[3], more, count / 4), count / 4);
  CHECK_EQ(load_relaxed(&owner.slab_count[3]), 1);
  CHECK(option_set(OPTION_lead, 0));
  free_remotely(blocks[count - 1]);
  CHECK_EQ(take_blocks(&owner, 3, &bins[3], more, 1), 1);
  CHECK_EQ(load_relaxed(&owner.slab_count[3]), 1);
  CHECK_EQ(batch_lead_slabs(), 0);
}

TEST(a_slab_is_queued_once_for_many_frees_and_again_after_a_collection) {
  start_remote();
  void *blocks[4096], *other[4096];
  uint32_t count = take_slab(0, blocks);
  REQUIRE(count > 3 && take_slab(1, other) > 0);
  unit_t *slab = slab_holding(blocks[0]);
  for (uint32_t i = 0; i < 3; i++) free_remotely(blocks[i]);
  CHECK_EQ(load_relaxed(&owner.pending_count), 1);
  free_remotely(other[0]);
  CHECK_EQ(load_relaxed(&owner.pending_count), 2);
  remote_collect(&owner);
  CHECK_EQ(load_relaxed(&owner.pending_count), 0);
  free_remotely(blocks[3]);
  CHECK_EQ(load_relaxed(&owner.pending_count), 1);
  CHECK_EQ(remote_waiting(slab), 1);
}

TEST(a_queued_slab_outlives_its_last_block) {
  start_remote();
  void *first[4096], *second[4096];
  uint32_t count = take_slab(2, first);
  REQUIRE(count > 0 && take_slab(2, second) == count);
  unit_t *slab = slab_holding(first[0]);
  /* A second slab with room, so that only the queue keeps the first. */
  give_blocks(&owner, second, 1);
  free_remotely(first[0]);
  give_blocks(&owner, &first[1], count - 1);
  CHECK_EQ(load_relaxed(&slab->kind), UNIT_SLAB);
  slab_release_empty(&owner);
  CHECK_EQ(load_relaxed(&slab->kind), UNIT_SLAB);
  remote_collect(&owner);
  CHECK_EQ(load_relaxed(&slab->kind), UNIT_FREE);
  CHECK(unit_is_free(unit_number(slab)));
  CHECK_EQ(load_relaxed(&owner.slab_count[2]), 1);
}

/* The owner may take a freer's mark before the freer announces it: then the slab
 * is wholly free and still queued. */
TEST(a_wholly_free_slab_stays_while_it_is_queued) {
  start_remote();
  void *first[4096], *second[4096];
  uint32_t count = take_slab(2, first);
  REQUIRE(count > 0 && take_slab(2, second) == count);
  give_blocks(&owner, second, 1);
  unit_t *slab = slab_holding(first[0]);
  free_remotely(first[0]);
  store_relaxed(region_marks_seen(unit_number(slab), 0), marks_of(slab));
  give_blocks(&owner, first, count);
  slab_release_empty(&owner);
  CHECK_EQ(load_relaxed(&slab->kind), UNIT_SLAB);
  remote_collect(&owner);
  slab_release_empty(&owner);
  CHECK_EQ(load_relaxed(&slab->kind), UNIT_FREE);
}

TEST(a_collection_that_empties_many_slabs_gives_them_back) {
  start_remote();
  static void *blocks[20][4096];
  uint32_t count = 0;
  for (int i = 0; i < 20; i++) count = take_slab(8, blocks[i]);
  for (int i = 0; i < 20; i++) {
    for (uint32_t n = 0; n < count; n++) free_remotely(blocks[i][n]);
  }
  remote_collect(&owner);
  CHECK_EQ(load_relaxed(&owner.slab_count[8]), 1);
  slab_release_empty(&owner);
  CHECK_EQ(ledger_census().free_units, units_mapped());
}

TEST(recovery_brings_in_what_nobody_announces) {
  start_remote();
  void *blocks[4096];
  uint32_t count = take_slab(4, blocks);
  unit_t *slab = slab_holding(blocks[0]);
  for (uint32_t i = 0; i < count / 2; i++) free_remotely(blocks[i]);
  owner_forget(&owner, true); /* as in a fork */
  slab_relist(&owner, slab, racy_load(region_bin(region.live, unit_number(slab))));
  remote_recover(&owner, slab);
  CHECK_EQ(free_in(slab), count / 2);
  free_remotely(blocks[count - 1]); /* the slab can be queued again */
  CHECK(load_relaxed(&owner.pending[4]) != 0);
}

/* ---- marks ---- */

static void *free_one(void *block) {
  free_remotely(block);
  return NULL;
}

static void free_by_another(void *block) {
  pthread_t thread;
  REQUIRE(pthread_create(&thread, NULL, free_one, block) == 0);
  pthread_join(thread, NULL);
}

TEST(the_first_freer_marks_and_the_others_set_bits) {
  start_remote();
  void *blocks[4096];
  REQUIRE(take_slab(1, blocks) > 3);
  const unit_t *slab = slab_holding(blocks[0]);
  CHECK(!load_relaxed(&slab->remote));
  free_remotely(blocks[0]);
  CHECK_EQ(load_relaxed(&remote_of(unit_number(slab))->freers), thread_self());
  free_by_another(blocks[1]);
  free_remotely(blocks[2]);
  CHECK_EQ(load_relaxed(&remote_of(unit_number(slab))->freers), thread_self() | REMOTE_OTHERS);
  CHECK(load_relaxed(&slab->remote));
  CHECK_EQ(marks_of(slab), 5);
  CHECK_EQ(remote_bits_of(slab), 2);
  CHECK_EQ(remote_waiting(slab), 3);
  remote_collect(&owner);
  CHECK_EQ(free_in(slab), 3);
  CHECK_EQ(remote_waiting(slab), 0);
  CHECK_EQ(remote_bits_of(slab), 0);
}

TEST(a_block_is_marked_as_often_as_it_is_freed) {
  start_remote();
  void *blocks[4096], *again[2];
  REQUIRE(take_slab(1, blocks) > 2);
  const unit_t *slab = slab_holding(blocks[0]);
  for (int round = 0; round < 5; round++) {
    free_remotely(blocks[0]);
    if (round % 2 == 0) free_remotely(blocks[1]);
    CHECK_EQ(remote_waiting(slab), round % 2 == 0 ? 2 : 1);
    remote_collect(&owner);
    CHECK_EQ(free_in(slab), round % 2 == 0 ? 2 : 1);
    uint32_t count = round % 2 == 0 ? 2 : 1;
    CHECK_EQ(take_blocks(&owner, 1, &bins[1], again, count), count);
    for (uint32_t i = 0; i < count; i++) region_set_live(again[i]);
  }
}

/* Marks of so many blocks would lie in the next slab's part of the zone. */
TEST(a_slab_of_the_smallest_blocks_has_no_marks) {
  start_remote();
  void *blocks[4096];
  uint32_t count = take_slab(0, blocks);
  REQUIRE(count > REGION_MARKED_BLOCKS);
  const unit_t *slab = slab_holding(blocks[0]);
  free_remotely(blocks[0]);
  free_remotely(blocks[count - 1]);
  CHECK_EQ(remote_waiting(slab), 2);
  CHECK_EQ(remote_bits_of(slab), 1);
  CHECK_EQ(load_relaxed(&remote_of(unit_number(slab))->freers), REMOTE_OTHERS);
  remote_collect(&owner);
  CHECK_EQ(free_in(slab), 2);
  CHECK_EQ(remote_waiting(slab), 0);
}

/* Whether a batch of blocks of this size writes to them, if the pages of the slab have gone, and all of its blocks, or half of them, were
 * freed by other threads. */
static bool batch_writes(size_t size, bool all_from_others, uint32_t count) {
  unsigned c = class_of(size);
  void *blocks[4096];
  uint32_t all = take_slab(c, blocks), own = all_from_others ? 0 : all / 2;
  CHECK(all > 0);
  void *slab = region_address(unit_number(slab_holding(blocks[0])));
  memset(blocks[0], 1, size);
  for (uint32_t i = 0; i < own; i++) region_clear_live(blocks[i]);
  give_blocks(&owner, blocks, own);
  for (uint32_t i = own; i < all; i++) free_remotely(blocks[i]);
  remote_collect(&owner);
  CHECK(free_in(slab_holding(slab)) == all && madvise(slab, HAK_UNIT, MADV_DONTNEED) == 0);
  CHECK_EQ(batch_take(&owner, c, &bins[c], blocks, count), count);
  unsigned char there[HAK_UNIT / 4096];
  CHECK(mincore(slab, HAK_UNIT, there) == 0);
  return there[0] & 1;
}

TEST(blocks_that_others_alone_have_freed_are_fetched) {
  start_remote();
  CHECK(batch_writes(64, true, 8));
  CHECK(batch_writes(1024, true, 2));
  CHECK(!batch_writes(80, true, 1));
  CHECK(!batch_writes(1280, true, 8));
  CHECK(!batch_writes(128, false, 8));
}

TEST(fetched_blocks_stay_as_they_are) {
  start_remote();
  void *blocks[4096];
  uint32_t count = take_slab(3, blocks);
  for (uint32_t i = 0; i < count; i++) memset(blocks[i], (int)i, 64), free_remotely(blocks[i]);
  CHECK_EQ(take_blocks(&owner, 3, &bins[3], blocks, count), count);
  CHECK(slab_holding(blocks[0])->returned);
  for (uint32_t i = 0; i < count; i++) CHECK(((uint8_t *)blocks[i])[0] == (uint8_t)i && memcmp(blocks[i], (char *)blocks[i] + 1, 63) == 0);
}

/* The marks are not cleared; they equal the owner's copy. */
TEST(a_slab_begins_with_the_marks_of_the_one_before) {
  start_remote();
  void *first[4096], *second[4096];
  uint32_t count = take_slab(2, first);
  REQUIRE(count > 0);
  unit_t *slab = slab_holding(first[0]);
  for (uint32_t i = 0; i < count; i++) free_remotely(first[i]);
  remote_collect(&owner);
  slab_release_empty(&owner);
  CHECK_EQ(load_relaxed(&slab->kind), UNIT_FREE);
  uint32_t others = take_slab(3, second);
  REQUIRE(others > 0 && slab_holding(second[0]) == slab);
  CHECK(marks_of(slab) != 0 && !load_relaxed(&slab->remote));
  CHECK_EQ(load_relaxed(&remote_of(unit_number(slab))->freers), 0);
  CHECK_EQ(remote_waiting(slab), 0);
  for (uint32_t i = 0; i < others; i += 2) free_remotely(second[i]);
  remote_collect(&owner);
  CHECK_EQ(free_in(slab), (others + 1) / 2);
}

TEST(what_nobody_announces_is_found_by_a_look) {
  start_remote();
  void *blocks[4096];
  uint32_t count = take_slab(3, blocks);
  REQUIRE(count > 3);
  const unit_t *slab = slab_holding(blocks[0]);
  free_unannounced(blocks[0]);
  remote_collect_all(&owner);
  CHECK_EQ(remote_waiting(slab), 1);
  remote_look_at_all(&owner);
  CHECK_EQ(remote_waiting(slab), 0);
  CHECK_EQ(free_in(slab), 1);
  CHECK(!slab->listed_full);
  free_unannounced(blocks[1]);
  uint32_t aging = 0;
  (void)hole_step(false, &aging);
  CHECK_EQ(free_in(slab), 2);
  free_unannounced(blocks[2]);
  free_remotely(blocks[3]); /* announces both blocks */
  remote_collect(&owner);
  CHECK_EQ(free_in(slab), 4);
}

TEST(the_last_block_of_an_orphans_slab_is_found_by_a_look) {
  start_remote();
  void *blocks[4096];
  for (int by_step = 0; by_step < 2; by_step++) {
    uint32_t count = take_slab(6, blocks), aging = 0;
    REQUIRE(count > 1);
    owner.orphan = true;
    for (uint32_t i = 0; i < count; i++) free_unannounced(blocks[i]);
    if (by_step) (void)hole_step(false, &aging);
    else remote_look_at_all(&owner);
    CHECK_EQ(load_relaxed(&owner.slab_count[6]), 0);
    owner.orphan = false;
  }
  CHECK_EQ(ledger_census().free_units, units_mapped());
}

/* ---- owners that do not collect ---- */

/* The slab was queued for an earlier slab in the same unit, or a fork's repair checks all slabs. */
TEST(an_orphans_full_slab_stays_full_if_nothing_has_come) {
  start_remote();
  void *blocks[4096];
  REQUIRE(take_slab(3, blocks) > 0);
  unit_t *slab = slab_holding(blocks[0]);
  owner.orphan = true;
  remote_announce(slab);
  remote_collect_all(&owner);
  CHECK(slab->listed_full && owner.full[3].first == unit_number(slab) && owner.partial[3].first == UNIT_NONE);
}

TEST(an_orphans_slabs_go_back_with_their_last_block) {
  start_remote();
  void *blocks[4096];
  uint32_t count = take_slab(6, blocks);
  owner.orphan = true;
  store_relaxed(&owner.thread, 0);
  for (uint32_t i = 0; i < count; i++) {
    CHECK_EQ(load_relaxed(&owner.slab_count[6]), 1);
    free_remotely(blocks[i]);
    CHECK_EQ(load_relaxed(&owner.pending[6]), 0);
  }
  CHECK_EQ(load_relaxed(&owner.slab_count[6]), 0);
  CHECK_EQ(ledger_census().free_units, units_mapped());
}

TEST(an_idle_owner_is_helped_before_long) {
  start_remote();
  unsigned c = class_of(32768);
  static void *blocks[HELP_AT_MOST][8];
  for (int i = 0; i < HELP_AT_MOST; i++) REQUIRE(take_slab(c, blocks[i]) > 0);
  for (int i = 0; i < HELP_AT_MOST; i++) {
    for (uint32_t n = 0; n < class_info[c].blocks; n++) free_remotely(blocks[i][n]);
  }
  CHECK(load_relaxed(&owner.slab_count[c]) < HELP_AT_MOST / 2);
}

/* Few waiting slabs are left alone: to collect each immediately would cost the freers most of their time. But help comes earlier than for a
 * thread. */
TEST(an_owner_of_many_is_helped_sooner) {
  start_remote();
  store_relaxed(&owner.thread, OWNER_OF_MANY);
  unsigned c = class_of(32768);
  static void *blocks[HELP_AT_LEAST][8];
  for (int i = 0; i < HELP_AT_LEAST; i++) REQUIRE(take_slab(c, blocks[i]) > 0);
  free_remotely(blocks[0][0]);
  CHECK_EQ(load_relaxed(&owner.pending_count), 1);
  CHECK_EQ(remote_waiting(slab_holding(blocks[0][0])), 1);
  for (int i = 1; i < HELP_AT_LEAST; i++) free_remotely(blocks[i][0]);
  CHECK(load_relaxed(&owner.pending_count) < HELP_AT_LEAST / 4);
  CHECK_EQ(load_relaxed(&owner.lock.holder), 0);
}

TEST(an_owner_at_work_is_left_alone) {
  start_remote();
  void *blocks[4096];
  uint32_t count = take_slab(6, blocks);
  owner.orphan = true;
  store_relaxed(&owner.thread, 0);
  lock_acquire(&owner.lock); /* a thread is at work there */
  for (uint32_t i = 0; i < count; i++) free_remotely(blocks[i]);
  CHECK_EQ(remote_waiting(slab_holding(blocks[0])), count);
  CHECK_EQ(load_relaxed(&owner.slab_count[6]), 1);
  owner_unlock(&owner); /* no other thread will check */
  CHECK_EQ(load_relaxed(&owner.lock.holder), 0);
  CHECK_EQ(load_relaxed(&owner.pending[6]), 0);
  CHECK_EQ(load_relaxed(&owner.slab_count[6]), 0);
  CHECK_EQ(ledger_census().free_units, units_mapped());
}

/* Each announcement collects more slabs than it has queued, but only a few. */
TEST(the_queue_of_an_idle_owner_shrinks) {
  start_remote();
  unsigned c = class_of(32768);
  static void *blocks[HELP_AT_MOST][8], *later[HELP_AT_MOST][8];
  for (int i = 0; i < HELP_AT_MOST; i++) REQUIRE(take_slab(c, blocks[i]) > 0 && take_slab(c, later[i]) > 0);
  lock_acquire(&owner.lock); /* another thread helps, and is slow */
  for (int i = 0; i < HELP_AT_MOST; i++) {
    for (uint32_t n = 0; n < class_info[c].blocks; n++) free_remotely(blocks[i][n]);
  }
  owner_unlock(&owner);
  int32_t queued = load_relaxed(&owner.pending_count);
  CHECK_EQ(queued, HELP_AT_MOST);
  int calls = 0;
  for (; queued >= HELP_AT_LEAST && calls < HELP_AT_MOST; calls++) {
    free_remotely(later[calls][0]);
    CHECK(load_relaxed(&owner.pending_count) < queued && load_relaxed(&owner.pending_count) >= queued - REMOTE_COLLECT_MOST);
    queued = load_relaxed(&owner.pending_count);
  }
  CHECK(queued < HELP_AT_LEAST && calls > 1);
  CHECK_EQ(load_relaxed(&owner.lock.holder), 0);
  remote_collect_all(&owner);
  CHECK_EQ(load_relaxed(&owner.pending_count), 0);
}

/* Below the number at which others help, a sleeping thread would keep these blocks for good. */
TEST(the_keeper_is_told_of_what_waits_for_an_owner_that_lags) {
  start_remote();
  unsigned c = class_of(32768);
  uint32_t slabs = (uint32_t)(REMOTE_MUCH_BYTES / HAK_UNIT) / class_info[c].units;
  static void *blocks[REMOTE_MUCH_BYTES / HAK_UNIT][8];
  for (uint32_t i = 0; i < slabs; i++) REQUIRE(take_slab(c, blocks[i]) > 0);
  for (uint32_t i = 0; i < slabs; i++) { /* the owner collects: no block waits for long */
    free_remotely(blocks[i][0]);
    remote_collect(&owner);
  }
  CHECK(!remote_much_waits());
  for (uint32_t i = 0; i < slabs; i++) {
    CHECK(!remote_much_waits());
    free_remotely(blocks[i][1]);
  }
  CHECK(remote_much_waits() && !remote_is_behind());
  remote_waits_no_more();
  CHECK(!remote_much_waits());
  remote_collect(&owner);
  for (uint32_t i = 0; i < slabs - 1; i++) free_remotely(blocks[i][2]);
  CHECK(!remote_much_waits()); /* the count starts again */
}

TEST(the_keeper_is_told_of_what_comes_free_in_an_orphans_slabs) {
  start_remote();
  enum { SLABS = REMOTE_MUCH_BYTES / HAK_UNIT + 3 }; /* one block of each stays */
  static void *blocks[SLABS][64];
  unsigned c = class_of(2048);
  uint32_t count = class_info[c].blocks;
  for (uint32_t i = 0; i < SLABS; i++) REQUIRE(take_slab(c, blocks[i]) == count);
  store_relaxed(&owner.thread, 0);
  owner.orphan = true;
  for (uint32_t i = 0; i < SLABS; i++) {
    CHECK(!remote_much_waits());
    for (uint32_t n = 1; n < count; n++) free_remotely(blocks[i][n]);
  }
  CHECK(remote_much_waits() && load_relaxed(&owner.pending_count) == 0);
}

TEST(what_an_idle_owner_is_behind_with_is_caught_up_with) {
  start_remote();
  unsigned c = class_of(32768);
  static void *blocks[HELP_AT_MOST][8];
  for (int i = 0; i < HELP_AT_MOST; i++) REQUIRE(take_slab(c, blocks[i]) > 0);
  void *last[8];
  REQUIRE(take_slab(c, last) > 0);
  lock_acquire(&owner.lock); /* another thread helps, and is slow */
  for (int i = 0; i < HELP_AT_MOST; i++) {
    for (uint32_t n = 0; n < class_info[c].blocks; n++) free_remotely(blocks[i][n]);
  }
  owner_unlock(&owner);
  CHECK(!remote_is_behind() && load_relaxed(&owner.pending_count) == HELP_AT_MOST);
  free_remotely(last[0]);
  CHECK(remote_is_behind());
  for (int calls = 0; remote_is_behind(); calls++) {
    REQUIRE(calls < HELP_AT_MOST);
    remote_catch_up();
  }
  CHECK(load_relaxed(&owner.pending_count) < HELP_AT_LEAST);
  CHECK_EQ(load_relaxed(&owner.lock.holder), 0);
}

/* ---- double frees ---- */

static bool dies_by(void (*call)(void *), void *block) {
  jmp_buf place;
  fake_os_capture();
  fake_os_catch_abort(&place);
  if (setjmp(place) == 0) {
    call(block);
    return false;
  }
  return strncmp(fake_os_captured(), "hakmem: double free: free(0x", 28) == 0;
}

static void collect(void *unused) {
  (void)unused;
  remote_collect(&owner);
}

TEST(a_second_remote_free_is_refused) {
  start_remote();
  void *blocks[4096];
  REQUIRE(take_slab(7, blocks) > 0);
  unit_t *slab = slab_holding(blocks[5]);
  CHECK(remotely_freed(blocks[5]));
  CHECK(!remotely_freed(blocks[5]));
  CHECK_EQ(remote_waiting(slab), 1);
  remote_collect(&owner);
  CHECK(!remotely_freed(blocks[5]));
  CHECK_EQ(remote_waiting(slab), 0);
  CHECK(remotely_freed(blocks[6]));
}

static void give_back(void *block) { give_blocks(&owner, &block, 1); }

TEST(a_block_freed_by_other_and_owner_ends_the_process_when_it_leaves_the_bin) {
  start_remote();
  void *blocks[4096];
  REQUIRE(take_slab(7, blocks) > 0);
  free_remotely(blocks[5]);
  CHECK(dies_by(give_back, blocks[5]));
}

TEST(a_block_freed_by_owner_and_other_ends_the_process_at_the_collection) {
  start_remote();
  void *blocks[4096];
  REQUIRE(take_slab(7, blocks) > 0);
  give_back(blocks[70]);
  free_remotely(blocks[5]);
  free_remotely(blocks[70]);
  CHECK(dies_by(collect, NULL));
  CHECK_EQ(free_in(slab_holding(blocks[5])), 2); /* a handler of SIGABRT may allocate, so the blocks before it are counted */
}

/* ---- threads ---- */

enum { FREERS = 3, RING = 1024, ROUNDS = 60000 };

/* Blocks on their way from the owner to a freer; each ring has one writer and one reader. */
typedef struct ring {
  void *_Atomic slots[RING];
} ring_t;
static ring_t rings[FREERS];
static _Atomic bool ended;

static void *free_from_ring(void *number) {
  ring_t *ring = &rings[(uintptr_t)number];
  for (uint32_t at = 0;; at++) {
    void *block;
    while ((block = load_acquire(&ring->slots[at % RING])) == NULL) {
      if (atomic_load(&ended)) return NULL;
      sched_yield();
    }
    size_t size = slab_class(slab_holding(block))->size;
    CHECK_EQ(*(size_t *)block, size);
    CHECK_EQ(((unsigned char *)block)[size - 1], (unsigned char)size);
    memset(block, 0xee, size < 64 ? size : 64);
    free_remotely(block);
    store_release(&ring->slots[at % RING], (void *)NULL);
  }
}

static void hand_over(uint32_t *at, void *block) {
  uint32_t to = unit_below(&seed, FREERS);
  _Atomic(void *) *slot = &rings[to].slots[at[to]++ % RING];
  while (load_acquire(slot) != NULL) sched_yield();
  store_release(slot, block);
}

static void mark(void *block, size_t size) {
  CHECK(!region_is_live(block));
  region_set_live(block);
  ((unsigned char *)block)[size - 1] = (unsigned char)size;
  *(size_t *)block = size;
}

/* The owner takes blocks, keeps some to free itself, and gives most to the others. */
static void produce(uint32_t *at) {
  for (int round = 0; round < ROUNDS && check_failures() == 0; round++) {
    unsigned c = unit_below(&seed, 3) * 12 + 3;
    void *batch[16];
    lock_acquire(&owner.lock);
    uint32_t taken = take_blocks(&owner, c, &bins[c], batch, 1 + unit_below(&seed, 16));
    lock_release(&owner.lock);
    CHECK(taken > 0);
    for (uint32_t i = 0; i < taken; i++) mark(batch[i], class_info[c].size);
    uint32_t own = unit_below(&seed, taken + 1);
    for (uint32_t i = own; i < taken; i++) hand_over(at, batch[i]);
    for (uint32_t i = 0; i < own; i++) CHECK(region_clear_live(batch[i]));
    lock_acquire(&owner.lock);
    give_blocks(&owner, batch, own);
    lock_release(&owner.lock);
  }
}

static void wait_for_freers(pthread_t *threads) {
  for (int i = 0; i < FREERS; i++) {
    for (uint32_t n = 0; n < RING; n++) {
      while (load_acquire(&rings[i].slots[n]) != NULL) sched_yield();
    }
  }
  atomic_store(&ended, true);
  for (int i = 0; i < FREERS; i++) pthread_join(threads[i], NULL);
}

static void run_threads(bool dies) {
  start_remote();
  store_relaxed(&owner.thread, thread_self());
  pthread_t threads[FREERS];
  uint32_t at[FREERS] = {0};
  for (uintptr_t i = 0; i < FREERS; i++) REQUIRE(pthread_create(&threads[i], NULL, free_from_ring, (void *)i) == 0);
  produce(at);
  if (dies) { /* the thread ends while its blocks are still on their way: the heap becomes an orphan */
    lock_acquire(&owner.lock);
    owner.orphan = true;
    store_relaxed(&owner.thread, 0);
    remote_collect_all(&owner);
    slab_release_empty(&owner);
    owner_unlock(&owner);
  }
  wait_for_freers(threads);
  if (!dies) remote_collect_all(&owner);
  remote_look_at_all(&owner);
  slab_release_empty(&owner);
  for (unsigned c = 0; c < CLASS_ZERO; c++) CHECK_EQ(load_relaxed(&owner.slab_count[c]), 0);
  CHECK_EQ(ledger_census().free_units, units_mapped());
  CHECK(load_relaxed(&owner.remote_frees) > ROUNDS);
}

TEST(blocks_freed_by_three_threads_all_come_back) { run_threads(false); }
TEST(blocks_of_an_orphan_freed_by_three_threads_all_come_back) { run_threads(true); }
