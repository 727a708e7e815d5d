/* harness.c - see harness.h. */
#include "harness.h"

#include "symbol.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { LINE_SIZE = 512 };

static int argument_count;
static char **arguments;
static const char *program = "stress";
static uint64_t seed;
static atomic_int failures;
static const char *volatile watched = "";

/* ---- Arguments ---- */

const char *stress_word(const char *name, const char *otherwise) {
  size_t length = strlen(name);
  for (int i = 1; i < argument_count; i++) {
    const char *text = arguments[i];
    if (strncmp(text, "--", 2) == 0 && strncmp(text + 2, name, length) == 0 && text[2 + length] == '=') return text + 2 + length + 1;
  }
  char variable[64] = "STRESS_";
  size_t end = strlen(variable);
  for (size_t i = 0; i < length && end + 1 < sizeof variable; i++)
    variable[end++] = (char)(name[i] >= 'a' && name[i] <= 'z' ? name[i] - 'a' + 'A' : '_');
  variable[end] = 0;
  const char *value = getenv(variable);
  return value != NULL ? value : otherwise;
}

uint64_t stress_option(const char *name, uint64_t otherwise) {
  const char *text = stress_word(name, NULL);
  if (text == NULL) return otherwise;
  char *end;
  uint64_t value = strtoull(text, &end, 0);
  switch (*end) {
    case 'G': value *= KIB; /* fall through */
    case 'M': value *= KIB; /* fall through */
    case 'K':
      value *= KIB;
      end++;
      break;
    default: break;
  }
  if (end == text || *end != 0) stress_fail("--%s=%s is not a number", name, text);
  return value;
}

uint64_t stress_count(const char *name, uint64_t otherwise) {
  uint64_t count = stress_option(name, otherwise), share = stress_option("share", 1);
  if (share == 0) stress_fail("--share=0 is no share");
  return (count + share - 1) / share;
}

uint64_t stress_seed(void) { return seed; }

rng_t rng_make(uint64_t stream) {
  rng_t rng = {rng_mix(seed) ^ rng_mix(stream + 1)};
  return rng;
}

void stress_init(int argc, char **argv) {
  argument_count = argc;
  arguments = argv;
  const char *slash = strrchr(argv[0], '/');
  program = slash != NULL ? slash + 1 : argv[0];
  seed = stress_option("seed", clock_ns() % 1000000007);
  const char *wanted = stress_word("expect", "any");
  if (strcmp(wanted, "hakmem") == 0 && !stress_on_hakmem()) stress_fail("--expect=hakmem, but the process runs on another malloc");
  stress_say("seed %llu, on %s", (unsigned long long)seed, stress_on_hakmem() ? "hakmem" : "the system malloc");
}

/* ---- Results ---- */

static void line_write(int fd, const char *mark, const char *format, va_list list) {
  char line[LINE_SIZE];
  int used = snprintf(line, sizeof line, "%s: %s", program, mark);
  int more = vsnprintf(line + used, sizeof line - (size_t)used - 1, format, list);
  size_t length = (size_t)used + (size_t)(more > 0 ? more : 0);
  if (length > sizeof line - 2) length = sizeof line - 2;
  line[length] = '\n';
  ssize_t ignored = write(fd, line, length + 1);
  (void)ignored;
}

void stress_say(const char *format, ...) {
  va_list list;
  va_start(list, format);
  line_write(STDOUT_FILENO, "", format, list);
  va_end(list);
}

static void seed_mark(char *mark, size_t size) { snprintf(mark, size, "FAILED (--seed=%llu): ", (unsigned long long)seed); }

void stress_fail(const char *format, ...) {
  char mark[64];
  seed_mark(mark, sizeof mark);
  va_list list;
  va_start(list, format);
  line_write(STDERR_FILENO, mark, format, list);
  va_end(list);
  abort();
}

void stress_expect(bool good, const char *format, ...) {
  if (good) return;
  char mark[64];
  seed_mark(mark, sizeof mark);
  va_list list;
  va_start(list, format);
  line_write(STDERR_FILENO, mark, format, list);
  va_end(list);
  atomic_fetch_add(&failures, 1);
}

int stress_finish(void) {
  stress_watch(0, "");
  int count = atomic_load(&failures);
  stress_say("%s", count == 0 ? "passed" : "failed");
  return count == 0 ? 0 : 1;
}

static void watch_expired(int signal_number) {
  (void)signal_number;
  char line[256];
  int length = snprintf(line, sizeof line, "%s: FAILED (--seed=%llu): hang in %s, process %d\n", program, (unsigned long long)seed, watched,
                        (int)getpid());
  ssize_t ignored = write(STDERR_FILENO, line, (size_t)length);
  (void)ignored;
  const char *keep = stress_word("keep", NULL);
  while (keep != NULL) /* --keep=1 leaves the hung process for a debugger */
    pause();
  abort();
}

void stress_watch(unsigned seconds, const char *what) {
  struct sigaction action = {.sa_handler = watch_expired};
  watched = what;
  sigaction(SIGALRM, &action, NULL);
  alarm(seconds);
}

/* ---- Memory ---- */

size_t pages_round(size_t size) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  return (size + page - 1) & ~(page - 1);
}

void *pages_take(size_t size) {
  void *pages = mmap(NULL, pages_round(size), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (pages == MAP_FAILED) stress_fail("the harness got no %zu bytes: %s", size, strerror(errno));
  return pages;
}

/* ---- Figures ---- */

static ssize_t file_read(const char *path, char *text, size_t size) {
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) stress_fail("open %s: %s", path, strerror(errno));
  ssize_t length = read(fd, text, size - 1);
  close(fd);
  text[length > 0 ? length : 0] = 0;
  return length;
}

static size_t statm_field(int field) {
  char text[256];
  file_read("/proc/self/statm", text, sizeof text);
  char *at = text;
  unsigned long pages = 0;
  for (int i = 0; i <= field; i++) pages = strtoul(at, &at, 10);
  return pages * (size_t)sysconf(_SC_PAGESIZE);
}

size_t process_virtual(void) { return statm_field(0); }
size_t process_resident(void) { return statm_field(1); }

size_t process_status(const char *field) {
  char text[4096];
  file_read("/proc/self/status", text, sizeof text);
  size_t length = strlen(field);
  for (const char *line = text; line != NULL && *line != 0;) {
    if (strncmp(line, field, length) == 0 && line[length] == ':') return strtoul(line + length + 1, NULL, 10) * KIB;
    line = strchr(line, '\n');
    line = line != NULL ? line + 1 : NULL;
  }
  stress_fail("no field %s in /proc/self/status", field);
}

uint64_t process_faults(void) {
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return (uint64_t)usage.ru_minflt;
}

uint64_t clock_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* ---- hakmem's own names ---- */

stress_function_t stress_symbol(const char *name) {
  union { /* ISO C has no cast from an object pointer to a function pointer */
    void *object;
    stress_function_t function;
  } symbol;
  symbol.object = symbol_find(name);
  return symbol.function;
}

bool stress_on_hakmem(void) { return stress_symbol("hak_version") != NULL; }

bool stress_stats(hak_stats_t *stats) {
  static bool (*get)(hak_stats_t *);
  if (get == NULL) get = (bool (*)(hak_stats_t *))stress_symbol("hak_stats_get");
  if (get == NULL) return false;
  memset(stats, 0, sizeof *stats);
  stats->struct_size = sizeof *stats;
  if (!get(stats)) stress_fail("hak_stats_get refuses its own structure");
  return true;
}

int stress_trim(void) {
  int (*trim)(size_t) = (int (*)(size_t))stress_symbol("hak_malloc_trim");
  if (trim == NULL) trim = (int (*)(size_t))stress_symbol("malloc_trim");
  return trim != NULL ? trim(0) : -1;
}
