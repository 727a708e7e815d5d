/* blocks.c - see blocks.h. */
#include "blocks.h"

#include <malloc.h>
#include <string.h>

#include "harness.h"
#include "ranges.h"
#include "names.h"

enum {
  SMALLEST_ALIGNMENT = 16,
  EDGE = 64,
  SAMPLES = 8,
  WORD = sizeof(uint64_t),
  THOROUGH_SHARE = 16,
  ZERO_STRIDE = 4096,
};

static const size_t always_whole = 4 * KIB, sometimes_whole = MIB;

static uint64_t content_at(uint64_t id, size_t offset) {
  return (id + offset) * UINT64_C(0x9e3779b97f4a7c15);
}

static bool content_is_whole(const block_t *block) {
  return block->usable <= always_whole || (block->id % THOROUGH_SHARE == 0 && block->usable <= sometimes_whole);
}

/* The i-th sampled offset of a block that is not written whole; a multiple of a word. */
static size_t content_sample(const block_t *block, unsigned i) {
  return (size_t)(rng_mix(block->id + i) % ((block->usable - WORD) / WORD)) * WORD;
}

static void content_write(const block_t *block, size_t from, size_t to) {
  size_t offset = from;
  for (; offset + WORD <= to; offset += WORD) {
    uint64_t word = content_at(block->id, offset);
    memcpy(block->start + offset, &word, WORD);
  }
  uint64_t word = content_at(block->id, offset);
  memcpy(block->start + offset, &word, to - offset);
}

static _Noreturn void content_fail(const block_t *block, const unsigned char *start, size_t offset, const char *when) {
  uint64_t found = 0;
  memcpy(&found, start + offset, block->usable - offset < WORD ? block->usable - offset : WORD);
  stress_fail("%s: block %p (asked %zu, usable %zu, alignment %zu, was at %p) changed at offset %zu: %016llx, not %016llx",
              when, (const void *)start, block->size, block->usable, block->alignment, (void *)block->start, offset,
              (unsigned long long)found, (unsigned long long)content_at(block->id, offset));
}

/* Bytes from `from`, a multiple of a word, up to `to`. */
static void content_compare(const block_t *block, const unsigned char *start, size_t from, size_t to, const char *when) {
  size_t offset = from;
  for (; offset + WORD <= to; offset += WORD) {
    uint64_t word;
    memcpy(&word, start + offset, WORD);
    if (word != content_at(block->id, offset))
      content_fail(block, start, offset, when);
  }
  uint64_t word = content_at(block->id, offset);
  if (offset < to && memcmp(start + offset, &word, to - offset) != 0)
    content_fail(block, start, offset, when);
}

static void content_fill(const block_t *block) {
  if (content_is_whole(block)) {
    content_write(block, 0, block->usable);
    return;
  }
  content_write(block, 0, EDGE);
  content_write(block, (block->usable - EDGE) & ~(size_t)(WORD - 1), block->usable);
  for (unsigned i = 0; i < SAMPLES; i++) {
    size_t offset = content_sample(block, i);
    content_write(block, offset, offset + WORD);
  }
}

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

void block_check(const block_t *block, const unsigned char *start, size_t length, const char *when) {
  if (content_is_whole(block)) {
    content_compare(block, start, 0, least(length, block->usable), when);
    return;
  }
  content_compare(block, start, 0, least(length, EDGE), when);
  size_t edge = (block->usable - EDGE) & ~(size_t)(WORD - 1);
  if (length > edge)
    content_compare(block, start, edge, least(length, block->usable), when);
  for (unsigned i = 0; i < SAMPLES; i++) {
    size_t offset = content_sample(block, i);
    if (offset + WORD <= length)
      content_compare(block, start, offset, offset + WORD, when);
  }
}

void block_return(const block_t *block) {
  if (!ranges_enter(block->start, block->usable))
    stress_fail("block %p (asked %zu, usable %zu, alignment %zu) overlaps a live block", (void *)block->start, block->size,
                block->usable, block->alignment);
}

void block_enter(block_t *block, void *start, size_t size, size_t alignment, uint64_t id) {
  *block = (block_t){.start = start, .size = size, .alignment = alignment, .id = id};
  if (((uintptr_t)start & (alignment - 1)) != 0 || ((uintptr_t)start & (SMALLEST_ALIGNMENT - 1)) != 0)
    stress_fail("block %p of %zu bytes is not aligned to %zu", start, size, alignment);
  block->usable = malloc_usable_size(start);
  if (block->usable < size)
    stress_fail("block %p of %zu bytes has a usable size of %zu", start, size, block->usable);
  block_return(block);
  content_fill(block);
}

void block_leave(const block_t *block) {
  block_check(block, block->start, block->usable, "before a free");
  size_t usable = malloc_usable_size(block->start);
  if (usable != block->usable)
    stress_fail("block %p of %zu bytes had a usable size of %zu, now %zu", (void *)block->start, block->size,
                block->usable, usable);
  if (!ranges_remove(block->start, block->usable))
    stress_fail("block %p (asked %zu, usable %zu) was overlapped while live", (void *)block->start, block->size,
                block->usable);
}

static void zero_fail(const unsigned char *start, size_t offset, size_t size, const char *call) {
  stress_fail("%s gave block %p of %zu bytes with byte %02x at offset %zu", call, (const void *)start, size,
              start[offset], offset);
}

void bytes_check_zero(const unsigned char *start, size_t from, size_t to, uint64_t id, const char *call) {
  static const unsigned char zeros[4096];
  for (size_t offset = from; offset < to;) {
    bool whole = to - from <= sometimes_whole || offset < from + ZERO_STRIDE || to - offset <= 2 * ZERO_STRIDE;
    size_t step = least(to - offset, ZERO_STRIDE);
    size_t skip = whole ? 0 : (size_t)(rng_mix(id) % (step - WORD));
    size_t length = whole ? step : WORD;
    if (memcmp(start + offset + skip, zeros, length) != 0) {
      size_t at = offset + skip;
      while (start[at] == 0)
        at++;
      zero_fail(start, at, to, call);
    }
    offset += step;
  }
}
