#include "slab/large.h"

#include <string.h>

#include "kit/options.h"
#include "os/os.h"
#include "space/huge.h"
#include "space/move.h"
#include "space/purge.h"
#include "space/span.h"

_Atomic uint64_t large_alloc_count, large_free_count;

size_t large_good_size(size_t size) { return size > PTRDIFF_MAX ? 0 : bits_round_up(size, os_page_size()); }

static uint32_t units_of(size_t bytes) { return (uint32_t)((bytes + HAK_UNIT - 1) >> HAK_UNIT_SHIFT); }

static uint32_t large_span(size_t bytes, size_t align, span_use_t use, bool *zero) {
  uint32_t units = units_of(bytes);
  uint64_t align_units = align > HAK_UNIT ? align >> HAK_UNIT_SHIFT : 1;
  /* Large blocks start at a huge page if that costs nothing. */
  if (bytes >= HAK_SUPERSLAB && align_units < HAK_UNITS_PER_SUPERSLAB) {
    uint32_t unit = span_alloc(units, HAK_UNITS_PER_SUPERSLAB, use, zero);
    if (unit != SPAN_NONE) return unit;
  }
  return span_alloc(units, align_units, use, zero);
}

static void large_clear(uint32_t unit, size_t bytes) {
  int64_t kb = option_get(OPTION_zero_kb);
  if (kb != 0 && bytes >> 10 >= (size_t)kb && purge_span(unit, units_of(bytes))) return;
  memset(region_address(unit), 0, bytes);
}

void *large_alloc(size_t size, size_t align, span_use_t use) {
  size_t bytes = large_good_size(size);
  if (bytes == 0 || bytes > HAK_REGION_MAX) return NULL;
  bool zero;
  uint32_t unit = large_span(bytes, align, use, &zero);
  if (unit == SPAN_NONE) return NULL;
  if (use == SPAN_ZEROED && !zero) large_clear(unit, bytes);
  slab_t *slab = slab_of(unit);
  atomic_set(&slab->bytes, bytes);
  span_enter(unit, units_of(bytes), SLAB_LARGE, CLASS_NONE);
  void *block = region_address(unit);
  if (HAK_CHECKS) region_set_live(block);
  atomic_count(&large_alloc_count, 1);
  return block;
}

void large_free(slab_t *slab) {
  uint32_t unit = slab_unit(slab);
  uint32_t units = atomic_seen(&slab->units);
  huge_learn(unit, units);
  span_leave(unit, units);
  span_free(unit, units);
  atomic_count(&large_free_count, 1);
}

/* Enters units [from, to) as further units of the span. */
static void span_extend(slab_t *slab, uint32_t from, uint32_t to) {
  uint32_t start = slab_unit(slab);
  for (uint32_t i = from; i < to; i++) {
    slab_t *inside = slab_of(start + i);
    inside->head = start;
    atomic_set(&inside->size_class, (uint8_t)CLASS_NONE);
    atomic_publish(&inside->kind, (uint8_t)SLAB_INSIDE);
  }
  atomic_set(&slab->units, to);
}

void large_move(slab_t *from, void *to) {
  size_t bytes = atomic_seen(&from->bytes);
  uint32_t start = slab_unit(from);
  uint32_t moved = move_pages(start, (uint32_t)region_unit(to), (uint32_t)(bytes >> HAK_UNIT_SHIFT));
  size_t done = (size_t)moved << HAK_UNIT_SHIFT;
  memcpy((char *)to + done, (char *)region_address(start) + done, bytes - done);
}

bool large_resize(slab_t *slab, size_t size) {
  size_t bytes = large_good_size(size);
  if (size <= HAK_SMALL_MAX || bytes == 0 || bytes > HAK_REGION_MAX) return false;
  uint32_t start = slab_unit(slab);
  uint32_t have = atomic_seen(&slab->units);
  uint32_t want = units_of(bytes);
  if (want > have) {
    if (!span_claim(start + have, want - have)) return false;
    span_extend(slab, have, want);
  } else if (want < have) {
    atomic_set(&slab->units, want);
    span_leave(start + want, have - want);
    span_free(start + want, have - want);
  }
  atomic_set(&slab->bytes, bytes);
  return true;
}
