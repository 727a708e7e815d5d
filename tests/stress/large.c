/* large.c - a heap of some GiB in large blocks, which threads replace by blocks of other sizes.
 *
 * Each thread takes blocks out of a common table, frees or resizes them, and puts others there: from 33 KiB to 8 MiB, some with a large
 * alignment.  A block is written only at both ends, so that little of the heap is resident.  After each round everything is freed.
 *
 * Checked: the written content; and on hakmem, that later rounds use the memory that earlier rounds have left: at the end the heap has
 * at most twice as many 2 MiB pieces as after the first round, and as many live bytes as at the start.
 *
 * Arguments: --ops=80K (in all rounds, of which there are at least three), --threads=4, --blocks=1500, --seed.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"
#include "names.h"

/* A round fills nearly every place of the table, so that each round needs the same amount of memory. */
enum { THREADS_MAX = 64, BLOCKS_MAX = 100000, OPS_A_BLOCK = 4, ROUNDS_LEAST = 3, HANG_SECONDS = 600 };
#define SMALLEST (33 * KIB)

/* The mark at both ends of a block. */
typedef struct mark {
  size_t size;
  uint64_t key;
} mark_t;

typedef struct worker {
  pthread_t handle;
  unsigned number;
  uint64_t ops;
} worker_t;

static _Atomic(mark_t *) table[BLOCKS_MAX];
static unsigned blocks;

static mark_t *last_of(mark_t *first) { return (mark_t *)(void *)((char *)first + first->size) - 1; }

static mark_t *block_write(void *at, size_t size, uint64_t key) {
  mark_t *first = at;
  if (first == NULL) stress_fail("no memory for %zu bytes", size);
  *first = (mark_t){size, key};
  *last_of(first) = (mark_t){size, ~key};
  return first;
}

static void block_check(mark_t *first) {
  const mark_t *last = last_of(first);
  if (last->size != first->size || last->key != ~first->key) stress_fail("a block of %zu bytes has another's end", first->size);
}

static void block_end(mark_t *first) {
  if (first == NULL) return;
  block_check(first);
  free(first);
}

/* 33 KiB to 8 MiB, with the same chance for each doubling; rounded, so that both ends are aligned. */
static size_t size_pick(rng_t *rng) {
  size_t low = SMALLEST << rng_below(rng, 8);
  return (low + rng_below(rng, (uint32_t)low)) / sizeof(mark_t) * sizeof(mark_t);
}

static mark_t *block_make(rng_t *rng) {
  size_t size = size_pick(rng);
  uint64_t key = rng_next(rng);
  if (!rng_one_in(rng, 8)) return block_write(malloc(size), size, key);
  void *wide = NULL;
  return block_write(posix_memalign(&wide, (size_t)4096 << rng_below(rng, 13), size) == 0 ? wide : NULL, size, key);
}

static mark_t *block_resize(rng_t *rng, mark_t *first) {
  size_t size = size_pick(rng), before = first->size;
  uint64_t key = first->key;
  block_check(first);
  first = realloc(first, size);
  if (first == NULL || first->size != before || first->key != key)
    stress_fail("realloc of %zu to %zu bytes lost the content", before, size);
  return block_write(first, size, key);
}

static void *work(void *argument) {
  const worker_t *worker = argument;
  rng_t rng = rng_make(worker->number);
  for (uint64_t i = 0; i < worker->ops; i++) {
    _Atomic(mark_t *) *slot = &table[rng_below(&rng, blocks)];
    mark_t *old = atomic_exchange(slot, NULL);
    bool resized = old != NULL && rng_one_in(&rng, 4);
    if (!resized) block_end(old);
    block_end(atomic_exchange(slot, resized ? block_resize(&rng, old) : block_make(&rng)));
  }
  return NULL;
}

static void round_run(unsigned round, unsigned threads, uint64_t ops) {
  static worker_t workers[THREADS_MAX];
  for (unsigned i = 0; i < threads; i++) {
    workers[i] = (worker_t){.number = round * threads + i, .ops = ops / threads};
    if (pthread_create(&workers[i].handle, NULL, work, &workers[i]) != 0) stress_fail("no thread");
  }
  for (unsigned i = 0; i < threads; i++) pthread_join(workers[i].handle, NULL);
}

static void table_empty(void) {
  for (unsigned i = 0; i < blocks; i++) block_end(atomic_exchange(&table[i], NULL));
}

int main(int argc, char **argv) {
  stress_init(argc, argv);
  uint64_t ops = stress_count("ops", 80000), begin = clock_ns(), first = 0;
  unsigned threads = (unsigned)stress_option("threads", 4);
  blocks = (unsigned)stress_option("blocks", 1500);
  if (threads > THREADS_MAX || blocks > BLOCKS_MAX) stress_fail("at most %d threads and %d blocks", THREADS_MAX, BLOCKS_MAX);
  uint64_t ops_a_round = (uint64_t)blocks * OPS_A_BLOCK;
  unsigned rounds = ops / ops_a_round > ROUNDS_LEAST ? (unsigned)(ops / ops_a_round) : ROUNDS_LEAST;
  hak_stats_t before, after;
  bool hakmem = stress_stats(&before);
  for (unsigned round = 0; round < rounds; round++) {
    stress_watch(HANG_SECONDS, "a round");
    round_run(round, threads, ops_a_round);
    if (hakmem && stress_stats(&after) && round == 0) first = after.superslabs;
    table_empty();
  }
  if (hakmem && stress_stats(&after)) {
    stress_say("%llu times 2 MiB after a round, %llu after %u, in %.1f s", (unsigned long long)first, (unsigned long long)after.superslabs,
               rounds, (double)(clock_ns() - begin) / 1e9);
    stress_expect(after.superslabs <= 2 * first, "%llu times 2 MiB, after one round %llu", (unsigned long long)after.superslabs,
                  (unsigned long long)first);
    stress_expect(after.live <= before.live + 64 * KIB, "live bytes: %llu at the start, %llu at the end", (unsigned long long)before.live,
                  (unsigned long long)after.live);
  }
  return stress_finish();
}
