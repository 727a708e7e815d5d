/* slab.c - slabs of one owner, checked against a model that knows which blocks are out. */
#include "slab/slab.h"

#include <sys/wait.h>
#include <unistd.h>

#include "base/format.h"
#include "fake_os.h"
#include "kit/options.h"
#include "kit/pressure.h"
#include "slab/batch.h"
#include "slab/large.h"
#include "slab/remote.h"
#include "space/huge.h"
#include "space/ledger.h"
#include "space/purge.h"
#include "slabs.h"
#include "space.h"
#include "space/span.h"
#include "unit.h"

enum { OUT_MAX = 20000, BATCH_MAX = 300 };

static slab_owner_t owner;
static region_bin_t bins[CLASS_COUNT]; /* only their addresses matter */
static uint64_t seed;

typedef struct out {
  void *blocks[OUT_MAX];
  uint32_t count;
} out_t;
static out_t out[CLASS_COUNT];

static void start_slabs(uint64_t address_limit) {
  seed = unit_seed();
  CHECK(option_set(OPTION_decay_ms, -1));
  fake_os_set_address_limit(address_limit);
  REQUIRE(region_init(SMALL_REGION));
  owner_init(&owner);
  store_relaxed(&owner.thread, (uintptr_t)0x1230);
}

/* ---- invariants ---- */

static uint32_t bits_free(const unit_t *slab) {
  uint32_t free = 0;
  for (uint32_t word = 0; word < 64; word++) {
    uint64_t bits = load_relaxed(region_bits(region.free_bits, unit_number(slab), word));
    uint32_t blocks = slab_class(slab)->blocks;
    if (word * 64 >= blocks) continue;
    if (blocks - word * 64 < 64) CHECK(bits >> (blocks - word * 64) == 0);
    if (word < slab->first_word) CHECK_EQ(bits, 0);
    free += bits_count64(bits);
  }
  return free;
}

static uint32_t check_slab(const unit_t *slab, unsigned c, bool full) {
  uint32_t unit = unit_number(slab);
  CHECK_EQ(load_relaxed(&slab->kind), UNIT_SLAB);
  CHECK_EQ(load_relaxed(&slab->size_class), c);
  CHECK_EQ(slab->units, class_info[c].units);
  CHECK(slab_owner(slab) == &owner);
  CHECK_EQ(slab->listed_full, full);
  CHECK_EQ(load_relaxed(&slab->free), bits_free(slab));
  CHECK_EQ(load_relaxed(&slab->free) == 0, full);
  for (uint32_t i = 0; i < slab->units; i++) {
    CHECK(unit_head(unit + i) == slab);
    CHECK(!unit_is_free(unit + i));
    CHECK(racy_load(region_bin(region.live, unit + i)) == &bins[c]);
  }
  return load_relaxed(&slab->free);
}

/* Checks the lists, counts and bits of a class; returns the free blocks in it. */
static uint32_t check_class(unsigned c) {
  uint32_t slabs = 0, free = 0;
  for (int full = 0; full < 2; full++) {
    uint32_t before = UNIT_NONE;
    const slab_list_t *list = full != 0 ? &owner.full[c] : &owner.partial[c];
    for (uint32_t unit = list->first; unit != UNIT_NONE; unit = unit_at(unit)->next) {
      CHECK_EQ(unit_at(unit)->prev, before);
      free += check_slab(unit_at(unit), c, full != 0);
      before = unit;
      slabs++;
    }
  }
  CHECK_EQ(load_relaxed(&owner.slab_count[c]), slabs);
  CHECK_EQ((uint64_t)slabs * class_info[c].blocks, (uint64_t)free + out[c].count);
  return slabs;
}

static void check_slabs(void) {
  uint64_t units = 0;
  int64_t free_bytes = 0;
  for (unsigned c = 0; c < CLASS_ZERO; c++) {
    uint64_t slabs = check_class(c);
    units += slabs * class_info[c].units;
    free_bytes += (int64_t)(slabs * class_info[c].blocks - out[c].count) * class_info[c].size;
  }
  CHECK_EQ(load_relaxed(&owner.free_bytes), free_bytes);
  for (uint32_t unit = 0; unit < load_relaxed(&region.units); unit++) {
    if (unit_is_free(unit)) CHECK(racy_load(region_bin(region.live, unit)) == &region_no_bin);
  }
  CHECK_EQ(units + ledger_census().free_units, units_mapped());
}

/* ---- operations on slabs and model ---- */

/* Checks that the block lies at a block's place in its slab; the pattern in it exposes a second owner. */
static void check_new_block(unsigned c, void *block) {
  const unit_t *slab = unit_head((uint32_t)region_unit(block));
  size_t offset = (size_t)((char *)block - (char *)region_address(unit_number(slab)));
  uint32_t index = class_block_at(c, offset);
  CHECK_EQ(load_relaxed(&slab->size_class), c);
  CHECK(index * (size_t)class_info[c].size == offset && index < class_info[c].blocks);
  CHECK((uintptr_t)block % (class_info[c].size & -class_info[c].size) == 0);
  CHECK(!region_is_live(block));
  region_set_live(block);
  memset(block, (int)(c + 1), class_info[c].size);
}

static void take(unsigned c, uint32_t count) {
  void *batch[BATCH_MAX];
  if (out[c].count + count > OUT_MAX) return;
  bool among = count % 4 == 1; /* the other way to take one block */
  if (among) batch[0] = batch_take_among(&owner, c, &bins[c], unit_below(&seed, BATCH_NUMBERS));
  uint32_t taken = !among ? take_blocks(&owner, c, &bins[c], batch, count) : batch[0] != NULL;
  CHECK(taken > 0 && taken <= count);
  for (uint32_t i = 0; i < taken; i++) {
    check_new_block(c, batch[i]);
    out[c].blocks[out[c].count++] = batch[i];
  }
}

static void *take_out(unsigned c) {
  uint32_t n = unit_below(&seed, out[c].count);
  char *block = out[c].blocks[n];
  out[c].blocks[n] = out[c].blocks[--out[c].count];
  CHECK(block[0] == (char)(c + 1) && block[class_info[c].size - 1] == (char)(c + 1));
  CHECK(region_clear_live(block));
  return block;
}

static void give(unsigned c, uint32_t count) {
  void *batch[BATCH_MAX];
  if (count > out[c].count) count = out[c].count;
  for (uint32_t i = 0; i < count; i++) batch[i] = take_out(c);
  give_blocks(&owner, batch, count);
}

static void give_all(void) {
  for (unsigned c = 0; c < CLASS_ZERO; c++) {
    while (out[c].count > 0) give(c, BATCH_MAX);
  }
}

/* ---- randomized ---- */

static void random_run(int steps) {
  for (int step = 0; step < steps && check_failures() == 0; step++) {
    unsigned c = unit_below(&seed, CLASS_ZERO);
    uint32_t count = 1 + unit_below(&seed, unit_below(&seed, 4) == 0 ? BATCH_MAX : 12);
    bool shrinks = step / 500 % 2 != 0;
    if (unit_below(&seed, 100) < (shrinks ? 35u : 60u)) take(c, count);
    else give(c, count);
    if (unit_below(&seed, 400) == 0) slab_release_empty(&owner);
    if (step % 100 == 0) check_slabs();
  }
  give_all();
  check_slabs();
  for (unsigned c = 0; c < CLASS_ZERO; c++) CHECK(load_relaxed(&owner.slab_count[c]) <= 1);
  slab_release_empty(&owner);
  check_slabs();
  CHECK_EQ(ledger_census().free_units, units_mapped());
}

TEST(random_batches_match_the_model) {
  start_slabs(UINT64_MAX);
  random_run(8000);
}

TEST(random_batches_match_the_model_under_a_limit) {
  start_slabs((uint64_t)1 << 40);
  random_run(8000);
}

/* ---- one property each ---- */

TEST(each_class_gives_every_block_of_its_slab_lowest_last) {
  start_slabs(UINT64_MAX);
  for (unsigned c = 0; c < CLASS_ZERO; c++) {
    uint32_t blocks = class_info[c].blocks;
    void *batch[4096];
    REQUIRE(batch_take(&owner, c, &bins[c], batch, blocks) == blocks);
    CHECK_EQ(load_relaxed(&owner.slab_count[c]), 1);
    for (uint32_t i = 0; i < blocks; i++)
      CHECK((char *)batch[blocks - 1 - i] == (char *)batch[blocks - 1] + (size_t)i * class_info[c].size);
    CHECK((uintptr_t)batch[blocks - 1] % HAK_UNIT == 0);
    give_blocks(&owner, batch, blocks);
  }
}

/* The test finds the block itself, one by one among the blocks of one word of bits. */
TEST(one_among_the_lowest_is_the_one_of_its_number) {
  enum { MOST = BATCH_AMONG, WORD = 64 };
  bool taken[2 * WORD] = {false};
  start_slabs(UINT64_MAX);
  unsigned c = class_of(512);
  uint32_t size = class_info[c].size, blocks = class_info[c].blocks;
  REQUIRE(blocks > WORD && blocks <= 2 * WORD);
  char *start = NULL;
  for (uint32_t i = 0; i < blocks; i++) {
    uint32_t lowest[MOST], count = 0, first = i < WORD ? 0 : WORD, number = unit_below(&seed, BATCH_NUMBERS);
    for (uint32_t at = first; at < blocks && at < first + WORD && count < MOST; at++) {
      if (!taken[at]) lowest[count++] = at;
    }
    char *block = batch_take_among(&owner, c, &bins[c], number);
    REQUIRE(block != NULL && count > 0);
    if (i == 0) start = region_address((uint32_t)region_unit(block));
    CHECK_EQ(block - start, (size_t)lowest[number % count] * size);
    taken[lowest[number % count]] = true;
  }
  CHECK_EQ(owner.partial[c].first, UNIT_NONE);
  const char *next = batch_take_among(&owner, c, &bins[c], 0);
  CHECK(next != NULL && (next < start || next >= start + HAK_UNIT));
}

/* A batch never goes beyond a slab's own bits. */
TEST(a_slab_that_counts_more_than_it_has_ends_the_process) {
  start_slabs(UINT64_MAX);
  unsigned c = class_of(1024);
  void *batch[64];
  REQUIRE(batch_take(&owner, c, &bins[c], batch, 1) == 1);
  unit_t *slab = unit_at((uint32_t)region_unit(batch[0]));
  pid_t child = fork();
  if (child == 0) {
    store_relaxed(&slab->free, (uint16_t)(load_relaxed(&slab->free) + 1));
    _exit(batch_take(&owner, c, &bins[c], batch, 64) == 0);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status));
}

TEST(a_batch_ends_with_the_slabs_there_are) {
  start_slabs(UINT64_MAX);
  unsigned c = class_of(16384);
  void *batch[64];
  CHECK_EQ(take_blocks(&owner, c, &bins[c], batch, 64), class_info[c].blocks);
  CHECK_EQ(load_relaxed(&owner.slab_count[c]), 1);
}

TEST(one_empty_slab_of_a_class_is_kept_and_no_more) {
  start_slabs(UINT64_MAX);
  unsigned c = class_of(1024);
  uint32_t blocks = class_info[c].blocks;
  void *first[64], *second[64];
  REQUIRE(take_blocks(&owner, c, &bins[c], first, blocks) == blocks && take_blocks(&owner, c, &bins[c], second, blocks) == blocks);
  CHECK_EQ(load_relaxed(&owner.slab_count[c]), 2);
  give_blocks(&owner, first, blocks);
  CHECK_EQ(load_relaxed(&owner.slab_count[c]), 1 + 1); /* the other slab is full: this is the only one with free blocks */
  give_blocks(&owner, second, blocks);
  CHECK_EQ(load_relaxed(&owner.slab_count[c]), 1);
  uint64_t free = ledger_census().free_units;
  slab_release_empty(&owner);
  CHECK_EQ(load_relaxed(&owner.slab_count[c]), 0);
  CHECK_EQ(ledger_census().free_units, free + 1);
}

/* The slabs' records and bits are in no cache, so the work of one call is limited. */
TEST(a_batch_is_of_few_slabs) {
  enum { SLABS = 100, SLABS_OF_A_TAKE = 8, WORDS_OF_A_GIVE = 63 };
  start_slabs(UINT64_MAX);
  unsigned c = class_of(32768);
  uint32_t blocks = class_info[c].blocks;
  static void *slabs[SLABS][8], *apart[SLABS], *batch[SLABS];
  for (int i = 0; i < SLABS; i++) {
    REQUIRE(take_blocks(&owner, c, &bins[c], slabs[i], blocks) == blocks);
    apart[i] = slabs[i][i % (int)blocks];
  }
  uint32_t given = batch_give(&owner, apart, SLABS);
  CHECK(given > 0 && given <= WORDS_OF_A_GIVE);
  CHECK_EQ(load_relaxed(&owner.free_bytes), (int64_t)(given * class_info[c].size));
  give_blocks(&owner, apart + given, SLABS - given);
  CHECK_EQ(load_relaxed(&owner.free_bytes), (int64_t)(SLABS * class_info[c].size));
  uint32_t taken = take_blocks(&owner, c, &bins[c], batch, SLABS);
  CHECK(taken > 0 && taken <= SLABS_OF_A_TAKE);
}

TEST(a_block_that_comes_and_goes_costs_no_slab) {
  start_slabs(UINT64_MAX);
  void *block;
  for (int i = 0; i < 100; i++) {
    CHECK_EQ(take_blocks(&owner, 5, &bins[5], &block, 1), 1);
    give_blocks(&owner, &block, 1);
    CHECK_EQ(load_relaxed(&owner.slab_count[5]), 1);
  }
  CHECK_EQ(ledger_census().free_units, units_mapped() - 1);
}

TEST(out_of_memory_takes_what_there_is_and_then_nothing) {
  start_slabs(UINT64_MAX);
  fake_os_fail(FAKE_TAKING, 1, UINT64_MAX);
  unsigned c = class_of(4096);
  void *batch[16];
  uint32_t taken, total = 0;
  while ((taken = take_blocks(&owner, c, &bins[c], batch, 16)) != 0) total += taken;
  CHECK_EQ(total, units_mapped() * 16);
  fake_os_fail_none();
  CHECK(take_blocks(&owner, c, &bins[c], batch, 16) > 0);
}

/* A class has 16 slabs before one call brings in the pages of the next. */
TEST(the_slabs_of_a_class_that_has_grown_are_populated) {
  start_slabs(UINT64_MAX);
  unsigned c = class_of(8192);
  uint64_t before = fake_os_calls(FAKE_ONLY(FAKE_POPULATE));
  for (int i = 0; i < 16; i++) take(c, class_info[c].blocks);
  CHECK_EQ(fake_os_calls(FAKE_ONLY(FAKE_POPULATE)), before);
  take(c, 1);
  CHECK_EQ(fake_os_calls(FAKE_ONLY(FAKE_POPULATE)), before + 1);
  CHECK_EQ(slab_populated_bytes(), class_info[c].units * HAK_UNIT);
  take(c, class_info[c].blocks);
  fake_os_fail(FAKE_ONLY(FAKE_POPULATE), 1, UINT64_MAX);
  take(c, 1);
  CHECK_EQ(fake_os_injected(), 1);
  CHECK_EQ(slab_populated_bytes(), class_info[c].units * HAK_UNIT);
  check_slabs();
}

TEST(only_slabs_of_fresh_pages_are_populated_and_only_if_wanted) {
  start_slabs(UINT64_MAX);
  unsigned c = class_of(8192);
  CHECK(option_set(OPTION_populate, 0));
  for (int i = 0; i < 20; i++) take(c, class_info[c].blocks);
  CHECK_EQ(fake_os_calls(FAKE_ONLY(FAKE_POPULATE)), 0);
  CHECK(option_set(OPTION_populate, 1));
  give(c, out[c].count);
  slab_release_empty(&owner); /* their pages are still resident */
  for (int i = 0; i < 20; i++) take(c, class_info[c].blocks);
  CHECK_EQ(fake_os_calls(FAKE_ONLY(FAKE_POPULATE)), 0);
}

/* The price of populating a slab: old_price for a slab that existed before, 1000 for a new one. */
static uint64_t old_price;
static void price_by_age(void *start) {
  bool old = load_relaxed(&unit_at((uint32_t)region_unit(start))->kind) == UNIT_SLAB;
  fake_os_set_prices(old ? old_price : 1000, 0);
}

static void start_learning(uint64_t price) {
  if (os_page_size() > 16384) check_skip("no block is larger than a page");
  start_slabs(UINT64_MAX);
  old_price = price;
  fake_os_set_prices(1000, 0);
  fake_os_during(FAKE_POPULATE, price_by_age);
}

static uint64_t populated_by(unsigned c, int slabs) {
  uint64_t before = slab_populated_bytes();
  for (int i = 0; i < slabs; i++) take(c, class_info[c].blocks);
  return (slab_populated_bytes() - before) / (class_info[c].units * HAK_UNIT);
}

TEST(where_programs_use_little_of_each_block_slabs_are_not_populated) {
  unsigned c = class_of(16384);
  start_learning(300);
  CHECK_EQ(populated_by(c, 60), 0);
  CHECK_EQ(fake_os_calls(FAKE_ONLY(FAKE_POPULATE)), 2);
  old_price = 10; /* later programs use all of it */
  CHECK_EQ(populated_by(c, 20), 16);
  CHECK_EQ(fake_os_calls(FAKE_ONLY(FAKE_POPULATE)), 2 + 2 + 16);
  old_price = 900; /* and then little again */
  CHECK_EQ(populated_by(c, 64), 48);
}

TEST(where_they_use_all_of_it_slabs_are_populated) {
  unsigned c = class_of(16384);
  start_learning(200);
  CHECK_EQ(populated_by(c, 60), 60 - 16);
  CHECK_EQ(fake_os_calls(FAKE_ONLY(FAKE_POPULATE)), 2 + 60 - 16);
}

/* The huge superslabs once the heap uses four superslabs more than the size up to which none is made huge. */
static uint64_t huge_with(uint64_t price) {
  unsigned c = class_of(16384);
  start_learning(price);
  CHECK(option_set(OPTION_huge, 1));
  while (ledger_used_units() < 20 * HAK_UNITS_PER_SUPERSLAB) take(c, class_info[c].blocks);
  return huge_count();
}
TEST(where_they_use_all_of_it_slabs_begin_huge_pages) { CHECK(huge_with(200) >= 3); }
TEST(where_they_use_little_slabs_begin_none) { CHECK_EQ(huge_with(300), 0); }

TEST(slabs_of_blocks_within_a_page_are_populated_without_a_look) {
  unsigned c = class_of(4096);
  start_learning(1000);
  CHECK_EQ(populated_by(c, 40), 40 - 16);
  CHECK_EQ(fake_os_calls(FAKE_ONLY(FAKE_POPULATE)), 40 - 16);
}

TEST(slabs_of_a_huge_superslab_are_not_populated) {
  start_slabs(UINT64_MAX);
  unsigned c = class_of(8192);
  for (int i = 0; i < 16; i++) take(c, class_info[c].blocks);
  store_relaxed(&region.superslabs[0].huge, 1);
  uint64_t before = fake_os_calls(FAKE_ONLY(FAKE_POPULATE));
  take(c, class_info[c].blocks);
  CHECK_EQ(fake_os_calls(FAKE_ONLY(FAKE_POPULATE)), before);
  store_relaxed(&region.superslabs[0].huge, 0);
  take(c, class_info[c].blocks);
  CHECK_EQ(fake_os_calls(FAKE_ONLY(FAKE_POPULATE)), before + 1);
}

/* Live bits that the owner's plain store has set again after the slab ended. */
TEST(a_new_slab_has_no_live_block_of_an_old_one) {
  start_slabs(UINT64_MAX);
  unsigned c = class_of(1024);
  uint32_t blocks = class_info[c].blocks;
  take(c, blocks);
  char *first = out[c].blocks[0];
  give(c, blocks);
  slab_release_empty(&owner);
  for (uint32_t i = 0; i < blocks; i++) region_set_live(first + (size_t)i * 1024);
  take(c, blocks); /* check_new_block: not live */
  CHECK(out[c].blocks[0] == first);
}

TEST(slabs_are_listed_again_from_their_bits_alone) {
  start_slabs(UINT64_MAX);
  for (int i = 0; i < 300; i++) take(unit_below(&seed, CLASS_ZERO), 20);
  for (int i = 0; i < 200; i++) give(unit_below(&seed, CLASS_ZERO), 7);
  owner_init(&owner);
  store_relaxed(&owner.free_bytes, 0);
  for (unsigned c = 0; c < CLASS_ZERO; c++) store_relaxed(&owner.slab_count[c], 0);
  for (uint32_t unit = 0; unit < load_relaxed(&region.units); unit++) {
    if (load_relaxed(&unit_at(unit)->kind) != UNIT_SLAB) continue;
    unit_at(unit)->first_word = 63; /* as a fork may leave these */
    unit_at(unit)->holes = 1;
    unit_at(unit)->listed_full = !unit_at(unit)->listed_full;
    slab_relist(&owner, unit_at(unit), racy_load(region_bin(region.live, unit)));
    CHECK_EQ(unit_at(unit)->holes, 0);
  }
  check_slabs();
  give_all();
  check_slabs();
}

/* ---- double frees ---- */

/* Whether the call ends with the line of a double free of `block`. */
static bool dies_as_double_free(void **batch, uint32_t count, const void *block, unsigned c) {
  jmp_buf place;
  fake_os_capture();
  fake_os_catch_abort(&place);
  if (setjmp(place) == 0) {
    give_blocks(&owner, batch, count);
    return false;
  }
  format_t f;
  char want[200];
  format_init(&f, want, sizeof want);
  format_text(&f, "hakmem: double free: free(");
  format_hex(&f, (uintptr_t)block);
  format_text(&f, "): block is already free, class ");
  format_unsigned(&f, class_info[c].size);
  format_text(&f, "\n");
  return strcmp(fake_os_captured(), want) == 0;
}

TEST(a_block_given_twice_ends_the_process) {
  start_slabs(UINT64_MAX);
  for (unsigned c = 0; c < CLASS_ZERO; c++) {
    void *batch[4];
    REQUIRE(take_blocks(&owner, c, &bins[c], batch, 4) == 4);
    give_blocks(&owner, &batch[1], 1);
    CHECK(dies_as_double_free(&batch[1], 1, batch[1], c));
    void *mixed[3] = {batch[0], batch[1], batch[2]};
    CHECK(dies_as_double_free(mixed, 3, batch[1], c));
  }
}

/* A handler of SIGABRT may allocate. */
TEST(what_a_batch_has_given_before_it_ends_the_process_is_counted) {
  start_slabs(UINT64_MAX);
  void *blocks[4096];
  REQUIRE(take_blocks(&owner, 0, &bins[0], blocks, 4096) == 4096);
  give_blocks(&owner, &blocks[70], 1);
  CHECK(dies_as_double_free((void *[]){blocks[0], blocks[70], blocks[200]}, 3, blocks[70], 0));
  CHECK_EQ(load_relaxed(&unit_head((uint32_t)region_unit(blocks[0]))->free), 2);
}

TEST(a_block_twice_in_one_batch_ends_the_process) {
  start_slabs(UINT64_MAX);
  for (unsigned c = 0; c < CLASS_ZERO; c++) {
    void *batch[4];
    REQUIRE(take_blocks(&owner, c, &bins[c], batch, 4) == 4);
    void *twice[3] = {batch[0], batch[2], batch[2]};
    CHECK(dies_as_double_free(twice, 3, batch[2], c));
  }
}

/* ---- large blocks ---- */

static void check_large(void *block, size_t size, size_t align, bool zero) {
  const unit_t *slab = unit_head((uint32_t)region_unit(block));
  CHECK_EQ(load_relaxed(&slab->kind), UNIT_LARGE);
  CHECK(region_address(unit_number(slab)) == block && (uintptr_t)block % align == 0);
  CHECK(slab->bytes >= size && slab->bytes - size < os_page_size() && slab->bytes <= slab->units * HAK_UNIT);
  CHECK(region_is_live(block));
  for (uint32_t i = 0; i < slab->units; i++) CHECK(unit_head(unit_number(slab) + i) == slab);
  if (zero) CHECK(unit_is_zero(block, slab->bytes));
  memset(block, 0x77, slab->bytes);
}

TEST(large_blocks_keep_size_alignment_and_the_promise_of_zero) {
  start_slabs(UINT64_MAX);
  void *blocks[32] = {NULL};
  for (int step = 0; step < 400; step++) {
    unsigned n = unit_below(&seed, 32);
    if (blocks[n] != NULL) {
      CHECK(region_clear_live(blocks[n]));
      large_free(unit_head((uint32_t)region_unit(blocks[n])));
      blocks[n] = NULL;
    } else {
      bool zero = unit_below(&seed, 2) == 0;
      size_t size = HAK_SMALL_MAX + 1 + unit_below(&seed, unit_below(&seed, 4) == 0 ? 5000000 : 300000);
      size_t align = (size_t)1 << unit_below(&seed, 23);
      REQUIRE((blocks[n] = large_alloc(size, align, zero ? SPAN_ZEROED : SPAN_PLAIN)) != NULL);
      check_large(blocks[n], size, align, zero);
    }
    if (step % 50 == 0) (void)purge_all();
  }
  CHECK(large_alloc_count > large_free_count);
}

TEST(large_blocks_grow_and_shrink_where_they_are) {
  start_slabs(UINT64_MAX);
  char *block = large_alloc(3 * HAK_UNIT, 1, SPAN_PLAIN);
  REQUIRE(block != NULL);
  unit_t *slab = unit_head((uint32_t)region_unit(block));
  memset(block, 1, 3 * HAK_UNIT);
  uint64_t free = ledger_census().free_units;
  CHECK(large_resize(slab, 9 * HAK_UNIT - 100));
  CHECK_EQ(ledger_census().free_units, free - 6);
  for (uint32_t i = 0; i < 9; i++) CHECK(unit_head(unit_number(slab) + i) == slab);
  memset(block + 3 * HAK_UNIT, 2, 6 * HAK_UNIT);
  CHECK(large_resize(slab, 2 * HAK_UNIT));
  CHECK_EQ(ledger_census().free_units, free + 1);
  CHECK(block[2 * HAK_UNIT - 1] == 1);
  CHECK(large_resize(slab, 4 * HAK_UNIT));
  void *wall = large_alloc(HAK_UNIT, 1, SPAN_PLAIN);
  CHECK(wall == block + 4 * HAK_UNIT);
  CHECK(!large_resize(slab, 5 * HAK_UNIT));
  CHECK_EQ(slab->bytes, 4 * HAK_UNIT);
  CHECK(!large_resize(slab, LARGE_REQUEST_MIN - 1) && large_resize(slab, LARGE_REQUEST_MIN) && slab->units == 1);
  CHECK(!large_resize(slab, PTRDIFF_MAX));
  CHECK(large_alloc(PTRDIFF_MAX, 1, SPAN_PLAIN) == NULL && large_alloc(HAK_REGION_MAX + 1, 1, SPAN_PLAIN) == NULL);
  CHECK(large_alloc(HAK_UNIT, (size_t)1 << 62, SPAN_PLAIN) == NULL);
}

static uint32_t take_to_grow_on(size_t size) {
  void *block = large_alloc_to_grow(size, SPAN_GROWING, 0);
  CHECK(block != NULL);
  return (uint32_t)region_unit(block);
}

/* Three units have a fourth behind them otherwise. */
TEST(near_a_limit_no_room_is_left_behind_a_block_that_grows) {
  start_slabs(UINT64_MAX);
  uint32_t first = take_to_grow_on(3 * HAK_UNIT);
  CHECK_EQ(take_to_grow_on(3 * HAK_UNIT), first + 4);
  pressure_set(PRESSURE_LOW, PRESSURE_NOTHING, 0, 0);
  uint32_t next = take_to_grow_on(3 * HAK_UNIT);
  CHECK_EQ(take_to_grow_on(3 * HAK_UNIT), next + 3);
}

TEST(where_addresses_are_limited_no_room_is_left_behind_a_block_that_grows) {
  start_slabs((uint64_t)1 << 40);
  uint32_t first = take_to_grow_on(3 * HAK_UNIT);
  CHECK_EQ(take_to_grow_on(3 * HAK_UNIT), first + 3);
}

static void large_round(size_t size, span_use_t use) {
  char *block = large_alloc(size, 1, use);
  REQUIRE(block != NULL);
  check_large(block, size, 1, use == SPAN_ZEROED);
  CHECK(region_clear_live(block));
  large_free(unit_head((uint32_t)region_unit(block)));
}

static uint64_t purges(void) { return fake_os_calls(FAKE_ONLY(FAKE_PURGE)); }

TEST(a_large_block_is_zero_though_the_kernel_takes_nothing_back) {
  start_slabs(UINT64_MAX);
  CHECK(option_set(OPTION_decay_ms, 1000));
  const size_t size = (size_t)32 << 20;
  large_round(size, SPAN_PLAIN);
  CHECK_EQ(purges(), 0);
  fake_os_fail(FAKE_ONLY(FAKE_PURGE), 1, UINT64_MAX);
  large_round(size, SPAN_ZEROED);
  CHECK_EQ(purges(), 2); /* in vain, once when it is allocated and once when it is freed */
  large_round(size, SPAN_ZEROED);
  CHECK_EQ(purges(), 4);
  fake_os_fail_none();
  large_round(size, SPAN_ZEROED);
  CHECK_EQ(purges(), 6);
}

TEST(a_large_block_of_callocs_goes_back_at_once) {
  start_slabs(UINT64_MAX);
  CHECK(option_set(OPTION_decay_ms, 1000));
  const size_t size = ((size_t)32 << 20) + HAK_UNIT; /* the last superslab is used in part */
  for (uint64_t round = 1; round < 4; round++) {
    large_round(size, SPAN_ZEROED);
    CHECK_EQ(purges(), round); /* no purge until the next free */
    CHECK_EQ(ledger_idle_units(), 0);
  }
  large_round(size, SPAN_PLAIN);
  CHECK_EQ(purges(), 3);
  CHECK_EQ(ledger_idle_units(), size / HAK_UNIT);
  (void)purge_all();
  CHECK_EQ(purges(), 4);
  /* Not if memory is to be kept, and not if the block is small enough to be cleared. */
  CHECK(option_set(OPTION_decay_ms, -1));
  large_round(size, SPAN_ZEROED);
  CHECK_EQ(purges(), 4);
  CHECK_EQ(purge_all(), size);
  CHECK(option_set(OPTION_decay_ms, 1000));
  CHECK(option_set(OPTION_zero_kb, 0));
  large_round(size, SPAN_ZEROED);
  CHECK_EQ(purges(), 5);
}

enum { CALLOCED = (32 << 20) + (int)HAK_UNIT };
static void spend_on_most_pages(void *start) {
  (void)start;
  fake_os_spend(CALLOCED / os_page_size() * 100);
}
static void spend_on_few_pages(void *start) {
  (void)start;
  fake_os_spend(CALLOCED / os_page_size() * 50);
}

/* Otherwise each of their pages would be faulted in again for each block. */
TEST(large_blocks_of_callocs_that_are_written_all_over_are_cleared) {
  start_slabs(UINT64_MAX);
  CHECK(option_set(OPTION_decay_ms, 1000));
  fake_os_during(FAKE_PURGE, spend_on_most_pages);
  large_round(CALLOCED, SPAN_ZEROED);
  CHECK_EQ(purges(), 1);
  for (int i = 0; i < 32; i++) large_round(CALLOCED, SPAN_ZEROED);
  CHECK_EQ(purges(), 1);
  large_round(CALLOCED, SPAN_ZEROED); /* once in a while it is found out anew */
  CHECK_EQ(purges(), 2);
  fake_os_during(FAKE_PURGE, spend_on_few_pages);
  for (int i = 0; i < 33; i++) large_round(CALLOCED, SPAN_ZEROED);
  CHECK_EQ(purges(), 3);
  for (uint64_t i = 1; i <= 3; i++) {
    large_round(CALLOCED, SPAN_ZEROED);
    CHECK_EQ(purges(), 3 + i);
  }
  /* No more is cleared than dense blocks have left: a sparse table that begins in what they left stays sparse. */
  fake_os_during(FAKE_PURGE, spend_on_most_pages);
  large_round(CALLOCED, SPAN_ZEROED);
  large_round(CALLOCED, SPAN_ZEROED);
  CHECK_EQ(purges(), 7);
  char *table = large_alloc(4 * CALLOCED, 1, SPAN_ZEROED);
  REQUIRE(table != NULL && region_clear_live(table));
  CHECK_EQ(purges(), 8);
  large_free(unit_head((uint32_t)region_unit(table)));
  CHECK_EQ(purges(), 8);
  (void)purge_all();
  uint64_t so_far = purges();
  /* Not of sizes at which only an option gives pages back. */
  CHECK(option_set(OPTION_zero_kb, 1024));
  for (uint64_t i = 1; i <= 3; i++) {
    large_round(CALLOCED / 8, SPAN_ZEROED);
    CHECK_EQ(purges(), so_far + i);
  }
}

/* Under a limit on addresses, gaps between the blocks are lost for more blocks of the same size. */
TEST(large_blocks_lie_close_together) {
  enum { BLOCKS = 40 };
  start_slabs(UINT64_MAX);
  for (size_t bytes = HAK_SUPERSLAB; bytes < 5 * HAK_SUPERSLAB; bytes += HAK_UNIT) {
    uint32_t most = 0;
    unit_t *blocks[BLOCKS];
    for (int i = 0; i < BLOCKS; i++) {
      void *block = large_alloc(bytes, 1, SPAN_PLAIN);
      REQUIRE(block != NULL);
      blocks[i] = unit_head((uint32_t)region_unit(block));
      if (unit_number(blocks[i]) > most) most = unit_number(blocks[i]);
    }
    size_t end = ((size_t)most << HAK_UNIT_SHIFT) + bytes, all = BLOCKS * bytes;
    CHECK(end <= all + all / 8 + 2 * HAK_SUPERSLAB);
    for (int i = 0; i < BLOCKS; i++) large_free(blocks[i]);
    (void)purge_all();
  }
}

/* A block that nearly fills its huge pages. */
TEST(large_blocks_start_at_a_huge_page_where_that_costs_little) {
  start_slabs(UINT64_MAX);
  for (int i = 0; i < 8; i++) {
    void *block = large_alloc(4 * HAK_SUPERSLAB - HAK_UNIT, 1, SPAN_PLAIN);
    CHECK(block != NULL && region_unit(block) % HAK_UNITS_PER_SUPERSLAB == 0);
  }
}

TEST(large_blocks_that_were_written_all_over_are_huge_the_next_time) {
  start_slabs(UINT64_MAX);
  CHECK(option_set(OPTION_huge, 1) && option_set(OPTION_move, 0));
  fake_os_set_resident(SIZE_MAX);
  for (int i = 0; i < 2; i++) {
    void *block = large_alloc(2 * HAK_SUPERSLAB, 1, SPAN_PLAIN);
    REQUIRE(block != NULL);
    large_free(unit_head((uint32_t)region_unit(block)));
    CHECK(purge_all() > 0);
  }
  CHECK_EQ(huge_count(), 0);
  CHECK(large_alloc(8 * HAK_SUPERSLAB, 1, SPAN_PLAIN) != NULL);
  CHECK_EQ(huge_count(), 7); /* one is left out to learn from */
}
