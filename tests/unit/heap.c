/* heap.c - heaps and bins on top of the real lower layers, and the census. */
#include "front/heap.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include "fake_os.h"
#include "front/alloc.h"
#include "front/block.h"
#include "front/census.h"
#include "front/heaps.h"
#include "front/inspect.h"
#include "front/limits.h"
#include "front/named.h"
#include "front/resize.h"
#include "front/supply.h"
#include "front/thread.h"
#include "front/watch.h"
#include "heaps.h"
#include "kit/options.h"
#include "slab/hole.h"
#include "slab/remote.h"
#include "space/ledger.h"
#include "space/purge.h"
#include "space/span.h"
#include "unit.h"

/* ---- the table of sizes ---- */

/* Allocates one block of the class and gives it back. */
static void use_class(unsigned c) {
  void *block = block_alloc(class_info[c].size);
  CHECK(block != NULL);
  block_free(block, 0, "free");
}

TEST(a_class_has_a_bin_from_its_first_use_on) {
  start_heap();
  heap_t *heap = thread_attach();
  REQUIRE(heap != NULL);
  for (unsigned round = 0; round < CLASS_ZERO; round++) {
    unsigned used = round * 7 % CLASS_ZERO; /* each once, out of order */
    use_class(used);
    for (unsigned c = 0; c < CLASS_ZERO; c++) {
      bool has = false;
      for (unsigned i = 0; i <= round; i++) has |= i * 7 % CLASS_ZERO == c;
      size_t least = c != 0 ? class_info[c - 1].size + 1 : 1;
      const bin_t *bin = has ? heap_bin(heap, c) : &heap->none;
      CHECK_EQ(heap->has_bin[c], has);
      CHECK(bin_found(heap, least) == bin && bin_found(heap, class_info[c].size) == bin);
    }
  }
  check_heaps();
}

TEST(every_size_finds_the_bin_of_its_class) {
  start_heap();
  for (unsigned c = 0; c < CLASS_ZERO; c++) use_class(c);
  REQUIRE(thread_heap != NULL);
  CHECK(bin_found(thread_heap, 0) == &thread_heap->none);
  void *nothing = block_alloc(0);
  CHECK(nothing != NULL);
  block_free(nothing, 0, "free");
  CHECK(bin_found(thread_heap, 0) == heap_bin(thread_heap, CLASS_ZERO));
  for (size_t size = 1; size <= HAK_SMALL_MAX; size++) {
    CHECK(bin_found(thread_heap, size) == heap_bin(thread_heap, class_of(size)));
  }
}

TEST(what_is_zeroed_or_has_grown_is_a_span_at_a_smaller_size) {
  start_heap();
  for (size_t size = LARGE_REQUEST_MIN - 1; size <= HAK_SMALL_MAX + 1; size += 1171) {
    unit_kind_t larger = size < LARGE_REQUEST_MIN ? UNIT_SLAB : UNIT_LARGE, usual = size <= HAK_SMALL_MAX ? UNIT_SLAB : UNIT_LARGE;
    char *plain = block_alloc(size), *zeroed = block_alloc_zeroed(size), *grown = block_realloc(block_alloc(20000), size);
    char *same = block_realloc(block_alloc(size), size), *less = block_realloc(block_alloc_zeroed(100000), size);
    REQUIRE(plain != NULL && zeroed != NULL && grown != NULL && same != NULL && less != NULL);
    CHECK(kind_of(plain) == usual && kind_of(same) == usual);
    CHECK(kind_of(zeroed) == larger && kind_of(grown) == larger && kind_of(less) == larger);
    /* However the block came about: the program may use what it could have requested. */
    char *const all[] = {plain, zeroed, grown, same, less};
    for (int i = 0; i < 5; i++) {
      CHECK_EQ(block_usable_size(all[i]), block_good_size(size, 1));
      block_free(all[i], size, "free");
    }
  }
  char *slack = block_realloc(block_alloc(20000), HAK_SMALL_MAX - 5000); /* spans grow in place */
  CHECK(block_realloc(slack, HAK_SMALL_MAX) == slack);
  check_heaps();
}

TEST(bins_do_not_overlap_and_lie_within_the_heap) {
  start_heap();
  heap_t *heap = thread_attach();
  REQUIRE(heap != NULL);
  char *at = heap->bins;
  for (unsigned c = 0; c < CLASS_COUNT; c++) {
    bin_t *bin = heap_bin(heap, c);
    CHECK((uintptr_t)bin % HAK_CACHE_LINE == 0);
    CHECK((char *)&bin_entries(bin)[-bin_reserve(c) - 1] >= at);
    at = (char *)(bin + 1);
  }
  CHECK((size_t)(at - heap->bins) <= heap_bins_bytes());
}

/* The pages of the bins are locked, so the kernel keeps their content. */
TEST(what_bins_have_counted_is_counted_once_where_the_kernel_keeps_their_pages) {
  start_heap();
  block_free(block_alloc(100), 0, "free");
  heap_t *heap = thread_heap;
  heap_trim(heap);
  uint64_t refills = check_census().refills;
  fake_os_fail(FAKE_ONLY(FAKE_PURGE), 1, UINT64_MAX);
  for (int i = 0; i < 3; i++) heap_retire_bins(heap), heap_add_bin(heap, class_of(100));
  fake_os_fail_none();
  CHECK(refills > 0);
  CHECK_EQ(check_census().refills, refills);
}

/* A heap that uses few classes uses memory only for the pages of these classes' bins. */
TEST(bins_that_are_not_there_cost_no_memory) {
  start_heap();
  use_class(3);
  REQUIRE(thread_heap != NULL);
  size_t page = os_page_size();
  size_t written = 0;
  for (size_t at = 0; at < heap_bins_bytes(); at += page) written += !unit_is_zero(thread_heap->bins + at, page);
  CHECK(written <= 2);
}

/* ---- refill and flush ---- */

TEST(a_miss_brings_a_batch_that_doubles) {
  start_heap();
  REQUIRE(block_alloc(64) != NULL);
  bin_t *bin = heap_bin(thread_heap, class_of(64));
  uint64_t before = 0, batch = 0;
  for (unsigned i = 1; i <= 8; i++) {
    CHECK_EQ(bin->refills, i);
    batch = bin->refill_blocks - before;
    before = bin->refill_blocks;
    CHECK((int64_t)batch <= bin->capacity / 2 && (batch >= (4u << (i - 1)) || (int64_t)batch == bin->capacity / 2));
    while (bin->refills == i) REQUIRE(block_alloc(64) != NULL);
    check_heaps();
  }
}

TEST(a_full_bin_gives_half_of_itself_back) {
  start_heap();
  static void *blocks[2000];
  for (int i = 0; i < 2000; i++) REQUIRE((blocks[i] = block_alloc(100)) != NULL);
  bin_t *bin = heap_bin(thread_heap, class_of(100));
  for (int i = 0; i < 2000; i++) {
    uint64_t flushes = bin->flushes;
    intptr_t capacity = bin->capacity;
    block_free(blocks[i], 0, "free");
    CHECK(bin->top < 0);
    if (bin->flushes != flushes) CHECK_EQ(bin->top + bin->capacity, capacity / 2);
  }
  CHECK(bin->flushes >= 5);
  check_heaps();
  CHECK_EQ(check_census().live, 0);
}

static void use_many(size_t size) {
  static void *blocks[1000];
  for (int i = 0; i < 1000; i++) REQUIRE((blocks[i] = block_alloc(size)) != NULL);
  for (int i = 0; i < 1000; i++) block_free(blocks[i], 0, "free");
}

TEST(slow_paths_make_bins_that_nobody_uses_smaller) {
  start_heap();
  use_many(64);
  bin_t *bin = heap_bin(thread_heap, class_of(64));
  intptr_t grown = bin->capacity;
  for (int round = 0; round < 40; round++) use_many(1000); /* no time passes */
  CHECK(grown > 100 && bin->capacity == grown);
  for (int round = 0; round < 80; round++) {
    fake_os_pass_time(200);
    use_many(1000);
    check_heaps();
  }
  CHECK(bin->capacity < 20);
  CHECK(heap_bin(thread_heap, class_of(1000))->capacity > 20);
  CHECK_EQ(check_census().live, 0);
}

TEST(the_block_freed_last_is_handed_out_first) {
  start_heap();
  void *first = block_alloc(500), *second = block_alloc(500);
  REQUIRE(first != NULL && second != NULL);
  block_free(second, 0, "free");
  block_free(first, 0, "free");
  CHECK(block_alloc(500) == first);
  CHECK(block_alloc(500) == second);
}

TEST(a_heap_that_trims_keeps_nothing) {
  start_heap();
  static void *blocks[CLASS_ZERO * 50];
  for (int i = 0; i < CLASS_ZERO * 50; i++) REQUIRE((blocks[i] = block_alloc(class_info[i % CLASS_ZERO].size)) != NULL);
  for (int i = 0; i < CLASS_ZERO * 50; i++) block_free(blocks[i], 0, "free");
  CHECK(check_census().cached > 0);
  heap_trim(thread_heap);
  hak_stats_t stats = check_census();
  CHECK(stats.cached == 0 && stats.slabs == 0 && stats.live == 0 && stats.remote == 0);
  CHECK_EQ(stats.span_free, stats.committed);
}

/* The only missing unit is that of the one slab: emptying the bins frees it. */
TEST(a_large_block_may_take_what_bins_have_kept) {
  start_heap();
  void *block = block_alloc(100);
  REQUIRE(block != NULL);
  block_free(block, 0, "free");
  fake_os_fail(FAKE_TAKING, 1, UINT64_MAX);
  CHECK_EQ(ledger_census().free_units, units_mapped() - 1);
  void *large = block_alloc(units_mapped() * HAK_UNIT);
  CHECK(large != NULL);
  block_free(large, 0, "free");
}

/* ---- what a pointer is ---- */

/* Frees some blocks of each class, so that they are in bins. */
static void fill_bins(void) {
  static void *blocks[CLASS_COUNT * 5];
  for (unsigned i = 0; i < CLASS_COUNT * 5; i++) REQUIRE((blocks[i] = block_alloc(class_info[i % CLASS_COUNT].size)) != NULL);
  for (unsigned i = 0; i < CLASS_COUNT * 5; i++) block_free(blocks[i], 0, "free");
}

TEST(what_can_never_be_had_empties_no_bin) {
  fake_os_set_random_seed(UINT64_MAX); /* not a multiple of 2 GiB */
  start_heap();
  fill_bins();
  uint64_t cached = check_census().cached;
  CHECK(cached > 0);
  for (size_t size = (size_t)2 << 30; size < PTRDIFF_MAX; size *= 2) {
    CHECK(block_alloc(size) == NULL && block_alloc_zeroed(size) == NULL && block_alloc_aligned(4096, size) == NULL);
    CHECK(block_alloc_aligned(size, 100) == NULL);
  }
  fake_os_fail(FAKE_TAKING, 1, UINT64_MAX); /* the kernel has no more */
  CHECK(block_alloc((units_mapped() + 1) * HAK_UNIT) == NULL);
  CHECK_EQ(check_census().cached, cached);
}

TEST(what_passes_the_hard_limit_alone_empties_no_bin_and_maps_nothing) {
  start_heap();
  CHECK(option_set(OPTION_limit_hard, 64 << 20));
  limits_changed();
  fill_bins();
  uint64_t cached = check_census().cached, mapped = units_mapped();
  CHECK(cached > 0);
  CHECK(block_alloc((size_t)200 << 20) == NULL && block_alloc_aligned(4096, (size_t)200 << 20) == NULL);
  CHECK(check_census().cached == cached && units_mapped() == mapped);
  void *block = block_alloc(100000);
  REQUIRE(block != NULL);
  CHECK(!span_claim((uint32_t)region_unit(block) + 2, 3200) && units_mapped() == mapped);
}

TEST(what_was_in_vain_is_done_again_after_a_free) {
  start_heap();
  void *live = block_alloc(100000);
  REQUIRE(live != NULL);
  fill_bins();
  fake_os_fail(FAKE_TAKING, 1, UINT64_MAX);
  for (int round = 0; round < 5; round++) {
    fill_bins();
    CHECK(check_census().cached > 0);
    CHECK(block_alloc(units_mapped() * HAK_UNIT) == NULL);
    hak_stats_t stats = check_census();
    CHECK_EQ(stats.cached, 0);
    CHECK(!heap_may_trim(thread_heap));
    for (int i = 0; i < 10; i++) CHECK(block_alloc(units_mapped() * HAK_UNIT) == NULL);
    CHECK_EQ(check_census().flushes, stats.flushes);
  }
  block_free(live, 0, "free");
  CHECK((live = block_alloc(units_mapped() * HAK_UNIT)) != NULL);
  block_free(live, 0, "free");
}

/* The barrier gives the thread its turn: each time it leaves an empty slab of its own. */
static pthread_barrier_t turn;

static void *leave_an_empty_slab(void *unused) {
  for (int round = 0; round < 2; round++) {
    void *block = block_alloc(100);
    CHECK(block != NULL);
    block_free(block, 0, "free");
    slab_owner_t *owner = &thread_heap->owner;
    lock_acquire(&owner->lock);
    bin_empty(heap_bin(thread_heap, class_of(100)), owner);
    owner_unlock(owner);
    pthread_barrier_wait(&turn);
    pthread_barrier_wait(&turn);
  }
  return unused;
}

TEST(other_heaps_are_walked_every_ten_milliseconds_at_most) {
  start_heap();
  pthread_t thread;
  pthread_barrier_init(&turn, NULL, 2);
  REQUIRE(pthread_create(&thread, NULL, leave_an_empty_slab, NULL) == 0);
  pthread_barrier_wait(&turn);
  fake_os_fail(FAKE_TAKING, 1, UINT64_MAX);
  void *all = block_alloc(units_mapped() * HAK_UNIT);
  CHECK(all != NULL);
  block_free(all, 0, "free");
  pthread_barrier_wait(&turn);
  pthread_barrier_wait(&turn);
  CHECK(block_alloc(units_mapped() * HAK_UNIT) == NULL);
  fake_os_pass_time(9);
  CHECK(block_alloc(units_mapped() * HAK_UNIT) == NULL);
  fake_os_pass_time(1);
  CHECK((all = block_alloc(units_mapped() * HAK_UNIT)) != NULL);
  block_free(all, 0, "free");
  pthread_barrier_wait(&turn);
  pthread_join(thread, NULL);
}

/* The slab ends between two checks, and its unit is about to become part of another span. */
TEST(a_block_of_a_slab_that_ends_meanwhile_is_none) {
  start_heap();
  void *block = block_alloc(100);
  REQUIRE(block != NULL);
  unit_t *slab = unit_head((uint32_t)region_unit(block));
  uint8_t c = load_relaxed(&slab->size_class);
  store_relaxed(&slab->size_class, (uint8_t)CLASS_NONE);
  CHECK_EQ(block_locate(block).state, BLOCK_FREED);
  CHECK_EQ(block_inspect(block).state, BLOCK_FREED);
  store_relaxed(&slab->size_class, c);
  CHECK_EQ(block_inspect(block).state, BLOCK_LIVE);
  block_free(block, 0, "free");
}

TEST(the_tail_of_a_slab_is_no_block) {
  start_heap();
  char *block = block_alloc(200);
  REQUIRE(block != NULL);
  const class_info_t *info = &class_info[class_of(200)];
  char *tail = (char *)bits_round_down((uintptr_t)block, HAK_UNIT) + (size_t)info->blocks * info->size;
  REQUIRE((size_t)info->blocks * info->size < HAK_UNIT && class_info[class_of(200)].units == 1);
  CHECK_EQ(block_inspect(tail - info->size).state, BLOCK_FREED);
  CHECK_EQ(block_inspect(tail).state, BLOCK_INTERIOR);
}

TEST(what_others_have_mapped_between_units_is_foreign) {
  fake_os_set_address_limit((uint64_t)1 << 40);
  start_heap();
  uint32_t unit = load_relaxed(&region.units) + 3;
  REQUIRE(os_map_at(region_address(unit), os_page_size()) == OS_MAPPED);
  REQUIRE(grow(100));
  CHECK(!unit_is_mapped(unit) && load_relaxed(&region.superslabs[unit / HAK_UNITS_PER_SUPERSLAB].mapped) != 0);
  CHECK_EQ(block_inspect(region_address(unit)).state, BLOCK_FOREIGN);
  CHECK_EQ(block_usable_size(region_address(unit)), 0);
}

/* ---- the census against a count of our own ---- */

static void *free_every_third(void *argument) {
  void **blocks = argument;
  for (int i = 0; i < 3000; i += 3) {
    if (blocks[i] != NULL) block_free(blocks[i], 0, "free");
    blocks[i] = NULL;
  }
  return NULL;
}

TEST(the_census_counts_what_is_live_to_the_byte) {
  start_heap();
  uint64_t seed = unit_seed();
  static void *blocks[3000];
  for (int round = 0; round < 6; round++) {
    for (int i = 0; i < 3000; i++) {
      if (unit_below(&seed, 3) == 0) continue;
      if (blocks[i] != NULL) block_free(blocks[i], 0, "free");
      blocks[i] = NULL;
      if (unit_below(&seed, 3) == 0) continue;
      uint32_t most = unit_below(&seed, 50) == 0 ? 300000 : 3000;
      REQUIRE((blocks[i] = block_alloc(unit_below(&seed, most))) != NULL);
    }
    if (round % 2 != 0) run_thread(free_every_third, blocks);
    hak_stats_t stats = check_census();
    CHECK_EQ(stats.live, usable_of(blocks, 3000));
    if (round < 2) CHECK_EQ(stats.remote > 0, round == 1); /* later, some may wait for longer */
    check_heaps();
  }
}

/* While a thread makes the block smaller, between two of its stores. */
TEST(the_census_finds_no_more_in_a_large_block_than_its_units_hold) {
  start_heap();
  void *block = block_alloc((size_t)4 << 20);
  REQUIRE(block != NULL);
  unit_t *first = unit_head((uint32_t)region_unit(block));
  hak_stats_t stats;
  hak_class_stats_t classes[CLASS_COUNT];
  uint64_t bytes = load_relaxed(&first->bytes);
  for (int i = 0; i < 2; i++) { /* too much, then nothing yet */
    store_relaxed(&first->bytes, i == 0 ? bytes << 10 : 0);
    census_take(&stats, classes);
    CHECK(stats.live <= stats.committed && stats.slab_free <= stats.committed && stats.requested <= stats.live);
  }
  store_relaxed(&first->bytes, bytes);
}

TEST(each_kind_of_system_call_has_its_figure) {
  start_heap();
  uint64_t n = 1000;
  _Atomic uint64_t *const counts[] = {&os_counts.mmap,    &os_counts.munmap, &os_counts.mprotect,
                                      &os_counts.madvise, &os_counts.mremap, &os_counts.other};
  for (size_t i = 0; i < 6; i++) store_relaxed(counts[i], n + i);
  hak_stats_t stats = check_census();
  CHECK(stats.sys_mmap == n && stats.sys_munmap == n + 1 && stats.sys_mprotect == n + 2);
  CHECK(stats.sys_madvise == n + 3 && stats.sys_mremap == n + 4 && stats.sys_other == n + 5);
}

/* ---- threads and heaps ---- */

static void *attach_and_note(void *note) {
  *(heap_t **)note = thread_attach();
  return NULL;
}

TEST(a_thread_that_ends_leaves_its_heap_to_the_next) {
  start_heap();
  heap_t *first = NULL, *second = NULL;
  run_thread(attach_and_note, &first);
  REQUIRE(first != NULL);
  CHECK_EQ(load_relaxed(&first->state), HEAP_ORPHAN);
  CHECK_EQ(load_relaxed(&first->owner.thread), 0);
  CHECK_EQ(check_census().heaps_orphaned, 1);
  run_thread(attach_and_note, &second);
  CHECK(second == first);
  CHECK_EQ(count_heaps(false), 1);
  CHECK_EQ(count_heaps(true), 1);
}

static pthread_barrier_t all_attached;

typedef struct legacy {
  heap_t *heap;
  void *block;
} legacy_t;

static void *bequeath(void *argument) {
  legacy_t *legacy = argument;
  legacy->heap = thread_attach();
  legacy->block = block_alloc(64);
  pthread_barrier_wait(&all_attached);
  return NULL;
}

/* Two threads that have ended, and a block of each. */
static void make_legacies(legacy_t legacies[2]) {
  pthread_t threads[2];
  pthread_barrier_init(&all_attached, NULL, 2);
  for (int i = 0; i < 2; i++) REQUIRE(pthread_create(&threads[i], NULL, bequeath, &legacies[i]) == 0);
  for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
  for (int i = 0; i < 2; i++) REQUIRE(load_relaxed(&legacies[i].heap->state) == HEAP_ORPHAN);
}

static void *inherit(void *argument) {
  const legacy_t *legacy = argument;
  block_free(legacy->block, 0, "free");
  CHECK(thread_heap == legacy->heap);
  return NULL;
}

static void *start_late(void *unused) {
  CHECK(thread_attach() != NULL);
  boot_finish();
  return unused;
}

/* The main thread mostly has a heap before that, and may end before the process. */
TEST(the_heap_of_the_thread_that_starts_the_library_is_left_too) {
  run_thread(start_late, NULL);
  REQUIRE(heap_first() != NULL);
  CHECK_EQ(load_relaxed(&heap_first()->state), HEAP_ORPHAN);
}

TEST(who_first_frees_an_orphans_block_gets_its_heap) {
  legacy_t legacies[2];
  CHECK(option_set(OPTION_insight, 0)); /* who frees a sampled block takes no heap */
  start_heap();
  make_legacies(legacies);
  for (int i = 0; i < 2; i++) { /* in the second round, the heap of the first thread is the next orphan to be adopted */
    run_thread(inherit, &legacies[i]);
    CHECK_EQ(load_relaxed(&legacies[i].heap->state), HEAP_ORPHAN);
    check_heaps();
  }
}

/* As if a signal handler of the thread allocated between the two steps of the thread's end. */
TEST(a_heap_that_is_taken_again_is_no_orphan) {
  start_heap();
  heap_t *heap = thread_attach();
  REQUIRE(heap != NULL);
  CHECK(heaps_keep(heap, UINT32_MAX));
  CHECK(heaps_keep(heap, 0)); /* its bins are not emptied either */
  heaps_give(heap, HEAP_BARE);
  CHECK(load_relaxed(&heap->state) == HEAP_ATTACHED && heap->thread == thread_self());
  CHECK(heaps_attached() == 1 && heaps_orphaned() == 0);
}

static pthread_key_t late_key;
static legacy_t *late_legacy;

static void free_late(void *unused) {
  (void)unused;
  block_free(late_legacy->block, 0, "free");
  CHECK(thread_heap == NULL);
}

static void *free_at_the_end(void *argument) {
  late_legacy = argument;
  CHECK(thread_attach() != NULL);
  pthread_setspecific(late_key, argument);
  return NULL;
}

TEST(a_thread_that_has_ended_gets_no_heap_for_what_it_frees) {
  legacy_t legacies[2];
  start_heap();
  REQUIRE(pthread_key_create(&late_key, free_late) == 0); /* its destructor runs after hakmem's */
  make_legacies(legacies);
  run_thread(free_at_the_end, &legacies[0]);
  CHECK_EQ(count_heaps(true), count_heaps(false));
  check_heaps();
}

static void *attach_together(void *note) {
  *(heap_t **)note = thread_attach();
  pthread_barrier_wait(&all_attached);
  return NULL;
}

TEST(threads_that_live_at_once_have_heaps_of_their_own) {
  enum { THREADS = 8 };
  start_heap();
  pthread_t threads[THREADS];
  heap_t *heaps[THREADS];
  pthread_barrier_init(&all_attached, NULL, THREADS);
  for (int round = 0; round < 3; round++) {
    for (int i = 0; i < THREADS; i++) REQUIRE(pthread_create(&threads[i], NULL, attach_together, &heaps[i]) == 0);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < THREADS; i++) {
      for (int j = 0; j < i; j++) CHECK(heaps[i] != heaps[j] && heaps[i] != NULL);
    }
    CHECK_EQ(count_heaps(false), THREADS);
    CHECK_EQ(count_heaps(true), THREADS);
  }
}

/* ---- many threads ---- */

enum { MANY = 20, SOME = 24 };
static pthread_barrier_t many_end;

static void *attach_and_wait(void *unused) {
  CHECK(thread_attach() != NULL);
  use_class(3);
  pthread_barrier_wait(&all_attached);
  pthread_barrier_wait(&many_end);
  return unused;
}

static void *some_blocks[2 * SOME];

/* Takes blocks of many sizes, few of each class. */
static void *take_some(void *blocks) {
  for (int i = 0; i < SOME; i++) ((void **)blocks)[i] = block_alloc((size_t)i * 100 + 1);
  CHECK(thread_heap == NULL && thread_inside == 0);
  return NULL;
}

static void *take_many_and_free(void *unused) {
  static void *blocks[1000];
  for (int i = 0; i < 1000; i++) CHECK((blocks[i] = block_alloc(64)) != NULL);
  CHECK(thread_heap != NULL && heap_bin(thread_heap, class_of(64))->refills > 0);
  for (int i = 0; i < 1000; i++) block_free(blocks[i], 0, "free");
  return unused;
}

TEST(among_many_threads_one_that_takes_little_has_no_heap) {
  start_heap();
  pthread_t threads[MANY];
  pthread_barrier_init(&all_attached, NULL, MANY + 1);
  pthread_barrier_init(&many_end, NULL, MANY + 1);
  for (int i = 0; i < MANY; i++) REQUIRE(pthread_create(&threads[i], NULL, attach_and_wait, NULL) == 0);
  pthread_barrier_wait(&all_attached);
  uint64_t heaps = count_heaps(false);
  run_thread(take_some, some_blocks);
  run_thread(take_some, some_blocks + SOME);
  for (int i = 0; i < 2 * SOME; i++) {
    REQUIRE(some_blocks[i] != NULL);
    const unit_t *slab = unit_head((uint32_t)region_unit(some_blocks[i]));
    CHECK_EQ(load_relaxed(&slab_owner(slab)->thread), 0);
  }
  CHECK(count_heaps(false) <= heaps + 8);
  CHECK_EQ(check_census().live, usable_of(some_blocks, 2 * SOME));
  run_thread(take_many_and_free, NULL);
  for (int i = 0; i < 2 * SOME; i++) block_free(some_blocks[i], 0, "free");
  pthread_barrier_wait(&many_end);
  for (int i = 0; i < MANY; i++) pthread_join(threads[i], NULL);
  heap_trim_others();
  hak_stats_t stats = check_census();
  CHECK(stats.live == 0 && stats.cached == 0 && stats.slabs == 0);
}

TEST(heaps_of_many_threads_that_are_gone_give_their_bins_back) {
  start_heap();
  pthread_t threads[MANY * 3];
  pthread_barrier_init(&all_attached, NULL, MANY * 3 + 1);
  pthread_barrier_init(&many_end, NULL, MANY * 3 + 1);
  for (int i = 0; i < MANY * 3; i++) REQUIRE(pthread_create(&threads[i], NULL, attach_and_wait, NULL) == 0);
  pthread_barrier_wait(&all_attached);
  pthread_barrier_wait(&many_end);
  for (int i = 0; i < MANY * 3; i++) pthread_join(threads[i], NULL);
  CHECK(count_heaps(true) <= 16 && count_heaps(true) > 0);
  size_t bare = 0;
  for (heap_t *heap = heap_first(); heap != NULL; heap = load_relaxed(&heap->next)) {
    if (load_relaxed(&heap->state) != HEAP_BARE) continue;
    bare++;
    CHECK(unit_is_zero(heap->bins, heap_bins_bytes()));
    for (unsigned c = 0; c < CLASS_COUNT; c++) CHECK(bin_found(heap, class_info[c].size) == &heap->none);
  }
  CHECK(bare >= MANY * 3 - 16);
  run_thread(take_many_and_free, NULL);
  check_heaps();
}

TEST(blocks_outlive_their_thread_and_come_back_to_the_space) {
  start_heap();
  static void *blocks[1000];
  run_thread(allocate_and_leave, blocks);
  hak_stats_t stats = check_census();
  CHECK_EQ(stats.live, usable_of(blocks, 1000));
  CHECK_EQ(stats.cached, 0);
  for (int i = 0; i < 1000; i++) {
    REQUIRE(blocks[i] != NULL);
    memset(blocks[i], 1, block_usable_size(blocks[i]));
    block_free(blocks[i], 0, "free");
  }
  if (thread_heap != NULL) heap_trim(thread_heap); /* this thread has adopted the heap: what it frees waits in bins */
  stats = check_census();
  CHECK(stats.live == 0 && stats.remote == 0 && stats.slabs == 0);
  CHECK_EQ(stats.span_free, stats.committed);
}

TEST(an_adopted_heap_takes_frees_of_old_blocks_as_its_own) {
  start_heap();
  static void *blocks[1000];
  run_thread(allocate_and_leave, blocks);
  REQUIRE(thread_attach() != NULL);
  CHECK_EQ(count_heaps(false), 1);
  for (int i = 0; i < 1000; i++) block_free(blocks[i], 0, "free");
  hak_stats_t stats = check_census();
  CHECK_EQ(stats.live, 0);
  CHECK(stats.cached > 0);
  CHECK_EQ(stats.remote_frees, 0);
  heap_trim(thread_heap);
  CHECK_EQ(check_census().slabs, 0);
}

static void *free_all_and_allocate(void *blocks) {
  for (int i = 0; i < 1000; i++) block_free(((void **)blocks)[i], 0, "free");
  void *block = block_alloc(1);
  CHECK(block != NULL);
  block_free(block, 0, "free");
  return (void *)thread_self();
}

TEST(a_heap_left_unseen_is_found_again_by_its_threads_name) {
  start_heap();
  static void *blocks[1000];
  pthread_t thread;
  void *left_by = NULL, *found_by = NULL;
  REQUIRE(pthread_create(&thread, NULL, allocate_unseen, blocks) == 0);
  pthread_join(thread, &left_by);
  REQUIRE(pthread_create(&thread, NULL, free_all_and_allocate, blocks) == 0);
  pthread_join(thread, &found_by);
  if (left_by != found_by) check_skip("the thread library did not use the stack again");
  CHECK_EQ(count_heaps(false), 1);
  CHECK_EQ(check_census().live, 0);
  check_heaps();
}

static pthread_key_t later_key;
static heap_t *adopted;

static void *adopt_and_stay(void *unused) {
  adopted = thread_attach();
  CHECK(block_alloc(64) != NULL); /* and there are more blocks in its bin */
  thread_fast_heap = &heap_none;
  thread_heap = NULL; /* the thread behaves as if it still ran: see allocate_unseen */
  return unused;
}

static void allocate_at_the_end(void *first) {
  run_thread(adopt_and_stay, NULL);
  CHECK(adopted == first); /* the ending thread has left its heap by now, so that thread got it */
  CHECK(block_alloc(64) != NULL);
  CHECK(thread_heap != NULL && thread_heap != adopted);
}

static void *end_with_a_destructor(void *unused) {
  CHECK(pthread_setspecific(later_key, thread_attach()) == 0);
  return unused;
}

TEST(a_destructor_after_the_heap_was_left_gets_another_one) {
  start_heap();
  REQUIRE(pthread_key_create(&later_key, allocate_at_the_end) == 0); /* runs after the library's destructor, whose key was made earlier */
  run_thread(end_with_a_destructor, NULL);
  CHECK(adopted != NULL);
  CHECK_EQ(count_heaps(false), 2);
  check_heaps();
}

TEST(without_addresses_for_a_heap_free_units_hold_it) {
  start_heap();
  fake_os_fail(FAKE_ONLY(FAKE_MAP), 1, UINT64_MAX);
  void *large = block_alloc(100000); /* needs no heap, and leaves its units dirty */
  REQUIRE(large != NULL);
  memset(large, 0x5a, 100000);
  block_free(large, 0, "free");
  hak_stats_t before = check_census(), after;
  void *block = block_alloc(10);
  REQUIRE(block != NULL && thread_heap != NULL);
  CHECK_EQ(load_relaxed(&unit_head((uint32_t)region_unit(thread_heap))->kind), UNIT_META);
  census_take(&after, NULL);
  size_t bytes = bits_round_up(sizeof(heap_t), os_page_size()) + heap_bins_bytes();
  CHECK_EQ(after.metadata - before.metadata, bits_round_up(bytes, HAK_UNIT));
  block_free(block, 0, "free");
}

TEST(without_memory_for_a_heap_allocation_fails_and_then_works) {
  start_heap();
  bool zero;
  uint32_t unit = span_alloc(1, 1, SPAN_SLAB, &zero);
  uint32_t taken = 0;
  fake_os_fail(FAKE_TAKING, 1, UINT64_MAX);
  for (uint32_t next = unit; next != SPAN_NONE; next = span_alloc(1, 1, SPAN_SLAB, &zero), taken++)
    units_enter(next, 1, UNIT_META, CLASS_NONE);
  errno = 0;
  CHECK(block_alloc(10) == NULL);
  CHECK_EQ(errno, ENOMEM);
  CHECK(thread_heap == NULL);
  units_leave(unit, taken);
  span_free(unit, taken); /* they were taken one by one, lowest first */
  void *large = block_alloc(100000); /* needs no heap */
  CHECK(large != NULL);
  block_free(large, 0, "free");
  fake_os_fail_none();
  CHECK(block_alloc(10) != NULL);
}

TEST(counting_every_allocation_counts_every_allocation) {
  CHECK(option_set(OPTION_stats, 1));
  start_heap();
  for (int i = 0; i < 1234; i++) {
    void *block = block_alloc((size_t)i);
    REQUIRE(block != NULL);
    block_free(block, 0, "free");
  }
  CHECK_EQ(load_relaxed(&thread_heap->counted_allocs), 1234);
  CHECK_EQ(check_census().live, 0);
}

/* ---- armed ---- */

static void arm(void) {
  store_relaxed(&event_until_ms, UINT64_MAX);
  thread_enter();
  watch_step();
  thread_leave();
}

/* Whether `objects` lies within 3.9 standard errors of `n`, if each object is an event with this chance. */
static bool counts_well(double objects, double n, double chance) {
  double bound = 3.9 * __builtin_sqrt(n * (1 - chance) / chance);
  return objects > n - bound && objects < n + bound;
}

static double objects_counted(void) {
  uint64_t objects = 0;
  for (uint32_t site = SITE_NONE; site < load_relaxed(&site_count); site++) {
    const event_site_t *sums = event_of(site);
    if (sums != NULL) objects += load_relaxed(&sums->objects);
  }
  return (double)objects / (1 << EVENT_OBJECT_BITS);
}

/* Allocates and frees; returns how many allocations the events stand for. */
static double allocate_counted(size_t size, unsigned n) {
  double before = objects_counted();
  for (unsigned i = 0; i < n; i++) block_free(block_alloc(size), 0, "free");
  return objects_counted() - before;
}

TEST(while_armed_all_allocations_are_counted_by_events) {
  static const struct {
    size_t size;
    unsigned n;
    double chance; /* 1 - exp(-size / EVENT_BYTES) */
  } rounds[] = {{24, 2000000, 4.577531947e-05}, {3000, 20000, 0.005705706174}};
  start_heap();
  block_free(block_alloc(24), 0, "free");
  thread_heap->random = unit_seed(); /* without this, the draws would depend on the heap's address, which differs in each run */
  arm();
  for (unsigned i = 0; i < 2; i++) CHECK(counts_well(allocate_counted(rounds[i].size, rounds[i].n), rounds[i].n, rounds[i].chance));
  CHECK_EQ(load_relaxed(&thread_heap->counted_allocs), 2020000);
  for (int i = 0; i < 5; i++) block_free(i < 3 ? block_alloc_zeroed(40000) : block_alloc(40000), 0, "free");
  CHECK(watch_counted(watch_group_of_large(40000)).blocks == 3 && watch_counted(class_of(40000)).blocks == 2);
  CHECK_EQ(load_relaxed(&thread_heap->counted_allocs), 2020002);
  /* The draws for large blocks depend on an address, so they differ in each run: only two bad results in a row are a failure. */
  bool well = counts_well(allocate_counted(200000, 2000), 2000, 0.3171429418);
  CHECK_EQ(watch_counted(watch_group_of_large(200000)).blocks, 2000);
  CHECK(well || counts_well(allocate_counted(200000, 2000), 2000, 0.3171429418));
  store_relaxed(&event_until_ms, 0);
  block_free(block_alloc(24), 0, "free"); /* this allocation finds that the process is no longer armed */
  CHECK(!load_relaxed(&thread_heap->watched));
  CHECK_EQ(load_relaxed(&thread_heap->counted_allocs), 2020002);
  void *block = bin_pop(heap_bin_for(thread_heap, 24)); /* what a hit of malloc finds */
  CHECK(block != NULL);
}

static _Atomic bool hits_begin, hits_end;

static void *hit_only(void *unused) {
  void *block = block_alloc(24);
  block_free(block, 0, "free");
  store_release(&hits_begin, true);
  while (!load_acquire(&hits_end)) block_free(block_alloc(24), 0, "free");
  CHECK(thread_heap != NULL && load_relaxed(&thread_heap->counted_allocs) > 0);
  return unused;
}

static bool some_heap_has_counted(void) {
  bool has = false;
  for (heap_t *heap = heap_first(); heap != NULL; heap = load_relaxed(&heap->next)) has |= load_relaxed(&heap->counted_allocs) != 0;
  return has;
}

/* The thread takes no slow path on which it could find out itself. */
TEST(a_thread_whose_allocations_all_hit_is_armed_by_another) {
  start_heap();
  pthread_t thread;
  REQUIRE(pthread_create(&thread, NULL, hit_only, NULL) == 0);
  while (!load_acquire(&hits_begin)) sched_yield();
  arm();
  while (!some_heap_has_counted()) sched_yield();
  store_release(&hits_end, true);
  pthread_join(thread, NULL);
  check_heaps();
}

static void a_slow_path(void) { block_free(block_alloc((size_t)64 << 20), 0, "free"); } /* the block is too large to be cached */

/* As if armed by a tool, which writes the time and calls nothing. */
TEST(armed_again_within_a_second_a_thread_counts_from_its_next_slow_path_on) {
  start_heap();
  block_free(block_alloc(24), 0, "free");
  for (int i = 0; i < 3; i++) {
    event_arm(os_now_ms() + 100);
    a_slow_path();
    CHECK(load_relaxed(&thread_heap->watched));
    fake_os_pass_time(100);
    a_slow_path();
    block_free(block_alloc(24), 0, "free"); /* a miss finds that events are no longer wanted */
    CHECK(!event_armed() && !load_relaxed(&thread_heap->watched));
  }
}

TEST(a_new_threads_heap_is_as_it_is_wanted) {
  start_heap();
  arm();
  store_release(&hits_end, true);
  run_thread(hit_only, NULL);
  store_relaxed(&event_until_ms, 0);
  block_free(block_alloc(24), 0, "free");
  run_thread(allocate_and_leave, (void *[1000]){NULL});
  REQUIRE(thread_heap != NULL);
  CHECK(!load_relaxed(&thread_heap->watched));
}

/* ---- the slow paths drive the decay ---- */

static void *large_used_and_freed(void) {
  char *block = block_alloc(40 * HAK_UNIT);
  if (block != NULL) block_free(block, 0, "free");
  return block;
}

TEST(slow_paths_of_small_blocks_drive_the_decay) {
  start_heap();
  CHECK(option_set(OPTION_decay_ms, 100));
  REQUIRE(large_used_and_freed() != NULL);
  uint64_t pending = ledger_census().dirty_free_units;
  CHECK(pending >= 40);
  bin_t *bin = NULL;
  static void *blocks[2000];
  for (int i = 0; i < 2000; i++) {
    REQUIRE((blocks[i] = block_alloc(64)) != NULL);
    bin = heap_bin(thread_heap, class_of(64));
    if (load_relaxed(&bin->refills) % 2 == 0) fake_os_pass_time(1);
  }
  CHECK(ledger_census().dirty_free_units + 30 < pending);
}

TEST(a_decay_of_zero_gives_a_large_block_back_when_it_is_freed) {
  start_heap();
  CHECK(option_set(OPTION_decay_ms, 0));
  for (int i = 0; i < 3; i++) {
    REQUIRE(large_used_and_freed() != NULL);
    CHECK_EQ(ledger_census().dirty_free_units, 0);
  }
}

/* ---- memory that other work gives back ---- */

/* In a class that the thread no longer uses, nothing else would collect these blocks. */
TEST(slow_paths_bring_in_what_others_have_freed) {
  start_heap();
  static void *blocks[3000];
  for (int i = 0; i < 3000; i++) REQUIRE((blocks[i] = block_alloc(300)) != NULL);
  run_thread(free_every_third, blocks);
  CHECK(check_census().remote > 0);
  for (int i = 0; i < 200; i++) {
    fake_os_pass_time(200);
    void *large = block_alloc(100000);
    REQUIRE(large != NULL);
    block_free(large, 0, "free");
  }
  CHECK_EQ(check_census().remote, 0);
}

/* Blocks of no bytes cost a bin its entries alone. */
TEST(a_bin_holds_a_burst_of_empty_blocks) {
  start_heap();
  uint64_t refills = 0;
  for (int round = 0; round < 100; round++) {
    void *blocks[24];
    if (round == 20) refills = load_relaxed(&heap_bin(thread_heap, CLASS_ZERO)->refills);
    for (int i = 0; i < 24; i++) REQUIRE((blocks[i] = block_alloc(0)) != NULL);
    for (int i = 0; i < 24; i++) block_free(blocks[i], 0, "free");
  }
  CHECK_EQ(load_relaxed(&heap_bin(thread_heap, CLASS_ZERO)->refills), refills);
  check_heaps();
}

/* A thread that goes on between the reads of a census may have given back more than it seems to have got. */
TEST(bin_hits_are_never_below_none) {
  start_heap();
  use_class(3);
  CHECK(check_census().bin_hits < 1000);
  bin_t *bin = heap_bin(thread_heap, 3);
  owner_add(&bin->flush_blocks, load_relaxed(&bin->refill_blocks) + 1);
  CHECK_EQ(check_census().bin_hits, 0);
}

TEST(a_named_heaps_large_block_stays_that_heaps_in_profiles_when_it_is_resized) {
  CHECK(option_set(OPTION_insight, 2));
  start_heap();
  heap_t *named = named_new("cache");
  REQUIRE(named != NULL);
  uint32_t known = 0;
  for (int i = 0; i < 64; i++) {
    void *block = alloc_from(named, 300000, 1, SPAN_PLAIN, "test");
    REQUIRE(block != NULL && block_realloc(block, 120000) == block); /* not every one is sampled */
    const sample_t *sample = sample_of((uint32_t)region_unit(block));
    if (sample_state(sample) != SAMPLE_LIVE) continue;
    known++;
    CHECK_EQ(load_relaxed(&sample->tag), load_relaxed(&named->named.tag));
  }
  CHECK(known > 0 && load_relaxed(&named->named.tag) != 0);
}

static heap_t *ending;

static void end_it(void *start) {
  if (ending == NULL) return;
  named_end(ending, "test");
  ending = NULL;
  CHECK_EQ(kind_of(start), UNIT_SLAB);
}

/* The slab stays until the kernel has taken the pages; otherwise they might belong to someone else by then. */
TEST(the_end_of_a_named_heap_leaves_alone_what_goes_back_meanwhile) {
  if (sysconf(_SC_PAGESIZE) > 4096) check_skip("the kernel purges no pages of 4 KiB");
  start_heap();
  ending = named_new("cache");
  REQUIRE(ending != NULL);
  void *blocks[100];
  for (int i = 0; i < 100; i++) {
    REQUIRE((blocks[i] = alloc_from(ending, 500, 1, SPAN_PLAIN, "test")) != NULL);
    memset(blocks[i], 1, 500);
  }
  for (int i = 0; i < 99; i++) block_free(blocks[i], 0, "free");
  uint32_t unused = 0;
  fake_os_during(FAKE_PURGE, end_it);
  CHECK(named_count(ending, "test").blocks == 1 && hole_step(true, &unused) > 0);
  fake_os_during(FAKE_PURGE, NULL);
  CHECK(ending == NULL);
  CHECK_EQ(kind_of(blocks[0]), UNIT_FREE);
  check_heaps();
}

static void is_no_block(void *start) { CHECK_EQ(load_relaxed(&unit_at((uint32_t)region_unit(start))->kind), UNIT_FREE); }

/* A fork at this time finds no large block that is not live. */
TEST(a_block_of_callocs_is_none_while_its_pages_go_back) {
  start_heap();
  CHECK(option_set(OPTION_decay_ms, 1000));
  char *block = block_alloc_zeroed((size_t)64 << 20);
  REQUIRE(block != NULL);
  memset(block, 1, (size_t)64 << 20);
  fake_os_during(FAKE_PURGE, is_no_block);
  uint64_t calls = fake_os_calls(FAKE_ONLY(FAKE_PURGE));
  block_free(block, 0, "free");
  CHECK_EQ(fake_os_calls(FAKE_ONLY(FAKE_PURGE)), calls + 1);
  fake_os_during(FAKE_PURGE, NULL);
}

static void *allocate_trim_and_leave(void *blocks) {
  (void)allocate_and_leave(blocks);
  heap_trim(thread_heap);
  thread_fast_heap = &heap_none;
  thread_heap = NULL; /* the thread behaves as if it still ran, asleep: see allocate_unseen */
  return NULL;
}

TEST(a_trim_gives_back_the_empty_slabs_of_other_threads) {
  start_heap();
  static void *blocks[1000];
  run_thread(allocate_trim_and_leave, blocks);
  for (int i = 0; i < 1000; i++) block_free(blocks[i], 0, "free");
  heap_trim_others();
  hak_stats_t stats = check_census();
  CHECK(stats.remote == 0 && stats.slabs == 0);
}

enum { HOLED = 32768 };
static void *holed[HOLED];

static void holed_allocate(void) {
  for (int i = 0; i < HOLED; i++) {
    if (holed[i] == NULL) REQUIRE((holed[i] = block_alloc(512)) != NULL);
  }
}

static void holed_thin(void) {
  for (int i = 0; i < HOLED; i++) {
    if (i % 64 == 0) continue;
    block_free(holed[i], 0, "free");
    holed[i] = NULL;
  }
}

/* Without a keeper: 16 MiB of small blocks, one in 64 of which stays. */
static void start_holed(void) {
  CHECK(option_set(OPTION_keeper, 0));
  start_heap();
  CHECK(option_set(OPTION_decay_ms, 86400000));
  holed_allocate();
  holed_thin();
  CHECK_EQ(hole_bytes(), 0);
  if (os_page_size() > (size_t)32 << 10) check_skip("there is a block that stays on every page");
}

/* It grows by 8 MiB. */
TEST(a_heap_that_grows_gives_its_holes_back) {
  start_holed();
  void *large = block_alloc((size_t)8 << 20);
  uint64_t given = hole_bytes();
  CHECK(large != NULL && given > (uint64_t)8 << 20);
  CHECK_EQ(purge_again_bytes(), 0);
  /* The blocks in the holes are used again and freed again, so the next growth leaves these holes alone. */
  holed_allocate();
  CHECK(purge_again_bytes() > given / 2 && purge_again_bytes() <= given);
  holed_thin();
  CHECK(block_alloc((size_t)16 << 20) != NULL);
  CHECK_EQ(hole_bytes(), given);
}

/* The same in many small steps, only the first of which finds much that has become free. */
TEST(a_heap_that_grows_step_by_step_gives_all_holes_back) {
  start_holed();
  for (int step = 0; step < 16; step++) REQUIRE(block_alloc((size_t)1 << 20) != NULL);
  CHECK(hole_bytes() > (uint64_t)8 << 20);
}

/* ---- the census beside threads at work ---- */

static _Atomic bool work_ends;

static void *work_until_the_end(void *number) {
  static __thread void *blocks[200];
  uint64_t state = unit_seed() + 2 * (uintptr_t)number;
  while (!load_relaxed(&work_ends)) {
    unsigned n = unit_below(&state, 200);
    if (blocks[n] != NULL) block_free(blocks[n], 0, "free");
    blocks[n] = block_alloc(unit_below(&state, unit_below(&state, 20) == 0 ? 400000 : 20000));
    if (unit_below(&state, 500) == 0) {
      thread_enter();
      if (thread_heap != NULL) heap_trim(thread_heap);
      thread_leave();
    }
  }
  for (unsigned n = 0; n < 200; n++) {
    if (blocks[n] != NULL) block_free(blocks[n], 0, "free");
  }
  return NULL;
}

/* Figures taken while threads work may be of different moments, but each is plausible:
 * no more than the region can hold, and nothing has wrapped below zero. */
static void check_plausible(const hak_stats_t *stats, const hak_class_stats_t *classes) {
  const uint64_t most = (uint64_t)load_relaxed(&region.units) * HAK_UNIT * 2;
  CHECK(stats->live <= most && stats->cached <= most && stats->remote <= most);
  CHECK(stats->slab_free <= most && stats->span_free <= most && stats->purge_pending <= most);
  CHECK(stats->requested <= most);
  CHECK(stats->slabs <= racy_load(&region.limit) && stats->large_blocks <= load_relaxed(&region.units));
  CHECK_EQ(stats->live + stats->cached + stats->remote + stats->slab_free + stats->span_free, stats->committed);
  for (unsigned c = 0; c < CLASS_COUNT; c++) {
    CHECK(classes[c].live_blocks <= classes[c].slabs * class_info[c].blocks);
    CHECK(classes[c].free_blocks <= classes[c].slabs * class_info[c].blocks);
    CHECK(classes[c].cached_blocks <= (uint64_t)count_heaps(false) * 256);
  }
}

TEST(a_census_beside_threads_at_work_is_plausible) {
  enum { WORKERS = 3, CENSUSES = 400 };
  start_heap();
  CHECK(option_set(OPTION_decay_ms, 0));
  pthread_t threads[WORKERS];
  for (uintptr_t i = 0; i < WORKERS; i++) REQUIRE(pthread_create(&threads[i], NULL, work_until_the_end, (void *)(i + 1)) == 0);
  for (int i = 0; i < CENSUSES && check_failures() == 0; i++) {
    hak_stats_t stats;
    hak_class_stats_t classes[CLASS_COUNT];
    census_take(&stats, classes);
    check_plausible(&stats, classes);
  }
  store_relaxed(&work_ends, true);
  for (int i = 0; i < WORKERS; i++) pthread_join(threads[i], NULL);
  CHECK_EQ(check_census().live, 0);
}
