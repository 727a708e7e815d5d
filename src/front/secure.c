#include "front/secure.h"

#include <string.h>

#include "base/check.h"
#include "os/os.h"
#include "kit/fault.h"
#include "kit/random.h"
#include "slab/large.h"
#include "slab/large_secure.h"
#include "front/audit.h"
#include "front/heaps.h"
#include "front/thread.h"

#define QUARANTINE_BYTES ((size_t)32 << 10) /* of a class */
#define QUARANTINE_LEAST 4
#define QUARANTINE_MOST 64
#define FRESH_FROM 4096 /* bytes */
/* Entries of a bin from which one is chosen.  Each generation of blocks is scattered further; programs pay for that in
 * locality: docs/decisions has the figures. */
#define CHOICES 4

/* A ring for each class. */
struct quarantine {
  uint64_t random;
  struct {
    uint8_t at, length;
  } rings[CLASS_COUNT];
  void *blocks[CLASS_COUNT][QUARANTINE_MOST];
};

static struct {
  uint64_t first, second;
  uint64_t order; /* of which heaps make their random numbers: the kernel is asked at start alone, later it may refuse */
} HAK_SEALED secret;

void secure_start(void) {
  if (secret.first != 0) return; /* the first try to boot found no memory */
  secret.first = os_random() | 1;
  secret.second = os_random() | 1;
  secret.order = os_random();
  (void)os_seal(&secret, sizeof secret, true);
}

size_t secure_heap_bytes(void) { return sizeof(struct quarantine); }

static uint8_t ring_length(unsigned c) {
  size_t n = QUARANTINE_BYTES / class_info[c].size;
  return (uint8_t)(n < QUARANTINE_LEAST ? QUARANTINE_LEAST : n > QUARANTINE_MOST ? QUARANTINE_MOST : n);
}

void secure_heap_init(heap_t *heap, void *memory) {
  struct quarantine *quarantine = memory;
  quarantine->random = random_mix(secret.order + (uintptr_t)heap);
  for (unsigned c = 0; c < CLASS_COUNT; c++) quarantine->rings[c].length = ring_length(c);
  heap->quarantine = quarantine;
}

/* --- canary and zeroes ------------------------------------------------------------------- */

/* The last word of a block: its canary, and in the two uppermost bytes how many bytes before it were not asked for.  Those are
 * zero, but for the first behind what was asked for, which is the canary's lowest byte: the mark, which is not 0, so that the
 * end of a string there is seen.  Where nothing is left over that byte is the word's own.  The next byte is 0: strings end there. */
#define LEFT_SHIFT 48
#define MARK(canary) ((char)(canary))

/* Both halves of a product of two secret factors, one of them the block's. */
static uint64_t canary_of(const void *block) {
  unsigned __int128 product = (unsigned __int128)((uintptr_t)block ^ secret.first) * secret.second;
  return (((uint64_t)product ^ (uint64_t)(product >> 64)) & ~(uint64_t)0xff00) | 1;
}

static uint64_t *canary_place(void *block, uint32_t size) { return (uint64_t *)(void *)((char *)block + size - SECURE_CANARY); }

/* But for the last word. */
static bool is_zero(const void *block, uint32_t size) {
  typedef uint64_t pair_t __attribute__((vector_size(16)));
  const pair_t *pairs = block;
  pair_t any = {*(const uint64_t *)(const void *)((const char *)block + size - 16), 0};
  for (uint32_t i = 0; i + 1 < size / 16; i++) any |= pairs[i];
  return (any[0] | any[1]) == 0;
}

/* The bytes that were asked for, of a block of `size` whose last word is in order; else more than any has. */
HAK_INLINE size_t asked_of(void *block, uint32_t size, uint64_t canary) {
  uint64_t word = *canary_place(block, size) ^ canary;
  size_t usable = size - SECURE_CANARY, left = (size_t)(word >> LEFT_SHIFT);
  return word << (64 - LEFT_SHIFT) == 0 && left <= usable ? usable - left : SIZE_MAX;
}

/* Whether a block is as it was made behind its bytes; looks at 8 of them, and the last word. */
HAK_INLINE bool is_whole(void *block, uint32_t size, size_t asked, uint64_t canary) {
  if (HAK_UNLIKELY(asked == SIZE_MAX)) return false;
  uint64_t behind, want = (unsigned char)MARK(canary);
  size_t left = size - SECURE_CANARY - asked;
  memcpy(&behind, (char *)block + asked, sizeof behind);
  if (left < sizeof behind) want |= *canary_place(block, size) << 8 * left;
  return behind == want;
}

static _Noreturn HAK_COLD void overflown(const char *function, void *block, uint32_t size) {
  fault_abort("overflow", function, block, "bytes behind the block were overwritten", size);
}

size_t secure_size(const void *block, unsigned size_class, const char *function) {
  if (HAK_UNLIKELY(size_class == CLASS_ZERO)) return 0;
  void *start = (void *)(uintptr_t)block;
  uint32_t size = class_info[size_class].size;
  size_t asked = asked_of(start, size, canary_of(block));
  if (HAK_LIKELY(asked != SIZE_MAX)) return asked;
  if (function != NULL) overflown(function, start, size);
  return size - SECURE_CANARY;
}

/* No handler that ends the process in between may find it half-done: secure_check. */
void secure_resize(void *block, unsigned size_class, size_t asked, const char *function) {
  uint32_t size = class_info[size_class].size;
  size_t usable = size - SECURE_CANARY;
  uint64_t canary = canary_of(block);
  char *start = block;
  thread_inside++;
  atomic_signal_fence(memory_order_seq_cst);
  size_t old = asked_of(block, size, canary);
  if (HAK_UNLIKELY(!is_whole(block, size, old, canary))) overflown(function, block, size);
  if (old < usable) start[old] = 0;
  if (asked < old) memset(start + asked, 0, old - asked);
  *canary_place(block, size) = canary ^ (uint64_t)(usable - asked) << LEFT_SHIFT;
  start[asked] = MARK(canary);
  atomic_signal_fence(memory_order_seq_cst);
  thread_inside--;
}

static HAK_NOINLINE void written_to(void *block, uint32_t size, uint64_t word) {
  bool dirty_when_free = slab_may_be_dirty(unit_head((uint32_t)region_unit(block)));
  if (!dirty_when_free) fault_abort("use after free", "malloc", block, "a free block was written to", size);
  memset(block, 0, size - SECURE_CANARY);
  *canary_place(block, size) = word;
}

/* A block of several pages that was never live is not read, which would fault its pages in twice. */
static bool is_fresh(const void *block, const bin_t *bin) {
  unit_t *slab = unit_head((uint32_t)region_unit(block));
  size_t offset = (size_t)((const char *)block - (const char *)region_address(unit_number(slab)));
  uint32_t index = class_block_at(bin->shared.size_class, offset);
  if (index < slab->touched || slab_may_be_dirty(slab)) return false;
  slab->touched = (uint16_t)(index + 1);
  return true;
}

/* Words of the live map that others may change too are changed by atomic read-modify-writes alone. */
static void set_live(const void *block) {
  uint64_t *word = region_live_word(block);
  if (os_single_threaded()) owner_store(word, owner_load(word) | region_live_bit(block));
  else region_set_live(block);
}

bool secure_claim_live(const void *block) {
  if (!os_single_threaded()) return region_clear_live(block);
  uint64_t *word = region_live_word(block), before = owner_load(word), bit = region_live_bit(block);
  owner_store(word, before & ~bit);
  return (before & bit) != 0;
}

/* Live last, and not live first where it ends: what is live is whole, for secure_check. */
static void *make_live(void *block, const bin_t *bin, size_t asked) {
  if (HAK_UNLIKELY(bin->shared.size_class == CLASS_ZERO)) return set_live(block), block;
  uint32_t size = bin->shared.block_size;
  bool fresh = size > FRESH_FROM && is_fresh(block, bin);
  uint64_t canary = canary_of(block), word = canary ^ (uint64_t)(size - SECURE_CANARY - asked) << LEFT_SHIFT;
  bits_add64(canary_place(block, size), word); /* before the block is read: its page is faulted in once */
  if (HAK_UNLIKELY(*canary_place(block, size) != word || (!fresh && !is_zero(block, size)))) written_to(block, size, word);
  ((char *)block)[asked] = MARK(canary);
  atomic_signal_fence(memory_order_seq_cst);
  set_live(block);
  return block;
}

void secure_clear(void *block, unsigned size_class, const char *function) {
  if (HAK_UNLIKELY(size_class == CLASS_ZERO)) return;
  uint32_t size = class_info[size_class].size;
  uint64_t canary = canary_of(block);
  if (HAK_UNLIKELY(!is_whole(block, size, asked_of(block, size, canary), canary))) overflown(function, block, size);
  memset(block, 0, size);
  __asm__ volatile("" : : "r"(block) : "memory"); /* not a dead store */
}

/* --- allocation -------------------------------------------------------------------------- */

/* Below CHOICES and `count`, which is not 0. The upper half of a congruential generator's state: the lower bits repeat soon. */
static uint32_t choose(struct quarantine *quarantine, uint32_t count) {
  if (count > CHOICES) count = CHOICES;
  quarantine->random = quarantine->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (uint32_t)((quarantine->random >> 32) * count >> 32);
}

/* One of the uppermost of the `count` entries of a bin.  A fork in between leaks the last: it does not leave it in two places. */
static void *bin_take(heap_t *heap, bin_t *bin, uint32_t count) {
  intptr_t top = owner_load(&bin->top);
  void **entry = &bin_entries(bin)[top - 1 - (intptr_t)choose(heap->quarantine, count)];
  void *block = owner_load(entry), *last = owner_load(&bin_entries(bin)[top - 1]);
  owner_store(&bin->top, top - 1);
  atomic_signal_fence(memory_order_seq_cst);
  owner_store(entry, last);
  return block;
}

void *secure_pop(heap_t *heap, size_t size) {
  size_t least = size + SECURE_CANARY;
  bin_t *bin = heap_bin_at(heap, least <= HAK_TABLE_MAX ? heap_small_index(least) : heap_mid_index(least));
  uint32_t count = bin_count(bin);
  if (HAK_UNLIKELY(count == 0)) return NULL;
  return make_live(bin_take(heap, bin, count), bin, size);
}

void *secure_alloc(heap_t *heap, unsigned size_class, size_t size) {
  bin_t *bin = heap_bin(heap, size_class);
  if (!load_relaxed(&heap->has_bin[size_class]) || bin_count(bin) == 0) {
    void *block = heap_refill(heap, size_class);
    if (block == NULL) return NULL;
    bool full = bin_push(bin, block); /* from where it comes: there is room */
    HAK_ASSERT(!full);
  }
  return make_live(bin_take(heap, bin, bin_count(bin)), bin, size);
}

/* --- quarantine -------------------------------------------------------------------------- */

void *quarantine_put(heap_t *heap, void *block, unsigned size_class) {
  struct quarantine *quarantine = heap->quarantine;
  unsigned at = quarantine->rings[size_class].at, next = at + 1;
  void **place = &quarantine->blocks[size_class][at];
  void *old = owner_load(place);
  owner_store(place, block);
  quarantine->rings[size_class].at = (uint8_t)(next == quarantine->rings[size_class].length ? 0 : next);
  atomic_signal_fence(memory_order_seq_cst); /* out of here before it is anywhere else: see bin_take */
  return old;
}

uint32_t secure_waiting(const heap_t *heap, unsigned size_class) {
  uint32_t waiting = 0;
  for (uint32_t i = 0; i < ring_length(size_class); i++) waiting += racy_load(&heap->quarantine->blocks[size_class][i]) != NULL;
  return waiting;
}

void *quarantine_take(heap_t *heap) {
  for (unsigned c = 0; c < CLASS_COUNT; c++) {
    for (uint32_t i = 0; i < ring_length(c); i++) {
      void *block = owner_load(&heap->quarantine->blocks[c][i]);
      owner_store(&heap->quarantine->blocks[c][i], NULL);
      atomic_signal_fence(memory_order_seq_cst);
      if (block != NULL) return block;
    }
  }
  return NULL;
}

HAK_AUDITED void secure_audit(const heap_t *heap) {
  for (unsigned c = 0; c < CLASS_COUNT; c++) {
    uint8_t at = heap->quarantine->rings[c].at, length = heap->quarantine->rings[c].length;
    AUDIT(length == ring_length(c) && at < length, heap, "a quarantine's place is not in it");
    for (unsigned i = 0; i < QUARANTINE_MOST; i++) {
      const void *block = owner_load(&heap->quarantine->blocks[c][i]);
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

/* --- at exit ------------------------------------------------------------------------------ */

/* Reading them takes at most some 50 ms. */
#define CHECKED_MOST ((uint32_t)1 << 20)

/* One that is not live is zero, or on its way from or to being live. */
static void check_block(void *block, uint32_t size, bool dirty_when_free) {
  uint64_t canary = canary_of(block);
  size_t asked = asked_of(block, size, canary);
  if (region_is_live(block)) {
    if (!is_whole(block, size, asked, canary)) overflown("exit", block, size);
  } else if (!dirty_when_free && *canary_place(block, size) != 0 && asked == SIZE_MAX) {
    fault_abort("use after free", "exit", block, "a free block was written to", size);
  }
}

static uint32_t check_slab(const unit_t *slab) {
  const class_info_t *info = slab_class(slab);
  if (load_relaxed(&slab->size_class) == CLASS_ZERO) return 0;
  char *start = region_address(unit_number(slab));
  for (uint32_t i = 0; i < info->blocks; i++) check_block(start + (size_t)i * info->size, info->size, slab->dirty_when_free);
  return info->blocks;
}

static void check_waiting(const heap_t *heap, unsigned c) {
  uint32_t size = class_info[c].size;
  for (uint32_t i = 0; i < ring_length(c); i++) {
    void *block = owner_load(&heap->quarantine->blocks[c][i]);
    if (block == NULL || (is_zero(block, size) && *canary_place(block, size) == 0)) continue;
    fault_abort("use after free", "exit", block, "a free block was written to", size);
  }
}

/* Whether nobody else is in the midst of a change, or was when this process was forked.  Where libc does not tell, the kernel does. */
static bool is_alone(void) {
  if (os_single_threaded() || os_multi_threaded()) return os_single_threaded();
  return !os_forked() && slab_epoch == 0 && os_is_only_thread();
}

void secure_check(void) {
  if (thread_inside != 0 || !is_alone()) return;
  for (heap_t *heap = heap_first(); heap != NULL; heap = load_relaxed(&heap->next)) {
    for (unsigned c = 0; c < CLASS_ZERO; c++) check_waiting(heap, c);
  }
  uint32_t checked = 0;
  for (uint32_t unit = 0; unit < load_relaxed(&region.units) && checked < CHECKED_MOST; unit++) {
    unit_t *slab = unit_at(unit);
    if (load_relaxed(&slab->kind) == UNIT_SLAB) checked += check_slab(slab);
    if (load_relaxed(&slab->kind) != UNIT_LARGE || large_is_whole(slab)) continue;
    fault_abort("overflow", "exit", region_address(unit), "bytes behind the block were overwritten", FAULT_LARGE);
  }
}
