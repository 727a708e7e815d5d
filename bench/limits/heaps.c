/* heaps.c - heaps that grow and shrink, to be run under a memory limit: never more bytes are live than the command line says.
 *
 * changing: all threads together fill their shares with blocks of one size, free all but a random twentieth, and continue with the
 *   next size; what stays, stays to the end.
 * replaced: as above, but what stays is freed when the next size has been filled in.
 * in-turn: one thread after another fills all of it with small blocks, and frees all but a hundredth; no thread ends before the last.
 */
#include <semaphore.h>

#include "../workloads/workload.h"

enum { CHANGING, REPLACED, IN_TURN };

static const uint32_t sizes[] = {32, 200, 1000, 96, 5000, 48, 400, 20000, 120, 2000, 70000, 64};
enum { SIZES = sizeof sizes / sizeof *sizes, STAYING_CHANGING = 20, STAYING_IN_TURN = 100, LARGEST_IN_TURN = 500 };

typedef struct block {
  struct block *next;
  uint32_t size;
} block_t;

typedef struct heap {
  uint64_t state;
  uint64_t bytes; /* to fill */
  uint64_t used;
  uint64_t allocated; /* blocks, ever */
  bool replaced;
  block_t **fresh;
  block_t *staying;
  pthread_t thread;
} heap_t;

static pthread_barrier_t step; /* for all threads that change sizes */
static sem_t turn_over, end;   /* for threads that take turns */

static void semaphore_wait(sem_t *semaphore) {
  while (sem_wait(semaphore) != 0) continue; /* a signal came */
}

/* If the size is 0, each block gets a random size. */
static uint64_t heap_fill(heap_t *heap, uint32_t size) {
  uint64_t count = 0;
  while (heap->used < heap->bytes) {
    uint32_t bytes = size > 0 ? size : workload_between(&heap->state, sizes[0], LARGEST_IN_TURN);
    block_t *block = workload_block(bytes, 0);
    memset(block, 1, bytes);
    block->size = bytes;
    heap->used += bytes;
    heap->fresh[count++] = block;
  }
  heap->allocated += count;
  return count;
}

static void heap_thin(heap_t *heap, uint64_t count, uint32_t staying) {
  for (uint64_t i = 0; i < count; i++) {
    block_t *block = heap->fresh[i];
    if (workload_below(&heap->state, staying) == 0) {
      block->next = heap->staying;
      heap->staying = block;
    } else {
      heap->used -= block->size;
      free(block);
    }
  }
}

static void heap_empty(heap_t *heap) {
  while (heap->staying != NULL) {
    block_t *block = heap->staying;
    heap->staying = block->next;
    heap->used -= block->size;
    free(block);
  }
}

static void *run_changing(void *argument) {
  heap_t *heap = argument;
  for (uint32_t i = 0; i < SIZES; i++) {
    uint64_t count = heap_fill(heap, sizes[i]);
    pthread_barrier_wait(&step); /* all are full now */
    if (heap->replaced) heap_empty(heap);
    heap_thin(heap, count, STAYING_CHANGING);
    pthread_barrier_wait(&step);
  }
  heap_empty(heap);
  return NULL;
}

static void *run_in_turn(void *argument) {
  heap_t *heap = argument;
  heap_thin(heap, heap_fill(heap, 0), STAYING_IN_TURN);
  sem_post(&turn_over);
  semaphore_wait(&end);
  heap_empty(heap);
  return NULL;
}

static void threads_changing(heap_t *heaps, uint64_t threads) {
  if (pthread_barrier_init(&step, NULL, (unsigned)threads) != 0) workload_fail("no barrier");
  for (uint64_t i = 0; i < threads; i++)
    if (pthread_create(&heaps[i].thread, NULL, run_changing, &heaps[i]) != 0) workload_fail("a thread was refused");
}

static void threads_in_turn(heap_t *heaps, uint64_t threads) {
  if (sem_init(&turn_over, 0, 0) != 0 || sem_init(&end, 0, 0) != 0) workload_fail("no semaphore");
  for (uint64_t i = 0; i < threads; i++) {
    if (pthread_create(&heaps[i].thread, NULL, run_in_turn, &heaps[i]) != 0) workload_fail("a thread was refused");
    semaphore_wait(&turn_over);
  }
  for (uint64_t i = 0; i < threads; i++) sem_post(&end);
}

int main(int argc, char **argv) {
  enum { MODE, MEBIBYTES, THREADS, ARGUMENTS };
  workload_argument_t arguments[] = {{"changing|replaced|in-turn", CHANGING, 0, 0}, {"mebibytes", 128, 1, 16384}, WORKLOAD_THREAD_COUNT(4)};
  workload_arguments(argc, argv, arguments, ARGUMENTS);
  bool in_turn = arguments[MODE].value == IN_TURN;
  bool replaced = arguments[MODE].value == REPLACED;
  uint64_t threads = arguments[THREADS].value, bytes = arguments[MEBIBYTES].value << 20, allocated = 0;
  uint64_t share = in_turn ? bytes : bytes / threads, blocks = share / sizes[0] + 1;
  static heap_t heaps[WORKLOAD_THREADS];
  block_t **table = workload_table((in_turn ? 1 : threads) * blocks, sizeof *table);
  double begin = workload_seconds();
  for (uint64_t i = 0; i < threads; i++)
    heaps[i] = (heap_t){.state = workload_seed(1, i), .bytes = share, .replaced = replaced, .fresh = table + (in_turn ? 0 : i * blocks)};
  if (in_turn) threads_in_turn(heaps, threads);
  else threads_changing(heaps, threads);
  for (uint64_t i = 0; i < threads; i++) {
    workload_join(heaps[i].thread);
    allocated += heaps[i].allocated;
  }
  workload_report("heaps", 2 * allocated, workload_seconds() - begin);
  free(table);
  return 0;
}
