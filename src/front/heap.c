#include "front/heap.h"

#include <string.h>

#include "base/check.h"
#include "base/thread.h"
#include "front/audit.h"
#include "front/heaps.h"
#include "front/keeper.h"
#include "front/secure.h"
#include "front/thread.h"
#include "kit/meta.h"
#include "kit/options.h"
#include "kit/random.h"
#include "os/os.h"
#include "slab/hole.h"
#include "slab/remote.h"
#include "space/purge.h"
#include "space/span.h"

#define NONE_TOP ((intptr_t)(offsetof(heap_t, none_entry) / sizeof(void *) + 1))
heap_t heap_none = {.none = {.top = NONE_TOP, .capacity = -NONE_TOP}};

#define TICK_MS 1000
#define TICK_EVERY 64 /* slow paths: reading the clock costs as much as a short one */

/* So many orphans' heaps stay as they are, for the next threads; more only if they have slabs. */
#define ORPHANS_KEPT 16

_Atomic uint32_t heapless_inside;
bins_retired_t bins_retired[CLASS_COUNT];

/* --- layout ------------------------------------------------------------------------------ */

/* A chunk of heaps is one mapping: the heaps side by side, since a thread may use little more, then the bins of each on
 * pages of their own, then what the secure library needs for each.  All bins are within reach of their heap's 16-bit
 * offsets of words. */
#define CHUNK_HEAPS 4

/* Puts the class's bins one behind the other from word `at` on: for each a NULL, its entries, itself. Returns the words. */
static size_t bins_place(heap_t *heap, size_t at) {
  const size_t line = HAK_CACHE_LINE / 8, start = at;
  for (unsigned c = 0; c < CLASS_COUNT; c++) {
    at = bits_round_up(at + 1 + (size_t)bin_reserve(c), line);
    HAK_ASSERT(at <= UINT16_MAX);
    if (heap != NULL) heap->bin_at_class[c] = (uint16_t)at;
    at += sizeof(bin_t) / 8;
  }
  return at - start;
}

size_t heap_bins_bytes(void) { return bits_round_up(bins_place(NULL, 0) * 8, os_page_size()); }
static size_t heads_bytes(uint32_t count) { return bits_round_up(count * sizeof(heap_t), os_page_size()); }

/* What malloc finds for the sizes of the class: its bin, if it has one. */
static void table_set(heap_t *heap, unsigned c) {
  uint16_t at = load_relaxed(&heap->has_bin[c]) ? heap->bin_at_class[c] : 0;
  size_t above = c == 0 ? 0 : class_info[c - 1].size;
  if (c == CLASS_ZERO) heap->bin_at[0] = at;
  for (size_t i = above / HAK_GRANULE + 1; i < HEAP_TABLE_SMALL && i * HAK_GRANULE <= class_info[c].size; i++) heap->bin_at[i] = at;
  for (size_t i = above / HEAP_TABLE_STEP + 1; i < HEAP_TABLE_MID && i * HEAP_TABLE_STEP <= class_info[c].size; i++) {
    heap->bin_at[HEAP_TABLE_SMALL + i] = at;
  }
}

/* The class's first use: malloc finds its bin from now on. */
static void heap_add_bin(heap_t *heap, unsigned c) {
  bin_init(heap_bin(heap, c), c, load_relaxed(&heap->owner.thread));
  store_relaxed(&heap->has_bin[c], true);
  table_set(heap, c);
}

uint32_t heap_guard_interval(heap_t *heap) {
  if (option_get(OPTION_guard) == 0) return UINT32_MAX;
  return random_below(&heap->random, (uint32_t)option_get(OPTION_guard_every) * 2 - 1);
}

/* The kernel's, or where addresses have run out, free units. */
static void *heap_memory(size_t bytes) {
  void *memory = meta_alloc(bytes);
  if (memory != NULL) return memory;
  bool zero;
  uint32_t units = (uint32_t)((bytes + HAK_UNIT - 1) >> HAK_UNIT_SHIFT);
  uint32_t unit = span_alloc(units, 1, SPAN_SLAB, &zero);
  if (unit == SPAN_NONE) return NULL;
  span_enter(unit, units, UNIT_META, CLASS_NONE);
  memory = region_address(unit);
  return zero ? memory : memset(memory, 0, bytes);
}

static void heap_init(heap_t *heap, char *bins, void *quarantine) {
  heap->none = heap_none.none;
  heap->bins = bins;
  (void)bins_place(heap, (size_t)(bins - (char *)heap) / 8);
  owner_init(&heap->owner);
  heap->random = os_random_seed() ^ (uintptr_t)heap;
  heap->until_guarded = heap_guard_interval(heap);
  if (HAK_SECURE) secure_heap_init(heap, quarantine);
}

/* Makes `count` heaps, one of them for the thread. */
static heap_t *chunk_make(uint32_t count, uintptr_t thread) {
  size_t heads = heads_bytes(count), bins = heap_bins_bytes(), extra = HAK_SECURE ? secure_heap_bytes() : 0;
  char *memory = heap_memory(heads + count * (bins + extra));
  if (memory == NULL) return NULL;
  heap_t *heap = NULL;
  for (uint32_t i = count; i-- > 0;) {
    heap = (heap_t *)(void *)memory + i;
    heap_init(heap, memory + heads + i * bins, memory + heads + count * bins + i * extra);
    heaps_add(heap, i == 0 ? HEAP_ATTACHED : HEAP_BARE, i == 0 ? thread : 0);
  }
  return heap;
}

/* The first alone: most processes have one thread. */
static heap_t *heap_create(uintptr_t thread) {
  heap_t *heap = NULL;
  bool reached = (heads_bytes(CHUNK_HEAPS) + CHUNK_HEAPS * heap_bins_bytes()) / 8 <= UINT16_MAX;
  if (heap_first() != NULL && reached) heap = chunk_make(CHUNK_HEAPS, thread);
  return heap != NULL ? heap : chunk_make(1, thread);
}

/* The next class from c on that has a bin, or CLASS_COUNT. */
static unsigned next_bin(const heap_t *heap, unsigned c) {
  while (c < CLASS_COUNT && !load_relaxed(&heap->has_bin[c])) c++;
  return c;
}

/* Waits only where the thread is inside nothing else, so that a child's repair may run there. */
static void heap_lock(heap_t *heap) {
  lock_t *lock = &heap->owner.lock;
  lock_audit_wait(lock);
  for (unsigned tries = 0; HAK_UNLIKELY(!lock_try(lock)); tries++) {
    if (os_forked()) heap_after_fork(heap);
    lock_pause(lock, tries);
  }
}

static void heap_unlock(heap_t *heap) { lock_release(&heap->owner.lock); }

/* --- attach and detach ------------------------------------------------------------------- */

/* Makes `thread` the one whose frees of the heap's blocks take the fast path. */
static void heap_set_thread(heap_t *heap, uintptr_t thread) {
  atomic_store(&heap->owner.thread, thread); /* before the lock is released: see remote_help */
  for (unsigned c = next_bin(heap, 0); c < CLASS_COUNT; c = next_bin(heap, c + 1)) racy_store(&heap_bin(heap, c)->shared.thread, thread);
}

/* A thread that ended unseen may have left a heap behind whose thread we are by our place in memory: our frees go
 * there already. */
static heap_t *heap_for(uintptr_t thread) {
  heap_t *heap = heaps_take(thread);
  return heap != NULL ? heap : heap_create(thread);
}

heap_t *heap_attach(void) {
  heap_t *heap = heap_for(thread_self());
  if (heap == NULL) return NULL;
  heap_lock(heap);
  heap->owner.orphan = false;
  heap_set_thread(heap, thread_self());
  heap_unlock(heap);
  memset(heap->shared_blocks, 0, sizeof heap->shared_blocks);
  return heap;
}

void heap_flush(heap_t *heap, bin_t *bin) {
  heap_lock(heap);
  bin_flush(bin, &heap->owner, &heap->budget);
  heap_unlock(heap);
}

static void free_remotely(uint32_t unit, void *block) {
  unit_t *slab = remote_mark(racy_load(region_bin(region.live, unit)), unit, block);
  if (slab != NULL) remote_announce(slab);
}

/* A block goes back to its slab, past the bins; with the heap's lock. */
static void give_back(heap_t *heap, void *block) {
  uint32_t unit = (uint32_t)region_unit(block);
  if (load_relaxed(&unit_head(unit)->owner) == &heap->owner) (void)slab_give(&heap->owner, &block, 1);
  else free_remotely(unit, block);
}

void heap_take_back(heap_t *heap, void *block) {
  uint32_t unit = (uint32_t)region_unit(block);
  unit_t *slab = unit_head(unit);
  if (heap == NULL || load_relaxed(&slab->owner) != &heap->owner) {
    free_remotely(unit, block);
    return;
  }
  bin_t *bin = heap_bin(heap, load_relaxed(&slab->size_class));
  if (bin_push(bin, block)) heap_flush(heap, bin);
}

static void quarantine_empty(heap_t *heap) {
  for (void *block = quarantine_take(heap); block != NULL; block = quarantine_take(heap)) give_back(heap, block);
}

static void bins_empty(heap_t *heap) {
  if (HAK_SECURE) quarantine_empty(heap);
  for (unsigned c = next_bin(heap, 0); c < CLASS_COUNT; c = next_bin(heap, c + 1)) bin_empty(heap_bin(heap, c), &heap->owner);
}

void heap_tick(heap_t *heap) {
  if (heap->slow_paths++ % TICK_EVERY != 0) return;
  uint64_t now = os_now_ms();
  if (now - heap->last_tick_ms < TICK_MS) return;
  heap->last_tick_ms = now;
  heap_lock(heap);
  (void)remote_collect(&heap->owner);
  for (unsigned c = next_bin(heap, 0); c < CLASS_COUNT; c = next_bin(heap, c + 1)) {
    bin_tick(heap_bin(heap, c), &heap->owner, &heap->budget);
  }
  heap_unlock(heap);
}

/* Everything that the heap keeps goes back; with its lock. */
static void heap_empty(heap_t *heap) {
  bins_empty(heap);
  remote_collect_all(&heap->owner);
  slab_release_empty(&heap->owner);
}

bool heap_may_trim(heap_t *heap) {
  if (load_relaxed(&heap->owner.pending_classes) != 0 || load_relaxed(&heap->owner.free_bytes) > heap->trimmed_free_bytes) return true;
  for (unsigned c = next_bin(heap, 0); c < CLASS_COUNT; c = next_bin(heap, c + 1)) {
    if (bin_count(heap_bin(heap, c)) > 0 || (HAK_SECURE && secure_waiting(heap, c) > 0)) return true;
  }
  return false;
}

void heap_trim(heap_t *heap) {
  heap_lock(heap);
  heap_empty(heap);
  heap->trimmed_free_bytes = load_relaxed(&heap->owner.free_bytes);
  heap_unlock(heap);
}

/* Gives the memory of the bins of a heap without slabs back; what they have counted stays. */
static void bins_retire(heap_t *heap) {
  for (unsigned c = next_bin(heap, 0); c < CLASS_COUNT; c = next_bin(heap, c + 1)) {
    const bin_t *bin = heap_bin(heap, c);
    add_relaxed(&bins_retired[c].refills, load_relaxed(&bin->refills));
    add_relaxed(&bins_retired[c].flushes, load_relaxed(&bin->flushes));
    add_relaxed(&bins_retired[c].refill_blocks, load_relaxed(&bin->refill_blocks));
    add_relaxed(&bins_retired[c].flush_blocks, load_relaxed(&bin->flush_blocks));
    store_relaxed(&heap->has_bin[c], false);
    table_set(heap, c);
  }
  heap->budget.extra_bytes = 0;
  atomic_signal_fence(memory_order_seq_cst); /* a fork's child takes no zero for a bin */
  (void)os_purge(heap->bins, heap_bins_bytes());
}

void heap_detach(heap_t *heap) {
  heap_lock(heap);
  bins_empty(heap);
  heap->owner.orphan = true;
  heap_set_thread(heap, 0);
  (void)remote_collect(&heap->owner);
  slab_release_empty(&heap->owner);
  bool has_slabs = owner_has_slabs(&heap->owner);
  owner_unlock(&heap->owner);
  if (heaps_keep(heap, has_slabs ? UINT32_MAX : ORPHANS_KEPT)) return;
  bins_retire(heap);
  heaps_give(heap, HEAP_BARE);
}

void heap_trim_others(void) {
  for (heap_t *heap = heap_first(); heap != NULL; heap = load_relaxed(&heap->next)) {
    if (!lock_try(&heap->owner.lock)) continue;
    if (load_relaxed(&heap->owner.thread) == 0) bins_empty(heap);
    remote_collect_all(&heap->owner);
    slab_release_empty(&heap->owner);
    owner_unlock(&heap->owner);
  }
}

bool heap_collect_all(void) {
  bool any = false;
  for (heap_t *heap = heap_first(); heap != NULL; heap = load_relaxed(&heap->next)) {
    if (load_relaxed(&heap->owner.pending_classes) == 0 || !lock_try(&heap->owner.lock)) continue;
    any = true;
    remote_collect_all(&heap->owner);
    owner_unlock(&heap->owner);
  }
  return any;
}

/* --- shared slabs ------------------------------------------------------------------------ */

/* So many heaps of shared slabs, from so many heaps of threads at once on; how often a thread tries them all. */
#define SHARED_HEAPS 8
#define SHARED_ROUNDS 8
#define SHARED_FROM 16
/* So many blocks to a thread: as long as it has no heap, and of each class as long as its heap has no bin for that. */
#define SHARED_BLOCKS_FIRST 128
#define SHARED_BLOCKS 32

static heap_t *_Atomic shared[SHARED_HEAPS];

/* Its lock is what gives it to a thread, for one block at a time; to the frees it is an orphan. */
static heap_t *shared_make(heap_t *_Atomic *entry) {
  heap_t *none = NULL;
  heap_t *heap = heap_for((uintptr_t)&none); /* the number of no thread, and of no other call */
  if (heap == NULL) return NULL;
  bool first = atomic_compare_exchange_strong(entry, &none, heap);
  heap_lock(heap);
  heap->owner.orphan = !first;
  heap_unlock(heap);
  heaps_give(heap, first ? HEAP_SHARED : HEAP_ORPHAN);
  return first ? heap : none;
}

static void *shared_take_from(heap_t *heap, unsigned c) {
  void *block;
  if (!lock_try(&heap->owner.lock)) return NULL;
  if (!load_relaxed(&heap->has_bin[c])) heap_add_bin(heap, c);
  bin_t *bin = heap_bin(heap, c);
  bool taken = slab_take(&heap->owner, c, &bin->shared, &block, 1) == 1;
  if (taken) {
    owner_add(&bin->refills, 1);
    owner_add(&bin->refill_blocks, 1);
  }
  owner_unlock(&heap->owner);
  return taken ? block : NULL;
}

void *heap_take_shared(unsigned size_class, uint8_t *taken, bool has_heap) {
  if (HAK_SECURE || heaps_attached() < SHARED_FROM) return NULL;
  if (*taken >= (has_heap ? SHARED_BLOCKS : SHARED_BLOCKS_FIRST)) return NULL;
  uint32_t start = (uint32_t)(random_mix((uintptr_t)taken) >> 32);
  for (uint32_t i = 0; i < SHARED_ROUNDS * SHARED_HEAPS; i++) {
    if (i % SHARED_HEAPS == SHARED_HEAPS - 1) os_yield(); /* the thread that holds one may have lost its processor */
    heap_t *_Atomic *entry = &shared[(start + i) % SHARED_HEAPS];
    heap_t *from = load_acquire(entry);
    if (from == NULL) from = shared_make(entry);
    void *block = from == NULL ? NULL : shared_take_from(from, size_class);
    if (block == NULL) continue;
    ++*taken;
    return block;
  }
  return NULL;
}

/* --- misses ------------------------------------------------------------------------------ */

void *heap_refill(heap_t *heap, unsigned size_class) {
  if (!load_relaxed(&heap->has_bin[size_class])) {
    void *block = heap_take_shared(size_class, &heap->shared_blocks[size_class], true);
    if (block != NULL) return block;
    heap_add_bin(heap, size_class);
  }
  heap_lock(heap);
  void *block = bin_refill(heap_bin(heap, size_class), &heap->owner, &heap->budget);
  heap_unlock(heap);
  return block;
}

void *heap_take_one(heap_t *heap, unsigned size_class) {
  void *block;
  if (!load_relaxed(&heap->has_bin[size_class])) heap_add_bin(heap, size_class);
  heap_lock(heap);
  bool taken = slab_take(&heap->owner, size_class, &heap_bin(heap, size_class)->shared, &block, 1) == 1;
  heap_unlock(heap);
  return taken ? block : NULL;
}

/* --- fork -------------------------------------------------------------------------------- */

/* What the child finds of another thread is what that had written up to one instruction of its own: docs/design.md
 * tells why.  So where no other thread was on a slow path, all is as it must be but for the heaps' owners.
 *
 * Where one was, units may be claimed and in no span, and lists, counts and pending stacks may be half-changed: those
 * of owners whose lock was held.  Kinds, owners and bits of slabs never are: what was begun is made anew from them. */

static uint32_t span_used(uint32_t unit) {
  unit_t *slab = unit_at(unit);
  uint8_t kind = load_relaxed(&slab->kind);
  return kind != UNIT_FREE && kind != UNIT_INSIDE ? load_relaxed(&slab->units) : 0;
}

static heap_t *_Atomic heap_of_forker;

bool heap_note_fork(heap_t *mine) {
  if (mine != NULL && load_relaxed(&mine->forking) == 0) return false;
  store_relaxed(&heap_of_forker, mine);
  return true;
}

/* Takes the heaps from the threads that are gone; true if one of these was on a slow path. */
static bool heaps_orphan(const heap_t *mine, bool inside) {
  bool begun = atomic_exchange(&heapless_inside, 0) != 0;
  const heap_t *by = load_relaxed(&heap_of_forker);
  heaps_after_fork(mine, by, inside);
  for (heap_t *heap = heap_first(); heap != NULL; heap = load_relaxed(&heap->next)) {
    begun |= heap->owner.held.units != 0;
    bool survives = heap_survives(heap, mine, by);
    store_relaxed(&heap->forking, 0);
    if (survives) continue;
    begun |= load_relaxed(&heap->inside) != 0;
    store_relaxed(&heap->inside, 0);
    if (load_relaxed(&heap->owner.thread) == 0) continue;
    heap->owner.orphan = true;
    heap_set_thread(heap, 0);
  }
  return begun;
}

/* The table and the lists of the owners whose lock a thread that is gone has held. */
static void owners_reset(bool inside) {
  for (heap_t *heap = heap_first(); heap != NULL; heap = load_relaxed(&heap->next)) {
    slab_owner_t *owner = &heap->owner;
    bool half = (load_relaxed(&owner->lock.holder) != 0 && !(inside && lock_is_mine(&owner->lock))) || owner->held.units != 0;
    lock_abandon(&owner->lock, inside);
    hole_recover(owner);
    owner_forget(owner, half);
    for (unsigned c = 0; half && c < CLASS_COUNT; c++) table_set(heap, c);
  }
}

/* The class's first use may lie between what the slab's record and the heap's table tell. */
static region_bin_t *slab_bin(const unit_t *slab) {
  heap_t *heap = (heap_t *)(void *)((char *)load_relaxed(&slab->owner) - offsetof(heap_t, owner));
  unsigned c = load_relaxed(&slab->size_class);
  if (!load_relaxed(&heap->has_bin[c])) heap_add_bin(heap, c);
  return &heap_bin(heap, c)->shared;
}

static void slabs_recover(void) {
  uint32_t units = load_relaxed(&region.units);
  for (uint32_t unit = 0; unit < units;) {
    uint32_t length = span_used(unit);
    unit_t *slab = unit_at(unit);
    if (length > 0 && load_relaxed(&slab->kind) == UNIT_SLAB) {
      slab_owner_t *owner = load_relaxed(&slab->owner);
      if (owner->relist) slab_relist(owner, slab, slab_bin(slab));
      remote_recover(owner, slab);
    }
    unit += length > 0 ? length : 1;
  }
}

static void heap_repair(heap_t *mine) {
  bool inside = thread_inside != 0;
  region_after_fork(inside);
  if (heap_first() != NULL && load_relaxed(&heap_first()->next) != NULL) slab_epoch++;
  bool begun = keeper_after_fork();
  if (!heaps_orphan(mine, inside) && !begun) return;
  owners_reset(inside);
  span_recover(span_used);
  slabs_recover();
}

HAK_COLD void heap_after_fork(heap_t *mine) {
  if (!os_fork_claim(thread_self())) return;
  if (HAK_AUDIT) audit_note_fork();
  if (region.base != 0) heap_repair(mine);
  store_relaxed(&heap_of_forker, NULL);
  os_fork_seen(thread_self());
}
