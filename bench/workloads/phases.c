/* phases.c - growth and teardown: many small objects are built, then all are freed, in one of three orders. */
#include "workload.h"

typedef enum order { FORWARD, REVERSE, RANDOM } order_t;

enum { SMALLEST = 16, LARGEST = 1008, CHECKED_EVERY = 64 };

/* Checks only a few objects: a check would bring a cold line into the cache for the allocator. */
static void object_free(void **objects, uint32_t index) {
  if (index % CHECKED_EVERY == 0) workload_check(objects[index], index);
  free(objects[index]);
}

/* Visits every index once, by a generator with the next power of two as its period: cheaper than shuffling the table. */
static void free_at_random(void **objects, uint32_t count) {
  uint32_t mask = 1, index = 0;
  while (mask < count - 1) mask = mask << 1 | 1;
  do {
    if (index < count) object_free(objects, index);
    index = (index * 1664525u + 1013904223u) & mask;
  } while (index != 0);
}

static void free_all(void **objects, uint32_t count, order_t order) {
  switch (order) {
    case FORWARD:
      for (uint32_t i = 0; i < count; i++) object_free(objects, i);
      break;
    case REVERSE:
      for (uint32_t i = count; i > 0; i--) object_free(objects, i - 1);
      break;
    case RANDOM: free_at_random(objects, count); break;
  }
}

int main(int argc, char **argv) {
  enum { MEBIBYTES, ORDER, ROUNDS, SEED, ARGUMENTS };
  workload_argument_t arguments[] = {
      {"mebibytes", 1024, 1, 16384}, {"forward|reverse|random", FORWARD, 0, 0}, WORKLOAD_COUNT("rounds", 1), WORKLOAD_SEED};
  workload_arguments(argc, argv, arguments, ARGUMENTS);
  uint64_t rounds = arguments[ROUNDS].value, state = workload_seed(arguments[SEED].value, 0);
  uint32_t count = (uint32_t)((arguments[MEBIBYTES].value << 20) / ((SMALLEST + LARGEST) / 2));
  double begin = workload_seconds();
  void **objects = workload_table(count, sizeof *objects);
  for (uint64_t round = 0; round < rounds; round++) {
    for (uint32_t i = 0; i < count; i++) objects[i] = workload_block(workload_between(&state, SMALLEST, LARGEST), i);
    free_all(objects, count, (order_t)arguments[ORDER].value);
  }
  free(objects);
  workload_report("phases", 2 * count * rounds, workload_seconds() - begin);
  return 0;
}
