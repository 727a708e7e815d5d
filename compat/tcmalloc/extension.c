/* extension.c - gperftools' MallocExtension: its C functions, and the C++ object that has them as virtual functions.
 *
 * C++ programs call the object through its virtual table, which is built here as the Itanium ABI and malloc_extension.h define it, so that
 * the library needs no C++ runtime.  Functions that take a std::string or std::vector leave it unchanged; docs/migrate.md lists them. */
#include "../common.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static hak_stats_t stats_now(void) {
  hak_stats_t stats = {.struct_size = sizeof stats};
  (void)hak_stats_get(&stats);
  return stats;
}

static int64_t option(const char *name) {
  int64_t value = 0;
  (void)hak_option_get(name, &value);
  return value;
}

/* --- properties --------------------------------------------------------------------------- */

static size_t allocated(const hak_stats_t *s) { return s->live; }
static size_t heap_size(const hak_stats_t *s) { return s->committed; }
static size_t physical(const hak_stats_t *s) {
  return s->committed - (s->span_free < s->committed ? s->span_free : 0) + s->purge_pending + s->metadata;
}
static size_t cached(const hak_stats_t *s) { return s->cached; }
static size_t central(const hak_stats_t *s) { return s->slab_free; }
static size_t transfer(const hak_stats_t *s) { return s->remote; }
static size_t free_pages(const hak_stats_t *s) { return s->purge_pending; }
static size_t unmapped(const hak_stats_t *s) { return s->span_free > s->purge_pending ? s->span_free - s->purge_pending : 0; }
static size_t cache_limit(const hak_stats_t *s) { return (void)s, (size_t)option("bins_extra_kb") << 10; }
static size_t aggressive(const hak_stats_t *s) { return (void)s, option("decay_ms") == 0; }
static size_t sampling(const hak_stats_t *s) { return (void)s, option("insight") != 0 ? (size_t)option("sample_kb") << 10 : 0; }

/* tcmalloc's release rate is a weight; here it becomes a decay time of 1 s / rate.  Its default, 1, is ours; 0 keeps pages for good. */
static double rate = 1;
static double get_rate(void) {
  double now;
  __atomic_load(&rate, &now, __ATOMIC_RELAXED);
  return now;
}
static int64_t decay_of(double of) {
  double ms = 1000 / of;
  return !(of > 0) ? -1 : ms < COMPAT_DECAY_MOST ? (int64_t)ms : COMPAT_DECAY_MOST;
}
static void set_rate(double to) {
  __atomic_store(&rate, &to, __ATOMIC_RELAXED);
  (void)hak_option_set("decay_ms", decay_of(to));
}

static bool set_cache_limit(size_t bytes) { return bytes >> 10 <= INT32_MAX && hak_option_set("bins_extra_kb", (int64_t)(bytes >> 10)); }
static bool set_aggressive(size_t on) { return hak_option_set("decay_ms", on != 0 ? 0 : decay_of(get_rate())); }

static const struct {
  const char *name;
  size_t (*get)(const hak_stats_t *stats);
  bool (*set)(size_t value);
} properties[] = {
    {"generic.current_allocated_bytes", allocated, NULL},
    {"generic.heap_size", heap_size, NULL},
    {"generic.total_physical_bytes", physical, NULL},
    {"tcmalloc.aggressive_memory_decommit", aggressive, set_aggressive},
    {"tcmalloc.central_cache_free_bytes", central, NULL},
    {"tcmalloc.current_total_thread_cache_bytes", cached, NULL},
    {"tcmalloc.max_total_thread_cache_bytes", cache_limit, set_cache_limit},
    {"tcmalloc.pageheap_committed_bytes", heap_size, NULL},
    {"tcmalloc.pageheap_free_bytes", free_pages, NULL},
    {"tcmalloc.pageheap_unmapped_bytes", unmapped, NULL},
    {"tcmalloc.sampling_period_bytes", sampling, NULL},
    {"tcmalloc.slack_bytes", free_pages, NULL},
    {"tcmalloc.thread_cache_free_bytes", cached, NULL},
    {"tcmalloc.transfer_cache_free_bytes", transfer, NULL},
};
#define PROPERTY_COUNT (sizeof properties / sizeof properties[0])

COMPAT(int, MallocExtension_GetNumericProperty, (const char *name, size_t *value)) {
  for (size_t i = 0; i < PROPERTY_COUNT; i++) {
    if (strcmp(properties[i].name, name) != 0) continue;
    hak_stats_t stats = stats_now();
    *value = properties[i].get(&stats);
    return 1;
  }
  return 0;
}

COMPAT(int, MallocExtension_SetNumericProperty, (const char *name, size_t value)) {
  for (size_t i = 0; i < PROPERTY_COUNT; i++) {
    if (strcmp(properties[i].name, name) == 0) return properties[i].set != NULL && properties[i].set(value);
  }
  return 0;
}

/* --- checks of the heap ---------------------------------------------------------------------- */

/* Each free is checked when it is made, so there is nothing to verify for all memory together. */
COMPAT(int, MallocExtension_VerifyAllMemory, (void)) { return 1; }
COMPAT(int, MallocExtension_VerifyMallocMemory, (const void *block)) { return compat_place(block) == COMPAT_LIVE; }
COMPAT(int, MallocExtension_VerifyNewMemory, (const void *block)) { return MallocExtension_VerifyMallocMemory(block); }
COMPAT(int, MallocExtension_VerifyArrayNewMemory, (const void *block)) { return MallocExtension_VerifyMallocMemory(block); }

#define HISTOGRAM 64

/* Counts blocks by the power of two at or below their size.  Only the sum of the large ones is known: all count at their mean size. */
COMPAT(int, MallocExtension_MallocMemoryStats, (int *blocks, size_t *total, int histogram[HISTOGRAM])) {
  hak_stats_t stats = stats_now();
  hak_class_stats_t of;
  memset(histogram, 0, HISTOGRAM * sizeof *histogram);
  *blocks = (int)stats.large_blocks;
  *total = stats.live;
  uint64_t small = 0;
  for (uint32_t c = 0; c < stats.classes && hak_stats_class(c, &of); c++) {
    *blocks += (int)of.live_blocks;
    small += of.live_blocks * of.block_size;
    histogram[of.block_size > 0 ? 63 - __builtin_clzll(of.block_size) : 0] += (int)of.live_blocks;
  }
  uint64_t large = stats.large_blocks > 0 && stats.live > small ? (stats.live - small) / stats.large_blocks : 0;
  if (large > 0) histogram[63 - __builtin_clzll(large)] += (int)stats.large_blocks;
  return 1;
}

typedef struct cut_text {
  char *at;
  size_t left;
} cut_text_t;

static void text_add(void *to, const char *text) {
  cut_text_t *cut = to;
  size_t length = strlen(text);
  if (length > cut->left) length = cut->left;
  memcpy(cut->at, text, length);
  cut->at += length;
  cut->left -= length;
}

COMPAT(void, MallocExtension_GetStats, (char *buffer, int length)) {
  if (length <= 0) return;
  cut_text_t cut = {buffer, (size_t)length - 1};
  (void)compat_capture(hak_stats_text, text_add, &cut);
  *cut.at = '\0';
}

COMPAT(size_t, MallocExtension_GetEstimatedAllocatedSize, (size_t size)) { return hak_malloc_good_size(size); }
COMPAT(size_t, MallocExtension_GetAllocatedSize, (const void *block)) { return hak_malloc_usable_size(block); }
/* What a single thread's bins hold is not reported. */
COMPAT(size_t, MallocExtension_GetThreadCacheSize, (void)) { return 0; }

enum { OWNED = 1, NOT_OWNED = 2 };
COMPAT(int, MallocExtension_GetOwnership, (const void *p)) { return compat_place(p) >= COMPAT_INTERIOR ? OWNED : NOT_OWNED; }

/* --- giving back ---------------------------------------------------------------------------- */

COMPAT(void, MallocExtension_ReleaseFreeMemory, (void)) { (void)hak_collect(true); }
/* Gives back everything, since there is no call for a given amount. */
COMPAT(void, MallocExtension_ReleaseToSystem, (size_t bytes)) {
  if (bytes > 0) (void)hak_collect(true);
}
COMPAT(void, MallocExtension_MarkThreadIdle, (void)) { (void)hak_collect(false); }
COMPAT(void, MallocExtension_MarkThreadTemporarilyIdle, (void)) { (void)hak_collect(false); }
COMPAT(void, MallocExtension_MarkThreadBusy, (void)) {}

/* --- the object ----------------------------------------------------------------------------- */

struct extension;
typedef struct extension extension_t;
typedef void slot_fn(void);

#define SELF const extension_t *self
static void no_end(SELF) { (void)self; }
static bool verify_all(SELF) { return (void)self, true; }
static bool verify(SELF, const void *block) { return (void)self, MallocExtension_VerifyMallocMemory(block) != 0; }
static bool memory_stats(SELF, int *blocks, size_t *total, int *histogram) {
  return (void)self, MallocExtension_MallocMemoryStats(blocks, total, histogram) != 0;
}
static void get_stats(SELF, char *buffer, int length) { (void)self, MallocExtension_GetStats(buffer, length); }
static void leave(SELF, void *what) { (void)self, (void)what; }
static void ranges(SELF, void *to, void *each) { (void)self, (void)to, (void)each; }
static bool get_property(SELF, const char *name, size_t *value) { return (void)self, MallocExtension_GetNumericProperty(name, value) != 0; }
static bool set_property(SELF, const char *name, size_t value) { return (void)self, MallocExtension_SetNumericProperty(name, value) != 0; }
static void idle(SELF) { (void)self, MallocExtension_MarkThreadIdle(); }
static void busy(SELF) { (void)self; }
static void *nothing(SELF) { return (void)self, NULL; }
static void release(SELF, size_t bytes) { (void)self, MallocExtension_ReleaseToSystem(bytes); }
static void release_all(SELF) { (void)self, MallocExtension_ReleaseFreeMemory(); }
static void rate_set(SELF, double to) { (void)self, set_rate(to); }
static double rate_get(SELF) { return (void)self, get_rate(); }
static size_t estimate(SELF, size_t size) { return (void)self, hak_malloc_good_size(size); }
static size_t size_of(SELF, const void *block) { return (void)self, hak_malloc_usable_size(block); }
static int ownership(SELF, const void *p) { return (void)self, MallocExtension_GetOwnership(p); }
static void **no_stacks(SELF, int *period) {
  (void)self;
  if (period != NULL) *period = 0;
  return NULL;
}
static size_t cache_size(SELF) { return (void)self, 0; }

/* In the order of malloc_extension.h, after the offset to top and the type information, both NULL. */
#define SLOT(function) (slot_fn *)(function)
#pragma GCC diagnostic ignored "-Wcast-function-type"
static slot_fn *const table[] = {
    NULL,
    NULL,
    SLOT(no_end),       /* the destructors */
    SLOT(no_end),
    SLOT(verify_all),   /* VerifyAllMemory */
    SLOT(verify),       /* VerifyNewMemory */
    SLOT(verify),       /* VerifyArrayNewMemory */
    SLOT(verify),       /* VerifyMallocMemory */
    SLOT(memory_stats), /* MallocMemoryStats */
    SLOT(get_stats),    /* GetStats */
    SLOT(leave),        /* GetHeapSample: a std::string */
    SLOT(leave),        /* GetHeapGrowthStacks: the same */
    SLOT(ranges),       /* Ranges: there are none to report */
    SLOT(get_property), /* GetNumericProperty */
    SLOT(set_property), /* SetNumericProperty */
    SLOT(idle),         /* MarkThreadIdle */
    SLOT(busy),         /* MarkThreadBusy */
    SLOT(nothing),      /* GetSystemAllocator */
    SLOT(leave),        /* SetSystemAllocator */
    SLOT(release),      /* ReleaseToSystem */
    SLOT(release_all),  /* ReleaseFreeMemory */
    SLOT(rate_set),     /* SetMemoryReleaseRate */
    SLOT(rate_get),     /* GetMemoryReleaseRate */
    SLOT(estimate),     /* GetEstimatedAllocatedSize */
    SLOT(size_of),      /* GetAllocatedSize */
    SLOT(ownership),    /* GetOwnership */
    SLOT(leave),        /* GetFreeListSizes: a std::vector */
    SLOT(no_stacks),    /* ReadStackTraces */
    SLOT(nothing),      /* ReadHeapGrowthStackTraces */
    SLOT(cache_size),   /* GetThreadCacheSize */
    SLOT(idle),         /* MarkThreadTemporarilyIdle */
};

static const struct extension {
  slot_fn *const *slots;
} the_extension = {table + 2};

/* Static members: instance(), Initialize() and Register(MallocExtension *), which changes nothing. */
COMPAT(const void *, _ZN15MallocExtension8instanceEv, (void)) { return &the_extension; }
COMPAT(void, _ZN15MallocExtension10InitializeEv, (void)) {}
COMPAT(void, _ZN15MallocExtension8RegisterEPS_, (void *extension)) { (void)extension; }

/* --- the environment ------------------------------------------------------------------------ */

static __attribute__((constructor)) void start(void) {
  const char *of_rate = secure_getenv("TCMALLOC_RELEASE_RATE");
  const char *decommit = secure_getenv("TCMALLOC_AGGRESSIVE_DECOMMIT");
  const char *most = secure_getenv("TCMALLOC_MAX_TOTAL_THREAD_CACHE_BYTES");
  if (of_rate != NULL) {
    rate = strtod(of_rate, NULL);
    compat_option("decay_ms", decay_of(rate));
  }
  if (decommit != NULL && strchr("1tTyY", decommit[0]) != NULL && decommit[0] != '\0') compat_option("decay_ms", 0);
  if (most != NULL) compat_option("bins_extra_kb", (int64_t)(strtoull(most, NULL, 10) >> 10));
}
