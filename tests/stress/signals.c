/* signals.c - timers at 5 kHz that interrupt threads inside the allocator.
 *
 * Each thread has a timer of its own.  The handler does not allocate; it uses
 * stack, changes and restores errno, and half of the threads run it on an
 * alternate stack.  Interrupted system calls and half-done operations must have no visible effect.
 *
 * Checked: content, errno across a free, all blocks freed at the end.
 *
 * Arguments: --signals=60K in all, --threads=4, --hertz=5000 for each thread, --seed.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "harness.h"
#include "letter.h"

enum { SHELVES = 512, THREADS_MAX = 64, ALTERNATE_STACK = 64 * 1024, HANDLER_STACK = 2048, ERRNO_MARK = 4242, HANG_SECONDS = 600 };

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

static _Atomic(letter_t *) shelves[SHELVES];
static atomic_uint_fast64_t handled;
static uint64_t signals_wanted, hertz;
static atomic_uchar sink;

static void handler(int signal_number) {
  int error = errno;
  volatile unsigned char stack[HANDLER_STACK];
  for (size_t i = 0; i < sizeof stack; i += 64) stack[i] = (unsigned char)(signal_number + (int)i);
  atomic_store_explicit(&sink, stack[HANDLER_STACK / 2], memory_order_relaxed);
  errno = EDOM;
  atomic_fetch_add_explicit(&handled, 1, memory_order_relaxed);
  errno = error;
}

static timer_t timer_begin(void) {
  struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGUSR1};
  timer_t timer;
  event.sigev_notify_thread_id = (pid_t)syscall(SYS_gettid);
  if (timer_create(CLOCK_MONOTONIC, &event, &timer) != 0) stress_fail("no timer: errno %d", errno);
  struct timespec interval = {0, (long)(1000000000u / hertz)};
  struct itimerspec period = {interval, interval};
  timer_settime(timer, 0, &period, NULL);
  return timer;
}

static void step(rng_t *rng) {
  size_t size = sizeof(letter_t) + rng_size(rng, rng_one_in(rng, 128) ? 21 : 12);
  letter_t *letter = letter_write(rng_one_in(rng, 4) ? calloc(1, size) : malloc(size), size, size);
  if (rng_one_in(rng, 4)) {
    size += rng_size(rng, 12);
    letter = letter_write(realloc(letter, size), size, size);
  }
  letter = atomic_exchange(&shelves[rng_below(rng, SHELVES)], letter);
  errno = ERRNO_MARK;
  letter_free(letter);
  if (errno != ERRNO_MARK) stress_fail("free set errno to %d", errno);
}

static void *run(void *argument) {
  uint64_t number = (uint64_t)(uintptr_t)argument;
  rng_t rng = rng_make(number);
  stack_t stack = {.ss_sp = pages_take(ALTERNATE_STACK), .ss_size = ALTERNATE_STACK};
  if (number % 2 == 1 && sigaltstack(&stack, NULL) != 0) stress_fail("sigaltstack: errno %d", errno);
  timer_t timer = timer_begin();
  while (atomic_load_explicit(&handled, memory_order_relaxed) < signals_wanted) step(&rng);
  timer_delete(timer);
  return NULL;
}

int main(int argc, char **argv) {
  stress_init(argc, argv);
  unsigned threads = (unsigned)stress_option("threads", 4);
  signals_wanted = stress_count("signals", 60000);
  hertz = stress_option("hertz", 5000);
  if (threads > THREADS_MAX || hertz < 2) stress_fail("at most %d threads, 2 Hz at least", THREADS_MAX);
  struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART | SA_ONSTACK};
  sigaction(SIGUSR1, &action, NULL);
  uint64_t begin = clock_ns();
  pthread_t handles[THREADS_MAX];
  stress_watch((unsigned)(HANG_SECONDS + signals_wanted / 1000), "signals");
  for (unsigned i = 0; i < threads; i++)
    if (pthread_create(&handles[i], NULL, run, (void *)(uintptr_t)i) != 0) stress_fail("no thread");
  for (unsigned i = 0; i < threads; i++) pthread_join(handles[i], NULL);
  for (unsigned i = 0; i < SHELVES; i++) letter_free(atomic_exchange(&shelves[i], NULL));
  stress_say("%llu signals in %.1f s", (unsigned long long)atomic_load(&handled), (double)(clock_ns() - begin) / 1e9);
  return stress_finish();
}
