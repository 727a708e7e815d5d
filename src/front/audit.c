#include "front/audit.h"

#include "base/thread.h"
#include "os/os.h"
#include "kit/fault.h"
#include "slab/audit.h"
#include "slab/large_secure.h"
#include "slab/remote.h"
#include "slab/slots.h"
#include "front/heaps.h"
#include "front/quarantine.h"
#include "front/repair.h"

static _Atomic bool had_threads;

static bool always_alone(void) {
  if (!os_single_threaded()) store_relaxed(&had_threads, true);
  return !load_relaxed(&had_threads) && !repair_was_made();
}

/* --- bins -------------------------------------------------------------------------------- */

/* With the owner's lock, since the block must not be free in its slab. */
static void audit_entry(const heap_t *heap, const bin_t *bin, unsigned c, void *entry) {
  void *block = entry_block(entry);
  size_t unit = region_unit(block);
  AUDIT(unit < load_relaxed(&region.units), block, "a bin has what is no block");
  const unit_t *slab = unit_head((uint32_t)unit);
  bool owned = load_relaxed(&slab->kind) == UNIT_SLAB && slab_owner(slab) == &heap->owner;
  owned &= load_relaxed(&slab->size_class) == c && racy_load(region_bin(region.live, unit)) == &bin->shared;
  AUDIT(owned, block, "a bin has a block of another's slab");
  size_t offset = (size_t)((char *)block - (char *)region_address(unit_number(slab)));
  uint32_t index = class_block_at(c, offset);
  AUDIT((size_t)index * class_info[c].size == offset && index < class_info[c].blocks, block, "a bin has what is no block");
  uint64_t bit = (uint64_t)1 << index % 64, free = load_relaxed(region_bits(region.free_bits, unit_number(slab), index / 64));
  AUDIT((free & bit) == 0, block, "a block is in a bin and in its slab");
  uint64_t remote = remote_word(unit_number(slab), index / 64);
  AUDIT((remote & bit) == 0, block, "a block in a bin was freed remotely");
  bool undone = !HAK_SECURE && heap->owner.helped;
  AUDIT(!HAK_CHECKS || undone || !region_is_live(block), block, "a block in a bin is live");
  sample_state_t state = sample_block_state(block);
  bool agree = entry_is_barred(entry)    ? true
               : entry_is_sampled(entry) ? state == SAMPLE_FREE
                                         : state == SAMPLE_NONE || state == SAMPLE_QUIET;
  AUDIT(agree, block, "a sampled block's entry and record disagree");
}

/* A bit set by hash shows, for most blocks, that the block was not seen before. */
static void audit_entries(const heap_t *heap, bin_t *bin, unsigned c) {
  uint64_t seen[64] = {0};
  void **entries = bin_entries(bin);
  intptr_t first = bin->taken - bin->capacity, top = owner_load(&bin->top);
  for (intptr_t i = first; i < top; i++) {
    void *block = owner_load(&entries[i]);
    uint64_t hash = (uint64_t)(uintptr_t)block * GOLDEN_RATIO_64 >> 52;
    audit_entry(heap, bin, c, block);
    for (intptr_t k = first; k < i && (seen[hash / 64] >> hash % 64 & 1) != 0; k++) {
      AUDIT(owner_load(&entries[k]) != block, block, "a block is in a bin twice");
    }
    seen[hash / 64] |= (uint64_t)1 << hash % 64;
  }
}

static void audit_bin(heap_t *heap, unsigned c) {
  bin_t *bin = heap_bin(heap, c);
  intptr_t top = owner_load(&bin->top), floor = bin->taken - bin->capacity;
  bool named = bin->shared.size_class == c && bin->shared.block_size == class_info[c].size;
  AUDIT(named && owner_load(&bin->shared.thread) == load_relaxed(&heap->owner.thread), bin, "a bin is not what frees take it for");
  AUDIT(bin->capacity > 0 && bin->capacity <= bin_reserve(c), bin, "a bin has more entries than room");
  AUDIT(top >= floor && top < 0, bin, "a bin's top is not between its ends");
  AUDIT(bin->barred || floor == -bin->capacity, bin, "entries of a bin are gone, and there is no bar");
  AUDIT(owner_load(&bin_entries(bin)[floor - 1]) == BIN_END, bin, "a bin's first entry has no end below it");
  audit_entries(heap, bin, c);
}

/* --- heaps ------------------------------------------------------------------------------- */

static uint16_t table_wants(const heap_t *heap, unsigned c) {
  return load_relaxed(&heap->has_bin[c]) && !load_relaxed(&heap->watched) ? heap->bin_at_class[c] : 0;
}

static void audit_table(const heap_t *heap) {
  bool right = heap->bin_at[0] == table_wants(heap, CLASS_ZERO);
  for (size_t i = 1; i < HEAP_TABLE_SMALL; i++) right &= heap->bin_at[i] == table_wants(heap, class_of(i * HAK_GRANULE));
  for (size_t i = 1; i < HEAP_TABLE_MID; i++) {
    right &= heap->bin_at[HEAP_TABLE_SMALL + i] == table_wants(heap, class_of(i * HEAP_TABLE_STEP));
  }
  AUDIT(right, heap, "a heap's table leads to another class's bin");
  bool empty = racy_load(&heap->none.top) == heap_none.none.top && heap->none.capacity == heap_none.none.capacity;
  AUDIT(empty && heap->none_entry == BIN_END && heap_none.none_entry == BIN_END, heap, "the bin of no blocks is not empty");
}

/* Blocks that are out, not freed remotely and not live must be in the heap's bins, in quarantine or held. */
static void audit_sums(heap_t *heap, const audit_sum_t *sums) {
  const slab_held_t *held = &heap->owner.held;
  unsigned of_held = held->units != 0 ? load_relaxed(&unit_at(held->unit)->size_class) : CLASS_NONE;
  for (unsigned c = 0; c < CLASS_COUNT; c++) {
    uint32_t known = load_relaxed(&heap->has_bin[c]) ? bin_count(heap_bin(heap, c)) : 0;
    if (HAK_SECURE) known += quarantine_waiting(heap, c);
    if (c == of_held) known += held->last - held->first + 1;
    AUDIT(sums[c].out == known, heap, "out + free + remote are not the blocks of a class");
  }
}

/* With the heap's lock. Without `bins`, checks only what the lock guards. */
static void audit_heap(heap_t *heap, bool bins, bool alone) {
  audit_sum_t sums[CLASS_COUNT] = {{0}};
  bool complete = alone && bins && HAK_CHECKS && !(HAK_SECURE && load_relaxed(&heap_first()->next) != NULL); /* others' quarantine */
  audit_owner(&heap->owner, complete ? sums : NULL, alone);
  if (!bins) return;
  audit_table(heap);
  if (HAK_SECURE) quarantine_audit(heap);
  for (unsigned c = 0; c < CLASS_COUNT; c++) {
    if (load_relaxed(&heap->has_bin[c])) audit_bin(heap, c);
    else AUDIT(load_relaxed(&heap->owner.slab_count[c]) == 0, heap, "a heap has slabs of a class and no bin");
  }
  if (complete) audit_sums(heap, sums);
}

static void audit_mine(const heap_t *heap) {
  uintptr_t self = thread_self();
  AUDIT(load_relaxed(&heap->state) == HEAP_ATTACHED && heap->thread == self, heap, "a thread's heap is not attached to it");
  AUDIT(load_relaxed(&heap->owner.thread) == self && !heap->owner.orphan, heap, "a thread's heap has another owner");
  AUDIT(load_relaxed(&heap->inside) == 1, heap, "a thread is on a slow path and does not show it");
}

/* --- turns ------------------------------------------------------------------------------- */

enum { TURN_UNITS = 32, TURN_REGION = 64 };

/* Turns since the thread last checked the whole of its heap; and the unit that its walk over slabs has reached. */
static __thread uint32_t turns, cursor;

/* Checks the owner's next slab within TURN_UNITS units, if there is one. */
static void audit_next_slab(slab_owner_t *owner) {
  for (unsigned i = 0; i < TURN_UNITS; i++) {
    if (++cursor >= load_acquire(&region.units)) cursor = 0;
    const unit_t *slab = unit_at(cursor);
    if (load_acquire(&slab->kind) != UNIT_SLAB || slab_owner(slab) != owner) continue;
    audit_slab(owner, slab, NULL);
    return;
  }
}

/* The cost of checking the whole heap, in slabs and bins. */
static uint32_t heap_weight(const heap_t *heap) {
  uint32_t weight = 0;
  for (unsigned c = 0; c < CLASS_COUNT; c++) weight += load_relaxed(&heap->owner.slab_count[c]) + (load_relaxed(&heap->has_bin[c]) ? 1 : 0);
  return weight;
}

/* Returns true if it checked the whole heap. */
static bool turn_mine(heap_t *heap, bool alone) {
  audit_mine(heap);
  if (!lock_try(&heap->owner.lock)) return false;
  bool whole = ++turns >= heap_weight(heap);
  if (whole) {
    audit_heap(heap, true, alone);
    turns = 0;
  } else {
    unsigned c = turns % CLASS_COUNT;
    audit_next_slab(&heap->owner);
    if (load_relaxed(&heap->has_bin[c])) audit_bin(heap, c);
  }
  lock_release(&heap->owner.lock);
  return whole;
}

/* A heap that is not the calling thread's. Its bins are checked only while alone: the thread that has just left an orphan may be giving its
 * bins back. */
static void audit_other(heap_t *heap, const heap_t *mine, bool alone) {
  if (heap == mine || !lock_try(&heap->owner.lock)) return;
  audit_heap(heap, alone && load_relaxed(&heap->owner.thread) == 0, alone);
  owner_unlock(&heap->owner);
}

/* One heap per call, in order; after the last one, the lists. */
static void turn_others(const heap_t *mine, bool alone) {
  static heap_t *_Atomic at;
  heap_t *heap = load_acquire(&at);
  if (heap != NULL) audit_other(heap, mine, alone);
  else heaps_audit();
  store_release(&at, heap != NULL ? load_relaxed(&heap->next) : heap_first());
}

static void turn_units(uint32_t superslab, bool alone) {
  audit_superslab(superslab, alone, audit_in_span);
  uint32_t first = superslab * HAK_UNITS_PER_SUPERSLAB, end = first + HAK_UNITS_PER_SUPERSLAB, most = load_acquire(&region.units);
  for (uint32_t unit = first; alone && unit < end && unit < most; unit++) audit_unit_alone(unit);
}

static void audit_rest_alone(void) {
  audit_counts_alone();
  slots_audit_alone();
  if (HAK_SECURE) large_secure_audit_alone();
  for (const heap_t *heap = heap_first(); heap != NULL; heap = load_relaxed(&heap->next)) large_cache_audit_alone(&heap->owner.large_cache);
}

void audit_slow_path(heap_t *mine) {
  static _Atomic uint32_t turn;
  if (load_acquire(&region.units) == 0 || os_forked()) return; /* nothing is mapped yet, or another thread is about to map it */
  lock_audit_none();
  bool alone = always_alone();
  uint32_t now = atomic_fetch_add_explicit(&turn, 1, memory_order_relaxed), superslabs = region_superslabs();
  if (superslabs != 0) turn_units(now % superslabs, alone);
  bool whole = mine != NULL && turn_mine(mine, alone);
  if (whole || now % TURN_REGION == 0) turn_others(mine, alone);
  if (now % TURN_REGION != 0) return;
  region_audit();
  if (alone) audit_rest_alone();
}

void audit_all(heap_t *mine) {
  bool alone = always_alone();
  lock_audit_none();
  for (uint32_t s = region_superslabs(); s-- > 0;) turn_units(s, alone);
  for (heap_t *heap = heap_first(); heap != NULL; heap = load_relaxed(&heap->next)) audit_other(heap, mine, alone);
  turns = UINT32_MAX - 1;
  if (mine != NULL) (void)turn_mine(mine, alone);
  heaps_audit();
  region_audit();
  if (alone) audit_rest_alone();
}
