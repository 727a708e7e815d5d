/* bin.c - a bin over real slabs, checked against a model that knows which blocks the program holds. */
#include "front/bin.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fake_os.h"
#include "front/block.h"
#include "kit/options.h"
#include "slab/batch.h"
#include "slab/remote.h"
#include "slabs.h"
#include "space.h"
#include "unit.h"

enum { ENTRIES_MOST = 256, WORDS = ENTRIES_MOST + 8, BINS = 2, HELD_MAX = 20000, GUARD = 0x5a };

/* The layout in a heap: the entries lie just below the bin. */
typedef struct place {
  HAK_ALIGNED(HAK_CACHE_LINE) void *words[WORDS];
  bin_t bin;
} place_t;
_Static_assert(offsetof(place_t, bin) == sizeof(void *) * WORDS, "nothing lies between the entries and the bin");

static place_t places[BINS];
static slab_owner_t owner;
static bin_budget_t budget;

/* The blocks that the program holds of each bin. */
static void *held[BINS][HELD_MAX];
static int held_count[BINS];

static void bin_start(int n, unsigned c) {
  memset(places[n].words, GUARD, sizeof places[n].words);
  memset(&places[n].words[WORDS - bin_reserve(c) - 1], 0, ((size_t)bin_reserve(c) + 1) * sizeof(void *));
  bin_init(&places[n].bin, c, 0x1230);
}

static bin_t *start_bins(unsigned first, unsigned second) {
  CHECK(option_set(OPTION_decay_ms, -1));
  if (!region_init(SMALL_REGION)) return NULL;
  owner_init(&owner);
  store_relaxed(&owner.thread, (uintptr_t)0x1230);
  bin_start(0, first);
  bin_start(1, second);
  return &places[0].bin;
}

static intptr_t between(intptr_t least, intptr_t n, intptr_t most) { return n < least ? least : n > most ? most : n; }
/* The least capacity that bin_kb allows. */
static intptr_t least(unsigned c) { return between(0, (256 << 10) / class_info[c].size, 8); }
static intptr_t usual(unsigned c) { return between(least(c), (option_get(OPTION_bin_kb) << 10) / class_info[c].size, 256); }

/* ---- a page fault in the entries ---- */

static struct {
  bin_t *bin;
  char *page; /* the page for entries that the bin does not have yet */
  int faults;
  bool ends; /* at the time of the fault the top leads to an entry, or to their end */
} late;

static void late_page(int number) {
  (void)number;
  if (mprotect(late.page, os_page_size(), PROT_READ | PROT_WRITE) != 0) _exit(1);
  late.faults++;
  late.ends = bin_entries(late.bin)[racy_load(&late.bin->top) - 1] != NULL;
}

/* A fork may happen at that point, and its child goes on with the bin. */
TEST(a_bin_that_grows_has_an_end_while_its_new_page_is_waited_for) {
  unsigned c = class_of(64);
  REQUIRE(start_bins(c, c) != NULL);
  size_t page = os_page_size();
  late.page = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(late.page != MAP_FAILED);
  late.bin = (bin_t *)(void *)(late.page + page + 24 * sizeof(void *)); /* room for 16 entries and their end, not for 32 */
  bin_init(late.bin, c, 0x1230);
  REQUIRE(late.bin->capacity == 16);
  REQUIRE(mprotect(late.page, page, PROT_NONE) == 0);
  REQUIRE(signal(SIGSEGV, late_page) != SIG_ERR);
  for (int i = 0; i < 64 && late.bin->capacity == 16; i++) CHECK(bin_refill(late.bin, &owner, &budget));
  CHECK(late.bin->capacity == 32);
  CHECK_EQ(late.faults, 1);
  CHECK(late.ends);
}

/* ---- what must hold ---- */

/* No block is in two places: blocks that the program holds are live; blocks in the bin are made live for the moment. */
static void check_entries(bin_t *bin) {
  unsigned c = bin->shared.size_class;
  intptr_t top = racy_load(&bin->top);
  for (intptr_t i = -bin->capacity; i < top; i++) {
    void *block = bin_entries(bin)[i];
    unit_t *slab = unit_head((uint32_t)region_unit(block));
    CHECK(slab_class(slab) == &class_info[c] && slab_owner(slab) == &owner);
    CHECK(*region_bin(region.live, region_unit(block)) == &bin->shared);
    CHECK(!region_is_live(block));
    region_set_live(block);
  }
  for (intptr_t i = -bin->capacity; i < top; i++) (void)region_clear_live(bin_entries(bin)[i]);
}

static size_t extra_of(const bin_t *bin) {
  unsigned c = bin->shared.size_class;
  return bin->capacity > usual(c) ? (size_t)(bin->capacity - usual(c)) * class_info[c].size : 0;
}

static void check_bin(int n) {
  bin_t *bin = &places[n].bin;
  unsigned c = bin->shared.size_class;
  CHECK(bin->capacity >= least(c) && bin->capacity <= bin_reserve(c));
  CHECK(bin->top >= -bin->capacity && bin->top < 0);
  CHECK(bin_entries(bin)[-bin->capacity - 1] == BIN_END);
  const char *words = (const char *)places[n].words;
  for (size_t i = 0; i < ((size_t)WORDS - (size_t)bin_reserve(c) - 1) * sizeof(void *); i++) CHECK_EQ(words[i], GUARD);
  check_entries(bin);
}

/* Checks both bins, and that each block of the owner is in a slab, in a bin, or held. */
static void check_all(void) {
  uint64_t slabs = 0, free = (uint64_t)load_relaxed(&owner.free_bytes);
  for (unsigned c = 0; c < CLASS_ZERO; c++) {
    slabs += (uint64_t)load_relaxed(&owner.slab_count[c]) * class_info[c].blocks * class_info[c].size;
  }
  for (int n = 0; n < BINS; n++) {
    check_bin(n);
    free += ((uint64_t)held_count[n] + bin_count(&places[n].bin)) * places[n].bin.shared.block_size;
  }
  CHECK_EQ(free, slabs);
  CHECK_EQ(budget.extra_bytes, extra_of(&places[0].bin) + extra_of(&places[1].bin));
}

/* ---- the program ---- */

static bool take(int n) {
  bin_t *bin = &places[n].bin;
  uint64_t refills = bin->refills;
  void *block = bin_pop(bin);
  if (block == NULL) {
    CHECK_EQ(bin_count(bin), 0);
    block = bin_refill(bin, &owner, &budget);
    if (block == NULL) return false;
    CHECK(!region_is_live(block));
    region_set_live(block);
  }
  held[n][held_count[n]++] = block;
  if (bin->refills != refills) check_all();
  return true;
}

/* Frees the block in place `at`. */
static void give(int n, int at) {
  bin_t *bin = &places[n].bin;
  void *block = held[n][at];
  held[n][at] = held[n][--held_count[n]];
  CHECK(region_clear_live(block));
  bin_entries(bin)[bin->top] = block;
  if (++bin->top < 0) return;
  bin_flush(bin, &owner, &budget);
  check_all();
}

static void take_many(int n, int count) {
  while (count-- > 0) REQUIRE(take(n));
}
static void give_many(int n, int count) {
  while (count-- > 0) give(n, 0);
}

/* Refills and flushes the bin repeatedly. */
static void take_turns(int n, int turns) {
  for (int i = 0; i < turns; i++) {
    take_many(n, 600);
    give_many(n, 600);
  }
}

/* ---- the beginning ---- */

TEST(a_new_bin_is_empty_and_small) {
  for (unsigned c = 0; c < CLASS_ZERO; c++) {
    bin_start(0, c);
    bin_t *bin = &places[0].bin;
    CHECK_EQ(bin->capacity, usual(c) < 16 ? usual(c) : 16);
    CHECK_EQ(bin_count(bin), 0);
    CHECK(bin_pop(bin) == NULL);
    CHECK(bin->shared.size_class == c && bin->shared.block_size == class_info[c].size && bin->shared.thread == 0x1230);
  }
}

TEST(without_adapting_a_bin_has_bin_kb_for_good) {
  CHECK(option_set(OPTION_bin_adapt, 0));
  for (int kb = 1; kb <= 512; kb *= 2) {
    CHECK(option_set(OPTION_bin_kb, kb));
    for (unsigned c = 0; c < CLASS_ZERO; c++) {
      bin_start(0, c);
      CHECK_EQ(places[0].bin.capacity, usual(c));
      CHECK(bin_reserve(c) >= usual(c) && bin_reserve(c) <= ENTRIES_MOST);
    }
  }
  CHECK(option_set(OPTION_bin_kb, 64));
  bin_t *bin = start_bins(class_of(1024), 0);
  REQUIRE(bin != NULL);
  take_turns(0, 4);
  for (int i = 0; i < 8; i++) bin_tick(bin, &owner, &budget);
  CHECK_EQ(bin->capacity, 64);
  CHECK(bin->refills > 4 && bin->flushes > 4);
  CHECK(budget.grown == 0 && budget.shrunk == 0);
}

/* ---- growth ---- */

TEST(refills_double_a_bin_up_to_bin_kb) {
  bin_t *bin = start_bins(class_of(1024), 0);
  REQUIRE(bin != NULL);
  for (intptr_t want = 32; bin->refills < 20; want = between(0, want * 2, 64)) {
    uint64_t refills = bin->refills;
    while (bin->refills == refills) REQUIRE(take(0));
    CHECK_EQ(bin->capacity, want);
  }
  CHECK_EQ(budget.grown, 2);
}

TEST(flushes_double_a_bin_up_to_bin_kb) {
  bin_t *bin = start_bins(class_of(1024), 0);
  REQUIRE(bin != NULL);
  for (int i = 0; i < 10; i++) held_count[0] += (int)batch_take(&owner, class_of(1024), &bin->shared, &held[0][held_count[0]], 100);
  REQUIRE(held_count[0] > 500);
  for (int i = 0; i < held_count[0]; i++) region_set_live(held[0][i]);
  for (intptr_t want = 32; bin->flushes < 10; want = between(0, want * 2, 64)) {
    uint64_t flushes = bin->flushes;
    while (bin->flushes == flushes) give(0, 0);
    CHECK_EQ(bin->capacity, want);
  }
  CHECK_EQ(budget.grown, 2);
}

TEST(turns_double_a_bin_beyond_bin_kb) {
  for (unsigned c = 0; c < CLASS_ZERO; c++) {
    if (c == 0) REQUIRE(start_bins(0, 0) != NULL);
    places[0] = (place_t){.bin = {.top = 0}};
    bin_start(0, c);
    budget = (bin_budget_t){.extra_bytes = 0};
    take_turns(0, 3);
    bin_t *bin = &places[0].bin;
    CHECK(bin->capacity > usual(c) || usual(c) == bin_reserve(c));
    take_turns(0, 3);
    CHECK_EQ(bin->capacity, bin_reserve(c));
    bin_empty(bin, &owner);
    CHECK_EQ(bin_count(bin), 0);
    check_all();
  }
}

TEST(without_a_budget_turns_add_nothing) {
  CHECK(option_set(OPTION_bins_extra_kb, 0));
  bin_t *bin = start_bins(class_of(1024), 0);
  REQUIRE(bin != NULL);
  take_turns(0, 5);
  CHECK_EQ(bin->capacity, 64);
  CHECK_EQ(budget.extra_bytes, 0);
}

TEST(bins_share_the_budget) {
  CHECK(option_set(OPTION_bins_extra_kb, 150)); /* 64 more blocks of 1 KiB and 128 more of 512 bytes fit, but no more */
  REQUIRE(start_bins(class_of(1024), class_of(512)) != NULL);
  take_turns(0, 5);
  CHECK_EQ(places[0].bin.capacity, 128);
  take_turns(1, 5);
  CHECK_EQ(places[1].bin.capacity, 256);
  CHECK_EQ(budget.extra_bytes, (64 + 64) << 10);
  take_turns(0, 5);
  CHECK_EQ(places[0].bin.capacity, 128);
  for (int i = 0; i < 3; i++) bin_tick(&places[1].bin, &owner, &budget); /* the first tick finds it used */
  CHECK_EQ(budget.extra_bytes, 64 << 10);
  CHECK(option_set(OPTION_bins_extra_kb, 256));
  take_turns(0, 5);
  CHECK_EQ(places[0].bin.capacity, 256);
  CHECK_EQ(budget.extra_bytes, 192 << 10);
}

TEST(a_batch_doubles_up_to_half_the_bin) {
  bin_t *bin = start_bins(class_of(64), 0);
  REQUIRE(bin != NULL);
  uint64_t before = 0;
  for (uint64_t want = 4; bin->refills < 10; want = want < 128 ? want * 2 : 128) {
    uint64_t refills = bin->refills;
    while (bin->refills == refills) REQUIRE(take(0));
    CHECK_EQ(bin->refill_blocks - before, want);
    before = bin->refill_blocks;
    for (uint64_t i = 1; i < want; i++) { /* upward */
      REQUIRE(take(0));
      CHECK(held[0][held_count[0] - 1] > held[0][held_count[0] - 2] ||
            region_unit(held[0][held_count[0] - 1]) != region_unit(held[0][held_count[0] - 2]));
    }
  }
}

/* ---- ticks ---- */

TEST(ticks_halve_an_unused_bin) {
  bin_t *bin = start_bins(class_of(1024), 0);
  REQUIRE(bin != NULL);
  take_turns(0, 6);
  CHECK_EQ(bin->capacity, 256);
  CHECK(bin_count(bin) > 64);
  bin_tick(bin, &owner, &budget);
  CHECK_EQ(bin->capacity, 256); /* it was used */
  for (intptr_t want = 128; want >= 8; want /= 2) {
    bin_tick(bin, &owner, &budget);
    CHECK_EQ(bin->capacity, want);
    check_all();
  }
  uint32_t shrunk = budget.shrunk;
  bin_tick(bin, &owner, &budget);
  CHECK(bin->capacity == 8 && budget.shrunk == shrunk);
  CHECK_EQ(budget.shrunk, 5);
  take_many(0, 100);
  check_all();
}

TEST(a_used_bin_keeps_its_size) {
  bin_t *bin = start_bins(class_of(1024), 0);
  REQUIRE(bin != NULL);
  take_turns(0, 6);
  for (int i = 0; i < 10; i++) {
    take_many(0, 300);
    bin_tick(bin, &owner, &budget);
    CHECK_EQ(bin->capacity, 256);
    give_many(0, 300);
    bin_tick(bin, &owner, &budget);
    CHECK_EQ(bin->capacity, 256);
  }
}

/* Every change of size keeps the blocks used last. */
TEST(resizing_keeps_the_order) {
  bin_t *bin = start_bins(class_of(1024), 0);
  REQUIRE(bin != NULL);
  take_turns(0, 6);
  take_many(0, 300);
  while (bin_count(bin) > 0) REQUIRE(take(0));
  static void *order[100];
  for (int i = 0; i < 100; i++) {
    order[i] = held[0][0];
    give(0, 0);
  }
  REQUIRE(bin_count(bin) == 100 && bin->capacity == 256);
  bin_tick(bin, &owner, &budget);
  for (int i = 0; i < 5; i++) bin_tick(bin, &owner, &budget);
  CHECK_EQ(bin->capacity, 8);
  CHECK_EQ(bin_count(bin), 7);
  for (int i = 99; i > 92; i--) CHECK(bin_pop(bin) == order[i]);
  CHECK(bin_pop(bin) == NULL);
}

/* If a flush is cut short, by a fault or in a fork's child, the bin is empty: none of its blocks is in a slab as well. */
TEST(a_bin_is_empty_while_its_blocks_are_on_their_way) {
  bin_t *bin = start_bins(class_of(1024), 0);
  REQUIRE(bin != NULL);
  take_many(0, 20);
  bin_empty(bin, &owner);
  void *block = held[0][0];
  CHECK(region_clear_live(block));
  give_blocks(&owner, &block, 1);
  for (int i = 1; i < 4; i++) give(0, i);
  bin_entries(bin)[bin->top++] = block; /* the second copy */
  jmp_buf place;
  fake_os_capture();
  fake_os_catch_abort(&place);
  if (setjmp(place) == 0) bin_empty(bin, &owner);
  CHECK(strncmp(fake_os_captured(), "hakmem: double free", 19) == 0);
  CHECK_EQ(bin_count(bin), 0);
}

/* ---- all at once ---- */

TEST(random_use_neither_loses_nor_doubles_a_block) {
  static const struct {
    size_t first, second;
  } pairs[] = {{16, 64}, {1024, 512}, {4096, 20480}, {32768, 320}};
  uint64_t seed = unit_seed();
  CHECK(option_set(OPTION_bins_extra_kb, 700));
  REQUIRE(start_bins(0, 0) != NULL);
  for (unsigned pair = 0; pair < 4; pair++) {
    bin_start(0, class_of(pairs[pair].first));
    bin_start(1, class_of(pairs[pair].second));
    budget.extra_bytes = 0;
    for (int round = 0; round < 300; round++) {
      int n = (int)unit_below(&seed, 2), count = (int)unit_below(&seed, 400);
      if (held_count[n] < 3000 && unit_below(&seed, 2) != 0) take_many(n, count);
      else
        for (; count > 0 && held_count[n] > 0; count--) give(n, (int)unit_below(&seed, (uint32_t)held_count[n]));
      if (unit_below(&seed, 5) == 0) bin_tick(&places[n].bin, &owner, &budget);
      if (unit_below(&seed, 50) == 0) bin_empty(&places[n].bin, &owner);
      check_all();
    }
    for (int n = 0; n < BINS; n++) {
      give_many(n, held_count[n]);
      bin_empty(&places[n].bin, &owner);
    }
    check_all();
    slab_release_empty(&owner);
    CHECK_EQ(load_relaxed(&owner.free_bytes), 0);
  }
}

TEST(without_memory_a_bin_stays_empty_and_right) {
  bin_t *bin = start_bins(class_of(20480), 0);
  REQUIRE(bin != NULL);
  fake_os_fail(FAKE_TAKING, 1, UINT64_MAX);
  while (take(0)) CHECK(held_count[0] < HELD_MAX - 1);
  CHECK(held_count[0] > 0);
  for (int i = 0; i < 5; i++) CHECK(bin_refill(bin, &owner, &budget) == NULL && bin_pop(bin) == NULL);
  check_all();
  give_many(0, held_count[0]);
  take_many(0, 1);
  check_all();
}
