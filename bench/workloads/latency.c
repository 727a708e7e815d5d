/* latency.c - the worst-case duration of single calls of malloc and free: every call is timed, over a heap of a given size.
 *
 * Slots hold blocks of mixed sizes. Threads take turns: two are awake at a time, the others sleep. A turn begins at a fixed time
 * after the last one, so that the program sets the rate of calls, which is the same for every allocator. In a turn a thread replaces
 * the blocks of a thousand random slots, most of them its own. Twice a tenth of all blocks is freed, while the rest goes on being
 * replaced, and is allocated anew seconds later: so there is memory to give back, and time to do it. At the end all threads but the
 * main one are gone, and the main thread frees every block.
 *
 * Only the calls are timed, neither the writing of blocks nor the waiting for a turn.
 */
#include <semaphore.h>
#include <stdatomic.h>
#include <sys/resource.h>

#include "ticks.h"

enum {
  THREADS_MOST = 4096,
  AWAKE = 2, /* more threads than processors would time the scheduler */
  STEPS = 1000,
  FOREIGN_EVERY = 16, /* one replacement in this many is in any thread's slot */
  CYCLES = 2,         /* each frees a tenth and allocates it anew */
  ROUNDS_LEAST = 10,
  CHECKED_EVERY = 64, /* a check would bring a cold line into the cache for the allocator */
  SLOW_NANOSECONDS = 100000
};

/* CALL_END is the main thread's free of a block whose thread is gone. */
typedef enum call { CALL_MALLOC, CALL_FREE, CALL_END, CALLS } call_t;

static const char *const call_names[CALLS] = {"malloc", "free", "free at the end"};

/* Shared by the members that take turns with each other; handed over with the turn. */
typedef struct team {
  _Alignas(WORKLOAD_APART) ticks_histogram_t calls[CALLS];
} team_t;

typedef struct member {
  _Alignas(WORKLOAD_APART) sem_t turn;
  uint64_t state;
  uint32_t first, count; /* its own slots */
  team_t *team;
  struct member *next; /* the member whose turn follows; possibly itself */
} member_t;

/* The start of every block. */
typedef struct block {
  uint32_t tag; /* the block's slot */
  uint32_t size;
} block_t;

static _Atomic(block_t *) *slots;
static uint32_t slot_count, round_count;
static uint64_t pause_nanoseconds;
static pthread_barrier_t filled, finished;

/* ---- Timed calls ---- */

static block_t *block_new(member_t *member, ticks_histogram_t *times, uint32_t slot) {
  uint32_t size = workload_mixed(&member->state);
  uint64_t begin = ticks_begin();
  void *memory = malloc(size);
  uint64_t end = ticks_end();
  if (times != NULL) ticks_add(times, begin, end);
  block_t *block = workload_mark(memory, size, slot);
  block->size = size;
  workload_write_pages(block, size);
  return block;
}

static void block_free(ticks_histogram_t *times, block_t *block, uint32_t slot) {
  if (block == NULL) return;
  if (slot % CHECKED_EVERY == 0) workload_check(block, slot);
  uint64_t begin = ticks_begin();
  free(block);
  ticks_add(times, begin, ticks_end());
}

static void slot_set(member_t *member, uint32_t slot, bool full) {
  block_t *block = full ? block_new(member, &member->team->calls[CALL_MALLOC], slot) : NULL;
  block_free(&member->team->calls[CALL_FREE], atomic_exchange_explicit(&slots[slot], block, memory_order_acq_rel), slot);
}

/* ---- A turn ---- */

static uint32_t slot_pick(member_t *member) {
  for (;;) {
    bool foreign = workload_below(&member->state, FOREIGN_EVERY) == 0;
    uint32_t slot = foreign ? workload_below(&member->state, slot_count) : member->first + workload_below(&member->state, member->count);
    if (atomic_load_explicit(&slots[slot], memory_order_relaxed) != NULL) /* a tenth may be empty for now */
      return slot;
  }
}

static void tenth_set(member_t *member, uint32_t tenth, bool full) {
  uint32_t from = (uint32_t)((uint64_t)member->count * tenth / 10);
  uint32_t until = (uint32_t)((uint64_t)member->count * (tenth + 1) / 10);
  for (uint32_t i = from; i < until; i++) slot_set(member, member->first + i, full);
}

static void turn_take(member_t *member, uint32_t round) {
  uint32_t period = round_count / CYCLES, cycle = round / period;
  if (cycle < CYCLES && round % period == period / 5) tenth_set(member, cycle, false);
  if (cycle < CYCLES && round % period == period * 3 / 5) tenth_set(member, cycle, true);
  for (uint32_t i = 0; i < STEPS; i++) slot_set(member, slot_pick(member), true);
}

/* Returns once the turn's time is over. */
static void turn_keep(member_t *member, uint32_t round) {
  struct timespec until;
  clock_gettime(CLOCK_MONOTONIC, &until);
  uint64_t nanoseconds = (uint64_t)until.tv_nsec + pause_nanoseconds;
  until.tv_sec += (time_t)(nanoseconds / 1000000000);
  until.tv_nsec = (long)(nanoseconds % 1000000000);
  turn_take(member, round);
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) != 0);
}

static void *member_run(void *argument) {
  member_t *member = argument;
  for (uint32_t i = 0; i < member->count; i++)
    atomic_store_explicit(&slots[member->first + i], block_new(member, NULL, member->first + i), memory_order_relaxed);
  pthread_barrier_wait(&filled);
  for (uint32_t round = 0; round < round_count; round++) {
    while (sem_wait(&member->turn) != 0);
    turn_keep(member, round);
    sem_post(&member->next->turn);
  }
  pthread_barrier_wait(&finished);
  return NULL;
}

/* ---- All together ---- */

static void members_make(member_t *members, uint32_t count, team_t *teams, uint32_t awake, uint64_t seed) {
  for (uint32_t i = 0; i < count; i++) {
    member_t *member = &members[i];
    sem_init(&member->turn, 0, i < awake);
    member->state = workload_seed(seed, i);
    member->first = (uint32_t)((uint64_t)slot_count * i / count);
    member->count = (uint32_t)((uint64_t)slot_count * (i + 1) / count) - member->first;
    member->team = &teams[i % awake];
    member->next = &members[i + awake < count ? i + awake : i % awake];
  }
}

/* Between the two barriers the main thread does nothing. */
static double members_run(member_t *members, uint32_t count) {
  static pthread_t handles[THREADS_MOST];
  pthread_barrier_init(&filled, NULL, count + 1);
  pthread_barrier_init(&finished, NULL, count + 1);
  for (uint32_t i = 0; i < count; i++)
    if (pthread_create(&handles[i], NULL, member_run, &members[i]) != 0) workload_fail("a thread was refused");
  pthread_barrier_wait(&filled);
  double begin = workload_seconds();
  pthread_barrier_wait(&finished);
  double seconds = workload_seconds() - begin;
  for (uint32_t i = 0; i < count; i++) workload_join(handles[i]);
  return seconds;
}

/* Checks every block, and returns the sum of their sizes. */
static uint64_t slots_live(void) {
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < slot_count; i++) {
    const block_t *block = atomic_load_explicit(&slots[i], memory_order_relaxed);
    workload_check(block, i);
    bytes += block->size;
  }
  return bytes;
}

static void slots_end(ticks_histogram_t *times) {
  for (uint32_t i = 0; i < slot_count; i++) block_free(times, atomic_load_explicit(&slots[i], memory_order_relaxed), i);
  free(slots);
}

static void call_report(const char *call, const ticks_histogram_t *times, double tick) {
  const struct {
    const char *name;
    double value;
    const char *unit;
  } figures[] = {
      {"p50", ticks_percentile(times, 0.5) * tick, "ns"},
      {"p99", ticks_percentile(times, 0.99) * tick, "ns"},
      {"p99.99", ticks_percentile(times, 0.9999) * tick, "ns"},
      {"max", (double)times->most * tick, "ns"},
      {"above 100 us", (double)times->slow, ""},
      {"above 100 us, sum", (double)times->slow_sum * tick, "ns"},
  };
  for (size_t i = 0; i < sizeof figures / sizeof *figures; i++) {
    char name[64];
    snprintf(name, sizeof name, "%s %s", call, figures[i].name);
    workload_figure(name, figures[i].value, figures[i].unit);
  }
}

/* Also frees the remaining blocks. Nothing is printed before that, since stdio allocates. */
static void report(ticks_histogram_t *calls, double tick, double seconds) {
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  uint64_t resident = workload_resident_kib(), live = slots_live();
  slots_end(&calls[CALL_END]);
  double overhead = ticks_overhead();
  workload_report("latency", calls[CALL_MALLOC].count + calls[CALL_FREE].count, seconds);
  for (int call = 0; call < CALLS; call++) call_report(call_names[call], &calls[call], tick);
  workload_figure("resident before the end", (double)resident, "KiB");
  workload_fact("live before the end", (double)(live >> 10), "KiB");
  workload_fact("the clock itself", overhead * tick, "ns");
  workload_fact("calls of malloc", (double)calls[CALL_MALLOC].count, "");
  workload_fact("involuntary switches", (double)usage.ru_nivcsw, "");
}

int main(int argc, char **argv) {
  static member_t members[THREADS_MOST];
  static team_t teams[AWAKE];
  enum { MEBIBYTES, THREADS, ROUNDS, PAUSE, SEED, ARGUMENTS };
  workload_argument_t arguments[] = {{"mebibytes", 1024, 1, 65536},
                                     {"threads", 2, 1, THREADS_MOST},
                                     {"rounds", 6000, ROUNDS_LEAST, 1 << 20},
                                     {"microseconds", 2000, 0, 1000000},
                                     WORKLOAD_SEED};
  workload_arguments(argc, argv, arguments, ARGUMENTS);
  uint32_t threads = (uint32_t)arguments[THREADS].value, awake = threads < AWAKE ? threads : AWAKE;
  round_count = (uint32_t)arguments[ROUNDS].value;
  pause_nanoseconds = arguments[PAUSE].value * 1000;
  slot_count = (uint32_t)((arguments[MEBIBYTES].value << 20) / WORKLOAD_MIXED_MEAN);
  if (slot_count < 20 * threads) workload_fail("too little memory for so many threads");
  slots = workload_table(slot_count, sizeof *slots);
  double tick = ticks_calibrate();
  for (uint32_t i = 0; i < awake; i++)
    for (int call = 0; call < CALLS; call++) teams[i].calls[call].slow_from = (uint64_t)((double)SLOW_NANOSECONDS / tick);
  members_make(members, threads, teams, awake, arguments[SEED].value);
  double seconds = members_run(members, threads);
  for (uint32_t i = 1; i < awake; i++)
    for (int call = 0; call < CALLS; call++) ticks_merge(&teams[0].calls[call], &teams[i].calls[call]);
  report(teams[0].calls, tick, seconds);
  return 0;
}
