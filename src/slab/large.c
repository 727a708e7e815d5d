#include "slab/large.h"

#include <string.h>

#include "kit/fault.h"
#include "kit/options.h"
#include "os/os.h"
#include "slab/audit.h"
#include "slab/guard.h"
#include "space/huge.h"
#include "space/move.h"
#include "space/purge.h"
#include "space/span.h"
#include "space/split.h"

_Atomic uint64_t large_alloc_count, large_free_count;

size_t large_good_size(size_t size) { return size > PTRDIFF_MAX ? 0 : bits_round_up(size, os_page_size()); }

static uint32_t units_of(size_t bytes) { return (uint32_t)((bytes + HAK_UNIT - 1) >> HAK_UNIT_SHIFT); }

static void large_clear(uint32_t unit, size_t bytes) {
  int64_t kb = option_get(OPTION_zero_kb);
  if (kb != 0 && bytes >> 10 >= (size_t)kb && purge_span(unit, units_of(bytes))) return;
  memset(region_address(unit), 0, bytes);
}

/* --- between guards: the secure library -------------------------------------------------- */

/* Inaccessible are a unit before a block, what its last unit has beyond its bytes, a unit behind it, and the
 * block itself, once freed, until as many others have been freed after it. */
#define FREED_MOST 64
static _Atomic uint32_t freed_units[FREED_MOST]; /* first units, 0 for none: unit 0 is before a block */
static _Atomic uint32_t freed_count;

/* `units` at a multiple of the alignment, between two more. */
static uint32_t guarded_place(uint32_t units, size_t align, span_use_t use, bool *zero) {
  if (align > HAK_REGION_MAX) return SPAN_NONE;
  uint32_t unit;
  if (align > HAK_UNIT) {
    unit = span_alloc(units + 1, align >> HAK_UNIT_SHIFT, use, zero);
    if (unit == SPAN_NONE || (unit > 0 && span_claim(unit - 1, 1))) return unit;
    span_free(unit, units + 1);
  }
  /* What is between one multiple and the next is free with what holds both. */
  uint32_t step = align > HAK_UNIT ? (uint32_t)(align >> HAK_UNIT_SHIFT) : 1;
  unit = span_alloc(step + units + 1, step, use, zero);
  if (unit == SPAN_NONE) return SPAN_NONE;
  if (step > 1) span_free(unit, step - 1);
  return unit + step;
}

static uint32_t guarded_span(size_t bytes, size_t align, span_use_t use, bool *zero) {
  uint32_t units = units_of(bytes);
  uint32_t unit = guarded_place(units, align, use, zero);
  if (unit == SPAN_NONE) return SPAN_NONE;
  span_guard(unit - 1, 1);
  span_guard(unit + units, 1);
  span_enter(unit, units, UNIT_GUARD, CLASS_NONE); /* until it is one of a block: see span_guard */
  size_t rest = units * HAK_UNIT - bytes;
  unit_at(unit)->guard = rest > 0 ? (uint8_t)span_guard_beside(unit, bytes, units * HAK_UNIT, unit + units) : OS_LIGHT;
  return unit;
}

static void guarded_release(uint32_t unit) {
  uint32_t units = load_relaxed(&unit_at(unit)->units);
  span_unguard(unit, units);
  span_unguard(unit + units, 1);
  span_unguard(unit - 1, 1);
}

/* What is behind its bytes is inaccessible already, or must be cleared with it. */
static void guarded_wait(unit_t *slab) {
  uint32_t unit = unit_number(slab), units = load_relaxed(&slab->units);
  size_t bytes = slab->guard == OS_OPEN ? units * HAK_UNIT : load_relaxed(&slab->bytes);
  slab->guard = OS_OPEN;
  span_enter(unit, units, UNIT_GUARD, CLASS_NONE); /* first: see span_guard */
  slab->guard = (uint8_t)span_guard_beside(unit, 0, bytes, unit + units);
  uint32_t place = atomic_fetch_add_explicit(&freed_count, 1, memory_order_relaxed) % FREED_MOST;
  uint32_t oldest = atomic_exchange(&freed_units[place], unit);
  if (oldest != 0) guarded_release(oldest);
}

/* Grows in place: what was inaccessible behind the block becomes zero bytes of it.  Smaller it only becomes elsewhere. */
static bool guarded_resize(unit_t *slab, size_t bytes) {
  size_t old = load_relaxed(&slab->bytes);
  uint32_t unit = unit_number(slab), have = load_relaxed(&slab->units), want = units_of(bytes);
  if (bytes <= old) return bytes == old;
  if (want > have) {
    if (!span_claim(unit + have + 1, want - have)) return false;
    span_guard(unit + want, 1);
  }
  /* First up to the guard: where the kernel fails, nothing was done but to the new guard. */
  char *block = region_address(unit);
  size_t open = want > have ? (have + 1) * HAK_UNIT : bytes;
  if (!os_unguard(block + old, open - old)) {
    if (want > have) {
      span_unguard(unit + want, 1);
      if (want - have > 1) span_free(unit + have + 1, want - have - 1);
    }
    return false;
  }
  if (slab->guard == OS_OPEN || unit_at(unit + have)->guard == OS_OPEN) memset(block + old, 0, open - old);
  if (want > have) {
    if (unit_at(unit + have)->guard == OS_SPLIT) split_give(SPLIT_GUARD);
    slab->guard = want * HAK_UNIT > bytes ? (uint8_t)span_guard_beside(unit, bytes, want * HAK_UNIT, unit + want) : OS_LIGHT;
    span_extend(slab, have, want);
  }
  return true;
}

bool large_is_whole(const unit_t *slab) {
  const char *at = (const char *)region_address(unit_number(slab)) + large_usable(slab);
  for (size_t left = HAK_SECURE ? slab->left : 0; left > 0; left--) {
    if (*at++ != 0) return false;
  }
  return true;
}

/* Bytes of the last page that are not asked for any more become zero, as the others are. */
static void large_ask(unit_t *slab, size_t size) {
  size_t usable = large_usable(slab);
  if (size < usable) memset((char *)region_address(unit_number(slab)) + size, 0, usable - size);
  slab->left = (uint32_t)(load_relaxed(&slab->bytes) - size);
}

bool large_trim(void) {
  bool any = false;
  for (uint32_t i = 0; HAK_SECURE && i < FREED_MOST; i++) {
    uint32_t unit = atomic_exchange(&freed_units[i], 0);
    if (unit == 0) continue;
    guarded_release(unit);
    any = true;
  }
  return any;
}

HAK_AUDITED void large_audit_alone(void) {
  for (uint32_t i = 0; i < FREED_MOST; i++) {
    uint32_t unit = load_relaxed(&freed_units[i]);
    AUDIT(unit == 0 || load_relaxed(&unit_at(unit)->kind) == UNIT_GUARD, region_address(unit), "a large block that waits is no guard");
  }
}

/* --- side by side ------------------------------------------------------------------------ */

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

/* --- blocks ------------------------------------------------------------------------------ */

bool large_may_fit(size_t size, size_t align) {
  size_t bytes = large_good_size(size);
  if (bytes == 0 || bytes > HAK_REGION_MAX) return false;
  return region_may_hold(units_of(bytes), align > HAK_UNIT ? align >> HAK_UNIT_SHIFT : 1);
}

void *large_alloc(size_t size, size_t align, span_use_t use) {
  size_t bytes = large_good_size(size);
  if (bytes == 0 || bytes > HAK_REGION_MAX) return NULL;
  bool zero;
  uint32_t unit = HAK_SECURE ? guarded_span(bytes, align, use, &zero) : large_span(bytes, align, use, &zero);
  if (unit == SPAN_NONE) return NULL;
  if (use == SPAN_ZEROED && !zero) large_clear(unit, bytes);
  store_relaxed(&unit_at(unit)->bytes, bytes);
  unit_at(unit)->left = (uint32_t)(bytes - size);
  span_enter(unit, units_of(bytes), UNIT_LARGE, CLASS_NONE);
  void *block = region_address(unit);
  if (HAK_CHECKS) region_set_live(block);
  add_relaxed(&large_alloc_count, 1);
  return block;
}

void large_free(unit_t *slab) {
  uint32_t unit = unit_number(slab);
  uint32_t units = load_relaxed(&slab->units);
  add_relaxed(&large_free_count, 1);
  if (HAK_SECURE) {
    guarded_wait(slab);
    return;
  }
  huge_learn(unit, units);
  span_leave(unit, units);
  span_free(unit, units);
}

void large_move(unit_t *from, void *to) {
  size_t bytes = load_relaxed(&from->bytes);
  uint32_t start = unit_number(from);
  uint32_t moved = HAK_SECURE ? 0 : move_pages(start, (uint32_t)region_unit(to), (uint32_t)(bytes >> HAK_UNIT_SHIFT));
  size_t done = (size_t)moved << HAK_UNIT_SHIFT;
  memcpy((char *)to + done, (char *)region_address(start) + done, bytes - done);
}

bool large_resize(unit_t *slab, size_t size) {
  size_t bytes = large_good_size(size);
  if (size <= HAK_SMALL_MAX || bytes == 0 || bytes > HAK_REGION_MAX) return false;
  if (HAK_SECURE) {
    if (!guarded_resize(slab, bytes)) return false;
    if (bytes != load_relaxed(&slab->bytes)) {
      slab->left += (uint32_t)(bytes - load_relaxed(&slab->bytes));
      store_relaxed(&slab->bytes, bytes);
    }
    large_ask(slab, size);
    return true;
  }
  uint32_t start = unit_number(slab);
  uint32_t have = load_relaxed(&slab->units);
  uint32_t want = units_of(bytes);
  if (want > have) {
    if (!span_claim(start + have, want - have)) return false;
    span_extend(slab, have, want);
  } else if (want < have) {
    store_relaxed(&slab->units, want);
    span_leave(start + want, have - want);
    span_free(start + want, have - want);
  }
  store_relaxed(&slab->bytes, bytes);
  return true;
}
