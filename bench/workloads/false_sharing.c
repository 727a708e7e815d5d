/* false_sharing.c - threads write their own small blocks very often, which is slow if blocks of two threads share a cache line.
 *
 * active: each thread allocates its own blocks.  passive: one thread first allocates a block for each,
 * side by side; each thread starts by freeing its block, and a bad allocator gives it the same place again.
 */
#include "workload.h"

typedef struct writer {
  _Alignas(WORKLOAD_APART) void *handed; /* the block to free first, or NULL */
} writer_t;

static uint64_t step_count, write_count;
static size_t block_size;

static void *writer_run(void *argument) {
  writer_t *writer = argument;
  free(writer->handed);
  for (uint64_t step = 0; step < step_count; step++) {
    void *block = workload_block(block_size, 0);
    volatile uint32_t *counter = block;
    for (uint64_t i = 0; i < write_count; i++) ++*counter;
    workload_check(block, (uint32_t)write_count);
    free(block);
  }
  return NULL;
}

int main(int argc, char **argv) {
  static writer_t writers[WORKLOAD_THREADS];
  enum { ACTIVE, PASSIVE };
  enum { MODE, STEPS, WRITES, SIZE, THREADS, ARGUMENTS };
  workload_argument_t arguments[] = {{"active|passive", ACTIVE, 0, 0},
                                     WORKLOAD_STEPS(500000),
                                     WORKLOAD_COUNT("writes", 1000),
                                     WORKLOAD_SIZE("size", 8),
                                     WORKLOAD_THREAD_COUNT(2)};
  workload_arguments(argc, argv, arguments, ARGUMENTS);
  step_count = arguments[STEPS].value;
  write_count = arguments[WRITES].value;
  block_size = arguments[SIZE].value;
  uint64_t threads = arguments[THREADS].value;
  double begin = workload_seconds();
  for (uint64_t i = 0; i < threads && arguments[MODE].value == PASSIVE; i++) writers[i].handed = workload_block(block_size, 0);
  workload_threads(writer_run, writers, sizeof *writers, threads, 1);
  workload_report("false_sharing", 2 * step_count * threads, workload_seconds() - begin);
  return 0;
}
