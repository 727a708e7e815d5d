#include "slab/kept.h"

#include "kit/fault.h"
#include "space/span.h"

/* A word has the span's units in the upper half; in the lower whether kept_age has seen it, and the span's first unit plus 1. */
#define COLD ((uint64_t)1 << 31)
_Static_assert(HAK_REGION_MAX / HAK_UNIT < COLD, "a unit's number leaves room for the flag");

static uint64_t word_of(uint32_t unit, uint32_t units) { return (uint64_t)units << 32 | ((uint64_t)unit + 1); }
static uint32_t word_unit(uint64_t word) { return (uint32_t)(word & (COLD - 1)) - 1; }
static uint32_t word_units(uint64_t word) { return (uint32_t)(word >> 32); }

/* The same word may have gone and come again meanwhile: then it leads to the same span. */
static bool word_change(_Atomic uint64_t *at, uint64_t from, uint64_t to) {
  return atomic_compare_exchange_strong_explicit(at, &from, to, memory_order_acq_rel, memory_order_relaxed);
}

static void span_give(uint64_t word) {
  units_leave(word_unit(word), word_units(word));
  span_free(word_unit(word), word_units(word));
}

/* The span that was put last comes first, then mostly the one that was put before it. */
uint32_t kept_take(kept_t *kept, uint32_t units) {
  uint32_t row = units % KEPT_ROWS, top = kept->top[row];
  for (unsigned i = 1; i <= KEPT_WAYS; i++) {
    uint32_t way = (top - i) % KEPT_WAYS;
    _Atomic uint64_t *at = &kept->kept_spans[row * KEPT_WAYS + way];
    uint64_t word = load_relaxed(at);
    if (word_units(word) != units || !word_change(at, word, 0)) continue;
    kept->bound -= units;
    kept->top[row] = (uint8_t)way;
    return word_unit(word);
  }
  return SPAN_NONE;
}

/* Whether `units` more make no more than `most`. */
static bool has_room(kept_t *kept, uint32_t units, uint32_t most) {
  uint32_t released = load_relaxed(&kept->released);
  if (HAK_LIKELY(kept->bound + units <= most)) return true;
  if (kept->counted == released) return false;
  kept->counted = released;
  kept->bound = kept_units(kept);
  return kept->bound + units <= most;
}

uint32_t kept_put(kept_t *kept, unit_t *first, uint32_t most) {
  uint32_t units = load_relaxed(&first->units);
  if (!has_room(kept, units, most)) return 0;
  uint32_t row = units % KEPT_ROWS, top = kept->top[row];
  uint32_t bound = kept->bound += units; /* first: a signal handler may take the span as soon as it is there */
  for (unsigned i = 0; i < KEPT_WAYS; i++) {
    uint32_t way = (top + i) % KEPT_WAYS;
    _Atomic uint64_t *at = &kept->kept_spans[row * KEPT_WAYS + way];
    if (load_relaxed(at) != 0) continue;
    store_relaxed(&first->kind, (uint8_t)UNIT_KEPT);
    if (word_change(at, 0, word_of(unit_number(first), units))) {
      kept->top[row] = (uint8_t)(way + 1);
      return bound;
    }
    store_relaxed(&first->kind, (uint8_t)UNIT_LARGE); /* a signal handler has taken the room */
  }
  kept->bound -= units;
  return 0;
}

bool kept_release(kept_t *kept) {
  bool any = false;
  for (unsigned i = 0; i < KEPT_MOST; i++) {
    uint64_t word = load_relaxed(&kept->kept_spans[i]);
    if (word == 0 || !word_change(&kept->kept_spans[i], word, 0)) continue;
    span_give(word);
    any = true;
  }
  if (any) add_relaxed(&kept->released, 1);
  return any;
}

uint32_t kept_age(kept_t *kept) {
  uint32_t given = 0;
  for (unsigned i = 0; i < KEPT_MOST; i++) {
    uint64_t word = load_relaxed(&kept->kept_spans[i]);
    if (word == 0 || !word_change(&kept->kept_spans[i], word, (word & COLD) != 0 ? 0 : word | COLD)) continue;
    if ((word & COLD) == 0) continue;
    span_give(word);
    given += word_units(word);
  }
  add_relaxed(&kept->released, 1);
  return given;
}

uint32_t kept_units(const kept_t *kept) {
  uint32_t units = 0;
  for (unsigned i = 0; i < KEPT_MOST; i++) units += word_units(load_relaxed(&kept->kept_spans[i]));
  return units;
}

HAK_COLD void kept_forget(kept_t *kept) {
  for (unsigned i = 0; i < KEPT_MOST; i++) store_relaxed(&kept->kept_spans[i], 0);
  kept->bound = 0;
}

HAK_AUDITED void kept_audit_alone(const kept_t *kept) {
  for (unsigned i = 0; i < KEPT_MOST; i++) {
    uint64_t word = load_relaxed(&kept->kept_spans[i]);
    if (word == 0) continue;
    const unit_t *first = unit_at(word_unit(word));
    bool known = load_relaxed(&first->kind) == UNIT_KEPT && load_relaxed(&first->units) == word_units(word);
    AUDIT(known || load_relaxed(&kept->kept_spans[i]) != word, region_address(word_unit(word)),
          "what a thread keeps is no span of that kind");
  }
}
