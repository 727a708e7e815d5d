/* many_threads.c - the memory that many threads take, and what remains after them: all at once, or one after the other.
 *
 * Each thread allocates 36 to 47 KiB of blocks, and frees them before it ends. At once: all threads wait until the last one has its
 * blocks; then all end and are joined, and the process is idle. While idle it makes no call that the allocator would see.
 */
#include "figures.h"

enum { THREADS_MOST = 30000 };

/* Allocators find different shapes expensive: a different size for each block if every size has its own memory, tiny blocks if they
 * keep their neighbours from being given back. */
typedef enum shape { SHAPE_WIDE, SHAPE_SMALL, SHAPE_MEDIUM, SHAPES } shape_t;

enum { KINDS_MOST = 25, BLOCKS_MOST = 108 };

static const struct {
  uint32_t size, count;
} shapes[SHAPES][KINDS_MOST] = {
    [SHAPE_WIDE] = {{16, 1},   {48, 1},   {80, 1},   {112, 1},  {160, 1},  {224, 1},  {288, 1},  {352, 1},  {416, 1},
                    {480, 1},  {560, 1},  {640, 1},  {736, 1},  {832, 1},  {960, 1},  {1100, 1}, {1300, 1}, {1500, 1},
                    {1800, 1}, {2200, 1}, {3000, 1}, {4000, 1}, {6000, 1}, {8000, 1}, {12000, 1}},
    [SHAPE_SMALL] = {{32, 32}, {96, 32}, {320, 32}, {1000, 8}, {4000, 4}},
    [SHAPE_MEDIUM] = {{200, 10}, {500, 10}, {1100, 8}, {2200, 2}, {4000, 2}, {12000, 1}},
};

static shape_t shape;
static pthread_barrier_t allocated, measured;

/* ---- A thread ---- */

static uint32_t shape_blocks(void) {
  uint32_t blocks = 0;
  for (uint32_t kind = 0; kind < KINDS_MOST; kind++) blocks += shapes[shape][kind].count;
  return blocks;
}

static void blocks_make(void **blocks) {
  uint32_t made = 0;
  for (uint32_t kind = 0; kind < KINDS_MOST; kind++)
    for (uint32_t i = 0; i < shapes[shape][kind].count; i++, made++) blocks[made] = workload_block(shapes[shape][kind].size, made);
}

static void blocks_end(void **blocks) {
  for (uint32_t i = 0; i < shape_blocks(); i++) {
    workload_check(blocks[i], i);
    free(blocks[i]);
  }
}

static void *run_alone(void *argument) {
  (void)argument;
  void *blocks[BLOCKS_MOST];
  blocks_make(blocks);
  blocks_end(blocks);
  return NULL;
}

static void *run_beside(void *argument) {
  (void)argument;
  void *blocks[BLOCKS_MOST];
  blocks_make(blocks);
  pthread_barrier_wait(&allocated);
  pthread_barrier_wait(&measured);
  blocks_end(blocks);
  return NULL;
}

static pthread_t thread_start(void *(*run)(void *)) {
  pthread_t handle;
  if (pthread_create(&handle, NULL, run, NULL) != 0) workload_fail("a thread was refused");
  return handle;
}

/* ---- The two ways ---- */

/* A measurement, which is printed at the end. */
typedef struct measured {
  char name[64];
  uint64_t kib;
} measured_t;

static void at_once(uint32_t threads, uint64_t idle_ms) {
  static pthread_t handles[THREADS_MOST];
  pthread_barrier_init(&allocated, NULL, threads + 1);
  pthread_barrier_init(&measured, NULL, threads + 1);
  double begin = workload_seconds();
  for (uint32_t i = 0; i < threads; i++) handles[i] = thread_start(run_beside);
  pthread_barrier_wait(&allocated);
  uint64_t live = workload_resident_kib();
  pthread_barrier_wait(&measured);
  for (uint32_t i = 0; i < threads; i++) workload_join(handles[i]);
  double seconds = workload_seconds() - begin;
  uint64_t left = workload_resident_kib(), soon_ms = idle_ms / 6;
  workload_sleep(soon_ms * 1000000);
  uint64_t soon = workload_resident_kib();
  workload_sleep((idle_ms - soon_ms) * 1000000);
  measured_t figures[] = {
      {"peak", workload_status_kib("VmHWM:")}, {"all live", live}, {"left at once", left}, {"", soon}, {"", workload_resident_kib()}};
  snprintf(figures[3].name, sizeof figures[3].name, "left after %g s idle", (double)soon_ms / 1e3);
  snprintf(figures[4].name, sizeof figures[4].name, "left after %g s idle", (double)idle_ms / 1e3);
  workload_report("many_threads", (uint64_t)2 * shape_blocks() * threads, seconds);
  for (size_t i = 0; i < sizeof figures / sizeof *figures; i++) workload_figure(figures[i].name, (double)figures[i].kib, "KiB");
}

static void in_turn(uint32_t threads) {
  static const uint32_t parts[] = {20, 2, 1};
  enum { PARTS = sizeof parts / sizeof *parts };
  measured_t figures[PARTS];
  uint32_t part = 0, taken = 0, last = 0;
  double begin = workload_seconds();
  for (uint32_t i = 1; i <= threads; i++) {
    workload_join(thread_start(run_alone));
    for (; part < PARTS && i >= threads / parts[part]; part++) {
      if (last == i) continue; /* with few threads, parts coincide */
      last = i;
      snprintf(figures[taken].name, sizeof figures[taken].name, "after %u threads", i);
      figures[taken++].kib = workload_resident_kib();
    }
  }
  workload_report("many_threads", (uint64_t)2 * shape_blocks() * threads, workload_seconds() - begin);
  for (uint32_t i = 0; i < taken; i++) workload_figure(figures[i].name, (double)figures[i].kib, "KiB");
}

int main(int argc, char **argv) {
  enum { WAY, SHAPE, THREADS, IDLE, ARGUMENTS };
  workload_argument_t arguments[] = {{"at-once|in-turn", 0, 0, 0},
                                     {"wide|small|medium", SHAPE_WIDE, 0, 0},
                                     {"threads", 4000, 1, THREADS_MOST},
                                     {"idle-milliseconds", 12000, 0, 600000}};
  workload_arguments(argc, argv, arguments, ARGUMENTS);
  shape = (shape_t)arguments[SHAPE].value;
  if (arguments[WAY].value == 0) at_once((uint32_t)arguments[THREADS].value, arguments[IDLE].value);
  else in_turn((uint32_t)arguments[THREADS].value);
  return 0;
}
