#include "front/heap.h"

#include <string.h>

#include "base/check.h"
#include "base/thread.h"
#include "front/keeper.h"
#include "front/secure.h"
#include "kit/meta.h"
#include "kit/options.h"
#include "kit/random.h"
#include "os/os.h"
#include "slab/remote.h"
#include "space/purge.h"
#include "space/span.h"

#define NONE_TOP ((intptr_t)(offsetof(heap_t, none_entry) / sizeof(void *) + 1))
heap_t heap_none = {.none = {.top = NONE_TOP, .capacity = -NONE_TOP}};

#define TICK_MS 1000
#define TICK_EVERY 64 /* slow paths: reading the clock costs as much as a short one */

static heap_t *_Atomic heaps;

/* --- layout ------------------------------------------------------------------------------ */

/* Words that the bins take behind the heap: for each a NULL, its entries, itself. */
static size_t bins_place(heap_t *heap) {
  const size_t line = HAK_CACHE_LINE / 8;
  size_t at = sizeof(heap_t) / 8;
  for (unsigned c = 0; c < CLASS_COUNT; c++) {
    at = bits_round_up(at + 1 + (size_t)bin_reserve(c), line);
    if (heap != NULL) heap->bin_at_class[c] = (uint16_t)at;
    HAK_ASSERT(at <= UINT16_MAX); /* bin_at reaches every bin */
    at += sizeof(bin_t) / 8;
  }
  return at;
}

size_t heap_bytes(void) { return bins_place(NULL) * 8 + (HAK_SECURE ? secure_heap_bytes() : 0); }

/* What malloc finds for the sizes of the class: its bin, if it has one. */
static void table_set(heap_t *heap, unsigned c) {
  uint16_t at = heap->has_bin[c] ? heap->bin_at_class[c] : 0;
  size_t above = c == 0 ? 0 : class_info[c - 1].size;
  if (c == CLASS_NOTHING) heap->bin_at[0] = at;
  for (size_t i = above / HAK_GRANULE + 1; i < HEAP_TABLE_SMALL && i * HAK_GRANULE <= class_info[c].size; i++) heap->bin_at[i] = at;
  for (size_t i = above / HEAP_TABLE_STEP + 1; i < HEAP_TABLE_MID && i * HEAP_TABLE_STEP <= class_info[c].size; i++) {
    heap->bin_at[HEAP_TABLE_SMALL + i] = at;
  }
}

/* The class's first use: malloc finds its bin from now on. */
static void heap_add_bin(heap_t *heap, unsigned c) {
  bin_init(heap_bin(heap, c), c, atomic_seen(&heap->owner.thread));
  heap->has_bin[c] = true;
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
  span_enter(unit, units, SLAB_META, CLASS_NONE);
  memory = region_address(unit);
  return zero ? memory : memset(memory, 0, bytes);
}

static heap_t *heap_create(void) {
  heap_t *heap = heap_memory(heap_bytes());
  if (heap == NULL) return NULL;
  heap->none = heap_none.none;
  size_t words = bins_place(heap);
  owner_init(&heap->owner);
  heap->random = os_random_seed() ^ (uintptr_t)heap;
  heap->until_guarded = heap_guard_interval(heap);
  if (HAK_SECURE) secure_heap_init(heap, (uint64_t *)(void *)heap + words);
  return heap;
}

/* The next class from c on that has a bin, or CLASS_COUNT. */
static unsigned next_bin(const heap_t *heap, unsigned c) {
  while (c < CLASS_COUNT && !heap->has_bin[c]) c++;
  return c;
}

/* Waits only where the thread is inside nothing else, so that a child's repair may run there. */
static void heap_lock(heap_t *heap) {
  for (unsigned tries = 0; HAK_UNLIKELY(!lock_try(&heap->owner.lock)); tries++) {
    if (os_forked()) heap_after_fork(heap);
    else if (tries < 64) os_yield();
    else os_sleep_us(100);
  }
}

/* --- attach and detach ------------------------------------------------------------------- */

heap_t *heap_first(void) { return atomic_take(&heaps); }

static bool heap_adopt(heap_t *heap) {
  uint32_t orphan = HEAP_ORPHAN;
  return atomic_compare_exchange_strong_explicit(&heap->state, &orphan, (uint32_t)HEAP_ATTACHED, memory_order_acquire,
                                                 memory_order_relaxed);
}

/* Both are walks: there are as many heaps as there ever were threads at once. */
static heap_t *heap_find_own(void) {
  for (heap_t *heap = heap_first(); heap != NULL; heap = atomic_seen(&heap->next)) {
    if (atomic_seen(&heap->owner.thread) == thread_self()) return heap;
  }
  return NULL;
}

static heap_t *heap_find_orphan(void) {
  for (heap_t *heap = heap_first(); heap != NULL; heap = atomic_seen(&heap->next)) {
    if (atomic_seen(&heap->state) == HEAP_ORPHAN && heap_adopt(heap)) return heap;
  }
  return NULL;
}

static void heap_enlist(heap_t *heap) {
  heap_t *first = atomic_seen(&heaps);
  do {
    atomic_set(&heap->next, first);
  } while (!atomic_compare_exchange_weak_explicit(&heaps, &first, heap, memory_order_release, memory_order_relaxed));
}

/* Makes `thread` the one whose frees of the heap's blocks take the fast path. */
static void heap_set_thread(heap_t *heap, uintptr_t thread) {
  atomic_store(&heap->owner.thread, thread); /* before the lock is released: see remote_help */
  for (unsigned c = next_bin(heap, 0); c < CLASS_COUNT; c = next_bin(heap, c + 1)) hot_poke(&heap_bin(heap, c)->shared.thread, thread);
}

heap_t *heap_attach(void) {
  /* A heap that names us as its thread was left by one that ended unseen, whose
   * place in memory we have: our frees go there already. */
  heap_t *heap = heap_find_own();
  if (heap == NULL) heap = heap_find_orphan();
  bool is_new = heap == NULL;
  if (is_new) heap = heap_create();
  if (heap == NULL) return NULL;
  heap_lock(heap);
  heap_set_thread(heap, thread_self());
  lock_release(&heap->owner.lock);
  if (is_new) heap_enlist(heap);
  return heap;
}

void heap_flush(heap_t *heap, bin_t *bin) {
  heap_lock(heap);
  bin_flush(bin, &heap->owner, &heap->budget);
  lock_release(&heap->owner.lock);
}

static void free_remotely(uint32_t unit, void *block) {
  slab_t *slab = remote_put(hot_peek(region_bin(region.live, unit)), unit, block);
  if (slab != NULL) remote_tell(slab);
}

/* A block goes back to its slab, past the bins; with the heap's lock. */
static void give_back(heap_t *heap, void *block) {
  uint32_t unit = (uint32_t)region_unit(block);
  if (atomic_seen(&slab_head(unit)->owner) == &heap->owner) slab_give(&heap->owner, &block, 1);
  else free_remotely(unit, block);
}

void heap_take_back(heap_t *heap, void *block) {
  uint32_t unit = (uint32_t)region_unit(block);
  slab_t *slab = slab_head(unit);
  if (heap == NULL || atomic_seen(&slab->owner) != &heap->owner) {
    free_remotely(unit, block);
    return;
  }
  bin_t *bin = heap_bin(heap, atomic_seen(&slab->size_class));
  if (bin_push(bin, block)) heap_flush(heap, bin);
}

static void quarantine_empty(heap_t *heap) {
  for (void *block = secure_next(heap); block != NULL; block = secure_next(heap)) give_back(heap, block);
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
  remote_collect(&heap->owner);
  for (unsigned c = next_bin(heap, 0); c < CLASS_COUNT; c = next_bin(heap, c + 1)) bin_tick(heap_bin(heap, c), &heap->owner, &heap->budget);
  lock_release(&heap->owner.lock);
}

void heap_trim(heap_t *heap) {
  heap_lock(heap);
  bins_empty(heap);
  remote_collect(&heap->owner);
  slab_release_empty(&heap->owner);
  lock_release(&heap->owner.lock);
}

void heap_detach(heap_t *heap) {
  heap_lock(heap);
  bins_empty(heap);
  heap_set_thread(heap, 0);
  remote_collect(&heap->owner);
  slab_release_empty(&heap->owner);
  owner_unlock(&heap->owner);
  atomic_publish(&heap->state, (uint32_t)HEAP_ORPHAN);
}

void heap_trim_others(void) {
  for (heap_t *heap = heap_first(); heap != NULL; heap = atomic_seen(&heap->next)) {
    if (!lock_try(&heap->owner.lock)) continue;
    remote_collect(&heap->owner);
    slab_release_empty(&heap->owner);
    owner_unlock(&heap->owner);
  }
}

/* --- misses ------------------------------------------------------------------------------ */

void *heap_refill(heap_t *heap, unsigned size_class) {
  if (!heap->has_bin[size_class]) heap_add_bin(heap, size_class);
  heap_lock(heap);
  void *block = bin_refill(heap_bin(heap, size_class), &heap->owner, &heap->budget);
  lock_release(&heap->owner.lock);
  return block;
}

void *heap_take_one(heap_t *heap, unsigned size_class) {
  void *block;
  if (!heap->has_bin[size_class]) heap_add_bin(heap, size_class);
  heap_lock(heap);
  bool taken = slab_take(&heap->owner, size_class, &heap_bin(heap, size_class)->shared, &block, 1) == 1;
  lock_release(&heap->owner.lock);
  return taken ? block : NULL;
}

/* --- fork -------------------------------------------------------------------------------- */

static uint32_t span_used(uint32_t unit) {
  slab_t *slab = slab_of(unit);
  uint8_t kind = atomic_seen(&slab->kind);
  return kind != SLAB_FREE && kind != SLAB_INSIDE ? atomic_seen(&slab->units) : 0;
}

/* Lists, locks and pending stacks of other threads' heaps may be half-changed;
 * kinds, owners and bits are not: they are what all is made anew from. */
static void heap_reset(heap_t *heap) {
  lock_abandon(&heap->owner.lock);
  owner_init(&heap->owner);
  atomic_set(&heap->owner.free_bytes, 0);
  atomic_set(&heap->owner.pending_classes, 0);
  heap_set_thread(heap, 0);
  for (unsigned c = 0; c < CLASS_COUNT; c++) {
    table_set(heap, c);
    atomic_set(&heap->owner.pending[c], 0);
    atomic_set(&heap->owner.slab_count[c], 0);
  }
}

/* The bin of a slab: the copy of the slab may be younger than that of its heap, and the class's first use lie between. */
static region_bin_t *slab_bin(const slab_t *slab) {
  heap_t *heap = (heap_t *)(void *)((char *)atomic_seen(&slab->owner) - offsetof(heap_t, owner));
  unsigned c = atomic_seen(&slab->size_class);
  if (!heap->has_bin[c]) heap_add_bin(heap, c);
  return &heap_bin(heap, c)->shared;
}

/* The blocks in the bins of a heap whose thread is gone go back to its slabs. */
static void heap_bury(heap_t *heap) {
  bins_empty(heap);
  slab_release_empty(&heap->owner);
  atomic_set(&heap->state, (uint32_t)HEAP_ORPHAN);
}

HAK_COLD void heap_after_fork(heap_t *mine) {
  if (!os_forked()) return;
  os_fork_seen();
  if (region.base == 0) return;
  region_after_fork();
  keeper_after_fork();
  for (heap_t *heap = heap_first(); heap != NULL; heap = atomic_seen(&heap->next)) heap_reset(heap);
  if (mine != NULL) heap_set_thread(mine, thread_self());
  span_recover(span_used);
  uint32_t units = atomic_seen(&region.units);
  for (uint32_t unit = 0; unit < units;) {
    uint32_t length = span_used(unit);
    slab_t *slab = slab_of(unit);
    if (length > 0 && atomic_seen(&slab->kind) == SLAB_BLOCKS) {
      slab_owner_t *owner = atomic_seen(&slab->owner);
      slab_relist(owner, slab, slab_bin(slab));
      /* The kernel copies page after page while other threads run: a block may be filled that its bin, copied before, has free. */
      slab->soiled = mine == NULL || owner != &mine->owner;
      remote_recover(owner, slab);
    }
    unit += length > 0 ? length : 1;
  }
  for (heap_t *heap = heap_first(); heap != NULL; heap = atomic_seen(&heap->next)) {
    if (heap != mine) heap_bury(heap);
  }
  if (HAK_SECURE) purge_clear(); /* for the same reason */
}

uint64_t heap_count(bool orphans_only) {
  uint64_t count = 0;
  for (heap_t *heap = heap_first(); heap != NULL; heap = atomic_seen(&heap->next)) {
    count += !orphans_only || atomic_seen(&heap->state) == HEAP_ORPHAN;
  }
  return count;
}
