#include "front/shared.h"

#include "front/heaps.h"
#include "front/repair.h"
#include "kit/random.h"
#include "os/os.h"
#include "slab/batch.h"
#include "slab/remote.h"

/* The number of heaps with shared slabs; how often a thread tries them all; from how many attached heaps on they are used. */
#define SHARED_HEAPS 8
#define SHARED_ROUNDS 8
#define SHARED_FROM 16
/* The most blocks that a thread gets: while it has no heap, and of each class while its heap has no bin for that class. */
#define SHARED_BLOCKS_FIRST 128
#define SHARED_BLOCKS 32

static heap_t *_Atomic shared[SHARED_HEAPS];

static void set_orphan(heap_t *heap, bool orphan) {
  heap_lock(heap);
  heap->owner.orphan = orphan;
  heap_unlock(heap);
}

/* Makes a heap of shared slabs. Its lock gives it to a thread, for one block at a time; to frees it is an orphan. */
static heap_t *shared_make(heap_t *_Atomic *entry) {
  heap_t *none = NULL;
  heap_t *heap = heaps_take_empty((uintptr_t)&none); /* its address is the number of no thread, and of no other call */
  if (heap == NULL) return NULL;
  set_orphan(heap, false);
  heaps_give(heap, HEAP_SHARED); /* before others find it: a fork's child takes an attached heap for an orphan, which a thread may adopt */
  if (atomic_compare_exchange_strong(entry, &none, heap)) return heap;
  set_orphan(heap, true);
  heaps_end_unattached(heap, HEAP_ORPHAN);
  return none;
}

static void *shared_take_from(heap_t *heap, unsigned c) {
  void *block;
  if (!lock_try_if_free(&heap->owner.lock)) return NULL;
  if (!load_relaxed(&heap->has_bin[c])) heap_add_bin(heap, c);
  bin_t *bin = heap_bin(heap, c);
  bool taken = batch_take(&heap->owner, c, &bin->shared, &block, 1) == 1;
  if (taken) bin_count_taken(bin);
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
