/* capped.c - HAKMEM_LIMIT_HARD as the environment sets it, which alone the secure library listens to: that much blocks may take. */
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

/* As HAKMEM_LIMIT_HARD, which the test is started with. */
#define LIMIT "50M"
enum { LIMIT_BYTES = 50 << 20, BLOCKS_MOST = 1 << 20 };

int main(int argc, char **argv) { return check_main(argc, argv); }

/* Of the limit nine tenths are served, then no more. */
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

TEST(small_blocks_may_take_the_limit) { serves_to_the_limit(1000); }
TEST(blocks_of_some_pages_may_take_the_limit) { serves_to_the_limit(16000); }
TEST(large_blocks_may_take_the_limit) { serves_to_the_limit((size_t)2 << 20); }
