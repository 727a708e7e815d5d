/* drawn.c - runs a workload that drawn.py has drawn at random, and which the command line describes completely. */
#include <stdatomic.h>

#include "../workloads/workload.h"

/* The order in which blocks are allocated and freed. */
enum { REPLACE, STACK, QUEUE, FORWARD, REVERSE, SHUFFLED, GROW, YOUNG, SHIFT };
/* The distribution of sizes between the smallest and the largest. */
enum { EVEN, DOUBLING, FALLING, FEW };
/* The bytes of a block that are written: the first, both ends, all. */
enum { FIRST, ENDS, ALL };

enum { CELLS = 256, NURSERY = 64, DIES_YOUNG = 10 };

static uint32_t pattern, threads, slots, steps, smallest, largest, sizes, written;
static uint32_t zeroed, resized, aligned, passed; /* percent */

/* A place where a thread leaves a block for another thread to free. */
typedef struct cell {
  _Alignas(WORKLOAD_APART) void *_Atomic block;
} cell_t;
static cell_t *cells;

typedef struct task {
  _Alignas(WORKLOAD_APART) uint64_t state;
  uint32_t number;
  void **blocks; /* as many as `slots` */
} task_t;

static bool chance(task_t *task, uint32_t percent) { return percent != 0 && workload_below(&task->state, 100) < percent; }

static uint32_t size_of(task_t *task) {
  static const uint32_t times[] = {1, 2, 3, 5, 7, 11, 13, 17};
  uint64_t size = smallest;
  switch (sizes) {
    case EVEN: return workload_between(&task->state, smallest, largest);
    case DOUBLING: {
      uint32_t low = 31 - (uint32_t)__builtin_clz(smallest), high = 31 - (uint32_t)__builtin_clz(largest);
      uint32_t power = (uint32_t)1 << workload_between(&task->state, low, high);
      size = power + workload_below(&task->state, power);
      break;
    }
    case FALLING:
      while (size * 2 <= largest && workload_below(&task->state, 3) != 0) size *= 2;
      size += workload_below(&task->state, (uint32_t)size);
      break;
    default: size = smallest * times[workload_below(&task->state, 8)];
  }
  return size < smallest ? smallest : size > largest ? largest : (uint32_t)size;
}

static void *use(void *block, size_t size) {
  if (block == NULL) workload_fail("a block was refused");
  volatile unsigned char *bytes = block;
  bytes[0] = 1;
  if (written == ENDS) bytes[size - 1] = 1;
  if (written == ALL) memset(block, 1, size);
  return block;
}

static void *take(task_t *task, size_t size) {
  void *block = NULL;
  if (chance(task, zeroed)) block = calloc(1, size);
  else if (chance(task, aligned)) (void)!posix_memalign(&block, (size_t)16 << workload_below(&task->state, 6), size);
  else block = malloc(size);
  return use(block, size);
}

static void give(task_t *task, void *block) {
  if (block != NULL && chance(task, passed)) {
    cell_t *cell = &cells[(task->number + 1) % threads * CELLS + workload_below(&task->state, CELLS)];
    block = atomic_exchange_explicit(&cell->block, block, memory_order_acq_rel);
  }
  free(block);
}

static void replace(task_t *task, void **block, uint32_t size) {
  if (*block != NULL && chance(task, resized)) {
    *block = use(realloc(*block, size), size);
    return;
  }
  give(task, *block);
  *block = take(task, size);
}

/* The depth goes up and down at random, each time by at most a quarter of the slots. */
static void run_stack(task_t *task) {
  uint32_t depth = 0;
  for (uint64_t step = 0; step < steps; step += slots / 8 + 1) {
    bool up = workload_below(&task->state, 2) != 0;
    for (uint32_t left = 1 + workload_below(&task->state, slots / 4 + 1); left > 0; left--) {
      if (up && depth < slots) task->blocks[depth++] = take(task, size_of(task));
      if (!up && depth > 0) give(task, task->blocks[--depth]);
    }
  }
  while (depth > 0) give(task, task->blocks[--depth]);
  memset(task->blocks, 0, slots * sizeof *task->blocks);
}

static uint32_t divisor(uint32_t one, uint32_t other) { return other == 0 ? one : divisor(other, one % other); }

/* Fills all slots, and then frees all blocks in some order. */
static void run_filled(task_t *task) {
  uint32_t stride = pattern == SHUFFLED ? slots / 8 * 5 | 1 : 1;
  while (divisor(stride, slots) != 1) stride += 2;
  for (uint64_t step = 0; step < steps; step += slots) {
    for (uint32_t i = 0; i < slots; i++) task->blocks[i] = take(task, size_of(task));
    for (uint64_t i = 0; i < slots; i++) {
      uint64_t at = i * stride % slots;
      give(task, task->blocks[pattern == REVERSE ? slots - 1 - at : at]);
    }
    memset(task->blocks, 0, slots * sizeof *task->blocks);
  }
}

/* Grows blocks by realloc, by half each time, up to the largest size. */
static void run_grow(task_t *task) {
  for (uint64_t step = 0; step < steps;) {
    void *block = NULL;
    for (uint64_t size = smallest; size <= largest; size += size / 2 + 1, step++) block = use(realloc(block, size), size);
    void **slot = &task->blocks[workload_below(&task->state, slots)];
    give(task, *slot);
    *slot = block;
  }
}

/* Of ten blocks nine are freed soon, and one lives long. */
static void run_young(task_t *task) {
  void *nursery[NURSERY] = {NULL};
  for (uint64_t step = 0; step < steps; step++) {
    void **young = &nursery[step % NURSERY], **old = &task->blocks[workload_below(&task->state, slots)];
    bool stays = workload_below(&task->state, DIES_YOUNG) == 0;
    give(task, stays ? *old : *young);
    if (stays) *old = *young;
    *young = take(task, size_of(task));
  }
  for (unsigned i = 0; i < NURSERY; i++) give(task, nursery[i]);
}

static void run_slots(task_t *task) {
  for (uint64_t step = 0; step < steps; step++) {
    uint32_t at = pattern == QUEUE ? (uint32_t)(step % slots) : workload_below(&task->state, slots), size = size_of(task);
    if (pattern == SHIFT) size >>= 3 - step * 4 / steps; /* sizes grow from an eighth to the whole */
    replace(task, &task->blocks[at], size < WORKLOAD_SMALLEST ? WORKLOAD_SMALLEST : size);
  }
}

static void *run(void *task) {
  switch (pattern) {
    case STACK: run_stack(task); break;
    case FORWARD:
    case REVERSE:
    case SHUFFLED: run_filled(task); break;
    case GROW: run_grow(task); break;
    case YOUNG: run_young(task); break;
    default: run_slots(task);
  }
  return NULL;
}

int main(int argc, char **argv) {
  static task_t tasks[WORKLOAD_THREADS];
  enum { PATTERN, THREADS, SLOTS, STEPS, SIZE_LEAST, SIZE_MOST, SIZES, WRITTEN, ZEROED, RESIZED, ALIGNED, PASSED, ROUNDS, SEED, ARGUMENTS };
#define PERCENT(name) {name, 0, 0, 100}
  workload_argument_t arguments[] = {{"replace|stack|queue|forward|reverse|shuffled|grow|young|shift", 0, 0, 0},
                                     WORKLOAD_THREAD_COUNT(1),
                                     WORKLOAD_COUNT("slots", 1000),
                                     WORKLOAD_STEPS(1000000),
                                     WORKLOAD_SIZE("smallest", 16),
                                     WORKLOAD_SIZE("largest", 1000),
                                     {"even|doubling|falling|few", 0, 0, 0},
                                     {"first|ends|all", ENDS, 0, 0},
                                     PERCENT("zeroed"),
                                     PERCENT("resized"),
                                     PERCENT("aligned"),
                                     PERCENT("passed"),
                                     WORKLOAD_COUNT("rounds", 1),
                                     WORKLOAD_SEED};
  workload_arguments(argc, argv, arguments, ARGUMENTS);
  uint32_t *const values[] = {&pattern, &threads, &slots,  &steps,   &smallest, &largest,
                              &sizes,   &written, &zeroed, &resized, &aligned,  &passed};
  for (unsigned i = 0; i < sizeof values / sizeof *values; i++) *values[i] = (uint32_t)arguments[i].value;
  if (smallest > largest) workload_fail("the smallest is larger than the largest");
  cells = aligned_alloc(WORKLOAD_APART, threads * CELLS * sizeof *cells);
  if (cells == NULL) workload_fail("a table was refused");
  memset(cells, 0, threads * CELLS * sizeof *cells);
  for (uint32_t i = 0; i < threads; i++) {
    tasks[i] = (task_t){.state = workload_seed(arguments[SEED].value, i), .number = i, .blocks = workload_table(slots, sizeof(void *))};
  }
  double begin = workload_seconds();
  workload_threads(run, tasks, sizeof *tasks, threads, arguments[ROUNDS].value);
  workload_report("drawn", 2 * (uint64_t)steps * threads * arguments[ROUNDS].value, workload_seconds() - begin);
  return 0;
}
