/* capped.c - HAKMEM_LIMIT_HARD set in the environment, the only way that the secure library accepts: it limits the memory of blocks. */
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

/* The value of HAKMEM_LIMIT_HARD that the test is started with. */
#define LIMIT "50M"
enum { LIMIT_BYTES = 50 << 20, BLOCKS_MOST = 1 << 20, MIB = 1 << 20, LARGE_MOST = 100 };
static void *large[LARGE_MOST];

int main(int argc, char **argv) { return check_main(argc, argv); }

/* Nine tenths of the limit can be allocated, and then no more. */
static void serves_to_the_limit(size_t size) {
  static void *blocks[BLOCKS_MOST];
  size_t count = 0;
  while (count < BLOCKS_MOST && (blocks[count] = malloc(size)) != NULL) memset(blocks[count++], 1, size);
  CHECK_EQ(errno, ENOMEM);
  if (count * size > LIMIT_BYTES || count * size < LIMIT_BYTES / 10 * 9) {
    check_fail(__FILE__, __LINE__, "of " LIMIT " blocks of %zu bytes were served %zu", size, count * size);
  }
  while (count > 0) free(blocks[--count]);
}

static void *hide(void *block) {
  static void *volatile at;
  at = block;
  return at;
}

/* Frees blocks, which wait to be used again and do not count towards the limit. */
static void leave_large(int count) {
  for (int i = 0; i < count; i++) free(memset(hide(malloc(MIB)), 1, MIB));
}

static size_t take_large(size_t size, size_t most) {
  size_t taken = 0;
  while (taken < most && (large[taken] = malloc(size)) != NULL) memset(large[taken++], 1, size);
  return taken;
}

static void *small[BLOCKS_MOST];

static void take_small(size_t bytes) {
  for (size_t i = 0; i < bytes / 1000; i++) small[i] = hide(malloc(1000));
}

TEST(what_freed_large_blocks_leave_is_room) {
  leave_large(60);
  take_small(46000000);
  for (size_t i = 0; i < 46000; i++) { /* about every second slab */
    if (i / 128 % 2 == 0) free(small[i]);
  }
  CHECK(take_large(2 * MIB, LARGE_MOST) * 2 * MIB >= 15 * MIB);
}

TEST(large_blocks_that_are_used_again_count) {
  enum { SIZE = MIB / 2, TOGETHER = 85, SMALL = 46000000 };
  CHECK(take_large(SIZE, TOGETHER) == TOGETHER);
  for (int i = 0; i < TOGETHER; i++) free(large[i]);
  take_small(SMALL);
  CHECK(SMALL + take_large(SIZE, LARGE_MOST) * SIZE <= LIMIT_BYTES);
}

TEST(small_blocks_may_take_the_limit) { serves_to_the_limit(1000); }
TEST(blocks_of_some_pages_may_take_the_limit) { serves_to_the_limit(16000); }
TEST(large_blocks_may_take_the_limit) { serves_to_the_limit((size_t)2 << 20); }
