/* old_kernel.c - runs a program as if under an older kernel: later features are refused as that kernel would refuse them.
 *
 *   old_kernel VERSION PROGRAM [ARGUMENT...]        VERSION is one of the table below
 *
 * A program can see a system call filter, and would then give up more than what is missing.  So a tracer stops its calls, and those
 * of its threads and children.  A call that the old kernel lacks fails with ENOSYS, an unknown command or advice with EINVAL; an
 * unknown flag of mmap is ignored, and later files of /proc do not exist.  Other differences between kernels, in behaviour or in
 * bugs, are not imitated.
 *
 * The exit status is the program's; 77 if processes cannot be traced in this way, 99 for an error of old_kernel itself. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#if !defined(__x86_64__)
#error "numbers and registers are those of x86-64"
#endif

enum { CANNOT = 77, BROKEN = 99, PATH_MOST = 256 };
enum { X32 = 0x40000000, PAGE = 4096 }; /* system call numbers from X32 on belong to another ABI */

/* Each version with the number of its last system call. */
static const struct version {
  const char *name;
  int number; /* 100 * major + minor */
  uint64_t last;
} versions[] = {{"3.10", 310, 313}, {"4.4", 404, 325}, {"4.19", 419, 334}, {"5.10", 510, 440}, {"6.1", 601, 450}};

static const struct version *kernel;

/* Values of arguments that kernels before a version refuse. */
/* clang-format off */
static const struct rule {
  int since;
  uint64_t call;
  int argument;
  uint64_t mask, value;
  int error; /* 0: these bits are ignored */
} rules[] = {
#define ADVICE(since, advice) {since, SYS_madvise, 2, 0xffffffff, advice, EINVAL}
    ADVICE(405, 8 /* FREE */), ADVICE(414, 18 /* WIPEONFORK */), ADVICE(414, 19 /* KEEPONFORK */), ADVICE(504, 20 /* COLD */),
    ADVICE(504, 21 /* PAGEOUT */), ADVICE(514, 22 /* POPULATE_READ */), ADVICE(514, 23 /* POPULATE_WRITE */),
    ADVICE(518, 24 /* DONTNEED_LOCKED */), ADVICE(601, 25 /* COLLAPSE */), ADVICE(613, 102 /* GUARD_INSTALL */),
    ADVICE(613, 103 /* GUARD_REMOVE */),
#define CONTROL(since, option) {since, SYS_prctl, 0, 0xffffffff, option, EINVAL}
    CONTROL(315, 41 /* SET_THP_DISABLE */), CONTROL(315, 42), CONTROL(403, 47 /* CAP_AMBIENT */), CONTROL(517, 0x53564d41 /* SET_VMA */),
    CONTROL(603, 65 /* SET_MDWE */), CONTROL(603, 66), CONTROL(604, 0x41555856 /* GET_AUXV */),
#define BARRIER(since, command) {since, SYS_membarrier, 0, 0xffffffff, command, EINVAL}
    BARRIER(414, 8 /* PRIVATE_EXPEDITED */), BARRIER(414, 16), BARRIER(416, 2), BARRIER(416, 4), BARRIER(416, 32), BARRIER(416, 64),
    {507, SYS_mremap, 3, 4 /* DONTUNMAP */, 4, EINVAL},
    {417, SYS_mmap, 3, 0x100000 /* FIXED_NOREPLACE */, 0x100000, 0},
};

/* Parts of paths that do not exist before a version. */
static const struct file {
  int since;
  const char *part;
} files[] = {
    {317, "/proc/thread-self"}, {405, "cgroup.controllers"}, {414, "/smaps_rollup"}, {420, "/pressure/"}, {420, "memory.pressure"},
};
/* clang-format on */

static _Noreturn void give_up(int status, const char *why) {
  fprintf(stderr, "old_kernel: %s: %s\n", why, strerror(errno));
  exit(status);
}

/* ---- One call ---- */

static unsigned long long *argument_of(struct user_regs_struct *regs, int argument) {
  unsigned long long *const at[] = {&regs->rdi, &regs->rsi, &regs->rdx, &regs->r10, &regs->r8, &regs->r9};
  return at[argument];
}

static void read_path(pid_t thread, uint64_t address, char path[PATH_MOST]) {
  size_t used = 0;
  while (used < PATH_MOST - 1) {
    size_t bytes = PAGE - (address + used) % PAGE; /* the next page may be unmapped */
    if (bytes > PATH_MOST - 1 - used) bytes = PATH_MOST - 1 - used;
    struct iovec to = {path + used, bytes}, from = {(void *)(uintptr_t)(address + used), bytes};
    ssize_t got = process_vm_readv(thread, &to, 1, &from, 1, 0);
    if (got <= 0) break;
    used += (size_t)got;
    if (memchr(path, '\0', used) != NULL) return;
  }
  path[used] = '\0';
}

static bool is_missing_file(pid_t thread, const struct user_regs_struct *regs) {
  char path[PATH_MOST];
  if (regs->orig_rax == SYS_open || regs->orig_rax == SYS_stat || regs->orig_rax == SYS_access) read_path(thread, regs->rdi, path);
  else if (regs->orig_rax == SYS_openat || regs->orig_rax == SYS_newfstatat) read_path(thread, regs->rsi, path);
  else return false;
  for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
    if (kernel->number < files[i].since && strstr(path, files[i].part) != NULL) return true;
  return false;
}

/* Returns the error that the call shall fail with, or 0 if it is to be made; sets `changed` if it has changed an argument. */
static int judge(pid_t thread, struct user_regs_struct *regs, bool *changed) {
  if (regs->orig_rax >= X32) return 0;
  if (regs->orig_rax > kernel->last) return ENOSYS;
  for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
    const struct rule *rule = &rules[i];
    if (kernel->number >= rule->since || regs->orig_rax != rule->call) continue;
    unsigned long long *argument = argument_of(regs, rule->argument);
    if ((*argument & rule->mask) != rule->value) continue;
    if (rule->error != 0) return rule->error;
    *argument &= ~(unsigned long long)rule->mask;
    *changed = true;
  }
  return is_missing_file(thread, regs) ? ENOENT : 0;
}

/* By thread id: the error that the thread's current call shall return, or 0. */
static unsigned char answers[1 << 22]; /* Linux has no larger ids */

static void call_begins(pid_t thread) {
  struct user_regs_struct regs;
  bool changed = false;
  if (ptrace(PTRACE_GETREGS, thread, 0, &regs) != 0) return; /* the thread was killed meanwhile */
  int error = judge(thread, &regs, &changed);
  if (error != 0) {
    regs.orig_rax = UINT64_MAX; /* no call is made */
    answers[thread] = (unsigned char)error;
  }
  if (error != 0 || changed) (void)ptrace(PTRACE_SETREGS, thread, 0, &regs);
}

/* Sets the result of a call that was not made; a filter of the program may have given it another. */
static void call_ends(pid_t thread) {
  struct user_regs_struct regs;
  if (answers[thread] == 0 || ptrace(PTRACE_GETREGS, thread, 0, &regs) != 0) return;
  regs.rax = (unsigned long long)-(long long)answers[thread];
  answers[thread] = 0;
  (void)ptrace(PTRACE_SETREGS, thread, 0, &regs);
}

/* ---- All threads ---- */

static void stopped(pid_t thread, int status) {
  int signal = WSTOPSIG(status), event = status >> 16;
  if (event == PTRACE_EVENT_STOP && signal != SIGTRAP) { /* a stop signal: the thread stays stopped */
    (void)ptrace(PTRACE_LISTEN, thread, 0, 0);
    return;
  }
  if (signal == (SIGTRAP | 0x80)) {
    struct __ptrace_syscall_info info;
    if (ptrace(PTRACE_GET_SYSCALL_INFO, thread, sizeof info, &info) < 0 && errno != ESRCH) give_up(CANNOT, "what the stop is");
    if (info.op == PTRACE_SYSCALL_INFO_ENTRY) call_begins(thread);
    else if (info.op == PTRACE_SYSCALL_INFO_EXIT) call_ends(thread);
    signal = 0;
  }
  (void)ptrace(PTRACE_SYSCALL, thread, 0, event != 0 ? 0 : signal);
}

static int watch(pid_t first) {
  int result = BROKEN, status;
  for (pid_t thread; (thread = waitpid(-1, &status, __WALL)) > 0 || errno == EINTR;) {
    if (thread < 0) continue;
    if (WIFSTOPPED(status)) {
      stopped(thread, status);
      continue;
    }
    answers[thread] = 0; /* it may have been killed in a call */
    if (thread == first) result = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  return result;
}

int main(int argc, char **argv) {
  for (size_t i = 0; argc > 2 && i < sizeof versions / sizeof versions[0]; i++)
    if (strcmp(versions[i].name, argv[1]) == 0) kernel = &versions[i];
  if (kernel == NULL) {
    fprintf(stderr, "usage: old_kernel VERSION PROGRAM [ARGUMENT...]\n");
    return BROKEN;
  }
  int go[2];
  if (pipe2(go, O_CLOEXEC) != 0) give_up(BROKEN, "pipe");
  pid_t first = fork();
  if (first < 0) give_up(BROKEN, "fork");
  if (first == 0) {
    char byte;
    close(go[1]);
    if (read(go[0], &byte, 1) == 1) execvp(argv[2], argv + 2);
    _exit(BROKEN);
  }
  close(go[0]);
  const long options =
      PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL;
  if (ptrace(PTRACE_SEIZE, first, 0, options) != 0 || ptrace(PTRACE_INTERRUPT, first, 0, 0) != 0) give_up(CANNOT, "tracing");
  if (write(go[1], "", 1) != 1) give_up(BROKEN, "write");
  return watch(first);
}
