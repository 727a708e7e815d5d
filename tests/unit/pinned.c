/* pinned.c - which pages of a slab its live blocks keep, checked against a count of every byte. */
#include "slab/pinned.h"

#include "base/thread.h"
#include "fake_os.h"
#include "kit/options.h"
#include "slab/batch.h"
#include "slab/hole.h"
#include "slab/large.h"
#include "slab/remote.h"
#include "slabs.h"
#include "space.h"
#include "unit.h"

enum { MOST = 4096, SLAB_MOST = 4 << 16 };

static slab_owner_t owner;
static region_bin_t bins[CLASS_COUNT];
static void *blocks[MOST];
static unsigned char live[MOST], held[SLAB_MOST]; /* each block; each byte of the slab */
static uint64_t seed;
static size_t page;

static void start(size_t page_bytes) {
  seed = unit_seed();
  page = page_bytes;
  fake_os_set_page_size(page);
  CHECK(option_set(OPTION_decay_ms, -1));
  fake_os_set_random_seed(unit_seed());
  sample_start(128 << 10, true);
  REQUIRE(region_init(SMALL_REGION));
  owner_init(&owner);
  for (unsigned c = 0; c < CLASS_ZERO; c++) bins[c] = (region_bin_t){.block_size = class_info[c].size, .size_class = c};
  store_relaxed(&owner.thread, thread_self());
}

/* Makes an entry live, as malloc does. */
static void make_live(uint32_t i) {
  void *entry = blocks[i];
  blocks[i] = entry_block(entry);
  if (!entry_is_sampled(entry) || !sample_open(&owner.sampler, blocks[i], 1)) region_set_live(blocks[i]);
  live[i] = 1;
}

/* Frees a block, as free does. */
static void make_free(uint32_t i) {
  if (region_is_live(blocks[i])) CHECK(region_clear_live(blocks[i]));
  else CHECK(sample_close(blocks[i]));
  live[i] = 0;
}

/* Frees a block as another thread would, without announcing it. */
static void free_elsewhere(unsigned c, void *block) {
  unit_t *slab = remote_mark(&bins[c], (uint32_t)region_unit(block), block);
  CHECK(slab == unit_head((uint32_t)region_unit(block)));
}

static unit_t *full_slab(unsigned c) {
  uint32_t count = class_info[c].blocks, taken = 0;
  while (taken < count) taken += take_blocks(&owner, c, &bins[c], blocks + taken, count - taken);
  for (uint32_t i = 0; i < count; i++) make_live(i);
  return unit_head((uint32_t)region_unit(blocks[0]));
}

static bool page_is_hole(const unit_t *slab, size_t number) { return (load_relaxed(&slab->holes) >> number & 1) != 0; }

/* Counts every byte of the slab. */
static pinned_t count_bytes(const unit_t *slab, unsigned c) {
  pinned_t want = {.blocks = 0};
  size_t size = class_info[c].size, end = size * class_info[c].blocks;
  memset(held, 0, sizeof held);
  for (uint32_t i = 0; i < class_info[c].blocks; i++) {
    uint32_t number = class_block_at(c, (size_t)((char *)blocks[i] - (char *)region_address(unit_number(slab))));
    want.blocks += live[i];
    if (live[i] != 0) memset(held + number * size, 1, size);
  }
  for (size_t at = 0; at < end; at += page) {
    size_t bytes = 0;
    for (size_t i = 0; i < page; i++) bytes += held[at + i];
    want.pages += bytes != 0;
    if (bytes != 0) want.waste += page - bytes;
    if (bytes != 0 && bytes != page) want.wasteful |= (uint64_t)1 << at / page;
    if (bytes == 0 && !page_is_hole(slab, at / page)) want.idle += page;
  }
  return want;
}

static void check_slab(const unit_t *slab, unsigned c) {
  pinned_t got, want = count_bytes(slab, c);
  CHECK_EQ(pinned_look(slab, &got), want.blocks != 0);
  CHECK_EQ(got.blocks, want.blocks);
  if (want.blocks == 0) return;
  CHECK_EQ(got.pages, want.pages);
  CHECK_EQ(got.waste, want.waste);
  CHECK_EQ(got.idle, want.idle);
  CHECK_EQ(got.wasteful, want.wasteful);
  for (uint32_t i = 0; i < class_info[c].blocks; i++) {
    size_t from = (size_t)i * class_info[c].size, to = from + class_info[c].size - 1;
    uint64_t pages = (UINT64_MAX << from / page) & (UINT64_MAX >> (63 - to / page));
    CHECK_EQ(pinned_wastes(&got, c, i), (want.wasteful & pages) != 0);
  }
}

/* Fewer and fewer blocks are live; the others are back in the slab, in a bin, or remotely freed. Then the holes are purged. */
static void check_class(unsigned c) {
  const unit_t *slab = full_slab(c);
  uint32_t count = class_info[c].blocks;
  check_slab(slab, c);
  for (uint32_t one_in = 8; one_in > 0; one_in /= 2) {
    for (uint32_t i = 0; i < count; i++) {
      if (live[i] == 0 || unit_below(&seed, one_in) != 0 || (one_in == 1 && i == count / 3)) continue;
      make_free(i);
      if (unit_below(&seed, 2) == 0) give_blocks(&owner, &blocks[i], 1); /* otherwise it lies in a bin */
      else if (unit_below(&seed, 2) == 0) free_elsewhere(c, blocks[i]);
    }
    check_slab(slab, c);
    uint32_t aging = 0;
    (void)hole_step(true, &aging);
    check_slab(slab, c);
  }
}

static void check_every_class(size_t page_bytes, uint32_t every) {
  start(page_bytes);
  track_start(every);
  for (unsigned c = 0; c < CLASS_ZERO && check_failures() == 0; c++) check_class(c);
}

TEST(what_blocks_keep_is_told_to_the_byte) { check_every_class(4096, 0); }
TEST(also_in_tracked_slabs) { check_every_class(4096, 1); }
TEST(also_with_pages_of_16_kib) { check_every_class(16384, 2); }
TEST(also_with_pages_of_64_kib) { check_every_class(65536, 2); }

/* A helper's clearing of a live bit may be undone by the owner's store to the same word. */
TEST(a_live_bit_that_was_brought_back_says_nothing) {
  start(4096);
  unsigned c = class_of(64);
  const unit_t *slab = full_slab(c);
  uint32_t count = class_info[c].blocks;
  for (uint32_t i = 1; i < count; i++) {
    make_free(i);
    if (i % 2 != 0) give_blocks(&owner, &blocks[i], 1);
    else free_elsewhere(c, blocks[i]);
    if (sample_find(blocks[i]) == NULL) region_set_live(blocks[i]);
  }
  check_slab(slab, c);
}

/* A quiet block has its live bit set, like blocks that are not sampled. */
TEST(quiet_blocks_are_told_by_their_bit) {
  start(4096);
  track_start(1);
  unsigned c = class_of(64);
  const unit_t *slab = full_slab(c);
  for (uint32_t i = 0; i < class_info[c].blocks; i += 2) {
    make_free(i);
    for (int n = 0; n < 10000 && sample_block_state(blocks[i]) == SAMPLE_FREE; n++) {
      if (sample_open(&owner.sampler, blocks[i], 1)) CHECK(sample_close(blocks[i]));
    }
    CHECK(sample_block_state(blocks[i]) == SAMPLE_QUIET);
    live[i] = i % 4 == 0;
    if (live[i] != 0) region_set_live(blocks[i]);
  }
  check_slab(slab, c);
}

TEST(what_is_no_slab_with_live_blocks_keeps_nothing) {
  start(4096);
  pinned_t pinned;
  void *block = large_alloc(100000, 1, SPAN_PLAIN), *none;
  REQUIRE(block != NULL);
  CHECK(!pinned_look(unit_at((uint32_t)region_unit(block)), &pinned));
  CHECK_EQ(take_blocks(&owner, CLASS_ZERO, &bins[CLASS_ZERO], &none, 1), 1);
  region_set_live(none);
  CHECK(!pinned_look(unit_head((uint32_t)region_unit(none)), &pinned));
}
