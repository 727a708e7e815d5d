/* fork.c - processes that fork while other threads allocate at full rate.
 *
 * - load: 4, 16 and 64 threads allocate; others fork.  The child allocates,
 *   frees the blocks it inherited (content checked), starts a thread that
 *   allocates (half of the children do this first), sometimes forks again, and leaves by exit with an atexit
 *   handler that allocates, or by _exit
 * - stdio: threads inside getline, fopen, fprintf and fflush(NULL), which
 *   allocate while they hold stdio's locks; others fork, and the child uses stdio.
 *   An allocator that takes its locks before fork takes stdio's hangs here
 * - handler: a timer's handler forks wherever it interrupts the program, mostly
 *   inside malloc; the child returns into the interrupted call, goes on
 *   allocating, starts threads and ends.  With one thread, and on hakmem with several (glibc's
 *   fork would wait for the lock that the interrupted malloc holds)
 * - grow: threads allocate what makes the heap grow, and free none of it; the child needs more than its parent had
 * - spawn: vfork, posix_spawn, and clone(CLONE_VM | CLONE_VFORK) whose child allocates
 *
 * A child that does not end within --hang=60 seconds is a hang: it aborts with
 * its process id, or with --keep=1 waits for a debugger.  The parent has a time limit too.
 *
 * Arguments: --scene=all, --forks=10000 (load; 85, 13 and 2 % of them at 4, 16
 * and 64 threads), --grow=500, --stdio=2000, --handler=1000, --noise=3 (threads
 * beside it), --spawn=1000, --threads=0 (4, 16, 64; or one number), --hang=60, --keep, --seed.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "harness.h"
#include "letter.h"

enum {
  SHELVES = 512,
  THREADS_MAX = 256,
  FORKERS = 8,
  CHILD_BLOCKS = 64,
  LINE_LENGTH = 600,
  TIMER_NS = 300000,
  LOADER_NICE = 10,
  HANDLER_STEPS = 200,
  STACK_SIZE = 64 * 1024,
  GROW_LEAST = 64 * 1024,
  GROW_SPREAD = 1024 * 1024,
  GROW_STEPS = 8,
  GROW_CHILD = 100,
};

static _Atomic(letter_t *) shelves[SHELVES];
static atomic_bool stopping;
static atomic_int_fast64_t forks_left;
static atomic_uint_fast64_t forks_done;
static unsigned hang_seconds;
static const char *running; /* the scene */

/* A fork is done: the time limit starts again. */
static void fork_count(void) {
  atomic_fetch_add(&forks_done, 1);
  stress_watch(2 * hang_seconds, running);
}

/* ---- The load ---- */

static size_t size_pick(rng_t *rng) { return sizeof(letter_t) + rng_size(rng, rng_one_in(rng, 256) ? 20 : 13); }

static void load_step(rng_t *rng) {
  size_t size = size_pick(rng);
  letter_t *letter = rng_one_in(rng, 4) ? calloc(1, size) : malloc(size);
  letter_write(letter, size, size);
  if (rng_one_in(rng, 4)) {
    size = size_pick(rng);
    letter = letter_write(realloc(letter, size), size, size);
  }
  letter_free(atomic_exchange(&shelves[rng_below(rng, SHELVES)], letter));
}

/* Never idle, but at low priority: otherwise 64 threads would leave a child a hundredth of the machine. */
static void *load_run(void *argument) {
  rng_t rng = rng_make((uint64_t)(uintptr_t)argument);
  setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), LOADER_NICE);
  while (!atomic_load_explicit(&stopping, memory_order_relaxed)) load_step(&rng);
  return NULL;
}

static void thread_start(pthread_t *handle, void *(*run)(void *), uintptr_t number) {
  /* The number is passed as a pointer: no thread's argument may need an allocation. */
  if (pthread_create(handle, NULL, run, (void *)number) != 0) stress_fail("no thread");
}

static void threads_start(pthread_t *handles, unsigned count, void *(*run)(void *), uintptr_t first) {
  for (unsigned i = 0; i < count; i++) thread_start(&handles[i], run, first + i);
}

static void threads_join(pthread_t *handles, unsigned count) {
  for (unsigned i = 0; i < count; i++) pthread_join(handles[i], NULL);
}

/* ---- The child ---- */

static void *child_thread(void *argument) {
  rng_t rng = rng_make((uint64_t)(uintptr_t)argument);
  for (unsigned i = 0; i < 4 * CHILD_BLOCKS; i++) load_step(&rng);
  return NULL;
}

static void at_exit(void) {
  letter_free(letter_write(malloc(200), 200, 7));
  for (unsigned i = 0; i < SHELVES / 8; i++) letter_free(atomic_exchange(&shelves[i], NULL));
}

static void child_allocate(rng_t *rng) {
  letter_t *letters[CHILD_BLOCKS];
  for (unsigned i = 0; i < CHILD_BLOCKS; i++) {
    size_t size = size_pick(rng);
    letters[i] = letter_write(malloc(size), size, i);
  }
  for (unsigned i = 0; i < SHELVES; i += 1 + rng_below(rng, 4)) letter_free(atomic_exchange(&shelves[i], NULL));
  for (unsigned i = 0; i < CHILD_BLOCKS; i++) letter_free(letters[i]);
}

static void child_wait(pid_t pid, const char *scene) {
  int status;
  while (waitpid(pid, &status, 0) < 0)
    if (errno != EINTR) stress_fail("%s: waitpid %d: errno %d", scene, (int)pid, errno);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
    stress_fail("%s: child %d of fork %llu ended with status 0x%x%s", scene, (int)pid, (unsigned long long)atomic_load(&forks_done),
                (unsigned)status, WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT ? " (its own line tells whether it hung)" : "");
}

static _Noreturn void child_leave(rng_t *rng) {
  if (rng_one_in(rng, 2)) exit(0);
  _exit(0);
}

static _Noreturn void child_run(uint64_t number) {
  rng_t rng = rng_make(0xc0000000 + number);
  pthread_t thread;
  stress_watch(hang_seconds, "a forked child");
  bool at_once = rng_one_in(&rng, 2);
  if (!at_once) child_allocate(&rng);
  thread_start(&thread, child_thread, number); /* either of the two threads may reach the allocator first */
  if (rng_one_in(&rng, 8)) /* exit beside a thread that allocates */
    child_leave(&rng);
  child_allocate(&rng);
  if (rng_one_in(&rng, 16)) {
    pid_t pid = fork();
    if (pid == 0) {
      stress_watch(hang_seconds, "a forked grandchild");
      child_allocate(&rng);
      child_leave(&rng);
    }
    child_wait(pid, "load, grandchild");
  }
  pthread_join(thread, NULL);
  child_leave(&rng);
}

/* ---- load ---- */

static void *forker_run(void *argument) {
  rng_t rng = rng_make(0xf0000000 + (uint64_t)(uintptr_t)argument);
  while (atomic_fetch_sub(&forks_left, 1) > 0) {
    uint64_t number = rng_next(&rng);
    pid_t pid = fork();
    if (pid < 0) stress_fail("fork: errno %d", errno);
    if (pid == 0) child_run(number);
    child_wait(pid, "load");
    fork_count();
    load_step(&rng);
  }
  return NULL;
}

static void shelves_empty(void) {
  for (unsigned i = 0; i < SHELVES; i++) letter_free(atomic_exchange(&shelves[i], NULL));
}

/* `loaders` threads run `loader` while FORKERS run `forker`, until `forks` are done. */
static void scene_run(const char *name, void *(*loader)(void *), unsigned loaders, void *(*forker)(void *), uint64_t forks) {
  static pthread_t handles[THREADS_MAX], forkers[FORKERS];
  uint64_t begin = clock_ns();
  running = name;
  stress_watch(2 * hang_seconds, name);
  atomic_store(&stopping, false);
  atomic_store(&forks_done, 0);
  atomic_store(&forks_left, (int_fast64_t)forks);
  threads_start(handles, loaders, loader, 1);
  threads_start(forkers, FORKERS, forker, 1);
  threads_join(forkers, FORKERS);
  atomic_store(&stopping, true);
  threads_join(handles, loaders);
  shelves_empty();
  stress_say("%s: %llu forks beside %u threads in %.1f s", name, (unsigned long long)atomic_load(&forks_done), loaders,
             (double)(clock_ns() - begin) / 1e9);
}

static void scene_load(unsigned threads, uint64_t forks) {
  if (threads != 0) {
    scene_run("load", load_run, threads, forker_run, forks);
    return;
  }
  scene_run("load", load_run, 4, forker_run, forks * 85 / 100);
  scene_run("load", load_run, 16, forker_run, forks * 13 / 100);
  scene_run("load", load_run, 64, forker_run, forks * 2 / 100);
}

/* ---- grow ---- */

/* The blocks are not touched, so only addresses are taken. */
static void grow_step(rng_t *rng) { (void)!malloc(GROW_LEAST + rng_below(rng, GROW_SPREAD)); }

/* Takes the same amount for each fork, so that the last forks also meet a growing heap. */
static void *grow_run(void *argument) {
  rng_t rng = rng_make((uint64_t)(uintptr_t)argument);
  for (uint64_t steps = 0; !atomic_load_explicit(&stopping, memory_order_relaxed); steps++) {
    while (steps > GROW_STEPS * (atomic_load(&forks_done) + 1)) {
      if (atomic_load(&stopping)) return NULL;
      sched_yield();
    }
    grow_step(&rng);
  }
  return NULL;
}

static void *grow_forker_run(void *argument) {
  rng_t rng = rng_make(0xd0000000 + (uint64_t)(uintptr_t)argument);
  while (atomic_fetch_sub(&forks_left, 1) > 0) {
    pid_t pid = fork();
    if (pid < 0) stress_fail("fork: errno %d", errno);
    if (pid == 0) {
      stress_watch(hang_seconds, "a child of the scene grow");
      for (unsigned i = 0; i < GROW_CHILD; i++) {
        size_t size = GROW_LEAST + rng_below(&rng, GROW_SPREAD);
        char *block = malloc(size);
        if (block == NULL) stress_fail("grow: no block of %zu bytes, the %u. of a child", size, i);
        block[0] = block[size - 1] = 1; /* the memory must exist: the parent may have been about to map it */
      }
      _exit(0);
    }
    child_wait(pid, "grow");
    fork_count();
  }
  return NULL;
}

/* ---- stdio ---- */

/* Lines of increasing length: getline reallocates while it holds the stream's lock. */
static void lines_read(FILE *file) {
  char *line = NULL;
  size_t size = 0;
  rewind(file);
  for (size_t expected = 1; getline(&line, &size, file) > 0; expected++)
    if (strspn(line, "x") != expected || line[expected] != '\n')
      stress_fail("stdio: getline read a line of %zu bytes, not %zu", strlen(line), expected + 1);
  free(line);
}

static FILE *lines_make(void) {
  FILE *file = tmpfile();
  if (file == NULL) stress_fail("stdio: no temporary file: errno %d", errno);
  char line[LINE_LENGTH];
  memset(line, 'x', sizeof line);
  for (int i = 1; i <= LINE_LENGTH; i++) fprintf(file, "%.*s\n", i, line);
  return file;
}

static void *stdio_run(void *argument) {
  uintptr_t number = (uintptr_t)argument;
  FILE *file = lines_make();
  while (!atomic_load(&stopping)) {
    if (number % 3 == 0) {
      fflush(NULL);
      sched_yield();
    } else if (number % 3 == 1) {
      FILE *null = fopen("/dev/null", "w");
      fprintf(null, "%*d", 5000, 1);
      fclose(null);
    } else lines_read(file);
  }
  fclose(file);
  return NULL;
}

static void *stdio_forker_run(void *argument) {
  (void)argument;
  while (atomic_fetch_sub(&forks_left, 1) > 0) {
    pid_t pid = fork();
    if (pid < 0) stress_fail("fork: errno %d", errno);
    if (pid == 0) {
      stress_watch(hang_seconds, "a child of the scene stdio");
      FILE *null = fopen("/dev/null", "w");
      fprintf(null, "%*d", 5000, 1);
      fflush(null);
      fclose(null);
      _exit(0);
    }
    child_wait(pid, "stdio");
    fork_count();
  }
  return NULL;
}

/* ---- handler ---- */

static _Thread_local volatile sig_atomic_t forked_here;
static _Thread_local volatile sig_atomic_t may_fork;

static void handler_fork(int signal_number) {
  (void)signal_number;
  int error = errno;
  if (!may_fork || forked_here || atomic_fetch_sub(&forks_left, 1) <= 0) return;
  pid_t pid = fork();
  if (pid == 0) {
    forked_here = 1; /* then returns into the interrupted call */
    stress_watch(hang_seconds, "a child forked in a handler");
  } else {
    child_wait(pid, "handler");
    fork_count();
  }
  errno = error;
}

/* The new threads run where the parent's threads ran, on the same stacks. */
static _Noreturn void handler_child_end(void) {
  pthread_t threads[4];
  may_fork = 0;
  threads_start(threads, 4, child_thread, 1);
  threads_join(threads, 4);
  _exit(0);
}

static void *handler_run(void *argument) {
  rng_t rng = rng_make((uint64_t)(uintptr_t)argument);
  may_fork = 1;
  while (atomic_load(&forks_left) > 0 || forked_here) {
    load_step(&rng);
    if (forked_here && ++forked_here > HANDLER_STEPS) handler_child_end();
  }
  may_fork = 0;
  return NULL;
}

static void *handler_noise(void *argument) {
  rng_t rng = rng_make((uint64_t)(uintptr_t)argument);
  setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), LOADER_NICE);
  while (atomic_load(&forks_left) > 0) load_step(&rng);
  return NULL;
}

static void scene_handler(unsigned noise, uint64_t forks) {
  pthread_t handles[THREADS_MAX];
  uint64_t begin = clock_ns();
  struct sigaction action = {.sa_handler = handler_fork, .sa_flags = SA_RESTART};
  struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
  struct itimerspec period = {{0, TIMER_NS}, {0, TIMER_NS}};
  timer_t timer;
  sigset_t usr1;
  running = "handler";
  stress_watch(2 * hang_seconds, running);
  atomic_store(&forks_done, 0);
  atomic_store(&forks_left, (int_fast64_t)forks);
  sigaction(SIGUSR1, &action, NULL);
  sigemptyset(&usr1);
  sigaddset(&usr1, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &usr1, NULL);
  threads_start(handles, noise, handler_noise, 1); /* started with the signal blocked */
  pthread_sigmask(SIG_UNBLOCK, &usr1, NULL);
  if (timer_create(CLOCK_MONOTONIC, &event, &timer) != 0) stress_fail("no timer: errno %d", errno);
  timer_settime(timer, 0, &period, NULL);
  handler_run((void *)(uintptr_t)99);
  timer_delete(timer);
  threads_join(handles, noise);
  shelves_empty();
  stress_say("handler: %llu forks beside %u threads in %.1f s", (unsigned long long)atomic_load(&forks_done), noise,
             (double)(clock_ns() - begin) / 1e9);
}

/* ---- spawn ---- */

/* Empty, because the program may be built for another libc or processor than a preloaded library. */
static char *const no_environment[] = {NULL};

static char true_path[] = "/bin/true";
static char *const true_arguments[] = {true_path, NULL};

static int clone_run(void *argument) {
  rng_t *rng = argument;
  for (int i = 0; i < 20; i++) load_step(rng);
  _exit(0);
}

static pid_t child_spawn(rng_t *rng, unsigned kind, char *stack) {
  pid_t pid = -1;
  switch (kind) {
    case 0:
      if (posix_spawn(&pid, true_path, NULL, NULL, true_arguments, no_environment) != 0) stress_fail("posix_spawn failed");
      return pid;
    case 1:
      pid = vfork();
      if (pid == 0) {
        execve(true_path, true_arguments, no_environment);
        _exit(1);
      }
      return pid;
    default: return clone(clone_run, stack + STACK_SIZE, CLONE_VM | CLONE_VFORK | SIGCHLD, rng);
  }
}

static void *spawn_forker_run(void *argument) {
  rng_t rng = rng_make(0xe0000000 + (uint64_t)(uintptr_t)argument);
  char *stack = pages_take(STACK_SIZE);
  while (atomic_fetch_sub(&forks_left, 1) > 0) {
    pid_t pid = child_spawn(&rng, rng_below(&rng, 4), stack);
    if (pid < 0) stress_fail("spawn: errno %d", errno);
    child_wait(pid, "spawn");
    fork_count();
    load_step(&rng);
  }
  return NULL;
}

static bool scene_chosen(const char *name) {
  const char *scene = stress_word("scene", "all");
  return strcmp(scene, "all") == 0 || strcmp(scene, name) == 0;
}

int main(int argc, char **argv) {
  stress_init(argc, argv);
  unsigned threads = (unsigned)stress_option("threads", 0);
  hang_seconds = (unsigned)stress_option("hang", 60);
  if (threads > THREADS_MAX) stress_fail("at most %d threads", THREADS_MAX);
  if (scene_chosen("handler")) scene_handler(0, stress_count("handler", 1000));
  unsigned noise = (unsigned)stress_option("noise", stress_on_hakmem() ? 3 : 0);
  if (scene_chosen("handler") && noise != 0) scene_handler(noise < THREADS_MAX ? noise : THREADS_MAX, stress_count("handler", 1000));
  if (scene_chosen("spawn")) scene_run("spawn", load_run, threads != 0 ? threads : 4, spawn_forker_run, stress_count("spawn", 1000));
  if (scene_chosen("stdio")) scene_run("stdio", stdio_run, threads != 0 ? threads : 6, stdio_forker_run, stress_count("stdio", 2000));
  if (scene_chosen("grow")) scene_run("grow", grow_run, threads != 0 ? threads : 3, grow_forker_run, stress_count("grow", 500));
  atexit(at_exit);
  if (scene_chosen("load")) scene_load(threads, stress_count("forks", 10000));
  return stress_finish();
}
