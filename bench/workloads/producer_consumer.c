/* producer_consumer.c - pairs of threads: one allocates, the other frees.
 *
 * A pair shares a ring of `depth` blocks.  Each side publishes its progress after each
 * batch, and reads the other's only when its own view of the ring is full or empty.
 */
#include <stdatomic.h>
#include <sys/prctl.h>

#include "workload.h"

typedef struct channel {
  _Alignas(WORKLOAD_APART) _Atomic uint64_t made;
  _Alignas(WORKLOAD_APART) _Atomic uint64_t taken;
  void **ring;
} channel_t;

typedef struct side {
  _Alignas(WORKLOAD_APART) uint64_t state;
  channel_t *channel;
  bool producer;
} side_t;

static uint64_t block_count, batch, depth;
static uint32_t smallest, largest;

enum { PAUSE = 200, LOOKS = 16, NAP_NANOSECONDS = 20000 };

/* Waits until the other side has reached `least`; returns its progress.  It polls seldom, since each load takes the cache line
 * from the writer.  Then it sleeps, for less time than the other side needs for the ring; yielding would not help where
 * threads outnumber the cores, since the kernel may choose the waiting thread again. */
static uint64_t progress_await(_Atomic uint64_t *progress, uint64_t least) {
  uint64_t now;
  for (uint32_t look = 1; (now = atomic_load_explicit(progress, memory_order_acquire)) < least; look++) {
    for (volatile uint32_t i = 0; i < PAUSE; i++) continue;
    if (look > LOOKS) nanosleep(&(struct timespec){.tv_nsec = NAP_NANOSECONDS}, NULL);
  }
  return now;
}

static void produce(side_t *side) {
  channel_t *channel = side->channel;
  uint64_t taken = 0;
  for (uint64_t made = 0; made < block_count; made += batch) {
    if (made + batch > taken + depth) taken = progress_await(&channel->taken, made + batch - depth);
    for (uint64_t i = made; i < made + batch; i++)
      channel->ring[i & (depth - 1)] = workload_block(workload_falling(&side->state, smallest, largest), (uint32_t)i);
    atomic_store_explicit(&channel->made, made + batch, memory_order_release);
  }
}

static void consume(side_t *side) {
  channel_t *channel = side->channel;
  uint64_t made = 0;
  for (uint64_t taken = 0; taken < block_count; taken += batch) {
    if (made < taken + batch) made = progress_await(&channel->made, taken + batch);
    for (uint64_t i = taken; i < taken + batch; i++) {
      void *block = channel->ring[i & (depth - 1)];
      workload_check(block, (uint32_t)i); /* a consumer reads the blocks that it gets */
      free(block);
    }
    atomic_store_explicit(&channel->taken, taken + batch, memory_order_release);
  }
}

static void *side_run(void *argument) {
  side_t *side = argument;
  (side->producer ? produce : consume)(side);
  return NULL;
}

int main(int argc, char **argv) {
  static channel_t channels[WORKLOAD_THREADS / 2];
  static side_t sides[WORKLOAD_THREADS];
  enum { BATCHES, BATCH, DEPTH, SMALLEST, LARGEST, PAIRS, SEED, ARGUMENTS };
  workload_argument_t arguments[] = {WORKLOAD_COUNT("batches", 100000),
                                     WORKLOAD_COUNT("batch", 256),
                                     WORKLOAD_COUNT("depth, a power of two", 4096),
                                     WORKLOAD_SIZE("smallest", 64),
                                     WORKLOAD_SIZE("largest", 64),
                                     {"pairs", 1, 1, WORKLOAD_THREADS / 2},
                                     WORKLOAD_SEED};
  workload_arguments(argc, argv, arguments, ARGUMENTS);
  batch = arguments[BATCH].value;
  depth = arguments[DEPTH].value;
  block_count = arguments[BATCHES].value * batch;
  smallest = (uint32_t)arguments[SMALLEST].value;
  largest = (uint32_t)arguments[LARGEST].value;
  uint64_t pairs = arguments[PAIRS].value;
  if (largest < smallest || depth < batch || (depth & (depth - 1)) != 0) workload_usage(argv[0], arguments, ARGUMENTS);
  for (uint64_t i = 0; i < 2 * pairs; i++) sides[i] = (side_t){workload_seed(arguments[SEED].value, i), &channels[i / 2], i % 2 == 0};
  prctl(PR_SET_TIMERSLACK, 1UL); /* nanoseconds; the usual 50,000 would make a nap last longer than a ring */
  double begin = workload_seconds();
  for (uint64_t i = 0; i < pairs; i++) channels[i].ring = workload_table(depth, sizeof(void *));
  workload_threads(side_run, sides, sizeof *sides, 2 * pairs, 1);
  workload_report("producer_consumer", 2 * block_count * pairs, workload_seconds() - begin);
  for (uint64_t i = 0; i < pairs; i++) free(channels[i].ring);
  return 0;
}
