/* short_threads.c - many threads that live for a few hundred allocations each and leave some blocks to their successor. */
#include "workload.h"

typedef struct task {
  _Alignas(WORKLOAD_APART) uint64_t state;
  void **blocks; /* at first the last ones are still the predecessor's */
} task_t;

static uint32_t block_count, left_count;

static void blocks_free(void **blocks, uint32_t from, uint32_t until) {
  for (uint32_t i = from; i < until; i++)
    if (blocks[i] != NULL) {
      workload_check(blocks[i], i);
      free(blocks[i]);
    }
}

static void *task_run(void *argument) {
  task_t *task = argument;
  blocks_free(task->blocks, block_count - left_count, block_count);
  for (uint32_t i = 0; i < block_count; i++) task->blocks[i] = workload_block(workload_falling(&task->state, 16, 2000), i);
  blocks_free(task->blocks, 0, block_count - left_count);
  return NULL;
}

int main(int argc, char **argv) {
  static task_t tasks[WORKLOAD_THREADS];
  enum { BLOCKS, THREADS, ROUNDS, SEED, ARGUMENTS };
  workload_argument_t arguments[] = {WORKLOAD_COUNT("blocks", 200), WORKLOAD_THREAD_COUNT(4), WORKLOAD_COUNT("rounds", 5000),
                                     WORKLOAD_SEED};
  workload_arguments(argc, argv, arguments, ARGUMENTS);
  block_count = (uint32_t)arguments[BLOCKS].value;
  left_count = (block_count + 9) / 10;
  uint64_t threads = arguments[THREADS].value, rounds = arguments[ROUNDS].value;
  for (uint64_t i = 0; i < threads; i++) {
    tasks[i].state = workload_seed(arguments[SEED].value, i);
    tasks[i].blocks = workload_table(block_count, sizeof(void *));
  }
  double begin = workload_seconds();
  workload_threads(task_run, tasks, sizeof *tasks, threads, rounds);
  workload_report("short_threads", 2 * block_count * rounds * threads, workload_seconds() - begin);
  for (uint64_t i = 0; i < threads; i++) {
    blocks_free(tasks[i].blocks, block_count - left_count, block_count);
    free(tasks[i].blocks);
  }
  return 0;
}
