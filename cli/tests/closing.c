/* closing.c - opens the two libraries that it is given in turn, ROUNDS times, takes BLOCKS blocks of 1000 bytes by way of each, and closes it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { ROUNDS = 6, BLOCKS = 10000 };

static void *blocks[2][ROUNDS][BLOCKS];
static void *(*place[2])(size_t);

__attribute__((noinline)) static void use(void *(*take)(size_t), void **to) {
  for (int i = 0; i < BLOCKS; i++) to[i] = take(1000);
}

int main(int argc, char **argv) {
  int met = 0;
  for (int i = 0; argc > 2 && i < 2 * ROUNDS; i++) {
    void *library = dlopen(argv[1 + i % 2], RTLD_NOW);
    void *(*take)(size_t) = library != NULL ? (void *(*)(size_t))dlsym(library, "outer") : NULL;
    if (take == NULL) return 1;
    met += take == place[1 - i % 2];
    place[i % 2] = take;
    use(take, blocks[i % 2][i / 2]);
    dlclose(library);
  }
  if (met == 0) return 1; /* nothing would be shown */
  puts("ready");
  fflush(stdout);
  if (argc > 3) return 0;
  pause();
}
