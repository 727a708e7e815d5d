/* closing.c - opens the two libraries that it is given in turn, ROUNDS times, takes BLOCKS blocks of 1000 bytes by way of each, and closes it.
 * With `apart` none comes to lie where one was, with that and with `end` it ends then. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { ROUNDS = 6, BLOCKS = 10000 };

static void *blocks[2][ROUNDS][BLOCKS];
static void *(*place[2])(size_t);

__attribute__((noinline)) static void use(void *(*take)(size_t), void **to) {
  for (int i = 0; i < BLOCKS; i++) to[i] = take(1000);
}

/* The page of what has gone. */
static void occupy(uintptr_t address) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  if (mmap((void *)(address & ~(page - 1)), page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == MAP_FAILED)
    abort();
}

int main(int argc, char **argv) {
  int met = 0, apart = argc > 3 && strcmp(argv[3], "apart") == 0;
  for (int i = 0; argc > 2 && i < 2 * ROUNDS; i++) {
    void *library = dlopen(argv[1 + i % 2], RTLD_NOW);
    void *(*take)(size_t) = library != NULL ? (void *(*)(size_t))dlsym(library, "outer") : NULL;
    if (take == NULL) return 1;
    met += take == place[1 - i % 2];
    place[i % 2] = take;
    use(take, blocks[i % 2][i / 2]);
    dlclose(library);
    if (apart) occupy((uintptr_t)take);
  }
  if ((met == 0) != apart) return 1; /* nothing would be shown */
  puts("ready");
  fflush(stdout);
  if (argc > 3) return 0;
  pause();
}
