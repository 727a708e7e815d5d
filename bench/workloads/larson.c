/* larson.c - a server's load: each thread replaces random victims among its
 * blocks, and after a round a new thread takes over all of them, so that each
 * thread first frees blocks that another has allocated.
 *
 * Built twice: with malloc and free, and, if LARSON_SIZED is defined, with C++'s
 * operator new and sized operator delete.
 */
#include "workload.h"

#ifdef LARSON_SIZED
void *operator_new(size_t size) __asm__("_Znwm");
void operator_delete(void *block, size_t size) __asm__("_ZdlPvm");
#define LARSON_NAME "larson_sized"
static void *block_new(size_t size) { return operator_new(size); }
static void block_delete(void *block, size_t size) { operator_delete(block, size); }
#else
#define LARSON_NAME "larson"
static void *block_new(size_t size) { return malloc(size); }
static void block_delete(void *block, size_t size) {
  (void)size;
  free(block);
}
#endif

typedef struct slot {
  void *block;
  uint32_t size;
} slot_t;

typedef struct chain {
  _Alignas(WORKLOAD_APART) uint64_t state;
  slot_t *slots;
} chain_t;

static uint32_t smallest, largest, slot_count;
static uint64_t step_count;

static void slot_fill(chain_t *chain, uint32_t index) {
  uint32_t size = workload_between(&chain->state, smallest, largest);
  chain->slots[index] = (slot_t){workload_mark(block_new(size), size, index), size};
}

static void *round_run(void *argument) {
  chain_t *chain = argument;
  for (uint64_t i = 0; i < step_count; i++) {
    uint32_t victim = workload_below(&chain->state, slot_count);
    block_delete(chain->slots[victim].block, chain->slots[victim].size);
    slot_fill(chain, victim);
  }
  return NULL;
}

/* One thread allocates the first blocks; their order is shuffled afterwards. */
static void chain_fill(chain_t *chain, uint64_t seed, uint64_t thread) {
  chain->state = workload_seed(seed, thread);
  chain->slots = workload_table(slot_count, sizeof *chain->slots);
  for (uint32_t i = 0; i < slot_count; i++) slot_fill(chain, i);
  for (uint32_t i = slot_count; i > 1; i--) {
    slot_t *one = &chain->slots[i - 1], *other = &chain->slots[workload_below(&chain->state, i)], swap = *one;
    *one = *other;
    *other = swap;
  }
  for (uint32_t i = 0; i < slot_count; i++) workload_mark(chain->slots[i].block, chain->slots[i].size, i);
}

static void chain_empty(chain_t *chain) {
  for (uint32_t i = 0; i < slot_count; i++) {
    workload_check(chain->slots[i].block, i);
    block_delete(chain->slots[i].block, chain->slots[i].size);
  }
  free(chain->slots);
}

int main(int argc, char **argv) {
  static chain_t chains[WORKLOAD_THREADS];
  enum { SMALLEST, LARGEST, BLOCKS, STEPS, THREADS, ROUNDS, SEED, ARGUMENTS };
  workload_argument_t arguments[] = {WORKLOAD_SIZE("smallest", 8),
                                     WORKLOAD_SIZE("largest", 128),
                                     WORKLOAD_COUNT("blocks", 1024),
                                     WORKLOAD_STEPS(50000),
                                     WORKLOAD_THREAD_COUNT(1),
                                     WORKLOAD_COUNT("rounds", 400),
                                     WORKLOAD_SEED};
  workload_arguments(argc, argv, arguments, ARGUMENTS);
  if (arguments[LARGEST].value < arguments[SMALLEST].value) workload_usage(argv[0], arguments, ARGUMENTS);
  smallest = (uint32_t)arguments[SMALLEST].value;
  largest = (uint32_t)arguments[LARGEST].value;
  slot_count = (uint32_t)arguments[BLOCKS].value;
  step_count = arguments[STEPS].value;
  uint64_t threads = arguments[THREADS].value, rounds = arguments[ROUNDS].value;
  for (uint64_t i = 0; i < threads; i++) chain_fill(&chains[i], arguments[SEED].value, i);
  double begin = workload_seconds();
  workload_threads(round_run, chains, sizeof *chains, threads, rounds);
  workload_report(LARSON_NAME, 2 * step_count * rounds * threads, workload_seconds() - begin);
  for (uint64_t i = 0; i < threads; i++) chain_empty(&chains[i]);
  return 0;
}
