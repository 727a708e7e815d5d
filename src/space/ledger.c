#include "space/ledger.h"

/* Where units are idle: the lowest superslab in the upper half, the end in the lower.  It is one word, since of two one thread could empty
 * one while another finds the other as it should be. */
#define IDLE_NOWHERE ((uint64_t)UINT32_MAX << 32)

/* In units, and approximate, since concurrent changes are counted one after the other.  Each of these lines is apart from what else slow
 * paths read: every span writes to the first. */
static struct {
  HAK_ALIGNED(HAK_CACHE_LINE) _Atomic uint64_t units; /* in use, in the upper half; idle, in the lower */
  _Atomic uint64_t cap; /* LEDGER_NO_CAP, or see ledger_set_cap */
  _Atomic uint64_t idle_range;
  HAK_ALIGNED(HAK_CACHE_LINE) _Atomic int64_t fresh_units; /* that were zero when they were taken, since ledger_take_fresh */
  _Atomic int64_t guard_units; /* of those in use */
  _Atomic uint32_t under_way, ledger_ends;
  _Atomic int64_t hidden_units;
} ledger = {.cap = LEDGER_NO_CAP, .idle_range = IDLE_NOWHERE};

_Atomic uint32_t ledger_lowest;

/* Both counts in one word, so that a span writes once. */
static uint64_t units_word(int64_t used, int64_t idle) { return ((uint64_t)used << 32) + (uint64_t)idle; }
static int64_t word_idle(uint64_t word) { return (int32_t)word; }
static int64_t word_used(uint64_t word) { return (int32_t)((word - (uint64_t)word_idle(word)) >> 32); }

void ledger_note_use(uint32_t units, uint32_t dirty, uint32_t fresh) {
  add_relaxed(&ledger.units, units_word(units, -(int64_t)dirty));
  if (fresh != 0) add_relaxed(&ledger.fresh_units, fresh);
}

void ledger_note_free(uint32_t units, uint32_t dirty) { add_relaxed(&ledger.units, units_word(-(int64_t)units, dirty)); }

void ledger_note_purged(uint32_t units) { add_relaxed(&ledger.units, units_word(0, -(int64_t)units)); }

static uint64_t at_least_0(int64_t n) { return n > 0 ? (uint64_t)n : 0; }
uint64_t ledger_used_units(void) { return at_least_0(word_used(load_relaxed(&ledger.units))); }
uint64_t ledger_idle_units(void) { return at_least_0(word_idle(load_relaxed(&ledger.units))); }

uint64_t ledger_take_fresh(uint64_t least) {
  int64_t fresh = load_relaxed(&ledger.fresh_units);
  if (HAK_LIKELY(fresh < (int64_t)least)) return 0;
  if (!atomic_compare_exchange_strong_explicit(&ledger.fresh_units, &fresh, 0, memory_order_relaxed, memory_order_relaxed)) return 0;
  return (uint64_t)fresh;
}

/* Sequentially consistent, as setting units free and searching for them are: either the range is widened after it was taken, or the thread
 * that has taken it finds the units. */
void ledger_note_idle(uint32_t from, uint32_t end) {
  uint64_t seen = atomic_load(&ledger.idle_range), wider;
  do {
    uint32_t lowest = (uint32_t)(seen >> 32), highest = (uint32_t)seen;
    wider = (uint64_t)(from < lowest ? from : lowest) << 32 | (end > highest ? end : highest);
  } while (wider != seen && !atomic_compare_exchange_weak(&ledger.idle_range, &seen, wider));
}

ledger_range_t ledger_take_idle(void) {
  uint64_t range = load_relaxed(&ledger.idle_range); /* it covers at least what this thread has noted */
  if (range != IDLE_NOWHERE) range = atomic_exchange(&ledger.idle_range, IDLE_NOWHERE);
  return (ledger_range_t){(uint32_t)(range >> 32), (uint32_t)range};
}

void ledger_release(uint32_t superslab, uint32_t mask) {
  bool idle = (load_relaxed(&region.superslabs[superslab].dirty) & mask) != 0; /* they are still the caller's */
  room_note(region.rooms, superslab, atomic_fetch_or(&region.superslabs[superslab].free, mask) | mask);
  uint32_t lowest = load_relaxed(&ledger_lowest);
  while (superslab < lowest &&
         !atomic_compare_exchange_weak_explicit(&ledger_lowest, &lowest, superslab, memory_order_relaxed, memory_order_relaxed)) {
  }
  if (idle) ledger_note_idle(superslab, superslab + 1);
}

void ledger_note_guards(int64_t units) { add_relaxed(&ledger.guard_units, units); }
uint64_t ledger_heap_units(void) {
  return at_least_0((int64_t)(ledger_used_units() + ledger_idle_units()) - load_relaxed(&ledger.guard_units));
}

void ledger_set_cap(uint64_t units) { store_relaxed(&ledger.cap, units); }
uint64_t ledger_cap(void) { return load_relaxed(&ledger.cap); }
bool ledger_permits(uint64_t units) { return ledger_heap_units() + units <= load_relaxed(&ledger.cap); }

void ledger_note_in_flight(bool begins) {
  if (!begins) (void)atomic_fetch_add_explicit(&ledger.ledger_ends, 1, memory_order_release);
  (void)atomic_fetch_add_explicit(&ledger.under_way, begins ? 1 : (uint32_t)-1, memory_order_release);
}

bool ledger_in_flight(void) { return load_acquire(&ledger.under_way) != 0; }
uint32_t ledger_completions(void) { return load_acquire(&ledger.ledger_ends); }

uint32_t ledger_begun(void) { return load_acquire(&ledger.ledger_ends) + load_acquire(&ledger.under_way); }

void ledger_note_hidden(int64_t units) { add_relaxed(&ledger.hidden_units, units); }
uint64_t ledger_hidden_units(void) { return at_least_0(load_relaxed(&ledger.hidden_units)); }

HAK_COLD ledger_census_t ledger_census(void) {
  ledger_census_t census = {0};
  uint32_t count = region_superslabs();
  for (uint32_t s = 0; s < count; s++) {
    uint32_t free = load_relaxed(&region.superslabs[s].free);
    census.free_units += bits_count32(free);
    census.used_units += bits_count32(load_relaxed(&region.superslabs[s].mapped) & ~free);
    census.dirty_free_units += bits_count32(free & load_relaxed(&region.superslabs[s].dirty));
  }
  return census;
}

HAK_COLD void ledger_recover(void) {
  ledger_census_t census = ledger_census();
  store_relaxed(&ledger.units, units_word((int64_t)census.used_units, (int64_t)census.dirty_free_units));
  store_relaxed(&ledger.under_way, 0);
  store_relaxed(&ledger.hidden_units, 0);
  store_relaxed(&ledger_lowest, 0);
  ledger_note_idle(0, region_superslabs());
  for (uint32_t s = region_superslabs(); s-- > 0;) room_note(region.rooms, s, load_relaxed(&region.superslabs[s].free));
}
