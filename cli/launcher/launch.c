/* launch - run one command and report what it cost.
 *
 *   hakmem_launch FD [NAME=VALUE]... -- COMMAND [ARGUMENT]...
 *
 * Runs COMMAND with the variables added to its environment, waits, writes one
 * line of JSON to the descriptor FD, and exits as COMMAND did.
 *
 * The kernel counts the memory of whoever calls exec into the peak resident set
 * of the new program.  This program is small so that the figure is COMMAND's own,
 * and not that of a Python interpreter.
 *
 * Signals sent to this process reach COMMAND; those a terminal sends reach it anyway.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { EXIT_USAGE = 2, EXIT_NOT_EXECUTABLE = 126, EXIT_NOT_FOUND = 127 };

extern char **environ;

/* Not forwarded: what can't be caught, faults of this process's own, and what its writes, its child and a terminal in the background bring;
 * cli/hakmem/forwarding.py has the same.  This process does not stop with COMMAND: whoever waits for it does.
 */
static const int kept[] = {SIGKILL, SIGSTOP, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGPIPE, SIGXFSZ, SIGCHLD, SIGTTIN, SIGTTOU};
static const size_t kept_count = sizeof(kept) / sizeof(kept[0]);

/* Set before the signals are unblocked, and never again. */
static volatile pid_t child;

static void forward(int signal, siginfo_t *info, void *context) {
  (void)context;
  if (info->si_code != SI_KERNEL) kill(child, signal);
}

static bool is_kept(int signal) {
  for (size_t i = 0; i < kept_count; i++) {
    if (kept[i] == signal) return true;
  }
  return false;
}

static void forward_signals(void) {
  struct sigaction action = {.sa_sigaction = forward, .sa_flags = SA_SIGINFO | SA_RESTART};
  sigemptyset(&action.sa_mask);
  for (int signal = 1; signal <= SIGRTMAX; signal++) {
    struct sigaction old;
    /* Those that libc keeps for itself it does not tell of. */
    if (!is_kept(signal) && sigaction(signal, NULL, &old) == 0 && old.sa_handler != SIG_IGN) sigaction(signal, &action, NULL);
  }
}

static long long elapsed_ns(struct timespec from, struct timespec to) {
  return (to.tv_sec - from.tv_sec) * 1000000000LL + (to.tv_nsec - from.tv_nsec);
}

static long long time_us(struct timeval time) { return time.tv_sec * 1000000LL + time.tv_usec; }

static bool report(int fd, int status, long long wall_ns, const struct rusage *usage) {
  bool signalled = WIFSIGNALED(status);
  return dprintf(fd,
                 "{\"%s\": %d, \"wall_ns\": %lld, \"user_us\": %lld, \"system_us\": %lld, "
                 "\"peak_rss_kib\": %ld, \"minor_faults\": %ld, \"major_faults\": %ld}\n",
                 signalled ? "signal" : "exit", signalled ? WTERMSIG(status) : WEXITSTATUS(status), wall_ns, time_us(usage->ru_utime),
                 time_us(usage->ru_stime), usage->ru_maxrss, usage->ru_minflt, usage->ru_majflt) > 0;
}

/* The command starts with the signal mask this process was given.  Returns 0 or an errno. */
static int spawn(char **command) {
  sigset_t all, inherited;
  posix_spawnattr_t attributes;
  pid_t pid = 0;
  int error = posix_spawnattr_init(&attributes);
  if (error) return error;
  sigfillset(&all);
  sigprocmask(SIG_BLOCK, &all, &inherited);
  posix_spawnattr_setsigmask(&attributes, &inherited);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  error = posix_spawnp(&pid, command[0], NULL, &attributes, command, environ);
  posix_spawnattr_destroy(&attributes);
  if (!error) {
    child = pid;
    forward_signals();
  }
  sigprocmask(SIG_SETMASK, &inherited, NULL);
  return error;
}

static int usage_error(void) {
  fputs("usage: hakmem_launch FD [NAME=VALUE]... -- COMMAND [ARGUMENT]...\n", stderr);
  return EXIT_USAGE;
}

int main(int argc, char **argv) {
  int next = 2;
  while (next < argc && strcmp(argv[next], "--") != 0) {
    if (!strchr(argv[next], '=') || putenv(argv[next]) != 0) return usage_error();
    next++;
  }
  if (next + 1 >= argc) return usage_error();
  char **command = argv + next + 1;
  signal(SIGCHLD, SIG_DFL); /* ignored, as a caller may have it, the kernel would keep no status of the program */
  int fd = atoi(argv[1]);
  if (fcntl(fd, F_SETFD, FD_CLOEXEC) != 0) return usage_error();

  struct timespec start, end;
  struct rusage usage;
  int status;
  clock_gettime(CLOCK_MONOTONIC, &start);
  int error = spawn(command);
  if (error) {
    dprintf(fd, "{\"error\": %d}\n", error);
    return error == ENOENT ? EXIT_NOT_FOUND : EXIT_NOT_EXECUTABLE;
  }
  while (wait4(child, &status, 0, &usage) < 0) {
    if (errno != EINTR) return EXIT_FAILURE;
  }
  clock_gettime(CLOCK_MONOTONIC, &end);
  if (!report(fd, status, elapsed_ns(start, end), &usage)) return EXIT_FAILURE;
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}
