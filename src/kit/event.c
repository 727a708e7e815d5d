#include "kit/event.h"

#include "kit/meta.h"
#include "kit/random.h"
#include "os/os.h"

_Atomic uint64_t event_until_ms;
HAK_APART void *_Atomic event_chunks[SITE_MOST / SITE_CHUNK];
void *_Atomic event_rows;

#define PROBES 32 /* how many rows to try from the first one on */

bool event_expire(void) {
  uint64_t until = load_relaxed(&event_until_ms);
  if (until == 0 || os_now_ms() < until) return false;
  (void)atomic_compare_exchange_strong_explicit(&event_until_ms, &until, 0, memory_order_relaxed, memory_order_relaxed);
  return true;
}

void event_arm(uint64_t until_ms) {
  uint64_t before = load_relaxed(&event_until_ms);
  while (before < until_ms &&
         !atomic_compare_exchange_weak_explicit(&event_until_ms, &before, until_ms, memory_order_relaxed, memory_order_relaxed)) {
  }
}

HAK_COLD void event_after_fork(void) {
  if (load_relaxed(&event_until_ms) != EVENT_ALWAYS) store_relaxed(&event_until_ms, 0);
}

/* --- the sums ----------------------------------------------------------------------------- */

const event_site_t *event_of(uint32_t site) {
  const event_site_t *chunk = site < SITE_MOST ? load_acquire(&event_chunks[site >> SITE_CHUNK_SHIFT]) : NULL;
  return chunk == NULL ? NULL : &chunk[site % SITE_CHUNK];
}

static event_site_t *event_make(uint32_t site) {
  event_site_t *chunk = meta_once(&event_chunks[site >> SITE_CHUNK_SHIFT], SITE_CHUNK * sizeof(event_site_t));
  return chunk == NULL ? NULL : &chunk[site % SITE_CHUNK];
}

const event_row_t *event_row_at(uint32_t number) {
  const event_row_t *rows = load_acquire(&event_rows);
  return rows == NULL || number >= EVENT_ROWS ? NULL : &rows[number];
}

/* Returns whether the row has this key, claiming a free row for it. */
static bool row_is(event_row_t *row, uint64_t key) {
  uint64_t found = load_relaxed(&row->key);
  if (found != 0) return found == key;
  bool taken = atomic_compare_exchange_strong_explicit(&row->key, &found, key, memory_order_relaxed, memory_order_relaxed);
  return taken || found == key;
}

static event_row_t *row_make(uint32_t site, unsigned group) {
  event_row_t *rows = meta_once(&event_rows, EVENT_ROWS * sizeof(event_row_t));
  if (rows == NULL) return NULL;
  uint64_t key = event_key(site, group);
  uint32_t first = (uint32_t)(random_mix(key) % (EVENT_ROWS - EVENT_GROUPS));
  for (uint32_t i = 0; site != SITE_NONE && i < PROBES; i++) {
    event_row_t *row = &rows[EVENT_GROUPS + (first + i) % (EVENT_ROWS - EVENT_GROUPS)];
    if (row_is(row, key)) return row;
  }
  return row_is(&rows[group], event_key(SITE_NONE, group)) ? &rows[group] : NULL;
}

static void sums_add(event_site_t *sums, size_t bytes, double stands_for) {
  add_relaxed(&sums->events, 1);
  add_relaxed(&sums->bytes, (uint64_t)((double)bytes * stands_for));
  add_relaxed(&sums->objects, (uint64_t)(stands_for * (1 << EVENT_OBJECT_BITS)));
}

/* --- chance ------------------------------------------------------------------------------- */

/* exp(-x) for 0 <= x <= 1, to 1e-9: as (1 - y + y^2 / 2 ...)^256 with y = x / 256. */
static double exp_minus(double x) {
  double y = x / 256, power = 1 - y * (1 - y / 2 * (1 - y / 3 * (1 - y / 4 * (1 - y / 5))));
  for (unsigned i = 0; i < 8; i++) power *= power;
  return power;
}

/* -ln(u) for u = bits / 2^64: each zero before the first one bit counts ln 2, and the rest is a series. */
static double minus_ln(uint64_t bits) {
  unsigned zeroes = bits == 0 ? 63 : 63 - bits_highest64(bits);
  double m = (double)(bits << zeroes | (uint64_t)1 << 63) / 0x1p63, t = (m - 1) / (m + 1), s = t * t;
  double ln = 2 * t * (1 + s * (1.0 / 3 + s * (1.0 / 5 + s * (1.0 / 7 + s * (1.0 / 9 + s / 11)))));
  return (zeroes + 1) * 0.693147180559945309 - ln;
}

/* A block from EVENT_BYTES on takes longer to write to than its site takes to find, and is best counted exactly. */
static double event_chance(size_t bytes) { return bytes >= EVENT_BYTES ? 1 : 1 - exp_minus((double)bytes / (double)EVENT_BYTES); }

int64_t event_distance(uint64_t *random) { return 1 + (int64_t)(minus_ln(random_next(random)) * (double)EVENT_BYTES); }

void event_count(unsigned group, size_t bytes) {
  (void)event_expire(); /* this allocation still counts: the group's exact count has it */
  uint32_t site = site_here();
  event_site_t *sums = event_make(site);
  event_row_t *row = row_make(site, group);
  if (sums == NULL || row == NULL) return;
  double stands_for = 1 / event_chance(bytes);
  sums_add(sums, bytes, stands_for);
  sums_add(&row->sums, bytes, stands_for);
}

void event_try(unsigned group, size_t bytes) {
  static _Atomic uint64_t state;
  uint64_t drawn = atomic_fetch_add_explicit(&state, RANDOM_STEP, memory_order_relaxed);
  uint64_t random = random_mix(drawn ^ (uintptr_t)&state);
  if ((double)(random >> 11) < event_chance(bytes) * 0x1p53) event_count(group, bytes);
}
