/* random_mixed.h - slot replacement: each step frees the block in a random slot
 * and allocates one of a random size for it.  Threads share nothing. */
#ifndef BENCH_RANDOM_MIXED_H
#define BENCH_RANDOM_MIXED_H

#include "workload.h"

typedef struct mixed {
  pthread_t handle;
  uint64_t state;
  uint64_t steps;
  uint32_t slots;
  uint32_t smallest, largest;
} mixed_t;

static void *mixed_run(void *argument) {
  mixed_t *mixed = argument;
  void **blocks = calloc(mixed->slots, sizeof *blocks);
  if (blocks == NULL)
    exit(1);
  for (uint64_t i = 0; i < mixed->steps; i++) {
    void **slot = &blocks[workload_below(&mixed->state, mixed->slots)];
    free(*slot);
    *slot = workload_block(mixed->smallest + workload_below(&mixed->state, mixed->largest - mixed->smallest + 1));
  }
  for (uint32_t i = 0; i < mixed->slots; i++)
    free(blocks[i]);
  free(blocks);
  return NULL;
}

/* Arguments: steps, slots, threads, smallest and largest size, seed. */
static int mixed_main(int argc, char **argv, const char *name, mixed_t usual) {
  enum { THREADS_MAX = 256 };
  static mixed_t all[THREADS_MAX];
  uint64_t threads = workload_number(argc, argv, 3, 1);
  mixed_t mixed = {.steps = workload_number(argc, argv, 1, usual.steps),
                   .slots = (uint32_t)workload_number(argc, argv, 2, usual.slots),
                   .smallest = (uint32_t)workload_number(argc, argv, 4, usual.smallest),
                   .largest = (uint32_t)workload_number(argc, argv, 5, usual.largest)};
  uint64_t seed = workload_number(argc, argv, 6, 1);
  if (threads == 0 || threads > THREADS_MAX || mixed.slots == 0 || mixed.smallest == 0 || mixed.largest < mixed.smallest) {
    fprintf(stderr, "usage: %s [steps] [slots] [threads] [smallest] [largest] [seed]\n", argv[0]);
    return 2;
  }
  double begin = workload_seconds();
  for (uint64_t i = 0; i < threads; i++) {
    all[i] = mixed;
    all[i].state = (seed + i) * UINT64_C(0x9e3779b97f4a7c15) | 1;
    workload_thread(&all[i].handle, mixed_run, &all[i]);
  }
  for (uint64_t i = 0; i < threads; i++)
    pthread_join(all[i].handle, NULL);
  workload_report(name, 2 * mixed.steps * threads, workload_seconds() - begin);
  return 0;
}

#endif
