/* known.c - programs whose heaps are known, to be read from outside: known MODE FILE
 *
 *   rest    blocks of all sizes, some of them freed by another thread, one that came and went often; writes a snapshot to FILE, and a
 *           profile for pprof to FILE.pb; then nothing moves any more
 *   drained a thread rests, and most of what it had in its bins was taken from it; the same files
 *   apart   blocks of one function that stay, each beside fifteen of another one that are freed
 *   churn   threads that allocate and free, also each other's blocks, for as long as it runs
 *   big     MiB, as FILE says, in small blocks, every eighth of them free */
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

extern bool hak_profile_write(int fd) __attribute__((weak));
extern bool hak_profile_pprof(int fd) __attribute__((weak));

static uint32_t below(uint32_t *state, uint32_t end) {
  *state = *state * 1103515245u + 12345u;
  return (uint32_t)((uint64_t)*state * end >> 32);
}

static void ready(void) { (void)!write(1, "ready\n", 6); }

/* ---- rest ---- */

enum { BLOCKS = 30000, LARGE = 50, FREED_BY_OTHERS = 3000, OFTEN = 20000, OTHERS = 90 };
static void *blocks[BLOCKS], *large[LARGE], *volatile often[2], *others[OTHERS];

/* Blocks that come and go too often to be looked at; one stays.  That is counted by the second, so not across the end of one. */
static void come_and_go(void) {
  struct timespec now;
  while (clock_gettime(CLOCK_MONOTONIC, &now) == 0 && now.tv_nsec > 800000000) usleep(10000);
  for (int i = 0; i < OFTEN; i++) {
    free(often[i % 2]);
    often[i % 2] = malloc(200);
  }
  free(often[0]);
}

static void *free_some(void *unused) {
  for (int i = 0; i < FREED_BY_OTHERS; i += 3) free(blocks[i]);
  return unused;
}

static __attribute__((noinline)) void *stays(void) {
  char *block = malloc(250);
  *block = 1;
  return block;
}

static __attribute__((noinline)) void *goes(void) {
  char *block = malloc(250);
  *block = 2;
  return block;
}

static int tell_and_wait(const char *file) {
  char other[4096];
  snprintf(other, sizeof other, "%s.pb", file);
  int fd = open(file, O_WRONLY | O_CREAT | O_TRUNC, 0600), second = open(other, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (fd < 0 || second < 0 || hak_profile_write == NULL || hak_profile_pprof == NULL) return 1;
  if (!hak_profile_write(fd) || !hak_profile_pprof(second)) return 1;
  close(fd);
  close(second);
  ready();
  for (;;) pause();
}

static int rest(const char *file) {
  uint32_t state = 1;
  for (int i = 0; i < BLOCKS; i++) blocks[i] = malloc(1 + below(&state, 3000) * (i % 50 == 0 ? 10 : 1));
  for (int i = FREED_BY_OTHERS; i < BLOCKS; i += 5) free(blocks[i]);
  for (int i = 0; i < LARGE; i++) large[i] = malloc(40000 + (size_t)i * (i % 2 == 0 ? 1000 : 30000));
  for (int i = 0; i < LARGE; i += 4) free(large[i]);
  for (int i = 0; i < 1 << 20; i += 4096) (void)*(volatile char *)((char *)large[LARGE - 1] + i); /* the kernel's page of zeros */
  blocks[0] = malloc(0);
  for (int i = 0; i < OTHERS; i++) others[i] = i % 3 == 1 ? goes() : stays();
  for (int i = 0; i < OTHERS; i++) {
    if (i % 3 != 0) free(others[i]);
  }
  come_and_go();
  for (int i = 0; i < 2; i++) { /* the second's are others' remote frees, not the marker's */
    pthread_t thread;
    if (i == 1) memmove(blocks, blocks + 1, FREED_BY_OTHERS * sizeof *blocks);
    if (pthread_create(&thread, NULL, free_some, NULL) != 0 || pthread_join(thread, NULL) != 0) return 1;
  }
  return tell_and_wait(file);
}

/* ---- apart ---- */

static int apart(void) {
  for (int i = 0; i < BLOCKS; i++) blocks[i] = i % 16 == 0 ? stays() : goes();
  for (int i = 0; i < BLOCKS; i++) {
    if (i % 16 != 0) free(blocks[i]);
  }
  ready();
  for (;;) pause();
}

/* ---- churn ---- */

enum { THREADS = 3, SLOTS = 1 << 14 };
static void *_Atomic slots[SLOTS];

static void *churn(void *seed) {
  uint32_t state = (uint32_t)(uintptr_t)seed;
  for (;;) {
    size_t bytes = below(&state, 512) == 0 ? 30000 + below(&state, 100000) : 1 + below(&state, 1000);
    char *block = malloc(bytes);
    *block = 1;
    free(__atomic_exchange_n((void **)&slots[below(&state, SLOTS)], block, __ATOMIC_ACQ_REL));
  }
}

static int run(void) {
  for (uintptr_t i = 1; i <= THREADS; i++) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, churn, (void *)i) != 0) return 1;
  }
  usleep(500000);
  ready();
  for (;;) pause();
}

/* ---- big ---- */

static int big(size_t mib) {
  uint32_t state = 1;
  uint64_t sum = 0;
  for (unsigned i = 0; sum < mib << 20; i++) {
    size_t bytes = 16 + below(&state, 1000);
    char *block = malloc(bytes);
    *block = 1;
    if (i % 8 == 0) free(block);
    else sum += bytes;
  }
  ready();
  for (;;) pause();
}

/* ---- drained ---- */

static pthread_barrier_t freed;

static void *free_and_rest(void *unused) {
  void *some[24][40];
  for (int i = 0; i < 24; i++) {
    for (int k = 0; k < 40; k++) some[i][k] = malloc(16 + 80 * (size_t)i);
  }
  for (int i = 0; i < 24; i++) {
    for (int k = 0; k < 40; k++) free(some[i][k]);
  }
  pthread_barrier_wait(&freed);
  pause();
  return unused;
}

static int drained(const char *file) {
  pthread_t thread;
  pthread_barrier_init(&freed, NULL, 2);
  if (pthread_create(&thread, NULL, free_and_rest, NULL) != 0) return 1;
  pthread_barrier_wait(&freed);
  malloc_trim(0);
  return tell_and_wait(file);
}

int main(int count, char **arguments) {
  const char *mode = count > 1 ? arguments[1] : "", *rest_of = count > 2 ? arguments[2] : "";
  if (strcmp(mode, "rest") == 0) return rest(rest_of);
  if (strcmp(mode, "drained") == 0) return drained(rest_of);
  if (strcmp(mode, "apart") == 0) return apart();
  if (strcmp(mode, "churn") == 0) return run();
  return big((size_t)atoi(rest_of));
}
