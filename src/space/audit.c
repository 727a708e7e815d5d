#include "space/audit.h"

#include "kit/fault.h"
#include "space/ledger.h"

/* Whether a unit is both free and in a span.  Between the two reads another thread may have claimed and entered it: so it is claimed here
 * and read again. */
static bool is_both(uint32_t unit, bool (*in_span)(uint32_t unit)) {
  superslab_t *superslab = &region.superslabs[unit / WORD_UNITS];
  uint32_t bit = (uint32_t)1 << unit % WORD_UNITS;
  if (!in_span(unit) || (load_relaxed(&superslab->free) & bit) == 0) return false;
  ledger_note_in_flight(true);
  bool both = (atomic_fetch_and_explicit(&superslab->free, ~bit, memory_order_acq_rel) & bit) != 0;
  if (both) {
    both = in_span(unit);
    ledger_release(unit / WORD_UNITS, bit);
  }
  ledger_note_in_flight(false);
  return both;
}

/* Units that are in flight for the moment are neither free nor in a span: the keeper may have them. */
static void audit_taken_units(uint32_t superslab, bool (*in_span)(uint32_t unit)) {
  uint32_t ends = ledger_completions();
  if (ledger_in_flight()) return;
  uint32_t taken = load_relaxed(&region.superslabs[superslab].mapped) & ~load_acquire(&region.superslabs[superslab].free);
  bool found = room_has_noted(region.rooms, superslab, load_acquire(&region.superslabs[superslab].free));
  AUDIT(found || ledger_in_flight() || ledger_completions() != ends, &region.superslabs[superslab], "no search finds what is free");
  for (; taken != 0; taken &= taken - 1) {
    uint32_t unit = superslab * WORD_UNITS + bits_lowest32(taken);
    bool settled = !ledger_in_flight() && ledger_completions() == ends;
    AUDIT(in_span(unit) || !settled, region_address(unit), "a unit is neither free nor in a span");
  }
}

void audit_superslab(uint32_t s, bool alone, bool (*in_span)(uint32_t unit)) {
  superslab_t *superslab = &region.superslabs[s];
  void *at = region_address(s * WORD_UNITS);
  uint32_t free = load_acquire(&superslab->free), dirty = load_relaxed(&superslab->dirty), cold = load_relaxed(&superslab->cold);
  uint32_t huge = load_relaxed(&superslab->huge), moved = load_relaxed(&superslab->moved);
  uint32_t mapped = load_relaxed(&superslab->mapped);
  /* Units are entered in `mapped` before they are free, and `free` was acquired.  What others have set in the other words may be seen here
   * before `mapped` is: then `mapped` is read under the lock. */
  AUDIT((free & ~mapped) == 0, at, "free units that are not usable");
  AUDIT((dirty & ~mapped) == 0 || region_maps(s, dirty), at, "dirty units that are not usable");
  AUDIT((cold & ~mapped) == 0 || region_maps(s, cold), at, "cold units that are not usable");
  AUDIT(huge <= 1 && moved <= 1, at, "a flag of a superslab is neither 0 nor 1");
  AUDIT((huge | moved) == 0 || mapped == UINT32_MAX || region_maps(s, UINT32_MAX), at, "a huge page or move of a part");
  for (; free != 0; free &= free - 1) {
    uint32_t unit = s * WORD_UNITS + bits_lowest32(free);
    AUDIT(!is_both(unit, in_span), region_address(unit), "a free unit lies in a span");
  }
  if (alone) audit_taken_units(s, in_span);
}

void audit_counts_alone(void) {
  uint32_t ends = ledger_completions();
  if (ledger_in_flight()) return;
  ledger_census_t census = ledger_census();
  bool used = census.used_units == ledger_used_units(), idle = census.dirty_free_units == ledger_idle_units();
  if (ledger_in_flight() || ledger_completions() != ends) return;
  AUDIT(used, &region, "units in use were not counted");
  AUDIT(idle, &region, "idle units were not counted");
}
