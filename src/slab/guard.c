#include "slab/guard.h"

#include <string.h>

#include "os/os.h"
#include "space/purge.h"
#include "space/span.h"
#include "space/split.h"

static _Atomic uint64_t left_out;

uint64_t guard_left_out(void) { return load_relaxed(&left_out); }

void span_clear(uint32_t start, uint32_t units) {
  if (!purge_span(start, units)) memset(region_address(start), 0, units * HAK_UNIT);
}

void span_guard(uint32_t start, uint32_t units) {
  unit_t *slab = unit_at(start);
  slab->guard = OS_OPEN;
  span_enter(start, units, UNIT_GUARD, CLASS_NONE); /* first: a fork's child takes what is in no span for usable */
  bool may_split = split_take(SPLIT_GUARD);
  slab->guard = (uint8_t)os_guard(region_address(start), units * HAK_UNIT, may_split);
  if (may_split && slab->guard != OS_SPLIT) split_give(SPLIT_GUARD);
  if (slab->guard == OS_OPEN) add_relaxed(&left_out, 1);
}

os_guard_t span_guard_beside(uint32_t unit, size_t from, size_t to, uint32_t guard) {
  os_guard_t made = os_guard((char *)region_address(unit) + from, to - from, unit_at(guard)->guard != OS_OPEN);
  return made == OS_SPLIT ? OS_LIGHT : made;
}

void span_unguard(uint32_t start, uint32_t units) {
  unit_t *slab = unit_at(start);
  uint8_t guard = slab->guard;
  if (!os_unguard(region_address(start), units * HAK_UNIT)) return;
  if (guard == OS_OPEN) span_clear(start, units);
  if (guard == OS_SPLIT) split_give(SPLIT_GUARD);
  span_leave(start, units);
  span_free(start, units);
}
