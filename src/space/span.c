#include "space/span.h"

#include "base/check.h"
#include "os/memcheck.h"
#include "os/os.h"
#include "kit/pressure.h"
#include "space/huge.h"
#include "space/ledger.h"
#include "space/move.h"
#include "space/purge.h"
#include "space/dontfork.h"

/* How often a search is repeated while memory is in flight: no purge takes five seconds.  Purges by threads that free may follow one
 * another without end.  If only such later ones are under way, and they hide fewer units than the span needs, what they hide can only join
 * what is free around it: then the search is repeated less often. */
#define WAIT_US 1000
#define WAITS_MOST 5000
#define WAITS_FOR_SMALL 100

/* The most units of a span that is taken within one superslab, at the lowest place that has room. */
#define SMALL_SPAN (WORD_UNITS / 2)
/* Superslabs that are scanned after the first that would do: 1 GiB.  A larger heap has so many runs that scanning more gains little. */
#define LOOK_ON 512

/* The most units that are left free behind a block that grows: 16 MiB.  What is longer seldom moves, and then by page table. */
#define ROOM_MOST 256

/* Superslabs that are scanned at a time for a span within one superslab: their runs are known by powers of two alone.  Where all of these
 * have only shorter runs it is better to grow than to scan every superslab. */
#define IN_VAIN 64

/* The start within `free` of the tightest run of n ones at a multiple of `align`; WORD_UNITS if there is none. */
static unsigned word_best_fit(uint32_t free, unsigned n, unsigned align) {
  unsigned best = WORD_UNITS;
  unsigned best_length = WORD_UNITS + 1;
  unsigned at = 0;
  while (free >> at != 0) {
    at += bits_lowest32(free >> at);
    uint32_t rest = ~(free >> at);
    unsigned length = rest == 0 ? WORD_UNITS : bits_lowest32(rest);
    unsigned start = (at + align - 1) & ~(align - 1);
    if (start + n <= at + length && length < best_length) {
      best = start;
      best_length = length;
    }
    at += length;
    if (at >= WORD_UNITS) break;
  }
  return best;
}

static bool word_claim(_Atomic uint32_t *free, uint32_t mask) {
  uint32_t seen = load_relaxed(free);
  while ((seen & mask) == mask) {
    if (atomic_compare_exchange_weak_explicit(free, &seen, seen & ~mask, memory_order_acquire, memory_order_relaxed)) return true;
  }
  return false;
}

/* The heap has grown: it may be time to check the limits again. */
static HAK_NOINLINE void note_growth(void) {
  if (HAK_UNLIKELY(ledger_heap_units() >= load_relaxed(&pressure.look_at))) purge_epoch_advance();
}

/* Enters the units as written; true if none of them was before. */
static bool units_mark_dirty(uint32_t start, uint32_t units, span_use_t use) {
  word_walk_t walk = {start, start + units};
  uint32_t s, mask;
  uint32_t were_dirty = 0, again = 0;
  while (word_next(&walk, &s, &mask)) {
    superslab_t *superslab = &region.superslabs[s];
    bool whole = use != SPAN_SLAB && use != SPAN_ZEROED && mask == UINT32_MAX && load_relaxed(&superslab->dirty) == 0;
    if (whole && !move_idle_to(s)) huge_large_begin(s);
    /* Only this thread changes the bits of these units now: it writes only where they are not yet as they should be. */
    uint32_t before = load_relaxed(&superslab->dirty);
    if ((before & mask) != mask) before = atomic_fetch_or_explicit(&superslab->dirty, mask, memory_order_relaxed);
    if ((load_relaxed(&superslab->cold) & mask) != 0) atomic_fetch_and_explicit(&superslab->cold, ~mask, memory_order_relaxed);
    uint32_t refused = load_relaxed(&superslab->refused) & mask;
    if (HAK_UNLIKELY(refused != 0)) atomic_fetch_and_explicit(&superslab->refused, ~refused, memory_order_relaxed);
    were_dirty += bits_count32(before & mask);
    uint32_t grown = load_relaxed(&superslab->grown) & mask;
    if (HAK_UNLIKELY(grown != 0)) {
      atomic_fetch_and_explicit(&superslab->grown, ~grown, memory_order_relaxed);
      again += bits_count32(grown & ~before);
    }
    if (use == SPAN_SLAB && before == 0) huge_slab_begin(walk.at - bits_count32(mask));
  }
  /* Fresh pages of a zeroed block become resident only where it is written. */
  ledger_note_use(units, were_dirty, use == SPAN_ZEROED ? 0 : units - were_dirty);
  if (HAK_UNLIKELY(again != 0) && use != SPAN_ZEROED && units <= SMALL_SPAN) purge_note_again((size_t)again << HAK_UNIT_SHIFT);
  if (HAK_UNLIKELY(were_dirty != units)) note_growth();
  return were_dirty == 0;
}

HAK_INLINE void units_release(uint32_t start, uint32_t units) {
  word_walk_t walk = {start, start + units};
  uint32_t superslab, mask;
  while (word_next(&walk, &superslab, &mask)) ledger_release(superslab, mask);
}

static bool units_claim(uint32_t start, uint32_t units) {
  word_walk_t walk = {start, start + units};
  uint32_t superslab, mask;
  while (word_next(&walk, &superslab, &mask)) {
    if (word_claim(&region.superslabs[superslab].free, mask)) continue;
    uint32_t claimed = walk.at - bits_count32(mask) - start;
    if (claimed > 0) units_release(start, claimed);
    return false;
  }
  return true;
}

/* No superslab from `from` to `lowest` had a free unit.  A unit freed meanwhile may be missed: find_lowest searches there where nothing is
 * found from the hint on, so before memory is out at the latest. */
static void note_lowest(uint32_t from, uint32_t lowest) {
  if (lowest == from || load_relaxed(&ledger_lowest) != from) return;
  (void)atomic_compare_exchange_strong_explicit(&ledger_lowest, &from, lowest, memory_order_relaxed, memory_order_relaxed);
}

typedef struct wanted {
  uint32_t units; /* to claim */
  uint32_t run;   /* to be free in a row: more than `units` to leave room behind them */
  uint64_t align;
  span_use_t use;
  uint32_t home;  /* of span_alloc_to_grow */
  bool everywhere; /* the heap cannot grow */
} wanted_t;

/* Searches superslabs that may have 2^level units in a row, at most `most` of them, for the lowest from *at on that has room.  *at: where
 * to go on. */
static uint32_t find_in_words(const wanted_t *wanted, uint32_t *at, unsigned level, uint32_t most) {
  uint32_t count = region_superslabs();
  for (uint32_t looked = 0; looked < most; looked++, ++*at) {
    *at = room_next(region.rooms, region.superslabs, *at, count, level);
    if (*at >= count) break;
    _Atomic uint32_t *free = &region.superslabs[*at].free;
    for (;;) {
      unsigned start = word_best_fit(load_acquire(free), wanted->run, (unsigned)wanted->align);
      if (start == WORD_UNITS) break;
      if (word_claim(free, bits_mask32(start, wanted->units))) return *at * WORD_UNITS + start;
    }
  }
  return SPAN_NONE;
}

/* Each home begins at a superslab of its own, if there are enough.  The first thread's begins at the lowest, where most slabs are too. */
static uint32_t find_at_home(const wanted_t *wanted) {
  uint32_t others = region_superslabs() - 1;
  if (wanted->home == 0 || others == 0) return SPAN_NONE;
  uint32_t at = 1 + (wanted->home - 1) % others;
  return find_in_words(wanted, &at, bits_highest64(wanted->run), IN_VAIN);
}

/* Searches some superslabs above the lowest ones, in rotation; then superslabs with so many units in a row that there is room wherever the
 * run begins. */
static uint32_t find_higher(const wanted_t *wanted, uint32_t above, unsigned level) {
  static _Atomic uint32_t next[ROOM_LEVELS];
  uint32_t at = load_relaxed(&next[level]);
  if (at < above) at = above;
  uint32_t start = find_in_words(wanted, &at, level, IN_VAIN);
  store_relaxed(&next[level], at < region_superslabs() ? at : 0);
  if (start != SPAN_NONE) return start;
  unsigned surely = bits_highest64(wanted->run + (uint32_t)wanted->align - 1) + 1;
  at = above;
  return find_in_words(wanted, &at, surely < ROOM_LEVELS ? surely : ROOM_LEVELS - 1, IN_VAIN);
}

static uint32_t find_lowest(const wanted_t *wanted) {
  unsigned level = bits_highest64(wanted->run);
  uint32_t most = wanted->everywhere ? UINT32_MAX : IN_VAIN, lowest = load_relaxed(&ledger_lowest), at = lowest;
  uint32_t start = find_in_words(wanted, &at, level, most);
  if (level == 0 && wanted->align == 1 && start != SPAN_NONE) note_lowest(lowest, start / WORD_UNITS);
  if (start == SPAN_NONE && at >= region_superslabs() && lowest != 0) {
    store_relaxed(&ledger_lowest, 0); /* the hint may have passed over a free unit */
    at = 0;
    start = find_in_words(wanted, &at, level, most);
  }
  return start == SPAN_NONE && at < region_superslabs() ? find_higher(wanted, at, level) : start;
}

/* How many of the units would be faulted in. */
static uint32_t units_fresh(uint32_t start, uint32_t units) {
  word_walk_t walk = {start, start + units};
  uint32_t s, mask, fresh = 0;
  while (word_next(&walk, &s, &mask)) fresh += bits_count32(mask & ~load_relaxed(&region.superslabs[s].dirty));
  return fresh;
}

/* The best place so far. */
typedef struct found {
  uint32_t start;
  uint64_t cost;  /* fresh units, then units of the run */
  uint32_t until; /* superslabs are scanned up to here */
} found_t;

/* Compares a run of free units with the best place so far. */
static void found_compare(found_t *found, const wanted_t *wanted, uint32_t run, uint32_t length) {
  const uint64_t base_units = region.base >> HAK_UNIT_SHIFT;
  uint64_t start = bits_round_up(base_units + run, wanted->align) - base_units;
  if (start + wanted->run > (uint64_t)run + length) return;
  /* A block that must be zero may be large and hardly used. */
  uint64_t fresh = wanted->use == SPAN_ZEROED ? 0 : units_fresh((uint32_t)start, wanted->units), cost = fresh << 32 | length;
  if (cost >= found->cost) return;
  if (found->start == SPAN_NONE) found->until = run / WORD_UNITS + LOOK_ON;
  if (cost == wanted->run) found->until = 0; /* no place is better */
  found->start = (uint32_t)start;
  found->cost = cost;
}

/* How many units of a superslab are free in a row from `at` on. */
static unsigned run_from(uint32_t free, unsigned at) {
  uint32_t taken = ~free >> at;
  return taken == 0 ? WORD_UNITS - at : bits_lowest32(taken);
}

/* How many units at its end are free in a row. */
static unsigned run_at_end(uint32_t free) { return free == UINT32_MAX ? WORD_UNITS : WORD_UNITS - 1 - bits_highest64((uint32_t)~free); }

/* Searches across superslabs for the tightest run that is long enough; for what will be written, among the runs with the fewest units to
 * fault in.  Half of such a run lies in one superslab, or it covers a whole superslab: only superslabs where that may be so are scanned. */
static uint32_t find_from(const wanted_t *wanted, uint32_t from, uint32_t count, unsigned level) {
  uint32_t run = 0, length = 0;
  found_t found = {SPAN_NONE, UINT64_MAX, UINT32_MAX};
  for (uint32_t s = from; s <= count && s < found.until; s++) {
    uint32_t next = length > 0 ? s : room_next(region.rooms, region.superslabs, s, count, level);
    if (next > s) { /* the run may begin in the one before */
      s = next;
      length = run_at_end(load_acquire(&region.superslabs[s - 1].free));
      run = s * WORD_UNITS - length;
    }
    uint32_t free = s < count ? load_acquire(&region.superslabs[s].free) : 0;
    for (unsigned at = 0; at < WORD_UNITS;) {
      unsigned more = run_from(free, at);
      if (length == 0) run = s * WORD_UNITS + at;
      length += more;
      at += more;
      if (at == WORD_UNITS) break; /* it may go on */
      if (length > 0) found_compare(&found, wanted, run, length);
      length = 0;
      uint32_t rest = free >> at;
      at += rest == 0 ? WORD_UNITS - at : bits_lowest32(rest);
    }
  }
  return found.start;
}

/* In a heap that is scanned in part a search begins where the last one ended, since what lies before would not have done for that one
 * either. */
static uint32_t find_across(const wanted_t *wanted) {
  static _Atomic uint32_t last[ROOM_LEVELS];
  uint32_t count = region_superslabs();
  unsigned level = wanted->run < 2 * WORD_UNITS - 1 ? bits_highest64((wanted->run + 1) / 2) : ROOM_LEVELS - 1;
  if (HAK_LIKELY(count <= LOOK_ON)) return find_from(wanted, 0, count, level);
  uint32_t start = find_from(wanted, load_relaxed(&last[level]), count, level);
  if (start == SPAN_NONE) start = find_from(wanted, 0, count, level);
  store_relaxed(&last[level], start != SPAN_NONE ? start / WORD_UNITS : 0);
  return start;
}

/* Under HAKMEM_LIMIT_HARD: whether there is no room for those of the claimed units that may not be resident yet.  If so, sets the units
 * free. */
static HAK_COLD bool units_refused(uint32_t start, uint32_t units) {
  if (ledger_permits(units_fresh(start, units))) return false;
  units_release(start, units);
  return true;
}

/* In a process that lacks pages: whether what a fork has left out of the claimed units cannot be mapped.  If so, sets the units free. */
static HAK_COLD bool units_missing(uint32_t start, uint32_t units) {
  if (dontfork_map(region_address(start), units * HAK_UNIT)) return false;
  units_release(start, units);
  return true;
}

static uint32_t find_and_claim(const wanted_t *wanted) {
  if (wanted->units <= SMALL_SPAN && wanted->run <= WORD_UNITS && wanted->align <= WORD_UNITS && region.base % HAK_SUPERSLAB == 0) {
    uint32_t start = wanted->use >= SPAN_GROWN ? find_at_home(wanted) : SPAN_NONE;
    return start != SPAN_NONE ? start : find_lowest(wanted);
  }
  for (;;) {
    uint32_t start = find_across(wanted);
    if (start == SPAN_NONE || units_claim(start, wanted->units)) return start;
  }
}

/* How long a search that finds nothing is repeated, and what was seen before the last try. */
typedef struct patience {
  unsigned tries;
  uint32_t begun; /* purges begun when it first found nothing */
  uint32_t ends;  /* purges that have ended */
  uint64_t hidden; /* units in flight */
} patience_t;

static unsigned waits_most(const patience_t *patience, uint32_t units, bool refused) {
  if (patience->hidden >= units) return WAITS_MOST;
  uint64_t heap = ledger_heap_units(), idle = ledger_idle_units(), rest = heap > idle ? heap - idle : 0;
  bool could_be = refused ? rest + units <= ledger_cap() : load_relaxed(&region.units) - ledger_used_units() >= units;
  if (!could_be) return 0;
  return (int32_t)(patience->ends - patience->begun) < 0 ? WAITS_MOST : WAITS_FOR_SMALL;
}

/* Memory may be in flight, or count as idle, only while it is purged: waits for that.  False where the wait would have no end, or would
 * be in vain: the purge belongs to a thread that a signal handler's child does not have, or to this thread, which a handler has
 * interrupted. */
static bool purge_wait(patience_t *patience, uint32_t units, bool refused) {
  if (!ledger_in_flight() && ledger_completions() == patience->ends) return false;
  if (patience->tries == 0) patience->begun = ledger_begun();
  if (os_forked() || patience->tries >= waits_most(patience, units, refused)) return false;
  if (++patience->tries < 64) os_yield();
  else os_sleep_us(WAIT_US);
  return true;
}

/* More units than the heap may ever have: it need not grow to find that out. */
static bool passes_cap(uint32_t units) {
  if (HAK_LIKELY(units <= ledger_cap())) return false;
  add_relaxed(&pressure.refused, 1);
  return true;
}

/* A larger heap is searched as a whole only if it cannot grow. */
static bool look_everywhere(wanted_t *wanted) {
  if (wanted->everywhere || wanted->units > SMALL_SPAN || region_superslabs() <= IN_VAIN) return false;
  wanted->everywhere = true;
  return true;
}

/* Where there is no place with room, one without will do; of a block that is longer than a superslab, preferably where its pages can be
 * moved to. */
static bool leave_no_room(wanted_t *wanted) {
  bool roomy = wanted->run > wanted->units, aligned = wanted->use == SPAN_GROWING && wanted->align > 1;
  if (!roomy && !aligned) return false;
  if (!roomy || wanted->units < WORD_UNITS) wanted->align = 1;
  wanted->run = wanted->units;
  return true;
}

static uint32_t span_take(wanted_t *wanted, bool *zero) {
  const uint32_t units = wanted->units;
  HAK_ASSERT(units > 0 && bits_is_pow2(wanted->align));
  if (units + wanted->align - 1 > HAK_REGION_MAX >> HAK_UNIT_SHIFT) return SPAN_NONE;
  if (passes_cap(units)) return SPAN_NONE;
  for (patience_t patience = {0};;) {
    patience.ends = ledger_completions();
    patience.hidden = ledger_hidden_units();
    uint32_t frontier = load_acquire(&region.units);
    uint32_t start = units <= frontier ? find_and_claim(wanted) : SPAN_NONE;
    bool refused = start != SPAN_NONE && HAK_UNLIKELY(ledger_cap() != LEDGER_NO_CAP) && units_refused(start, units);
    if (start != SPAN_NONE && !refused) {
      if (dontfork_seen() && units_missing(start, units)) return SPAN_NONE;
      memcheck_open(region_address(start), units * HAK_UNIT);
      *zero = units_mark_dirty(start, units, wanted->use);
      return start;
    }
    uint32_t more = (uint32_t)(wanted->run + wanted->align - 1); /* room for the run wherever alignment lets it start */
    if ((!refused && region_grow(frontier, more)) || look_everywhere(wanted) || leave_no_room(wanted)) continue;
    if (!purge_wait(&patience, units, refused)) {
      if (refused) add_relaxed(&pressure.refused, 1);
      return SPAN_NONE;
    }
  }
}

uint32_t span_alloc(uint32_t units, uint64_t align_units, span_use_t use, bool *zero) {
  return span_take(&(wanted_t){units, units, align_units, use, 0, false}, zero);
}

uint32_t span_alloc_to_grow(uint32_t units, span_use_t use, uint32_t home, bool *zero) {
  if (use != SPAN_GROWING) return span_take(&(wanted_t){units, units, 1, use, home, false}, zero);
  /* By alignment, blocks of about one size that grow in turn do not end up in each other's room; of those that are longer than a
   * superslab, the pages can be moved. */
  uint32_t run = 2u << bits_highest64(units), align = run < WORD_UNITS ? run : WORD_UNITS;
  if (run > units + ROOM_MOST) run = units + ROOM_MOST;
  return span_take(&(wanted_t){units, run, align, use, home, false}, zero);
}

/* Whether the units from `start` to the frontier are all free. */
static bool reaches_frontier(uint32_t start, uint32_t frontier) {
  word_walk_t walk = {start, frontier};
  uint32_t superslab, mask;
  while (word_next(&walk, &superslab, &mask)) {
    if ((load_relaxed(&region.superslabs[superslab].free) & mask) != mask) return false;
  }
  return true;
}

bool span_claim(uint32_t start, uint32_t units) {
  if (passes_cap(units)) return false;
  uint32_t frontier = load_acquire(&region.units);
  bool fits = (uint64_t)start + units <= frontier;
  if (!fits && !(start <= frontier && reaches_frontier(start, frontier) && region_grow(frontier, units))) return false;
  if ((uint64_t)start + units > load_acquire(&region.units) || !units_claim(start, units)) return false;
  if (HAK_UNLIKELY(ledger_cap() != LEDGER_NO_CAP) && units_refused(start, units)) {
    add_relaxed(&pressure.refused, 1);
    return false;
  }
  if (dontfork_seen() && units_missing(start, units)) return false;
  (void)units_mark_dirty(start, units, SPAN_PLAIN);
  return true;
}

void span_free(uint32_t start, uint32_t units) {
  word_walk_t walk = {start, start + units};
  uint32_t superslab, mask;
  uint32_t dirty = 0;
  while (word_next(&walk, &superslab, &mask)) dirty += bits_count32(load_relaxed(&region.superslabs[superslab].dirty) & mask);
  ledger_note_free(units, dirty);
  units_release(start, units);
}

HAK_COLD void span_recover(uint32_t (*used)(uint32_t unit)) {
  uint32_t units = load_relaxed(&region.units);
  for (uint32_t unit = 0; unit < units;) {
    uint32_t length = used(unit);
    if (length > 0) {
      unit += length;
      continue;
    }
    superslab_t *superslab = &region.superslabs[unit / WORD_UNITS];
    uint32_t bit = (uint32_t)1 << unit % WORD_UNITS;
    if ((load_relaxed(&superslab->mapped) & bit) != 0) atomic_fetch_or_explicit(&superslab->free, bit, memory_order_relaxed);
    unit++;
  }
  ledger_recover();
}
