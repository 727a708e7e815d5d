/* drain.c - blocks in a thread's caches are taken by another thread.
 *
 * - busy: threads allocate and free all the time, now and then sleep or end, while the main thread calls malloc_trim(0) without a pause;
 *   every block keeps its content
 * - trim: threads free much and then wait; the main thread's malloc_trim(0) takes the blocks out of their caches, and the threads' next
 *   blocks keep their content
 * - rest: the same without any call: the process has a deadline for it
 *
 * On another malloc only the content is judged.
 *
 * Arguments: --scene=busy, --threads, --rounds, --seed.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "content.h"
#include "harness.h"

enum { HANG_SECONDS = 300, THREADS_MOST = 64, HELD = 64, SIZES = 24, EACH = 48, SETTLE_MS = 20000, POLL_MS = 20 };

static unsigned thread_count;
static uint64_t round_count;
static _Atomic unsigned running;
static pthread_barrier_t all_free, may_go_on;

static void sleep_us(unsigned us) { nanosleep(&(struct timespec){.tv_nsec = (long)us * 1000}, NULL); }

typedef struct held {
  unsigned char *start;
  size_t size;
  uint64_t id;
} held_t;

static void held_take(held_t *held, size_t size, uint64_t id) {
  *held = (held_t){malloc(size), size & ~(size_t)7, id};
  if (held->start == NULL) stress_fail("no block of %zu bytes", size);
  content_write(held->start, 0, held->size, id);
}

static void held_give(held_t *held) {
  if (held->start == NULL) return;
  size_t at = content_differs(held->start, 0, held->size, held->id);
  if (at != CONTENT_SAME) stress_fail("a block of %zu bytes changed at %zu", held->size, at);
  free(held->start);
  held->start = NULL;
}

/* ---- busy ---- */

/* Mostly a few sizes, so that bins rise and fall by some entries. */
static void *busy_run(void *argument) {
  rng_t rng = rng_make((uint64_t)(uintptr_t)argument);
  held_t held[HELD] = {{0}};
  size_t sizes[4];
  for (unsigned i = 0; i < 4; i++) sizes[i] = 16 + rng_below(&rng, i == 3 ? 30000 : 500);
  for (uint64_t round = 0; round < round_count; round++) {
    held_t *at = &held[rng_below(&rng, HELD)];
    if (at->start != NULL) held_give(at);
    else held_take(at, sizes[rng_below(&rng, 4)], rng_next(&rng));
    if (rng_one_in(&rng, 5000)) sleep_us(200);
  }
  for (unsigned i = 0; i < HELD; i++) held_give(&held[i]);
  atomic_fetch_sub(&running, 1);
  return NULL;
}

static void scene_busy(void) {
  uint64_t trims = 0;
  for (uint64_t stream = 1; stream <= 4 * thread_count; stream += thread_count) {
    pthread_t threads[THREADS_MOST];
    atomic_store(&running, thread_count);
    for (unsigned i = 0; i < thread_count; i++) {
      if (pthread_create(&threads[i], NULL, busy_run, (void *)(uintptr_t)(stream + i)) != 0) stress_fail("no thread");
    }
    for (; atomic_load(&running) != 0; trims++) (void)stress_trim();
    for (unsigned i = 0; i < thread_count; i++) pthread_join(threads[i], NULL);
  }
  stress_say("busy: %llu trims", (unsigned long long)trims);
}

/* ---- trim and rest ---- */

static void *resting_run(void *argument) {
  held_t *held = pages_take(sizeof(held_t) * SIZES * EACH);
  uint64_t id = (uint64_t)(uintptr_t)argument << 32;
  for (unsigned round = 0; round < 2; round++) {
    for (unsigned i = 0; i < SIZES * EACH; i++) held_take(&held[i], 16 + (size_t)(i % SIZES) * 80, ++id);
    for (unsigned i = 0; i < SIZES * EACH; i++) held_give(&held[i]);
    pthread_barrier_wait(&all_free);
    pthread_barrier_wait(&may_go_on);
  }
  return NULL;
}

static uint64_t cached_now(void) {
  hak_stats_t stats;
  return stress_stats(&stats) ? stats.cached : 0;
}

static void scene_rest(bool trims) {
  pthread_t threads[THREADS_MOST];
  pthread_barrier_init(&all_free, NULL, thread_count + 1);
  pthread_barrier_init(&may_go_on, NULL, thread_count + 1);
  for (unsigned i = 0; i < thread_count; i++) {
    if (pthread_create(&threads[i], NULL, resting_run, (void *)(uintptr_t)(i + 1)) != 0) stress_fail("no thread");
  }
  for (unsigned round = 0; round < 2; round++) {
    pthread_barrier_wait(&all_free);
    uint64_t before = cached_now(), after;
    unsigned ms = 0;
    if (trims) (void)stress_trim();
    while ((after = cached_now()) > before / 4 && !trims && ms < SETTLE_MS) sleep_us(POLL_MS * 1000), ms += POLL_MS;
    stress_say("%s: %llu KiB cached, then %llu, after %u ms", trims ? "trim" : "rest", (unsigned long long)(before / KIB),
               (unsigned long long)(after / KIB), ms);
    if (stress_on_hakmem()) stress_expect(before >= thread_count * 64 * KIB && after <= before / 4, "much stays in the threads' caches");
    pthread_barrier_wait(&may_go_on);
  }
  for (unsigned i = 0; i < thread_count; i++) pthread_join(threads[i], NULL);
}

int main(int argc, char **argv) {
  stress_init(argc, argv);
  stress_watch(HANG_SECONDS, "drain");
  const char *scene = stress_word("scene", "busy");
  thread_count = (unsigned)stress_option("threads", 4);
  round_count = stress_count("rounds", 1000000);
  if (thread_count > THREADS_MOST) stress_fail("more than %d threads", THREADS_MOST);
  if (strcmp(scene, "busy") == 0) scene_busy();
  else if (strcmp(scene, "trim") == 0 || strcmp(scene, "rest") == 0) scene_rest(scene[0] == 't');
  else stress_fail("no scene %s", scene);
  return stress_finish();
}
