/* process.c - mimalloc's options, statistics, and its calls that reserve memory. */
#include "mimalloc.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/atomics.h"

COMPAT(int, mi_version, (void)) { return 209; }

/* --- options: two have an equivalent, the others are only stored --------------------------------- */

typedef struct option {
  _Atomic long value;    /* mimalloc's default, until it is set */
  const char *names[3];  /* in the environment, after MIMALLOC_; the first that is set counts */
  const char *own;       /* the hakmem option that holds its value */
  _Atomic bool is_given; /* set by the environment or the program, so no longer a default */
} option_t;

enum { OPTION_SHOW_STATS = 1, OPTION_LARGE_PAGES = 6, OPTIONS = 64 };
/* clang-format off */
static option_t options[OPTIONS] = {
    [0] = {.names = {"SHOW_ERRORS"}},
    [OPTION_SHOW_STATS] = {.names = {"SHOW_STATS"}},
    [2] = {.names = {"VERBOSE"}},
    [3] = {1, .names = {"EAGER_COMMIT"}},
    [OPTION_LARGE_PAGES] = {.names = {"ALLOW_LARGE_OS_PAGES", "LARGE_OS_PAGES"}, .own = "huge"},
    [7] = {.names = {"RESERVE_HUGE_OS_PAGES"}},
    [8] = {-1, .names = {"RESERVE_HUGE_OS_PAGES_AT"}},
    [9] = {0}, /* RESERVE_OS_MEMORY is a size with a unit; nothing is reserved here */
    [11] = {.names = {"PAGE_RESET"}},
    [12] = {.names = {"ABANDONED_PAGE_DECOMMIT", "ABANDONED_PAGE_RESET"}},
    [14] = {1, .names = {"EAGER_COMMIT_DELAY"}},
    [15] = {.names = {"PURGE_DELAY", "DECOMMIT_DELAY", "RESET_DELAY"}, .own = "decay_ms"},
    [16] = {.names = {"USE_NUMA_NODES"}},
    [17] = {.names = {"LIMIT_OS_ALLOC"}},
    [18] = {100, .names = {"OS_TAG"}},
    [19] = {16, .names = {"MAX_ERRORS"}},
    [20] = {16, .names = {"MAX_WARNINGS"}},
    [21] = {8, .names = {"MAX_SEGMENT_RECLAIM"}},
    [22] = {1, .names = {"ALLOW_DECOMMIT"}},
    [23] = {500, .names = {"SEGMENT_DECOMMIT_DELAY"}},
    [24] = {1, .names = {"DECOMMIT_EXTEND_DELAY"}},
    [25] = {.names = {"DESTROY_ON_EXIT"}},
};
/* clang-format on */

static option_t *option_at(int number) { return number >= 0 && number < OPTIONS ? &options[number] : NULL; }

#define HUGE_ALWAYS 1
#define HUGE_WHERE_DENSE 2
static int64_t to_own(const option_t *option, long value) {
  if (option != &options[OPTION_LARGE_PAGES]) return value;
  return value != 0 ? HUGE_ALWAYS : HUGE_WHERE_DENSE;
}
static long from_own(const option_t *option, int64_t value) {
  return option == &options[OPTION_LARGE_PAGES] ? value == HUGE_ALWAYS : (long)value;
}

static long value_of(int number) {
  const option_t *option = option_at(number);
  int64_t own;
  if (option == NULL) return 0;
  if (option->own != NULL && hak_option_get(option->own, &own)) return from_own(option, own);
  return load_relaxed(&option->value);
}

static void option_put(option_t *option, long value) {
  store_relaxed(&option->value, value);
  if (option->own != NULL) (void)hak_option_set(option->own, to_own(option, value));
}
static void set_value(int number, long value) {
  option_t *option = option_at(number);
  if (option == NULL) return;
  store_relaxed(&option->is_given, true);
  option_put(option, value);
}
static void set_default(int number, long value) {
  option_t *option = option_at(number);
  if (option != NULL && !load_relaxed(&option->is_given)) option_put(option, value);
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
COMPAT(void, mi_option_set_default, (int option, long value)) { set_default(option, value); }
COMPAT(void, mi_option_set_enabled, (int option, bool enable)) { set_value(option, enable); }
COMPAT(void, mi_option_set_enabled_default, (int option, bool enable)) { set_default(option, enable); }
COMPAT(void, mi_option_enable, (int option)) { set_value(option, 1); }
COMPAT(void, mi_option_disable, (int option)) { set_value(option, 0); }

/* --- statistics ----------------------------------------------------------------------------- */

static output_fn *output;
static void *output_to;
static struct timespec started;

typedef struct target {
  output_fn *out;
  void *to;
} target_t;
static void to_target(void *to, const char *text) { ((target_t *)to)->out(text, ((target_t *)to)->to); }

static void print(output_fn *out, void *to) {
  target_t target = {out, to};
  if (out == NULL) target = (target_t){output, output_to};
  if (target.out == NULL) (void)hak_stats_text(STDERR_FILENO);
  else (void)compat_capture(hak_stats_text, to_target, &target);
}

COMPAT(void, mi_register_output, (output_fn * out, void *to)) {
  output_to = to;
  output = out;
}
COMPAT(void, mi_stats_print_out, (output_fn * out, void *to)) { print(out, to); }
COMPAT(void, mi_thread_stats_print_out, (output_fn * out, void *to)) { print(out, to); }
COMPAT(void, mi_stats_print, (void *out)) {
  (void)out; /* ignored, as in mimalloc */
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
  tell(peak_commit, stats.reserved); /* an upper bound: the peak is not recorded */
  tell(faults, (size_t)usage.ru_majflt);
}

/* --- calls that do nothing: threads and the process start by themselves, and no free is deferred --- */

COMPAT(void, mi_process_init, (void)) {}
COMPAT(void, mi_thread_init, (void)) {}
COMPAT(void, mi_thread_done, (void)) {}
COMPAT(bool, mi_is_redirected, (void)) { return false; }
COMPAT(void, mi_register_deferred_free, (void (*call)(bool, unsigned long long, void *), void *to)) { (void)call, (void)to; }
COMPAT(void, mi_register_error, (void (*call)(int, void *), void *to)) { (void)call, (void)to; }

/* --- reserved memory: the one region grows by itself, so each of these calls fails --------- */

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

static const char *variable_of(const option_t *option) {
  for (size_t i = 0; i < sizeof option->names / sizeof option->names[0] && option->names[i] != NULL; i++) {
    char variable[40] = "MIMALLOC_";
    const char *value = secure_getenv(strncat(variable, option->names[i], sizeof variable - strlen(variable) - 1));
    if (value != NULL) return value;
  }
  return NULL;
}

/* Reads a number or a word; a variable that is set but empty counts as "on". */
static bool read_value(const char *text, long *value) {
  static const char *const words[][6] = {{"f", "false", "n", "no", "off"}, {"", "t", "true", "y", "yes", "on"}};
  for (long i = 0; i < 12; i++) {
    const char *word = words[i / 6][i % 6];
    if (word != NULL && strcasecmp(text, word) == 0) return *value = i / 6, true;
  }
  char *end;
  *value = strtol(text, &end, 10);
  return end != text && *end == '\0';
}

static void take_option(option_t *option) {
  const char *text = variable_of(option);
  long value;
  if (option->own != NULL) option->is_given = compat_option_is_given(option->own);
  if (text == NULL || !read_value(text, &value)) return; /* any other text is ignored */
  option->is_given = true;
  option->value = value;
  if (option->own != NULL) compat_option(option->own, to_own(option, value));
}

static __attribute__((constructor)) void start(void) {
  (void)clock_gettime(CLOCK_MONOTONIC, &started);
  for (int i = 0; i < OPTIONS; i++) take_option(&options[i]);
}

static __attribute__((destructor)) void end(void) {
  if (options[OPTION_SHOW_STATS].value != 0) print(NULL, NULL);
}
