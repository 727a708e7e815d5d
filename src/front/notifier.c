#include "front/notifier.h"

#include <errno.h>
#include <pthread.h>

#include "base/thread.h"
#include "os/os.h"
#include "space/ledger.h"
#include "slab/class.h"
#include "front/limits.h"
#include "front/thread.h"

#define REPORT_AGAIN_MS 1000
/* How long at a time, and how often, an allocation that fails waits for another thread in which the program frees; that thread may wait for
 * this one's locks. */
#define RECLAIM_WAIT_US 1000
#define RECLAIM_WAITS_MOST 100

/* Written and read by the thread in pressure.callback_thread alone. The secure library keeps it unwritable in between, since it holds the
 * function to call. */
static struct {
  hak_pressure_callback_t *callback;
  void *argument;
} HAK_SEALED notifier_hook;

static bool hook_seal(bool sealed) { return !HAK_SECURE || os_seal(&notifier_hook, sizeof notifier_hook, sealed); }

/* The level that was reported last, and when it may be reported again; a higher level is reported immediately. */
static _Atomic uint32_t reported_level;
static _Atomic uint64_t report_again_ms;

static bool notifier_begin(void) {
  uintptr_t none = 0;
  return atomic_compare_exchange_strong_explicit(&pressure.callback_thread, &none, thread_self(), memory_order_acquire,
                                                 memory_order_relaxed);
}

static void notifier_end(void) { store_release(&pressure.callback_thread, (uintptr_t)0); }

static bool notifier_is_mine(void) { return load_relaxed(&pressure.callback_thread) == thread_self(); }

void notifier_set(hak_pressure_callback_t *callback, void *argument) {
  thread_enter(); /* repairs a fork's child, in which the thread that was in the callback is gone */
  thread_leave();
  bool mine = notifier_is_mine(); /* from the callback itself */
  while (!mine && !notifier_begin()) os_sleep_us(RECLAIM_WAIT_US);
  if (hook_seal(false)) {
    notifier_hook.callback = callback;
    notifier_hook.argument = argument;
  }
  (void)hook_seal(true);
  store_relaxed(&pressure.has_callback, callback != NULL);
  store_relaxed(&reported_level, 0);
  if (!mine) notifier_end();
}

/* The callback may write or wait, and a thread may be cancelled there. malloc is no cancellation point: the thread would be gone, and the
 * program never called back again. */
static size_t notifier_call(const hak_pressure_t *p) {
  if (notifier_hook.callback == NULL) return 0;
  int saved = errno, before;
  (void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
  size_t freed = notifier_hook.callback(p, notifier_hook.argument);
  (void)pthread_setcancelstate(before, &before);
  errno = saved;
  return freed;
}

/* Describes the nearest limit, or HAKMEM_LIMIT_HARD if that refuses the request. A percentage, too, is given as what the heap may come
 * to. */
static hak_pressure_t notifier_figures(uint32_t level, size_t wanted) {
  hak_pressure_t p = {sizeof p, level, load_relaxed(&pressure.use), load_relaxed(&pressure.limit), wanted};
  unsigned c = class_of_request_aligned(wanted, 1);
  if (level != HAK_PRESSURE_FAILING || ledger_permits(c != CLASS_NONE ? class_info[c].units : units_of(wanted))) return p;
  p.used = ledger_heap_units() << HAK_UNIT_SHIFT;
  p.limit = ledger_cap() << HAK_UNIT_SHIFT;
  return p;
}

/* What the program has freed goes back immediately: the limit is near. */
static bool notifier_ask(uint32_t level, size_t wanted) {
  hak_pressure_t p = notifier_figures(level, wanted);
  size_t freed = notifier_call(&p);
  if (freed == 0) return false;
  thread_enter();
  (void)limits_give_all(thread_heap);
  limits_changed();
  thread_leave();
  return true;
}

static uint32_t level_to_report(uint32_t level) {
  return level == PRESSURE_URGENT ? HAK_PRESSURE_URGENT : level == PRESSURE_NEAR ? HAK_PRESSURE_NEAR : 0;
}

HAK_COLD void notifier_report(void) {
  if (thread_inside != 0) return; /* a signal handler in a slow path: later */
  uint32_t level = level_to_report(load_relaxed(&pressure.to_report));
  store_relaxed(&pressure.to_report, (uint32_t)PRESSURE_NONE); /* until the next check */
  uint64_t now = os_now_ms();
  if (level == 0 || (level <= load_relaxed(&reported_level) && now < load_relaxed(&report_again_ms)) || !notifier_begin()) return;
  store_relaxed(&reported_level, level);
  store_relaxed(&report_again_ms, now + REPORT_AGAIN_MS);
  (void)notifier_ask(level, 0);
  notifier_end();
}

HAK_COLD bool notifier_reclaim(size_t size) {
  if (!load_relaxed(&pressure.has_callback) || thread_inside != 0 || notifier_is_mine()) return false;
  for (unsigned tries = 0; !notifier_begin(); tries++) {
    if (tries == RECLAIM_WAITS_MOST) return true;
    os_sleep_us(RECLAIM_WAIT_US);
  }
  bool freed = notifier_ask(HAK_PRESSURE_FAILING, size);
  notifier_end();
  return freed;
}
