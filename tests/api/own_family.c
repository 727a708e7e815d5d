/* own_family.c - a program linked to another library with mallocx and its family: nallocx and sdallocx are for that library's blocks. */
#include <stdlib.h>

#include "check.h"
#include "family.h"

int main(int argc, char **argv) { return check_main(argc, argv); }

TEST(sdallocx_frees_the_familys_block) {
  void *block = mallocx(100, 0);
  REQUIRE(block != NULL);
  unsigned before = family_frees;
  sdallocx(block, 100, 0);
  sdallocx(mallocx(200, 0), 200, 0);
  CHECK_EQ(family_frees, before + 2);
}

TEST(sdallocx_frees_a_block_of_malloc) {
  unsigned before = family_frees;
  sdallocx(malloc(100), 100, 0);
  sdallocx(malloc(1 << 20), 1 << 20, 0);
  CHECK_EQ(family_frees, before);
}

TEST(nallocx_is_the_familys) {
  CHECK_EQ(nallocx(100, 0), 100 + FAMILY_MORE);
  CHECK_EQ(nallocx(70000, 1), 70001 + FAMILY_MORE);
}
