/* figures.c - what a small program costs: system calls, page faults, superslabs, resident memory.
 *
 * - mixed: 200 K random slot replacements over 4096 slots of 16 to 1040 bytes.
 *   After start-up at most 20 system calls (counted by ptrace, threads included),
 *   0.02 page faults for each operation, and 2 superslabs
 * - true: the largest resident set of /bin/true at most 512 KiB above that on the
 *   system malloc; start-up times are printed, not judged
 *
 * On another malloc the figures are printed, and none is judged.
 *
 * Arguments: --scene=all, --ops=200K, --slots=4096, --library=PATH (for the
 * scene true; without it, the library that LD_PRELOAD names), --seed.
 */
#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness.h"

enum {
  MARK = 0x4d41524b,
  SIZE_LEAST = 16,
  SIZE_SPREAD = 1025,
  TRUE_RUNS = 7,
  START_RUNS = 100,
  HANG_SECONDS = 300,
  CALLS_ALLOWED = 20,
  SUPERSLABS_ALLOWED = 2
};

static const double faults_allowed = 0.02;
static const size_t resident_allowed = 512 * KIB;

/* The traced child's report to its parent, in shared memory. */
typedef struct report {
  uint64_t faults;
  uint64_t resident;
  hak_stats_t stats;
  bool has_stats;
} report_t;

/* ---- mixed ---- */

/* A system call that no malloc makes: ptrace counts the calls between two of them. */
static void mark(void) { syscall(SYS_getpgid, MARK); }

static void mixed_run(report_t *report, size_t slots, uint64_t ops) {
  rng_t rng = rng_make(1);
  void **blocks = pages_take(slots * sizeof *blocks);
  memset(blocks, 0, slots * sizeof *blocks);
  size_t resident = process_resident();
  free(malloc(1)); /* start-up ends with the first call */
  mark();
  uint64_t faults = process_faults();
  for (uint64_t i = 0; i < ops; i++) {
    uint32_t slot = rng_below(&rng, (uint32_t)slots);
    size_t size = SIZE_LEAST + rng_below(&rng, SIZE_SPREAD);
    free(blocks[slot]);
    blocks[slot] = malloc(size);
    if (blocks[slot] == NULL) stress_fail("no block of %zu bytes", size);
    memset(blocks[slot], (int)i, size);
  }
  report->faults = process_faults() - faults;
  mark();
  report->resident = process_resident() - resident;
  report->has_stats = stress_stats(&report->stats);
}

/* Returns true at the entry of a system call, with its number and first argument. */
static bool call_entered(pid_t pid, uint64_t *number, uint64_t *first) {
  struct __ptrace_syscall_info info;
  if (ptrace(PTRACE_GET_SYSCALL_INFO, pid, (void *)sizeof info, &info) <= 0 || info.op != PTRACE_SYSCALL_INFO_ENTRY) return false;
  *number = info.entry.nr;
  *first = info.entry.args[0];
  return true;
}

/* Runs the traced process and all its threads to the end; returns the calls between the marks. */
static uint64_t calls_count(pid_t child) {
  uint64_t calls = 0, number, first;
  unsigned marks = 0;
  int status;
  for (pid_t pid; (pid = waitpid(-1, &status, __WALL)) > 0;) {
    if (WIFEXITED(status) || WIFSIGNALED(status)) {
      if (pid == child && status != 0) stress_fail("mixed: the traced process ended with status 0x%x", (unsigned)status);
      continue;
    }
    int pass = WSTOPSIG(status);
    if (pass == (SIGTRAP | 0x80) && call_entered(pid, &number, &first)) {
      bool is_mark = number == SYS_getpgid && first == MARK;
      marks += is_mark;
      calls += marks == 1 && !is_mark && pid != 0;
    }
    bool ours = pass == (SIGTRAP | 0x80) || pass == SIGTRAP || pass == SIGSTOP;
    ptrace(PTRACE_SYSCALL, pid, NULL, (void *)(intptr_t)(ours ? 0 : pass));
  }
  if (marks != 2) stress_fail("mixed: %u marks seen, not 2", marks);
  return calls - 1; /* the getrusage after the first mark; the other is subtracted below */
}

static void scene_mixed(void) {
  size_t slots = stress_option("slots", 4096);
  uint64_t ops = stress_option("ops", 200000);
  report_t *report = mmap(NULL, sizeof *report, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  pid_t child = fork();
  if (child == 0) {
    if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0) _exit(77);
    raise(SIGSTOP);
    mixed_run(report, slots, ops);
    _exit(0);
  }
  int status;
  waitpid(child, &status, 0);
  if (WIFSIGNALED(status)) stress_fail("mixed: the child of a fork died of signal %d at once", WTERMSIG(status));
  if (WIFEXITED(status)) {
    stress_say("skipped: mixed: ptrace is not permitted here");
    return;
  }
  ptrace(PTRACE_SETOPTIONS, child, NULL, (void *)(intptr_t)(PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_EXITKILL));
  ptrace(PTRACE_SYSCALL, child, NULL, NULL);
  uint64_t calls = calls_count(child) - 1; /* the second getrusage */
  double faults = (double)report->faults / (double)ops;
  stress_say("mixed: %llu system calls, %.4f faults an operation, resident %llu KiB", (unsigned long long)calls, faults,
             (unsigned long long)report->resident / KIB);
  if (!stress_on_hakmem()) return;
  stress_expect(calls <= CALLS_ALLOWED, "mixed: %llu system calls", (unsigned long long)calls);
  stress_expect(faults <= faults_allowed, "mixed: %.4f page faults an operation", faults);
  stress_say("mixed: %llu superslabs, %llu slabs, %llu live bytes", (unsigned long long)report->stats.superslabs,
             (unsigned long long)report->stats.slabs, (unsigned long long)report->stats.live);
  stress_expect(report->has_stats && report->stats.superslabs <= SUPERSLABS_ALLOWED, "mixed: %llu superslabs",
                (unsigned long long)report->stats.superslabs);
}

/* ---- true ---- */

static size_t status_field(pid_t pid, const char *field) {
  char path[64], line[256];
  size_t value = 0, length = strlen(field);
  snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
  FILE *file = fopen(path, "r");
  if (file == NULL) stress_fail("true: no %s", path);
  while (fgets(line, sizeof line, file) != NULL)
    if (strncmp(line, field, length) == 0 && line[length] == ':') value = strtoul(line + length + 1, NULL, 10) * KIB;
  fclose(file);
  return value;
}

static void preload_set(const char *library) {
  if (library != NULL) setenv("LD_PRELOAD", library, 1);
  else unsetenv("LD_PRELOAD");
}

/* The largest resident set of /bin/true, read just before it exits; rusage would show that of the forking parent. */
static size_t true_resident(const char *library) {
  int status;
  pid_t pid = fork();
  if (pid == 0) {
    preload_set(library);
    if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0) _exit(77);
    execl("/bin/true", "true", (char *)NULL);
    _exit(78);
  }
  waitpid(pid, &status, 0); /* the stop after exec */
  if (!WIFSTOPPED(status)) return 0;
  ptrace(PTRACE_SETOPTIONS, pid, NULL, (void *)(intptr_t)(PTRACE_O_TRACEEXIT | PTRACE_O_EXITKILL));
  ptrace(PTRACE_CONT, pid, NULL, NULL);
  waitpid(pid, &status, 0);
  if (status >> 8 != (SIGTRAP | (PTRACE_EVENT_EXIT << 8))) stress_fail("true: stopped with status 0x%x", (unsigned)status);
  size_t resident = status_field(pid, "VmHWM");
  ptrace(PTRACE_CONT, pid, NULL, NULL);
  waitpid(pid, &status, 0);
  if (status != 0) stress_fail("true: ended with status 0x%x", (unsigned)status);
  return resident;
}

static double true_milliseconds(const char *library) {
  char *arguments[] = {(char[]){"true"}, NULL};
  char variable[4096] = "NOTHING=1";
  if (library != NULL) snprintf(variable, sizeof variable, "LD_PRELOAD=%s", library);
  char *environment[] = {variable, NULL};
  int status;
  pid_t pid;
  uint64_t begin = clock_ns();
  if (posix_spawn(&pid, "/bin/true", NULL, NULL, arguments, environment) != 0) stress_fail("true: posix_spawn failed");
  waitpid(pid, &status, 0);
  if (status != 0) stress_fail("true: ended with status 0x%x", (unsigned)status);
  return (double)(clock_ns() - begin) / 1e6;
}

static void scene_true(const char *library) {
  size_t with = SIZE_MAX, without = SIZE_MAX;
  double fastest_with = 1e9, fastest_without = 1e9;
  for (int i = 0; i < TRUE_RUNS; i++) {
    size_t a = true_resident(NULL), b = true_resident(library);
    if (a == 0 || b == 0) {
      stress_say("skipped: true: ptrace is not permitted here");
      return;
    }
    without = a < without ? a : without;
    with = b < with ? b : with;
  }
  for (int i = 0; i < START_RUNS; i++) {
    double a = true_milliseconds(NULL), b = true_milliseconds(library);
    fastest_without = a < fastest_without ? a : fastest_without;
    fastest_with = b < fastest_with ? b : fastest_with;
  }
  stress_say("true: resident %zu KiB, on the system malloc %zu KiB; fastest run %.2f ms, %.2f ms", with / KIB, without / KIB, fastest_with,
             fastest_without);
  stress_expect(with <= without + resident_allowed, "true: resident %zu KiB above the system malloc's", (with - without) / KIB);
}

int main(int argc, char **argv) {
  stress_init(argc, argv);
  stress_watch(HANG_SECONDS, "figures");
  const char *scene = stress_word("scene", "all");
  const char *library = stress_word("library", getenv("LD_PRELOAD"));
  if (strcmp(scene, "true") != 0) scene_mixed();
  if (strcmp(scene, "mixed") != 0 && library != NULL) scene_true(library);
  return stress_finish();
}
