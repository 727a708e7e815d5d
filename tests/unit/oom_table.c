#include "oom.h"

#include <errno.h>

#include "front/census.h"
#include "slab/slab.h"
#include "space.h"

#define ERRNO_MARK 4242
#define EDGE 256 /* bytes at each end that carry the mark */

void table_init(table_t *table, uint64_t seed) {
  memset(table->held, 0, sizeof table->held);
  table->seed = seed;
  table->alone = true;
}

/* ---- content ---- */

static size_t edge_of(size_t size) { return size < EDGE ? size : EDGE; }

static void held_mark(table_t *table, held_t *held) {
  held->mark = (unsigned char)(1 + unit_below(&table->seed, 255));
  memset(held->block, held->mark, edge_of(held->size));
  memset(held->block + held->size - edge_of(held->size), held->mark, edge_of(held->size));
}

static bool is_marked(const unsigned char *start, size_t bytes, unsigned char mark) {
  return bytes == 0 || (start[0] == mark && memcmp(start, start + 1, bytes - 1) == 0);
}

static void held_check(const held_t *held) {
  if (held->block == NULL) return;
  size_t edge = edge_of(held->size);
  CHECK(is_marked(held->block, edge, held->mark));
  CHECK(is_marked(held->block + held->size - edge, edge, held->mark));
  CHECK(hak_malloc_usable_size(held->block) >= held->size);
}

/* ---- outcomes ---- */

/* Returns whether there is a block; checks errno either way. */
static bool outcome(const void *block) {
  if (block != NULL) {
    CHECK_EQ(errno, ERRNO_MARK);
    CHECK((uintptr_t)block % HAK_GRANULE == 0);
    return true;
  }
  CHECK_EQ(errno, ENOMEM);
  CHECK(fake_os_injected() > 0);
  return false;
}

static void held_set(table_t *table, unsigned n, void *block, size_t size) {
  table->held[n].block = block;
  table->held[n].size = size;
  held_mark(table, &table->held[n]);
}

/* Frees the block; checks that this keeps errno and takes nothing from the kernel. */
static void free_checked(const table_t *table, void *block) {
  uint64_t before = fake_os_calls(FAKE_TAKING);
  errno = ERRNO_MARK;
  hak_free(block);
  CHECK_EQ(errno, ERRNO_MARK);
  if (table->alone) CHECK_EQ(fake_os_calls(FAKE_TAKING), before);
}

void held_drop(table_t *table, unsigned n) {
  held_check(&table->held[n]);
  free_checked(table, table->held[n].block);
  table->held[n].block = NULL;
}

/* ---- allocation ---- */

static void held_take(table_t *table, unsigned n, void *block, size_t size) {
  if (!outcome(block)) return;
  if (table->held[n].block != NULL) held_drop(table, n);
  held_set(table, n, block, size);
}

void held_malloc(table_t *table, unsigned n, size_t size) {
  errno = ERRNO_MARK;
  held_take(table, n, hak_malloc(size), size);
}

void held_calloc(table_t *table, unsigned n, size_t size) {
  errno = ERRNO_MARK;
  unsigned char *block = hak_calloc(1, size);
  if (block != NULL) CHECK(unit_is_zero(block, size));
  held_take(table, n, block, size);
}

void held_aligned(table_t *table, unsigned n, size_t align, size_t size) {
  errno = ERRNO_MARK;
  void *block = hak_aligned_alloc(align, size);
  CHECK((uintptr_t)block % align == 0);
  held_take(table, n, block, size);
}

void held_posix(table_t *table, unsigned n, size_t align, size_t size) {
  void *block = &errno;
  errno = ERRNO_MARK;
  int error = hak_posix_memalign(&block, align, size);
  CHECK_EQ(errno, ERRNO_MARK);
  if (error != 0) {
    CHECK(error == ENOMEM && block == &errno && fake_os_injected() > 0);
    return;
  }
  CHECK((uintptr_t)block % align == 0);
  held_take(table, n, block, size);
}

/* ---- resizing ---- */

static void held_moved(table_t *table, unsigned n, unsigned char *block, size_t size) {
  held_t *held = &table->held[n];
  if (!outcome(block)) {
    held_check(held);
    return;
  }
  size_t kept = edge_of(held->block != NULL ? (size < held->size ? size : held->size) : 0);
  CHECK(is_marked(block, kept, held->mark));
  held_set(table, n, block, size);
}

void held_realloc(table_t *table, unsigned n, size_t size) {
  errno = ERRNO_MARK;
  held_moved(table, n, hak_realloc(table->held[n].block, size), size);
}

void held_reallocf(table_t *table, unsigned n, size_t size) {
  errno = ERRNO_MARK;
  unsigned char *block = hak_reallocf(table->held[n].block, size);
  if (block == NULL) table->held[n].block = NULL; /* it was freed */
  held_moved(table, n, block, size);
}

void held_recalloc(table_t *table, unsigned n, size_t size) {
  size_t old = table->held[n].block != NULL ? table->held[n].size : 0;
  errno = ERRNO_MARK;
  unsigned char *block = hak_recallocarray(table->held[n].block, old, size, 1);
  if (block != NULL && size > old) CHECK(unit_is_zero(block + old, size - old));
  held_moved(table, n, block, size);
}

void held_expand(table_t *table, unsigned n, size_t size) {
  held_t *held = &table->held[n];
  if (held->block == NULL || size == 0) return;
  errno = ERRNO_MARK;
  bool expanded = hak_expand(held->block, size);
  CHECK_EQ(errno, ERRNO_MARK);
  if (!expanded) {
    held_check(held);
    return;
  }
  CHECK(is_marked(held->block, edge_of(size < held->size ? size : held->size), held->mark));
  held->size = size;
  held_mark(table, held);
}

/* ---- batches ---- */

void held_batch(table_t *table, unsigned first, unsigned count, size_t size) {
  void *blocks[HELD_MAX];
  errno = ERRNO_MARK;
  size_t got = hak_malloc_batch(size, count, blocks);
  CHECK(got <= count);
  (void)outcome(got == count ? blocks[0] : NULL);
  for (unsigned i = 0; i < got; i++) {
    errno = ERRNO_MARK;
    held_take(table, first + i, blocks[i], size);
  }
}

void held_drop_batch(table_t *table, unsigned first, unsigned count) {
  void *blocks[HELD_MAX];
  for (unsigned i = 0; i < count; i++) {
    held_check(&table->held[first + i]);
    blocks[i] = table->held[first + i].block;
    table->held[first + i].block = NULL;
  }
  errno = ERRNO_MARK;
  hak_free_batch(blocks, count);
  CHECK_EQ(errno, ERRNO_MARK);
}

/* ---- tables ---- */

void table_check(table_t *table) {
  for (unsigned n = 0; n < HELD_MAX; n++) held_check(&table->held[n]);
}

void table_drop(table_t *table) {
  for (unsigned n = 0; n < HELD_MAX; n++) held_drop(table, n);
}

void table_step(table_t *table, size_t most) {
  unsigned n = unit_below(&table->seed, 64);
  size_t size = 1 + unit_below(&table->seed, (uint32_t)(unit_below(&table->seed, 4) == 0 ? most : 2000));
  switch (unit_below(&table->seed, 10)) {
    case 0:
    case 1:
    case 2: held_malloc(table, n, size); break;
    case 3: held_calloc(table, n, size); break;
    case 4: held_realloc(table, n, size); break;
    case 5: held_aligned(table, n, (size_t)16 << unit_below(&table->seed, 12), size); break;
    case 6: held_recalloc(table, n, size); break;
    case 7: held_expand(table, n, size); break;
    default: held_drop(table, n); break;
  }
}

/* ---- judgement ---- */

void check_all_works(void) {
  static table_t table;
  table_init(&table, unit_seed());
  for (unsigned n = 0; n < 80; n++) {
    size_t size = n < 40 ? (size_t)n * 820 : n < 70 ? n : (size_t)(n - 60) * 100000;
    errno = ERRNO_MARK;
    void *block = hak_malloc(size);
    if (block == NULL) check_fail(__FILE__, __LINE__, "malloc(%zu) fails although the kernel has memory again", size);
    else held_take(&table, n, block, size);
  }
  table_check(&table);
  table_drop(&table);
}

/* Units that stay in use: heaps that were made while there were no other addresses, and memory for malloc(0) that the kernel did not make
 * accessible again. */
static uint64_t units_that_stay(void) {
  uint64_t units = 0;
  for (uint32_t unit = 0; unit < load_relaxed(&region.units); unit++) {
    uint8_t kind = load_relaxed(&unit_at(unit)->kind);
    if (kind == UNIT_META || kind == UNIT_GUARD) units += load_relaxed(&unit_at(unit)->units);
  }
  return units;
}

void check_nothing_is_lost(void) {
  (void)hak_collect(true);
  hak_stats_t stats;
  census_take(&stats, NULL);
  CHECK_EQ(stats.live, 0);
  CHECK_EQ(stats.cached, 0);
  CHECK_EQ(stats.remote, 0);
  CHECK_EQ(stats.slabs, 0);
  CHECK_EQ(stats.large_blocks, 0);
  CHECK_EQ(stats.purge_pending, 0);
  CHECK_EQ(stats.span_free + units_that_stay() * HAK_UNIT, (uint64_t)units_mapped() * HAK_UNIT);
  CHECK_EQ(stats.committed, stats.span_free);
}
