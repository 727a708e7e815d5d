/* own_malloc.c - a program with malloc, calloc, realloc and free of its own, but not the names made of them: these must serve its heap. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

enum { ARENA_BYTES = 64 << 20, ALIGNMENT = 16 };

typedef struct head {
  _Alignas(ALIGNMENT) size_t size;
  size_t is_live;
} head_t;

static _Alignas(ALIGNMENT) char arena[ARENA_BYTES];
static size_t used;

static bool is_mine(const void *block) { return (uintptr_t)block - (uintptr_t)arena < ARENA_BYTES; }
static head_t *head_of(void *block) { return (head_t *)block - 1; }

__attribute__((visibility("default"))) void *malloc(size_t size) {
  size_t bytes = sizeof(head_t) + (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  if (size > ARENA_BYTES || bytes > ARENA_BYTES - used) return errno = ENOMEM, NULL;
  head_t *head = (head_t *)(void *)(arena + used);
  used += bytes;
  *head = (head_t){size, true};
  return head + 1;
}

__attribute__((visibility("default"))) void free(void *block) {
  if (block == NULL) return;
  if (!is_mine(block) || !head_of(block)->is_live) abort();
  head_of(block)->is_live = false;
}

__attribute__((visibility("default"))) void *calloc(size_t count, size_t size) {
  return malloc(count * size);
} /* never used before: zero */

__attribute__((visibility("default"))) void *realloc(void *block, size_t size) {
  void *moved = malloc(size);
  if (moved == NULL || block == NULL) return moved;
  memcpy(moved, block, size < head_of(block)->size ? size : head_of(block)->size);
  free(block);
  return moved;
}

int main(int argc, char **argv) { return check_main(argc, argv); }

/* By name, since libc has only the first. */
static void *function(const char *name) {
  void *found = dlsym(RTLD_DEFAULT, name);
  if (found == NULL) abort();
  return found;
}
typedef void *reallocarray_t(void *, size_t, size_t);
typedef void *recallocarray_t(void *, size_t, size_t, size_t);
typedef void *reallocf_t(void *, size_t);

static char *filled(size_t size) {
  char *block = malloc(size);
  if (block == NULL || !is_mine(block)) abort();
  return memset(block, 7, size);
}

static void check_array(const char *name) {
  reallocarray_t *call = (reallocarray_t *)function(name);
  char *block = call(filled(10), 10, 100);
  CHECK(is_mine(block) && block[9] == 7 && head_of(block)->size == 1000);
  errno = 0;
  CHECK(call(block, SIZE_MAX / 2, 3) == NULL);
  CHECK_EQ(errno, ENOMEM);
  CHECK(head_of(block)->is_live);
  free(block);
}
TEST(reallocarray_calls_the_programs_realloc) { check_array("reallocarray"); }
TEST(libc_reallocarray_calls_the_programs_realloc) { check_array("__libc_reallocarray"); }

TEST(reallocf_calls_the_programs_realloc_and_free) {
  reallocf_t *call = (reallocf_t *)function("reallocf");
  char *block = call(filled(10), 1000);
  CHECK(is_mine(block) && block[9] == 7);
  CHECK(call(block, 2 * (size_t)ARENA_BYTES) == NULL);
  CHECK(!head_of(block)->is_live);
}

TEST(recallocarray_calls_the_programs_calloc_and_free) {
  recallocarray_t *call = (recallocarray_t *)function("recallocarray");
  char *old = filled(10), *block = call(old, 5, 50, 2);
  CHECK(is_mine(block) && block[9] == 7 && block[10] == 0 && block[99] == 0);
  CHECK(!head_of(old)->is_live && old[0] == 0 && old[9] == 0);
  errno = 0;
  CHECK(call(block, SIZE_MAX, 1, 2) == NULL);
  CHECK_EQ(errno, EINVAL);
  CHECK(call(block, 50, SIZE_MAX, 2) == NULL);
  CHECK_EQ(errno, ENOMEM);
  char *fresh = call(NULL, 0, 3, 4);
  CHECK(is_mine(fresh) && fresh[11] == 0);
  CHECK(head_of(block)->is_live && block[9] == 7);
  free(fresh);
  free(block);
}

/* Otherwise a malloc that calls libc's, which it finds in this way, would call hakmem's. */
TEST(libc_keeps_its_malloc_for_the_programs_own) {
  void *libc = dlopen("libc.so.6", RTLD_LAZY);
  if (libc == NULL) check_skip("libc has another name here");
  void *malloc_of_libc = dlsym(libc, "malloc"), *getpid_of_libc = dlsym(libc, "getpid");
  Dl_info one, other;
  REQUIRE(malloc_of_libc != NULL && getpid_of_libc != NULL);
  REQUIRE(dladdr(malloc_of_libc, &one) != 0 && dladdr(getpid_of_libc, &other) != 0);
  CHECK(one.dli_fbase == other.dli_fbase);
}

/* Nor does one that opens a library with RTLD_DEEPBIND: such a library has libc's malloc, as the flag says. */
TEST(libc_keeps_its_malloc_despite_the_flag) {
#if defined(RTLD_DEEPBIND)
  void *libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_DEEPBIND);
  if (libc == NULL) check_skip("libc has another name here");
  void *malloc_of_libc = dlsym(libc, "malloc");
  Dl_info one, other;
  REQUIRE(malloc_of_libc != NULL && dladdr(malloc_of_libc, &one) != 0 && dladdr(dlsym(libc, "getpid"), &other) != 0);
  CHECK(one.dli_fbase == other.dli_fbase);
#endif
}
