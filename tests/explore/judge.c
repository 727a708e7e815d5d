/* judge.c - runs when all actors have ended, and reads memory, which holds the newest value of every word. */
#include "judge.h"

#include <string.h>

#include "program.h"
#include "front/heaps.h"
#include "slab/sample.h"
#include "space/purge.h"
#include "space/ledger.h"
#include "space/span.h"
#include "target.h"

enum { UNITS_MOST = 256, BLOCKS_MOST = 4096 };

static uint8_t queued[UNITS_MOST]; /* how often each slab is in a pending stack */
static uint8_t places[BLOCKS_MOST]; /* how many places each block of a slab is in */
static bool trimmed, looked_at; /* marks were collected without an announcement: in threads' heaps, in every slab */
static bool may_leak; /* in a fork's child: unfinished frees may lose a block, or leave a bit set until the next free into the slab */

/* --- slabs --------------------------------------------------------------------------------- */

static uint64_t word_free(uint32_t unit, uint32_t word) { return load_relaxed(region_bits(region.free_bits, unit, word)); }
static uint64_t word_remote(uint32_t unit, uint32_t word) { return load_relaxed(region_bits(region.remote_bits, unit, word)); }
static uint64_t word_marked(uint32_t unit, uint32_t word) {
  bool marker = (load_relaxed(&remote_of(unit)->freers) & ~REMOTE_OTHERS) != 0;
  return marker ? load_relaxed(region_marks(unit, word)) ^ load_relaxed(region_marks_seen(unit, word)) : 0;
}

static uint32_t place_bits(const unit_t *slab, uint64_t (*of)(uint32_t unit, uint32_t word)) {
  uint32_t count = 0, blocks = slab_class(slab)->blocks;
  for (uint32_t word = 0; word * 64 < blocks; word++) {
    uint64_t bits = of(unit_number(slab), word);
    count += bits_count64(bits);
    for (; bits != 0; bits &= bits - 1) places[(word * 64 + bits_lowest64(bits)) % BLOCKS_MOST]++;
  }
  return count;
}

static void place_block(const unit_t *slab, const void *block) {
  if (unit_head((uint32_t)region_unit(block)) != slab) return;
  size_t offset = (size_t)((const char *)block - (const char *)region_address(unit_number(slab)));
  places[class_block_at(load_relaxed(&slab->size_class), offset) % BLOCKS_MOST]++;
}

static void place_bins(const unit_t *slab) {
  unsigned c = load_relaxed(&slab->size_class);
  for (heap_t *heap = heap_first(); heap != NULL; heap = load_relaxed(&heap->next)) {
    if (!load_relaxed(&heap->has_bin[c])) continue;
    bin_t *bin = heap_bin(heap, c);
    for (intptr_t i = bin->taken - bin->capacity; i < racy_load(&bin->top); i++)
      place_block(slab, entry_block(racy_load(&bin_entries(bin)[i])));
  }
}

static void judge_slab(const unit_t *slab) {
  uint32_t unit = unit_number(slab), blocks = slab_class(slab)->blocks;
  memset(places, 0, blocks);
  uint32_t free = place_bits(slab, word_free), waiting = place_bits(slab, word_remote), marked = place_bits(slab, word_marked);
  place_bins(slab);
  for (unsigned i = 0; i < HELD_MOST; i++) {
    if (held[i] != NULL) place_block(slab, held[i]);
  }
  for (uint32_t i = 0; i < blocks; i++) {
    if (places[i] != 1 && !(may_leak && places[i] == 0))
      explore_fail("block %u of the slab at unit %u is in %u places", i, unit, places[i]);
  }
  if (load_relaxed(&slab->free) != free) explore_fail("the slab at unit %u counts %u free of %u", unit, load_relaxed(&slab->free), free);
  uint32_t state = target_remote_state(unit);
  if (state == STATE_CLOSED) explore_fail("the slab at unit %u takes no remote frees", unit);
  bool is_queued = state == STATE_QUEUED;
  if (is_queued != (queued[unit] != 0)) explore_fail("the slab at unit %u is in state %u, queued %u times", unit, state, queued[unit]);
  /* After a stale read a mark may wait unannounced, until its slab is checked. */
  bool may_wait = explore_was_stale() && !looked_at && (!trimmed || load_relaxed(&slab_owner(slab)->thread) == 0);
  if (!may_wait) waiting += marked;
  if (waiting > (may_leak ? giving : 0) && !is_queued) explore_fail("%u remote frees to unit %u that nobody announces", waiting, unit);
}

static void judge_other_unit(uint32_t unit) {
  if (target_remote_state(unit) != STATE_CLOSED) explore_fail("unit %u starts no slab and takes remote frees", unit);
  uint64_t bits = 0;
  for (uint32_t word = 0; word < 64; word++) bits |= word_remote(unit, word) | word_marked(unit, word);
  if (bits != 0) explore_fail("unit %u starts no slab and has remote frees", unit);
}

static void judge_units(void) {
  for (uint32_t unit = 0; unit < load_relaxed(&region.units); unit++) {
    const superslab_t *superslab = &region.superslabs[unit / HAK_UNITS_PER_SUPERSLAB];
    bool mapped = (load_relaxed(&superslab->mapped) >> unit % HAK_UNITS_PER_SUPERSLAB & 1) != 0;
    bool free = (load_relaxed(&superslab->free) >> unit % HAK_UNITS_PER_SUPERSLAB & 1) != 0;
    unit_kind_t kind = (unit_kind_t)load_relaxed(&unit_at(unit)->kind);
    if (mapped && free != (kind == UNIT_FREE)) explore_fail("unit %u is of kind %d and %s", unit, (int)kind, free ? "free" : "taken");
    if (kind == UNIT_SLAB) judge_slab(unit_at(unit));
    else judge_other_unit(unit);
  }
}

/* --- heaps --------------------------------------------------------------------------------- */

static void judge_pending(const slab_owner_t *owner, unsigned c) {
  for (uint32_t next = load_relaxed(&owner->pending[c]); next != 0; next = target_remote_next(next - 1)) {
    uint32_t unit = next - 1;
    if (unit >= load_relaxed(&region.units) || ++queued[unit] > 1) explore_fail("unit %u is queued twice, or is none", unit);
    const unit_t *slab = unit_at(unit);
    bool is_owners = load_relaxed(&slab->kind) == UNIT_SLAB && slab_owner(slab) == owner && load_relaxed(&slab->size_class) == c;
    if (!is_owners) explore_fail("unit %u is queued where it does not belong", unit);
  }
}

static void judge_lists(const heap_t *heap) {
  const slab_owner_t *owner = &heap->owner;
  int64_t free_bytes = 0;
  for (unsigned c = 0; c < CLASS_COUNT; c++) {
    uint32_t slabs = 0;
    for (unsigned full = 0; full < 2; full++) {
      uint32_t unit = full != 0 ? owner->full[c].first : owner->partial[c].first;
      for (; unit != UNIT_NONE; unit = unit_at(unit)->next) {
        uint32_t free = load_relaxed(&unit_at(unit)->free);
        if (++slabs > UNITS_MOST || (free == 0) != (full != 0)) explore_fail("unit %u with %u free is in the wrong list", unit, free);
        free_bytes += (int64_t)free * class_info[c].size;
        if (owner->orphan && free == class_info[c].blocks) explore_fail("an orphan keeps unit %u", unit);
      }
    }
    uint32_t counted = load_relaxed(&owner->slab_count[c]);
    if (counted != slabs) explore_fail("%u slabs of class %u, counted as %u", slabs, c, counted);
  }
  uint64_t larges = 0;
  for (uint32_t unit = owner->large.first; unit != UNIT_NONE && larges < UNITS_MOST; unit = unit_at(unit)->next) larges++;
  if (load_relaxed(&owner->large_blocks) != larges) explore_fail("%llu large blocks, counted wrong", (unsigned long long)larges);
  if (load_relaxed(&owner->free_bytes) != free_bytes) explore_fail("%lld bytes are free, counted wrong", (long long)free_bytes);
}

static void judge_heap(const heap_t *heap) {
  uintptr_t thread = load_relaxed(&heap->owner.thread);
  if (load_relaxed(&heap->owner.lock.holder) != 0) explore_fail("a heap's lock is held");
  uint32_t state = load_relaxed(&heap->state);
  if ((thread == 0) != (state != HEAP_ATTACHED && state != HEAP_NAMED)) explore_fail("a heap is an orphan and is not");
  for (unsigned c = 0; c < CLASS_COUNT; c++) {
    if (thread == 0 && load_relaxed(&heap->owner.pending[c]) != 0) explore_fail("an orphan has remote frees that nobody will look at");
    judge_pending(&heap->owner, c);
  }
  judge_lists(heap);
}

static bool heap_is_listed(const heap_t *wanted) {
  for (heap_t *heap = heap_first(); heap != NULL; heap = load_relaxed(&heap->next)) {
    if (heap == wanted) return true;
  }
  return false;
}

static void judge_threads(void) {
  for (unsigned i = 0; i < TARGET_IDENTITIES; i++) {
    const heap_t *heap = target_heap_of(i);
    if (heap == NULL) continue;
    if (load_relaxed(&heap->owner.thread) != target_self_of(i)) explore_fail("thread %u's heap is another one's", i);
    if (!heap_is_listed(heap)) explore_fail("thread %u's heap is in no list", i);
  }
}

/* --- all ----------------------------------------------------------------------------------- */

void judge_state(void) {
  memset(queued, 0, sizeof queued);
  if (target_grow_locked()) explore_fail("the region is locked");
  if (load_relaxed(&region.units) > UNITS_MOST) explore_fail("the region has grown beyond what is judged");
  judge_threads();
  for (heap_t *heap = heap_first(); heap != NULL; heap = load_relaxed(&heap->next)) judge_heap(heap);
  judge_units();
  if (ledger_used_units() != ledger_census().used_units) explore_fail("units in use are counted wrong");
  if (!target_parked_counted()) explore_fail("what ended threads have left is counted wrong");
}

void judge_nothing_used(void) {
  uint64_t used = ledger_census().used_units;
  if (used != 0) explore_fail("%llu units are lost", (unsigned long long)used);
}

static void judge_live(void) {
  for (uint32_t unit = 0; unit < load_relaxed(&region.units); unit++) {
    if (load_relaxed(&unit_at(unit)->kind) != UNIT_SLAB) continue;
    const class_info_t *info = slab_class(unit_at(unit));
    for (uint32_t i = 0; i < info->blocks; i++) {
      const char *block = (const char *)region_address(unit) + (size_t)i * info->size;
      bool is_held = false;
      for (unsigned n = 0; n < HELD_MOST; n++) is_held |= held[n] == block;
      if (slab_block_is_live(block) == is_held) continue;
      explore_fail("block %u of unit %u is %s", i, unit, is_held ? "held and not live" : "live and not held");
    }
  }
}

static void threads_collect(void) {
  for (unsigned i = 0; i < TARGET_IDENTITIES; i++) {
    target_run_as(i);
    target_trim();
  }
  target_run_as(OUTSIDER);
}

static void give_held(void) {
  for (unsigned i = 0; i < HELD_MOST; i++) {
    if (held[i] != NULL) give(held[i]);
  }
}

static void end(bool live) {
  judge_state();
  threads_collect();
  trimmed = true;
  judge_state();
  target_purge_holes();
  looked_at = true;
  judge_state();
  if (live) judge_live();
  give_held();
  judge_state();
  for (unsigned i = 0; i < TARGET_IDENTITIES; i++) {
    target_run_as(i);
    target_end_thread();
  }
  target_run_as(OUTSIDER);
  judge_state();
  judge_nothing_used();
}

void judge_end(void) { end(false); }
void judge_end_live(void) { end(true); }

void judge_forked(void) {
  may_leak = true;
  judge_state();
  give_held();
  judge_state();
}
