/* reload.c - the library opened and closed by a program that runs on another
 * malloc, while threads that used it live on.   reload LIBRARY */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

enum { ROUNDS = 100, THREADS = 4 };

static atomic_int finished, round_now;
static void *(*allocate)(size_t);
static void (*release)(void *);

static bool look_up(void *library, const char *name, void *function) {
  void *found = dlsym(library, name);
  memcpy(function, &found, sizeof found);
  return found != NULL;
}

static void use(void) {
  void *blocks[100];
  for (size_t i = 0; i < 100; i++) {
    blocks[i] = allocate(i * i + 1);
    CHECK(blocks[i]);
    if (blocks[i]) memset(blocks[i], 1, i * i + 1);
  }
  for (size_t i = 0; i < 100; i++) release(blocks[i]);
}

/* Uses the library once in each round, and lives until all rounds are over. */
static void *live(void *unused) {
  for (int round = 1; round <= ROUNDS; round++) {
    while (atomic_load(&round_now) < round) usleep(100);
    use();
    atomic_fetch_add(&finished, 1);
  }
  return unused;
}

static void *live_once(void *unused) {
  use();
  return unused;
}

int main(int argc, char **argv) {
  pthread_t threads[THREADS], one;
  if (argc != 2) return 2;
  alarm(120);
  for (int i = 0; i < THREADS; i++)
    if (pthread_create(&threads[i], NULL, live, NULL) != 0) return 2;
  for (int round = 1; round <= ROUNDS; round++) {
    void *library = dlopen(argv[1], round % 2 ? RTLD_NOW | RTLD_LOCAL : RTLD_LAZY | RTLD_LOCAL);
    if (!library) {
      fprintf(stderr, "%s\n", dlerror());
      return 1;
    }
    CHECK(look_up(library, "hak_malloc", &allocate) && look_up(library, "hak_free", &release));
    if (check_failures()) return 1;
    use();
    atomic_store(&round_now, round);
    while (atomic_load(&finished) < round * THREADS) usleep(100);
    if (pthread_create(&one, NULL, live_once, NULL) == 0) pthread_join(one, NULL);
    void *ours = malloc(1000);
    CHECK(ours);
    free(ours);
    CHECK_EQ(dlclose(library), 0);
  }
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  return check_failures() != 0;
}
