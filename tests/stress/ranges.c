/* ranges.c - see ranges.h. */
#include "ranges.h"

#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

#include "harness.h"

enum {
  GRANULE_BITS = 4,
  CHUNK_BITS = 16,
  LEAF_BITS = 16,
  ROOT_BITS = 48 - CHUNK_BITS - LEAF_BITS,
  CHUNK_GRANULES = 1 << (CHUNK_BITS - GRANULE_BITS),
  WORD_GRANULES = 64,
  CHUNK_WORDS = CHUNK_GRANULES / WORD_GRANULES,
};

typedef _Atomic uint64_t granules_t; /* one bit for each granule */

#define CHUNK_FULL UINT32_C(0x80000000)

typedef struct chunk {
  _Atomic uint32_t blocks;       /* the number of blocks that lie at least partly in the chunk, or CHUNK_FULL */
  _Atomic(granules_t *) granules; /* CHUNK_WORDS words, or NULL before the first use */
} chunk_t;

static _Atomic(chunk_t *) root[1 << ROOT_BITS];

/* A bitmap of CHUNK_WORDS zero words, carved from pages of the calling thread.
 * A bitmap that loses the race to be installed is lost: 512 bytes, rarely. */
static granules_t *granules_take(void) {
  static _Thread_local granules_t *next, *end;
  if (next == end) {
    next = pages_take(MIB / 16);
    end = next + MIB / 16 / sizeof *next;
  }
  granules_t *taken = next;
  next += CHUNK_WORDS;
  return taken;
}

static chunk_t *chunk_of(uintptr_t number) {
  _Atomic(chunk_t *) *entry = &root[(number >> LEAF_BITS) & ((1u << ROOT_BITS) - 1)];
  chunk_t *leaf = atomic_load_explicit(entry, memory_order_acquire);
  if (leaf == NULL) {
    chunk_t *fresh = pages_take(sizeof(chunk_t) << LEAF_BITS);
    if (atomic_compare_exchange_strong(entry, &leaf, fresh)) leaf = fresh;
  }
  return &leaf[number & ((1u << LEAF_BITS) - 1)];
}

static granules_t *chunk_granules(chunk_t *chunk) {
  granules_t *granules = atomic_load_explicit(&chunk->granules, memory_order_acquire);
  if (granules == NULL) {
    granules_t *fresh = granules_take();
    if (atomic_compare_exchange_strong(&chunk->granules, &granules, fresh)) granules = fresh;
  }
  return granules;
}

/* The bits of word `word` that belong to granules [first, last]. */
static uint64_t word_mask(size_t word, size_t first, size_t last) {
  size_t low = word * WORD_GRANULES;
  uint64_t mask = ~UINT64_C(0);
  if (first > low) mask &= ~UINT64_C(0) << (first - low);
  if (last < low + WORD_GRANULES - 1) mask &= ~UINT64_C(0) >> (low + WORD_GRANULES - 1 - last);
  return mask;
}

static bool granules_enter(chunk_t *chunk, size_t first, size_t last) {
  bool good = (atomic_fetch_add(&chunk->blocks, 1) & CHUNK_FULL) == 0;
  granules_t *granules = chunk_granules(chunk);
  for (size_t word = first / WORD_GRANULES; word <= last / WORD_GRANULES; word++) {
    uint64_t mask = word_mask(word, first, last);
    good = good && (atomic_fetch_or(&granules[word], mask) & mask) == 0;
  }
  return good;
}

static bool granules_remove(chunk_t *chunk, size_t first, size_t last) {
  bool good = true;
  granules_t *granules = chunk_granules(chunk);
  for (size_t word = first / WORD_GRANULES; word <= last / WORD_GRANULES; word++) {
    uint64_t mask = word_mask(word, first, last);
    good = good && (atomic_fetch_and(&granules[word], ~mask) & mask) == mask;
  }
  uint32_t blocks = atomic_fetch_sub(&chunk->blocks, 1);
  return good && blocks != 0 && (blocks & CHUNK_FULL) == 0;
}

static bool chunk_change(chunk_t *chunk, uint32_t from, uint32_t to) { return atomic_compare_exchange_strong(&chunk->blocks, &from, to); }

static bool ranges_walk(const void *start, size_t size, bool enter) {
  uintptr_t first = (uintptr_t)start >> GRANULE_BITS;
  uintptr_t last = ((uintptr_t)start + (size > 0 ? size - 1 : 0)) >> GRANULE_BITS;
  bool good = ((uintptr_t)start & 15) == 0;
  for (uintptr_t granule = first; granule <= last;) {
    chunk_t *chunk = chunk_of(granule / CHUNK_GRANULES);
    size_t low = granule % CHUNK_GRANULES;
    size_t high = last - granule < CHUNK_GRANULES - 1 - low ? low + (size_t)(last - granule) : CHUNK_GRANULES - 1;
    bool whole = low == 0 && high == CHUNK_GRANULES - 1;
    bool done = whole   ? chunk_change(chunk, enter ? 0 : CHUNK_FULL, enter ? CHUNK_FULL : 0)
                : enter ? granules_enter(chunk, low, high)
                        : granules_remove(chunk, low, high);
    good = good && done;
    granule += high - low + 1;
  }
  return good;
}

bool ranges_enter(const void *start, size_t size) { return ranges_walk(start, size, true); }
bool ranges_remove(const void *start, size_t size) { return ranges_walk(start, size, false); }
