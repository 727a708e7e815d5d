#include "slab/unit.h"

static void unit_enter(uint32_t number, uint32_t head, unit_kind_t kind, unsigned size_class) {
  unit_t *unit = unit_at(number);
  unit->head = head;
  store_relaxed(&unit->size_class, (uint8_t)size_class);
  store_release(&unit->kind, (uint8_t)kind);
}

void span_enter(uint32_t start, uint32_t units, unit_kind_t kind, unsigned size_class) {
  for (uint32_t i = units; i-- > 0;) {
    store_relaxed(&unit_at(start + i)->units, units);
    unit_enter(start + i, start, i == 0 ? kind : UNIT_INSIDE, size_class);
  }
}

void span_leave(uint32_t start, uint32_t units) {
  for (uint32_t i = 0; i < units; i++) store_release(&unit_at(start + i)->kind, (uint8_t)UNIT_FREE);
}

void span_extend(unit_t *first, uint32_t from, uint32_t to) {
  uint32_t start = unit_number(first);
  for (uint32_t i = from; i < to; i++) unit_enter(start + i, start, UNIT_INSIDE, CLASS_NONE);
  store_relaxed(&first->units, to);
}
