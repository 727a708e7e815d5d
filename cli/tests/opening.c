/* opening.c - once a line comes it opens the library that it is given, and takes and frees blocks of 100,000 bytes by way of it for good. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv) {
  puts("ready");
  fflush(stdout);
  if (argc < 2 || getchar() == EOF) return 1;
  void *library = dlopen(argv[1], RTLD_NOW);
  void *(*take)(size_t) = library != NULL ? (void *(*)(size_t))dlsym(library, "outer") : NULL;
  if (take == NULL) return 1;
  for (;;) {
    for (int i = 0; i < 100; i++) free(take(100000));
    usleep(1000);
  }
}
