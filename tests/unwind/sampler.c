/* sampler.c - preloaded: takes the stack of a program at each tick of its processor time, and checks it.
 *
 * Each process adds one line to the file SAMPLER_OUT: the program; the samples; how many reached the call of main or of the thread's
 * function; how many have the same frames as backtrace() found; how many had a frame pointer that passes all checks which need no
 * tables; and how many of these frame pointers led to a function other than the caller. */
#include "os/unwind.c"

#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <ucontext.h>
#include <unistd.h>

enum { MOST = 512 };

static struct {
  _Atomic unsigned samples, reached, same, pointers, pointers_wrong;
} sampled;

/* ---- where stacks begin ---- */

#define ROOT __attribute__((noinline, section("sampler_roots")))
extern const char __start_sampler_roots[], __stop_sampler_roots[];

static bool is_root(const void *frame) {
  return (const char *)frame >= __start_sampler_roots && (const char *)frame < __stop_sampler_roots;
}

typedef int main_t(int, char **, char **);
static main_t *program;

ROOT static int call_main(int argc, char **argv, char **environment) {
  int status = program(argc, argv, environment);
  __asm__ volatile("" ::: "memory");
  return status;
}

int __libc_start_main(main_t *main, int argc, char **argv, void (*init)(void), void (*fini)(void), void (*end)(void), void *stack);
int __libc_start_main(main_t *main, int argc, char **argv, void (*init)(void), void (*fini)(void), void (*end)(void), void *stack) {
  __typeof(&__libc_start_main) real = (__typeof(real))(uintptr_t)dlsym(RTLD_NEXT, "__libc_start_main");
  program = main;
  return real(call_main, argc, argv, init, fini, end, stack);
}

typedef struct thread {
  void *(*run)(void *);
  void *argument;
} thread_t;

ROOT static void *call_thread(void *argument) {
  thread_t thread = *(thread_t *)argument;
  free(argument);
  void *result = thread.run(thread.argument);
  __asm__ volatile("" ::: "memory");
  return result;
}

int pthread_create(pthread_t *id, const pthread_attr_t *attributes, void *(*run)(void *), void *argument) {
  __typeof(&pthread_create) real = (__typeof(real))(uintptr_t)dlsym(RTLD_NEXT, "pthread_create");
  thread_t *thread = malloc(sizeof *thread);
  if (thread == NULL) return ENOMEM;
  *thread = (thread_t){run, argument};
  return real(id, attributes, call_thread, thread);
}

/* ---- a sample ---- */

/* The frames from that of the interrupted instruction outward. */
static void **tail_from(void **frames, unsigned *depth, const void *pc) {
  unsigned at = 0;
  while (at < *depth && frames[at] != pc) at++;
  *depth -= at;
  return frames + at;
}

/* Whether the frame pointer passes the checks that need no tables; *pc is then the return address that it leads to. */
static bool pointer_leads(const ucontext_t *context, uint64_t *pc) {
  uint64_t fp = (uint64_t)context->uc_mcontext.gregs[REG_RBP], sp = (uint64_t)context->uc_mcontext.gregs[REG_RSP];
  walk_t w = {.known = BIT(CFI_SP)};
  w.reg[CFI_SP] = sp;
  if (fp % 16 != 0 || fp - sp > (1 << 23) || !read_word(&w, fp + 8, pc)) return false;
  module_t module;
  return module_find(*pc - 1, &module);
}

static void sample(int number, siginfo_t *info, void *context) {
  (void)number, (void)info;
  void *ours[MOST], *theirs[MOST], **mine = ours, **other = theirs;
  const ucontext_t *interrupted = context;
  const void *pc = (const void *)(uintptr_t)interrupted->uc_mcontext.gregs[REG_RIP];
  bool whole, root = false;
  uint64_t led;
  int saved = errno;
  unsigned depth = unwind_here(ours, MOST, &whole, NULL), their_depth = (unsigned)backtrace(theirs, MOST);
  mine = tail_from(mine, &depth, pc);
  other = tail_from(other, &their_depth, pc);
  for (unsigned i = 0; i < depth; i++) root |= is_root(mine[i]);
  add_relaxed(&sampled.samples, 1);
  add_relaxed(&sampled.reached, root || whole);
  add_relaxed(&sampled.same, depth == their_depth && memcmp(mine, other, depth * sizeof *mine) == 0);
  if (root && depth > 1 && pointer_leads(interrupted, &led)) {
    add_relaxed(&sampled.pointers, 1);
    add_relaxed(&sampled.pointers_wrong, (uint64_t)(uintptr_t)mine[1] != led);
  }
  errno = saved;
}

/* ---- the process ---- */

__attribute__((constructor)) static void start(void) {
  void *frame;
  (void)backtrace(&frame, 1);
  unwind_prepare();
  struct sigaction action = {.sa_sigaction = sample, .sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK};
  const struct itimerval often = {{0, 1000}, {0, 1000}};
  (void)sigaction(SIGPROF, &action, NULL);
  (void)setitimer(ITIMER_PROF, &often, NULL);
}

__attribute__((destructor)) static void finish(void) {
  const struct itimerval never = {{0, 0}, {0, 0}};
  const char *path = getenv("SAMPLER_OUT");
  char line[256];
  (void)setitimer(ITIMER_PROF, &never, NULL);
  if (path == NULL) return;
  int length = snprintf(line, sizeof line, "%s %u %u %u %u %u\n", program_invocation_short_name, sampled.samples, sampled.reached,
                        sampled.same, sampled.pointers, sampled.pointers_wrong);
  int file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (file < 0 || write(file, line, (size_t)length) != length) _exit(3);
  close(file);
}
