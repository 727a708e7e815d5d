/* early.c - the allocator before main and after it: the first calls of the
 * process come from preinit_array and constructors, the last from atexit
 * handlers and destructors.
 *
 *   early [free|realloc|calloc|aligned|keys]    which call is the very first
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "symbol.h"

enum { PREINIT = 1, FIRST = 2, CONSTRUCTOR = 4, MAIN = 8, ATEXIT = 16, DESTRUCTOR = 32, THREADS = 64 };
enum { ALL = PREINIT | FIRST | CONSTRUCTOR | MAIN | ATEXIT | DESTRUCTOR | THREADS };

static int stages;
static void *kept[6][50]; /* by stage; freed in a later stage */

static void hold(int stage) {
  for (size_t i = 0; i < 50; i++) {
    kept[stage][i] = malloc(i * i * 40 + 1);
    CHECK(kept[stage][i]);
    if (kept[stage][i]) memset(kept[stage][i], stage + 1, i * i * 40 + 1);
  }
}

static void drop(int stage) {
  for (size_t i = 0; i < 50; i++) {
    const char *bytes = kept[stage][i];
    CHECK(bytes && bytes[0] == stage + 1 && bytes[i * i * 40] == stage + 1);
    kept[stage][i] = realloc(kept[stage][i], i * 100 + 1);
    CHECK(kept[stage][i] && *(char *)kept[stage][i] == stage + 1);
    free(kept[stage][i]);
    kept[stage][i] = NULL;
  }
}

static void *hold_in_thread(void *unused) {
  hold(5);
  drop(0);
  return unused;
}

/* The first calls of the process; `first` names the very first. */
static void call_first(const char *first) {
  errno = 0;
  if (strcmp(first, "free") == 0) free(NULL);
  if (strcmp(first, "realloc") == 0) free(realloc(NULL, 100));
  if (strcmp(first, "calloc") == 0) free(calloc(10, 10));
  if (strcmp(first, "aligned") == 0) free(aligned_alloc(256, 100));
  if (strcmp(first, "keys") == 0)
    for (pthread_key_t key; pthread_key_create(&key, NULL) == 0;) continue;
  CHECK(errno == 0 || strcmp(first, "keys") == 0);
  hold(0);
  stages |= PREINIT;
}

#ifdef __GLIBC__

/* Runs before the constructors of every library, including hakmem's. */
static void preinit(int argc, char **argv, char **environment) {
  (void)environment;
  call_first(argc > 1 ? argv[1] : "malloc");
}
__attribute__((section(".preinit_array"), used)) static void (*const at_preinit)(int, char **, char **) = preinit;

#else /* musl runs nothing before constructors, and passes them no arguments */

__attribute__((constructor(101))) static void construct_very_first(void) {
  char line[512] = "";
  int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
  CHECK(read(fd, line, sizeof line - 2) > 0);
  close(fd);
  const char *first = line + strlen(line) + 1;
  call_first(*first ? first : "malloc");
}

#endif

__attribute__((constructor(101))) static void construct_first(void) {
  hold(1);
  stages |= FIRST;
}

__attribute__((constructor)) static void construct(void) {
  hold(2);
  drop(1);
  stages |= CONSTRUCTOR;
}

static void at_exit(void) {
  drop(3);
  hold(4);
  stages |= ATEXIT;
}

/* The last to run: it gives the verdict, because main's status was set earlier. */
__attribute__((destructor(101))) static void destruct(void) {
  drop(4);
  drop(5);
  drop(2);
  hold(1);
  drop(1);
  stages |= DESTRUCTOR;
  CHECK_EQ(stages, ALL);
  _exit(check_failures() != 0);
}

int main(void) {
  pthread_t thread;
  stages |= MAIN;
  CHECK(!getenv("TEST_EXPECTS_HAKMEM") || symbol_find("hak_version"));
  hold(3);
  atexit(at_exit);
  if (pthread_create(&thread, NULL, hold_in_thread, NULL) == 0) pthread_join(thread, NULL), stages |= THREADS;
  return 3; /* only the destructor's verdict counts */
}
