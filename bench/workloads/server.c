/* server.c - a server: threads answer requests with temporary objects, keep state for each
 * session, pass objects on to each other, now and then need a large block, and are restarted.
 *
 * Half of a thread's sessions outlive it: its successor takes them over.
 */
#include <stdatomic.h>

#include "workload.h"

enum {
  TEMPORARY_MOST = 16,
  MAILBOXES = 1024,
  LARGE_KEPT = 4,
  LARGE_EVERY = 256, /* requests */
  LARGE_SMALLEST = 64 << 10,
  LARGE_LARGEST = 1 << 20,
  MAIL = 0x4c49414d /* the tag of an object that is passed on */
};

typedef struct worker {
  _Alignas(WORKLOAD_APART) uint64_t state;
  void **sessions;
  void *large[LARGE_KEPT];
} worker_t;

static _Atomic(void *) mailboxes[MAILBOXES];
static uint32_t session_count;
static uint64_t request_count;

static void block_end(void *block, uint32_t tag) {
  if (block == NULL) return;
  workload_check(block, tag);
  free(block);
}

static void session_replace(worker_t *worker) {
  uint32_t i = workload_below(&worker->state, session_count);
  block_end(worker->sessions[i], i);
  worker->sessions[i] = workload_block(workload_falling(&worker->state, 32, 4000), i);
}

/* Leaves an object for another worker, and frees the one that was left here. */
static void mail_exchange(worker_t *worker) {
  void *object = workload_block(workload_falling(&worker->state, 32, 1000), MAIL);
  _Atomic(void *) *mailbox = &mailboxes[workload_below(&worker->state, MAILBOXES)];
  block_end(atomic_exchange_explicit(mailbox, object, memory_order_acq_rel), MAIL);
}

static void large_replace(worker_t *worker) {
  uint32_t i = workload_below(&worker->state, LARGE_KEPT);
  uint32_t size = workload_between(&worker->state, LARGE_SMALLEST, LARGE_LARGEST);
  block_end(worker->large[i], i);
  worker->large[i] = workload_block(size, i);
  workload_write_pages(worker->large[i], size);
}

static void request_answer(worker_t *worker) {
  void *temporary[TEMPORARY_MOST];
  uint32_t count = workload_between(&worker->state, 4, TEMPORARY_MOST);
  for (uint32_t i = 0; i < count; i++) temporary[i] = workload_block(workload_falling(&worker->state, 16, 1000), i);
  session_replace(worker);
  mail_exchange(worker);
  if (workload_below(&worker->state, LARGE_EVERY) == 0) large_replace(worker);
  for (uint32_t i = 0; i < count; i++) block_end(temporary[i], i);
}

static void *worker_run(void *argument) {
  worker_t *worker = argument;
  for (uint64_t i = 0; i < request_count; i++) request_answer(worker);
  for (uint32_t i = 0; i < session_count; i += 2) {
    block_end(worker->sessions[i], i);
    worker->sessions[i] = NULL;
  }
  return NULL;
}

static void worker_end(worker_t *worker) {
  for (uint32_t i = 0; i < session_count; i++) block_end(worker->sessions[i], i);
  for (uint32_t i = 0; i < LARGE_KEPT; i++) block_end(worker->large[i], i);
  free(worker->sessions);
}

int main(int argc, char **argv) {
  static worker_t workers[WORKLOAD_THREADS];
  enum { REQUESTS, SESSIONS, THREADS, ROUNDS, SEED, ARGUMENTS };
  workload_argument_t arguments[] = {WORKLOAD_COUNT("requests", 5000), WORKLOAD_COUNT("sessions", 2000), WORKLOAD_THREAD_COUNT(4),
                                     WORKLOAD_COUNT("rounds", 50), WORKLOAD_SEED};
  workload_arguments(argc, argv, arguments, ARGUMENTS);
  request_count = arguments[REQUESTS].value;
  session_count = (uint32_t)arguments[SESSIONS].value;
  uint64_t threads = arguments[THREADS].value, rounds = arguments[ROUNDS].value;
  for (uint64_t i = 0; i < threads; i++) {
    workers[i].state = workload_seed(arguments[SEED].value, i);
    workers[i].sessions = workload_table(session_count, sizeof(void *));
  }
  double begin = workload_seconds();
  workload_threads(worker_run, workers, sizeof *workers, threads, rounds);
  /* a request allocates 10 temporary objects on average, and two more that last */
  workload_report("server", 2 * 12 * request_count * rounds * threads, workload_seconds() - begin);
  for (uint64_t i = 0; i < threads; i++) worker_end(&workers[i]);
  for (uint32_t i = 0; i < MAILBOXES; i++) block_end(mailboxes[i], MAIL);
  return 0;
}
