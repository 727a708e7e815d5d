#include "space/purge.h"

#include "os/os.h"
#include "kit/options.h"
#include "kit/pressure.h"
#include "space/huge.h"
#include "space/ledger.h"
#include "space/move.h"

/* Growth is settled in steps of this many units, so that there is at most one call for each 2 MiB. */
#define GROWTH_STEP ((uint64_t)WORD_UNITS)

/* In units or bytes, and approximate.  Slow paths read the first ones, so the others lie on another cache line. */
static struct {
  HAK_ALIGNED(HAK_CACHE_LINE) _Atomic uint64_t most_units; /* in use or idle so far, when growth was settled */
  _Atomic uint64_t peak_units;                             /* by which the heap has exceeded its highest size so far, in all */
  _Atomic uint64_t epoch, purged_units;
  HAK_ALIGNED(HAK_CACHE_LINE) _Atomic uint64_t again_bytes; /* given back by growth and needed again */
  _Atomic uint64_t debt_bytes, debt_ms; /* of these, what time has not paid off; the time up to which it has */
} purge_state;

HAK_ALIGNED(HAK_CACHE_LINE) _Atomic uint64_t purge_last_step_ms;

uint64_t purge_bytes(void) { return load_relaxed(&purge_state.purged_units) << HAK_UNIT_SHIFT; }

/* A superslab that was moved is mapped anew if it is purged as a whole. */
static void superslab_renew(uint32_t s) {
  if (os_renew(region_address(s * WORD_UNITS), HAK_SUPERSLAB)) move_forget(s);
}

static bool span_purge(uint32_t start, uint32_t units, bool locked_too) {
  uint32_t first = start / WORD_UNITS, end = (start + units - 1) / WORD_UNITS + 1;
  size_t bytes = (size_t)units << HAK_UNIT_SHIFT;
  bool unlocked = os_purge(region_address(start), bytes);
  bool done = unlocked || (locked_too && os_purge_locked(region_address(start), bytes));
  for (uint32_t s = first; unlocked && s < end; s++) { /* what is locked must stay the mapping that the program has locked */
    bool whole = s * WORD_UNITS >= start && (s + 1) * WORD_UNITS <= start + units;
    if (whole && load_relaxed(&region.superslabs[s].moved) != 0) superslab_renew(s);
  }
  huge_end_span(start, units);
  if (done) add_relaxed(&purge_state.purged_units, units);
  return done;
}

bool purge_span(uint32_t start, uint32_t units) { return span_purge(start, units, false); }

bool purge_span_to_free(uint32_t start, uint32_t units) {
  if (!purge_span(start, units)) return false;
  word_walk_t walk = {start, start + units};
  uint32_t s, mask;
  while (word_next(&walk, &s, &mask)) atomic_fetch_and_explicit(&region.superslabs[s].dirty, ~mask, memory_order_relaxed);
  return true;
}

/* --- one purge ---------------------------------------------------------------------------- */

/* A run of claimed units, which goes to the kernel in one call even if it spans superslabs. */
typedef struct run {
  uint32_t start, end;
  uint32_t purged; /* in all */
  uint32_t superslab, halved; /* the last one in which a part was halved, and how often */
  uint32_t in_vain;           /* calls since the last one that gave something back */
  bool by_growth, locked_too;
} run_t;

/* A page that the program has locked fails everything that the kernel would do from that page on, so a part that fails is halved.  Between
 * superslabs this is done as often as necessary, which is less often than there are superslabs; within each at most HALVED_MOST times,
 * which finds the units of four locked pages.  Within a superslab nothing is halved after IN_VAIN_MOST calls in a row that gave nothing
 * back: there everything is locked. */
#define HALVED_MOST 15
#define IN_VAIN_MOST 64

/* Where to halve a part that has failed; `start` if it is not to be halved further. */
static uint32_t part_middle(run_t *run, uint32_t start, uint32_t end) {
  uint32_t first = start / WORD_UNITS, beyond = (end - 1) / WORD_UNITS + 1;
  if (beyond - first > 1) return (first + (beyond - first) / 2) * WORD_UNITS;
  if (run->superslab != first) run->halved = 0;
  run->superslab = first;
  if (end - start == 1 || run->halved == HALVED_MOST || run->in_vain > IN_VAIN_MOST) return start;
  run->halved++;
  return start + (end - start) / 2;
}

/* Gives a part of the run back to the kernel and sets its units free again. */
static void part_end(run_t *run, uint32_t start, uint32_t end) {
  bool done = span_purge(start, end - start, run->locked_too);
  run->in_vain = done ? 0 : run->in_vain + 1;
  uint32_t middle = done ? start : part_middle(run, start, end);
  if (middle != start) {
    part_end(run, start, middle);
    part_end(run, middle, end);
    return;
  }
  if (done) run->purged += end - start;
  word_walk_t walk = {start, end};
  uint32_t s, mask;
  while (word_next(&walk, &s, &mask)) {
    superslab_t *superslab = &region.superslabs[s];
    if (done) atomic_fetch_and_explicit(&superslab->dirty, ~mask, memory_order_relaxed);
    if (!done) atomic_fetch_or_explicit(&superslab->refused, mask, memory_order_relaxed);
    else if (load_relaxed(&superslab->refused) != 0) atomic_fetch_and_explicit(&superslab->refused, ~mask, memory_order_relaxed);
    if (done && run->by_growth) atomic_fetch_or_explicit(&superslab->grown, mask, memory_order_relaxed);
    ledger_release(s, mask);
  }
}

static void run_end(run_t *run) {
  uint32_t units = run->end - run->start;
  if (units != 0) {
    ledger_note_hidden(units);
    part_end(run, run->start, run->end);
    ledger_note_hidden(-(int64_t)units);
  }
  run->start = run->end;
}

/* What was cold; all that is idle; also what the kernel has refused, as for locked memory: for who asks that all be given back. */
typedef enum sweep_which { SWEEP_COLD, SWEEP_IDLE, SWEEP_REFUSED } sweep_which_t;

static uint32_t asked_for(const superslab_t *superslab, sweep_which_t which) {
  uint32_t units = which == SWEEP_COLD ? load_relaxed(&superslab->cold) : UINT32_MAX;
  return which == SWEEP_REFUSED ? units : units & ~atomic_load(&superslab->refused);
}

/* Which a caller may have to wait for: keeper_hold. The kernel takes 5 to 20 ms for as much. */
#define RUN_UNITS 1024

/* Claims the superslab's units that are free, dirty and selected by `which`, and adds them to the run. */
static void run_add(run_t *run, uint32_t s, sweep_which_t which) {
  superslab_t *superslab = &region.superslabs[s];
  uint32_t mask = atomic_load(&superslab->free); /* after ledger_take_idle, before reading what was written before they were free */
  mask &= load_relaxed(&superslab->dirty) & asked_for(superslab, which);
  if (mask == 0) return;
  /* Claimed while the kernel works, so that no thread is given pages that are about to vanish. */
  uint32_t claimed = mask & atomic_fetch_and_explicit(&superslab->free, ~mask, memory_order_acq_rel); /* after ledger_note_in_flight */
  uint32_t dirty = claimed & load_relaxed(&superslab->dirty);
  if (claimed != dirty) ledger_release(s, claimed & ~dirty);
  while (dirty != 0) {
    unsigned at = bits_lowest32(dirty);
    uint32_t above = ~(dirty >> at);
    unsigned n = above == 0 ? WORD_UNITS : bits_lowest32(above);
    uint32_t start = s * WORD_UNITS + at;
    if (start != run->end || run->end - run->start >= RUN_UNITS) {
      run_end(run);
      run->start = start;
    }
    run->end = start + n;
    dirty &= ~bits_mask32(at, n);
  }
}

static size_t purge_end(run_t *run) {
  run_end(run);
  ledger_note_purged(run->purged);
  ledger_note_in_flight(false);
  size_t bytes = (size_t)run->purged << HAK_UNIT_SHIFT;
  pressure_note_given(bytes);
  return bytes;
}

/* A step walks over all superslabs: what was cold goes back, and what is idle becomes cold.  Each call of the program's own threads does a
 * small part of a step, the keeper does the rest.  `sweep` is the superslab that comes next. */
#define SWEEP_NONE (UINT32_MAX / 2) /* the region may grow, but not that far */
static _Atomic uint32_t sweep = SWEEP_NONE;
#define GROWTH_WORDS 1024       /* superslabs of a call that gives back what growth demands */
#define SWEEP_WORDS 64          /* superslabs of a call */
#define SWEEP_UNITS WORD_UNITS  /* units of a call: it ends after the superslab with which it has given back so many */

/* Walks over superslabs from *at on, until it has done `words` of them or given back `units`, or until *stop is not 0;
 * stop may be NULL. */
static size_t sweep_until(const _Atomic uint32_t *stop, _Atomic uint32_t *at, uint32_t words, uint32_t units, sweep_which_t which) {
  uint32_t count = region_superslabs();
  run_t run = {.locked_too = which == SWEEP_REFUSED};
  ledger_note_in_flight(true);
  while (words-- > 0 && (stop == NULL || load_relaxed(stop) == 0) && run.purged + (run.end - run.start) < units &&
         load_relaxed(at) < count) {
    uint32_t s = atomic_fetch_add_explicit(at, 1, memory_order_relaxed);
    if (s >= count) break;
    superslab_t *superslab = &region.superslabs[s];
    run_add(&run, s, which);
    uint32_t idle = load_relaxed(&superslab->free) & load_relaxed(&superslab->dirty);
    store_relaxed(&superslab->cold, idle & asked_for(superslab, SWEEP_IDLE));
  }
  if (load_relaxed(at) >= count) store_relaxed(at, SWEEP_NONE);
  return purge_end(&run);
}

static size_t sweep_from(_Atomic uint32_t *at, uint32_t words, uint32_t units, sweep_which_t which) {
  return sweep_until(NULL, at, words, units, which);
}

static bool sweep_is_under_way(void) { return load_relaxed(&sweep) < region_superslabs(); }

static size_t sweep_some(uint32_t words, uint32_t units) { return sweep_from(&sweep, words, units, SWEEP_COLD); }

/* All in one call, whatever step is under way. */
static size_t sweep_all(sweep_which_t which) {
  _Atomic uint32_t at = 0;
  return sweep_from(&at, UINT32_MAX, UINT32_MAX, which);
}

/* Gives back what has become idle since the last call.  What the kernel has refused is no reason to walk over a superslab again. */
static size_t sweep_idle(void) {
  ledger_range_t range = ledger_take_idle();
  if (range.from >= range.end) return 0;
  _Atomic uint32_t at = range.from;
  return sweep_from(&at, range.end - range.from, UINT32_MAX, SWEEP_IDLE);
}

static uint32_t cold_units(void) {
  uint32_t cold = 0;
  for (uint32_t s = region_superslabs(); s-- > 0;) cold += bits_count32(load_relaxed(&region.superslabs[s].cold));
  return cold;
}

size_t purge_all(void) { return sweep_all(SWEEP_REFUSED); }

/* --- what is due -------------------------------------------------------------------------- */

/* From the top down, since spans are taken from the bottom.  If the last call found too little, this one starts where that ended. */
static size_t purge_by_growth(uint32_t units) {
  static _Atomic uint32_t above;
  uint32_t count = region_superslabs(), s = load_relaxed(&above);
  if (s == 0 || s > count) s = count;
  run_t run = {.by_growth = true};
  ledger_note_in_flight(true);
  for (uint32_t words = GROWTH_WORDS; words > 0 && s > 0 && run.purged + (run.end - run.start) < units; words--) {
    s--;
    run_add(&run, s, SWEEP_IDLE);
    run_end(&run);
  }
  store_relaxed(&above, run.purged < units ? s : 0);
  return purge_end(&run);
}

/* A program whose large blocks come and go at the heap's highest size would fault in again and again what was given back for it, and gain
 * little.  So all that is given back by growth stays below half of what the heap has grown to. */
static uint64_t growth_allows(uint64_t surplus, uint64_t heap) {
  static _Atomic uint64_t given;
  uint64_t before = load_relaxed(&given), left = heap / 2 > before ? heap / 2 - before : 0;
  if (surplus > left) surplus = left;
  store_relaxed(&given, before + surplus);
  return surplus;
}

/* Small spans soon fault in again what was given back, and the peak is no lower.  So these bytes are a debt, which time pays off: at the
 * rate at which faults take a hundredth of the time, where a page costs 2.5 us.  Growth gives nothing back while the debt is larger than
 * this part of the heap's highest size. */
#define DEBT_PART 16
#define DEBT_PAID_PER_MS ((uint64_t)16 << 10)

bool purge_growth_pays(void) {
  uint64_t now = os_now_ms(), last = load_relaxed(&purge_state.debt_ms), debt = load_relaxed(&purge_state.debt_bytes);
  if (debt != 0 && now > last &&
      atomic_compare_exchange_strong_explicit(&purge_state.debt_ms, &last, now, memory_order_relaxed, memory_order_relaxed)) {
    uint64_t paid = (now - last) * DEBT_PAID_PER_MS, left = debt > paid ? debt - paid : 0;
    /* Fails if the debt has changed meanwhile: another thread may have paid for the time before. */
    bool settled =
        atomic_compare_exchange_strong_explicit(&purge_state.debt_bytes, &debt, left, memory_order_relaxed, memory_order_relaxed);
    if (settled) debt = left;
  }
  return debt <= (load_relaxed(&purge_state.most_units) << HAK_UNIT_SHIFT) / DEBT_PART;
}

void purge_note_again(size_t bytes) {
  if (load_relaxed(&purge_state.debt_bytes) == 0) store_relaxed(&purge_state.debt_ms, os_now_ms());
  add_relaxed(&purge_state.debt_bytes, bytes);
  add_relaxed(&purge_state.again_bytes, bytes);
}

uint64_t purge_again_bytes(void) { return load_relaxed(&purge_state.again_bytes); }

uint64_t purge_peak_units(void) { return load_relaxed(&purge_state.peak_units); }
uint64_t purge_epoch(void) { return load_relaxed(&purge_state.epoch); }
void purge_epoch_advance(void) { add_relaxed(&purge_state.epoch, 1); }

static void peak_note(uint64_t fresh) {
  add_relaxed(&purge_state.peak_units, fresh);
  purge_epoch_advance();
}

/* Near a limit the heap grows no further while any of it is idle.  Up to twice what is fresh goes back: where idle units were found, more
 * are likely to be. */
static size_t purge_instead(uint64_t fresh, uint64_t idle) {
  peak_note(fresh);
  uint64_t units = idle < 2 * fresh ? idle : 2 * fresh;
  return units == 0 ? 0 : purge_by_growth((uint32_t)units);
}

size_t purge_growth_due(void) {
  uint64_t fresh = ledger_take_fresh(GROWTH_STEP);
  if (HAK_LIKELY(fresh == 0)) return 0;
  uint64_t used = ledger_used_units(), idle = ledger_idle_units();
  if (HAK_UNLIKELY(pressure_now() >= PRESSURE_NEAR)) return purge_instead(fresh, idle);
  uint64_t most = load_relaxed(&purge_state.most_units);
  if (used + idle <= most || option_get(OPTION_decay_ms) < 0) return 0;
  uint64_t allowed = used * (uint64_t)option_get(OPTION_idle_percent) / 100;
  uint64_t surplus = idle > allowed ? idle - allowed : 0;
  if (surplus > used + idle - most) surplus = used + idle - most;
  surplus = purge_growth_pays() ? growth_allows(surplus, used + idle) : 0;
  store_relaxed(&purge_state.most_units, used + idle - surplus);
  peak_note(fresh);
  return surplus == 0 ? 0 : purge_by_growth((uint32_t)surplus);
}

/* What was locked may no longer be: once in a while everything that the kernel has refused is treated like the rest again. */
static void refused_forget(uint64_t now) {
  static _Atomic uint64_t since_ms;
  if (now - load_relaxed(&since_ms) < PURGE_REFUSED_MS) return;
  store_relaxed(&since_ms, now);
  for (uint32_t s = region_superslabs(); s-- > 0;) {
    _Atomic uint32_t *refused = &region.superslabs[s].refused;
    if (load_relaxed(refused) == 0) continue;
    atomic_store(refused, 0);
    ledger_note_idle(s, s + 1);
  }
}

/* Makes a part of a step for each tick of the clock. */
static size_t purge_time_due(void) {
  static _Atomic uint64_t last_part_ms;
  int64_t decay = option_get(OPTION_decay_ms);
  if (decay < 0) return 0;
  decay = pressure_decay(decay);
  /* What a step finds free is purged by the next step if nobody has used it since. */
  uint64_t now = os_now_ms();
  uint64_t last = load_relaxed(&purge_last_step_ms);
  if (decay == 0) {
    store_relaxed(&purge_last_step_ms, now);
    refused_forget(now);
    return sweep_idle();
  }
  if (!sweep_is_under_way()) {
    if (now - last < (uint64_t)decay / 2) return 0;
    if (!atomic_compare_exchange_strong_explicit(&purge_last_step_ms, &last, now, memory_order_relaxed, memory_order_relaxed)) return 0;
    refused_forget(now);
    store_relaxed(&sweep, 0);
  } else if (load_relaxed(&last_part_ms) == now || atomic_exchange_explicit(&last_part_ms, now, memory_order_relaxed) == now) {
    return 0;
  }
  return sweep_some(SWEEP_WORDS, SWEEP_UNITS);
}

size_t purge_due(void) {
  size_t purged = purge_growth_due();
  if (ledger_idle_units() > 0) purged += purge_time_due();
  return purged;
}

uint64_t purge_last_step(void) { return load_relaxed(&purge_last_step_ms); }

bool purge_step(uint64_t last, const _Atomic uint32_t *stop) {
  uint32_t before = cold_units(); /* without what the kernel refuses */
  if (sweep_is_under_way()) (void)sweep_until(stop, &sweep, UINT32_MAX, UINT32_MAX, SWEEP_COLD);
  if (purge_last_step() != last) return true;
  _Atomic uint32_t at = 0;
  return sweep_until(stop, &at, UINT32_MAX, UINT32_MAX, SWEEP_COLD) > 0 || cold_units() > before;
}
