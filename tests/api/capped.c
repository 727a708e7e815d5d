/* capped.c - HAKMEM_LIMIT_HARD as the environment sets it, which alone the secure library listens to: that much blocks may take. */
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

#define LIMIT "50M"
enum { LIMIT_BYTES = 50 << 20, BLOCKS_MOST = 1 << 20 };

int main(int argc, char **argv) {
  if (getenv("HAKMEM_LIMIT_HARD") == NULL) {
    if (setenv("HAKMEM_LIMIT_HARD", LIMIT, 1) == 0) execv(check_self(), argv);
    return 1;
  }
  return check_main(argc, argv);
}

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

TEST(limit_is_what_small_blocks_may_take) { serves_to_the_limit(1000); }
TEST(limit_is_what_blocks_of_some_pages_may_take) { serves_to_the_limit(16000); }
TEST(limit_is_what_large_blocks_may_take) { serves_to_the_limit((size_t)2 << 20); }
