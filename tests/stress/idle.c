/* idle.c - memory that is given back to the system, and memory that is not taken twice.
 *
 * - free: 200 MiB of small, middle and large blocks are freed, and the program then
 *   only sleeps: without a further call its resident set falls to within 16 MiB of its
 *   start, and some seconds later it has one thread, as at the start
 * - limited: the same as free, after the program has met a limit on its addresses
 * - sleepers: one thread frees blocks of 16 other threads, which then sleep; of each so few
 *   that no other thread helps it: the resident set falls to within 8 MiB of its start
 * - gone: one thread frees most blocks of four other threads that have ended
 * - child: the same as free in the child of a fork that happens while memory is being given
 *   back, and in its parent
 * - holes: of 64 MiB of 512-byte blocks one in 64 stays; malloc_trim(0) gives back
 *   more than half, and the blocks that stay keep their content
 * - last: the last of 200 MiB of small blocks, each alone on its page, are freed when all others have been given back; those that lie in
 *   the thread's bins are given back as well, also with HAKMEM_DECAY_MS=0, which leaves nothing idle
 * - grow: realloc grows a block of 64 MiB, which cannot grow in place, to 192 MiB; the
 *   content stays, and at no time is more than 1.3 times its size resident
 *
 * Each scene is a process of its own.  On another malloc the figures are printed and
 * only content is judged.
 *
 * Arguments: --scene=free, --seed.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "harness.h"

enum { BLOCKS_MOST = 400000, HANG_SECONDS = 300, SETTLE_MS = 15000, POLL_MS = 100, HOLE_SIZE = 512, HOLE_KEPT = 64 };

static const size_t volume = 200 * MIB;
static size_t left_allowed = 16 * MIB;

static void sleep_ms(unsigned ms) {
  struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
  nanosleep(&pause, NULL);
}

/* The threads of this process, as the kernel counts them; opendir would allocate. */
static unsigned threads_now(void) {
  struct stat status;
  if (stat("/proc/self/task", &status) != 0) stress_fail("no /proc/self/task");
  return (unsigned)status.st_nlink - 2;
}

/* ---- free and child ---- */

static void **blocks;

/* Allocates a third of the volume in each kind; returns the number of blocks. */
static size_t volume_take(rng_t *rng) {
  static const size_t least[] = {16, KIB, 40 * KIB}, most[] = {KIB, 32 * KIB, 4 * MIB};
  size_t count = 0;
  for (unsigned kind = 0; kind < 3; kind++)
    for (size_t taken = 0; taken < volume / 3 && count < BLOCKS_MOST; count++) {
      size_t size = least[kind] + rng_below(rng, (uint32_t)(most[kind] - least[kind]));
      blocks[count] = malloc(size);
      if (blocks[count] == NULL) stress_fail("no block of %zu bytes", size);
      memset(blocks[count], (int)count, size);
      taken += size;
    }
  return count;
}

/* Frees the blocks in random order. */
static void volume_free(rng_t *rng, size_t count) {
  for (; count > 0; count--) {
    uint32_t at = rng_below(rng, (uint32_t)count);
    free(blocks[at]);
    blocks[at] = blocks[count - 1];
  }
}

static unsigned own_threads = 1;

/* Sleeps until little is resident and only the program's threads exist, or until the time is over. */
static void settle(const char *name, size_t start) {
  unsigned ms = 0;
  for (; ms < SETTLE_MS && (process_resident() > start + left_allowed || threads_now() > own_threads); ms += POLL_MS) sleep_ms(POLL_MS);
  size_t resident = process_resident();
  size_t left = resident > start ? resident - start : 0;
  stress_say("%s: %zu KiB above the start and %u threads after %u ms of sleep", name, left / KIB, threads_now(), ms);
  if (!stress_on_hakmem()) return;
  stress_expect(left <= left_allowed, "%s: %zu MiB stay resident", name, left / MIB);
  stress_expect(threads_now() == own_threads, "%s: %u threads stay", name, threads_now());
}

/* Makes the table of blocks resident before the start. */
static size_t start_free(void) {
  blocks = pages_take(BLOCKS_MOST * sizeof *blocks);
  memset(blocks, 1, BLOCKS_MOST * sizeof *blocks);
  free(malloc(1));
  stress_expect(threads_now() == 1, "idle: %u threads at the start", threads_now());
  return process_resident();
}

static void scene_free(void) {
  rng_t rng = rng_make(1);
  size_t start = start_free();
  for (int round = 0; round < 2; round++) { /* a second time: what stayed resident must not add up */
    size_t count = volume_take(&rng);
    size_t peak = process_resident();
    volume_free(&rng, count);
    stress_say("free: %zu blocks, %zu MiB resident at most", count, peak / MIB);
    stress_expect(peak >= start + volume, "free: only %zu MiB were resident", peak / MIB);
    settle("free", start);
    start = process_resident();
  }
}

static void scene_child(void) {
  rng_t rng = rng_make(2);
  int status = 1;
  size_t start = start_free();
  volume_free(&rng, volume_take(&rng));
  if (stress_on_hakmem()) stress_expect(threads_now() == 2, "child: %u threads when it forks, which then proves nothing", threads_now());
  pid_t pid = fork();
  if (pid == 0) {
    stress_watch(HANG_SECONDS, "idle, child");
    free(malloc(100 * MIB)); /* the first call in the child */
    settle("child", start);
    exit(stress_finish());
  }
  settle("parent", start);
  waitpid(pid, &status, 0);
  stress_expect(status == 0, "child: ended with status 0x%x", (unsigned)status);
}

/* The library has started no thread before, and now there are no addresses for one. */
static void scene_limited(void) {
  enum { SIZE = 1000 };
  rng_t rng = rng_make(3);
  size_t start = start_free(), count = 0;
  struct rlimit limit;
  if (getrlimit(RLIMIT_AS, &limit) != 0) stress_fail("no limit to lower");
  limit.rlim_cur = process_virtual() + volume;
  if (setrlimit(RLIMIT_AS, &limit) != 0) stress_fail("limits cannot be lowered");
  while (count < BLOCKS_MOST && (blocks[count] = malloc(SIZE)) != NULL) memset(blocks[count++], 1, SIZE);
  stress_expect(count < BLOCKS_MOST && process_resident() > start + volume / 2, "limited: %zu blocks, and no limit was met", count);
  stress_expect(threads_now() == 1, "limited: %u threads before it frees, which then proves nothing", threads_now());
  volume_free(&rng, count);
  settle("limited", start);
}

/* ---- sleepers ---- */

static void take_all(void **taken, int count, size_t size) {
  for (int i = 0; i < count; i++) {
    taken[i] = malloc(size);
    if (taken[i] == NULL) stress_fail("idle: no block of %zu bytes", size);
    memset(taken[i], 1, size);
  }
}

enum { SLEEPERS = 16, SLEEPER_BLOCKS = 200, SLEEPER_SIZE = 32 * 1024 };
static void *sleeper_blocks[SLEEPERS][SLEEPER_BLOCKS];
static pthread_barrier_t all_taken;

static void *take_and_sleep(void *taken) {
  take_all(taken, SLEEPER_BLOCKS, SLEEPER_SIZE);
  pthread_barrier_wait(&all_taken);
  pause(); /* the only signal is the one that ends the process */
  return NULL;
}

static void scene_sleepers(void) {
  pthread_t thread;
  own_threads = 1 + SLEEPERS;
  left_allowed = 8 * MIB;
  free(malloc(1));
  size_t start = process_resident();
  pthread_barrier_init(&all_taken, NULL, 1 + SLEEPERS);
  for (int i = 0; i < SLEEPERS; i++)
    if (pthread_create(&thread, NULL, take_and_sleep, sleeper_blocks[i]) != 0) stress_fail("sleepers: no thread");
  pthread_barrier_wait(&all_taken);
  size_t peak = process_resident();
  stress_expect(peak >= start + (size_t)SLEEPERS * SLEEPER_BLOCKS * SLEEPER_SIZE, "sleepers: only %zu MiB were resident", peak / MIB);
  for (int i = 0; i < SLEEPERS; i++)
    for (int n = 0; n < SLEEPER_BLOCKS; n++) free(sleeper_blocks[i][n]);
  settle("sleepers", start);
}

/* ---- gone ---- */

enum { GONE = 4, GONE_BLOCKS = 10000, GONE_SIZE = 2048, GONE_KEPT = 32 };
static void *gone_blocks[GONE][GONE_BLOCKS];

static void *take_and_end(void *taken) {
  take_all(taken, GONE_BLOCKS, GONE_SIZE);
  return NULL;
}

static void scene_gone(void) {
  pthread_t threads[GONE];
  free(malloc(1));
  size_t start = process_resident();
  for (int i = 0; i < GONE; i++)
    if (pthread_create(&threads[i], NULL, take_and_end, gone_blocks[i]) != 0) stress_fail("gone: no thread");
  for (int i = 0; i < GONE; i++) pthread_join(threads[i], NULL);
  size_t peak = process_resident();
  stress_expect(peak >= start + (size_t)GONE * GONE_BLOCKS * GONE_SIZE, "gone: only %zu MiB were resident", peak / MIB);
  for (int i = 0; i < GONE; i++)
    for (int n = 0; n < GONE_BLOCKS; n++)
      if (n % GONE_KEPT != 0) free(gone_blocks[i][n]);
  settle("gone", start);
}

/* ---- holes ---- */

static void scene_holes(void) {
  const size_t count = 64 * MIB / HOLE_SIZE;
  unsigned char **kept = pages_take(count * sizeof *kept);
  memset(kept, 1, count * sizeof *kept);
  size_t start = process_resident();
  for (size_t i = 0; i < count; i++) {
    kept[i] = malloc(HOLE_SIZE);
    if (kept[i] == NULL) stress_fail("holes: no block");
    memset(kept[i], (int)(i / HOLE_KEPT), HOLE_SIZE);
  }
  for (size_t i = 0; i < count; i++)
    if (i % HOLE_KEPT != 0) free(kept[i]);
  size_t before = process_resident() - start;
  int given = stress_trim();
  size_t after = process_resident() - start;
  stress_say("holes: %zu KiB resident, %zu KiB after malloc_trim", before / KIB, after / KIB);
  for (size_t i = 0; i < count; i += HOLE_KEPT)
    for (size_t at = 0; at < HOLE_SIZE; at++)
      if (kept[i][at] != (unsigned char)(i / HOLE_KEPT)) stress_fail("holes: block %zu changed at %zu", i, at);
  if (!stress_on_hakmem()) return;
  stress_expect(before >= 60 * MIB, "holes: only %zu MiB were resident", before / MIB);
  stress_expect(given == 1 && after < before / 2, "holes: malloc_trim gave %d, %zu MiB stay", given, after / MIB);
}

/* ---- last ---- */

static void scene_last(void) {
  enum { ONE_IN = 32, STEP = 64, SIZES = 16 };
  rng_t rng = rng_make(3);
  size_t start = start_free(), count = 0, kept = 0;
  for (size_t taken = 0; taken < volume && count < BLOCKS_MOST; count++) {
    size_t size = STEP * (1 + rng_below(&rng, SIZES));
    blocks[count] = malloc(size);
    if (blocks[count] == NULL) stress_fail("no block of %zu bytes", size);
    memset(blocks[count], (int)count, size);
    taken += size;
  }
  for (size_t i = 0; i < count; i++) {
    if (rng_below(&rng, ONE_IN) == 0) blocks[kept++] = blocks[i];
    else free(blocks[i]);
  }
  left_allowed = 80 * MIB;
  settle("last, before", start);
  if (stress_on_hakmem()) stress_expect(process_resident() > start + 16 * MIB, "last: few pages are kept, which proves nothing");
  for (size_t i = 0; i < kept; i++) free(blocks[i]);
  left_allowed = 6 * MIB;
  settle("last", start);
}

/* ---- grow ---- */

static void words_fill(uint64_t *words, size_t from, size_t to) {
  for (size_t i = from; i < to; i++) words[i] = rng_mix(i);
}

static void words_check(const uint64_t *words, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (words[i] != rng_mix(i)) stress_fail("grow: word %zu of %zu changed", i, count);
}

static void scene_grow(void) {
  void *walls[4];
  size_t size = 64 * MIB, moves = 0;
  free(malloc(1));
  size_t start = process_resident();
  uint64_t *words = malloc(size);
  if (words == NULL) stress_fail("grow: no block");
  words_fill(words, 0, size / sizeof *words);
  for (unsigned step = 0; step < 4; step++) {
    walls[step] = malloc(8 * MIB); /* keeps the block from growing in place */
    size_t larger = size + 32 * MIB;
    uint64_t *grown = realloc(words, larger);
    if (grown == NULL) stress_fail("grow: no %zu MiB", larger / MIB);
    moves += grown != words;
    words = grown;
    words_check(words, size / sizeof *words);
    words_fill(words, size / sizeof *words, larger / sizeof *words);
    size = larger;
    size_t peak = process_status("VmHWM") - start;
    stress_say("grow: %zu MiB, at most %zu MiB resident so far", size / MIB, peak / MIB);
    if (stress_on_hakmem())
      stress_expect(peak < size + size * 3 / 10, "grow: %zu MiB resident for a block of %zu MiB", peak / MIB, size / MIB);
  }
  words_check(words, size / sizeof *words);
  free(words);
  for (unsigned step = 0; step < 4; step++) free(walls[step]);
  if (stress_on_hakmem()) stress_expect(moves > 0, "grow: it grew in place, which proves nothing");
}

int main(int argc, char **argv) {
  stress_init(argc, argv);
  stress_watch(HANG_SECONDS, "idle");
  static const struct {
    const char *name;
    void (*run)(void);
  } scenes[] = {{"free", scene_free},   {"sleepers", scene_sleepers}, {"gone", scene_gone},       {"child", scene_child},
                {"holes", scene_holes}, {"grow", scene_grow},         {"limited", scene_limited}, {"last", scene_last}};
  const char *scene = stress_word("scene", "free");
  for (unsigned i = 0; i < sizeof scenes / sizeof scenes[0]; i++)
    if (strcmp(scene, scenes[i].name) == 0) {
      scenes[i].run();
      return stress_finish();
    }
  stress_fail("no scene %s", scene);
}
