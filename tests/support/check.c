/* check.c - runs each check in a process of its own and counts the outcomes. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "check.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <regex.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STATUS_PASSED = 0, STATUS_FAILED = 1, STATUS_SKIPPED = 77, SHOWN_FAILURES = 5 };

static check_t *first_check;
static check_t **last_link = &first_check;
static atomic_int failures;
static const char *context = "alone";
static const char *variant = "";
static const char *running = "";
static unsigned seconds = 60;

void check_add(check_t *check) {
  *last_link = check;
  last_link = &check->next;
}

__attribute__((weak)) void check_setup(const char *name) { (void)name; }

const char *check_context(void) { return context; }
int check_failures(void) { return atomic_load(&failures); }

/* One write for each line, so that lines of several threads do not mix; no stdio
 * stream, which would allocate. */
__attribute__((format(printf, 2, 0))) static void say(int fd, const char *format, va_list values) {
  char line[1024];
  int length = vsnprintf(line, sizeof line - 1, format, values);
  if (length < 0) return;
  size_t size = (size_t)length < sizeof line - 2 ? (size_t)length : sizeof line - 2;
  line[size++] = '\n';
  if (write(fd, line, size) < 0) return;
}

__attribute__((format(printf, 1, 2))) static void tell(const char *format, ...) {
  va_list values;
  va_start(values, format);
  say(STDOUT_FILENO, format, values);
  va_end(values);
}

void check_fail(const char *file, int line, const char *format, ...) {
  int saved_errno = errno;
  if (atomic_fetch_add(&failures, 1) < SHOWN_FAILURES) {
    char detail[768];
    va_list values;
    va_start(values, format);
    vsnprintf(detail, sizeof detail, format, values);
    va_end(values);
    const char *slash = strrchr(file, '/');
    tell("  %s: %s:%d: %s (errno %d)", running, slash ? slash + 1 : file, line, detail, saved_errno);
  }
  errno = saved_errno;
}

void check_skip(const char *reason) {
  tell("skipped: %s: %s", running, reason);
  _exit(check_failures() ? STATUS_FAILED : STATUS_SKIPPED);
}

int check_file(void) {
  char path[] = "/tmp/check_XXXXXX"; /* before Linux 3.17 there are no memory files */
  int fd = memfd_create("check", MFD_CLOEXEC);
  if (fd >= 0 || errno != ENOSYS) return fd;
  fd = mkostemp(path, O_CLOEXEC);
  if (fd >= 0) unlink(path);
  return fd;
}

size_t check_resident(void) {
  char text[128];
  int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  ssize_t length = read(fd, text, sizeof text - 1);
  close(fd);
  if (length <= 0) return 0;
  text[length] = 0;
  unsigned long total = 0, resident = 0;
  if (sscanf(text, "%lu %lu", &total, &resident) != 2) return 0;
  return resident * (size_t)sysconf(_SC_PAGESIZE);
}

const char *check_self(void) {
  static char path[4096];
  if (!path[0]) {
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    path[length > 0 ? length : 0] = 0;
  }
  return path;
}

static void read_back(int fd, char *text, size_t room) {
  ssize_t length = pread(fd, text, room - 1, 0);
  text[length > 0 ? length : 0] = 0;
  close(fd);
}

/* The words of the command that runs programs built for another processor. */
#ifdef TEST_EMULATOR
static const char *const emulator[] = {TEST_EMULATOR NULL};
#else
static const char *const emulator[] = {NULL};
#endif

/* Executes argv[0], which is a program of ours. */
static _Noreturn void become(char *const argv[], char *const envp[]) {
  char *words[32];
  size_t n = 0;
  for (size_t i = 0; emulator[i] != NULL; i++) words[n++] = (char *)(size_t)emulator[i];
  for (size_t i = 0; argv[i] != NULL && n < 31; i++) words[n++] = argv[i];
  words[n] = NULL;
  execvpe(words[0], words, envp);
  _exit(127);
}

/* Removes the line that the emulator itself prints when a signal has ended the program. */
static void drop_emulator_line(char *text) {
  char *line = emulator[0] ? strstr(text, "qemu: uncaught target signal") : NULL;
  if (line) *line = 0;
}

int check_spawn(char *const argv[], char *const envp[], unsigned limit, char *errors, char *output, size_t room) {
  int error_fd = errors ? check_file() : -1;
  int output_fd = output ? check_file() : -1;
  if ((errors && error_fd < 0) || (output && output_fd < 0)) return -1;
  pid_t child = fork();
  if (child == 0) {
    if (errors) dup2(error_fd, STDERR_FILENO);
    else close(STDERR_FILENO);
    if (output) dup2(output_fd, STDOUT_FILENO);
    alarm(limit);
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0}); /* an expected crash leaves no core file */
    become(argv, envp);
  }
  int status = -1;
  while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  if (errors) {
    read_back(error_fd, errors, room);
    drop_emulator_line(errors);
  }
  if (output) read_back(output_fd, output, room);
  return child > 0 ? status : -1;
}

/* ---- In the check's own process ---- */

static atomic_bool noise_stops;

/* The other thread of context "beside": keeps up to 128 blocks of up to 8 KiB,
 * now and then a large one, and allocates as fast as it can. */
static void *make_noise(void *unused) {
  (void)unused;
  void *slots[128] = {0};
  unsigned random = 2463534242u;
  while (!atomic_load_explicit(&noise_stops, memory_order_relaxed)) {
    random ^= random << 13, random ^= random >> 17, random ^= random << 5;
    unsigned slot = random % 128;
    free(slots[slot]);
    slots[slot] = malloc(random % 1000 == 0 ? 300000 : 1 + (random >> 8) % 8192);
    if (slots[slot]) *(volatile char *)slots[slot] = 1;
  }
  for (int i = 0; i < 128; i++) free(slots[i]);
  return NULL;
}

static void *run_check(void *check) {
  ((check_t *)check)->run();
  return NULL;
}

static int run_here(check_t *check) {
  pthread_t thread;
  running = check->name;
  alarm(seconds);
  check_setup(variant);
  if (strcmp(context, "worker") == 0) {
    if (pthread_create(&thread, NULL, run_check, check) != 0) return STATUS_FAILED;
    pthread_join(thread, NULL);
  } else if (strcmp(context, "beside") == 0) {
    if (pthread_create(&thread, NULL, make_noise, NULL) != 0) return STATUS_FAILED;
    run_check(check);
    atomic_store(&noise_stops, true);
    pthread_join(thread, NULL);
  } else {
    run_check(check);
  }
  return check_failures() ? STATUS_FAILED : STATUS_PASSED;
}

/* ---- What a port leaves out: tests/ports ---- */

#ifdef TEST_PORT

static bool fits(const char *name, const char *pattern) {
  regex_t compiled;
  char whole[160];
  snprintf(whole, sizeof whole, "^(%s)$", pattern);
  bool found = regcomp(&compiled, whole, REG_EXTENDED | REG_NOSUB) == 0 && regexec(&compiled, name, 0, NULL, 0) == 0;
  regfree(&compiled);
  return found;
}

const char *check_left_out(const char *name) {
  static char list[16384], port[32], kind[16], pattern[128], reason[256];
  int fd = open(TEST_LEFT_OUT, O_RDONLY | O_CLOEXEC);
  if (fd >= 0) read_back(fd, list, sizeof list);
  for (char *line = list; line != NULL && *line; line = strchr(line, '\n')) {
    while (*line == '\n') line++;
    if (sscanf(line, "%31s %15s %127s %255[^\n]", port, kind, pattern, reason) != 4) continue;
    bool ours = strcmp(port, TEST_PORT) == 0 || strcmp(port, "any") == 0;
    if (ours && strcmp(kind, "check") == 0 && fits(name, pattern)) return reason;
  }
  return NULL;
}

#else
const char *check_left_out(const char *name) { return (void)name, NULL; }
#endif

/* ---- In the parent ---- */

static int run_apart(check_t *check) {
  char limit[16];
  snprintf(limit, sizeof limit, "%u", seconds);
  char *const argv[] = {(char *)(size_t)check_self(),
                        (char *)(size_t)"-c",
                        (char *)(size_t)context,
                        (char *)(size_t)"-v",
                        (char *)(size_t)variant,
                        (char *)(size_t)"-t",
                        limit,
                        (char *)(size_t)"-x",
                        (char *)(size_t)check->name,
                        NULL};
  pid_t child = fork();
  if (child == 0) become(argv, environ);
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) < 0) return STATUS_FAILED;
  if (WIFEXITED(status) && WEXITSTATUS(status) == STATUS_SKIPPED) return STATUS_SKIPPED;
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return STATUS_PASSED;
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM) tell("FAIL %s: no end after %u s", check->name, seconds);
  else if (WIFSIGNALED(status)) tell("FAIL %s: %s", check->name, strsignal(WTERMSIG(status)));
  else tell("FAIL %s", check->name);
  return STATUS_FAILED;
}

static check_t *check_named(const char *name) {
  for (check_t *check = first_check; check; check = check->next)
    if (strcmp(check->name, name) == 0) return check;
  tell("%s: no such check", name);
  return NULL;
}

/* Runs the checks one after another in this process, for tools that take long to start. A skipped check ends the process. */
static int run_in_turn(char **names) {
  int passed = 0, failed = 0;
  for (; *names; names++) {
    check_t *check = check_named(*names);
    int before = check_failures();
    if (!check) return 2;
    (void)run_here(check);
    if (check_failures() > before) failed++, tell("FAIL %s", check->name);
    else passed++;
  }
  tell("%s%s%s: %d passed, %d failed, 0 skipped", context, *variant ? " " : "", variant, passed, failed);
  return failed || !passed;
}

int check_main(int argc, char **argv) {
  const char *exact = NULL;
  bool list = false, in_turn = false;
  for (int option; (option = getopt(argc, argv, "c:v:t:x:il")) != -1;) switch (option) {
      case 'c': context = optarg; break;
      case 'v': variant = optarg; break;
      case 't': seconds = (unsigned)strtoul(optarg, NULL, 10); break;
      case 'x': exact = optarg; break;
      case 'i': in_turn = true; break;
      case 'l': list = true; break;
      default: tell("usage: %s [-c alone|beside|worker] [-v variant] [-t seconds] [-l] [-x name | -i name... | filter]", argv[0]); return 2;
    }
  if (in_turn) return run_in_turn(argv + optind);
  if (exact) {
    check_t *check = check_named(exact);
    return check ? run_here(check) : 2;
  }
  const char *filter = optind < argc ? argv[optind] : "";
  int passed = 0, failed = 0, skipped = 0;
  for (check_t *check = first_check; check; check = check->next) {
    if (!strstr(check->name, filter)) continue;
    if (list) {
      tell("%s", check->name);
      continue;
    }
    const char *why = check_left_out(check->name);
    if (why) tell("left out: %s: %s", check->name, why);
    int status = why ? STATUS_SKIPPED : run_apart(check);
    passed += status == STATUS_PASSED, failed += status == STATUS_FAILED, skipped += status == STATUS_SKIPPED;
  }
  if (list) return 0;
  tell("%s%s%s: %d passed, %d failed, %d skipped", context, *variant ? " " : "", variant, passed, failed, skipped);
  return failed || !passed;
}
