/* track.c - which slabs are tracked, what the records of their blocks contain, and what becomes of the records' memory. */
#include "slab/track.h"

#include <math.h>

#include "fake_os.h"
#include "kit/meta.h"
#include "kit/options.h"
#include "slab/batch.h"
#include "slab/large.h"
#include "slabs.h"
#include "space.h"
#include "unit.h"

enum { RATE = 128 << 10, FIRES = 32, BUDGET = 4096, MOST = 4096 };

static slab_owner_t owner;
static region_bin_t bins[CLASS_COUNT];
static void *entries[MOST];

static void start(uint32_t every) {
  CHECK(option_set(OPTION_decay_ms, -1));
  fake_os_set_random_seed(unit_seed());
  sample_start(RATE, true);
  track_start(every);
  REQUIRE(region_init(SMALL_REGION));
  owner_init(&owner);
  owner.sampler.random = unit_seed(); /* without this, the draws would depend on the owner's address, which differs in each run */
  for (unsigned c = 0; c < CLASS_ZERO; c++) bins[c] = (region_bin_t){.block_size = class_info[c].size, .size_class = c};
  store_relaxed(&owner.thread, (uintptr_t)0x1230);
}

/* Takes all blocks of a slab. */
static unit_t *take_slab(unsigned c) {
  uint32_t blocks = class_info[c].blocks, taken = 0;
  while (taken < blocks) taken += take_blocks(&owner, c, &bins[c], entries + taken, blocks - taken);
  return unit_head((uint32_t)region_unit(entry_block(entries[0])));
}

static void give_slab(unsigned c) {
  for (uint32_t i = 0; i < class_info[c].blocks; i++) entries[i] = entry_block(entries[i]);
  give_blocks(&owner, entries, class_info[c].blocks);
  slab_release_empty(&owner);
}

static bool is_tracked(const unit_t *slab) { return load_relaxed(&slab->tracked) != 0; }

static unit_t *take_tracked(unsigned c) {
  for (;;) {
    unit_t *slab = take_slab(c);
    if (is_tracked(slab)) return slab;
    give_slab(c);
  }
}

/* Takes a block of a tracked slab that is not also sampled by bytes. */
static void *some_tracked(unsigned c) {
  (void)take_tracked(c);
  for (uint32_t i = class_info[c].blocks; i-- > 0;) {
    if (sample_find(entry_block(entries[i])) == NULL) return entry_block(entries[i]);
  }
  return NULL;
}

/* ---- which ---- */

/* Of n draws with chance p; fails in one correct run of 10,000. */
static void check_share(const char *what, unsigned c, double n, double p, uint64_t got) {
  double bound = 3.9 * sqrt(n * p * (1 - p)) + 1;
  if (fabs((double)got - n * p) > bound) check_fail(__FILE__, __LINE__, "class %u, %s: %g of %g, not %g", c, what, (double)got, n, n * p);
}

TEST(one_slab_in_so_many_is_tracked) {
  enum { EVERY = 16, SLABS = 8192 };
  start(EVERY);
  for (unsigned c = 0; c < CLASS_ZERO; c += 8) {
    uint64_t tracked = 0;
    for (int i = 0; i < SLABS; i++) {
      void *entry;
      REQUIRE(take_blocks(&owner, c, &bins[c], &entry, 1) == 1);
      void *block = entry_block(entry);
      tracked += is_tracked(unit_head((uint32_t)region_unit(block)));
      give_blocks(&owner, &block, 1);
      slab_release_empty(&owner);
    }
    check_share("tracked", c, SLABS, 1.0 / (class_info[c].size == 16 ? 2 * EVERY : EVERY), tracked);
  }
}

TEST(every_slab_is_tracked_if_that_is_wanted) {
  start(1);
  for (unsigned c = 0; c < CLASS_ZERO; c++) CHECK(is_tracked(take_slab(c)));
}

TEST(none_is_where_that_is_not_wanted) {
  start(0);
  for (unsigned c = 0; c < CLASS_ZERO; c++) CHECK(!is_tracked(take_slab(c)));
}

TEST(none_is_where_no_blocks_are_sampled) {
  start(1);
  sample_start(0, true);
  for (unsigned c = 0; c < CLASS_ZERO; c++) CHECK(!is_tracked(take_slab(c)));
  CHECK(!entry_is_sampled(entries[0]) && sample_block_state(entries[0]) == SAMPLE_NONE);
}

TEST(blocks_of_no_bytes_are_not_tracked) {
  start(1);
  CHECK(!is_tracked(take_slab(CLASS_ZERO)));
}

/* Whether a slab is tracked does not affect which of its blocks are sampled by bytes, so the estimates of live bytes stay the same. */
TEST(tracked_slabs_have_as_many_blocks_that_are_sampled_by_bytes) {
  enum { SLABS = 4096 };
  start(2);
  for (unsigned c = class_of(64); c < CLASS_ZERO; c += 9) {
    uint64_t slabs[2] = {0}, sampled[2] = {0};
    for (int i = 0; i < SLABS; i++) {
      unsigned tracked = is_tracked(take_slab(c));
      slabs[tracked]++;
      for (uint32_t k = 0; k < class_info[c].blocks; k++) sampled[tracked] += sample_find(entry_block(entries[k])) != NULL;
      give_slab(c);
    }
    double p = (double)class_info[c].size / RATE;
    check_share("sampled, not tracked", c, (double)slabs[0] * class_info[c].blocks, p, sampled[0]);
    check_share("sampled, tracked", c, (double)slabs[1] * class_info[c].blocks, p, sampled[1]);
  }
}

/* ---- records ---- */

TEST(every_block_of_a_tracked_slab_is_sampled) {
  start(1);
  for (unsigned c = 0; c < CLASS_ZERO; c++) {
    (void)take_slab(c);
    for (uint32_t i = 0; i < class_info[c].blocks; i++) {
      CHECK(entry_is_sampled(entries[i]));
      CHECK(sample_block_state(entry_block(entries[i])) == SAMPLE_FREE);
    }
    give_slab(c);
  }
}

/* Opens all blocks and closes every third: each block has a state of its own. */
static void check_states(unsigned c) {
  uint32_t blocks = class_info[c].blocks;
  (void)take_slab(c);
  store_relaxed(&owner.sampler.fired, 0);
  for (uint32_t i = 0; i < blocks; i++) CHECK(sample_open(&owner.sampler, entry_block(entries[i]), class_info[c].size));
  for (uint32_t i = 0; i < blocks; i += 3) CHECK(sample_close(entry_block(entries[i])));
  for (uint32_t i = 0; i < blocks; i++) {
    void *block = entry_block(entries[i]);
    CHECK_EQ(sample_is_live(block), i % 3 != 0);
    CHECK_EQ(slab_block_is_live(block), i % 3 != 0);
    CHECK(!region_is_live(block));
    if (i % 3 != 0) CHECK(sample_close(block));
    CHECK(!sample_close(block));
  }
  give_slab(c);
}

TEST(each_block_has_its_own_state) {
  start(1);
  for (unsigned c = 0; c < CLASS_ZERO; c++) check_states(c);
}

/* A block that is also sampled by bytes has its record in sample.h's zone, with all its fields. */
TEST(the_block_that_is_sampled_by_bytes_keeps_its_record) {
  start(1);
  unsigned c = class_of(512);
  sample_t *sample = NULL;
  void *block = NULL;
  while (sample == NULL) {
    if (block != NULL) give_slab(c);
    (void)take_slab(c);
    for (uint32_t i = 0; sample == NULL && i < class_info[c].blocks; i++) sample = sample_find(block = entry_block(entries[i]));
  }
  uint64_t before = load_relaxed(track_find(block));
  CHECK(sample_open(&owner.sampler, block, 500));
  CHECK(sample_state(sample) == SAMPLE_LIVE && sample_is_live(block));
  CHECK_EQ(load_relaxed(&sample->asked), 500);
  CHECK(sample_close(block) && sample_state(sample) == SAMPLE_FREE && !sample_is_live(block));
  CHECK_EQ(load_relaxed(track_find(block)), before);
}

TEST(a_record_tells_when_and_a_free_one_of_whom) {
  start(1);
  void *block = some_tracked(class_of(64));
  track_t *track = track_find(block);
  fake_os_set_time(5000);
  CHECK(sample_open(&owner.sampler, block, 60));
  CHECK_EQ(track_born(load_relaxed(track)), 50);
  CHECK(track_state(load_relaxed(track)) == TRACK_LIVE);
  fake_os_set_time(9000);
  CHECK(sample_close(block));
  CHECK_EQ(track_born(load_relaxed(track)), 50);
  sample_resize(block, 64); /* changes nothing */
  CHECK(track_state(load_relaxed(track)) == TRACK_FREE);
}

TEST(a_word_holds_what_it_was_made_of) {
  uint64_t seed = unit_seed();
  for (int i = 0; i < 1000; i++) {
    uint32_t born = unit_random(&seed), site = unit_below(&seed, SITE_MOST), fired = unit_below(&seed, TRACK_FIRED_MOST + 1);
    track_state_t state = (track_state_t)unit_below(&seed, 3);
    uint64_t word = track_word(born, site, fired, state);
    CHECK(track_born(word) == born && track_site(word) == site && track_fired(word) == fired && track_state(word) == state);
    word = track_with(word, TRACK_QUIET);
    CHECK(track_born(word) == born && track_site(word) == site && track_fired(word) == fired && track_state(word) == TRACK_QUIET);
  }
}

/* If two threads free a block at the same time, one must fail even if the block was allocated again between them: so no two records of a
 * second are equal. */
TEST(records_of_one_second_differ) {
  start(1);
  fake_os_set_time(1000);
  void *block = some_tracked(class_of(512));
  track_t *track = track_find(block);
  uint64_t seen[FIRES];
  for (int i = 0; i < FIRES; i++) {
    CHECK(sample_open(&owner.sampler, block, 500));
    seen[i] = load_relaxed(track);
    CHECK(sample_close(block));
    for (int k = 0; k < i; k++) CHECK(seen[i] != seen[k]);
  }
}

TEST(what_is_in_no_tracked_slab_has_no_record) {
  start(1);
  void *block = large_alloc(100000, 1, SPAN_PLAIN);
  REQUIRE(block != NULL);
  CHECK(track_find(block) == NULL);
  (void)take_slab(CLASS_ZERO);
  CHECK(sample_block_state(entry_block(entries[0])) == SAMPLE_NONE);
}

/* ---- quiet ---- */

static void use_up_the_budget(int used) {
  void *block = some_tracked(class_of(1024));
  for (int i = used; i < BUDGET; i++) CHECK(sample_open(&owner.sampler, block, 1) && sample_close(block));
}

TEST(a_block_that_comes_and_goes_often_is_quiet_where_all_do) {
  start(1);
  void *block = some_tracked(class_of(512));
  for (int second = 1; second < 4; second++) {
    fake_os_set_time((uint64_t)second * 1000);
    for (int i = 0; i < 2 * FIRES; i++) CHECK(sample_open(&owner.sampler, block, 500) && sample_close(block)); /* the budget lasts */
    use_up_the_budget(2 * FIRES);
    CHECK(!sample_open(&owner.sampler, block, 500));
    CHECK_EQ(load_relaxed(&owner.sampler.quiet), 1);
    CHECK(sample_block_state(block) == SAMPLE_QUIET && !sample_is_live(block));
    CHECK(!sample_close(block));
    CHECK(sample_wake(&owner.sampler, block) == block); /* the second is not over */
    fake_os_pass_time(1000);
    CHECK(sample_wake(&owner.sampler, block) == entry_sampled(block));
    CHECK_EQ(load_relaxed(&owner.sampler.quiet), 0);
  }
}

TEST(a_block_that_comes_seldom_is_not_quiet_for_others) {
  start(1);
  void *block = some_tracked(class_of(512));
  fake_os_set_time(1000);
  use_up_the_budget(0);
  for (int i = 0; i < FIRES; i++) CHECK(sample_open(&owner.sampler, block, 500) && sample_close(block));
  CHECK(!sample_open(&owner.sampler, block, 500));
}

TEST(quiet_blocks_end_with_their_slab) {
  start(1);
  unsigned c = class_of(512);
  fake_os_set_time(1000);
  use_up_the_budget(0);
  void *block = some_tracked(c);
  for (int i = 0; i < FIRES; i++) CHECK(sample_open(&owner.sampler, block, 500) && sample_close(block));
  CHECK(!sample_open(&owner.sampler, block, 500));
  CHECK_EQ(load_relaxed(&owner.sampler.quiet), 1);
  give_slab(c);
  CHECK_EQ(load_relaxed(&owner.sampler.quiet), 0);
}

/* ---- memory ---- */

TEST(the_memory_of_records_serves_the_next_slabs) {
  start(1);
  for (unsigned c = 0; c < CLASS_ZERO; c += 5) {
    (void)take_slab(c);
    give_slab(c);
    size_t before = meta_bytes();
    for (int i = 0; i < 1000; i++) {
      unit_t *slab = take_slab(c);
      REQUIRE(is_tracked(slab));
      void *block = entry_block(entries[class_info[c].blocks - 1]);
      CHECK_EQ(load_relaxed(track_find(block)), 0);
      if (sample_find(block) == NULL) CHECK(sample_open(&owner.sampler, block, 1) && sample_close(block));
      give_slab(c);
    }
    CHECK_EQ(meta_bytes(), before);
  }
}

/* Slabs of all classes that stay: their records share no word. */
TEST(no_two_blocks_share_a_record) {
  start(1);
  enum { ROUNDS = 3 };
  for (int round = 0; round < ROUNDS; round++) {
    for (unsigned c = 0; c < CLASS_ZERO; c++) {
      unit_t *slab = take_slab(c);
      REQUIRE(is_tracked(slab));
      for (uint32_t i = 0; i < class_info[c].blocks; i++) {
        track_t *track = track_find(entry_block(entries[i]));
        CHECK_EQ(load_relaxed(track), 0);
        store_relaxed(track, 1 + (uint64_t)i);
      }
    }
  }
  CHECK(meta_bytes() <= ROUNDS * CLASS_COUNT * HAK_UNIT);
}

TEST(without_memory_a_slab_is_not_tracked) {
  start(1);
  fake_os_fail(FAKE_ONLY(FAKE_MAP), 1, UINT64_MAX);
  unit_t *slab = take_slab(class_of(64));
  CHECK(!is_tracked(slab));
  fake_os_fail_none();
  CHECK(is_tracked(take_slab(class_of(64))));
}

/* A reader that has the word of a slab that has ended reaches no other memory than that of records. */
TEST(a_word_leads_to_records_whatever_the_block) {
  start(1);
  unsigned c = class_of(32768);
  uintptr_t tracked = load_relaxed(&take_slab(c)->tracked);
  for (uint32_t block = 0; block < MOST; block++) CHECK(track_at(tracked, block) == track_at(tracked, block % class_info[c].blocks));
}

TEST(a_fork_that_stops_a_change_forgets_what_was_free) {
  start(1);
  unsigned c = class_of(512);
  (void)take_slab(c);
  give_slab(c);
  owner_forget(&owner, true);
  CHECK(owner.sampler.tracks.next == 0 && owner.sampler.tracks.end == 0);
  for (unsigned order = 0; order <= TRACK_ORDER_MOST; order++) CHECK_EQ(owner.sampler.tracks.free[order], 0);
  CHECK(is_tracked(take_slab(c)));
}
