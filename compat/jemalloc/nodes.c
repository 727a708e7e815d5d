/* nodes.c - the nodes that mallctl knows, one line each at the end.  docs/migrate.md lists those that are missing, and why. */
#include "jemalloc.h"

#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* --- constants and what all arenas share -------------------------------------------------- */

static int constant_read(const ctl_at_t *at, uint64_t *value) { return *value = at->of, 0; }

static const char *const texts[] = {"5.3.0-0-g54eaed1d8b56b1aa528be3bdd1877e59c56fa90c", "", "disabled", "default", "false", "percpu"};
enum { TEXT_VERSION, TEXT_EMPTY, TEXT_DISABLED, TEXT_DEFAULT, TEXT_FALSE };
static int text_read(const ctl_at_t *at, uint64_t *value) { return *value = (uintptr_t)texts[at->of], 0; }

/* A call that writes and reads returns the epoch that the write has begun. */
static int epoch_raw(const ctl_at_t *at, void *old, size_t *old_size, const void *fresh, size_t fresh_size) {
  (void)at;
  uint64_t epoch;
  bool writes = fresh != NULL || fresh_size != 0;
  if (writes && (fresh == NULL || fresh_size != sizeof epoch)) return EINVAL;
  if (writes) snapshot_refresh();
  if (old == NULL || old_size == NULL) return 0;
  epoch = snapshot()->epoch;
  bool fits = *old_size == sizeof epoch;
  if (*old_size > sizeof epoch) *old_size = sizeof epoch;
  memcpy(old, &epoch, *old_size);
  return fits ? 0 : EINVAL;
}

static uint64_t option(const char *name) {
  int64_t value = 0;
  (void)hak_option_get(name, &value);
  return (uint64_t)value;
}

static int keeper_read(const ctl_at_t *at, uint64_t *value) { return (void)at, *value = option("keeper") != 0, 0; }
static int keeper_write(const ctl_at_t *at, uint64_t value) { return (void)at, hak_option_set("keeper", value != 0) ? 0 : EFAULT; }

static int page_read(const ctl_at_t *at, uint64_t *value) { return (void)at, *value = (uint64_t)sysconf(_SC_PAGESIZE), 0; }

static int conf_prof_read(const ctl_at_t *at, uint64_t *value) { return (void)at, *value = profile_on(), 0; }
static int conf_final_read(const ctl_at_t *at, uint64_t *value) { return (void)at, *value = conf.prof_final, 0; }
static int conf_print_read(const ctl_at_t *at, uint64_t *value) { return (void)at, *value = conf.stats_print, 0; }
static int conf_opts_read(const ctl_at_t *at, uint64_t *value) { return (void)at, *value = (uintptr_t)conf.stats_opts, 0; }
static int conf_prefix_read(const ctl_at_t *at, uint64_t *value) { return (void)at, *value = (uintptr_t)conf.prof_prefix, 0; }

/* --- arenas ------------------------------------------------------------------------------ */

/* In older versions the number of the first arena that does not exist stood for all of them. */
static bool is_all(size_t arena) { return arena == ARENAS_ALL || arena == arena_count(); }

bool ctl_numbers_known(const ctl_node_t *node, const size_t *index, size_t parts) {
  size_t arena = strncmp(node->name, "arena.", 6) == 0 ? 1 : strncmp(node->name, "stats.arenas.", 13) == 0 ? 2 : SIZE_MAX;
  size_t bin = strncmp(node->name, "arenas.bin.", 11) == 0 ? 2 : strncmp(node->name, "stats.arenas.*.bins.", 20) == 0 ? 4 : SIZE_MAX;
  if (parts > arena && index[arena] >= arena_count() && !is_all(index[arena])) return false;
  return parts <= bin || index[bin] < snapshot()->bins;
}

static int purge_write(const ctl_at_t *at, uint64_t value) {
  (void)value;
  hak_heap_t *heap = NULL;
  if (!is_all(at->index[1]) && !arena_heap(at->index[1], &heap)) return ENOENT;
  for (unsigned i = 1; i < arena_count() && is_all(at->index[1]); i++) {
    if (arena_heap(i, &heap)) (void)hak_heap_collect(heap);
  }
  if (heap != NULL) (void)hak_heap_collect(heap);
  (void)hak_collect(at->of != 0);
  return 0;
}

static int flush_write(const ctl_at_t *at, uint64_t value) {
  (void)at, (void)value;
  (void)hak_collect(false);
  return 0;
}

/* Whether a node is of all arenas, or names one that has a time: a number that stands for all of them has none, as in jemalloc. */
enum { DECAY_OF_ALL, DECAY_OF_ONE };
static bool has_time(const ctl_at_t *at) {
  hak_heap_t *heap;
  return at->of == DECAY_OF_ALL || (!is_all(at->index[1]) && arena_heap(at->index[1], &heap));
}

/* There is one decay time for all freed memory: reading or setting an arena's reads or sets that one. */
static int decay_read(const ctl_at_t *at, uint64_t *value) {
  *value = option("decay_ms");
  return has_time(at) ? 0 : EFAULT;
}
static int decay_write(const ctl_at_t *at, uint64_t value) {
  uint64_t before;
  int error = decay_read(at, &before);
  if (error != 0) return error;
  int64_t ms = (int64_t)value < COMPAT_DECAY_MOST ? (int64_t)value : COMPAT_DECAY_MOST;
  return hak_option_set("decay_ms", ms) ? 0 : EFAULT;
}

/* No pages are given back lazily, so the time has no effect. */
static int muzzy_read(const ctl_at_t *at, uint64_t *value) { return *value = 0, has_time(at) ? 0 : EFAULT; }
static int muzzy_write(const ctl_at_t *at, uint64_t value) { return has_time(at) && (int64_t)value >= -1 ? 0 : EFAULT; }

static int initialized_read(const ctl_at_t *at, uint64_t *value) {
  hak_heap_t *heap;
  bool all = is_all(at->index[1]);
  if (!all && at->index[1] >= arena_count()) return ENOENT;
  *value = all || arena_heap(at->index[1], &heap);
  return 0;
}
static int reset_write(const ctl_at_t *at, uint64_t value) {
  (void)value;
  if (at->index[1] >= arena_count()) return is_all(at->index[1]) ? EFAULT : ENOENT;
  return at->of != 0 ? arena_destroy((unsigned)at->index[1]) : arena_reset((unsigned)at->index[1]);
}

static int count_read(const ctl_at_t *at, uint64_t *value) { return (void)at, *value = arena_count(), 0; }

/* --- caches: every thread has bins, and no others ------------------------------------------ */

static int cache_on_write(const ctl_at_t *at, uint64_t value) { return (void)at, value != 0 ? 0 : EFAULT; }

static int cache_create_read(const ctl_at_t *at, uint64_t *value) {
  (void)at;
  static _Atomic unsigned created;
  *value = atomic_fetch_add_explicit(&created, 1, memory_order_relaxed) % ARENAS_MOST;
  return 0;
}
static int cache_write(const ctl_at_t *at, uint64_t value) { return (void)at, (void)value, 0; }

/* --- size classes ------------------------------------------------------------------------- */

static int bins_read(const ctl_at_t *at, uint64_t *value) { return (void)at, *value = snapshot()->bins, 0; }

enum { BIN_SIZE, BIN_REGS, BIN_SLAB };
static int bin_read(const ctl_at_t *at, uint64_t *value) {
  const snapshot_t *s = snapshot();
  if (at->index[2] >= s->bins) return ENOENT;
  const hak_class_stats_t *bin = &s->bin[at->index[2]];
  const uint64_t facts[] = {[BIN_SIZE] = bin->block_size, [BIN_REGS] = bin->slab_size / bin->block_size, [BIN_SLAB] = bin->slab_size};
  *value = facts[at->of];
  return 0;
}

/* --- statistics --------------------------------------------------------------------------- */

static uint64_t total_resident(const hak_stats_t *s) { return snapshot_active(s) + s->purge_pending + s->metadata; }

enum { TOTAL_ALLOCATED, TOTAL_ACTIVE, TOTAL_METADATA, TOTAL_RESIDENT, TOTAL_MAPPED, TOTAL_RETAINED, TOTAL_THREADS };
static int total_read(const ctl_at_t *at, uint64_t *value) {
  const hak_stats_t *s = &snapshot()->stats;
  uint64_t mapped = s->committed + s->metadata;
  const uint64_t totals[] = {
      [TOTAL_ALLOCATED] = s->live,
      [TOTAL_ACTIVE] = snapshot_active(s),
      [TOTAL_METADATA] = s->metadata,
      [TOTAL_RESIDENT] = total_resident(s),
      [TOTAL_MAPPED] = mapped,
      [TOTAL_RETAINED] = s->reserved > mapped ? s->reserved - mapped : 0,
      [TOTAL_THREADS] = option("keeper") != 0,
  };
  *value = totals[at->of];
  return 0;
}

enum { HOLDS_SMALL, HOLDS_LARGE, HOLDS_LARGE_BLOCKS, HOLDS_PAGES };
static int holding_read(const ctl_at_t *at, uint64_t *value) {
  const snapshot_t *s = snapshot();
  hak_heap_t *heap = NULL;
  size_t arena = at->index[2];
  bool all = is_all(arena);
  if (!all && !arena_heap(arena, &heap)) return ENOENT;
  holding_t h = all ? s->all : s->arena[arena];
  const uint64_t figures[] = {h.small, h.large, h.large_blocks, h.active / (uint64_t)sysconf(_SC_PAGESIZE)};
  *value = figures[at->of];
  return 0;
}

/* Figures that exist only for all arenas together: the automatic arena reports them, the others report 0. */
enum {
  ONCE_DIRTY,
  ONCE_MAPPED,
  ONCE_RETAINED,
  ONCE_META,
  ONCE_RESIDENT,
  ONCE_CACHED,
  ONCE_THREADS,
  ONCE_UPTIME,
  ONCE_FILLS,
  ONCE_FLUSHES,
  ONCE_LARGE_MALLOCS,
  ONCE_LARGE_FREES,
  ONCE_SMALL_MALLOCS,
  ONCE_SMALL_FREES,
  ONCE_PURGED,
  ONCE_0
};
static int once_read(const ctl_at_t *at, uint64_t *value) {
  hak_heap_t *heap = NULL;
  size_t arena = at->index[2];
  if (!is_all(arena) && !arena_heap(arena, &heap)) return ENOENT;
  const hak_stats_t *s = &snapshot()->stats;
  uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), mapped = s->committed + s->metadata;
  struct timespec now;
  (void)clock_gettime(CLOCK_MONOTONIC, &now);
  const uint64_t figures[] = {
      [ONCE_DIRTY] = s->purge_pending / page,
      [ONCE_MAPPED] = mapped,
      [ONCE_RETAINED] = s->reserved > mapped ? s->reserved - mapped : 0,
      [ONCE_META] = s->metadata,
      [ONCE_RESIDENT] = total_resident(s),
      [ONCE_CACHED] = s->cached,
      [ONCE_THREADS] = snapshot()->threads,
      [ONCE_UPTIME] = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec - snapshot()->started_ns,
      [ONCE_FILLS] = s->refills,
      [ONCE_FLUSHES] = s->flushes,
      [ONCE_LARGE_MALLOCS] = s->large_allocs,
      [ONCE_LARGE_FREES] = s->large_frees,
      [ONCE_SMALL_MALLOCS] = s->refill_blocks,
      [ONCE_SMALL_FREES] = s->flush_blocks + s->remote_frees,
      [ONCE_PURGED] = s->purged / page,
      [ONCE_0] = 0,
  };
  *value = heap != NULL ? 0 : figures[at->of];
  return 0;
}

/* The same for bins: a named heap does not count by class. */
enum { BIN_CURREGS, BIN_CURSLABS, BIN_NONFULL, BIN_FILLS, BIN_FLUSHES };
static int bin_stats_read(const ctl_at_t *at, uint64_t *value) {
  const snapshot_t *s = snapshot();
  hak_heap_t *heap = NULL;
  if ((!is_all(at->index[2]) && !arena_heap(at->index[2], &heap)) || at->index[4] >= s->bins) return ENOENT;
  const hak_class_stats_t *bin = &s->bin[at->index[4]];
  const uint64_t figures[] = {
      [BIN_CURREGS] = bin->live_blocks + bin->cached_blocks,
      [BIN_CURSLABS] = bin->slabs,
      [BIN_NONFULL] = s->nonfull[at->index[4]],
      [BIN_FILLS] = bin->refills,
      [BIN_FLUSHES] = bin->flushes,
  };
  *value = heap != NULL ? 0 : figures[at->of];
  return 0;
}

static int batch_raw(const ctl_at_t *at, void *old, size_t *old_size, const void *fresh, size_t fresh_size) {
  (void)at;
  return old_size != NULL ? slab_use_of_each(fresh, fresh_size, old, *old_size) : EINVAL;
}

/* --- profiles ----------------------------------------------------------------------------- */

static int active_write(const ctl_at_t *at, uint64_t value) { return (void)at, value == profile_on() ? 0 : EPERM; }

/* Takes a path, or NULL for a name that starts with prof_prefix. */
static int dump_raw(const ctl_at_t *at, void *old, size_t *old_size, const void *fresh, size_t fresh_size) {
  (void)at;
  char own[600];
  const char *path = NULL;
  if (old != NULL || old_size != NULL) return EPERM;
  if (fresh != NULL && fresh_size != sizeof path) return EINVAL;
  if (fresh != NULL) memcpy(&path, fresh, sizeof path);
  if (!profile_on()) return ENOENT;
  if (path == NULL) {
    if (conf.prof_prefix[0] == '\0') return EFAULT; /* no dumps without a name */
    profile_name(own, sizeof own, 'm');
    path = own;
  }
  return profile_dump(path) ? 0 : EFAULT;
}

static int prefix_write(const ctl_at_t *at, uint64_t value) {
  (void)at;
  const char *prefix = (const char *)(uintptr_t)value;
  if (prefix == NULL || strlen(prefix) >= sizeof conf.prof_prefix) return EINVAL;
  strcpy(conf.prof_prefix, prefix);
  return 0;
}

static int sample_read(const ctl_at_t *at, uint64_t *value) {
  (void)at;
  *value = 63 - (uint64_t)__builtin_clzll(option("sample_kb") << 10 | 1); /* rounded down: it may not be a power of two */
  return 0;
}

/* --- the table ----------------------------------------------------------------------------- */

#define CONSTANT(name, type, value) {name, type, value, constant_read, NULL, NULL}
#define TEXT(name, text) {name, CTL_TEXT, text, text_read, NULL, NULL}
#define ONCE(name, type, figure) {"stats.arenas.*." name, type, figure, once_read, NULL, NULL}
#define HOLDS(name, type, figure) {"stats.arenas.*." name, type, figure, holding_read, NULL, NULL}
#define BIN(name, type, figure) {"stats.arenas.*.bins.*." name, type, figure, bin_stats_read, NULL, NULL}

const ctl_node_t ctl_nodes[] = {
    TEXT("version", TEXT_VERSION),
    {"epoch", CTL_U64, 0, NULL, NULL, epoch_raw},
    {"background_thread", CTL_BOOL, 0, keeper_read, keeper_write, NULL},
    {"max_background_threads", CTL_SIZE, 1, constant_read, cache_write, NULL},

    CONSTANT("config.cache_oblivious", CTL_BOOL, false),
    CONSTANT("config.debug", CTL_BOOL, false),
    CONSTANT("config.fill", CTL_BOOL, false),
    CONSTANT("config.lazy_lock", CTL_BOOL, false),
    TEXT("config.malloc_conf", TEXT_EMPTY),
    CONSTANT("config.opt_safety_checks", CTL_BOOL, true),
    CONSTANT("config.prof", CTL_BOOL, true),
    CONSTANT("config.prof_libgcc", CTL_BOOL, false),
    CONSTANT("config.prof_libunwind", CTL_BOOL, false),
    CONSTANT("config.stats", CTL_BOOL, true),
    CONSTANT("config.utrace", CTL_BOOL, false),
    CONSTANT("config.xmalloc", CTL_BOOL, false),

    CONSTANT("opt.abort", CTL_BOOL, true),
    CONSTANT("opt.abort_conf", CTL_BOOL, false),
    {"opt.background_thread", CTL_BOOL, 0, keeper_read, NULL, NULL},
    CONSTANT("opt.cache_oblivious", CTL_BOOL, false),
    {"opt.dirty_decay_ms", CTL_SSIZE, DECAY_OF_ALL, decay_read, NULL, NULL},
    TEXT("opt.dss", TEXT_DISABLED),
    TEXT("opt.junk", TEXT_FALSE),
    {"opt.lg_prof_sample", CTL_SIZE, 0, sample_read, NULL, NULL},
    CONSTANT("opt.lg_tcache_max", CTL_SIZE, 15),
    CONSTANT("opt.max_background_threads", CTL_SIZE, 1),
    TEXT("opt.metadata_thp", TEXT_DISABLED),
    CONSTANT("opt.muzzy_decay_ms", CTL_SSIZE, 0),
    CONSTANT("opt.narenas", CTL_UNSIGNED, 1),
    TEXT("opt.percpu_arena", TEXT_DISABLED),
    {"opt.prof", CTL_BOOL, 0, conf_prof_read, NULL, NULL},
    {"opt.prof_active", CTL_BOOL, 0, conf_prof_read, NULL, NULL},
    {"opt.prof_final", CTL_BOOL, 0, conf_final_read, NULL, NULL},
    {"opt.prof_prefix", CTL_TEXT, 0, conf_prefix_read, NULL, NULL},
    CONSTANT("opt.retain", CTL_BOOL, true),
    {"opt.stats_print", CTL_BOOL, 0, conf_print_read, NULL, NULL},
    {"opt.stats_print_opts", CTL_TEXT, 0, conf_opts_read, NULL, NULL},
    CONSTANT("opt.tcache", CTL_BOOL, true),
    CONSTANT("opt.tcache_max", CTL_SIZE, 32768),
    TEXT("opt.thp", TEXT_DEFAULT),
    CONSTANT("opt.utrace", CTL_BOOL, false),
    CONSTANT("opt.xmalloc", CTL_BOOL, false),
    CONSTANT("opt.zero", CTL_BOOL, false),

    {"thread.allocated", CTL_U64, BYTES_TAKEN, thread_bytes_read, NULL, NULL},
    {"thread.allocatedp", CTL_SIZE, BYTES_TAKEN_AT, thread_bytes_read, NULL, NULL},
    {"thread.arena", CTL_UNSIGNED, 0, thread_arena_read, thread_arena_write, NULL},
    {"thread.deallocated", CTL_U64, BYTES_GIVEN, thread_bytes_read, NULL, NULL},
    {"thread.deallocatedp", CTL_SIZE, BYTES_GIVEN_AT, thread_bytes_read, NULL, NULL},
    {"thread.idle", CTL_VOID, 0, NULL, flush_write, NULL},
    {"thread.peak.read", CTL_U64, 0, thread_peak_read, NULL, NULL},
    {"thread.peak.reset", CTL_VOID, 0, NULL, thread_peak_reset, NULL},
    {"thread.tcache.enabled", CTL_BOOL, 1, constant_read, cache_on_write, NULL},
    {"thread.tcache.flush", CTL_VOID, 0, NULL, flush_write, NULL},
    {"tcache.create", CTL_UNSIGNED, 0, cache_create_read, NULL, NULL},
    {"tcache.destroy", CTL_UNSIGNED, 0, NULL, cache_write, NULL},
    {"tcache.flush", CTL_UNSIGNED, 0, NULL, flush_write, NULL},

    {"arena.*.decay", CTL_VOID, false, NULL, purge_write, NULL},
    {"arena.*.destroy", CTL_VOID, true, NULL, reset_write, NULL},
    {"arena.*.dirty_decay_ms", CTL_SSIZE, DECAY_OF_ONE, decay_read, decay_write, NULL},
    TEXT("arena.*.dss", TEXT_DISABLED),
    {"arena.*.extent_hooks", CTL_SIZE, 0, hooks_read, hooks_write, NULL},
    {"arena.*.initialized", CTL_BOOL, 0, initialized_read, NULL, NULL},
    {"arena.*.muzzy_decay_ms", CTL_SSIZE, DECAY_OF_ONE, muzzy_read, muzzy_write, NULL},
    {"arena.*.purge", CTL_VOID, true, NULL, purge_write, NULL},
    {"arena.*.reset", CTL_VOID, false, NULL, reset_write, NULL},
    {"arenas.bin.*.nregs", CTL_UNSIGNED, BIN_REGS, bin_read, NULL, NULL}, /* 32 bits, as jemalloc's uint32_t */
    {"arenas.bin.*.size", CTL_SIZE, BIN_SIZE, bin_read, NULL, NULL},
    {"arenas.bin.*.slab_size", CTL_SIZE, BIN_SLAB, bin_read, NULL, NULL},
    {"arenas.create", CTL_UNSIGNED, 0, NULL, NULL, arena_create_raw},
    {"arenas.dirty_decay_ms", CTL_SSIZE, DECAY_OF_ALL, decay_read, decay_write, NULL},
    {"arenas.lookup", CTL_UNSIGNED, 0, NULL, NULL, arena_lookup_raw},
    {"arenas.muzzy_decay_ms", CTL_SSIZE, DECAY_OF_ALL, muzzy_read, muzzy_write, NULL},
    {"arenas.narenas", CTL_UNSIGNED, 0, count_read, NULL, NULL},
    {"arenas.nbins", CTL_UNSIGNED, 0, bins_read, NULL, NULL},
    {"arenas.nhbins", CTL_UNSIGNED, 0, bins_read, NULL, NULL},
    {"arenas.page", CTL_SIZE, 0, page_read, NULL, NULL},
    CONSTANT("arenas.quantum", CTL_SIZE, 16),
    CONSTANT("arenas.tcache_max", CTL_SIZE, 32768),

    {"prof.active", CTL_BOOL, 0, conf_prof_read, active_write, NULL},
    {"prof.dump", CTL_TEXT, 0, NULL, NULL, dump_raw},
    {"prof.lg_sample", CTL_SIZE, 0, sample_read, NULL, NULL},
    {"prof.prefix", CTL_TEXT, 0, NULL, prefix_write, NULL},

    {"stats.active", CTL_SIZE, TOTAL_ACTIVE, total_read, NULL, NULL},
    {"stats.allocated", CTL_SIZE, TOTAL_ALLOCATED, total_read, NULL, NULL},
    {"stats.background_thread.num_threads", CTL_SIZE, TOTAL_THREADS, total_read, NULL, NULL},
    {"stats.mapped", CTL_SIZE, TOTAL_MAPPED, total_read, NULL, NULL},
    {"stats.metadata", CTL_SIZE, TOTAL_METADATA, total_read, NULL, NULL},
    CONSTANT("stats.metadata_thp", CTL_SIZE, 0),
    {"stats.resident", CTL_SIZE, TOTAL_RESIDENT, total_read, NULL, NULL},
    {"stats.retained", CTL_SIZE, TOTAL_RETAINED, total_read, NULL, NULL},

    ONCE("base", CTL_SIZE, ONCE_META),
    {"stats.arenas.*.dirty_decay_ms", CTL_SSIZE, DECAY_OF_ALL, decay_read, NULL, NULL},
    ONCE("dirty_purged", CTL_U64, ONCE_PURGED),
    TEXT("stats.arenas.*.dss", TEXT_DISABLED),
    ONCE("internal", CTL_SIZE, ONCE_0),
    HOLDS("large.allocated", CTL_SIZE, HOLDS_LARGE),
    ONCE("large.ndalloc", CTL_U64, ONCE_LARGE_FREES),
    ONCE("large.nmalloc", CTL_U64, ONCE_LARGE_MALLOCS),
    ONCE("large.nrequests", CTL_U64, ONCE_LARGE_MALLOCS),
    ONCE("mapped", CTL_SIZE, ONCE_MAPPED),
    CONSTANT("stats.arenas.*.metadata_thp", CTL_SIZE, 0),
    CONSTANT("stats.arenas.*.muzzy_decay_ms", CTL_SSIZE, 0),
    ONCE("nthreads", CTL_UNSIGNED, ONCE_THREADS),
    HOLDS("pactive", CTL_SIZE, HOLDS_PAGES),
    ONCE("pdirty", CTL_SIZE, ONCE_DIRTY),
    ONCE("pmuzzy", CTL_SIZE, ONCE_0),
    ONCE("resident", CTL_SIZE, ONCE_RESIDENT),
    ONCE("retained", CTL_SIZE, ONCE_RETAINED),
    HOLDS("small.allocated", CTL_SIZE, HOLDS_SMALL),
    ONCE("small.ndalloc", CTL_U64, ONCE_SMALL_FREES),
    ONCE("small.nfills", CTL_U64, ONCE_FILLS),
    ONCE("small.nflushes", CTL_U64, ONCE_FLUSHES),
    ONCE("small.nmalloc", CTL_U64, ONCE_SMALL_MALLOCS),
    ONCE("tcache_bytes", CTL_SIZE, ONCE_CACHED),
    ONCE("uptime", CTL_U64, ONCE_UPTIME),
    BIN("curregs", CTL_SIZE, BIN_CURREGS),
    BIN("curslabs", CTL_SIZE, BIN_CURSLABS),
    BIN("nfills", CTL_U64, BIN_FILLS),
    BIN("nflushes", CTL_U64, BIN_FLUSHES),
    BIN("nonfull_slabs", CTL_SIZE, BIN_NONFULL),

    {"experimental.utilization.batch_query", CTL_SIZE, 0, NULL, NULL, batch_raw},
};
const size_t ctl_node_count = sizeof ctl_nodes / sizeof ctl_nodes[0];
