/* random_mixed.h - slot replacement: each step frees the block in a random slot
 * and allocates one of a random size for it.  Threads share nothing. */
#ifndef BENCH_RANDOM_MIXED_H
#define BENCH_RANDOM_MIXED_H

#include "workload.h"

typedef struct mixed {
  _Alignas(WORKLOAD_APART) uint64_t state;
  uint64_t steps;
  uint32_t slots;
  uint32_t smallest, largest;
} mixed_t;

static void *mixed_run(void *argument) {
  mixed_t *mixed = argument;
  void **blocks = workload_table(mixed->slots, sizeof *blocks);
  for (uint64_t i = 0; i < mixed->steps; i++) {
    uint32_t slot = workload_below(&mixed->state, mixed->slots);
    free(blocks[slot]);
    blocks[slot] = workload_block(workload_between(&mixed->state, mixed->smallest, mixed->largest), slot);
  }
  /* Checked only here: a check of each block before its free would bring cold lines into the cache for the allocator. */
  for (uint32_t slot = 0; slot < mixed->slots; slot++)
    if (blocks[slot] != NULL) {
      workload_check(blocks[slot], slot);
      free(blocks[slot]);
    }
  free(blocks);
  return NULL;
}

static int mixed_main(int argc, char **argv, const char *name, const mixed_t *usual) {
  static mixed_t all[WORKLOAD_THREADS];
  enum { STEPS, SLOTS, THREADS, SMALLEST, LARGEST, SEED, ARGUMENTS };
  workload_argument_t arguments[] = {WORKLOAD_STEPS(usual->steps),
                                     WORKLOAD_COUNT("slots", usual->slots),
                                     WORKLOAD_THREAD_COUNT(1),
                                     WORKLOAD_SIZE("smallest", usual->smallest),
                                     WORKLOAD_SIZE("largest", usual->largest),
                                     WORKLOAD_SEED};
  workload_arguments(argc, argv, arguments, ARGUMENTS);
  if (arguments[LARGEST].value < arguments[SMALLEST].value) workload_usage(argv[0], arguments, ARGUMENTS);
  uint64_t threads = arguments[THREADS].value;
  for (uint64_t i = 0; i < threads; i++)
    all[i] = (mixed_t){.state = workload_seed(arguments[SEED].value, i),
                       .steps = arguments[STEPS].value,
                       .slots = (uint32_t)arguments[SLOTS].value,
                       .smallest = (uint32_t)arguments[SMALLEST].value,
                       .largest = (uint32_t)arguments[LARGEST].value};
  double begin = workload_seconds();
  workload_threads(mixed_run, all, sizeof *all, threads, 1);
  workload_report(name, 2 * arguments[STEPS].value * threads, workload_seconds() - begin);
  return 0;
}

#endif
