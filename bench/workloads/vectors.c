/* vectors.c - vectors that grow by realloc: each step grows a random one by half.
 * A vector that has outgrown the largest size is dropped and begins anew. */
#include "workload.h"

typedef struct vector {
  uint64_t *items; /* items[i] is i */
  size_t length;
} vector_t;

static void vector_check(const vector_t *vector) {
  if (vector->items[0] != 0 || vector->items[vector->length - 1] != vector->length - 1) workload_fail("realloc lost items");
}

static void vector_grow(vector_t *vector) {
  size_t length = vector->length == 0 ? 2 : vector->length + (vector->length + 1) / 2;
  uint64_t *items = realloc(vector->items, length * sizeof *items);
  if (items == NULL) workload_fail("realloc was refused");
  vector->items = items;
  if (vector->length != 0) vector_check(vector);
  for (size_t i = vector->length; i < length; i++) items[i] = i;
  vector->length = length;
}

static void vector_drop(vector_t *vector) {
  free(vector->items);
  *vector = (vector_t){NULL, 0};
}

int main(int argc, char **argv) {
  enum { STEPS, VECTORS, LARGEST, SEED, ARGUMENTS };
  workload_argument_t arguments[] = {WORKLOAD_STEPS(1000), WORKLOAD_COUNT("vectors", 1), WORKLOAD_SIZE("largest", 64 << 20), WORKLOAD_SEED};
  workload_arguments(argc, argv, arguments, ARGUMENTS);
  uint64_t steps = arguments[STEPS].value, largest = arguments[LARGEST].value;
  uint64_t state = workload_seed(arguments[SEED].value, 0);
  uint32_t count = (uint32_t)arguments[VECTORS].value;
  vector_t *vectors = workload_table(count, sizeof *vectors);
  double begin = workload_seconds();
  for (uint64_t i = 0; i < steps; i++) {
    vector_t *vector = &vectors[workload_below(&state, count)];
    if (vector->length * sizeof *vector->items > largest) vector_drop(vector);
    vector_grow(vector);
  }
  for (uint32_t i = 0; i < count; i++) vector_drop(&vectors[i]);
  workload_report("vectors", steps, workload_seconds() - begin);
  free(vectors);
  return 0;
}
