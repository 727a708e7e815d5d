/* refuse.c - puts the program that it is preloaded into under a system call filter, after hakmem has started and before main.
 *
 *   REFUSE=WHOM:HOW:CALLS
 *     WHOM   ours  refuses CALLS that libhakmem's code makes, and the clone that it has libc make, but none of the program's own
 *            list  permits only CALLS, to all code; HOW is applied to the other calls; openat and stat fail with EACCES, as in
 *                  OpenSSH's sandbox
 *     HOW    kill, trap (a handler then makes the call return ENOSYS), or an error's name
 *     CALLS  names from the table below, separated by commas; `usual` stands for what a filter for a program on glibc's malloc permits
 *   REFUSE_PAST_LIBC=1   makes the system call by an instruction of its own, which no library sees, instead of calling prctl
 *   REFUSE_ARGUMENT=A    only in a process that has A among its arguments
 *
 * Preload it before libhakmem: the library preloaded first starts last.  An error ends the process with status 99. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include "filter.h"

enum { OURS_CLONE_FLAGS = 0x3d0f00 };

static const struct {
  const char *name;
  int number;
} table[] = {
#define CALL(name) {#name, SYS_##name}
    CALL(brk),      CALL(mmap),      CALL(munmap),     CALL(mprotect),        CALL(mremap),      CALL(madvise),
    CALL(futex),    CALL(getrandom), CALL(mincore),    CALL(openat),          CALL(read),        CALL(close),
    CALL(clone),    CALL(clone3),    CALL(nanosleep),  CALL(clock_nanosleep), CALL(sched_yield), CALL(rt_sigprocmask),
    CALL(tgkill),   CALL(waitid),    CALL(getpid),     CALL(gettid),          CALL(getppid),     CALL(prctl),
    CALL(capget),   CALL(capset),    CALL(prlimit64),  CALL(clock_gettime),   CALL(seccomp),     CALL(rt_sigaction),
    CALL(write),    CALL(exit),      CALL(exit_group), CALL(gettimeofday),    CALL(ppoll),       CALL(pselect6),
    CALL(shutdown), CALL(sysinfo),   CALL(setitimer),  CALL(rt_sigreturn),    CALL(getrusage),   CALL(set_robust_list),
    CALL(fcntl),    CALL(pread64),   CALL(pwrite64),   CALL(rt_sigpending),   CALL(kill),        CALL(rt_sigtimedwait),
#ifdef SYS_rseq
    CALL(rseq),
#endif
#if defined(__x86_64__)
    CALL(poll),     CALL(select),    CALL(alarm),
#endif
};

/* The calls that OpenSSH's sandbox permits, by its manual and public descriptions, and those that end a process and set timers. */
static const char usual[] =
    "read,write,close,exit,exit_group,brk,mmap,munmap,mprotect,mremap,madvise,futex,clock_gettime,gettimeofday,"
    "getpid,getrandom,rt_sigprocmask,poll,ppoll,select,pselect6,shutdown,clock_nanosleep,nanosleep,rt_sigreturn,"
    "tgkill,gettid,alarm,setitimer";

static _Noreturn void give_up(const char *why) {
  (void)!write(2, "refuse: ", 8);
  (void)!write(2, why, strlen(why));
  (void)!write(2, "\n", 1);
  _exit(99);
}

/* ---- The filter ---- */

static filter_t filter;

static uint32_t answer_named(const char *how, size_t length) {
  static const struct {
    const char *name;
    uint32_t value;
  } answers[] = {{"kill", FILTER_KILLED},
                 {"trap", FILTER_TRAPPED},
                 {"EPERM", FILTER_ERRNO(EPERM)},
                 {"ENOSYS", FILTER_ERRNO(ENOSYS)},
                 {"EACCES", FILTER_ERRNO(EACCES)}};
  for (size_t i = 0; i < sizeof answers / sizeof answers[0]; i++)
    if (strlen(answers[i].name) == length && memcmp(answers[i].name, how, length) == 0) return answers[i].value;
  give_up("HOW is not known");
}

static int number_named(const char *name, size_t length) {
  for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
    if (strlen(table[i].name) == length && memcmp(table[i].name, name, length) == 0) return table[i].number;
  return -1;
}

/* Calls `each` with the number of every call in the list. */
static void each_call(const char *list, void (*each)(int number, uint32_t then), uint32_t then) {
  for (const char *name = list; *name != '\0';) {
    size_t length = strcspn(name, ",");
    bool is_usual = length == 5 && memcmp(name, "usual", 5) == 0;
    if (is_usual) each_call(usual, each, then);
    int number = number_named(name, length);
    if (number < 0 && list != usual && !is_usual) give_up("a call is not in the table");
    if (number >= 0) each(number, then);
    name += length + (name[length] == ',');
  }
}

static void permit(int number, uint32_t then) {
  (void)then;
  filter_if_equal(&filter, (uint32_t)number, FILTER_ALLOWED);
}

static void build_list(const char *calls, uint32_t then) {
  filter_load(&filter, FILTER_NUMBER);
  each_call(calls, permit, then);
  filter_if_equal(&filter, SYS_openat, FILTER_ERRNO(EACCES));
  filter_if_equal(&filter, SYS_newfstatat, FILTER_ERRNO(EACCES));
#if defined(__x86_64__)
  filter_if_equal(&filter, SYS_open, FILTER_ERRNO(EACCES));
  filter_if_equal(&filter, SYS_stat, FILTER_ERRNO(EACCES));
#endif
  filter_answer(&filter, then);
}

/* The clone is made by libc, which does not make this one itself. */
static void refuse_ours(int number, uint32_t then) {
  if (number != SYS_clone) {
    filter_if_equal(&filter, (uint32_t)number, then);
    return;
  }
  filter_add(&filter, 0x15, 0, 3, SYS_clone);
  filter_load(&filter, FILTER_ARGUMENT);
  filter_if_equal(&filter, OURS_CLONE_FLAGS, then);
}

static void refuse_clone(int number, uint32_t then) {
  if (number == SYS_clone) refuse_ours(number, then);
}

static void refuse_others(int number, uint32_t then) {
  if (number != SYS_clone) refuse_ours(number, then);
}

static void build_ours(const char *calls, uint32_t then) {
  filter_load(&filter, FILTER_NUMBER);
  each_call(calls, refuse_clone, then);
  const char *fault = filter_unless_ours(&filter, FILTER_ALLOWED);
  if (fault != NULL) give_up(fault);
  each_call(calls, refuse_others, then);
  filter_answer(&filter, FILTER_ALLOWED);
}

/* ---- Installing ---- */

static void emulate(int signal, siginfo_t *info, void *context) {
  ucontext_t *place = context;
  (void)signal, (void)info;
#if defined(__x86_64__)
  place->uc_mcontext.gregs[REG_RAX] = -ENOSYS;
#else
  place->uc_mcontext.regs[0] = (unsigned long long)-ENOSYS;
#endif
}

static void install(void) {
  struct sigaction action = {.sa_sigaction = emulate, .sa_flags = SA_SIGINFO | SA_NODEFER};
  if (sigaction(SIGSYS, &action, NULL) != 0) give_up("sigaction");
  const char *fault = filter_install(&filter, getenv("REFUSE_PAST_LIBC") != NULL);
  if (fault != NULL) give_up(fault);
}

static bool is_meant(void) {
  static char arguments[4096]; /* not every libc passes them to constructors */
  const char *wanted = getenv("REFUSE_ARGUMENT");
  if (getenv("REFUSE") == NULL) return false;
  if (wanted == NULL) return true;
  int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
  ssize_t length = read(fd, arguments, sizeof arguments - 1);
  close(fd);
  for (const char *at = arguments; at < arguments + length; at += strlen(at) + 1)
    if (strcmp(at, wanted) == 0) return true;
  return false;
}

static __attribute__((constructor)) void refuse(void) {
  if (!is_meant()) return;
  const char *whom = getenv("REFUSE"), *how = strchr(whom, ':');
  const char *calls = how != NULL ? strchr(how + 1, ':') : NULL;
  if (calls == NULL) give_up("REFUSE=WHOM:HOW:CALLS");
  uint32_t then = answer_named(how + 1, (size_t)(calls - how - 1));
  if (memcmp(whom, "ours:", 5) == 0) build_ours(calls + 1, then);
  else if (memcmp(whom, "list:", 5) == 0) build_list(calls + 1, then);
  else give_up("WHOM is not known");
  install();
}
