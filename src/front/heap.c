#include "front/heap.h"

#include "base/thread.h"
#include "kit/meta.h"
#include "kit/options.h"
#include "os/os.h"
#include "slab/remote.h"
#include "space/span.h"

#define BIN_CAPACITY_MAX 256
#define BIN_CAPACITY_MIN 8
#define BIN_BATCH_FIRST 4

heap_t heap_none = {.none = {.top = offsetof(heap_t, none_entry) / sizeof(void *) + 1}};

static heap_t *_Atomic heaps;

/* --- layout ------------------------------------------------------------------------------ */

static intptr_t bin_capacity(unsigned c) {
  size_t n = (size_t)option_get(OPTION_bin_kb) * 1024 / class_info[c].size;
  if (n > BIN_CAPACITY_MAX) n = BIN_CAPACITY_MAX;
  if (n < BIN_CAPACITY_MIN) n = BIN_CAPACITY_MIN;
  return (intptr_t)n;
}

/* Words that the bins take behind the heap: for each a NULL, its entries, itself. */
static size_t bins_place(heap_t *heap) {
  size_t at = (sizeof(heap_t) + 7) / 8;
  for (unsigned c = 0; c < CLASS_COUNT; c++) {
    at += 1 + (size_t)bin_capacity(c);
    if (heap != NULL) {
      heap->bin_at_class[c] = (uint16_t)at;
      bin_t *bin = heap_bin(heap, c);
      bin->capacity = bin_capacity(c);
      hot_store(&bin->top, -bin->capacity);
      bin->size_class = c;
      bin->block_size = class_info[c].size;
      bin->batch = BIN_BATCH_FIRST;
    }
    at += (sizeof(bin_t) + 7) / 8;
  }
  return at;
}
_Static_assert((BIN_CAPACITY_MAX + 1 + sizeof(bin_t) / 8) * CLASS_COUNT + sizeof(heap_t) / 8 < UINT16_MAX, "bin_at reaches every bin");

size_t heap_bytes(void) { return bins_place(NULL) * 8; }

static void table_fill(heap_t *heap) {
  heap->bin_at[0] = heap->bin_at_class[0];
  for (size_t i = 1; i < HEAP_TABLE_SMALL; i++) heap->bin_at[i] = heap->bin_at_class[class_of(i * HAK_GRANULE)];
  for (size_t i = 1; i < HEAP_TABLE_MID; i++) {
    heap->bin_at[HEAP_TABLE_SMALL + i] = heap->bin_at_class[class_of(i * HEAP_TABLE_STEP)];
  }
}

static heap_t *heap_create(void) {
  heap_t *heap = meta_alloc(heap_bytes());
  if (heap == NULL) return NULL;
  heap->none = heap_none.none;
  (void)bins_place(heap);
  table_fill(heap);
  owner_init(&heap->owner);
  return heap;
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

heap_t *heap_attach(void) {
  /* A heap that names us as its thread was left by one that ended unseen, whose
   * place in memory we have: our frees go there already. */
  heap_t *heap = heap_find_own();
  if (heap == NULL) heap = heap_find_orphan();
  bool is_new = heap == NULL;
  if (is_new) heap = heap_create();
  if (heap == NULL) return NULL;
  heap_lock(heap);
  owner_set_thread(&heap->owner, thread_self());
  lock_release(&heap->owner.lock);
  if (is_new) heap_enlist(heap);
  return heap;
}

/* The oldest entries leave first, so that the blocks used last stay.  The bin
 * is empty while they are on their way: a fork in between leaks, it does not
 * leave a block in two places. */
static void bin_flush(heap_t *heap, bin_t *bin, intptr_t count) {
  void **entries = bin_entries(bin);
  intptr_t bottom = -bin->capacity;
  intptr_t top = hot_load(&bin->top);
  hot_store(&bin->top, bottom);
  atomic_signal_fence(memory_order_seq_cst);
  slab_give(&heap->owner, &entries[bottom], (uint32_t)count);
  for (intptr_t i = bottom + count; i < top; i++) hot_store(&entries[i - count], hot_load(&entries[i]));
  atomic_signal_fence(memory_order_seq_cst);
  hot_store(&bin->top, top - count);
  atomic_count_own(&bin->flushes, 1);
  atomic_count_own(&bin->flush_blocks, (uint64_t)count);
}

void heap_flush(heap_t *heap, bin_t *bin) {
  intptr_t count = (bin->capacity + 1) / 2;
  heap_lock(heap);
  bin_flush(heap, bin, count);
  lock_release(&heap->owner.lock);
}

static void bins_empty(heap_t *heap) {
  for (unsigned c = 0; c < CLASS_COUNT; c++) {
    bin_t *bin = heap_bin(heap, c);
    intptr_t count = hot_load(&bin->top) + bin->capacity;
    if (count > 0) bin_flush(heap, bin, count);
    bin->batch = BIN_BATCH_FIRST;
  }
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
  owner_set_thread(&heap->owner, 0);
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

void *heap_refill(heap_t *heap, bin_t *bin) {
  void **entries = bin_entries(bin) - bin->capacity;
  uint32_t count = bin->batch;
  heap_lock(heap);
  uint32_t taken = slab_take(&heap->owner, bin->size_class, bin, entries, count);
  lock_release(&heap->owner.lock);
  if (taken == 0) return NULL;
  /* The lowest address on top: the program then walks upward. */
  for (uint32_t low = 0, high = taken - 1; low < high; low++, high--) {
    void *block = hot_load(&entries[low]);
    hot_store(&entries[low], hot_load(&entries[high]));
    hot_store(&entries[high], block);
  }
  atomic_signal_fence(memory_order_seq_cst);
  hot_store(&bin->top, (intptr_t)taken - 1 - bin->capacity);
  atomic_count_own(&bin->refills, 1);
  atomic_count_own(&bin->refill_blocks, taken);
  uint32_t most = (uint32_t)bin->capacity / 2;
  bin->batch = count * 2 < most ? count * 2 : most;
  return hot_load(&entries[taken - 1]);
}

/* --- fork -------------------------------------------------------------------------------- */

static uint32_t span_used(uint32_t unit) {
  slab_t *slab = slab_of(unit);
  uint8_t kind = atomic_seen(&slab->kind);
  return kind == SLAB_BLOCKS || kind == SLAB_LARGE ? atomic_seen(&slab->units) : 0;
}

/* Lists, locks and pending stacks of other threads' heaps may be half-changed;
 * kinds, owners and bits are not: they are what all is made anew from. */
static void heap_reset(heap_t *heap) {
  lock_abandon(&heap->owner.lock);
  owner_init(&heap->owner);
  atomic_set(&heap->owner.pending, 0);
  atomic_set(&heap->owner.thread, 0);
  for (unsigned c = 0; c < CLASS_COUNT; c++) atomic_set(&heap->owner.slab_count[c], 0);
}

/* The blocks in the bins of a heap whose thread is gone go back to its slabs. */
static void heap_bury(heap_t *heap) {
  bins_empty(heap);
  slab_release_empty(&heap->owner);
  atomic_set(&heap->state, (uint32_t)HEAP_ORPHAN);
}

void heap_after_fork(heap_t *mine) {
  if (!os_forked()) return;
  os_fork_seen();
  if (region.base == 0) return;
  region_after_fork();
  for (heap_t *heap = heap_first(); heap != NULL; heap = atomic_seen(&heap->next)) heap_reset(heap);
  if (mine != NULL) atomic_set(&mine->owner.thread, thread_self());
  span_recover(span_used);
  uint32_t units = atomic_seen(&region.units);
  for (uint32_t unit = 0; unit < units;) {
    uint32_t length = span_used(unit);
    slab_t *slab = slab_of(unit);
    if (length > 0 && atomic_seen(&slab->kind) == SLAB_BLOCKS) {
      slab_owner_t *owner = atomic_seen(&slab->owner);
      slab_relist(owner, slab);
      remote_recover(owner, slab);
    }
    unit += length > 0 ? length : 1;
  }
  for (heap_t *heap = heap_first(); heap != NULL; heap = atomic_seen(&heap->next)) {
    if (heap != mine) heap_bury(heap);
  }
}

uint64_t heap_count(bool orphans_only) {
  uint64_t count = 0;
  for (heap_t *heap = heap_first(); heap != NULL; heap = atomic_seen(&heap->next)) {
    count += !orphans_only || atomic_seen(&heap->state) == HEAP_ORPHAN;
  }
  return count;
}
