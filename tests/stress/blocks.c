/* blocks.c - see blocks.h. */
#include "blocks.h"

#include <malloc.h>
#include <string.h>

#include "content.h"
#include "harness.h"
#include "ranges.h"
#include "names.h"

enum {
  SMALLEST_ALIGNMENT = 16,
  WORD = sizeof(uint64_t),
  PAGE = 4096, /* the smallest page size: boundaries of larger pages are among these */
  EDGE = 64,
  BOUNDARIES = 8,
  SAMPLES = 4,
  PARTS = 2 + BOUNDARIES + SAMPLES,
  WHOLE_SHARE = 16,
  WHOLE_SHARE_ANY = 64,
};

static const size_t always_whole = 32 * KIB, often_whole = MIB;

/* A part of a block's content: the offsets [from, to), `from` a multiple of a word. */
typedef struct part {
  size_t from, to;
} part_t;

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

static bool block_is_whole(const block_t *block) {
  return block->usable <= always_whole || (block->usable <= often_whole && block->id % WHOLE_SHARE == 0) ||
         block->id % WHOLE_SHARE_ANY == 0;
}

/* The words before and behind a page boundary: the first one, the last one, or one chosen by the id. */
static part_t boundary_part(const block_t *block, unsigned i) {
  size_t first = PAGE - (uintptr_t)block->start % PAGE;
  size_t last = (block->usable - WORD - first) / PAGE;
  size_t number = i == 0 ? 0 : i == 1 ? last : rng_mix(block->id + i) % (last + 1);
  size_t offset = first + number * PAGE;
  return (part_t){offset - WORD, offset + WORD};
}

static part_t sample_part(const block_t *block, unsigned i) {
  size_t offset = (size_t)(rng_mix(block->id - i) % (block->usable / WORD)) * WORD;
  return (part_t){offset, offset + WORD};
}

/* Stores the parts of the block that are written and checked; returns their number. */
static unsigned block_parts(const block_t *block, part_t *parts) {
  unsigned count = 0;
  if (block_is_whole(block)) {
    parts[count++] = (part_t){0, block->usable};
    return count;
  }
  parts[count++] = (part_t){0, EDGE};
  for (unsigned i = 0; i < BOUNDARIES; i++) parts[count++] = boundary_part(block, i);
  for (unsigned i = 0; i < SAMPLES; i++) parts[count++] = sample_part(block, i);
  parts[count++] = (part_t){(block->usable - EDGE) & ~(size_t)(WORD - 1), block->usable};
  return count;
}

static void block_fill(const block_t *block) {
  part_t parts[PARTS];
  unsigned count = block_parts(block, parts);
  for (unsigned i = 0; i < count; i++) content_write(block->start, parts[i].from, parts[i].to, block->id);
}

static _Noreturn void block_fail(const block_t *block, const unsigned char *start, size_t offset, const char *when) {
  uint64_t found = 0;
  memcpy(&found, start + offset, least(block->usable - offset, WORD));
  stress_fail("%s: block %p (asked %zu, usable %zu, alignment %zu, was at %p) changed at offset %zu: %016llx, not %016llx", when,
              (const void *)start, block->size, block->usable, block->alignment, (void *)block->start, offset, (unsigned long long)found,
              (unsigned long long)content_word(block->id, offset));
}

void block_check(const block_t *block, const unsigned char *start, size_t length, const char *when) {
  part_t parts[PARTS];
  unsigned count = block_parts(block, parts);
  for (unsigned i = 0; i < count; i++) {
    size_t to = least(parts[i].to, length);
    size_t offset = parts[i].from < to ? content_differs(start, parts[i].from, to, block->id) : CONTENT_SAME;
    if (offset != CONTENT_SAME) block_fail(block, start, offset, when);
  }
}

void block_return(const block_t *block) {
  if (!ranges_enter(block->start, block->usable))
    stress_fail("block %p (asked %zu, usable %zu, alignment %zu) overlaps a live block", (void *)block->start, block->size, block->usable,
                block->alignment);
}

void block_enter(block_t *block, void *start, size_t size, size_t alignment, uint64_t id) {
  *block = (block_t){.start = start, .size = size, .alignment = alignment, .id = id};
  if (((uintptr_t)start & (alignment - 1)) != 0 || ((uintptr_t)start & (SMALLEST_ALIGNMENT - 1)) != 0)
    stress_fail("block %p of %zu bytes is not aligned to %zu", start, size, alignment);
  block->usable = malloc_usable_size(start);
  if (block->usable < size) stress_fail("block %p of %zu bytes has a usable size of %zu", start, size, block->usable);
  block_return(block);
  block_fill(block);
}

void block_leave(const block_t *block) {
  block_check(block, block->start, block->usable, "before a free");
  size_t usable = malloc_usable_size(block->start);
  if (usable != block->usable)
    stress_fail("block %p of %zu bytes had a usable size of %zu, now %zu", (void *)block->start, block->size, block->usable, usable);
  if (!ranges_remove(block->start, block->usable))
    stress_fail("block %p (asked %zu, usable %zu) was overlapped while live", (void *)block->start, block->size, block->usable);
}

void bytes_check_zero(const unsigned char *start, size_t from, size_t to, const char *call) {
  static const unsigned char zeros[PAGE];
  for (; from < to; from += least(to - from, PAGE)) {
    if (memcmp(start + from, zeros, least(to - from, PAGE)) == 0) continue;
    while (start[from] == 0) from++;
    stress_fail("%s gave block %p of %zu bytes with byte %02x at offset %zu", call, (const void *)start, to, start[from], from);
  }
}
