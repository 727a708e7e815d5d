#include "front/secure.h"

#include <string.h>

#include "base/check.h"
#include "os/os.h"
#include "kit/fault.h"
#include "kit/secret.h"
#include "space/dontfork.h"
#include "slab/large.h"
#include "slab/large_secure.h"
#include "front/heaps.h"
#include "front/quarantine.h"
#include "front/repair.h"
#include "front/supply.h"
#include "front/thread.h"

#define FRESH_FROM 4096 /* bytes */
/* BIN_REACH is the number of entries of a bin from which one is chosen. Each generation of blocks is scattered further, and programs pay
 * for that in locality: docs/dead-ends.md has the figures. */

/* --- canary and zeroes ------------------------------------------------------------------- */

/* The last word of a block holds its canary and, in the two uppermost bytes, how many bytes before it were not requested. Those bytes are
 * zero, except for the first one behind the requested size, the mark: it has the value of the canary's lowest byte, which is not 0, so that
 * a string's terminator written there is detected. If no bytes are left over, the mark is the lowest byte of the word itself. The byte
 * after that is 0: strings end there. */
#define LEFT_SHIFT 48
#define MARK(canary) ((char)(canary))

/* Combines both halves of a product of two secret factors, one of which depends on the block. */
static uint64_t canary_of(const void *block) {
  unsigned __int128 product = (unsigned __int128)((uintptr_t)block ^ secret.first) * secret.second;
  return (((uint64_t)product ^ (uint64_t)(product >> 64)) & ~(uint64_t)0xff00) | 1;
}

static uint64_t *canary_place(void *block, uint32_t size) { return (uint64_t *)(void *)((char *)block + size - CLASS_CANARY); }

/* Whether all but the last word is zero. */
static bool is_zero(const void *block, uint32_t size) {
  typedef uint64_t pair_t __attribute__((vector_size(16)));
  const pair_t *pairs = block;
  pair_t any = {*(const uint64_t *)(const void *)((const char *)block + size - 16), 0};
  for (uint32_t i = 0; i + 1 < size / 16; i++) any |= pairs[i];
  return (any[0] | any[1]) == 0;
}

/* The requested size of a block of `size` bytes whose last word is intact; else SIZE_MAX, more than any block has. */
HAK_INLINE size_t asked_of(void *block, uint32_t size, uint64_t canary) {
  uint64_t word = *canary_place(block, size) ^ canary;
  size_t usable = size - CLASS_CANARY, left = (size_t)(word >> LEFT_SHIFT);
  return word << (64 - LEFT_SHIFT) == 0 && left <= usable ? usable - left : SIZE_MAX;
}

/* Whether a block is as it was made behind the requested size; checks 8 bytes there, and the last word. */
HAK_INLINE bool is_whole(void *block, uint32_t size, size_t asked, uint64_t canary) {
  if (HAK_UNLIKELY(asked == SIZE_MAX)) return false;
  uint64_t behind, want = (unsigned char)MARK(canary);
  size_t left = size - CLASS_CANARY - asked;
  memcpy(&behind, (char *)block + asked, sizeof behind);
  if (left < sizeof behind) want |= *canary_place(block, size) << 8 * left;
  return behind == want;
}

/* Whether the canary, or the mark if that is on another page, may have been on a page that a fork's child did not get, or got wiped: such a
 * page is zero. */
static HAK_COLD bool is_gone(void *block, uint32_t size) {
  uintptr_t place = (uintptr_t)canary_place(block, size), page = os_page_size();
  if (*canary_place(block, size) == 0) return true;
  size_t asked = asked_of(block, size, canary_of(block));
  if (asked == SIZE_MAX || ((uintptr_t)block + asked) / page == place / page) return false;
  return ((const char *)block)[asked] == 0;
}

/* In a process that lacks pages, for a block that is freed: maps what is missing of it.  False: there is nothing to check, or it failed. */
static HAK_NOINLINE HAK_COLD bool mend(void *block, uint32_t size) { return dontfork_map(block, size) && !is_gone(block, size); }

/* In a process that lacks pages the size is lost with the canary. */
static HAK_NOINLINE HAK_COLD bool size_is_lost(void *block, uint32_t size) {
  uint64_t *place = canary_place(block, size);
  return !dontfork_is_mapped(place, sizeof *place) || *place == 0;
}

bool secure_knows_size(const void *block, unsigned size_class) {
  return !dontfork_seen() || size_class == CLASS_ZERO || !size_is_lost((void *)(uintptr_t)block, class_info[size_class].size);
}

static _Noreturn HAK_COLD void overflown(const char *function, void *block, uint32_t size) {
  fault_abort("overflow", function, block, "bytes behind the block were overwritten", size);
}

size_t secure_size(const void *block, unsigned size_class, const char *function) {
  if (HAK_UNLIKELY(size_class == CLASS_ZERO)) return 0;
  void *start = (void *)(uintptr_t)block;
  uint32_t size = class_info[size_class].size;
  if (dontfork_seen() && size_is_lost(start, size)) return size - CLASS_CANARY;
  size_t asked = asked_of(start, size, canary_of(block));
  if (HAK_LIKELY(asked != SIZE_MAX)) return asked;
  if (function != NULL) overflown(function, start, size);
  return size - CLASS_CANARY;
}

/* It counts as inside, so that no handler that ends the process in between finds it half done: secure_check. */
void secure_resize(void *block, unsigned size_class, size_t asked, const char *function) {
  uint32_t size = class_info[size_class].size;
  size_t usable = size - CLASS_CANARY;
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
  memset(block, 0, size - CLASS_CANARY);
  *canary_place(block, size) = word;
}

/* Whether the block was never live. A block of several pages that was never live is not read, which would fault its pages in twice. */
static bool is_fresh(const void *block, const bin_t *bin) {
  unit_t *slab = unit_head((uint32_t)region_unit(block));
  size_t offset = (size_t)((const char *)block - (const char *)region_address(unit_number(slab)));
  uint32_t index = class_block_at(bin->shared.size_class, offset);
  if (index < slab->touched || slab_may_be_dirty(slab)) return false;
  slab->touched = (uint16_t)(index + 1);
  return true;
}

/* With several threads, words of the live map are changed by atomic read-modify-writes alone. */
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

/* A block gets its live bit last, and loses it first: so whatever is live is whole, for secure_check. */
static void *make_live_of(void *block, uint32_t size, bool fresh, size_t asked) {
  uint64_t canary = canary_of(block), word = canary ^ (uint64_t)(size - CLASS_CANARY - asked) << LEFT_SHIFT;
  bits_add64(canary_place(block, size), word); /* a write before the block is read, so that its page is faulted in once */
  if (HAK_UNLIKELY(*canary_place(block, size) != word || (!fresh && !is_zero(block, size)))) written_to(block, size, word);
  ((char *)block)[asked] = MARK(canary);
  atomic_signal_fence(memory_order_seq_cst);
  set_live(block);
  return block;
}

HAK_INLINE void *make_live(void *block, const bin_t *bin, size_t asked) {
  if (HAK_UNLIKELY(bin->shared.size_class == CLASS_ZERO)) return set_live(block), block;
  uint32_t size = bin->shared.block_size;
  return make_live_of(block, size, size > FRESH_FROM && is_fresh(block, bin), asked);
}

/* Reads the block's pages even if they are fresh: the slab's record, which says so, is written by other threads. */
void *secure_open(void *block, unsigned size_class, size_t size) {
  if (size_class == CLASS_ZERO) return set_live(block), block;
  return make_live_of(block, class_info[size_class].size, false, size);
}

bool secure_wipe(void *block, unsigned size_class) {
  if (HAK_UNLIKELY(size_class == CLASS_ZERO)) return true;
  uint32_t size = class_info[size_class].size;
  uint64_t canary = canary_of(block);
  bool known = !dontfork_seen() || mend(block, size);
  if (HAK_UNLIKELY(known && !is_whole(block, size, asked_of(block, size, canary), canary))) return false;
  memset(block, 0, size);
  __asm__ volatile("" : : "r"(block) : "memory"); /* not a dead store */
  return true;
}

void secure_clear(void *block, unsigned size_class, const char *function) {
  if (HAK_UNLIKELY(!secure_wipe(block, size_class))) overflown(function, block, class_info[size_class].size);
}

/* --- allocation -------------------------------------------------------------------------- */

/* Takes one of the uppermost of the bin's `count` entries. A fork in between leaks the last entry, but never leaves it in two places. */
static void *bin_take(heap_t *heap, bin_t *bin, uint32_t count) {
  intptr_t top = owner_load(&bin->top);
  void **entry = &bin_entries(bin)[top - 1 - (intptr_t)quarantine_choose(heap, count, BIN_REACH)];
  void *block = owner_load(entry), *last = owner_load(&bin_entries(bin)[top - 1]);
  owner_store(&bin->top, top - 1);
  atomic_signal_fence(memory_order_seq_cst);
  owner_store(entry, last);
  return block;
}

void *secure_pop(heap_t *heap, bin_t *bin, size_t size) {
  uint32_t count = bin_count(bin);
  if (HAK_UNLIKELY(count == 0)) return NULL;
  return make_live(bin_take(heap, bin, count), bin, size);
}

void *secure_alloc(heap_t *heap, unsigned size_class, size_t size) {
  bin_t *bin = heap_bin(heap, size_class);
  while (!load_relaxed(&heap->has_bin[size_class]) || bin_count(bin) == 0) { /* once, unless a drain has begun meanwhile */
    void *block = heap_refill(heap, size_class);
    if (block == NULL) return NULL;
    bool full = bin_push(bin, block); /* it was just popped there: there is room */
    HAK_ASSERT(!full);
  }
  return make_live(bin_take(heap, bin, bin_count(bin)), bin, size);
}

/* --- at exit ------------------------------------------------------------------------------ */

/* So many blocks take at most some 50 ms to read. */
#define CHECKED_MOST ((uint32_t)1 << 20)

/* A block that is not live is zero, or is about to become live or to be cleared. */
static void check_block(void *block, uint32_t size, bool dirty_when_free, bool child) {
  uint64_t canary = canary_of(block);
  size_t asked = asked_of(block, size, canary);
  if (region_is_live(block)) {
    if (!is_whole(block, size, asked, canary) && !(child && is_gone(block, size))) overflown("exit", block, size);
  } else if (!dirty_when_free && *canary_place(block, size) != 0 && asked == SIZE_MAX) {
    fault_abort("use after free", "exit", block, "a free block was written to", size);
  }
}

static uint32_t check_slab(const unit_t *slab, bool child) {
  const class_info_t *info = slab_class(slab);
  if (load_relaxed(&slab->size_class) == CLASS_ZERO) return 0;
  char *start = region_address(unit_number(slab));
  if (dontfork_seen() && !dontfork_is_mapped(start, info->units * HAK_UNIT)) return 0;
  for (uint32_t i = 0; i < info->blocks; i++) check_block(start + (size_t)i * info->size, info->size, slab->dirty_when_free, child);
  return info->blocks;
}

static void check_waiting(const heap_t *heap, unsigned c) {
  uint32_t size = class_info[c].size;
  uint32_t place = 0;
  for (void *block = quarantine_next(heap, c, &place); block != NULL; block = quarantine_next(heap, c, &place)) {
    if (dontfork_seen() && !dontfork_is_mapped(block, size)) continue;
    if (is_zero(block, size) && *canary_place(block, size) == 0) continue;
    fault_abort("use after free", "exit", block, "a free block was written to", size);
  }
}

/* Whether no other thread is in the middle of a change, or was when this process was forked. libc may not know, or know only that there
 * once was another: then the kernel is asked. */
static bool is_alone(void) {
  if (os_single_threaded()) return true;
  return !os_forked() && fork_epoch == 0 && os_is_only_thread();
}

void secure_check(void) {
  if (thread_inside != 0 || !is_alone()) return;
  bool forked = os_forked(), child = forked || repair_was_made();
  if (forked) dontfork_expect();
  if (dontfork_seen() && load_relaxed(&os_filters) != 0) return; /* what is missing cannot be found out */
  for (heap_t *heap = heap_first(); heap != NULL; heap = load_relaxed(&heap->next)) {
    for (unsigned c = 0; c < CLASS_ZERO; c++) check_waiting(heap, c);
  }
  uint32_t checked = 0;
  for (uint32_t unit = 0; unit < load_relaxed(&region.units) && checked < CHECKED_MOST; unit++) {
    unit_t *slab = unit_at(unit);
    if (load_relaxed(&slab->kind) == UNIT_SLAB) checked += check_slab(slab, child);
    if (load_relaxed(&slab->kind) != UNIT_LARGE || large_is_whole(slab)) continue;
    fault_abort("overflow", "exit", region_address(unit), "bytes behind the block were overwritten", FAULT_LARGE);
  }
}
