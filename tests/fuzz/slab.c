/* slab.c - the slabs of three owners, frees by other threads, and large blocks, against a model.
 *
 * The model knows which blocks are out, their owners, and their contents.  After each operation each block of a slab is out, free,
 * or freed by another thread and not yet collected, and is counted so; lists and counts are right.  A freer may be delayed between
 * its free and the announcement; owners lose their threads and get others; locks are held meanwhile; the kernel fails. */
#include <string.h>

#include "library.h"

/* Replaces base/thread.h. */
#define BASE_THREAD_H
static inline uintptr_t thread_self(void) { return thread_running_self(); }

#include "fake_os.h"
#include "fuzz.h"
#include "kit/options.h"
#include "slab/batch.h"
#include "slab/hole.h"
#include "slab/large.h"
#include "slab/remote.h"
#include "slab/slab.h"
#include "space/ledger.h"
#include "space/purge.h"
#include "space/span.h"

enum { OWNERS = 3, OUT_MOST = 2048, LARGES = 12, UNANNOUNCED_MOST = 8, TAKE_MOST = 96 };

typedef struct out {
  char *block;
  uint8_t class, owner;
} out_t;

typedef struct large {
  char *block; /* NULL: none */
  size_t size;
  uint8_t mark;
} large_t;

static slab_owner_t owners[OWNERS];
static region_bin_t bins[OWNERS][CLASS_COUNT];
static out_t out[OUT_MOST];
static unsigned out_count;
static large_t larges[LARGES];
static unit_t *unannounced[UNANNOUNCED_MOST]; /* slabs that their freers have still to announce */
static unsigned unannounced_count;
static bool locked[OWNERS];

/* --- judgement --------------------------------------------------------------------------- */

static uint32_t check_bits(const unit_t *slab) {
  uint32_t free = 0, blocks = slab_class(slab)->blocks;
  for (uint32_t word = 0; word * 64 < blocks; word++) {
    uint64_t bits = load_relaxed(region_bits(region.free_bits, unit_number(slab), word));
    if (blocks - word * 64 < 64) FUZZ_EQ(bits >> (blocks - word * 64), 0);
    if (word < slab->first_word) FUZZ_EQ(bits, 0);
    FUZZ_EQ(bits & remote_word(unit_number(slab), word), 0);
    free += bits_count64(bits);
  }
  return free;
}

/* Returns how many blocks of the slab are not out. */
static uint32_t check_slab(unsigned o, unsigned c, const unit_t *slab, bool full) {
  FUZZ_EQ(load_relaxed(&slab->kind), UNIT_SLAB);
  FUZZ_EQ(load_relaxed(&slab->size_class), c);
  FUZZ_CHECK(slab_owner(slab) == &owners[o] && slab->listed_full == full);
  uint32_t free = check_bits(slab);
  FUZZ_EQ(load_relaxed(&slab->free), free);
  FUZZ_EQ(free == 0, full);
  for (uint32_t i = 0; i < class_info[c].units; i++) {
    FUZZ_CHECK(unit_head(unit_number(slab) + i) == slab && racy_load(region_bin(region.live, unit_number(slab) + i)) == &bins[o][c]);
  }
  return free + remote_waiting(slab);
}

static void check_owner(unsigned o, const uint32_t *out_of_class) {
  int64_t free_bytes = 0;
  for (unsigned c = 0; c < CLASS_COUNT; c++) {
    uint32_t slabs = 0, in = 0;
    for (int full = 0; full < 2; full++) {
      uint32_t before = UNIT_NONE, unit = full != 0 ? owners[o].full[c].first : owners[o].partial[c].first;
      for (; unit != UNIT_NONE; before = unit, unit = unit_at(unit)->next, slabs++) {
        FUZZ_EQ(unit_at(unit)->prev, before);
        in += check_slab(o, c, unit_at(unit), full != 0);
        free_bytes += (int64_t)load_relaxed(&unit_at(unit)->free) * class_info[c].size;
      }
    }
    FUZZ_EQ(load_relaxed(&owners[o].slab_count[c]), slabs);
    FUZZ_EQ(slabs * class_info[c].blocks, in + out_of_class[c]);
  }
  FUZZ_EQ(load_relaxed(&owners[o].free_bytes), free_bytes);
  bool helped = load_relaxed(&owners[o].thread) == 0 && !locked[o]; /* only the freers collect for an orphan */
  for (unsigned c = 0; c < CLASS_COUNT; c++) FUZZ_CHECK(!helped || load_relaxed(&owners[o].pending[c]) == 0);
}

static void check_all(void) {
  static uint32_t out_of[OWNERS][CLASS_COUNT];
  memset(out_of, 0, sizeof out_of);
  for (unsigned i = 0; i < out_count; i++) out_of[out[i].owner][out[i].class]++;
  uint64_t units = 0;
  for (unsigned o = 0; o < OWNERS; o++) {
    check_owner(o, out_of[o]);
    for (unsigned c = 0; c < CLASS_COUNT; c++) units += load_relaxed(&owners[o].slab_count[c]) * class_info[c].units;
  }
  for (unsigned i = 0; i < LARGES; i++) units += larges[i].block != NULL ? bits_round_up(larges[i].size, HAK_UNIT) / HAK_UNIT : 0;
  FUZZ_EQ(ledger_census().used_units, units);
  FUZZ_EQ(ledger_used_units(), units);
}

/* --- blocks ------------------------------------------------------------------------------ */

/* The first and the last bytes identify the block's class. */
static void block_mark(const out_t *b) {
  memset(b->block, b->class + 1, 8);
  memset(b->block + class_info[b->class].size - 8, b->class + 1, 8);
}

static void block_check(const out_t *b) {
  const char *end = b->block + class_info[b->class].size - 8;
  for (unsigned i = 0; i < 8; i++) FUZZ_CHECK(b->block[i] == b->class + 1 && end[i] == b->class + 1);
}

static void block_enter(unsigned o, unsigned c, char *block) {
  const unit_t *slab = unit_head((uint32_t)region_unit(block));
  size_t offset = (size_t)(block - (char *)region_address(unit_number(slab)));
  FUZZ_CHECK(offset % class_info[c].size == 0 && offset / class_info[c].size < class_info[c].blocks);
  FUZZ_CHECK(!region_is_live(block));
  region_set_live(block);
  out[out_count] = (out_t){block, (uint8_t)c, (uint8_t)o};
  block_mark(&out[out_count++]);
}

static out_t block_leave(unsigned i) {
  out_t b = out[i];
  block_check(&b);
  out[i] = out[--out_count];
  return b;
}

static bool can_take(unsigned o) { return !locked[o] && load_relaxed(&owners[o].thread) != 0; }

static void op_take(void) {
  void *blocks[TAKE_MOST];
  unsigned o = input_below(OWNERS), c = input_below(CLASS_ZERO), count = 1 + input_below(TAKE_MOST);
  if (!can_take(o) || out_count + count > OUT_MOST) return;
  uint64_t injected = fake_os_injected();
  uint32_t taken = batch_take(&owners[o], c, &bins[o][c], blocks, count);
  FUZZ_CHECK(taken <= count && (taken > 0 || fake_os_injected() != injected));
  for (uint32_t i = 0; i < taken; i++) block_enter(o, c, blocks[i]);
}

/* Frees some of the owner's blocks of one class, in the order in which they were taken, with or without gaps. */
static void op_give(void) {
  void *blocks[TAKE_MOST];
  unsigned o = input_below(OWNERS), count = 1 + input_below(TAKE_MOST), given = 0;
  unsigned at = out_count == 0 ? 0 : input_word() % out_count, stride = input_below(3), c = 0;
  if (!can_take(o)) return;
  while (given < count && at < out_count) {
    if (out[at].owner != o || (given > 0 && out[at].class != c)) {
      at++;
      continue;
    }
    out_t left = block_leave(at);
    c = left.class;
    blocks[given] = left.block;
    FUZZ_CHECK(region_clear_live(blocks[given++]));
    at += stride;
  }
  for (unsigned n = 0; n < given;) n += batch_give(&owners[o], blocks + n, given - n);
}

/* --- others' frees ----------------------------------------------------------------------- */

static void announce(void) {
  if (unannounced_count > 0) remote_announce(unannounced[--unannounced_count]);
}

static void free_remote(unsigned i) {
  out_t b = block_leave(i);
  uint32_t unit = (uint32_t)region_unit(b.block);
  const region_bin_t *bin = racy_load(region_bin(region.live, unit));
  FUZZ_CHECK(bin == &bins[b.owner][b.class]);
  FUZZ_CHECK(region_clear_live(b.block));
  unit_t *slab = remote_mark(bin, unit, b.block);
  if (slab != NULL) unannounced[unannounced_count++] = slab;
}

/* Frees by one of several threads; the first to free into a slab is its marker. */
static void op_remote(void) {
  unsigned count = 1 + input_below(64), at = input_word(), announced = input_below(4);
  thread_run_as(announced);
  for (unsigned n = 0; n < count && out_count > 0 && unannounced_count < UNANNOUNCED_MOST; n++) {
    free_remote((at + n) % out_count);
    if (announced != 0) announce();
  }
}

static void op_tell(void) { announce(); }

static void op_collect(void) {
  unsigned o = input_below(OWNERS), c = input_below(CLASS_COUNT + 8);
  if (!can_take(o)) return;
  if (c < CLASS_COUNT) remote_collect_class(&owners[o], c);
  else remote_collect(&owners[o]);
}

static void op_release_empty(void) {
  unsigned o = input_below(OWNERS);
  if (!locked[o]) slab_release_empty(&owners[o]);
}

/* --- owners ------------------------------------------------------------------------------ */

static void set_thread(unsigned o, uintptr_t thread) {
  atomic_store(&owners[o].thread, thread);
  for (unsigned c = 0; c < CLASS_COUNT; c++) racy_store(&bins[o][c].thread, thread);
}

static void op_orphan(void) {
  unsigned o = input_below(OWNERS);
  if (!can_take(o)) return;
  FUZZ_CHECK(lock_try(&owners[o].lock));
  set_thread(o, 0);
  remote_collect(&owners[o]);
  slab_release_empty(&owners[o]);
  owner_unlock(&owners[o]);
}

static void op_adopt(void) {
  unsigned o = input_below(OWNERS);
  if (locked[o] || load_relaxed(&owners[o].thread) != 0) return;
  FUZZ_CHECK(lock_try(&owners[o].lock));
  set_thread(o, (o + 1) * 0x1230);
  lock_release(&owners[o].lock);
}

#define SOMEBODY ((uintptr_t)1) /* no thread has this number */

static void unlock_as_somebody(unsigned o) {
  store_relaxed(&owners[o].lock.holder, 0);
  FUZZ_CHECK(lock_try(&owners[o].lock));
  owner_unlock(&owners[o]);
}

/* Another thread, such as the keeper, holds the owner's lock for a while. */
static void op_lock(void) {
  unsigned o = input_below(OWNERS);
  uintptr_t holder = load_relaxed(&owners[o].lock.holder);
  FUZZ_EQ(holder, locked[o] ? SOMEBODY : 0);
  if (!locked[o]) store_relaxed(&owners[o].lock.holder, SOMEBODY);
  else unlock_as_somebody(o);
  locked[o] = !locked[o];
}

static uint32_t used(uint32_t unit) {
  uint8_t kind = load_relaxed(&unit_at(unit)->kind);
  return kind != UNIT_FREE && kind != UNIT_INSIDE ? load_relaxed(&unit_at(unit)->units) : 0;
}

/* As heap_after_fork does: rebuilds everything from kinds, owners and bits; freers that had not announced yet are gone. */
static void op_recover(void) {
  unannounced_count = 0;
  for (unsigned o = 0; o < OWNERS; o++) {
    slab_owner_t *owner = &owners[o];
    lock_abandon(&owner->lock, false);
    locked[o] = false;
    owner_forget(owner, true);
  }
  span_recover(used);
  for (uint32_t unit = 0; unit < load_relaxed(&region.units); unit++) {
    unit_t *slab = unit_at(unit);
    if (load_relaxed(&slab->kind) != UNIT_SLAB) continue;
    slab_relist(slab_owner(slab), slab, racy_load(region_bin(region.live, unit)));
    remote_recover(slab_owner(slab), slab);
  }
}

/* --- large blocks ------------------------------------------------------------------------ */

static void large_fill(large_t *l, size_t from) {
  for (size_t at = from / 4096 * 4096; at < l->size; at += 4096) l->block[at] = (char)l->mark;
  l->block[l->size - 1] = (char)l->mark;
}

static void large_check(const char *block, size_t bytes, uint8_t mark) {
  for (size_t at = 0; at < bytes; at += 4096) FUZZ_CHECK(block[at] == (char)mark);
}

static size_t input_large(void) { return HAK_SMALL_MAX + 1 + (size_t)input_byte() * (input_below(8) == 0 ? 16000 : 3000); }

static void large_enter(large_t *l, char *block, size_t size) {
  static uint8_t marks;
  *l = (large_t){block, bits_round_up(size, os_page_size()), ++marks};
  FUZZ_EQ(load_relaxed(&unit_head((uint32_t)region_unit(block))->bytes), l->size);
  large_fill(l, 0);
}

static void large_leave(large_t *l) {
  large_check(l->block, l->size, l->mark);
  FUZZ_CHECK(region_clear_live(l->block));
  large_free(unit_at((uint32_t)region_unit(l->block)));
  l->block = NULL;
}

static void op_large(void) {
  large_t *l = &larges[input_below(LARGES)];
  size_t size = input_large(), align = (size_t)1 << input_below(24);
  span_use_t use = input_below(2) == 0 ? SPAN_PLAIN : SPAN_ZEROED;
  if (l->block != NULL) large_leave(l);
  uint64_t injected = fake_os_injected();
  char *block = large_alloc(size, align, use);
  FUZZ_CHECK(block != NULL || fake_os_injected() != injected);
  if (block == NULL) return;
  FUZZ_CHECK((uintptr_t)block % align == 0 && region_is_live(block));
  if (use == SPAN_ZEROED) {
    large_check(block, size, 0);
    FUZZ_EQ(block[size - 1], 0);
  }
  large_enter(l, block, size);
}

static void op_resize(void) {
  large_t *l = &larges[input_below(LARGES)];
  size_t size = input_large();
  if (l->block == NULL) return;
  size_t before = l->size;
  if (!large_resize(unit_at((uint32_t)region_unit(l->block)), size)) return;
  l->size = bits_round_up(size, os_page_size());
  large_check(l->block, before < l->size ? before : l->size, l->mark);
  large_fill(l, 0);
}

static void op_move(void) {
  large_t *from = &larges[input_below(LARGES)], *to = &larges[input_below(LARGES)];
  if (from->block == NULL || to->block == NULL || from == to || to->size < from->size) return;
  large_move(unit_at((uint32_t)region_unit(from->block)), to->block);
  large_check(to->block, from->size, from->mark);
  large_fill(to, 0);
  FUZZ_CHECK(region_clear_live(from->block)); /* its content is gone; it is freed */
  large_free(unit_at((uint32_t)region_unit(from->block)));
  from->block = NULL;
}

/* --- the rest ---------------------------------------------------------------------------- */

static void op_hole_step(void) {
  uint32_t aging = 0;
  (void)hole_step(input_below(2) == 0, &aging);
}

static void op_purge(void) {
  fake_os_pass_time(input_byte() * 10u);
  if (input_below(2) == 0) (void)purge_all();
  else (void)purge_due();
}

static void op_failures(void) {
  static const unsigned kinds[] = {FAKE_ANY, FAKE_TAKING, FAKE_ONLY(FAKE_PURGE)};
  unsigned which = input_below(4), first = 1 + input_below(8), count = input_below(8);
  if (which == 3) fake_os_fail_none();
  else fake_os_fail(kinds[which], first, count == 7 ? UINT64_MAX : count);
}

static void op_option(void) {
  static const int64_t zero_kb[] = {0, 1, 64, 16384};
  FUZZ_CHECK(option_set(OPTION_zero_kb, zero_kb[input_below(4)]) && option_set(OPTION_move, input_below(2)));
}

/* --- a run ------------------------------------------------------------------------------- */

static void (*const ops[])(void) = {
    op_take,  op_take,    op_take,   op_give,  op_give,      op_remote, op_remote,   op_tell,
    op_tell,  op_collect, op_orphan, op_adopt, op_adopt,     op_lock,   op_recover,  op_release_empty,
    op_large, op_large,   op_resize, op_move,  op_hole_step, op_purge,  op_failures, op_option,
};
enum { OPS = sizeof ops / sizeof ops[0] };

static void start(void) {
  unsigned byte = input_byte();
  library_start();
  if ((byte & 1) != 0) fake_os_set_address_limit((uint64_t)1 << 40);
  if ((byte & 6) == 6) fake_os_set_page_size(65536);
  FUZZ_CHECK(region_init((uint64_t)4 << 30));
  for (unsigned o = 0; o < OWNERS; o++) {
    owner_init(&owners[o]);
    for (unsigned c = 0; c < CLASS_COUNT; c++) bins[o][c] = (region_bin_t){0, class_info[c].size, c};
    set_thread(o, (o + 1) * 0x1230);
  }
}

static void finish(void) {
  fake_os_fail_none();
  for (unsigned o = 0; o < OWNERS; o++) {
    if (locked[o]) unlock_as_somebody(o);
    locked[o] = false;
  }
  for (unsigned i = 0; i < LARGES; i++) {
    if (larges[i].block != NULL) large_leave(&larges[i]);
  }
  while (unannounced_count > 0) announce();
  while (out_count > 0) {
    free_remote(out_count - 1);
    announce();
  }
  for (unsigned o = 0; o < OWNERS; o++) {
    remote_collect_all(&owners[o]);
    slab_release_empty(&owners[o]);
  }
  check_all();
  FUZZ_EQ(ledger_census().used_units, 0);
}

void fuzz_target(void) {
  start();
  while (!input_ends()) {
    ops[input_byte() % OPS]();
    check_all();
  }
  finish();
}
