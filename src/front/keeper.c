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
#include "front/handover.h"
#include "front/heaps.h"

/* Less idle memory than this waits for the program's next slow path, or for malloc_trim. */
#define KEEPER_BYTES ((uint64_t)4 << 20)
#define PERIOD_MIN_MS 10
#define ROUNDS_IN_VAIN 2 /* it ends after so many; what one round marks, the next one purges */

static bool prepare_limit_watch(void), prepare_watch(void);
/* Reserved from the start: a program that has met a limit on addresses, and frees, could map no stack. */
static HAK_APART char keeper_stack[OS_THREAD_STACK];
static os_thread_t keeper HAK_ALIGNED(HAK_CACHE_LINE) = {.prepare = prepare_limit_watch, .stack = keeper_stack};
static _Atomic uint32_t starts;
static _Atomic uint32_t working; /* 1 while the keeper may hold locks or units; read by a fork's child */

/* How long no keeper is started after it was not permitted, after the kernel refused a thread, or once the program has ended FEW_STOPS of
 * them: otherwise a program that changes its user for each client would start a keeper for each. */
#define RARELY_MS 1000
#define FEW_STOPS 16
static _Atomic uint32_t stops;
static _Atomic uint64_t not_before_ms;

/* For keeper_watch. */
#define LOOK_MS 100
static keeper_look_t *_Atomic watcher;
static os_prepare_t *_Atomic watch_open;
static _Atomic bool children_watch;
static _Atomic uint32_t generation;

/* For keeper_watch_limits: limits of memory. */
static keeper_open_t *_Atomic limit_watch_open;
static keeper_next_t *_Atomic limit_watch_look;
static _Atomic bool limit_watch_in_vain; /* one could not open what there is to check: no later one tries */

/* For the running keeper alone. */
static struct {
  bool watches;
  uint64_t look_in_ms; /* when it is to check limits; 0: never */
} duty;

void keeper_watch(os_prepare_t *open, keeper_look_t *look, bool children) {
  store_relaxed(&children_watch, children);
  store_relaxed(&watcher, look);
  store_relaxed(&watch_open, open);
  store_release(&keeper.prepare, open != NULL ? prepare_watch : prepare_limit_watch);
}

void keeper_watch_limits(keeper_open_t *open, keeper_next_t *look) {
  store_relaxed(&limit_watch_look, look);
  store_relaxed(&limit_watch_open, open);
}

uint32_t keeper_generation(void) { return load_relaxed(&generation); }

/* Whether a keeper would check limits. */
static bool limit_watch_wanted(void) {
  if (!load_relaxed(&pressure.contained) || load_relaxed(&limit_watch_in_vain)) return false;
  return load_relaxed(&limit_watch_open) != NULL && load_relaxed(&limit_watch_look) != NULL;
}

/* Opening files is known to be permitted if no filter was met, or if the watch has just done it. */
static bool limit_watch_prepare(void) {
  duty.look_in_ms = 0;
  if (!limit_watch_wanted() || (!duty.watches && !keeper.confined)) return false;
  bool opened = load_relaxed(&limit_watch_open)(duty.watches);
  if (opened) duty.look_in_ms = 1;
  else store_relaxed(&limit_watch_in_vain, true);
  return opened;
}

static bool prepare_limit_watch(void) {
  duty.watches = false;
  return limit_watch_prepare();
}

static bool prepare_watch(void) {
  duty.watches = load_relaxed(&watch_open)();
  return limit_watch_prepare() || duty.watches;
}

static void look_at_limits(void) {
  store_relaxed(&working, 1);
  duty.look_in_ms = load_relaxed(&limit_watch_look)();
  store_relaxed(&working, 0);
}

/* The longest sleep, since neither a request from outside nor a changed option wakes the keeper. */
#define NAP_MS 1000

/* Sleeps; returns false if the keeper is to end. Returns early if more has become due: a limit comes near, or memory is to go back sooner
 * or immediately. */
static bool keeper_sleep(uint64_t milliseconds) {
  uint32_t level = pressure_now();
  int64_t decay = option_get(OPTION_decay_ms);
  while (milliseconds > 0 && pressure_now() <= level && option_get(OPTION_decay_ms) == decay) {
    uint64_t longest = duty.watches ? LOOK_MS : NAP_MS, nap = milliseconds > longest ? longest : milliseconds;
    if (duty.look_in_ms != 0 && nap > duty.look_in_ms) nap = duty.look_in_ms;
    if (!os_thread_sleep_ms(&keeper, nap)) return false;
    if (duty.watches) load_relaxed (&watcher)();
    if (duty.look_in_ms != 0) look_at_limits();
    if (request_waits()) break;
    milliseconds -= nap;
  }
  return true;
}

static uint64_t period(int64_t decay, bool in_vain) {
  uint64_t least = !in_vain && decay >= 0 ? PERIOD_MIN_MS : duty.watches ? LOOK_MS : RARELY_MS;
  return decay / 2 < (int64_t)least ? least : (uint64_t)decay / 2;
}

/* Serves a request from outside. */
static void keeper_collect(void) {
  uint64_t number;
  if (!request_waits() || !request_take(&number)) return;
  store_relaxed(&working, 1);
  (void)drain_bins(NULL);
  handover_release();
  (void)heaps_collect();
  uint32_t aging = 0;
  (void)(purge_all() + hole_step(true, &aging));
  store_relaxed(&working, 0);
  request_finish(number);
}

/* With decay_ms 0 whole spans go back immediately, and nothing lies idle. But what freed them has left blocks in bins, and holes. */
static _Atomic uint64_t given_when_looked;
static bool much_has_gone(void) {
  return option_get(OPTION_decay_ms) == 0 && purge_bytes() - load_relaxed(&given_when_looked) >= KEEPER_BYTES;
}

/* Whether much could go back, by the process's figures and by those of `heap`, which may be NULL. */
static bool much_is_idle(const heap_t *heap) {
  if (ledger_idle_units() >= KEEPER_BYTES >> HAK_UNIT_SHIFT || drain_waiting() + handover_parked_bytes() >= KEEPER_BYTES) return true;
  return heap != NULL && hole_bytes_since_look(&heap->owner) > HOLE_WORTH;
}

/* Whether the keeper is to stay though nothing goes back by time. */
static bool keeper_stays(void) {
  if (duty.watches || duty.look_in_ms == 0) return duty.watches;
  bool stays = much_is_idle(NULL);
  for (heap_t *heap = heap_first(); heap != NULL && !stays; heap = load_relaxed(&heap->next)) stays = much_is_idle(heap);
  return stays;
}

/* Nothing here may use errno or any other thread-local variable. */
static void keeper_run(void) {
  if (duty.watches) load_relaxed (&watcher)();
  for (unsigned in_vain = 0; in_vain < ROUNDS_IN_VAIN || keeper_stays();) {
    uint64_t step = purge_last_step();
    int64_t decay = pressure_decay(option_get(OPTION_decay_ms));
    if (decay < 0 && !keeper_stays()) break;
    if (!keeper_sleep(period(decay, in_vain >= ROUNDS_IN_VAIN))) break;
    keeper_collect();
    if (decay < 0) continue;
    store_relaxed(&working, 1);
    uint32_t aging = 0;
    remote_waits_no_more();
    bool collected = heaps_collect();
    if (drain_idle(&aging) != 0) collected = true;
    aging += handover_age(os_now_ms());
    bool purged = purge_step(step, &keeper.held);
    bool holes = hole_step_until(&keeper.held, &aging) > 0;
    store_relaxed(&given_when_looked, purge_bytes());
    store_relaxed(&working, 0);
    bool more = aging > 0 || drain_waiting() >= KEEPER_BYTES;
    in_vain = purged || collected || holes || more ? 0 : in_vain + 1;
  }
}

/* Reads the cache line that each slow path reads for `id` anyway. */
static bool watches(void) { return load_relaxed(&keeper.prepare) == prepare_watch; }

static bool has_work(const heap_t *heap) {
  return watches() || remote_is_behind() || remote_much_waits() || much_is_idle(heap) || much_has_gone();
}

/* Under a filter that was there before the process, only calls are made that it is known to permit: clone, where libc has made one. The
 * calls that confine the keeper are not known to be permitted, so there is no keeper where it could hold more privileges than the other
 * threads. */
typedef enum permission { REFUSED, GRANTED, OF_A_GUEST } permission_t;
static permission_t may_start(bool *confined) {
  *confined = true;
  if (option_get(OPTION_keeper) == 2) return GRANTED;
  if (load_relaxed(&os_filters) != 0) return REFUSED;
  if (watches()) return GRANTED; /* it was requested */
  os_credentials_t credentials = os_credentials();
  if (!credentials.filtered && os_is_guest()) return OF_A_GUEST;
  *confined = !credentials.filtered;
  return !credentials.filtered || (os_multi_threaded() && !credentials.privileged) ? GRANTED : REFUSED;
}

void keeper_call(const heap_t *heap) {
  bool confined;
  if (HAK_LIKELY(!has_work(heap)) || os_thread_exists(&keeper) || load_relaxed(&keeper.unable) || !os_thread_possible()) return;
  if (!os_fork_was_by_libc()) return; /* it would outlive the process's only thread, and set the exit status in its place */
  if (option_get(OPTION_keeper) == 0 || os_now_ms() < load_relaxed(&not_before_ms)) return;
  if (option_get(OPTION_decay_ms) < 0 && !watches() && !(limit_watch_wanted() && much_is_idle(heap))) return;
  (void)os_started_filtered(); /* the keeper itself cannot find that out: os_barrier */
  permission_t permission = may_start(&confined);
  if (permission == OF_A_GUEST) return; /* it would end with the child of vfork, whatever it holds then; the parent may start one */
  if (permission == GRANTED && os_thread_start(&keeper, keeper_run, confined)) add_relaxed(&starts, 1);
  else if (permission == REFUSED || load_relaxed(&keeper.refused)) store_relaxed(&not_before_ms, os_now_ms() + RARELY_MS);
}

bool keeper_is_there(void) { return os_thread_exists(&keeper) && option_get(OPTION_decay_ms) > 0; }

uint32_t keeper_starts(void) { return load_relaxed(&starts); }

/* Not inside a slow path: the keeper may wait for a lock whose holder was interrupted by the signal handler that calls this. */
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
  store_relaxed(&limit_watch_in_vain, false);
  store_relaxed(&stops, 0);
  store_relaxed(&not_before_ms, 0);
  bool worked = load_relaxed(&working) != 0;
  if (worked) store_relaxed(&working, 0);
  return worked;
}
