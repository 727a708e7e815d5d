/* realloc.c - realloc, reallocarray, recallocarray and reallocf. */
#include "api.h"

static void *new_block(size_t size, unsigned seed) {
  void *block = api.malloc(size);
  return block ? fill(block, size, seed) : NULL;
}

static size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

/* ---- realloc ---- */

TEST(realloc_of_null_allocates) {
  for EACH_SIZE(size) {
    void *block = api.realloc(NULL, size);
    REQUIRE(block);
    CHECK(aligned(block, 16));
    CHECK(filled(fill(block, size, 1), size, 1));
    api.free(block);
  }
}

TEST(realloc_of_null_to_0_is_a_unique_block) {
  void *first = api.realloc(NULL, 0), *second = api.realloc(NULL, 0);
  CHECK(first && second && first != second);
  api.free(first), api.free(second);
}

TEST(realloc_to_0_returns_null) {
  for EACH_SIZE(size) CHECK(!api.realloc(api.malloc(size), 0));
}

TEST(realloc_to_0_keeps_errno) {
  for EACH_SIZE(size) {
    void *block = api.malloc(size);
    errno = MARK;
    CHECK(!api.realloc(block, 0));
    CHECK_EQ(errno, MARK);
  }
}

TEST(realloc_to_0_frees) {
  size_t before = check_resident();
  for (int i = 0; i < 100000; i++) CHECK(!api.realloc(new_bytes(4000, 1), 0));
  for (int i = 0; i < 1000; i++) CHECK(!api.realloc(new_bytes(400000, 1), 0));
  CHECK(SANITIZED || check_resident() < before + ((size_t)32 << 20));
}

TEST(realloc_from_every_size_to_every_size) {
  for EACH_SIZE(from) {
    for EACH_SIZE(to) {
      if ((from > 300000 || to > 300000) && from != to && (from + to) % 5) continue; /* a fifth of the slow ones */
      void *block = api.realloc(new_block(from, 5), to);
      REQUIRE(block);
      CHECK(filled(block, smaller(from, to), 5));
      CHECK(aligned(block, 16));
      memset(block, 0xee, to);
      api.free(block);
    }
  }
}

TEST(realloc_grows_byte_by_byte) {
  char *block = NULL;
  for (size_t size = 1; size <= 20000; size++) {
    block = api.realloc(block, size);
    REQUIRE(block);
    block[size - 1] = (char)size;
  }
  for (size_t size = 1; size <= 20000; size++)
    if (block[size - 1] != (char)size) CHECK_EQ(block[size - 1], (char)size);
  api.free(block);
}

TEST(realloc_shrinks_step_by_step) {
  void *block = new_block(100000, 9);
  for (size_t size = 100000; size > 0; size = size * 99 / 100) {
    block = api.realloc(block, size);
    REQUIRE(block);
    CHECK(filled(block, size, 9));
  }
  api.free(block);
}

TEST(realloc_doubles_to_64_mib) {
  void *block = new_block(1, 3);
  for (size_t size = 2; size <= (size_t)64 << 20; size *= 2) {
    block = api.realloc(block, size);
    REQUIRE(block);
    CHECK(filled(block, size / 2, 3));
    fill(block, size, 3);
  }
  api.free(block);
}

TEST(realloc_leaves_what_it_gives_up) {
  NEED(api.malloc_usable_size);
  for (size_t size = 512; size <= 65536; size *= 2) {
    void *block = api.realloc(new_block(size, 4), size / 4);
    REQUIRE(block);
    CHECK(api.malloc_usable_size(block) < size / 2);
    CHECK(filled(block, size / 4, 4));
    api.free(block);
  }
}

TEST(realloc_halves_from_64_mib) {
  void *block = new_block((size_t)64 << 20, 3);
  for (size_t size = (size_t)32 << 20; size > 0; size /= 2) {
    block = api.realloc(block, size);
    REQUIRE(block);
    CHECK(filled(block, size, 3));
  }
  api.free(block);
}

TEST(realloc_grows_large_blocks_beside_each_other) {
  void *blocks[6];
  for (unsigned i = 0; i < 6; i++) blocks[i] = new_block(300000, i);
  for (size_t size = 600000; size <= 5000000; size += 600000)
    for (unsigned i = 0; i < 6; i++) {
      REQUIRE((blocks[i] = api.realloc(blocks[i], size)) != NULL);
      CHECK(filled(blocks[i], size - (size == 600000 ? 300000 : 600000), i));
      fill(blocks[i], size, i);
    }
  for (unsigned i = 0; i < 6; i++) CHECK(filled(blocks[i], 4800000, i));
  for (unsigned i = 0; i < 6; i++) api.free(blocks[i]);
}

TEST(realloc_to_the_same_size_keeps_the_content) {
  for EACH_SIZE(size) {
    void *block = new_block(size, 8);
    for (int i = 0; i < 3; i++) block = api.realloc(block, size);
    REQUIRE(block);
    CHECK(filled(block, size, 8));
    api.free(block);
  }
}

TEST(realloc_failure_is_enomem_and_keeps_the_block) {
  for EACH_SIZE(size) {
    void *block = new_block(size, 4);
    for EACH_IMPOSSIBLE(wanted) {
      errno = 0;
      CHECK(!api.realloc(block, wanted));
      CHECK_EQ(errno, ENOMEM);
    }
    CHECK(filled(block, size, 4));
    api.free(block);
  }
}

TEST(realloc_beyond_the_address_space_keeps_the_block) {
  for EACH_SIZE(size) {
    void *block = new_block(size, 6);
    errno = 0;
    CHECK(!api.realloc(block, (size_t)1 << 60));
    CHECK_EQ(errno, ENOMEM);
    CHECK(filled(block, size, 6));
    block = api.realloc(block, size + 100);
    CHECK(block && filled(block, size, 6));
    api.free(block);
  }
}

TEST(realloc_of_null_beyond_ptrdiff_max_is_enomem) {
  for EACH_IMPOSSIBLE(size) {
    errno = 0;
    CHECK(!api.realloc(NULL, size));
    CHECK_EQ(errno, ENOMEM);
  }
}

TEST(realloc_keeps_errno) {
  for EACH_SIZE(size) {
    void *block = api.malloc(1000);
    errno = MARK;
    block = api.realloc(block, size);
    CHECK_EQ(errno, MARK);
    block = api.realloc(block, 3 * size);
    CHECK_EQ(errno, MARK);
    api.free(block);
  }
}

TEST(realloc_of_an_aligned_block_keeps_the_content) {
  for (size_t alignment = 16; alignment <= (size_t)1 << 20; alignment *= 4)
    for (size_t size = 1; size < 300000; size = size * 5 + 3) {
      void *block = api.aligned_alloc(alignment, size);
      REQUIRE(block);
      block = api.realloc(fill(block, size, 2), 2 * size);
      REQUIRE(block);
      CHECK(filled(block, size, 2));
      fill(block, 2 * size, 2);
      block = api.realloc(block, size / 2 + 1);
      CHECK(block && filled(block, size / 2 + 1, 2));
      api.free(block);
    }
}

TEST(realloc_of_a_zeroed_block_keeps_the_zeros) {
  for EACH_SIZE(size) {
    void *block = api.realloc(api.calloc(1, size), size * 2);
    CHECK(block && all_bytes(block, size, 0));
    api.free(block);
  }
}

TEST(realloc_leaves_the_neighbours_alone) {
  for (size_t size = 16; size < 2000000; size = size * 2 + 11) {
    void *before = new_block(size, 1), *block = new_block(size, 2), *after = new_block(size, 3);
    block = api.realloc(block, size * 3);
    REQUIRE(block);
    memset(block, 0xdd, size * 3);
    block = api.realloc(block, size / 2);
    CHECK(filled(before, size, 1) && filled(after, size, 3));
    api.free(before), api.free(block), api.free(after);
  }
}

static void *grow_elsewhere(void *argument) {
  void **block = argument;
  errno = MARK;
  *block = api.realloc(*block, 50000);
  CHECK_EQ(errno, MARK);
  return NULL;
}

/* Large blocks are copied in another way than small ones. */
TEST(realloc_of_a_large_block_to_a_small_one_leaves_the_neighbours_alone) {
  enum { COUNT = 64, SMALL = 30000, LARGE = 40000 };
  char *blocks[COUNT];
  for (unsigned i = 0; i < COUNT; i++) blocks[i] = fill(api.malloc(SMALL), SMALL, i);
  for (unsigned i = 1; i < COUNT; i += 2) {
    char *large = fill(api.malloc(LARGE), LARGE, 1000 + i);
    api.free(blocks[i]);
    blocks[i] = api.realloc(large, SMALL);
    REQUIRE(blocks[i]);
    CHECK(filled(blocks[i], SMALL, 1000 + i));
  }
  for (unsigned i = 0; i < COUNT; i += 2) CHECK(filled(blocks[i], SMALL, i));
  for (unsigned i = 0; i < COUNT; i++) api.free(blocks[i]);
}

TEST(realloc_in_another_thread) {
  for EACH_SIZE(size) {
    void *block = new_block(size, 4);
    in_thread(grow_elsewhere, &block);
    CHECK(block && filled(block, smaller(size, 50000), 4));
    api.free(block);
  }
}

TEST(realloc_alternating_does_not_leak) {
  size_t before = check_resident();
  void *block = NULL;
  for (size_t i = 0; i < 20000; i++) {
    block = api.realloc(block, sizes[i * 7919 % size_count]);
    REQUIRE(block);
    *(char *)block = 1;
  }
  api.free(block);
  CHECK(SANITIZED || check_resident() < before + ((size_t)32 << 20));
}

TEST(realloc_gives_the_usable_size_of_the_new_size) {
  NEED(api.malloc_usable_size);
  for EACH_SIZE(from) {
    for (size_t to = 1; to < 3000000; to = to * 3 + 1) {
      void *block = api.realloc(api.malloc(from), to);
      REQUIRE(block);
      CHECK(api.malloc_usable_size(block) >= to);
      api.free(block);
    }
  }
}

TEST(realloc_then_free_sized_of_the_new_size) {
  NEED(api.free_sized);
  for EACH_SIZE(from) {
    for EACH_SIZE(to) {
      if (from > 300000 && to > 300000 && (from + to) % 5) continue;
      void *block = api.realloc(api.malloc(from), to);
      REQUIRE(block);
      api.free_sized(block, to);
    }
  }
}

TEST(realloc_shrinking_byte_by_byte_then_free_sized) {
  NEED(api.free_sized);
  for (size_t size = 2000; size > 0; size -= 1) {
    void *block = api.malloc(2000);
    for (size_t now = 2000; now > size; now -= now - size > 50 ? 50 : now - size) block = api.realloc(block, now);
    block = api.realloc(block, size);
    REQUIRE(block);
    api.free_sized(block, size);
  }
}

/* ---- reallocarray ---- */

TEST(reallocarray_of_null_allocates) {
  void *block = api.reallocarray(NULL, 100, 30);
  REQUIRE(block);
  CHECK(filled(fill(block, 3000, 1), 3000, 1));
  api.free(block);
}

TEST(reallocarray_keeps_the_content) {
  for EACH_SIZE(size) {
    void *block = api.reallocarray(new_block(size, 2), 3, size);
    REQUIRE(block);
    CHECK(filled(block, size, 2));
    fill(block, 3 * size, 2);
    block = api.reallocarray(block, 1, size);
    CHECK(block && filled(block, size, 2));
    api.free(block);
  }
}

TEST(reallocarray_overflow_is_enomem_and_keeps_the_block) {
  static const size_t pairs[][2] = {
      {SIZE_MAX, 2}, {2, SIZE_MAX}, {SIZE_MAX / 2 + 1, 2}, {SIZE_MAX / 16 + 2, 16}, {(size_t)1 << 32, (size_t)1 << 32}};
  for EACH_SIZE(size) {
    void *block = new_block(size, 3);
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
      errno = 0;
      CHECK(!api.reallocarray(block, pairs[i][0], pairs[i][1]));
      CHECK_EQ(errno, ENOMEM);
    }
    CHECK(filled(block, size, 3));
    api.free(block);
  }
}

TEST(reallocarray_of_null_overflow_is_enomem) {
  errno = 0;
  CHECK(!api.reallocarray(NULL, SIZE_MAX / 8 + 2, 8));
  CHECK_EQ(errno, ENOMEM);
}

TEST(reallocarray_beyond_ptrdiff_max_is_enomem) {
  void *block = new_block(500, 3);
  for EACH_IMPOSSIBLE(size) {
    errno = 0;
    CHECK(!api.reallocarray(block, size, 1));
    CHECK_EQ(errno, ENOMEM);
  }
  CHECK(filled(block, 500, 3));
  api.free(block);
}

TEST(reallocarray_to_0_frees) {
  errno = MARK;
  CHECK(!api.reallocarray(api.malloc(100), 0, 8));
  CHECK(!api.reallocarray(api.malloc(100), 8, 0));
  CHECK(!api.reallocarray(api.malloc(1000000), 0, SIZE_MAX));
  CHECK_EQ(errno, MARK);
}

TEST(reallocarray_of_null_to_0_is_a_block) {
  void *block = api.reallocarray(NULL, 0, 8);
  CHECK(block);
  api.free(block);
}

TEST(reallocarray_keeps_errno) {
  for EACH_SIZE(size) {
    void *block = api.malloc(size);
    errno = MARK;
    block = api.reallocarray(block, 2, size);
    CHECK_EQ(errno, MARK);
    api.free(block);
  }
}

/* ---- recallocarray ---- */

TEST(recallocarray_of_null_is_zero) {
  NEED(api.recallocarray);
  for EACH_SIZE(size) {
    dirty(size);
    void *block = api.recallocarray(NULL, 0, size, 1);
    REQUIRE(block);
    CHECK(all_bytes(block, size, 0));
    api.free(block);
  }
}

TEST(recallocarray_ignores_the_old_count_of_null) {
  NEED(api.recallocarray);
  dirty(800);
  void *block = api.recallocarray(NULL, 50, 100, 8);
  REQUIRE(block);
  CHECK(all_bytes(block, 800, 0));
  api.free(block);
}

TEST(recallocarray_clears_what_it_grows_by) {
  NEED(api.recallocarray);
  for EACH_SIZE(size) {
    dirty(size * 2);
    dirty(size);
    char *block = new_block(size, 4);
    size_t usable = api.malloc_usable_size(block);
    memset(block + size, 0xff, usable - size); /* bytes beyond the old size may have any value */
    block = api.recallocarray(block, size, size * 2, 1);
    REQUIRE(block);
    CHECK(filled(block, size, 4));
    CHECK(all_bytes(block + size, size, 0));
    api.free(block);
  }
}

TEST(recallocarray_clears_the_tail_of_its_own_block) {
  NEED(api.recallocarray);
  for EACH_SIZE(size) {
    char *block = api.malloc(size);
    size_t usable = api.malloc_usable_size(block), old = size / 2;
    memset(block, 0xff, usable);
    block = api.recallocarray(block, old, usable, 1);
    REQUIRE(block);
    CHECK(all_bytes(block, old, 0xff));
    CHECK(all_bytes(block + old, usable - old, 0));
    api.free(block);
  }
}

TEST(recallocarray_shrinks) {
  NEED(api.recallocarray);
  for EACH_SIZE(size) {
    void *block = api.recallocarray(new_block(size * 4, 4), 4, 1, size);
    REQUIRE(block);
    CHECK(filled(block, size, 4));
    api.free(block);
  }
}

TEST(recallocarray_clears_what_it_releases) {
  NEED(api.recallocarray);
  unsigned seen = 0;
  for EACH_SIZE(size) {
    size_t kept = size - size / 10;
    char *old = new_block(size, 4);
    char *block = api.recallocarray(old, size, kept, 1);
    REQUIRE(block);
    CHECK(filled(block, kept, 4));
    if (block == old && api.malloc_usable_size(block) >= size) CHECK(all_bytes(block + kept, size - kept, 0));
    char *next = api.malloc(size);
    /* A larger block may have been used and freed by another thread in the meantime. */
    if (next == old && block != old && size <= 32768) CHECK(all_bytes(next, size, 0)), seen++;
    api.free(next);
    api.free(block);
  }
  CHECK(seen > 0 || is_secure()); /* in the secure library freed blocks wait in a quarantine */
}

TEST(recallocarray_overflow_is_enomem_and_keeps_the_block) {
  NEED(api.recallocarray);
  void *block = new_block(1000, 4);
  errno = 0;
  CHECK(!api.recallocarray(block, 100, SIZE_MAX / 8, 10));
  CHECK_EQ(errno, ENOMEM);
  errno = 0;
  CHECK(!api.recallocarray(block, 100, SIZE_MAX / 10 + 2, 10));
  CHECK_EQ(errno, ENOMEM);
  CHECK(filled(block, 1000, 4));
  api.free(block);
}

TEST(recallocarray_with_an_impossible_old_count_is_einval) {
  NEED(api.recallocarray);
  void *block = new_block(1000, 4);
  errno = 0;
  CHECK(!api.recallocarray(block, SIZE_MAX / 2, 10, 10)); /* overflows */
  CHECK_EQ(errno, EINVAL);
  errno = 0;
  CHECK(!api.recallocarray(block, api.malloc_usable_size(block) / 10 + 1, 10, 10)); /* more than the block holds */
  CHECK_EQ(errno, EINVAL);
  CHECK(filled(block, 1000, 4));
  api.free(block);
}

TEST(recallocarray_keeps_errno) {
  NEED(api.recallocarray);
  for EACH_SIZE(size) {
    void *block = api.malloc(size);
    errno = MARK;
    block = api.recallocarray(block, 1, 3, size);
    block = api.recallocarray(block, 3, 1, size);
    CHECK_EQ(errno, MARK);
    api.free(block);
  }
}

/* ---- reallocf ---- */

TEST(reallocf_keeps_the_content) {
  NEED(api.reallocf);
  for EACH_SIZE(size) {
    void *block = api.reallocf(new_block(size, 2), 3 * size);
    CHECK(block && filled(block, size, 2));
    block = api.reallocf(block, size);
    CHECK(block && filled(block, size, 2));
    api.free(block);
  }
}

TEST(reallocf_of_null_allocates) {
  NEED(api.reallocf);
  void *block = api.reallocf(NULL, 100);
  CHECK(block && filled(fill(block, 100, 1), 100, 1));
  api.free(block);
}

TEST(reallocf_failure_frees_the_block) {
  NEED(api.reallocf);
  size_t before = check_resident();
  for (int i = 0; i < 2000; i++) {
    void *block = new_bytes(200000, 1);
    errno = 0;
    CHECK(!api.reallocf(block, SIZE_MAX - (size_t)i));
    CHECK_EQ(errno, ENOMEM);
  }
  CHECK(SANITIZED || check_resident() < before + ((size_t)32 << 20));
}

TEST(reallocf_of_null_failure_is_enomem) {
  NEED(api.reallocf);
  errno = 0;
  CHECK(!api.reallocf(NULL, SIZE_MAX));
  CHECK_EQ(errno, ENOMEM);
}

TEST(reallocf_to_0_frees_once) {
  NEED(api.reallocf);
  for EACH_SIZE(size) {
    void *block = api.malloc(size);
    errno = MARK;
    CHECK(!api.reallocf(block, 0));
    CHECK_EQ(errno, MARK);
  }
}

TEST(reallocf_keeps_errno) {
  NEED(api.reallocf);
  for EACH_SIZE(size) {
    void *block = api.malloc(100);
    errno = MARK;
    block = api.reallocf(block, size);
    CHECK_EQ(errno, MARK);
    api.free(block);
  }
}
