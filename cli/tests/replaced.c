/* replaced.c - a program that holds as much as before, in other blocks: replaced FILE [MIB]
 *
 * It writes a snapshot to FILE.before and one to FILE.after.  In between a thread has freed and allocated all blocks of `held`, 40 MiB, so
 * often and so fast that samples were given up; and `added` holds MIB more, of the same size. */
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

extern bool hak_profile_write(int fd) __attribute__((weak));

enum { SIZE = 1000, COUNT = (40 << 20) / SIZE, SLICES = 20, ROUNDS = 100 };
static void *blocks[COUNT], *volatile sink;
static pthread_barrier_t turns;

static __attribute__((noinline)) void held(bool slowly) {
  for (int i = 0; i < COUNT; i++) {
    if (slowly && i % (COUNT / SLICES) == 0) usleep(10000); /* so that no sample is given up */
    free(blocks[i]);
    blocks[i] = malloc(SIZE);
  }
}

static __attribute__((noinline)) void added(long mib) {
  for (long i = 0; i < (mib << 20) / SIZE; i++) {
    if (i % (COUNT / SLICES) == 0) usleep(10000);
    sink = malloc(SIZE);
  }
}

/* All is from one call, which makes it one site.  Waits in the end for what never comes, or its slabs would be another thread's. */
static void *hold(void *unused) {
  for (int round = 0; round < ROUNDS; round++) {
    held(round == 0);
    if (round != 0 && round != ROUNDS - 1) continue;
    (void)pthread_barrier_wait(&turns);
    (void)pthread_barrier_wait(&turns);
  }
  return unused;
}

static bool write_snapshot(const char *file, const char *suffix) {
  char name[4096];
  snprintf(name, sizeof name, "%s.%s", file, suffix);
  int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  return fd >= 0 && hak_profile_write != NULL && hak_profile_write(fd) && close(fd) == 0;
}

int main(int count, char **arguments) {
  pthread_t holder;
  if (count < 2 || pthread_barrier_init(&turns, NULL, 2) != 0 || pthread_create(&holder, NULL, hold, NULL) != 0) return 2;
  (void)pthread_barrier_wait(&turns);
  if (!write_snapshot(arguments[1], "before")) return 1;
  (void)pthread_barrier_wait(&turns);
  if (count > 2) added(atol(arguments[2]));
  (void)pthread_barrier_wait(&turns);
  if (!write_snapshot(arguments[1], "after")) return 1;
  (void)!write(1, "ready\n", 6);
  for (;;) pause();
}
