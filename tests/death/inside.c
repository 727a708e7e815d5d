/* inside.c - signals that interrupt the allocator inside its system calls, where it releases locks and waits.
 *
 * A filter turns each system call of the library's code into a signal.  The handler makes the call itself, and once, before
 * or after it, takes the action of the run:
 *
 *   fork, clone   forks, with libc or without it; the parent and the child both return into the allocator, go on allocating and freeing,
 *                 and exit
 *   allocate      allocates and frees, which is not promised to work: it works, or one line ends the process
 *
 * Scenes: a program by itself, with several settings, interrupted in each of its calls; two threads, one of which is stopped
 * inside each of its calls while the other is interrupted in each of its own, in either order of the two stops,
 * or with no more memory than what the stopped thread is just giving back;
 * and the end of the thread that gives memory back, for which a program waits before it changes its user.
 *
 *   inside [-a] [filter]                  run the scenes and actions whose names contain `filter`; with -a all pairs of calls, not some,
 *                                         and every action in each call of the secure library, not one
 *   inside -x SCENE ACTION FIRST SECOND   one run in this process, for a debugger
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <hakmem/hakmem.h>

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include "check.h"
#include "filter.h"

/* A process ends with one of these statuses, or by a signal. */
enum {
  ENDS_WELL,
  ENDS_WRONG = 2,
  FIRST_MAKES_LESS, /* fewer calls than the one to stop in */
  SECOND_MAKES_LESS,
  ENDS_WAITING, /* well, but each later stop would only have waited once more */
  CHILD_ENDS_WELL
};
#ifdef EXPECT_SECURE
enum { EVERY_ACTION = 0, PAIRS_STEP = 9 }; /* the secure library makes three times as many calls */
#else
enum { EVERY_ACTION = 1, PAIRS_STEP = 3 };
#endif
enum { BLOCKS = 400, IDLE_BYTES = 32 << 20, LIMIT_SECONDS = 60, WAITS_MOST = 3, FAILURES_MOST = 3 };
/* If musl's fork is bypassed, nothing repairs musl's own locks and list of threads. */
#ifdef __GLIBC__
enum { CAN_CLONE = 1 };
#else
enum { CAN_CLONE = 0 };
#endif
static const char line_of_a_caller[] = "hakmem: a signal handler called the allocator, which its thread was inside of\n";

extern char **environ;

static _Noreturn void wrong(const char *what) {
  char line[200];
  int length = snprintf(line, sizeof line, "inside: %s (errno %d)\n", what, errno);
  (void)!write(2, line, (size_t)length);
  _exit(ENDS_WRONG);
}

/* ---- Blocks with a recognisable content ---- */

typedef struct block {
  unsigned char *start;
  size_t size;
} block_t;

static unsigned char mark_of(const block_t *block) { return (unsigned char)((uintptr_t)block->start >> 4 ^ block->size); }

static block_t take(size_t size) {
  block_t block = {hak_malloc(size), size};
  if (block.start == NULL) wrong("out of memory");
  if (size > 0) block.start[0] = block.start[size / 2] = block.start[size - 1] = mark_of(&block);
  return block;
}

static void look(const block_t *block) {
  if (block->size == 0) return;
  unsigned char mark = mark_of(block);
  const unsigned char *start = block->start;
  if (start[0] != mark || start[block->size / 2] != mark || start[block->size - 1] != mark) wrong("a block's content is lost");
}

static void give(block_t *block) {
  if (block->start == NULL) return;
  look(block);
  hak_free(block->start);
  block->start = NULL;
}

static size_t count_of(size_t size) { return size <= 1000 ? BLOCKS : size <= 10000 ? 40 : 8; }

/* ---- The signal ---- */

typedef enum action { ACTION_FORK, ACTION_CLONE, ACTION_ALLOCATE, ACTIONS } action_t;
static const char *const action_names[] = {"fork", "clone", "allocate"};

/* Whose calls are counted, and in which call each thread is stopped.  The first thread is the one that acts. */
typedef enum role { FIRST, SECOND, NOBODY } role_t;
static __thread role_t role = NOBODY;
static __thread bool inside;
static struct {
  unsigned calls, stop; /* the call to stop in, 0 for none */
  unsigned waits;       /* waiting calls up to that one, with at most one other call between two of them */
  bool waited;          /* the last call was a waiting one */
} stops[2];
static action_t action;
static bool after; /* act after the call, not before it */

static pid_t child;
static bool is_child;
static atomic_bool second_stopped, second_may_go_on, second_may_begin, second_ended;
static bool second_begins_inside; /* when the first thread is stopped */
static block_t spare;

static void begin_second(void) {
  atomic_store(&second_may_begin, true);
  while (!atomic_load(&second_stopped) && !atomic_load(&second_ended)) usleep(50);
}

static void act_fork(void) {
  child = action == ACTION_FORK ? fork() : (pid_t)filter_past_libc(SYS_clone, SIGCHLD, 0, 0, 0, 0, 0);
  if (child < 0) wrong("no child");
  if (child == 0) {
    is_child = true;
    alarm(LIMIT_SECONDS);
  }
}

static void act_allocate(void) {
  static const size_t sizes[] = {16, 100, 1000, 4000, 20000, 300000};
  block_t blocks[sizeof sizes / sizeof sizes[0]];
  give(&spare);
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) blocks[i] = take(sizes[i]);
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) give(&blocks[i]);
}

static void act(void) {
  if (role == SECOND) {
    atomic_store(&second_stopped, true);
    while (!atomic_load(&second_may_go_on)) usleep(50);
    return;
  }
  if (second_begins_inside) begin_second();
  if (action == ACTION_ALLOCATE) act_allocate();
  else act_fork();
  if (!is_child) atomic_store(&second_may_go_on, true);
}

/* Whether this is the call to stop in. */
static bool count_call(int number) {
  if (role == NOBODY || inside) return false;
  if (is_child || ++stops[role].calls > stops[role].stop) return false;
  bool waits = number == SYS_futex;
  stops[role].waits = waits ? stops[role].waits + 1 : stops[role].waited ? stops[role].waits : 0;
  stops[role].waited = waits;
  return stops[role].calls == stops[role].stop;
}

static void called(int signal_number, siginfo_t *info, void *context) {
  int saved = errno;
  ucontext_t *place = context;
#if defined(__x86_64__)
  greg_t *r = place->uc_mcontext.gregs;
  long a[] = {(long)r[REG_RDI], (long)r[REG_RSI], (long)r[REG_RDX], (long)r[REG_R10], (long)r[REG_R8], (long)r[REG_R9]};
#else
  unsigned long long *r = place->uc_mcontext.regs;
  long a[] = {(long)r[0], (long)r[1], (long)r[2], (long)r[3], (long)r[4], (long)r[5]};
#endif
  (void)signal_number;
  bool stop = count_call(info->si_syscall);
  bool outermost = !inside;
  inside = true;
  if (stop && !after) act();
  long result = filter_past_libc(info->si_syscall, a[0], a[1], a[2], a[3], a[4], a[5]);
  if (stop && after) act();
  if (outermost) inside = false;
#if defined(__x86_64__)
  r[REG_RAX] = result;
#else
  r[0] = (unsigned long long)result;
#endif
  errno = saved;
}

/* Interrupts the calls of the calling thread, and of the threads that it starts. */
static void interrupt_calls(void) {
  static filter_t filter;
  struct sigaction handled = {.sa_sigaction = called, .sa_flags = SA_SIGINFO | SA_NODEFER};
  if (sigaction(SIGSYS, &handled, NULL) != 0) wrong("sigaction");
  const char *fault = filter_unless_ours(&filter, FILTER_ALLOWED);
  if (fault != NULL) wrong(fault);
  filter_answer(&filter, FILTER_TRAPPED);
  fault = filter_install(&filter, true);
  if (fault != NULL) wrong(fault);
}

/* ---- What the program does ---- */

static void use_small(void) {
  static const size_t sizes[] = {0, 16, 100, 1000, 4000, 9000, 20000, 32000};
  static __thread block_t blocks[BLOCKS];
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
    size_t count = count_of(sizes[i]);
    for (size_t j = 0; j < count; j++) blocks[j] = take(sizes[i]);
    for (size_t j = 0; j < count; j += 2) give(&blocks[j]);
    for (size_t j = 0; j < count; j++) give(&blocks[j]);
  }
}

static void use_large(void) {
  block_t blocks[] = {take(40000), take(300000), take((size_t)3 << 20)};
  for (size_t i = 0; i < 3; i++) {
    look(&blocks[i]);
    unsigned char *grown = hak_realloc(blocks[i].start, blocks[i].size * 3);
    if (grown == NULL) wrong("out of memory");
    blocks[i].size *= 3;
    blocks[i].start = grown;
    grown[0] = grown[blocks[i].size / 2] = grown[blocks[i].size - 1] = mark_of(&blocks[i]);
  }
  for (size_t i = 0; i < 3; i++) give(&blocks[i]);
  unsigned char *zero = hak_calloc(1, 300000);
  if (zero == NULL || zero[0] != 0 || zero[150000] != 0 || zero[299999] != 0) wrong("calloc");
  hak_free(zero);
}

static void holes_make(block_t *blocks) {
  for (size_t i = 0; i < BLOCKS; i++) blocks[i] = take(1000);
  for (size_t i = 0; i < BLOCKS; i++) {
    if (i % 50 != 0) give(&blocks[i]);
  }
}

static void holes_end(block_t *blocks) {
  for (size_t i = 0; i < BLOCKS; i++) give(&blocks[i]);
}

static void use_holes(void) {
  static __thread block_t blocks[BLOCKS];
  holes_make(blocks);
  (void)hak_collect(true);
  for (size_t i = 0; i < BLOCKS; i++) {
    if (blocks[i].start == NULL) blocks[i] = take(1000);
  }
  holes_end(blocks);
}

/* For a child, wherever it was forked. */
static _Noreturn void end_child(void) {
  use_small();
  use_large();
  use_holes();
  exit(CHILD_ENDS_WELL);
}

/* Runs after a thread's heap was given back: the keys of libraries come before ours. */
static void end_thread(void *unused) {
  (void)unused;
  if (is_child) end_child();
}

static pthread_key_t thread_key;
static block_t from_thread[BLOCKS], for_thread[BLOCKS];

static void *in_thread(void *unused) {
  if (pthread_setspecific(thread_key, &thread_key) != 0) wrong("no key");
  role = FIRST;
  use_small();
  for (size_t i = 0; i < BLOCKS; i++) give(&for_thread[i]);
  for (size_t i = 0; i < BLOCKS; i++) from_thread[i] = take(i % 2 != 0 ? 1000 : 200);
  use_holes();
  return unused;
}

static void use_thread(void) {
  pthread_t thread;
  for (size_t i = 0; i < BLOCKS; i++) for_thread[i] = take(i % 2 != 0 ? 300 : 2000);
  if (pthread_create(&thread, NULL, in_thread, NULL) != 0 || pthread_join(thread, NULL) != 0) wrong("no thread");
  for (size_t i = 0; i < BLOCKS; i++) give(&from_thread[i]);
  (void)hak_collect(false);
}

/* ---- Scenes: each returns the outcome of the first thread's run ---- */

static int ended(void) {
  bool first_less = stops[FIRST].calls < stops[FIRST].stop, second_less = atomic_load(&second_ended) && !atomic_load(&second_stopped);
  if (second_less && !second_begins_inside) return SECOND_MAKES_LESS;
  if (first_less) return FIRST_MAKES_LESS;
  if (second_less) return SECOND_MAKES_LESS;
  return stops[second_begins_inside ? SECOND : FIRST].waits >= WAITS_MOST ? ENDS_WAITING : ENDS_WELL;
}

static int alone(void) {
  spare = take(100);
  interrupt_calls();
  role = FIRST;
  use_small();
  use_large();
  use_holes();
  use_thread();
  role = NOBODY;
  return ended();
}

/* Blocks of each thread with holes among them, for the other thread to find; and full slabs of each, for the other to free. */
static block_t sparse[2][BLOCKS], handed[2][BLOCKS];

static void prepare(role_t mine) {
  holes_make(sparse[mine]);
  for (size_t i = 0; i < BLOCKS; i++) handed[mine][i] = take(4000);
}

static void use_beside(role_t mine) {
  static block_t large[2][BLOCKS];
  block_t *blocks = large[mine];
  size_t count = mine == FIRST ? 60 : 160; /* more than the first has left free: both threads grow the region, under their locks */
  role = mine;
  for (size_t i = 0; i < BLOCKS; i++) give(&handed[mine == FIRST][i]);
  for (size_t i = 0; i < count; i++) blocks[i] = take(32000);
  for (size_t i = 0; i < count; i++) give(&blocks[i]);
  (void)hak_collect(true);
  blocks[0] = take((size_t)3 << 20);
  give(&blocks[0]);
  role = NOBODY;
}

static void *second(void *prepared) {
  prepare(SECOND);
  atomic_store((atomic_bool *)prepared, true);
  while (!atomic_load(&second_may_begin)) usleep(50);
  use_beside(SECOND);
  atomic_store(&second_ended, true);
  return NULL;
}

static int beside(void) {
  static atomic_bool prepared;
  pthread_t thread;
  prepare(FIRST);
  interrupt_calls();
  if (pthread_create(&thread, NULL, second, &prepared) != 0) wrong("no thread");
  while (!atomic_load(&prepared)) usleep(50);
  if (!second_begins_inside) begin_second();
  use_beside(FIRST);
  holes_end(sparse[FIRST]);
  if (is_child) return ENDS_WELL;
  int status = ended();
  atomic_store(&second_may_begin, true);
  atomic_store(&second_may_go_on, true);
  if (pthread_join(thread, NULL) != 0) wrong("no join");
  holes_end(sparse[SECOND]);
  return status;
}

static int stopped_inside(void) {
  second_begins_inside = true;
  return beside();
}

/* The second thread is stopped while it gives the only free memory back; the first waits for it, since there may be no more. */
static void *give_back(void *unused) {
  while (!atomic_load(&second_may_begin)) usleep(50);
  role = SECOND;
  (void)hak_collect(true);
  role = NOBODY;
  atomic_store(&second_ended, true);
  return unused;
}

static __attribute__((unused)) int out_of_memory(void) {
  struct rlimit none = {0, RLIM_INFINITY}, all = {RLIM_INFINITY, RLIM_INFINITY};
  pthread_t thread;
  block_t block = take(IDLE_BYTES);
  memset(block.start, mark_of(&block), block.size);
  give(&block);
  interrupt_calls();
  if (pthread_create(&thread, NULL, give_back, NULL) != 0 || setrlimit(RLIMIT_AS, &none) != 0) wrong("no thread, or no limit");
  begin_second();
  role = FIRST;
  void *waited_for = hak_malloc(IDLE_BYTES / 2);
  role = NOBODY;
  if (waited_for == NULL && !is_child) wrong("out of memory");
  hak_free(waited_for);
  if (setrlimit(RLIMIT_AS, &all) != 0) wrong("the limit stays");
  if (is_child) return ENDS_WELL;
  int status = ended();
  atomic_store(&second_may_go_on, true);
  if (pthread_join(thread, NULL) != 0) wrong("no join");
  return status;
}

/* A call that changes the user waits for the thread that gives memory back to end. */
static int keeper(void) {
  hak_stats_t stats = {.struct_size = sizeof stats};
  for (int i = 0; i < 100 && stats.keeper_starts == 0; i++) {
    block_t block = take(IDLE_BYTES);
    memset(block.start, mark_of(&block), block.size);
    give(&block);
    if (!hak_stats_get(&stats)) wrong("no statistics");
  }
  if (stats.keeper_starts == 0) wrong("no thread gives memory back");
  interrupt_calls();
  role = FIRST;
  if (setuid(getuid()) != 0) wrong("setuid");
  role = NOBODY;
  return ended();
}

typedef struct scene {
  const char *name;
  int (*run)(void);
  const char *option, *value;
  unsigned actions; /* the number of actions, from the first */
  bool two;         /* two threads: run with all pairs of stops */
} scene_t;

static const scene_t scenes[] = {
    {"alone", alone, "HAKMEM_KEEPER", "0", ACTIONS, false},
    {"at_once", alone, "HAKMEM_DECAY_MS", "0", ACTIONS, false},
    {"watched", alone, "HAKMEM_GUARD", "1", ACTIONS, false},
    {"stopped_before", beside, "HAKMEM_KEEPER", "0", 1, true},
    {"stopped_inside", stopped_inside, "HAKMEM_KEEPER", "0", 1, true},
#ifndef EXPECT_SECURE /* the secure library keeps large blocks back */
    {"out_of_memory", out_of_memory, "HAKMEM_KEEPER", "0", 1, true},
#endif
    {"keeper", keeper, "HAKMEM_KEEPER", "1", ACTION_ALLOCATE, false},
};

static int run_here(char **argv) {
  const scene_t *scene = scenes;
  while (scene < scenes + sizeof scenes / sizeof scenes[0] && strcmp(scene->name, argv[2]) != 0) scene++;
  while (action < ACTIONS && strcmp(action_names[action], argv[3]) != 0) action++;
  if (scene == scenes + sizeof scenes / sizeof scenes[0] || action == ACTIONS) return ENDS_WRONG;
  stops[FIRST].stop = (unsigned)atoi(argv[4]);
  stops[SECOND].stop = (unsigned)atoi(argv[5]);
  after = (stops[FIRST].stop + stops[SECOND].stop) % 2 != 0;
  if (!scene->two) after = stops[SECOND].stop != 0;
  if (pthread_key_create(&thread_key, end_thread) != 0) return ENDS_WRONG;
  int status = scene->run();
  if (is_child) end_child();
  use_small();
  use_large();
  int child_status = CHILD_ENDS_WELL << 8;
  while (child > 0 && waitpid(child, &child_status, 0) < 0 && errno == EINTR) continue;
  if (WIFSIGNALED(child_status) && WTERMSIG(child_status) == SIGALRM) wrong("the child hangs");
  if (child_status != CHILD_ENDS_WELL << 8) wrong("the child does not end well");
  return status;
}

/* ---- Every run ---- */

static struct {
  unsigned runs, lines, failed;
} found;

/* Returns how the run ended; ENDS_WRONG if that is a failure. */
static int run_one(const scene_t *scene, action_t how, unsigned first, unsigned second_stop) {
  char at[2][16], errors[4096];
  snprintf(at[0], sizeof at[0], "%u", first);
  snprintf(at[1], sizeof at[1], "%u", second_stop);
  char *argv[] = {(char *)(uintptr_t)check_self(),
                  (char *)(uintptr_t)"-x",
                  (char *)(uintptr_t)scene->name,
                  (char *)(uintptr_t)action_names[how],
                  at[0],
                  at[1],
                  NULL};
  int status = check_spawn(argv, environ, LIMIT_SECONDS, errors, NULL, sizeof errors);
  found.runs++;
  bool by_line = how == ACTION_ALLOCATE && WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT && strcmp(errors, line_of_a_caller) == 0;
  if (by_line) {
    found.lines++;
    return ENDS_WELL;
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) != ENDS_WRONG && WEXITSTATUS(status) < CHILD_ENDS_WELL && errors[0] == '\0')
    return WEXITSTATUS(status);
  bool hangs = WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM;
  printf("FAILED: %s %s %u %u: %s%#x: %s\n", scene->name, action_names[how], first, second_stop, hangs ? "hangs, " : "", (unsigned)status,
         errors);
  found.failed++;
  return ENDS_WRONG;
}

static bool every_action = EVERY_ACTION;
static unsigned pairs_step = PAIRS_STEP;

/* The calls of one thread, before and after each: all of them, or those that belong to this action. */
static void run_calls(const scene_t *scene, action_t how) {
  unsigned step = every_action ? 1 : scene->actions;
  for (unsigned n = 1 + (unsigned)how % step; found.failed < FAILURES_MOST; n += step) {
    int status = run_one(scene, how, n, 0);
    if (status == FIRST_MAKES_LESS) break;
    (void)run_one(scene, how, n, 1);
  }
}

/* Pairs of calls, pairs_step apart; the stop that comes first in time changes more slowly. */
static void run_pairs(const scene_t *scene) {
  bool inside_first = scene->run == stopped_inside;
  int slow_ends = inside_first ? FIRST_MAKES_LESS : SECOND_MAKES_LESS, fast_ends = inside_first ? SECOND_MAKES_LESS : FIRST_MAKES_LESS;
  for (unsigned slow = 1; found.failed < FAILURES_MOST; slow += pairs_step) {
    for (unsigned fast = 1 + slow % pairs_step; found.failed < FAILURES_MOST; fast += pairs_step) {
      unsigned first = inside_first ? slow : fast, second_stop = inside_first ? fast : slow;
      int status = run_one(scene, !CAN_CLONE || (slow + fast) / 2 % 2 == 0 ? ACTION_FORK : ACTION_CLONE, first, second_stop);
      if (status == slow_ends) return;
      if (status == fast_ends || status == ENDS_WAITING) break;
    }
  }
}

static int run_scene(const scene_t *scene, action_t how) {
  memset(&found, 0, sizeof found);
  setenv(scene->option, scene->value, 1);
  if (scene->two) run_pairs(scene);
  else run_calls(scene, how);
  unsetenv(scene->option);
  printf("%s: %s %s: %u runs", found.failed == 0 ? "good" : "FAILED", scene->name, scene->two ? "fork" : action_names[how], found.runs);
  if (how == ACTION_ALLOCATE) printf(", %u ended by the line", found.lines);
  printf("\n");
  return found.failed != 0 || found.runs < 3;
}

int main(int argc, char **argv) {
  if (argc == 6 && strcmp(argv[1], "-x") == 0) return run_here(argv);
  int failed = 0;
  if (argc > 1 && strcmp(argv[1], "-a") == 0) every_action = true, pairs_step = 1, argc--, argv++;
  setvbuf(stdout, NULL, _IOLBF, 0);
  setenv("HAKMEM_GUARD_EVERY", "300", 1);
  for (size_t i = 0; i < sizeof scenes / sizeof scenes[0]; i++) {
    for (action_t how = 0; how < (action_t)scenes[i].actions; how++) {
      char name[64];
      if (how == ACTION_CLONE && !CAN_CLONE) continue;
      snprintf(name, sizeof name, "%s %s", scenes[i].name, action_names[how]);
      if (argc < 2 || strstr(name, argv[1]) != NULL) failed += run_scene(&scenes[i], how);
    }
  }
  return failed != 0;
}
