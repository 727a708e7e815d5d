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
#define NEAR_MS 100      /* while a limit is near, since others in the group grow too */
#define FAR_MS 1000      /* while there is one */
#define REFUSED_PAUSE_MS 1
#define FIRST_GROWTH ((uint64_t)1024) /* without a limit: the units that the heap must have grown by, or doubled */

/* So much of the time that passed its group has waited for memory: it is nearer to the limit than figures say. */
#define STALLED_SHARE 10

/* What goes back at the highest level beside idle units costs a walk over all slabs.  Where that gives little it waits twice as long. */
#define GIVE_LEAST_MS 100
#define GIVE_MOST_MS 3200
#define GIVE_WORTH 64 /* a part of the limit */

/* Of whoever looks: see the header. */
static HAK_APART struct {
  cgroup_t group;
  bool known;              /* `group` is one */
  bool found;              /* it was looked for */
  uint64_t found_ms, ms;   /* when it was looked for and looked at */
  uint64_t use, units;     /* then: bytes, and units of the heap */
  uint64_t stalled_us;     /* then, so far */
  bool stalls;
  uint64_t give_ms, pause_ms;
} limits_seen;

/* Of whoever looks, too. */
static HAK_APART cgroup_text_t limits_text;

/* The keeper's, which may open nothing later: its group as that was when it began, and what it has open of it. */
static HAK_APART struct {
  cgroup_open_files_t files;
  char path[CGROUP_PATH];
} limits_kept;

/* When a tick may look. */
static _Atomic uint64_t tick_ms;

static uint64_t limit_known(void) { return limits_seen.known && limits_seen.group.limit != CGROUP_NONE ? limits_seen.group.limit : 0; }

static pressure_source_t source_known(void) {
  if (limit_known() == 0) return PRESSURE_NOTHING;
  if (limits_seen.group.version == CGROUP_V1) return PRESSURE_V1;
  return limits_seen.group.by == CGROUP_FILE_HIGH ? PRESSURE_HIGH_MARK : PRESSURE_MAX;
}

/* --- looking ----------------------------------------------------------------------------- */

static void see_stalls(uint64_t passed_ms) {
  uint64_t stalled = cgroup_stalled_us(&limits_seen.group), before = limits_seen.stalled_us;
  limits_seen.stalled_us = stalled;
  limits_seen.stalls = before != 0 && passed_ms > 0 && stalled > before && (stalled - before) / 1000 > passed_ms / STALLED_SHARE;
}

static bool is_share_of_limit(void) { return option_get(OPTION_limit_hard) < 0 || option_get(OPTION_limit_soft) < 0; }

/* Most of what a group uses may be files that were read once.  The kernel gives these up first, so they are no reason to hurry; what of
 * files was used again it keeps longer, and counts here.  So does kubelet reckon what a container needs.  Asked where it matters: near
 * the limit, and for a share of it. */
static void see_use(uint64_t now, uint64_t units) {
  uint64_t limit = limit_known(), passed = now - limits_seen.ms;
  limits_seen.use = limits_seen.group.use;
  if (limit != 0) see_stalls(passed);
  if (limit != 0 && (pressure_of(limits_seen.use, limit) != PRESSURE_FAR || is_share_of_limit())) {
    uint64_t spare = cgroup_reclaimable(&limits_seen.group, &limits_text);
    limits_seen.use -= spare < limits_seen.use ? spare : limits_seen.use;
  }
  limits_seen.ms = now;
  limits_seen.units = units;
}

/* Who has files open has one group; all others find out now and then which it is. */
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

/* It is looked for again once that is wanted. */
static void container_forget(void) {
  limits_seen.known = limits_seen.found = limits_seen.stalls = false;
  store_relaxed(&pressure.contained, false);
}

/* False: it was not asked, or says nothing.  Where an allocation was `refused` it is asked again soon: others may have given back. */
static bool limits_ask(uint64_t now, uint64_t units, const cgroup_open_files_t *files, bool refused) {
  uint64_t pause = refused ? REFUSED_PAUSE_MS : LIMITS_PAUSE_MS;
  if (option_get(OPTION_container) == 0) {
    container_forget();
    return false;
  }
  bool silent = load_relaxed(&os_filters) != 0;
  if (!silent && limits_seen.found && now - limits_seen.ms < pause) return false;
  limits_seen.stalls = false; /* they were of a moment */
  if (silent) return false;
  add_relaxed(&pressure.looks, 1);
  bool there = group_look(now, files);
  store_relaxed(&pressure.contained, there && limit_known() != 0);
  if (there) see_use(now, units);
  else limits_seen.ms = now;
  return there;
}

/* --- what it comes to -------------------------------------------------------------------- */

/* Bytes in use in the group, had nobody else grown since the kernel was asked. */
static uint64_t use_expected(uint64_t units) {
  int64_t grown = (int64_t)(units - limits_seen.units) * (int64_t)HAK_UNIT;
  return grown < 0 && limits_seen.use < (uint64_t)-grown ? 0 : limits_seen.use + (uint64_t)grown;
}

/* False: the soft limit is none, or far. */
static bool soft_is_passed(uint64_t use, uint64_t units, uint64_t *amount, uint64_t *in_use) {
  int64_t option = option_get(OPTION_limit_soft);
  *amount = pressure_amount(option, limit_known());
  *in_use = option > 0 ? units << HAK_UNIT_SHIFT : use;
  return *amount != UINT64_MAX && *in_use >= *amount;
}

/* By what was seen at one time: what the heap has grown by since is no memory that others have given back. */
static void cap_set(void) {
  int64_t option;
  do { /* who changes it meanwhile may have set his own just before */
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

static void limits_give_back(heap_t *heap, uint64_t now, uint64_t limit) {
  (void)purge_all();
  if (now < limits_seen.give_ms) return;
  bool worth = limits_give_all(heap) >= limit / GIVE_WORTH;
  uint64_t longer = limits_seen.pause_ms * 2 < GIVE_MOST_MS ? limits_seen.pause_ms * 2 : GIVE_MOST_MS;
  limits_seen.pause_ms = worth || longer == 0 ? GIVE_LEAST_MS : longer;
  limits_seen.give_ms = now + limits_seen.pause_ms;
}

/* --- a look ------------------------------------------------------------------------------ */

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
  uint64_t next = level != PRESSURE_FAR ? NEAR_MS : FAR_MS;
  store_relaxed(&tick_ms, limit_known() == 0 && level == PRESSURE_FAR ? UINT64_MAX : now + next);
  bool tells = level >= PRESSURE_HIGH && load_relaxed(&pressure.listens);
  store_relaxed(&pressure.to_tell, tells ? (uint32_t)level : (uint32_t)PRESSURE_FAR);
  if (level == PRESSURE_URGENT) limits_give_back(heap, now, limit);
}

/* By whoever has set look_at. */
static HAK_COLD void limits_step(heap_t *heap, const cgroup_open_files_t *files, bool refused) {
  uint64_t now = os_now_ms(), units = ledger_heap_units();
  os_standing_note(); /* for the keeper: the program may soon have used up its descriptors */
  if (load_relaxed(&pressure.forked)) { /* half written, perhaps */
    store_relaxed(&pressure.forked, false);
    limits_seen.known = limits_seen.found = false;
  }
  /* What has grown may not be written yet, and grows as much again until the next look.  That is reckoned with also where it is too early
   * to ask: else a heap that grows fast would seem to be two levels further on once the kernel is asked. */
  uint64_t grown = limits_seen.found && limits_seen.units < units ? units - limits_seen.units : 0;
  bool asked = limits_ask(now, units, files, refused), too_early = !asked && now - limits_seen.ms < LIMITS_PAUSE_MS;
  uint64_t use = limits_seen.known ? use_expected(units) + (asked || too_early ? grown << HAK_UNIT_SHIFT : 0) : 0;
  cap_set();
  level_set(heap, now, use, units);
  store_release(&pressure.look_at, next_look(use, ledger_heap_units()));
}

static bool look_claim(void) {
  uint64_t at = load_relaxed(&pressure.look_at);
  if (at == UINT64_MAX) return false;
  return atomic_compare_exchange_strong_explicit(&pressure.look_at, &at, UINT64_MAX, memory_order_acquire, memory_order_relaxed);
}

static HAK_COLD void limits_look(heap_t *heap, bool refused) {
  if (look_claim()) limits_step(heap, NULL, refused);
}

void limits_due(heap_t *heap) {
  uint64_t at = load_relaxed(&tick_ms);
  bool grown = ledger_heap_units() >= load_relaxed(&pressure.look_at);
  if (grown || (at != 0 && at != UINT64_MAX && os_now_ms() >= at)) limits_look(heap, false);
}

bool limits_make_room(heap_t *heap) {
  uint64_t before = ledger_cap();
  if (HAK_LIKELY(before == LEDGER_NO_CAP)) return false;
  size_t given = ledger_idle_units() > 0 ? purge_all() : 0;
  limits_look(heap, true);
  return given > 0 || ledger_cap() > before;
}

/* What was seen of it ends at once, and percent of it with it: a program that makes no calls may have no other look.  A soft limit in bytes
 * stays. */
static HAK_COLD void container_drop(void) {
  container_forget();
  if (option_get(OPTION_limit_hard) < 0) ledger_set_cap(LEDGER_NO_CAP);
  if (load_relaxed(&pressure.source) == (uint32_t)PRESSURE_SOFT && option_get(OPTION_limit_soft) > 0) return;
  pressure_set(PRESSURE_FAR, PRESSURE_NOTHING, 0, 0);
  store_relaxed(&pressure.to_tell, (uint32_t)PRESSURE_FAR);
}

/* A limit in bytes holds at once, also for the next allocation; percent are known with the next look.  Who looks just now knows the change
 * with the look after. */
HAK_COLD void limits_changed(void) {
  int64_t hard = option_get(OPTION_limit_hard);
  if (hard >= 0) ledger_set_cap(hard > 0 ? (uint64_t)hard >> HAK_UNIT_SHIFT : LEDGER_NO_CAP);
  if (!look_claim()) return;
  if (option_get(OPTION_container) == 0) container_drop();
  store_release(&pressure.look_at, (uint64_t)0);
  purge_turn();
}

/* --- the keeper's looks ------------------------------------------------------------------ */

static HAK_COLD bool kept_open(bool apart) {
  cgroup_t group;
  cgroup_text_t text; /* on the keeper's own stack: somebody else may be looking */
  if (!cgroup_find(&group, true, &text) || group.limit == CGROUP_NONE || (!apart && !file_apart())) return false;
  memcpy(limits_kept.path, group.path, CGROUP_PATH);
  cgroup_open(&group, &limits_kept.files);
  group.files = &limits_kept.files;
  return cgroup_look(&group);
}

/* Where others look at another group, what it has open is of no use any more. */
static void kept_step(void) {
  if (!limits_seen.known || strcmp(limits_seen.group.path, limits_kept.path) != 0) {
    store_relaxed(&pressure.contained, false); /* until they look again */
    store_release(&pressure.look_at, (uint64_t)0);
    purge_turn();
    return;
  }
  limits_step(NULL, &limits_kept.files, false);
  if (load_relaxed(&pressure.to_tell) != (uint32_t)PRESSURE_FAR) purge_turn(); /* by who allocates next */
}

static HAK_COLD uint64_t kept_look(void) {
  uint64_t now = os_now_ms(), at = load_relaxed(&tick_ms);
  if (now >= at && look_claim()) {
    kept_step();
    at = load_relaxed(&tick_ms);
  }
  if (at == UINT64_MAX || !load_relaxed(&pressure.contained)) return 0;
  return at > now ? at - now : LIMITS_PAUSE_MS;
}

void limits_start(void) {
  keeper_mind(kept_open, kept_look);
  if (option_get(OPTION_limit_soft) != 0 || option_get(OPTION_limit_hard) != 0) limits_changed();
}
