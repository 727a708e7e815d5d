#include "front/quarantine.h"

#include "kit/fault.h"
#include "kit/random.h"
#include "kit/secret.h"

#define QUARANTINE_BYTES ((size_t)32 << 10) /* of each class */
#define QUARANTINE_LEAST 4

/* A bit of an entry: another thread wants the block. Blocks lie at multiples of 16. */
#define WANTED ((uintptr_t)1)

static bool is_marked(const void *entry) { return ((uintptr_t)entry & WANTED) != 0; }
static void *unmarked(void *entry) { return (void *)((uintptr_t)entry & ~WANTED); }

/* Of the threads that try, the one that succeeds has the block. */
static bool entry_change(void **place, void *from, void *to) {
  return __atomic_compare_exchange_n(place, &from, to, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

size_t quarantine_bytes(void) { return sizeof(struct quarantine); }

static uint8_t ring_length(unsigned c) {
  size_t n = QUARANTINE_BYTES / class_info[c].size;
  return (uint8_t)(n < QUARANTINE_LEAST ? QUARANTINE_LEAST : n > QUARANTINE_MOST ? QUARANTINE_MOST : n);
}

void quarantine_init(heap_t *heap, void *memory) {
  struct quarantine *quarantine = memory;
  quarantine->random = random_mix(secret.order + (uintptr_t)heap);
  for (unsigned c = 0; c < CLASS_COUNT; c++) quarantine->rings[c].length = ring_length(c);
  heap->quarantine = quarantine;
}

void *quarantine_put(heap_t *heap, void *block, unsigned size_class) {
  struct quarantine *quarantine = heap->quarantine;
  uint8_t *ring = &quarantine->rings[size_class].at;
  unsigned at = owner_load(ring), next = at + 1;
  void **place = &quarantine->blocks[size_class][at];
  void *old = owner_load(place);
  if (HAK_UNLIKELY(is_marked(old))) old = entry_change(place, old, NULL) ? unmarked(old) : NULL;
  owner_store(place, block);
  owner_store(ring, (uint8_t)(next == quarantine->rings[size_class].length ? 0 : next));
  atomic_signal_fence(memory_order_seq_cst); /* the block is out of here before it is anywhere else: see bin_take */
  return old;
}

uint32_t quarantine_waiting(const heap_t *heap, unsigned size_class) {
  uint32_t waiting = 0;
  for (uint32_t i = 0; i < ring_length(size_class); i++) waiting += racy_load(&heap->quarantine->blocks[size_class][i]) != NULL;
  return waiting;
}

void *quarantine_next(const heap_t *heap, unsigned size_class, uint32_t *place) {
  while (*place < ring_length(size_class)) {
    void *block = unmarked(owner_load(&heap->quarantine->blocks[size_class][(*place)++]));
    if (block != NULL) return block;
  }
  return NULL;
}

void *quarantine_take(heap_t *heap) {
  for (unsigned c = 0; c < CLASS_COUNT; c++) {
    for (uint32_t i = 0; i < ring_length(c); i++) {
      void *block = unmarked(owner_load(&heap->quarantine->blocks[c][i]));
      if (block == NULL) continue; /* not written, so that its page stays untouched: most heaps have used few classes */
      owner_store(&heap->quarantine->blocks[c][i], NULL);
      atomic_signal_fence(memory_order_seq_cst);
      return block;
    }
  }
  return NULL;
}

bool quarantine_mark(heap_t *heap) {
  bool any = false;
  heap->quarantine->is_seen = false;
  for (unsigned c = 0; c < CLASS_COUNT; c++) {
    for (uint32_t i = 0; i < ring_length(c); i++) {
      void **place = &heap->quarantine->blocks[c][i], *block = racy_load(place);
      any |= block != NULL && (is_marked(block) || entry_change(place, block, (char *)block + WANTED));
    }
  }
  return any;
}

void quarantine_see(heap_t *heap) {
  for (unsigned c = 0; c < CLASS_COUNT; c++) heap->quarantine->rings[c].seen = racy_load(&heap->quarantine->rings[c].at);
  heap->quarantine->is_seen = true;
}

void *quarantine_take_marked(heap_t *heap, unsigned *size_class, uint32_t *place) {
  for (; heap->quarantine->is_seen && *size_class < CLASS_COUNT; ++*size_class, *place = 0) {
    while (*place < ring_length(*size_class)) {
      uint32_t i = (*place)++;
      void **entry = &heap->quarantine->blocks[*size_class][i], *block = racy_load(entry);
      if (is_marked(block) && i != heap->quarantine->rings[*size_class].seen && entry_change(entry, block, NULL)) return unmarked(block);
    }
  }
  return NULL;
}

HAK_AUDITED void quarantine_audit(const heap_t *heap) {
  for (unsigned c = 0; c < CLASS_COUNT; c++) {
    uint8_t at = heap->quarantine->rings[c].at, length = heap->quarantine->rings[c].length;
    AUDIT(length == ring_length(c) && at < length, heap, "a quarantine's place is not in it");
    for (unsigned i = 0; i < QUARANTINE_MOST; i++) {
      const void *block = unmarked(owner_load(&heap->quarantine->blocks[c][i]));
      if (block == NULL) continue;
      const unit_t *slab = unit_head((uint32_t)region_unit(block));
      bool known = i < length && load_relaxed(&slab->kind) == UNIT_SLAB && load_relaxed(&slab->size_class) == c;
      AUDIT(known && !region_is_live(block), block, "what waits in quarantine is no block, or live");
      uint32_t index = class_block_at(c, (size_t)((const char *)block - (const char *)region_address(unit_number(slab))));
      uint64_t free = load_relaxed(region_bits(region.free_bits, unit_number(slab), index / 64));
      AUDIT((free >> index % 64 & 1) == 0, block, "a block is in quarantine and in its slab");
    }
  }
}

/* The upper half of a linear congruential generator's state: the lower bits repeat soon. */
uint32_t quarantine_choose(heap_t *heap, uint32_t count, uint32_t most) {
  struct quarantine *quarantine = heap->quarantine;
  if (count > most) count = most;
  quarantine->random = quarantine->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (uint32_t)((quarantine->random >> 32) * count >> 32);
}
