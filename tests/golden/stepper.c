/* stepper.c - records every instruction that one malloc and one free execute inside a preloaded library.
 *
 *   stepper LIBRARY [operators] SIZE...
 *
 * The program runs itself again as a child with LIBRARY preloaded.  For each size the child warms the allocator up, so that
 * requests are served from a bin, and then brackets one malloc and one free with breakpoints.  The parent single-steps between
 * the breakpoints and prints one line for each of the two calls, "malloc SIZE ADDRESS..." or "free SIZE ADDRESS...", with the
 * addresses in the library's file, in the order of execution.  With "operators" the same follows for operator new[] and sized
 * operator delete, as "new[]" and "delete".  Instructions outside the library (the call, the procedure linkage table) are not
 * printed.
 *
 * x86-64 Linux only: breakpoints are int3, the instruction pointer is rip.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WARM_ROUNDS = 200, STEP_LIMIT = 100000 };

static const char CHILD_MARK[] = "STEPPER_CHILD";

/* Volatile pointers, so that the compiler can neither drop nor reorder the calls. */
static void *(*volatile call_malloc)(size_t) = malloc;
static void (*volatile call_free)(void *) = free;

static void die(const char *what) {
  perror(what);
  exit(2);
}

static void breakpoint(void) { __asm__ volatile("int3" ::: "memory"); }

/* ---- the child ---- */

/* Operators that by default call others: operator new[](size_t) and operator delete(void *, size_t). */
static void child_run_operators(size_t size) {
  void *(*volatile call_new)(size_t) = (void *(*)(size_t))dlsym(RTLD_DEFAULT, "_Znam");
  void (*volatile call_delete)(void *, size_t) = (void (*)(void *, size_t))dlsym(RTLD_DEFAULT, "_ZdlPvm");
  for (int round = 0; round < WARM_ROUNDS; round++) {
    call_delete(call_new(size), size);
  }
  breakpoint();
  void *block = call_new(size);
  breakpoint();
  call_delete(block, size);
  breakpoint();
}

static void child_run(int count, char **sizes, bool operators) {
  for (int i = 0; i < count; i++) {
    size_t size = strtoul(sizes[i], NULL, 10);
    for (int round = 0; round < WARM_ROUNDS; round++) {
      call_free(call_malloc(size));
    }
    breakpoint();
    void *block = call_malloc(size);
    breakpoint();
    call_free(block);
    breakpoint();
    if (operators) {
      child_run_operators(size);
    }
  }
}

/* ---- the parent ---- */

typedef struct text_range {
  uint64_t base; /* where the file's first byte is mapped */
  uint64_t low;  /* from here to high: the executable mappings, and what lies between them */
  uint64_t high;
} text_range_t;

static text_range_t library_find(pid_t pid, const char *library) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/maps", (int)pid);
  FILE *maps = fopen(path, "r");
  if (maps == NULL) {
    die(path);
  }
  text_range_t range = {0, 0, 0};
  char line[PATH_MAX + 128];
  while (fgets(line, sizeof line, maps) != NULL) {
    unsigned long low, high, offset;
    char access[8], name[PATH_MAX];
    if (sscanf(line, "%lx-%lx %7s %lx %*s %*s %4095s", &low, &high, access, &offset, name) != 5 || strcmp(name, library) != 0) {
      continue;
    }
    if (offset == 0) {
      range.base = low;
    }
    if (access[2] == 'x') {
      if (range.low == 0) range.low = low;
      range.high = high;
    }
  }
  fclose(maps);
  return range;
}

/* Continues the child by a ptrace request. Returns whether the child then stops with SIGTRAP; false if it has ended well. */
static bool child_continue(pid_t pid, int request) {
  int status;
  if (ptrace(request, pid, NULL, NULL) != 0 || waitpid(pid, &status, 0) != pid) {
    die("ptrace");
  }
  if (WIFSTOPPED(status) && WSTOPSIG(status) == SIGTRAP) {
    return true;
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    fprintf(stderr, "stepper: the child ended with wait status %#x\n", (unsigned)status);
    exit(2);
  }
  return false;
}

static uint64_t child_rip(pid_t pid) {
  struct user_regs_struct registers;
  if (ptrace(PTRACE_GETREGS, pid, NULL, &registers) != 0) {
    die("PTRACE_GETREGS");
  }
  return registers.rip;
}

/* Steps from one breakpoint to the next, and prints the line. */
static void call_record(pid_t pid, const char *name, const char *size, text_range_t range) {
  printf("%s %s", name, size);
  for (int step = 0; step < STEP_LIMIT; step++) {
    uint64_t rip = child_rip(pid);
    if (rip >= range.low && rip < range.high) {
      printf(" %#lx", (unsigned long)(rip - range.base));
    }
    long word = ptrace(PTRACE_PEEKTEXT, pid, (void *)rip, NULL);
    if (!child_continue(pid, PTRACE_SINGLESTEP)) {
      break;
    }
    if ((word & 0xff) == 0xcc) {
      printf("\n");
      return;
    }
  }
  fprintf(stderr, "stepper: no breakpoint after %s %s\n", name, size);
  exit(2);
}

static void pair_record(pid_t pid, const char *make, const char *drop, const char *size, const char *library) {
  if (!child_continue(pid, PTRACE_CONT)) {
    die("the child ended early");
  }
  text_range_t range = library_find(pid, library);
  call_record(pid, make, size, range);
  call_record(pid, drop, size, range);
}

static void parent_run(pid_t pid, const char *library, int count, char **sizes, bool operators) {
  int status;
  if (waitpid(pid, &status, 0) != pid || !WIFSTOPPED(status)) {
    die("the child did not start");
  }
  for (int i = 0; i < count; i++) {
    pair_record(pid, "malloc", "free", sizes[i], library);
    if (operators) {
      pair_record(pid, "new[]", "delete", sizes[i], library);
    }
  }
  while (child_continue(pid, PTRACE_CONT)) {
  }
}

int main(int argc, char **argv) {
  bool operators = argc > 2 && strcmp(argv[2], "operators") == 0;
  int first = operators ? 3 : 2;
  if (getenv(CHILD_MARK) != NULL) {
    child_run(argc - first, argv + first, operators);
    return 0;
  }
  char library[PATH_MAX];
  if (argc <= first || realpath(argv[1], library) == NULL) {
    fprintf(stderr, "usage: stepper LIBRARY [operators] SIZE...\n");
    return 2;
  }
  pid_t pid = fork();
  if (pid == 0) {
    personality(ADDR_NO_RANDOMIZE);
    setenv(CHILD_MARK, "1", 1);
    setenv("LD_PRELOAD", library, 1);
    setenv("LD_BIND_NOW", "1", 1);
    ptrace(PTRACE_TRACEME, 0, NULL, NULL);
    execv("/proc/self/exe", argv);
    die("execv");
  }
  parent_run(pid, library, argc - first, argv + first, operators);
  return 0;
}
