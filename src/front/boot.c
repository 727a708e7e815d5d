#include "front/boot.h"

#include <unistd.h>

#include "base/thread.h"
#include "os/memcheck.h"
#include "os/os.h"
#include "kit/options.h"
#include "kit/secret.h"
#include "kit/site.h"
#include "space/huge.h"
#include "space/region.h"
#include "space/span.h"
#include "slab/sample.h"
#include "front/limits.h"
#include "front/thread.h"
#include "front/watch.h"

#define BOOT_NONE ((uintptr_t)0)
#define BOOT_DONE ((uintptr_t)1)
static _Atomic uintptr_t boot_state; /* one of these, or the thread that boots */
static _Atomic bool options_read;

static bool wants_profile(void) { return option_get(OPTION_insight) > 1 || option_path(PATH_profile)[0] != '\0'; }
static bool wants_samples(void) { return !memcheck_on() && (option_get(OPTION_insight) != 0 || wants_profile()); }
static bool wants_events(void) { return !memcheck_on() && option_get(OPTION_events) != 0; }

void boot_options(void) {
  if (environ == NULL || load_relaxed(&options_read) || atomic_exchange_explicit(&options_read, true, memory_order_relaxed)) return;
  options_load(environ);
  /* Before the first thread gets its heap, if libc has the environment by then. */
  if (option_get(OPTION_stats) != 0 || option_get(OPTION_guard) != 0) store_relaxed(&watch_always, true);
  if (wants_events()) store_relaxed(&event_until_ms, EVENT_ALWAYS);
}

/* Keeps the first unit unused: a block there would never count as lost, since region.base points to it. */
static void hide_base(void) {
  bool zero;
  uint32_t unit = span_alloc(1, 1, SPAN_SLAB, &zero);
  if (unit != SPAN_NONE) units_enter(unit, 1, UNIT_META, CLASS_NONE);
}

static bool boot_first(void) {
  uintptr_t state = BOOT_NONE, self = thread_self();
  if (atomic_compare_exchange_strong_explicit(&boot_state, &state, self, memory_order_acquire, memory_order_relaxed)) {
    boot_options();
    os_fork_watch();
    if (HAK_SECURE) secret_start();
    if (wants_samples()) {
      sample_start((uint64_t)option_get(OPTION_sample_kb) << 10, wants_profile() || option_get(OPTION_track) != 0);
      track_start((uint32_t)option_get(OPTION_track));
    }
    bool done = region_init((uint64_t)option_get(OPTION_region_mb) << 20);
    if (done && memcheck_on()) hide_base();
    store_release(&boot_state, done ? BOOT_DONE : BOOT_NONE);
    return done;
  }
  if (state == self) return false; /* a preloaded mmap or open that allocates, or a signal handler */
  while (load_relaxed(&boot_state) > BOOT_DONE && !os_forked()) os_yield();
  return load_acquire(&boot_state) == BOOT_DONE;
}

bool boot(void) { return HAK_LIKELY(load_acquire(&boot_state) == BOOT_DONE) || boot_first(); }

void boot_finish(void) {
  boot_options();
  store_relaxed(&options_read, true); /* later options are not read: the secure library seals what there is */
  thread_watch_exits();
  if ((HAK_SAMPLED && wants_samples()) || wants_events()) site_start();
  options_seal();
  limits_start();
  /* Read now, since a filter may refuse it later. */
  huge_start();
  (void)os_map_limit();
  if (!boot()) return; /* no memory; the first allocation tries again */
}
