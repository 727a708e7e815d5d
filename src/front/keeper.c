#include "front/keeper.h"

#include "os/os.h"
#include "kit/options.h"
#include "kit/pressure.h"
#include "kit/request.h"
#include "space/ledger.h"
#include "space/purge.h"
#include "slab/hole.h"
#include "slab/remote.h"
#include "front/drain.h"
#include "front/heaps.h"

/* Less idle memory than this waits for the program's next slow path, or for malloc_trim. */
#define KEEPER_BYTES ((uint64_t)4 << 20)
#define PERIOD_MIN_MS 10
#define ROUNDS_IN_VAIN 2 /* then it ends; what one round marks the next one purges */

static os_thread_t keeper HAK_ALIGNED(HAK_CACHE_LINE);
static _Atomic uint32_t starts;
static _Atomic uint32_t working; /* 1 while it may hold locks or units: for a fork's child */

/* So long none is started where it may not be, or where the program has ended FEW_STOPS: one that changes its user for each of
 * its clients would start as many. */
#define RARELY_MS 1000
#define FEW_STOPS 16
static _Atomic uint32_t stops;
static _Atomic uint64_t not_before_ms;

/* What is watched. */
#define LOOK_MS 100
static keeper_look_t *_Atomic watcher;
static _Atomic bool children_watch;
static _Atomic uint32_t generation;

void keeper_watch(os_prepare_t *open, keeper_look_t *look, bool children) {
  store_relaxed(&children_watch, children);
  store_relaxed(&watcher, look);
  store_release(&keeper.prepare, open);
}

uint32_t keeper_generation(void) { return load_relaxed(&generation); }

/* False: it is to end. */
static bool keeper_sleep(uint64_t milliseconds) {
  for (; keeper.files && milliseconds > LOOK_MS; milliseconds -= LOOK_MS) {
    if (!os_thread_sleep_ms(&keeper, LOOK_MS)) return false;
    load_relaxed (&watcher)();
  }
  if (!os_thread_sleep_ms(&keeper, milliseconds)) return false;
  if (keeper.files) load_relaxed (&watcher)();
  return true;
}

static uint64_t period(int64_t decay, bool in_vain) {
  uint64_t least = in_vain || decay < 0 ? LOOK_MS : PERIOD_MIN_MS;
  return decay / 2 < (int64_t)least ? least : (uint64_t)decay / 2;
}

/* Asked for from outside. */
static void keeper_collect(void) {
  uint64_t number;
  if (!request_waits() || !request_take(&number)) return;
  store_relaxed(&working, 1);
  (void)drain_bins(NULL);
  (void)heaps_collect();
  uint32_t aging = 0;
  (void)(purge_all() + hole_step(true, &aging));
  store_relaxed(&working, 0);
  request_finish(number);
}

/* Nothing here may use errno or any other thread-local variable. */
static void keeper_run(void) {
  if (keeper.files) load_relaxed (&watcher)();
  for (unsigned in_vain = 0; keeper.files || in_vain < ROUNDS_IN_VAIN;) {
    uint64_t step = purge_last_step();
    int64_t decay = pressure_decay(option_get(OPTION_decay_ms));
    if (decay < 0 && !keeper.files) break;
    if (!keeper_sleep(period(decay, in_vain >= ROUNDS_IN_VAIN))) break;
    keeper_collect();
    if (decay < 0) continue;
    store_relaxed(&working, 1);
    uint32_t aging = 0;
    bool collected = heaps_collect() | (drain_resting(&aging) != 0);
    bool purged = purge_step(step);
    bool holes = hole_step(false, &aging) > 0;
    store_relaxed(&working, 0);
    bool more = aging > 0 || drain_waiting() >= KEEPER_BYTES;
    in_vain = purged || collected || holes || more ? 0 : in_vain + 1;
  }
}

/* In the line that each slow path reads for `id`. */
static bool watches(void) { return load_relaxed(&keeper.prepare) != NULL; }

static bool has_work(const heap_t *heap) {
  if (watches() || remote_is_behind() || ledger_idle_units() >= KEEPER_BYTES >> HAK_UNIT_SHIFT) return true;
  if (drain_waiting() >= KEEPER_BYTES) return true;
  return heap != NULL && hole_bytes_since_look(&heap->owner) > HOLE_WORTH;
}

/* Under a filter that was there before the process was, only what it is known to permit is asked for: to clone, where libc has
 * done so.  The calls that confine the thread are not; so there is none where it could hold more than others. */
static bool may_start(bool *confined) {
  *confined = true;
  if (option_get(OPTION_keeper) == 2) return true;
  if (load_relaxed(&os_filters) != 0) return false;
  if (watches()) return true; /* it was asked for */
  os_standing_t standing = os_standing();
  *confined = !standing.filtered;
  return !standing.filtered || (os_multi_threaded() && !standing.privileged);
}

void keeper_call(const heap_t *heap) {
  bool confined;
  if (HAK_LIKELY(!has_work(heap)) || os_thread_exists(&keeper) || load_relaxed(&keeper.unable) || !os_thread_possible()) return;
  if (option_get(OPTION_keeper) == 0 || (option_get(OPTION_decay_ms) < 0 && !watches()) || os_now_ms() < load_relaxed(&not_before_ms))
    return;
  (void)os_started_filtered(); /* the keeper could not find out: os_barrier */
  if (!may_start(&confined)) store_relaxed(&not_before_ms, os_now_ms() + RARELY_MS);
  else if (os_thread_start(&keeper, keeper_run, confined)) add_relaxed(&starts, 1);
}

bool keeper_is_there(void) { return os_thread_exists(&keeper) && option_get(OPTION_decay_ms) > 0; }

uint32_t keeper_starts(void) { return load_relaxed(&starts); }

/* The keeper may wait for a lock that a signal handler has interrupted the holder of. */
bool keeper_hold(void) {
  if (os_forked() || thread_inside != 0) return false;
  if (os_thread_exists(&keeper) && atomic_fetch_add_explicit(&stops, 1, memory_order_relaxed) >= FEW_STOPS) {
    store_relaxed(&not_before_ms, os_now_ms() + RARELY_MS);
  }
  os_thread_hold(&keeper);
  return true;
}

void keeper_release(void) { os_thread_release(&keeper); }

bool keeper_after_fork(void) {
  os_thread_forget(&keeper);
  add_relaxed(&generation, 1);
  if (!load_relaxed(&children_watch)) keeper_watch(NULL, NULL, false);
  store_relaxed(&stops, 0);
  store_relaxed(&not_before_ms, 0);
  bool worked = load_relaxed(&working) != 0;
  if (worked) store_relaxed(&working, 0);
  return worked;
}
