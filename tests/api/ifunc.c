/* ifunc.c - the very first calls of the process come from a resolver of the executable's IFUNC symbol: while the loader relocates the
 * executable, before the main thread's thread-local variables are set, before libc has the environment, and before any constructor. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "hakmem/hakmem.h"

enum { KEPT = 6, MANY = 300 };
static unsigned char *kept[KEPT], *many[MANY];
static const size_t kept_size[KEPT] = {100, 200, 300000, 4000, 100, 0};
static int early_errors;

static int works(void) { return 1; }
static int fails(void) { return 2; }

static int (*resolve(void))(void) {
  void *block = NULL;
  kept[0] = malloc(kept_size[0]);
  kept[1] = calloc(2, kept_size[1] / 2);
  kept[2] = malloc(kept_size[2]);
  kept[3] = realloc(malloc(40), kept_size[3]);
  if (posix_memalign(&block, 4096, kept_size[4]) == 0) kept[4] = block;
  for (size_t i = 0; i < MANY; i++) free(malloc(i * 150));
  for (size_t i = 0; i < MANY; i++) many[i] = malloc(i + 1);
  for (size_t i = 0; i < MANY; i++) early_errors += many[i] == NULL;
  for (size_t i = 0; i < KEPT; i++) early_errors += kept[i] == NULL && kept_size[i] > 0;
  for (size_t i = 0; i < kept_size[1]; i++) early_errors += kept[1][i] != 0;
  early_errors += (uintptr_t)block % 4096 != 0;
  return early_errors == 0 ? works : fails;
}

int early(void) __attribute__((ifunc("resolve")));
int early(void);
static int (*volatile pointer)(void) = early;

TEST(what_a_resolver_allocates_is_there) {
  CHECK_EQ(early(), 1);
  CHECK_EQ(pointer(), 1);
  for (size_t i = 0; i < KEPT; i++) {
    if (kept[i] == NULL) continue;
    memset(kept[i], 7, kept_size[i]);
    kept[i] = realloc(kept[i], kept_size[i] * 2);
    CHECK(kept[i] != NULL && kept[i][kept_size[i] - 1] == 7);
    free(kept[i]);
  }
  for (size_t i = 0; i < MANY; i++) {
    for (size_t k = 0; k < MANY; k++) CHECK(i == k || many[i] != many[k]);
    free(many[i]);
    many[i] = malloc(i + 1);
  }
  for (size_t i = 0; i < MANY; i++) free(many[i]);
}

/* The thread still has the heap that it got in the resolver. */
TEST(the_heap_is_the_same_afterwards) {
  bool (*get)(hak_stats_t *) = (bool (*)(hak_stats_t *))dlsym(RTLD_DEFAULT, "hak_stats_get");
  if (get == NULL) check_skip("the system's malloc runs");
  free(malloc(10));
  hak_stats_t stats = {.struct_size = sizeof stats};
  CHECK(get(&stats));
  CHECK_EQ((int)stats.heaps, 1);
}

int main(int argc, char **argv) { return check_main(argc, argv); }
