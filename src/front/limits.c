#include "front/limits.h"

#include <string.h>

#include "os/cgroup.h"
#include "os/file.h"
#include "os/os.h"
#include "kit/options.h"
#include "space/ledger.h"
#include "space/purge.h"
#include "slab/hole.h"
#include "slab/large.h"
#include "front/drain.h"
#include "front/keeper.h"
#include "front/repair.h"
#include "front/supply.h"

#define FIND_MS 10000    /* the process may be moved to another group, and another group become the tightest */
#define CHECK_SOON_MS 100      /* while a limit is near, since others in the group grow too */
#define CHECK_LATER_MS 1000      /* while there is one */
#define REFUSED_PAUSE_MS 1
#define FIRST_GROWTH ((uint64_t)1024) /* without a limit: the heap must have grown by so many units, or doubled */

/* If the group has waited for memory for more than 1/STALLED_SHARE of the time, it is nearer to the limit than figures say. */
#define STALLED_SHARE 10

/* At the highest level more goes back than idle units, which costs a walk over all slabs.
 * If that gives little, the pause before the next walk doubles. */
#define GIVE_LEAST_MS 100
#define GIVE_MOST_MS 3200
#define GIVE_WORTH 64 /* worth it: the limit divided by this */

/* For the thread that checks: see the header. */
static HAK_APART struct {
  cgroup_t group;
  bool known;              /* `group` is set */
  bool found;              /* a group was looked for */
  uint64_t found_ms, ms;   /* when it was looked for, and last read */
  uint64_t use, units;     /* at that time: bytes in use, and units of the heap */
  uint64_t stalled_us;     /* the total at that time */
  bool stalls;
  uint64_t give_ms, pause_ms;
} limits_seen;

/* For the thread that checks, too. */
static HAK_APART cgroup_text_t limits_text;

/* For the keeper, which cannot open files later: its group as that was when the keeper began, and the files that it has open. */
static HAK_APART struct {
  cgroup_open_files_t files;
  char path[CGROUP_PATH];
} keeper_group;

/* When the next check by time is due. */
static _Atomic uint64_t tick_ms;

static uint64_t limit_known(void) { return limits_seen.known && limits_seen.group.limit != CGROUP_NONE ? limits_seen.group.limit : 0; }

static pressure_source_t source_known(void) {
  if (limit_known() == 0) return PRESSURE_NOTHING;
  if (limits_seen.group.version == CGROUP_V1) return PRESSURE_V1;
  return limits_seen.group.by == CGROUP_FILE_HIGH ? PRESSURE_HIGH_MARK : PRESSURE_MAX;
}

/* --- reading the limits ------------------------------------------------------------------ */

static void see_stalls(uint64_t passed_ms) {
  uint64_t stalled = cgroup_stalled_us(&limits_seen.group), before = limits_seen.stalled_us;
  limits_seen.stalled_us = stalled;
  limits_seen.stalls = before != 0 && passed_ms > 0 && stalled > before && (stalled - before) / 1000 > passed_ms / STALLED_SHARE;
}

static bool is_share_of_limit(void) { return option_get(OPTION_limit_hard) < 0 || option_get(OPTION_limit_soft) < 0; }

/* Most of what a group uses may be files that were read once. The kernel gives these up first, so they are no reason to hurry. Pages of
 * files that were used again are kept longer, and count here. kubelet computes in this way what a container needs. The figure is read where
 * it matters: near the limit, and for a limit that is a share of it. */
static void see_use(uint64_t now, uint64_t units) {
  uint64_t limit = limit_known(), passed = now - limits_seen.ms;
  limits_seen.use = limits_seen.group.use;
  if (limit != 0) see_stalls(passed);
  if (limit != 0 && (pressure_of(limits_seen.use, limit) != PRESSURE_NONE || is_share_of_limit())) {
    uint64_t spare = cgroup_reclaimable(&limits_seen.group, &limits_text);
    limits_seen.use -= spare < limits_seen.use ? spare : limits_seen.use;
  }
  limits_seen.ms = now;
  limits_seen.units = units;
}

/* With files open there is one group; without, the group is looked for again now and then. */
static bool group_look(uint64_t now, const cgroup_open_files_t *files) {
  limits_seen.group.files = files;
  bool is_old = files == NULL && (!limits_seen.found || now - limits_seen.found_ms >= FIND_MS);
  if (limits_seen.known && !is_old && cgroup_look(&limits_seen.group)) return true;
  if (files != NULL) return false;
  limits_seen.known = cgroup_find(&limits_seen.group, true, &limits_text);
  limits_seen.found = true;
  limits_seen.found_ms = now;
  return limits_seen.known;
}

/* Forgets the container; it is looked for again once the option wants that. */
static void container_forget(void) {
  limits_seen.known = limits_seen.found = limits_seen.stalls = false;
  store_relaxed(&pressure.contained, false);
}

/* Returns false if the kernel was not asked, or has no answer. If an allocation was `refused` it is asked again soon: others may have given
 * memory back. */
static bool limits_ask(uint64_t now, uint64_t units, const cgroup_open_files_t *files, bool refused) {
  uint64_t pause = refused ? REFUSED_PAUSE_MS : LIMITS_PAUSE_MS;
  if (option_get(OPTION_container) == 0) {
    container_forget();
    return false;
  }
  bool silent = load_relaxed(&os_filters) != 0;
  if (!silent && limits_seen.found && now - limits_seen.ms < pause) return false;
  limits_seen.stalls = false; /* stalls hold for one check */
  if (silent) return false;
  add_relaxed(&pressure.looks, 1);
  bool there = group_look(now, files);
  store_relaxed(&pressure.contained, there && limit_known() != 0);
  if (there) see_use(now, units);
  else limits_seen.ms = now;
  return there;
}

/* --- what follows from the figures ------------------------------------------------------- */

/* The bytes that the group would use if nobody else had grown since the kernel was asked. */
static uint64_t use_expected(uint64_t units) {
  int64_t grown = (int64_t)(units - limits_seen.units) * (int64_t)HAK_UNIT;
  return grown < 0 && limits_seen.use < (uint64_t)-grown ? 0 : limits_seen.use + (uint64_t)grown;
}

/* Returns false if there is no soft limit, or if the use is below it. */
static bool soft_is_passed(uint64_t use, uint64_t units, uint64_t *amount, uint64_t *in_use) {
  int64_t option = option_get(OPTION_limit_soft);
  *amount = pressure_amount(option, limit_known());
  *in_use = option > 0 ? units << HAK_UNIT_SHIFT : use;
  return *amount != UINT64_MAX && *in_use >= *amount;
}

/* Uses figures of one reading only: if the heap has grown since, that growth must not count as memory that others gave back. */
static void cap_set(void) {
  int64_t option;
  do { /* a thread that changes it meanwhile may have set its own cap just before */
    option = option_get(OPTION_limit_hard);
    uint64_t amount = pressure_amount(option, limit_known()), cap = LEDGER_NO_CAP;
    if (amount != UINT64_MAX) cap = option > 0 ? amount >> HAK_UNIT_SHIFT : pressure_cap_of(amount, limits_seen.use, limits_seen.units);
    ledger_set_cap(cap);
  } while (option != option_get(OPTION_limit_hard));
}

static uint64_t next_look(uint64_t use, uint64_t units) {
  uint64_t limit = limit_known();
  uint64_t step = limit != 0 ? pressure_step(use, limit) : units > FIRST_GROWTH ? units : FIRST_GROWTH;
  int64_t soft = option_get(OPTION_limit_soft);
  if (soft > 0) {
    uint64_t at = (uint64_t)soft >> HAK_UNIT_SHIFT, least = pressure_step(0, 1);
    uint64_t to_soft = units < at ? at - units : least;
    if (to_soft < step) step = to_soft > 0 ? to_soft : 1;
  }
  return units + step;
}

/* --- giving back ------------------------------------------------------------------------- */

size_t limits_give_all(heap_t *heap) {
  uint32_t aging = 0;
  if (heap != NULL) heap_trim(heap);
  (void)drain_bins(heap);
  heap_trim_others();
  (void)large_trim();
  return purge_all() + hole_step(true, &aging);
}

/* Whether `at` is still to come.  No time is set for more than `most` ahead: one that is was set by another clock, a preloaded library's or
 * that of another time namespace. */
static bool is_early(uint64_t at, uint64_t now, uint64_t most) { return now < at && at - now <= most; }

static void limits_give_back(heap_t *heap, uint64_t now, uint64_t limit) {
  (void)purge_all();
  if (is_early(limits_seen.give_ms, now, GIVE_MOST_MS)) return;
  bool worth = limits_give_all(heap) >= limit / GIVE_WORTH;
  uint64_t longer = limits_seen.pause_ms * 2 < GIVE_MOST_MS ? limits_seen.pause_ms * 2 : GIVE_MOST_MS;
  limits_seen.pause_ms = worth || longer == 0 ? GIVE_LEAST_MS : longer;
  limits_seen.give_ms = now + limits_seen.pause_ms;
}

/* --- a check ----------------------------------------------------------------------------- */

static void level_set(heap_t *heap, uint64_t now, uint64_t use, uint64_t units) {
  pressure_source_t source = source_known();
  uint64_t limit = limit_known(), amount, in_use;
  pressure_level_t level = pressure_of(use, limit);
  if (limits_seen.stalls && level < PRESSURE_URGENT) level++;
  if (level < PRESSURE_URGENT && soft_is_passed(use, units, &amount, &in_use)) {
    level = PRESSURE_URGENT;
    source = PRESSURE_SOFT;
    limit = amount;
    use = in_use;
  }
  pressure_set(level, source, use, limit);
  uint64_t next = level != PRESSURE_NONE ? CHECK_SOON_MS : CHECK_LATER_MS;
  store_relaxed(&tick_ms, limit_known() == 0 && level == PRESSURE_NONE ? UINT64_MAX : now + next);
  bool reports = level >= PRESSURE_NEAR && load_relaxed(&pressure.has_callback);
  store_relaxed(&pressure.to_report, reports ? (uint32_t)level : (uint32_t)PRESSURE_NONE);
  if (level == PRESSURE_URGENT) limits_give_back(heap, now, limit);
}

/* The next thread on a slow path checks. */
static void look_soon(void) {
  store_release(&pressure.look_at, (uint64_t)0);
  purge_epoch_advance();
}

/* An option was changed, since the last check began. */
static _Atomic bool changed;

static bool look_claim(void) {
  uint64_t at = atomic_load(&pressure.look_at); /* after limits_changed has set `changed` */
  if (at == UINT64_MAX) return false;
  return atomic_compare_exchange_strong_explicit(&pressure.look_at, &at, UINT64_MAX, memory_order_acquire, memory_order_relaxed);
}

/* By the thread that has claimed look_at. */
static HAK_COLD void limits_step(heap_t *heap, const cgroup_open_files_t *files, bool refused) {
  uint64_t now = os_now_ms(), units = ledger_heap_units();
  (void)atomic_exchange(&changed, false); /* acquires the option */
  os_credentials_note(); /* for the keeper: the program may soon have used up its descriptors */
  if (load_relaxed(&pressure.forked)) { /* may be half written */
    store_relaxed(&pressure.forked, false);
    limits_seen.known = limits_seen.found = false;
  }
  /* What the heap has grown by may not be written to yet, and the heap may grow as much again before the next check. So that growth is
   * added, also where it is too early to ask: else a heap that grows fast would seem two levels further on once the kernel is asked. */
  uint64_t grown = limits_seen.found && limits_seen.units < units ? units - limits_seen.units : 0;
  bool asked = limits_ask(now, units, files, refused), too_early = !asked && now - limits_seen.ms < LIMITS_PAUSE_MS;
  uint64_t use = limits_seen.known ? use_expected(units) + (asked || too_early ? grown << HAK_UNIT_SHIFT : 0) : 0;
  cap_set();
  level_set(heap, now, use, units);
  atomic_store(&pressure.look_at, next_look(use, ledger_heap_units()));
  if (atomic_load(&changed) && look_claim()) look_soon(); /* it may have come too late for this check; else another is under way */
}

static HAK_COLD void limits_look(heap_t *heap, bool refused) {
  if (look_claim()) limits_step(heap, NULL, refused);
}

static bool is_due(uint64_t at, uint64_t now) { return at != UINT64_MAX && !is_early(at, now, CHECK_LATER_MS); }

void limits_due(heap_t *heap) {
  uint64_t at = load_relaxed(&tick_ms);
  bool grown = ledger_heap_units() >= load_relaxed(&pressure.look_at);
  if (grown || (at != 0 && at != UINT64_MAX && is_due(at, os_now_ms()))) limits_look(heap, false);
}

bool limits_make_room(heap_t *heap) {
  uint64_t before = ledger_cap();
  if (HAK_LIKELY(before == LEDGER_NO_CAP)) return false;
  size_t given = ledger_idle_units() > 0 ? purge_all() : 0;
  limits_look(heap, true);
  return given > 0 || ledger_cap() > before;
}

/* Drops immediately what was seen of the container, and percentages of its limit: a program that makes no calls may have no other check. A
 * soft limit in bytes stays. */
static HAK_COLD void container_drop(void) {
  container_forget();
  if (option_get(OPTION_limit_hard) < 0) ledger_set_cap(LEDGER_NO_CAP);
  if (load_relaxed(&pressure.source) == (uint32_t)PRESSURE_SOFT && option_get(OPTION_limit_soft) > 0) return;
  pressure_set(PRESSURE_NONE, PRESSURE_NOTHING, 0, 0);
  store_relaxed(&pressure.to_report, (uint32_t)PRESSURE_NONE);
}

/* A limit in bytes holds immediately, also for the next allocation; a percentage is known with the next check. A thread that is checking
 * now checks once more soon. */
HAK_COLD void limits_changed(void) {
  int64_t hard = option_get(OPTION_limit_hard);
  if (hard >= 0) ledger_set_cap(hard > 0 ? (uint64_t)hard >> HAK_UNIT_SHIFT : LEDGER_NO_CAP);
  atomic_store(&changed, true);
  if (!look_claim()) return;
  if (option_get(OPTION_container) == 0) container_drop();
  look_soon();
}

/* --- the keeper's checks ----------------------------------------------------------------- */

static HAK_COLD bool keeper_group_open(bool apart) {
  cgroup_t group;
  cgroup_text_t text; /* on the keeper's own stack: another thread may be checking */
  if (!cgroup_find(&group, true, &text) || group.limit == CGROUP_NONE || (!apart && !file_apart())) return false;
  memcpy(keeper_group.path, group.path, CGROUP_PATH);
  cgroup_open(&group, &keeper_group.files);
  group.files = &keeper_group.files;
  return cgroup_look(&group);
}

/* If other threads have found another group, the files that the keeper has open are of no use any more. */
static void keeper_group_step(void) {
  if (!limits_seen.known || strcmp(limits_seen.group.path, keeper_group.path) != 0) {
    store_relaxed(&pressure.contained, false); /* until they check again */
    look_soon();
    return;
  }
  limits_step(NULL, &keeper_group.files, false);
  if (load_relaxed(&pressure.to_report) != (uint32_t)PRESSURE_NONE) purge_epoch_advance(); /* for the next to allocate */
}

static HAK_COLD uint64_t keeper_group_look(void) {
  uint64_t at = load_relaxed(&tick_ms), now = os_now_ms();
  if (is_due(at, now) && look_claim()) {
    keeper_group_step();
    at = load_relaxed(&tick_ms);
  }
  if (at == UINT64_MAX || !load_relaxed(&pressure.contained)) return 0;
  return at > now ? at - now : LIMITS_PAUSE_MS;
}

void limits_start(void) {
  keeper_watch_limits(keeper_group_open, keeper_group_look);
  if (option_get(OPTION_limit_soft) != 0 || option_get(OPTION_limit_hard) != 0) limits_changed();
}
