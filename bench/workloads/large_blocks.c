/* large_blocks.c - blocks of several MiB are replaced at random; every page of each is written to. */
#include "workload.h"

typedef struct set {
  _Alignas(WORKLOAD_APART) uint64_t state;
} set_t;

static uint64_t step_count;
static uint32_t slot_count, smallest, largest;

static void *set_run(void *argument) {
  set_t *set = argument;
  void **blocks = workload_table(slot_count, sizeof *blocks);
  for (uint64_t i = 0; i < step_count + slot_count; i++) {
    uint32_t slot = i < slot_count ? (uint32_t)i : workload_below(&set->state, slot_count);
    uint32_t size = workload_between(&set->state, smallest, largest);
    if (blocks[slot] != NULL) workload_check(blocks[slot], slot);
    free(blocks[slot]);
    blocks[slot] = workload_block(size, slot);
    workload_write_pages(blocks[slot], size);
  }
  for (uint32_t slot = 0; slot < slot_count; slot++) {
    workload_check(blocks[slot], slot);
    free(blocks[slot]);
  }
  free(blocks);
  return NULL;
}

int main(int argc, char **argv) {
  static set_t sets[WORKLOAD_THREADS];
  enum { STEPS, SLOTS, THREADS, SMALLEST, LARGEST, SEED, ARGUMENTS };
  workload_argument_t arguments[] = {WORKLOAD_STEPS(200),
                                     WORKLOAD_COUNT("slots", 20),
                                     WORKLOAD_THREAD_COUNT(1),
                                     WORKLOAD_SIZE("smallest", 5 << 20),
                                     WORKLOAD_SIZE("largest", 25 << 20),
                                     WORKLOAD_SEED};
  workload_arguments(argc, argv, arguments, ARGUMENTS);
  step_count = arguments[STEPS].value;
  slot_count = (uint32_t)arguments[SLOTS].value;
  smallest = (uint32_t)arguments[SMALLEST].value;
  largest = (uint32_t)arguments[LARGEST].value;
  if (largest < smallest) workload_usage(argv[0], arguments, ARGUMENTS);
  uint64_t threads = arguments[THREADS].value;
  for (uint64_t i = 0; i < threads; i++) sets[i].state = workload_seed(arguments[SEED].value, i);
  double begin = workload_seconds();
  workload_threads(set_run, sets, sizeof *sets, threads, 1);
  workload_report("large_blocks", 2 * (step_count + slot_count) * threads, workload_seconds() - begin);
  return 0;
}
