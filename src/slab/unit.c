#include "slab/unit.h"

#include <string.h>

#include "space/ledger.h"
#include "space/purge.h"
#include "space/span.h"
#include "space/split.h"
#include "space/dontfork.h"

static void unit_enter(uint32_t number, uint32_t head, unit_kind_t kind, unsigned size_class) {
  unit_t *unit = unit_at(number);
  unit->head = head;
  store_relaxed(&unit->size_class, (uint8_t)size_class);
  store_release(&unit->kind, (uint8_t)kind);
}

void units_enter(uint32_t start, uint32_t units, unit_kind_t kind, unsigned size_class) {
  for (uint32_t i = units; i-- > 0;) {
    store_relaxed(&unit_at(start + i)->units, units);
    unit_enter(start + i, start, i == 0 ? kind : UNIT_INSIDE, size_class);
  }
}

void units_leave(uint32_t start, uint32_t units) {
  for (uint32_t i = 0; i < units; i++) store_release(&unit_at(start + i)->kind, (uint8_t)UNIT_FREE);
}

void units_unadvise(unit_t *first, uint32_t units) {
  uint32_t of = load_relaxed(&first->units);
  if (HAK_LIKELY(!first->notified)) return;
  os_dump(region_address(unit_number(first) + of - units), units * HAK_UNIT);
  first->notified = units < of;
}

void units_extend(unit_t *first, uint32_t from, uint32_t to) {
  uint32_t start = unit_number(first);
  for (uint32_t i = from; i < to; i++) unit_enter(start + i, start, UNIT_INSIDE, CLASS_NONE);
  store_relaxed(&first->units, to);
}

/* --- inaccessible units ------------------------------------------------------------------- */

static _Atomic uint64_t left_out;

uint64_t guards_left_out(void) { return load_relaxed(&left_out); }

HAK_COLD void units_clear(uint32_t start, uint32_t units) {
  if (purge_span(start, units)) return;
  bool there = !dontfork_seen() || dontfork_map(region_address(start), units * HAK_UNIT);
  if (there) memset(region_address(start), 0, units * HAK_UNIT);
}

void units_enter_guard(uint32_t start, uint32_t units) { units_enter(start, units, UNIT_GUARD, CLASS_NONE); }

HAK_COLD void units_guard(uint32_t start, uint32_t units) {
  unit_t *first = unit_at(start);
  first->guard = OS_OPEN;
  units_enter_guard(start, units);
  ledger_note_guards(units);
  bool may_split = split_take(SPLIT_GUARD);
  first->guard = (uint8_t)os_guard(region_address(start), units * HAK_UNIT, may_split);
  if (may_split && first->guard != OS_SPLIT) split_give(SPLIT_GUARD);
  if (first->guard == OS_OPEN) add_relaxed(&left_out, 1);
}

os_guard_t units_guard_beside(uint32_t unit, size_t from, size_t to, uint32_t guard) {
  os_guard_t made = os_guard((char *)region_address(unit) + from, to - from, unit_at(guard)->guard != OS_OPEN);
  return made == OS_SPLIT ? OS_LIGHT : made;
}

HAK_COLD void units_unguard(uint32_t start, uint32_t units) {
  unit_t *first = unit_at(start);
  uint8_t guard = first->guard;
  if (!os_unguard(region_address(start), units * HAK_UNIT)) return;
  if (guard == OS_OPEN) units_clear(start, units);
  if (guard == OS_SPLIT) split_give(SPLIT_GUARD);
  ledger_note_guards(-(int64_t)units);
  units_leave(start, units);
  span_free(start, units);
}
