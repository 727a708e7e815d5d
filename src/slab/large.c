#include "slab/large.h"

#include "os/os.h"
#include "space/span.h"

_Atomic uint64_t large_alloc_count, large_free_count;

size_t large_good_size(size_t size) { return size > PTRDIFF_MAX ? 0 : bits_round_up(size, os_page_size()); }

static uint32_t units_of(size_t bytes) { return (uint32_t)((bytes + HAK_UNIT - 1) >> HAK_UNIT_SHIFT); }

void *large_alloc(size_t size, size_t align, bool *zero) {
  size_t bytes = large_good_size(size);
  if (bytes == 0 || bytes > HAK_REGION_MAX) return NULL;
  uint32_t units = units_of(bytes);
  uint64_t align_units = align > HAK_UNIT ? align >> HAK_UNIT_SHIFT : 1;
  uint32_t unit = SPAN_NONE;
  /* Large blocks start at a huge page if that costs nothing. */
  if (bytes >= HAK_SUPERSLAB && align_units < HAK_UNITS_PER_SUPERSLAB) unit = span_alloc(units, HAK_UNITS_PER_SUPERSLAB, zero);
  if (unit == SPAN_NONE) unit = span_alloc(units, align_units, zero);
  if (unit == SPAN_NONE) return NULL;
  slab_t *slab = slab_of(unit);
  atomic_set(&slab->bytes, bytes);
  span_enter(unit, units, SLAB_LARGE, CLASS_NONE);
  void *block = region_address(unit);
  if (HAK_CHECKS) region_set_live(block);
  atomic_count(&large_alloc_count, 1);
  return block;
}

void large_free(slab_t *slab) {
  uint32_t unit = slab_unit(slab);
  uint32_t units = atomic_seen(&slab->units);
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

bool large_resize(slab_t *slab, size_t size, bool *zero) {
  size_t bytes = large_good_size(size);
  if (size <= HAK_SMALL_MAX || bytes == 0 || bytes > HAK_REGION_MAX) return false;
  uint32_t start = slab_unit(slab);
  uint32_t have = atomic_seen(&slab->units);
  uint32_t want = units_of(bytes);
  *zero = false;
  if (want > have) {
    if (!span_claim(start + have, want - have, zero)) return false;
    /* Whatever lay between the old usable size and its last unit's end was never handed out zeroed. */
    if (atomic_seen(&slab->bytes) % HAK_UNIT != 0) *zero = false;
    span_extend(slab, have, want);
  } else if (want < have) {
    atomic_set(&slab->units, want);
    span_leave(start + want, have - want);
    span_free(start + want, have - want);
  }
  atomic_set(&slab->bytes, bytes);
  return true;
}
