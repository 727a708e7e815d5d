#include "space/span.h"

#include "base/check.h"
#include "kit/options.h"
#include "os/os.h"

#define WORD_UNITS HAK_UNITS_PER_SUPERSLAB

/* No superslab below this one is likely to have a free unit. */
static _Atomic uint32_t span_lowest;
/* Free units that may not be zero: what a purge could give back. Approximate. */
static _Atomic int64_t pending_units;
static _Atomic uint64_t last_step_ms;
static _Atomic uint32_t purges_under_way;

static uint32_t superslab_count(void) { return (atomic_take(&region.units) + WORD_UNITS - 1) / WORD_UNITS; }

/* The start within `free` of the tightest run of n ones whose place is a
 * multiple of `align`, or WORD_UNITS. */
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
  uint32_t seen = atomic_seen(free);
  while ((seen & mask) == mask) {
    if (atomic_compare_exchange_weak_explicit(free, &seen, seen & ~mask, memory_order_acquire, memory_order_relaxed)) return true;
  }
  return false;
}

/* Calls for the words under [start, start + units): index, mask. */
typedef struct word_walk {
  uint32_t at, end;
} word_walk_t;

static bool word_next(word_walk_t *walk, uint32_t *superslab, uint32_t *mask) {
  if (walk->at >= walk->end) return false;
  uint32_t first = walk->at % WORD_UNITS;
  uint32_t n = WORD_UNITS - first;
  if (n > walk->end - walk->at) n = walk->end - walk->at;
  *superslab = walk->at / WORD_UNITS;
  *mask = bits_mask32(first, n);
  walk->at += n;
  return true;
}

/* Enters the units as written; true if none was before. */
static bool units_soil(uint32_t start, uint32_t units) {
  word_walk_t walk = {start, start + units};
  uint32_t superslab, mask;
  int64_t were_dirty = 0;
  while (word_next(&walk, &superslab, &mask)) {
    uint32_t before = atomic_fetch_or_explicit(&region.superslabs[superslab].dirty, mask, memory_order_relaxed);
    atomic_fetch_and_explicit(&region.superslabs[superslab].cold, ~mask, memory_order_relaxed);
    were_dirty += bits_count32(before & mask);
  }
  if (were_dirty != 0) atomic_count(&pending_units, -were_dirty);
  return were_dirty == 0;
}

static void word_release(uint32_t superslab, uint32_t mask) {
  atomic_fetch_or_explicit(&region.superslabs[superslab].free, mask, memory_order_release);
  uint32_t lowest = atomic_seen(&span_lowest);
  while (superslab < lowest && !atomic_compare_exchange_weak_explicit(&span_lowest, &lowest, superslab, memory_order_relaxed,
                                                                      memory_order_relaxed)) {
  }
}

static void units_release(uint32_t start, uint32_t units) {
  word_walk_t walk = {start, start + units};
  uint32_t superslab, mask;
  while (word_next(&walk, &superslab, &mask)) word_release(superslab, mask);
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

/* Within one superslab, the lowest that has room. */
static uint32_t find_in_words(uint32_t units, unsigned align) {
  uint32_t count = superslab_count();
  uint32_t lowest = atomic_seen(&span_lowest);
  bool all_full = true;
  for (uint32_t s = lowest; s < count; s++) {
    superslab_t *superslab = &region.superslabs[s];
    uint32_t free = atomic_seen(&superslab->free);
    if (free == 0) continue;
    if (all_full && s > lowest) {
      /* May miss a unit freed meanwhile below; span_alloc looks from 0 again before it grows. */
      (void)atomic_compare_exchange_strong_explicit(&span_lowest, &lowest, s, memory_order_relaxed, memory_order_relaxed);
    }
    all_full = false;
    for (;;) {
      unsigned start = word_best_fit(free, units, align);
      if (start == WORD_UNITS) break;
      if (word_claim(&superslab->free, bits_mask32(start, units))) return s * WORD_UNITS + start;
      free = atomic_seen(&superslab->free);
    }
  }
  return SPAN_NONE;
}

/* Across superslabs: the tightest run that is long enough. */
static uint32_t find_across(uint32_t units, uint64_t align) {
  const uint64_t base_units = region.base >> HAK_UNIT_SHIFT;
  uint32_t count = superslab_count();
  uint32_t best = SPAN_NONE, best_length = UINT32_MAX;
  uint32_t run_start = 0, run_length = 0;
  for (uint32_t s = 0; s <= count; s++) {
    uint32_t free = s < count ? atomic_seen(&region.superslabs[s].free) : 0;
    unsigned at = 0;
    while (at < WORD_UNITS) {
      uint32_t rest = free >> at;
      if ((rest & 1) != 0) {
        unsigned length = ~rest == 0 ? WORD_UNITS : bits_lowest32(~rest);
        if (length > WORD_UNITS - at) length = WORD_UNITS - at;
        if (run_length == 0) run_start = s * WORD_UNITS + at;
        run_length += length;
        at += length;
        continue;
      }
      uint64_t start = bits_round_up(base_units + run_start, align) - base_units;
      if (run_length > 0 && start + units <= (uint64_t)run_start + run_length && run_length < best_length) {
        best = (uint32_t)start;
        best_length = run_length;
      }
      run_length = 0;
      at += rest == 0 ? WORD_UNITS - at : bits_lowest32(rest);
    }
  }
  return best;
}

static uint32_t find_and_claim(uint32_t units, uint64_t align) {
  if (units <= WORD_UNITS / 2 && align <= WORD_UNITS && region.base % HAK_SUPERSLAB == 0) {
    return find_in_words(units, (unsigned)align);
  }
  for (;;) {
    uint32_t start = find_across(units, align);
    if (start == SPAN_NONE || units_claim(start, units)) return start;
  }
}

uint32_t span_alloc(uint32_t units, uint64_t align_units, bool *zero) {
  HAK_ASSERT(units > 0 && bits_is_pow2(align_units));
  /* Room for the run wherever alignment lets it start. */
  uint64_t want = (uint64_t)units + align_units - 1;
  if (want > HAK_REGION_MAX >> HAK_UNIT_SHIFT) return SPAN_NONE;
  for (;;) {
    uint32_t start = find_and_claim(units, align_units);
    if (start == SPAN_NONE) {
      atomic_set(&span_lowest, 0); /* the hint may have passed a unit by */
      start = find_and_claim(units, align_units);
    }
    if (start != SPAN_NONE) {
      *zero = units_soil(start, units);
      return start;
    }
    if (region_grow((uint32_t)want)) continue;
    /* Memory may be out of sight only while it is purged. */
    if (atomic_seen(&purges_under_way) == 0) return SPAN_NONE;
    os_yield();
  }
}

bool span_claim(uint32_t start, uint32_t units, bool *zero) {
  if ((uint64_t)start + units > atomic_take(&region.units) || !units_claim(start, units)) return false;
  *zero = units_soil(start, units);
  return true;
}

void span_free(uint32_t start, uint32_t units) {
  atomic_count(&pending_units, units);
  units_release(start, units);
}

/* Purges the runs of `mask`, which the caller has claimed; what could be purged. */
static uint32_t word_purge(uint32_t superslab, uint32_t mask) {
  uint32_t done = 0;
  for (uint32_t rest = mask; rest != 0;) {
    unsigned at = bits_lowest32(rest);
    uint32_t above = ~(rest >> at);
    unsigned n = above == 0 ? WORD_UNITS : bits_lowest32(above);
    uint32_t run = bits_mask32(at, n);
    if (os_purge(region_address(superslab * WORD_UNITS + at), n * HAK_UNIT)) done |= run;
    rest &= ~run;
  }
  return done;
}

/* Purges the superslab's units that are free, dirty and in `mask`; the units purged. */
static uint32_t superslab_purge(uint32_t s, uint32_t mask) {
  superslab_t *superslab = &region.superslabs[s];
  mask &= atomic_seen(&superslab->free) & atomic_seen(&superslab->dirty);
  if (mask == 0) return 0;
  /* Claimed while the kernel works, so that nobody is handed pages that vanish. */
  uint32_t claimed = mask & atomic_fetch_and_explicit(&superslab->free, ~mask, memory_order_acquire);
  uint32_t done = word_purge(s, claimed & atomic_seen(&superslab->dirty));
  atomic_fetch_and_explicit(&superslab->dirty, ~done, memory_order_relaxed);
  if (claimed != 0) word_release(s, claimed);
  atomic_count(&pending_units, -(int64_t)bits_count32(done));
  return bits_count32(done);
}

/* With `all` false, only what has been free since the last such call. */
static size_t purge(bool all) {
  uint32_t count = superslab_count();
  size_t purged = 0;
  atomic_count(&purges_under_way, 1);
  for (uint32_t s = 0; s < count; s++) {
    superslab_t *superslab = &region.superslabs[s];
    purged += superslab_purge(s, all ? UINT32_MAX : atomic_seen(&superslab->cold));
    atomic_set(&superslab->cold, atomic_seen(&superslab->free) & atomic_seen(&superslab->dirty));
  }
  atomic_count(&purges_under_way, (uint32_t)-1);
  return purged << HAK_UNIT_SHIFT;
}

size_t span_purge(void) { return purge(true); }

size_t span_decay(void) {
  if (atomic_seen(&pending_units) <= 0) return 0;
  int64_t decay = option_get(OPTION_decay_ms);
  if (decay < 0) return 0;
  /* What a step finds free is purged by the next one if nobody has used it since. */
  uint64_t now = os_now_ms();
  uint64_t last = atomic_seen(&last_step_ms);
  if (now - last < (uint64_t)decay / 2) return 0;
  if (!atomic_compare_exchange_strong_explicit(&last_step_ms, &last, now, memory_order_relaxed, memory_order_relaxed)) return 0;
  return purge(decay == 0);
}

void span_recover(uint32_t (*used)(uint32_t unit)) {
  uint32_t units = atomic_seen(&region.units);
  for (uint32_t unit = 0; unit < units;) {
    uint32_t length = used(unit);
    if (length > 0) {
      unit += length;
      continue;
    }
    superslab_t *superslab = &region.superslabs[unit / WORD_UNITS];
    uint32_t bit = (uint32_t)1 << unit % WORD_UNITS;
    if ((atomic_seen(&superslab->mapped) & bit) != 0) atomic_fetch_or_explicit(&superslab->free, bit, memory_order_relaxed);
    unit++;
  }
  atomic_set(&span_lowest, 0);
  atomic_set(&purges_under_way, 0);
  atomic_set(&pending_units, (int64_t)span_census().dirty_free_units);
}

span_census_t span_census(void) {
  span_census_t census = {0};
  uint32_t count = superslab_count();
  for (uint32_t s = 0; s < count; s++) {
    uint32_t free = atomic_seen(&region.superslabs[s].free);
    census.free_units += bits_count32(free);
    census.dirty_free_units += bits_count32(free & atomic_seen(&region.superslabs[s].dirty));
  }
  return census;
}
