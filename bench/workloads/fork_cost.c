/* fork_cost.c - what fork costs in a process with a heap of a given size, alone or beside idle threads with heaps of their own.
 *
 * A child execs /bin/true, exits, or allocates a little and exits; the three kinds alternate. The time from fork to the return of
 * wait is measured. The executed program runs without a preloaded allocator, whose start is not part of the cost of fork.
 */
#include <sys/resource.h>
#include <sys/wait.h>

#include "ticks.h"

enum { IDLE_MOST = 256, FORKS_MOST = 4096, UNTIMED = 2, CHILD_BLOCKS = 32 };

typedef enum kind { KIND_EXEC, KIND_EXIT, KIND_MALLOC, KINDS } kind_t;

static const char *const kind_names[KINDS] = {"fork and exec", "fork and exit", "fork, malloc, exit"};

typedef struct times {
  uint64_t ticks[FORKS_MOST];
  uint64_t sum, faults;
} times_t;

typedef struct heap {
  _Alignas(WORKLOAD_APART) uint64_t state;
  void **blocks;
  uint32_t count;
} heap_t;

static pthread_barrier_t filled, done;

/* ---- Heaps ---- */

static void heap_fill(heap_t *heap) {
  heap->blocks = workload_table(heap->count, sizeof *heap->blocks);
  for (uint32_t i = 0; i < heap->count; i++) {
    uint32_t size = workload_mixed(&heap->state);
    heap->blocks[i] = workload_block(size, i);
    workload_write_pages(heap->blocks[i], size);
  }
}

static void heap_end(heap_t *heap) {
  for (uint32_t i = 0; i < heap->count; i++) {
    workload_check(heap->blocks[i], i);
    free(heap->blocks[i]);
  }
  free(heap->blocks);
}

static void *idle_run(void *argument) {
  heap_fill(argument);
  pthread_barrier_wait(&filled);
  pthread_barrier_wait(&done);
  heap_end(argument);
  return NULL;
}

/* ---- Forks ---- */

/* Uses many sizes, so that the allocator takes its slow path. */
static void child_allocate(void) {
  void *blocks[CHILD_BLOCKS];
  for (uint32_t i = 0; i < CHILD_BLOCKS; i++) blocks[i] = workload_block((size_t)16 << i % 12, i);
  for (uint32_t i = 0; i < CHILD_BLOCKS; i++) {
    workload_check(blocks[i], i);
    free(blocks[i]);
  }
}

_Noreturn static void child_run(kind_t kind) {
  char *const words[] = {"/bin/true", NULL}, *const nothing[] = {NULL};
  if (kind == KIND_EXEC) {
    execve(words[0], words, nothing);
    _exit(1);
  }
  if (kind == KIND_MALLOC) child_allocate();
  _exit(0);
}

/* Runs one child, and records its time and page faults in `times` unless that is NULL. */
static void fork_once(kind_t kind, times_t *times, uint32_t at) {
  int status;
  struct rusage usage;
  uint64_t begin = ticks_begin();
  pid_t child = fork();
  if (child == 0) child_run(kind);
  pid_t ended = child < 0 ? child : wait4(child, &status, 0, &usage);
  uint64_t ticks = ticks_end() - begin;
  if (ended != child || child < 0 || !WIFEXITED(status) || WEXITSTATUS(status) != 0) workload_fail("a child was refused, or failed");
  if (times == NULL) return;
  times->ticks[at] = ticks;
  times->sum += ticks;
  times->faults += (uint64_t)usage.ru_minflt;
}

static int by_value(const void *one, const void *other) {
  uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)other;
  return (a > b) - (a < b);
}

static void kind_report(kind_t kind, times_t *times, uint32_t count, double tick) {
  qsort(times->ticks, count, sizeof *times->ticks, by_value);
  const struct {
    const char *name;
    double value;
    const char *unit;
  } figures[] = {
      {"mean", (double)times->sum / count * tick, "ns"},
      {"p50", (double)times->ticks[count / 2] * tick, "ns"},
      {"p99", (double)times->ticks[(uint32_t)((uint64_t)count * 99 / 100)] * tick, "ns"},
      {"page faults of a child", (double)times->faults / count, ""},
  };
  for (size_t i = 0; i < sizeof figures / sizeof *figures; i++) {
    char name[64];
    snprintf(name, sizeof name, "%s, %s", kind_names[kind], figures[i].name);
    workload_figure(name, figures[i].value, figures[i].unit);
  }
}

static void forks_run(uint32_t count) {
  static times_t times[KINDS];
  double tick = ticks_calibrate();
  for (uint32_t i = 0; i < UNTIMED; i++)
    for (kind_t kind = 0; kind < KINDS; kind++) fork_once(kind, NULL, 0);
  double begin = workload_seconds();
  for (uint32_t i = 0; i < count; i++)
    for (kind_t kind = 0; kind < KINDS; kind++) fork_once(kind, &times[kind], i);
  double seconds = workload_seconds() - begin;
  uint64_t resident = workload_resident_kib();
  workload_report("fork_cost", (uint64_t)KINDS * count, seconds);
  for (kind_t kind = 0; kind < KINDS; kind++) kind_report(kind, &times[kind], count, tick);
  workload_fact("resident", (double)resident, "KiB");
}

int main(int argc, char **argv) {
  static heap_t heaps[IDLE_MOST + 1]; /* the last one belongs to the thread that forks */
  static pthread_t handles[IDLE_MOST];
  enum { MEBIBYTES, IDLE, FORKS, SEED, ARGUMENTS };
  workload_argument_t arguments[] = {
      {"mebibytes", 1024, 1, 65536}, {"idle-threads", 0, 0, IDLE_MOST}, {"forks", 300, 1, FORKS_MOST}, WORKLOAD_SEED};
  workload_arguments(argc, argv, arguments, ARGUMENTS);
  uint32_t idle = (uint32_t)arguments[IDLE].value;
  for (uint32_t i = 0; i <= idle; i++) {
    heaps[i].state = workload_seed(arguments[SEED].value, i);
    heaps[i].count = (uint32_t)((arguments[MEBIBYTES].value << 20) / WORKLOAD_MIXED_MEAN / (idle + 1));
  }
  pthread_barrier_init(&filled, NULL, idle + 1);
  pthread_barrier_init(&done, NULL, idle + 1);
  for (uint32_t i = 0; i < idle; i++)
    if (pthread_create(&handles[i], NULL, idle_run, &heaps[i]) != 0) workload_fail("a thread was refused");
  heap_fill(&heaps[idle]);
  pthread_barrier_wait(&filled);
  forks_run((uint32_t)arguments[FORKS].value);
  pthread_barrier_wait(&done);
  for (uint32_t i = 0; i < idle; i++) workload_join(handles[i]);
  heap_end(&heaps[idle]);
  return 0;
}
