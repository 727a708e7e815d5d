/* larson.c - a server's load: each thread replaces random victims among its
 * blocks, and after a round a new thread takes over all of them, so that most
 * blocks are freed by a thread that did not allocate them.
 *
 * Arguments: smallest, largest size, blocks a thread, steps a round, threads,
 * rounds, seed.
 */
#include "workload.h"

enum { THREADS_MAX = 256 };

typedef struct chain {
  pthread_t handle;
  void **blocks;
  uint64_t state;
} chain_t;

static uint32_t smallest, largest, block_count;
static uint64_t step_count;

static uint32_t size_pick(chain_t *chain) { return smallest + workload_below(&chain->state, largest - smallest + 1); }

static void *round_run(void *argument) {
  chain_t *chain = argument;
  for (uint64_t i = 0; i < step_count; i++) {
    void **victim = &chain->blocks[workload_below(&chain->state, block_count)];
    free(*victim);
    *victim = workload_block(size_pick(chain));
  }
  return NULL;
}

/* The first blocks come from one thread, in an order that is shuffled afterwards. */
static void chain_fill(chain_t *chain, uint64_t seed) {
  chain->state = seed * UINT64_C(0x9e3779b97f4a7c15) | 1;
  chain->blocks = malloc(block_count * sizeof *chain->blocks);
  if (chain->blocks == NULL)
    exit(1);
  for (uint32_t i = 0; i < block_count; i++)
    chain->blocks[i] = workload_block(size_pick(chain));
  for (uint32_t i = block_count; i > 1; i--) {
    uint32_t other = workload_below(&chain->state, i);
    void *block = chain->blocks[i - 1];
    chain->blocks[i - 1] = chain->blocks[other];
    chain->blocks[other] = block;
  }
}

static void chain_empty(chain_t *chain) {
  for (uint32_t i = 0; i < block_count; i++)
    free(chain->blocks[i]);
  free(chain->blocks);
}

int main(int argc, char **argv) {
  static chain_t chains[THREADS_MAX];
  smallest = (uint32_t)workload_number(argc, argv, 1, 8);
  largest = (uint32_t)workload_number(argc, argv, 2, 128);
  block_count = (uint32_t)workload_number(argc, argv, 3, 1024);
  step_count = workload_number(argc, argv, 4, 1000000);
  uint64_t threads = workload_number(argc, argv, 5, 1);
  uint64_t rounds = workload_number(argc, argv, 6, 20);
  uint64_t seed = workload_number(argc, argv, 7, 1);
  if (smallest == 0 || largest < smallest || block_count == 0 || threads == 0 || threads > THREADS_MAX) {
    fprintf(stderr, "usage: %s [smallest] [largest] [blocks] [steps] [threads] [rounds] [seed]\n", argv[0]);
    return 2;
  }
  for (uint64_t i = 0; i < threads; i++)
    chain_fill(&chains[i], seed + i);
  double begin = workload_seconds();
  for (uint64_t round = 0; round < rounds; round++) {
    for (uint64_t i = 0; i < threads; i++)
      workload_thread(&chains[i].handle, round_run, &chains[i]);
    for (uint64_t i = 0; i < threads; i++)
      pthread_join(chains[i].handle, NULL);
  }
  workload_report("larson", 2 * step_count * rounds * threads, workload_seconds() - begin);
  for (uint64_t i = 0; i < threads; i++)
    chain_empty(&chains[i]);
  return 0;
}
