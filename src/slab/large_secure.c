#include "slab/large_secure.h"

#include <string.h>

#include "os/memcheck.h"
#include "os/os.h"
#include "kit/fault.h"
#include "space/ledger.h"
#include "space/span.h"
#include "space/split.h"
#include "space/dontfork.h"

/* Inaccessible are the unit before a block, the rest of its last unit behind its bytes, the unit behind it, and the block itself, once
 * freed, until this many others have been freed after it. */
#define FREED_MOST 64
static _Atomic uint32_t freed_units[FREED_MOST]; /* first units, 0 for none: unit 0 can only be before a block */
static _Atomic uint32_t freed_count;
/* Pages that the program has locked stay resident while they wait, so fewer of such blocks do. */
#define STAYING_UNITS_MOST 256
/* Blocks that have waited stay inaccessible, with the units beside them, for a block of as many units: that takes two system calls, to open
 * one and to close the other, instead of seven.  Only light guards can be opened in part. */
#define READY_MOST 16
#define READY_UNITS 64
static HAK_ALIGNED(HAK_CACHE_LINE) _Atomic uint32_t ready_units[READY_MOST]; /* as freed_units */

/* A span of `units` units at a multiple of the alignment, between two more units. */
static uint32_t span_between(uint32_t units, size_t align, span_use_t use, bool *zero) {
  if (align > HAK_REGION_MAX) return SPAN_NONE;
  uint32_t unit;
  if (align > HAK_UNIT) {
    unit = span_alloc(units + 1, align >> HAK_UNIT_SHIFT, use, zero);
    if (unit == SPAN_NONE || (unit > 0 && span_claim(unit - 1, 1))) return unit;
    span_free(unit, units + 1);
  }
  /* Take a span from the multiple before on, and free all that lies between but the unit before the block. */
  uint32_t step = align > HAK_UNIT ? (uint32_t)(align >> HAK_UNIT_SHIFT) : 1;
  unit = span_alloc(step + units + 1, step, use, zero);
  if (unit == SPAN_NONE) return SPAN_NONE;
  if (step > 1) span_free(unit, step - 1);
  return unit + step;
}

static void wait_end(uint32_t unit) {
  uint32_t units = load_relaxed(&unit_at(unit)->units);
  units_unguard(unit + units, 1); /* from the ends: opened first, its middle would take mappings */
  units_unguard(unit - 1, 1);
  units_unguard(unit, units);
}

/* Keeps a block that has waited; false if it is to go back. */
static bool ready_keep(uint32_t unit) {
  const unit_t *first = unit_at(unit);
  uint32_t units = load_relaxed(&first->units), none = 0;
  bool light = first->guard == OS_LIGHT && unit_at(unit - 1)->guard == OS_LIGHT && unit_at(unit + units)->guard == OS_LIGHT;
  if (units > READY_UNITS || !light || memcheck_on()) return false;
  for (uint32_t i = 0; i < READY_MOST; i++, none = 0) {
    if (load_relaxed(&ready_units[i]) == 0 && atomic_compare_exchange_strong(&ready_units[i], &none, unit)) return true;
  }
  return false;
}

/* A block that was kept, whose bytes are accessible now, and zero; SPAN_NONE if there is none. */
static uint32_t ready_take(uint32_t units, size_t bytes) {
  if (HAK_UNLIKELY(ledger_cap() != LEDGER_NO_CAP) && !ledger_permits(units)) return SPAN_NONE;
  for (uint32_t i = 0; i < READY_MOST; i++) {
    uint32_t unit = load_relaxed(&ready_units[i]);
    if (unit == 0 || load_relaxed(&unit_at(unit)->units) != units || !atomic_compare_exchange_strong(&ready_units[i], &unit, 0)) continue;
    /* Now that it is ours, its size is read again: it may have been taken and have come back with another. */
    if (load_relaxed(&unit_at(unit)->units) == units && os_unguard(region_address(unit), bytes)) {
      ledger_note_guards(-(int64_t)units);
      return unit;
    }
    wait_end(unit);
  }
  return SPAN_NONE;
}

uint32_t large_secure_span(size_t bytes, size_t align, span_use_t use, bool *zero) {
  uint32_t units = units_of(bytes);
  uint32_t unit = align <= HAK_UNIT ? ready_take(units, bytes) : SPAN_NONE;
  if (unit != SPAN_NONE) {
    *zero = true;
    return unit;
  }
  unit = span_between(units, align, use, zero);
  if (unit == SPAN_NONE) return SPAN_NONE;
  units_guard(unit - 1, 1);
  units_guard(unit + units, 1);
  units_enter_guard(unit, units); /* until it is entered as a block */
  size_t rest = units * HAK_UNIT - bytes;
  unit_at(unit)->guard = rest > 0 ? (uint8_t)units_guard_beside(unit, bytes, units * HAK_UNIT, unit + units) : OS_LIGHT;
  return unit;
}

static bool stays_resident(uint32_t unit) { return os_resident(region_address(unit), 1) != 0; }

/* The waiting of the oldest blocks that stay resident ends, where there is too much of them. */
static HAK_COLD void staying_bound(void) {
  uint32_t newest = load_relaxed(&freed_count) - 1, total = 0;
  for (uint32_t age = 0; age < FREED_MOST; age++) {
    _Atomic uint32_t *place = &freed_units[(newest - age) % FREED_MOST];
    uint32_t unit = load_relaxed(place);
    if (unit == 0 || !stays_resident(unit)) continue;
    total += load_relaxed(&unit_at(unit)->units);
    if (total > STAYING_UNITS_MOST && atomic_compare_exchange_strong(place, &unit, 0)) wait_end(unit);
  }
}

/* What lies behind the block's bytes is inaccessible already, or must be cleared with the block. */
void large_secure_free(unit_t *first) {
  uint32_t unit = unit_number(first), units = load_relaxed(&first->units);
  size_t bytes = first->guard == OS_OPEN ? units * HAK_UNIT : load_relaxed(&first->bytes);
  if (dontfork_seen() && !dontfork_map(region_address(unit), bytes)) return; /* it stays as it is, and is lost */
  os_guard_t guard = units_guard_beside(unit, 0, bytes, unit + units); /* first: while it is a block a fork's child can do it again */
  units_enter_guard(unit, units);
  first->guard = (uint8_t)guard;
  ledger_note_guards(units);
  uint32_t place = atomic_fetch_add_explicit(&freed_count, 1, memory_order_relaxed) % FREED_MOST;
  uint32_t oldest = atomic_exchange(&freed_units[place], unit);
  if (oldest != 0 && !ready_keep(oldest)) wait_end(oldest);
  if (HAK_UNLIKELY(os_guarded_stay()) && stays_resident(unit)) staying_bound();
}

/* Grows in place: what was inaccessible behind the block becomes zero bytes of it.  A block shrinks only by moving. */
static bool grow_in_place(unit_t *first, size_t bytes) {
  size_t old = load_relaxed(&first->bytes);
  uint32_t unit = unit_number(first), have = load_relaxed(&first->units), want = units_of(bytes);
  if (bytes <= old) return bytes == old;
  if (want > have) {
    if (!span_claim(unit + have + 1, want - have)) return false;
    units_guard(unit + want, 1);
  }
  /* First up to the guard: if the kernel fails, nothing was done but the new guard. */
  char *block = region_address(unit);
  size_t open = want > have ? (have + 1) * HAK_UNIT : bytes;
  if (!os_unguard(block + old, open - old)) {
    if (want > have) {
      units_unguard(unit + want, 1);
      if (want - have > 1) span_free(unit + have + 1, want - have - 1);
    }
    return false;
  }
  if (first->guard == OS_OPEN || unit_at(unit + have)->guard == OS_OPEN) memset(block + old, 0, open - old);
  if (want > have) {
    if (unit_at(unit + have)->guard == OS_SPLIT) split_give(SPLIT_GUARD);
    first->guard = want * HAK_UNIT > bytes ? (uint8_t)units_guard_beside(unit, bytes, want * HAK_UNIT, unit + want) : OS_LIGHT;
    units_extend(first, have, want);
    ledger_note_guards(-1); /* the guard that was behind it */
  }
  return true;
}

bool large_is_whole(const unit_t *first) {
  if (!HAK_SECURE || first->left == 0) return true;
  const char *at = (const char *)region_address(unit_number(first)) + large_usable(first);
  if (dontfork_seen() && !dontfork_is_mapped(at, first->left)) return true;
  return *at == 0 && memcmp(at, at + 1, first->left - 1) == 0; /* each byte is the one before it */
}

HAK_COLD void large_overflown(const unit_t *first, const char *function) {
  fault_abort("overflow", function, region_address(unit_number(first)), "bytes behind the block were overwritten", FAULT_LARGE);
}

/* Bytes of the last page that are no longer requested become zero, as the others behind the block are. */
bool large_secure_resize(unit_t *first, size_t bytes, size_t size) {
  size_t asked = large_usable(first);
  if (!grow_in_place(first, bytes)) return false;
  if (size < asked) memset((char *)region_address(unit_number(first)) + size, 0, asked - size);
  store_relaxed(&first->bytes, bytes);
  first->left = (uint32_t)(bytes - size);
  return true;
}

/* False if there was none. */
static bool end_all(_Atomic uint32_t *units, uint32_t count) {
  bool any = false;
  for (uint32_t i = 0; i < count; i++) {
    uint32_t unit = atomic_exchange(&units[i], 0);
    if (unit == 0) continue;
    wait_end(unit);
    any = true;
  }
  return any;
}

bool large_secure_trim(void) {
  bool waited = end_all(freed_units, FREED_MOST), kept = end_all(ready_units, READY_MOST);
  return waited || kept;
}

HAK_AUDITED void large_secure_audit_alone(void) {
  for (uint32_t i = 0; i < FREED_MOST + READY_MOST; i++) {
    uint32_t unit = i < FREED_MOST ? load_relaxed(&freed_units[i]) : load_relaxed(&ready_units[i - FREED_MOST]);
    AUDIT(unit == 0 || load_relaxed(&unit_at(unit)->kind) == UNIT_GUARD, region_address(unit), "a large block that waits is no guard");
  }
}
