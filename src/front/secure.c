#include "front/secure.h"

#include <string.h>

#include "kit/fault.h"
#include "kit/random.h"
#include "os/os.h"

#define QUARANTINE_BYTES ((size_t)32 << 10) /* of a class */
#define QUARANTINE_LEAST 4
#define QUARANTINE_MOST 64

/* A ring for each class. */
struct quarantine {
  uint64_t random;
  uint8_t at[CLASS_COUNT];
  void *blocks[CLASS_COUNT][QUARANTINE_MOST];
};

static struct {
  uint64_t first, second;
} HAK_SEALED secret;

void secure_start(void) {
  if (secret.first != 0) return; /* the first try to boot found no memory */
  os_seal(&secret, sizeof secret, false);
  secret.first = os_random() | 1;
  secret.second = os_random();
  os_seal(&secret, sizeof secret, true);
}

size_t secure_heap_bytes(void) { return sizeof(struct quarantine); }

void secure_heap_init(heap_t *heap, void *memory) {
  heap->quarantine = memory;
  heap->quarantine->random = os_random();
}

/* --- canary and zeroes ------------------------------------------------------------------- */

/* Its first byte is 0: a string that runs up to it ends there, and none that is copied can restore it. */
static uint64_t canary_of(const void *block) {
  return random_mix(random_mix((uintptr_t)block ^ secret.first) ^ secret.second) & ~(uint64_t)0xff;
}

static uint64_t *canary_place(void *block, uint32_t size) { return (uint64_t *)(void *)((char *)block + size - SECURE_CANARY); }

static bool is_zero(const void *block, uint32_t size) {
  const uint64_t *words = block;
  uint64_t any = 0;
  for (uint32_t i = 0; i < size / 8; i += 2) any |= words[i] | words[i + 1];
  return any == 0;
}

/* A block that was never live is not read, which would fault its pages in twice. */
static void require_zero(void *block, unsigned c) {
  uint32_t size = class_info[c].size;
  slab_t *slab = slab_head((uint32_t)region_unit(block));
  size_t offset = (size_t)((const char *)block - (const char *)region_address(slab_unit(slab)));
  uint32_t index = class_block_at(c, offset);
  if (HAK_UNLIKELY(slab->soiled)) {
    memset(block, 0, size);
  } else if (index >= slab->touched) {
    slab->touched = (uint16_t)(index + 1);
  } else if (HAK_UNLIKELY(!is_zero(block, size))) {
    fault_abort("use after free", "malloc", block, "a free block was written to", size);
  }
}

void secure_clear(void *block, unsigned size_class, const char *function) {
  if (size_class == CLASS_NOTHING) return;
  uint32_t size = class_info[size_class].size;
  if (HAK_UNLIKELY(*canary_place(block, size) != canary_of(block))) {
    fault_abort("overflow", function, block, "bytes behind the block were overwritten", size);
  }
  memset(block, 0, size);
  __asm__ volatile("" : : "r"(block) : "memory"); /* not a dead store */
}

/* --- allocation -------------------------------------------------------------------------- */

/* Takes entry `i` of a bin that has `count`.  A fork in between leaks the last: it does not leave it in two places. */
static void *bin_take(bin_t *bin, uint32_t i, uint32_t count) {
  void **entries = bin_entries(bin) - bin->capacity;
  void *block = hot_load(&entries[i]), *last = hot_load(&entries[count - 1]);
  hot_store(&bin->top, hot_load(&bin->top) - 1);
  atomic_signal_fence(memory_order_seq_cst);
  hot_store(&entries[i], last);
  return block;
}

static void *take(heap_t *heap, unsigned c) {
  uint64_t *random = &heap->quarantine->random;
  bin_t *bin = heap_bin(heap, c);
  uint32_t count = heap->has_bin[c] ? bin_count(bin) : 0;
  if (count > 0) return bin_take(bin, random_below(random, count), count);
  void *block = heap_refill(heap, c);
  if (block == NULL) return NULL;
  count = bin_count(bin);
  uint32_t i = random_below(random, count + 1);
  if (i == count) return block;
  void **entries = bin_entries(bin) - bin->capacity;
  void *other = hot_load(&entries[i]);
  hot_store(&entries[i], block);
  return other;
}

void *secure_alloc(heap_t *heap, unsigned size_class) {
  void *block = take(heap, size_class);
  if (block == NULL) return NULL;
  region_set_live(block);
  if (size_class == CLASS_NOTHING) return block;
  require_zero(block, size_class);
  uint32_t size = class_info[size_class].size;
  *canary_place(block, size) = canary_of(block);
  return block;
}

/* --- quarantine -------------------------------------------------------------------------- */

static uint32_t ring_length(unsigned c) {
  size_t n = QUARANTINE_BYTES / class_info[c].size;
  return n < QUARANTINE_LEAST ? QUARANTINE_LEAST : n > QUARANTINE_MOST ? QUARANTINE_MOST : (uint32_t)n;
}

void *secure_wait(heap_t *heap, void *block, unsigned size_class) {
  uint8_t *at = &heap->quarantine->at[size_class];
  void **place = &heap->quarantine->blocks[size_class][*at];
  void *old = hot_load(place);
  hot_store(place, block);
  *at = (uint8_t)((*at + 1u) % ring_length(size_class));
  atomic_signal_fence(memory_order_seq_cst); /* out of here before it is anywhere else: see bin_take */
  return old;
}

uint32_t secure_waiting(const heap_t *heap, unsigned size_class) {
  uint32_t waiting = 0;
  for (uint32_t i = 0; i < ring_length(size_class); i++) waiting += hot_peek(&heap->quarantine->blocks[size_class][i]) != NULL;
  return waiting;
}

void *secure_next(heap_t *heap) {
  for (unsigned c = 0; c < CLASS_COUNT; c++) {
    for (uint32_t i = 0; i < ring_length(c); i++) {
      void *block = hot_load(&heap->quarantine->blocks[c][i]);
      hot_store(&heap->quarantine->blocks[c][i], NULL);
      atomic_signal_fence(memory_order_seq_cst);
      if (block != NULL) return block;
    }
  }
  return NULL;
}
