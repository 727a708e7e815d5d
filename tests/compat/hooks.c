/* hooks.c - libjemalloc.so.2: extent hooks of arenas, as RocksDB and folly use them. */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "support/check.h"

/* As jemalloc's header declares them. */
typedef struct extent_hooks_s extent_hooks_t;
typedef void *extent_alloc_t(extent_hooks_t *, void *, size_t, size_t, bool *, bool *, unsigned);
typedef bool extent_dalloc_t(extent_hooks_t *, void *, size_t, bool, unsigned);
struct extent_hooks_s {
  extent_alloc_t *alloc;
  extent_dalloc_t *dalloc;
  void (*others[7])(void);
};
void *mallocx(size_t size, int flags);
void *rallocx(void *block, size_t size, int flags);
size_t xallocx(void *block, size_t size, size_t extra, int flags);
void dallocx(void *block, int flags);
int mallctl(const char *name, void *old, size_t *old_size, void *fresh, size_t fresh_size);

#define ARENA(a) ((int)((a) + 1) << 20)

static char name[64];
static const char *node(unsigned arena, const char *of) {
  (void)snprintf(name, sizeof name, "arena.%u.%s", arena, of);
  return name;
}

static unsigned new_arena(void) {
  unsigned arena = 0;
  size_t size = sizeof arena;
  CHECK_EQ(mallctl("arenas.create", &arena, &size, NULL, 0), 0);
  return arena;
}

static extent_hooks_t *hooks_in_force(unsigned arena) {
  extent_hooks_t *hooks = NULL;
  size_t size = sizeof hooks;
  CHECK_EQ(mallctl(node(arena, "extent_hooks"), &hooks, &size, NULL, 0), 0);
  return hooks;
}

static int set_hooks(unsigned arena, extent_hooks_t *hooks) {
  return mallctl(node(arena, "extent_hooks"), NULL, NULL, &hooks, sizeof hooks);
}

/* ---- Hooks ---- */

static extent_alloc_t *alloc_before;
static unsigned calls;
static size_t bytes_told;

static void *left_out_of_dumps(extent_hooks_t *hooks, void *at, size_t size, size_t alignment, bool *zero, bool *commit, unsigned arena) {
  void *got = alloc_before(hooks, at, size, alignment, zero, commit, arena);
  calls++;
  bytes_told += size;
  if (got != NULL) CHECK_EQ(madvise(got, size, MADV_DONTDUMP), 0);
  return got;
}

static void *from_a_class_of_its_own(extent_hooks_t *hooks, void *at, size_t size, size_t alignment, bool *zero, bool *commit,
                                     unsigned arena) {
  if (++calls < 50) CHECK(mallocx(calls * 500, ARENA(arena)) != NULL);
  return left_out_of_dumps(hooks, at, size, alignment, zero, commit, arena);
}

static char own_memory[1 << 20];
static unsigned own_returned;
static void *own_alloc(extent_hooks_t *hooks, void *at, size_t size, size_t alignment, bool *zero, bool *commit, unsigned arena) {
  (void)hooks, (void)at, (void)size, (void)alignment, (void)zero, (void)commit, (void)arena;
  return own_memory;
}
static bool own_dalloc(extent_hooks_t *hooks, void *p, size_t size, bool committed, unsigned arena) {
  (void)hooks, (void)size, (void)committed, (void)arena;
  own_returned += p == own_memory;
  return false;
}

static extent_hooks_t hooks_made;
static unsigned hooked_arena(extent_alloc_t *alloc) {
  unsigned arena = new_arena();
  hooks_made = *hooks_in_force(arena);
  alloc_before = hooks_made.alloc;
  hooks_made.alloc = alloc;
  CHECK_EQ(set_hooks(arena, &hooks_made), 0);
  CHECK(hooks_in_force(arena) == &hooks_made);
  return arena;
}

/* ---- What the kernel reports ---- */

static bool is_dumped(const void *p) {
  static char line[512];
  FILE *smaps = fopen("/proc/self/smaps", "re");
  bool here = false, dumped = true;
  if (smaps == NULL) return false;
  while (fgets(line, sizeof line, smaps) != NULL) {
    uintptr_t start, end;
    if (sscanf(line, "%zx-%zx ", &start, &end) == 2) here = (uintptr_t)p >= start && (uintptr_t)p < end;
    else if (here && strncmp(line, "VmFlags:", 8) == 0) dumped = strstr(line, " dd") == NULL;
  }
  (void)fclose(smaps);
  return dumped;
}

TEST(what_an_arena_has_is_left_out_of_core_dumps) {
  unsigned arena = hooked_arena(left_out_of_dumps);
  static char *blocks[64];
  unsigned count = 0;
  for (size_t size = 1; size < 3000000; size = size * 7 / 4 + 1) {
    char *block = mallocx(size, ARENA(arena)), *other = malloc(size);
    REQUIRE(block != NULL && other != NULL);
    CHECK(!is_dumped(block) && !is_dumped(block + size - 1));
    CHECK(is_dumped(other) && is_dumped(other + size - 1));
    blocks[count++] = block;
    free(other);
  }
  CHECK_EQ(mallctl(node(arena, "destroy"), NULL, NULL, NULL, 0), 0);
  while (count > 0) CHECK(is_dumped(blocks[--count]));
}

TEST(what_is_freed_is_dumped_again) {
  unsigned arena = hooked_arena(left_out_of_dumps);
  char *small[200], *large = mallocx(300000, ARENA(arena));
  for (unsigned i = 0; i < 200; i++) small[i] = mallocx(20000, ARENA(arena));
  CHECK(!is_dumped(large) && !is_dumped(small[100]));
  for (unsigned i = 0; i < 200; i++) dallocx(small[i], 0);
  dallocx(large, 0);
  CHECK_EQ(mallctl(node(arena, "purge"), NULL, NULL, NULL, 0), 0);
  CHECK(is_dumped(large) && is_dumped(small[100]));
}

TEST(what_a_large_block_grows_by_is_told_too) {
  unsigned arena = hooked_arena(left_out_of_dumps);
  char *block = mallocx(1 << 20, ARENA(arena));
  size_t had = bytes_told, has = xallocx(block, 8 << 20, 0, 0);
  if (has < (size_t)8 << 20) check_skip("there was no room");
  CHECK_EQ(bytes_told - had, (size_t)7 << 20);
  CHECK(!is_dumped(block + has - 1));
  size_t less = xallocx(block, 2 << 20, 0, 0);
  CHECK_EQ(less, (size_t)2 << 20);
  CHECK(!is_dumped(block + less - 1) && is_dumped(block + less));
  char *moved = rallocx(block, 64 << 20, ARENA(arena));
  REQUIRE(moved != NULL);
  CHECK(!is_dumped(moved) && !is_dumped(moved + ((size_t)64 << 20) - 1));
  dallocx(moved, 0);
  CHECK(is_dumped(moved) && is_dumped(block));
}

TEST(each_span_is_told_once) {
  unsigned arena = hooked_arena(left_out_of_dumps);
  calls = 0;
  for (unsigned i = 0; i < 100; i++) CHECK(mallocx(100, ARENA(arena)) != NULL);
  CHECK_EQ(calls, 1);
}

TEST(a_hook_may_allocate_from_the_arena) {
  unsigned arena = hooked_arena(from_a_class_of_its_own);
  char *block = mallocx(30000, ARENA(arena));
  CHECK(block != NULL && !is_dumped(block));
}

TEST(hooks_with_memory_of_their_own_are_refused) {
  unsigned arena = new_arena(), none = 0;
  size_t size = sizeof none;
  extent_hooks_t *before = hooks_in_force(arena), own = {.alloc = own_alloc, .dalloc = own_dalloc}, *given = &own;
  CHECK_EQ(set_hooks(arena, &own), EFAULT);
  CHECK_EQ(own_returned, 1);
  CHECK(hooks_in_force(arena) == before);
  char *block = mallocx(100, ARENA(arena));
  CHECK(block != NULL && (block < own_memory || block >= own_memory + sizeof own_memory));
  CHECK_EQ(mallctl("arenas.create", &none, &size, &given, sizeof given), EFAULT);
  CHECK_EQ(none, 0);
}

TEST(hooks_may_come_with_a_new_arena) {
  unsigned arena = hooked_arena(left_out_of_dumps), other = 0;
  size_t size = sizeof other;
  extent_hooks_t *given = hooks_in_force(arena);
  CHECK_EQ(mallctl("arenas.create", &other, &size, &given, sizeof given), 0);
  CHECK(other != arena && hooks_in_force(other) == given);
  char *block = mallocx(100, ARENA(other));
  CHECK(!is_dumped(block));
  CHECK_EQ(mallctl(node(other, "destroy"), NULL, NULL, NULL, 0), 0);
  CHECK_EQ(new_arena(), other); /* a new arena has the original hooks again */
  CHECK(hooks_in_force(other) != given && is_dumped(mallocx(100, ARENA(other))));
}

TEST(wrong_hooks) {
  unsigned arena = new_arena();
  extent_hooks_t none = {NULL}, *before = hooks_in_force(arena), *given = before;
  CHECK(before != NULL && hooks_in_force(0) == before);
  CHECK_EQ(set_hooks(0, before), EFAULT);
  CHECK_EQ(set_hooks(arena, NULL), EFAULT);
  CHECK_EQ(set_hooks(arena, &none), EFAULT);
  CHECK_EQ(set_hooks(4000, before), ENOENT);
  CHECK_EQ(mallctl(node(arena, "extent_hooks"), NULL, NULL, &given, 4), EINVAL);
  CHECK_EQ(set_hooks(arena, before), 0);
  bool zero, commit;
  CHECK(before->alloc(before, NULL, 4096, 4096, &zero, &commit, arena) == NULL);
}
