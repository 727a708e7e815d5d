/* remote.c - blocks freed by threads that did not allocate them, with bounded memory.
 *
 * Each scene keeps at most --live bytes (370 MiB, as requested) and
 * requires that resident memory stays below live x 450 / 370 at all times:
 *
 * - flow: A allocates, B frees in order and never allocates, for a given volume
 * - mixed: the same, but B frees a random one of the live blocks
 * - exited: each A allocates its share and ends; B frees after that
 * - idle: each A allocates everything, then sleeps; B frees it all; the next A allocates
 * - sleepers: the main thread allocates everything, 48 threads free a share each and
 *   sleep; then again, with 48 more
 * - ring: every thread allocates a batch, and frees the batch of its neighbour
 *
 * In the scene idle the freed memory may take --settle=60 seconds to be
 * available again, since only a tick can collect it; after that the limit holds.
 *
 * Arguments: --scene=all, --live=370M, --volume=8G (bytes allocated in a scene), --settle=60, --seed.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness.h"

enum { QUEUE_SIZE = 1 << 22, RING_THREADS = 8, SMALLEST = 16, SIZE_BITS = 15, SAMPLE_EVERY = 4096, HANG_SECONDS = 600 };

typedef struct parcel {
  _Atomic(uint64_t *) block; /* its first word holds the size */
} parcel_t;

static parcel_t *queue; /* a ring of QUEUE_SIZE parcels: one producer, one consumer */
static atomic_size_t live;
static size_t live_limit, resident_limit, resident_start, resident_peak;
static uint64_t volume;

/* ---- Blocks ---- */

static size_t size_pick(rng_t *rng) {
  size_t size = SMALLEST + rng_size(rng, SIZE_BITS);
  return size & ~(size_t)7;
}

/* Every byte is written, so that every page is resident. */
static uint64_t *block_make(size_t size) {
  uint64_t *block = malloc(size);
  if (block == NULL) stress_fail("no block of %zu bytes with %zu live", size, (size_t)atomic_load(&live));
  memset(block, 0x5a, size);
  block[0] = size;
  atomic_fetch_add_explicit(&live, size, memory_order_relaxed);
  return block;
}

static void block_free(uint64_t *block) {
  size_t size = block[0];
  if (size < SMALLEST || size > ((size_t)1 << SIZE_BITS) + SMALLEST || (size > 16 && block[size / 8 - 1] != UINT64_C(0x5a5a5a5a5a5a5a5a)))
    stress_fail("block %p is damaged: size word %zu", (void *)block, size);
  atomic_fetch_sub_explicit(&live, size, memory_order_relaxed);
  free(block);
}

/* ---- The limit ---- */

static size_t resident_sample(void) {
  size_t resident = process_resident() - resident_start;
  if (resident > resident_peak) resident_peak = resident;
  return resident;
}

static void scene_begin(const char *name) {
  stress_watch((unsigned)(HANG_SECONDS + volume / (64 * MIB)), name);
  resident_peak = 0;
}

static void scene_end(const char *name, uint64_t begin, uint64_t done) {
  resident_sample();
  stress_say("%s: %llu MiB allocated in %.1f s, live up to %zu MiB, resident up to %zu MiB (limit %zu)", name,
             (unsigned long long)(done / MIB), (double)(clock_ns() - begin) / 1e9, live_limit / MIB, resident_peak / MIB,
             resident_limit / MIB);
  stress_expect(resident_peak <= resident_limit, "scene %s: %zu MiB resident with at most %zu MiB live", name, resident_peak / MIB,
                live_limit / MIB);
  stress_expect(atomic_load(&live) == 0, "scene %s: the program lost %zu bytes", name, (size_t)atomic_load(&live));
}

/* ---- flow and mixed ---- */

typedef struct flow {
  bool mixed;
  uint64_t done;
  atomic_bool ended;
} flow_t;

static void *flow_produce(void *argument) {
  flow_t *flow = argument;
  rng_t rng = rng_make(1);
  for (size_t i = 0; flow->done < volume; i++) {
    size_t size = size_pick(&rng);
    while (atomic_load_explicit(&live, memory_order_relaxed) + size > live_limit ||
           atomic_load_explicit(&queue[i % QUEUE_SIZE].block, memory_order_relaxed) != NULL)
      sched_yield();
    atomic_store_explicit(&queue[i % QUEUE_SIZE].block, block_make(size), memory_order_release);
    flow->done += size;
    if (i % SAMPLE_EVERY == 0) resident_sample();
  }
  atomic_store(&flow->ended, true);
  return NULL;
}

/* Frees in order once the live set is full; with `mixed`, first swaps each block with a random later one. */
static void *flow_consume(void *argument) {
  flow_t *flow = argument;
  rng_t rng = rng_make(2);
  const uint32_t reach = 65536;
  for (size_t i = 0;;) {
    bool ended = atomic_load(&flow->ended);
    _Atomic(uint64_t *) *place = &queue[i % QUEUE_SIZE].block;
    uint64_t *block = atomic_load_explicit(place, memory_order_acquire);
    if (block == NULL && ended) return NULL;
    if (block == NULL || (!ended && atomic_load_explicit(&live, memory_order_relaxed) < live_limit - MIB)) {
      sched_yield();
      continue;
    }
    if (flow->mixed) {
      _Atomic(uint64_t *) *other = &queue[(i + rng_below(&rng, reach)) % QUEUE_SIZE].block;
      uint64_t *later = atomic_load_explicit(other, memory_order_acquire);
      if (later != NULL && other != place) {
        atomic_store_explicit(other, block, memory_order_relaxed);
        block = later;
      }
    }
    atomic_store_explicit(place, NULL, memory_order_relaxed);
    block_free(block);
    i++;
  }
}

static void thread_start(pthread_t *handle, void *(*run)(void *), void *argument) {
  if (pthread_create(handle, NULL, run, argument) != 0) stress_fail("no thread");
}

static void scene_flow(const char *name, bool mixed) {
  flow_t flow = {.mixed = mixed};
  pthread_t producer, consumer;
  uint64_t begin = clock_ns();
  scene_begin(name);
  thread_start(&consumer, flow_consume, &flow);
  thread_start(&producer, flow_produce, &flow);
  pthread_join(producer, NULL);
  pthread_join(consumer, NULL);
  scene_end(name, begin, flow.done);
}

/* ---- exited and idle: many owners, one after the other ---- */

typedef struct owner {
  pthread_t handle;
  uint64_t stream;
  size_t share; /* bytes to allocate */
  size_t count; /* blocks allocated, in queue[0..count) */
  bool stays;
  pthread_barrier_t *filled;
  pthread_barrier_t *leave;
} owner_t;

static void *owner_run(void *argument) {
  owner_t *owner = argument;
  rng_t rng = rng_make(owner->stream);
  for (size_t done = 0; done < owner->share;) {
    size_t size = size_pick(&rng);
    atomic_store(&queue[owner->count++].block, block_make(size));
    done += size;
    if (owner->count % SAMPLE_EVERY == 0) resident_sample();
  }
  if (owner->stays) {
    pthread_barrier_wait(owner->filled);
    pthread_barrier_wait(owner->leave);
  }
  return NULL;
}

static void *freer_run(void *argument) {
  size_t count = *(size_t *)argument;
  for (size_t i = 0; i < count; i++) block_free(atomic_exchange(&queue[i].block, NULL));
  return NULL;
}

static void freer_wait(size_t count) {
  pthread_t freer;
  thread_start(&freer, freer_run, &count);
  pthread_join(freer, NULL);
}

static void scene_exited(void) {
  uint64_t begin = clock_ns(), done = 0;
  scene_begin("exited");
  for (uint64_t round = 0; done < volume; round++) {
    owner_t owner = {.stream = 100 + round, .share = live_limit - 64 * KIB};
    thread_start(&owner.handle, owner_run, &owner);
    pthread_join(owner.handle, NULL);
    freer_wait(owner.count);
    done += owner.share;
  }
  scene_end("exited", begin, done);
}

/* Waits until the freed memory can be used again: until resident memory is at a quarter of the limit, or the time is over. */
static void settle(uint64_t seconds) {
  uint64_t begin = clock_ns();
  size_t at_once = process_resident() - resident_start;
  while (process_resident() - resident_start > live_limit / 4 && clock_ns() - begin < seconds * 1000000000u) usleep(20000);
  stress_say("idle: resident %zu MiB after all was freed, %zu MiB after %.1f s", at_once / MIB, (process_resident() - resident_start) / MIB,
             (double)(clock_ns() - begin) / 1e9);
}

static void scene_idle(void) {
  enum { OWNERS = 5 };
  static owner_t owners[OWNERS];
  static pthread_barrier_t filled[OWNERS], leave;
  uint64_t begin = clock_ns(), done = 0;
  scene_begin("idle");
  pthread_barrier_init(&leave, NULL, OWNERS + 1);
  for (unsigned i = 0; i < OWNERS; i++) {
    pthread_barrier_init(&filled[i], NULL, 2);
    owners[i] = (owner_t){.stream = 200 + i, .share = live_limit - 64 * KIB, .stays = true, .filled = &filled[i], .leave = &leave};
    thread_start(&owners[i].handle, owner_run, &owners[i]);
    pthread_barrier_wait(&filled[i]);
    resident_sample();
    freer_wait(owners[i].count);
    done += owners[i].share;
    settle(stress_option("settle", 60));
  }
  pthread_barrier_wait(&leave);
  for (unsigned i = 0; i < OWNERS; i++) pthread_join(owners[i].handle, NULL);
  scene_end("idle", begin, done);
}

/* ---- sleepers: many threads that free a little and then only sleep ---- */

typedef struct sleeper {
  pthread_t handle;
  size_t from, to; /* range in the queue */
  pthread_barrier_t *freed, *leave;
} sleeper_t;

static void *sleeper_run(void *argument) {
  sleeper_t *sleeper = argument;
  for (size_t i = sleeper->from; i < sleeper->to; i++) block_free(atomic_exchange(&queue[i].block, NULL));
  pthread_barrier_wait(sleeper->freed);
  pthread_barrier_wait(sleeper->leave);
  return NULL;
}

static void scene_sleepers(void) {
  enum { ROUNDS = 4, CROWD = 48 };
  static sleeper_t sleepers[ROUNDS][CROWD];
  pthread_barrier_t freed, leave;
  uint64_t begin = clock_ns(), done = 0;
  scene_begin("sleepers");
  pthread_barrier_init(&freed, NULL, CROWD + 1);
  pthread_barrier_init(&leave, NULL, ROUNDS * CROWD + 1);
  for (unsigned round = 0; round < ROUNDS; round++) {
    owner_t owner = {.stream = 400 + round, .share = live_limit - 64 * KIB};
    owner_run(&owner); /* the main thread owns every block */
    done += owner.share;
    for (unsigned i = 0; i < CROWD; i++) {
      size_t from = owner.count * i / CROWD, to = owner.count * (i + 1) / CROWD;
      sleepers[round][i] = (sleeper_t){.from = from, .to = to, .freed = &freed, .leave = &leave};
      thread_start(&sleepers[round][i].handle, sleeper_run, &sleepers[round][i]);
    }
    pthread_barrier_wait(&freed);
    resident_sample();
  }
  pthread_barrier_wait(&leave);
  for (unsigned i = 0; i < ROUNDS * CROWD; i++) pthread_join(sleepers[i / CROWD][i % CROWD].handle, NULL);
  scene_end("sleepers", begin, done);
}

/* ---- ring ---- */

typedef struct station {
  pthread_t handle;
  unsigned number;
  uint64_t done;
} station_t;

static uint64_t **batches[RING_THREADS][2]; /* by thread and parity of the round */
static pthread_barrier_t ring_turn;

static void *station_run(void *argument) {
  station_t *station = argument;
  rng_t rng = rng_make(300 + station->number);
  size_t share = live_limit / RING_THREADS / 2;
  for (unsigned round = 0; round == 0 || station->done * RING_THREADS < volume; round++) {
    uint64_t **batch = batches[station->number][round % 2];
    size_t count = 0;
    for (size_t bytes = 0; bytes + ((size_t)1 << SIZE_BITS) < share; bytes += batch[count++][0]) batch[count] = block_make(size_pick(&rng));
    batch[count] = NULL;
    station->done += share;
    if (station->number == 0) resident_sample();
    pthread_barrier_wait(&ring_turn);
    uint64_t **theirs = batches[(station->number + 1) % RING_THREADS][round % 2];
    for (size_t i = 0; theirs[i] != NULL; i++) block_free(theirs[i]);
  }
  return NULL;
}

static void scene_ring(void) {
  static station_t stations[RING_THREADS];
  uint64_t begin = clock_ns(), done = 0;
  scene_begin("ring");
  pthread_barrier_init(&ring_turn, NULL, RING_THREADS);
  for (unsigned i = 0; i < RING_THREADS; i++) {
    stations[i] = (station_t){.number = i};
    for (unsigned parity = 0; parity < 2; parity++)
      batches[i][parity] = (uint64_t **)(void *)(queue + (2 * i + parity) * (QUEUE_SIZE / RING_THREADS / 2));
    thread_start(&stations[i].handle, station_run, &stations[i]);
  }
  for (unsigned i = 0; i < RING_THREADS; i++) {
    pthread_join(stations[i].handle, NULL);
    done += stations[i].done;
  }
  memset(queue, 0, QUEUE_SIZE * sizeof *queue);
  scene_end("ring", begin, done);
}

static bool scene_chosen(const char *name) {
  const char *scene = stress_word("scene", "all");
  return strcmp(scene, "all") == 0 || strcmp(scene, name) == 0;
}

int main(int argc, char **argv) {
  stress_init(argc, argv);
  live_limit = stress_option("live", 370 * MIB);
  volume = stress_count("volume", 8 * KIB * MIB);
  resident_limit = live_limit / 370 * 450;
  queue = pages_take(QUEUE_SIZE * sizeof *queue);
  memset(queue, 0, QUEUE_SIZE * sizeof *queue);
  resident_start = process_resident();
  if (scene_chosen("flow")) scene_flow("flow", false);
  if (scene_chosen("mixed")) scene_flow("mixed", true);
  if (scene_chosen("exited")) scene_exited();
  if (scene_chosen("idle")) scene_idle();
  if (scene_chosen("sleepers")) scene_sleepers();
  if (scene_chosen("ring")) scene_ring();
  return stress_finish();
}
