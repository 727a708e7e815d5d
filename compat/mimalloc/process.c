/* process.c - mimalloc's options, statistics, and what it asks of the system. */
#include "mimalloc.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

COMPAT(int, mi_version, (void)) { return 209; }

/* --- options: two have an equivalent, the others are kept as they are set ------------------------ */

enum { OPTION_SHOW_STATS = 1, OPTION_LARGE_PAGES = 6, OPTION_PURGE_DELAY = 15, OPTIONS = 64 };
static long values[OPTIONS];

static void option_apply(int option, long value) {
  if (option == OPTION_PURGE_DELAY) (void)hak_option_set("decay_ms", value);
  if (option == OPTION_LARGE_PAGES) (void)hak_option_set("huge", value != 0 ? 1 : 2);
}

static long value_of(int option) {
  int64_t decay = 0;
  if (option < 0 || option >= OPTIONS) return 0;
  if (option == OPTION_PURGE_DELAY && hak_option_get("decay_ms", &decay)) return (long)decay;
  return __atomic_load_n(&values[option], __ATOMIC_RELAXED);
}
static void set_value(int option, long value) {
  if (option < 0 || option >= OPTIONS) return;
  __atomic_store_n(&values[option], value, __ATOMIC_RELAXED);
  option_apply(option, value);
}

COMPAT(long, mi_option_get, (int option)) { return value_of(option); }
COMPAT(long, mi_option_get_clamp, (int option, long least, long most)) {
  long value = value_of(option);
  return value < least ? least : value > most ? most : value;
}
COMPAT(size_t, mi_option_get_size, (int option)) {
  long value = value_of(option);
  return value > 0 ? (size_t)value : 0;
}
COMPAT(bool, mi_option_is_enabled, (int option)) { return value_of(option) != 0; }
COMPAT(void, mi_option_set, (int option, long value)) { set_value(option, value); }
COMPAT(void, mi_option_set_default, (int option, long value)) { set_value(option, value); }
COMPAT(void, mi_option_set_enabled, (int option, bool enable)) { set_value(option, enable); }
COMPAT(void, mi_option_set_enabled_default, (int option, bool enable)) { set_value(option, enable); }
COMPAT(void, mi_option_enable, (int option)) { set_value(option, 1); }
COMPAT(void, mi_option_disable, (int option)) { set_value(option, 0); }

/* --- statistics ----------------------------------------------------------------------------- */

static output_fn *output;
static void *output_to;
static struct timespec started;

static void write_error(const char *text, void *to) {
  (void)to;
  (void)!write(STDERR_FILENO, text, strlen(text));
}

typedef struct target {
  output_fn *out;
  void *to;
} target_t;
static void to_target(void *to, const char *text) { ((target_t *)to)->out(text, ((target_t *)to)->to); }

static void print(output_fn *out, void *to) {
  target_t target = {out, to};
  if (out == NULL) target = output != NULL ? (target_t){output, output_to} : (target_t){write_error, NULL};
  (void)compat_capture(hak_stats_text, to_target, &target);
}

COMPAT(void, mi_register_output, (output_fn * out, void *to)) {
  output_to = to;
  output = out;
}
COMPAT(void, mi_stats_print_out, (output_fn * out, void *to)) { print(out, to); }
COMPAT(void, mi_thread_stats_print_out, (output_fn * out, void *to)) { print(out, to); }
COMPAT(void, mi_stats_print, (void *out)) {
  (void)out; /* as the original has it */
  print(NULL, NULL);
}
COMPAT(void, mi_stats_reset, (void)) {}
COMPAT(void, mi_stats_merge, (void)) {}
COMPAT(void, mi_debug_show_arenas, (void)) {}

static size_t ms_of(struct timeval t) { return (size_t)t.tv_sec * 1000 + (size_t)t.tv_usec / 1000; }

static void tell(size_t *to, size_t what) {
  if (to != NULL) *to = what;
}

COMPAT(void, mi_process_info,
       (size_t *elapsed_ms, size_t *user_ms, size_t *system_ms, size_t *rss, size_t *peak_rss, size_t *commit, size_t *peak_commit,
        size_t *faults)) {
  struct rusage usage;
  struct timespec now;
  hak_stats_t stats = {.struct_size = sizeof stats};
  (void)hak_stats_get(&stats);
  (void)getrusage(RUSAGE_SELF, &usage);
  (void)clock_gettime(CLOCK_MONOTONIC, &now);
  tell(elapsed_ms, (size_t)((now.tv_sec - started.tv_sec) * 1000 + (now.tv_nsec - started.tv_nsec) / 1000000));
  tell(user_ms, ms_of(usage.ru_utime));
  tell(system_ms, ms_of(usage.ru_stime));
  tell(rss, stats.resident);
  tell(peak_rss, (size_t)usage.ru_maxrss * 1024);
  tell(commit, stats.committed);
  tell(peak_commit, stats.reserved); /* at most: what was committed once is not kept */
  tell(faults, (size_t)usage.ru_majflt);
}

/* --- what is asked for nothing: threads and the process start by themselves, no call defers a free --- */

COMPAT(void, mi_process_init, (void)) {}
COMPAT(void, mi_thread_init, (void)) {}
COMPAT(void, mi_thread_done, (void)) {}
COMPAT(bool, mi_is_redirected, (void)) { return false; }
COMPAT(void, mi_register_deferred_free, (void (*call)(bool, unsigned long long, void *), void *to)) { (void)call, (void)to; }
COMPAT(void, mi_register_error, (void (*call)(int, void *), void *to)) { (void)call, (void)to; }

/* --- memory set aside: there is one region, which grows by itself; each says that it could not --------- */

COMPAT(int, mi_reserve_os_memory, (size_t size, bool commit, bool large)) { return (void)size, (void)commit, (void)large, ENOMEM; }
COMPAT(int, mi_reserve_huge_os_pages, (size_t pages, double seconds, size_t *reserved)) {
  (void)pages, (void)seconds;
  tell(reserved, 0);
  return ENOMEM;
}
COMPAT(int, mi_reserve_huge_os_pages_at, (size_t pages, int node, size_t ms)) { return (void)pages, (void)node, (void)ms, ENOMEM; }
COMPAT(int, mi_reserve_huge_os_pages_interleave, (size_t pages, size_t nodes, size_t ms)) {
  return (void)pages, (void)nodes, (void)ms, ENOMEM;
}
COMPAT(int, mi_reserve_huge_os_pages_at_ex, (size_t pages, int node, size_t ms, bool exclusive, int *arena)) {
  return (void)pages, (void)node, (void)ms, (void)exclusive, (void)arena, ENOMEM;
}
COMPAT(int, mi_reserve_os_memory_ex, (size_t size, bool commit, bool large, bool exclusive, int *arena)) {
  return (void)size, (void)commit, (void)large, (void)exclusive, (void)arena, ENOMEM;
}
COMPAT(bool, mi_manage_os_memory, (void *start, size_t size, bool committed, bool large, bool zero, int node)) {
  return (void)start, (void)size, (void)committed, (void)large, (void)zero, (void)node, false;
}
COMPAT(bool, mi_manage_os_memory_ex,
       (void *start, size_t size, bool committed, bool large, bool zero, int node, bool exclusive, int *arena)) {
  return (void)start, (void)size, (void)committed, (void)large, (void)zero, (void)node, (void)exclusive, (void)arena, false;
}
COMPAT(void *, mi_arena_area, (int arena, size_t *size)) {
  (void)arena;
  tell(size, 0);
  return NULL;
}
COMPAT(mi_heap_t *, mi_heap_new_in_arena, (int arena)) { return (void)arena, NULL; }

/* --- the environment ------------------------------------------------------------------------ */

static bool is_on(const char *value) { return value != NULL && value[0] != '\0' && strchr("1tTyYoO", value[0]) != NULL; }

static __attribute__((constructor)) void start(void) {
  (void)clock_gettime(CLOCK_MONOTONIC, &started);
  const char *delay = secure_getenv("MIMALLOC_PURGE_DELAY");
  if (delay == NULL) delay = secure_getenv("MIMALLOC_DECOMMIT_DELAY");
  char *end = NULL;
  long ms = delay != NULL ? strtol(delay, &end, 10) : 0;
  if (delay != NULL && end != delay && *end == '\0') compat_option("decay_ms", ms); /* what is no number is passed over */
  const char *large = secure_getenv("MIMALLOC_ALLOW_LARGE_OS_PAGES");
  if (is_on(large != NULL ? large : secure_getenv("MIMALLOC_LARGE_OS_PAGES"))) compat_option("huge", 1);
  values[OPTION_SHOW_STATS] = is_on(secure_getenv("MIMALLOC_SHOW_STATS"));
}

static __attribute__((destructor)) void end(void) {
  if (values[OPTION_SHOW_STATS] != 0) print(NULL, NULL);
}
