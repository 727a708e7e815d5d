/* sample.c - which blocks are sampled, and what their records contain. */
#include "slab/sample.h"

#include <pthread.h>

#include "fake_os.h"
#include "kit/options.h"
#include "kit/site.h"
#include "slab/batch.h"
#include "slab/large.h"
#include "slab/slab.h"
#include "slabs.h"
#include "space.h"
#include "unit.h"

enum { RATE = 128 << 10, FIRES = 32, BUDGET = 4096, MOST = 4096 };

extern _Atomic uint16_t hak_alloc_listeners; /* a tracer increments it */

static slab_owner_t owner;
static region_bin_t bins[CLASS_COUNT];
static void *entries[MOST];

static void start(uint64_t seed) {
  CHECK(option_set(OPTION_decay_ms, -1));
  fake_os_set_random_seed(seed);
  sample_start(RATE, false);
  REQUIRE(region_init(SMALL_REGION));
  owner_init(&owner);
  owner.sampler.random = seed; /* without this, the draws would depend on the owner's address, which differs in each run */
  store_relaxed(&owner.thread, (uintptr_t)0x1230);
}

/* Takes all blocks of a slab; returns the unit of the first one. */
static uint32_t take_slab(unsigned c) {
  uint32_t blocks = class_info[c].blocks, taken = 0;
  while (taken < blocks) taken += take_blocks(&owner, c, &bins[c], entries + taken, blocks - taken);
  return (uint32_t)region_unit(entry_block(entries[0]));
}

static void give_slab(unsigned c) {
  for (uint32_t i = 0; i < class_info[c].blocks; i++) entries[i] = entry_block(entries[i]);
  give_blocks(&owner, entries, class_info[c].blocks);
  slab_release_empty(&owner);
}

/* Takes slabs until one has a sampled block of the class; returns that block. */
static void *take_sampled(unsigned c) {
  for (;;) {
    (void)take_slab(c);
    for (uint32_t i = 0; i < class_info[c].blocks; i++) {
      if (entry_is_sampled(entries[i])) return entry_block(entries[i]);
    }
    give_slab(c);
  }
}

/* ---- which ---- */

/* Checks that `got`, of n draws with chance p, is within this many standard errors. */
static void check_within(const char *what, unsigned c, double n, double p, uint64_t got, double errors) {
  double off = (double)got - n * p, bound = errors * __builtin_sqrt(n * p * (1 - p)) + 1;
  if (off < -bound || off > bound) check_fail(__FILE__, __LINE__, "class %u, %s: %g of %g sampled, not %g", c, what, (double)got, n, n * p);
}

/* For draws from a seed, which are the same each time: one seed in 10,000 would fail. */
static void check_count(const char *what, unsigned c, double n, double p, uint64_t got) { check_within(what, c, n, p, got, 3.9); }
/* For draws that depend on addresses, which differ in each run: no run may fail. */
static void check_count_anywhere(const char *what, unsigned c, double n, double p, uint64_t got) { check_within(what, c, n, p, got, 6); }

/* Each block has the same chance wherever it lies, also one that begins in one unit and ends in the next. */
static void check_chances(unsigned c) {
  uint32_t size = class_info[c].size, blocks = class_info[c].blocks, slabs = 4096;
  uint64_t sampled = 0, first_half = 0, across = 0, crossing = 0;
  for (uint32_t i = 0; i < blocks; i++) crossing += (size_t)i * size / HAK_UNIT != ((size_t)(i + 1) * size - 1) / HAK_UNIT;
  for (uint32_t n = 0; n < slabs; n++) {
    uint32_t unit = take_slab(c);
    for (uint32_t i = 0; i < blocks; i++) {
      size_t at = (size_t)((char *)entry_block(entries[i]) - (char *)region_address(unit));
      if (!entry_is_sampled(entries[i])) continue;
      sampled++;
      first_half += at < (size_t)blocks / 2 * size;
      across += at / HAK_UNIT != (at + size - 1) / HAK_UNIT;
    }
    give_slab(c);
  }
  double p = (double)size / RATE;
  check_count("all", c, (double)slabs * blocks, p, sampled);
  check_count("the first half", c, (double)slabs * (blocks / 2), p, first_half);
  check_count("across units", c, (double)slabs * (double)crossing, p, across);
}

TEST(every_block_has_the_same_chance) {
  start(unit_seed());
  for (unsigned c = 0; c < CLASS_ZERO; c += 3) check_chances(c);
  check_chances(CLASS_ZERO - 1);
}

TEST(a_slab_has_one_sampled_block_a_unit_at_most) {
  start(unit_seed());
  for (unsigned c = 0; c < CLASS_ZERO; c++) {
    uint32_t unit = take_slab(c), of_unit[64] = {0};
    for (uint32_t i = 0; i < class_info[c].blocks; i++) {
      void *block = entry_block(entries[i]);
      CHECK_EQ(entry_is_sampled(entries[i]), sample_find(block) != NULL);
      if (entry_is_sampled(entries[i])) CHECK(of_unit[region_unit(block) - unit]++ == 0);
    }
    give_slab(c);
  }
}

TEST(none_is_sampled_where_that_is_not_wanted) {
  start(unit_seed());
  sample_start(0, false);
  for (unsigned c = 0; c < CLASS_ZERO; c++) {
    (void)take_slab(c);
    for (uint32_t i = 0; i < class_info[c].blocks; i++) CHECK(!entry_is_sampled(entries[i]));
  }
}

TEST(blocks_of_no_bytes_are_not_sampled) {
  start(unit_seed());
  for (int i = 0; i < 64; i++) {
    CHECK_EQ(take_blocks(&owner, CLASS_ZERO, &bins[CLASS_ZERO], entries, 1), 1);
    CHECK(!entry_is_sampled(entries[0]));
  }
}

/* A sampled block that comes back to its slab is sampled again when it next leaves it, for as long as the slab lasts. */
TEST(a_sampled_block_remains_one) {
  start(unit_seed());
  unsigned c = class_of(1024);
  void *block = take_sampled(c);
  for (int i = 0; i < 10; i++) {
    CHECK(sample_open(&owner.sampler, block, 1000) && sample_close(block));
    CHECK_EQ(batch_give(&owner, &block, 1), 1);
    void *entry;
    CHECK_EQ(take_blocks(&owner, c, &bins[c], &entry, 1), 1);
    CHECK(entry == entry_sampled(block));
  }
}

/* If a batch from many slabs is given back only in part, the remaining entries must keep their form, or malloc takes them for plain
 * blocks. */
TEST(what_a_batch_leaves_remains_sampled) {
  enum { SLABS = 256 };
  start(unit_seed());
  unsigned c = class_of(16384);
  static void *apart[SLABS];
  for (uint32_t n = 0; n < SLABS; n++) {
    (void)take_slab(c);
    apart[n] = entries[0];
    for (uint32_t i = 1; i < class_info[c].blocks; i++) {
      if (entry_is_sampled(entries[i])) apart[n] = entries[i];
    }
  }
  uint32_t given = batch_give(&owner, apart, SLABS), sampled = 0;
  REQUIRE(given < SLABS);
  for (uint32_t n = given; n < SLABS; n++) {
    CHECK_EQ(entry_is_sampled(apart[n]), sample_find(entry_block(apart[n])) != NULL);
    sampled += entry_is_sampled(apart[n]);
  }
  CHECK(sampled != 0);
}

TEST(records_end_with_their_slab) {
  start(unit_seed());
  unsigned c = class_of(1024);
  void *block = take_sampled(c);
  uint32_t unit = (uint32_t)region_unit(block);
  CHECK(sample_state(sample_of(unit)) == SAMPLE_FREE);
  (void)take_slab(c); /* the class keeps one slab, which must be another */
  give_slab(c);
  for (uint32_t i = 0; i < class_info[c].blocks; i++) entries[i] = (char *)region_address(unit) + (size_t)i * class_info[c].size;
  give_blocks(&owner, entries, class_info[c].blocks);
  slab_release_empty(&owner);
  bool ended = load_relaxed(&unit_at(unit)->kind) != UNIT_SLAB;
  CHECK(ended && sample_find(block) == NULL);
}

/* ---- records ---- */

TEST(a_record_tells_of_the_live_block) {
  start(unit_seed());
  fake_os_set_time(5000);
  void *block = take_sampled(class_of(512));
  sample_t *sample = sample_find(block);
  site_tag = 77;
  CHECK(!sample_is_live(block));
  CHECK(sample_open(&owner.sampler, block, 500));
  CHECK(sample_is_live(block) && slab_block_is_live(block) && !region_is_live(block));
  CHECK_EQ(load_relaxed(&sample->asked), 500);
  CHECK_EQ(load_relaxed(&sample->tag), 77);
  CHECK_EQ(load_relaxed(&sample->born), 50);
  CHECK_EQ(load_relaxed(&sample->chance), (uint64_t)512 * ((uint64_t)1 << 32) / RATE);
  CHECK(!sample_is_live((char *)block + HAK_GRANULE));
  sample_resize(block, 510);
  CHECK_EQ(load_relaxed(&sample->asked), 510);
}

/* The number of stacks walked: greater after each walk. */
static uint64_t walked(void) { return site_figures().checked + site_figures().sites; }

TEST(a_small_heap_has_no_sites) {
  start(unit_seed());
  site_start();
  CHECK_EQ(walked(), 0);
  void *block = take_sampled(class_of(512));
  CHECK(sample_open(&owner.sampler, block, 500) && sample_close(block));
  CHECK_EQ(load_relaxed(&sample_find(block)->site), SITE_NONE);
  CHECK_EQ(walked(), 0);
  void *large = large_alloc((size_t)2 << 20, 1, SPAN_PLAIN);
  REQUIRE(large != NULL);
  CHECK(load_relaxed(&sample_of((uint32_t)region_unit(large))->site) != SITE_NONE);
  large_free(unit_at((uint32_t)region_unit(large)));
  CHECK(sample_open(&owner.sampler, block, 500)); /* from then on there are sites */
  CHECK(load_relaxed(&sample_find(block)->site) != SITE_NONE);
}

TEST(sites_from_the_first_on_where_that_is_wanted) {
  start(unit_seed());
  site_start();
  sample_start(RATE, true);
  void *block = take_sampled(class_of(512));
  CHECK(sample_open(&owner.sampler, block, 500));
  CHECK(load_relaxed(&sample_find(block)->site) != SITE_NONE);
}

static HAK_NOINLINE uint32_t site_deep(unsigned depth) {
  uint32_t site = depth == 0 ? site_here() : site_deep(depth - 1);
  __asm__ volatile("" : "+r"(site)); /* no tail call */
  return site;
}

static HAK_NOINLINE uint32_t deep_from_one(void) {
  uint32_t site = site_deep(30);
  __asm__ volatile("" : "+r"(site));
  return site;
}
static HAK_NOINLINE uint32_t deep_from_another(void) {
  uint32_t site = site_deep(30);
  __asm__ volatile("" : "+r"(site) : : "memory");
  return site;
}

/* As by a helper, an interpreter or a parser that calls itself: the innermost calls are the same, and as deep. */
TEST(two_callers_far_out_are_told_apart_soon) {
  enum { CALLS = 300, SURE = 30 };
  static uint32_t sites[CALLS];
  start(unit_seed());
  site_start();
  for (unsigned i = 0; i < CALLS; i++) sites[i] = i % 3 == 0 ? deep_from_one() : deep_from_another();
  uint32_t one = sites[CALLS - SURE], another = sites[CALLS - SURE + 1];
  CHECK(one != another && one != SITE_NONE && another != SITE_NONE);
  unsigned wrong = 0;
  for (unsigned i = 0; i < CALLS; i++) wrong += sites[i] != (i % 3 == 0 ? one : another);
  CHECK(wrong <= 3);
  CHECK(site_figures().wrong <= 3);
}

/* The more often a site was right, the longer it is trusted. */
TEST(a_site_that_is_always_right_is_checked_seldom) {
  enum { CALLS = 3100 };
  start(unit_seed());
  site_start();
  for (unsigned i = 0; i < CALLS; i++) (void)site_deep(2);
  CHECK_EQ(site_figures().checked, 2 + 4 + 8 + 16 + (CALLS - 1 - 30) / 32 * 32);
  CHECK_EQ(site_figures().wrong, 0);
}

/* A stack that found no room while memory was out gets a number later, and no stack is recorded with a gap. */
TEST(without_memory_no_number_of_a_site_is_used_up) {
  start(unit_seed());
  site_start();
  fake_os_fail(FAKE_ONLY(FAKE_MAP), 1, UINT64_MAX);
  for (unsigned i = 0; i < 100; i++) CHECK_EQ(site_deep(i % 20), SITE_NONE);
  CHECK_EQ(site_figures().sites, 0);
  fake_os_fail(FAKE_ONLY(FAKE_MAP), 1, 1);
  CHECK_EQ(site_deep(3), SITE_NONE);
  fake_os_fail_none();
  CHECK(site_deep(3) != SITE_NONE && site_figures().sites > 3);
}

TEST(one_of_two_frees_fails) {
  start(unit_seed());
  void *block = take_sampled(class_of(512));
  CHECK(!sample_close(block));
  CHECK(sample_open(&owner.sampler, block, 500));
  CHECK(sample_close(block));
  CHECK(!sample_close(block));
  CHECK(!sample_close((char *)block + 512));
}

TEST(who_reads_a_record_finds_out_that_it_changed) {
  start(unit_seed());
  void *block = take_sampled(class_of(512));
  sample_t *sample = sample_find(block);
  uint32_t seen[6];
  for (int i = 0; i < 6; i += 2) {
    CHECK(sample_open(&owner.sampler, block, 500));
    seen[i] = load_relaxed(&sample->state);
    CHECK(sample_close(block));
    seen[i + 1] = load_relaxed(&sample->state);
  }
  for (int i = 0; i < 6; i++) {
    for (int k = 0; k < i; k++) CHECK(seen[i] != seen[k]);
  }
}

/* Opens and closes the block many times in one second, but in no tenth of it so often that blocks are given up. */
static void come_and_go(void *block, int times, int second) {
  for (int i = 0; i < times; i++) {
    fake_os_set_time((uint64_t)second * 1000 + (uint64_t)i * 999 / (uint64_t)times);
    CHECK(sample_open(&owner.sampler, block, 500) && sample_close(block));
  }
}

/* Seconds of uptime, including values with more bits than a record has. */
TEST(a_block_that_comes_and_goes_often_is_quiet_for_the_rest_of_the_second) {
  start(unit_seed());
  void *block = take_sampled(class_of(512));
  for (int second = 1; second < 1 << 26; second = second < 4 ? second + 1 : second * 3) {
    come_and_go(block, BUDGET, second);
    CHECK(!sample_open(&owner.sampler, block, 500));
    CHECK_EQ(load_relaxed(&owner.sampler.quiet), 1);
    CHECK(sample_state(sample_find(block)) == SAMPLE_QUIET && !sample_is_live(block));
    CHECK(sample_wake(&owner.sampler, block) == block);
    fake_os_pass_time(1000);
    CHECK(sample_wake(&owner.sampler, block) == entry_sampled(block));
    CHECK_EQ(load_relaxed(&owner.sampler.quiet), 0);
  }
}

TEST(no_block_becomes_quiet_while_a_tracer_listens) {
  start(unit_seed());
  store_relaxed(&hak_alloc_listeners, 1);
  void *block = take_sampled(class_of(512));
  come_and_go(block, BUDGET + BUDGET / 5, 1);
  CHECK_EQ(load_relaxed(&owner.sampler.quiet), 0);
  store_relaxed(&hak_alloc_listeners, 0);
  come_and_go(block, BUDGET, 2);
  CHECK(!sample_open(&owner.sampler, block, 500));
}

TEST(a_block_that_comes_seldom_is_not_quiet_for_others) {
  start(unit_seed());
  void *one = take_sampled(class_of(512)), *other = take_sampled(class_of(1024));
  come_and_go(other, BUDGET, 1);
  for (int i = 0; i < FIRES; i++) CHECK(sample_open(&owner.sampler, one, 500) && sample_close(one));
  CHECK(!sample_open(&owner.sampler, one, 500));
}

TEST(a_quiet_block_ends_with_its_slab) {
  start(unit_seed());
  unsigned c = class_of(512);
  void *block = take_sampled(c);
  come_and_go(block, BUDGET, 1);
  CHECK(!sample_open(&owner.sampler, block, 500));
  give_slab(c);
  CHECK_EQ(load_relaxed(&owner.sampler.quiet), 0);
}

TEST(others_are_not_woken) {
  start(unit_seed());
  void *block = take_sampled(class_of(512));
  void *other = (char *)block + 512;
  CHECK(sample_wake(&owner.sampler, other) == other);
  CHECK(sample_wake(&owner.sampler, block) == entry_sampled(block));
}

/* ---- what it may cost ---- */

enum { OPENED = 512, MARKED_MOST = 4096 };
static void *marked[MARKED_MOST];

/* Takes this many new slabs and keeps their sampled blocks; returns how many there are. */
static uint32_t take_marked(unsigned c, uint32_t slabs) {
  uint32_t count = 0;
  for (uint32_t n = 0; n < slabs; n++) {
    (void)take_slab(c);
    for (uint32_t i = 0; i < class_info[c].blocks; i++) {
      if (entry_is_sampled(entries[i]) && count < MARKED_MOST) marked[count++] = entry_block(entries[i]);
    }
  }
  return count;
}

/* Allocates and frees the blocks that are still sampled, so often that sampling is thinned; returns how many stay sampled. */
static uint32_t churn(uint32_t count, uint32_t thinned) {
  while (load_relaxed(&owner.sampler.thinned) < thinned) {
    uint32_t left = 0;
    for (uint32_t i = 0; i < count; i++) {
      if (sample_find(marked[i]) == NULL) continue;
      left++;
      if (sample_open(&owner.sampler, marked[i], 1000)) CHECK(sample_close(marked[i]));
    }
    if (left == 0) break;
  }
  uint32_t left = 0;
  for (uint32_t i = 0; i < count; i++) {
    if (sample_find(marked[i]) != NULL && sample_open(&owner.sampler, marked[i], 1000)) marked[left++] = marked[i];
  }
  return left;
}

static void open_block(void *block) {
  if (sample_open(&owner.sampler, block, 500)) CHECK(sample_close(block));
}

/* Up to the limit, blocks are opened in a tenth of a second before half of them are given up. When few are opened again, new ones
 * are chosen as before. */
TEST(what_is_opened_too_often_is_thinned) {
  start(unit_seed());
  fake_os_set_time(100000);
  void *block = take_sampled(class_of(512));
  sampler_t *sampler = &owner.sampler;
  for (int i = 0; i < OPENED - 1; i++) {
    open_block(block);
    CHECK(sample_wake(sampler, block) == entry_sampled(block));
    CHECK_EQ(load_relaxed(&sampler->thinned), 0);
  }
  open_block(block);
  CHECK_EQ(load_relaxed(&sampler->thinned), 1);
  fake_os_set_time(100100); /* nothing is undone while the rate is still this high */
  block = take_sampled(class_of(1024));
  open_block(block);
  CHECK_EQ(load_relaxed(&sampler->thinned), 1);
  fake_os_set_time(100200);
  open_block(block);
  CHECK_EQ(load_relaxed(&sampler->thinned), 0);
}

/* The blocks that are left represent all. */
TEST(a_thinned_estimate_has_no_bias) {
  enum { SLABS = 6000, THINNED = 3 };
  start(unit_seed());
  fake_os_set_time(100000);
  unsigned c = class_of(1024);
  double blocks = (double)SLABS * class_info[c].blocks, p = 1024.0 / RATE / (2 << THINNED); /* it may be thinned once more */
  uint32_t count = take_marked(c, SLABS), left = churn(count, THINNED);
  double estimate = 0;
  for (uint32_t i = 0; i < left; i++) estimate += 4294967296.0 / load_relaxed(&sample_find(marked[i])->chance);
  check_count("by their records", c, blocks, p, (uint64_t)(estimate * p));
}

/* A chance of 0 means that all such blocks are sampled. */
TEST(no_block_becomes_certain_as_it_is_thinned) {
  start(unit_seed());
  void *block = take_sampled(class_of(16));
  sample_t *sample = sample_find(block);
  sample_start((uint64_t)1 << 30, false);
  store_relaxed(&owner.sampler.thinned, 7);
  uint32_t before = load_relaxed(&sample->state);
  for (int i = 0; i < 10000; i++) {
    store_relaxed(&sample->state, before);
    store_relaxed(&sample->chance, 64);
    bool open = sample_open(&owner.sampler, block, 16);
    CHECK(!open || load_relaxed(&sample->chance) != 0);
  }
}

TEST(new_slabs_are_thinned_from_the_start) {
  enum { SLABS = 8192, THINNED = 2 };
  start(unit_seed());
  store_relaxed(&owner.sampler.thinned, THINNED);
  unsigned c = class_of(1024);
  uint32_t count = take_marked(c, SLABS);
  check_count("where it is thinned", c, (double)SLABS * class_info[c].blocks, 1024.0 / RATE / (1 << THINNED), count);
  for (uint32_t i = 0; i < count; i++) CHECK_EQ(load_relaxed(&sample_find(marked[i])->chance), ((uint64_t)1024 << (32 - THINNED)) / RATE);
  CHECK(sample_open(&owner.sampler, marked[0], 1000)); /* its chance is halved already */
}

/* ---- large blocks ---- */

TEST(a_large_block_that_comes_and_goes_often_keeps_its_site) {
  start(unit_seed());
  for (int second = 1; second < 3; second++) {
    fake_os_set_time((uint64_t)second * 1000);
    for (int i = 0; i < 2 * FIRES; i++) {
      void *block = large_alloc(RATE, 1, SPAN_PLAIN);
      REQUIRE(block != NULL);
      sample_t *sample = sample_of((uint32_t)region_unit(block));
      if (i < FIRES) store_relaxed(&sample->site, 5);
      CHECK(sample_state(sample) == (i < FIRES ? SAMPLE_LIVE : SAMPLE_QUIET));
      CHECK_EQ(load_relaxed(&sample->site), 5);
      CHECK(large_resize(unit_at((uint32_t)region_unit(block)), 2 * RATE));
      CHECK(sample_state(sample) == (i < FIRES ? SAMPLE_LIVE : SAMPLE_QUIET));
      large_free(unit_at((uint32_t)region_unit(block)));
    }
  }
}

TEST(no_large_block_becomes_quiet_while_a_tracer_listens) {
  start(unit_seed());
  fake_os_set_time(1000);
  for (int i = 0; i < 4 * FIRES; i++) {
    if (i == 2 * FIRES) store_relaxed(&hak_alloc_listeners, 1);
    void *block = large_alloc(RATE, 1, SPAN_PLAIN);
    REQUIRE(block != NULL);
    uint32_t unit = (uint32_t)region_unit(block);
    if (i == 2 * FIRES - 1) { /* a block that is already quiet is reported when it changes its size */
      store_relaxed(&hak_alloc_listeners, 1);
      CHECK(sample_state(sample_of(unit)) == SAMPLE_QUIET);
      CHECK(large_resize(unit_at(unit), 2 * RATE));
    }
    CHECK(sample_state(sample_of(unit)) == (i < FIRES || i >= 2 * FIRES - 1 ? SAMPLE_LIVE : SAMPLE_QUIET));
    large_free(unit_at(unit));
  }
}

TEST(large_blocks_are_sampled_by_their_size) {
  start(unit_seed());
  enum { TURNS = 10000 };
  for (size_t bytes = 40960; bytes <= 2 * RATE; bytes += 16384) {
    uint64_t sampled = 0;
    for (int i = 0; i < TURNS; i++) {
      void *block = large_alloc(bytes, 1, SPAN_PLAIN);
      REQUIRE(block != NULL);
      uint32_t unit = (uint32_t)region_unit(block);
      sampled += sample_state(sample_of(unit)) != SAMPLE_NONE;
      large_free(unit_at(unit));
      CHECK(sample_state(sample_of(unit)) == SAMPLE_NONE);
    }
    size_t whole = large_good_size(bytes); /* whole pages */
    double p = whole >= RATE ? 1 : (double)whole / RATE;
    check_count_anywhere("large", (unsigned)(bytes >> 10), TURNS, p, sampled);
  }
}

static void *take_large_once(void *sampled) {
  void *block = large_alloc(70000, 1, SPAN_PLAIN);
  if (block == NULL) return NULL;
  uint32_t unit = (uint32_t)region_unit(block);
  *(uint64_t *)sampled += sample_state(sample_of(unit)) != SAMPLE_NONE;
  large_free(unit_at(unit));
  return sampled;
}

/* They mostly have the same number. */
TEST(threads_that_follow_each_other_have_chances_of_their_own) {
  start(unit_seed());
  enum { THREADS = 1000 };
  uint64_t sampled = 0;
  for (int i = 0; i < THREADS; i++) {
    pthread_t thread;
    void *done;
    REQUIRE(pthread_create(&thread, NULL, take_large_once, &sampled) == 0 && pthread_join(thread, &done) == 0);
    CHECK(done != NULL);
  }
  check_count_anywhere("large", 70000, THREADS, (double)large_good_size(70000) / RATE, sampled);
}

TEST(a_large_block_that_grows_in_place_is_looked_at_again) {
  start(unit_seed());
  void *block;
  do block = large_alloc(40960, 1, SPAN_PLAIN);
  while (block != NULL && sample_state(sample_of((uint32_t)region_unit(block))) == SAMPLE_LIVE);
  REQUIRE(block != NULL);
  uint32_t unit = (uint32_t)region_unit(block);
  CHECK(large_resize(unit_at(unit), RATE));
  sample_t *sample = sample_of(unit);
  CHECK(sample_state(sample) == SAMPLE_LIVE);
  CHECK_EQ(load_relaxed(&sample->chance), 0);
  store_relaxed(&sample->site, 5);
  CHECK(large_resize(unit_at(unit), 3 * RATE));
  CHECK(load_relaxed(&sample->asked) == 3 * RATE && load_relaxed(&sample->site) == 5);
  CHECK(large_resize(unit_at(unit), RATE));
  CHECK(load_relaxed(&sample->asked) == RATE && load_relaxed(&sample->site) == 5);
}
