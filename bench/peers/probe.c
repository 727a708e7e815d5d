/* probe.c LIBRARY - run with LIBRARY preloaded, checks that the whole malloc family comes from it and works.
 * Exit status 0 if so; otherwise one line says what is wrong. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The other operators may come from libstdc++, since those call these. */
static const char *const names[] = {"malloc",         "calloc",        "realloc",  "free",
                                    "posix_memalign", "aligned_alloc", "memalign", "malloc_usable_size",
                                    "_Znwm",          "_Znam",         "_ZdlPv",   "_ZdaPv"};

static void fail(const char *what, const char *detail) {
  fprintf(stderr, "%s%s\n", what, detail);
  exit(1);
}

static void origin_check(const char *name, const char *library) {
  Dl_info info;
  void *address = dlsym(RTLD_DEFAULT, name);
  char *file = NULL;
  if (address != NULL && dladdr(address, &info) != 0) file = realpath(info.dli_fname, NULL);
  if (file == NULL) fail("nothing defines ", name);
  if (strcmp(file, library) != 0) {
    fprintf(stderr, "%s comes from %s\n", name, file);
    exit(1);
  }
  free(file);
}

static void block_check(void *block, size_t size, size_t alignment) {
  if (block == NULL || (uintptr_t)block % alignment != 0 || malloc_usable_size(block) < size)
    fail("a block is missing, misplaced or short", "");
  memset(block, 0x5a, size);
}

static void *exercise(void *unused) {
  for (size_t size = 1; size <= 1 << 20; size = size * 3 / 2 + 1) {
    void *block = malloc(size);
    block_check(block, size, 8);
    block = realloc(block, 2 * size);
    block_check(block, 2 * size, 8);
    free(block);
    unsigned char *zeroed = calloc(size, 2);
    if (zeroed != NULL && (zeroed[0] != 0 || memcmp(zeroed, zeroed + 1, 2 * size - 1) != 0)) fail("calloc's block is not zero", "");
    block_check(zeroed, 2 * size, 8);
    free(zeroed);
    block_check(block = aligned_alloc(64, (size + 63) / 64 * 64), size, 64);
    free(block);
    block_check(block = memalign(4096, size), size, 4096);
    free(block);
    if (posix_memalign(&block, 256, size) != 0) fail("posix_memalign failed", "");
    block_check(block, size, 256);
    free(block);
  }
  return unused;
}

int main(int argc, char **argv) {
  char *library = argc == 2 ? realpath(argv[1], NULL) : NULL;
  if (library == NULL) fail("usage: probe LIBRARY", "");
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) origin_check(names[i], library);
  pthread_t thread;
  exercise(NULL);
  if (pthread_create(&thread, NULL, exercise, NULL) != 0 || pthread_join(thread, NULL) != 0) fail("no thread", "");
  free(library);
  return 0;
}
