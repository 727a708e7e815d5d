/* malloc.c - malloc, calloc, free and cfree. */
#include "api.h"

/* ---- malloc ---- */

TEST(malloc_serves_every_size) {
  for EACH_SIZE(size) {
    void *block = api.malloc(size);
    REQUIRE(block);
    CHECK(filled(fill(block, size, 7), size, 7));
    api.free(block);
  }
}

TEST(malloc_aligns_every_small_size_to_16) {
  for (size_t size = 0; size <= 2048; size++) {
    void *first = api.malloc(size), *second = api.malloc(size);
    CHECK(aligned(first, 16) && aligned(second, 16));
    api.free(first), api.free(second);
  }
}

TEST(malloc_aligns_large_sizes_to_16) {
  for EACH_SIZE(size) {
    void *block = api.malloc(size);
    CHECK(aligned(block, 16));
    api.free(block);
  }
}

TEST(malloc_of_0_is_not_null) {
  void *block = api.malloc(0);
  CHECK(block);
  CHECK(aligned(block, 16));
  api.free(block);
}

TEST(malloc_of_0_is_unique) {
  void *blocks[100];
  for (int i = 0; i < 100; i++) {
    blocks[i] = api.malloc(0);
    REQUIRE(blocks[i]);
    for (int j = 0; j < i; j++) CHECK(blocks[i] != blocks[j]);
  }
  for (int i = 0; i < 100; i++) api.free(blocks[i]);
}

enum { NOTHINGS = 10000 };

static void *free_nothings(void *blocks) {
  for (int i = 0; i < NOTHINGS; i++) api.free(((void **)blocks)[i]);
  return NULL;
}

TEST(malloc_of_0_freed_elsewhere_comes_again) {
  static void *blocks[NOTHINGS];
  for (int round = 0; round < 3; round++) {
    for (int i = 0; i < NOTHINGS; i++) CHECK((blocks[i] = api.malloc(0)) != NULL);
    in_thread(free_nothings, blocks);
  }
}

TEST(malloc_of_0_can_be_reallocated) {
  void *block = api.realloc(api.malloc(0), 1000);
  REQUIRE(block);
  CHECK(filled(fill(block, 1000, 1), 1000, 1));
  api.free(block);
}

TEST(malloc_keeps_errno) {
  for EACH_SIZE(size) {
    errno = MARK;
    void *block = api.malloc(size);
    CHECK_EQ(errno, MARK);
    api.free(block);
  }
}

TEST(malloc_of_0_keeps_errno) {
  errno = MARK;
  void *block = api.malloc(0);
  CHECK_EQ(errno, MARK);
  api.free(block);
}

TEST(malloc_beyond_ptrdiff_max_is_enomem) {
  for EACH_IMPOSSIBLE(size) {
    errno = 0;
    CHECK(!api.malloc(size));
    CHECK_EQ(errno, ENOMEM);
  }
}

TEST(malloc_of_ptrdiff_max_is_enomem) {
  for (size_t less = 0; less <= 65536; less = less * 4 + 1) {
    errno = 0;
    CHECK(!api.malloc((size_t)PTRDIFF_MAX - less));
    CHECK_EQ(errno, ENOMEM);
  }
}

TEST(malloc_beyond_the_address_space_is_enomem) {
  for (int bits = 48; bits < 63; bits++) {
    errno = 0;
    CHECK(!api.malloc((size_t)1 << bits));
    CHECK_EQ(errno, ENOMEM);
  }
}

TEST(malloc_works_after_failures) {
  for (int i = 0; i < 1000; i++) {
    CHECK(!api.malloc(SIZE_MAX - (size_t)i * 1000));
    void *block = api.malloc((size_t)i + 1);
    REQUIRE(block);
    memset(block, 1, (size_t)i + 1);
    api.free(block);
  }
}

TEST(malloc_blocks_do_not_overlap) {
  enum { COUNT = 2000 };
  static void *blocks[COUNT];
  for (unsigned i = 0; i < COUNT; i++) {
    size_t size = sizes[i % 70];
    blocks[i] = api.malloc(size);
    REQUIRE(blocks[i]);
    fill(blocks[i], size, i);
  }
  for (unsigned i = 0; i < COUNT; i++) CHECK(filled(blocks[i], sizes[i % 70], i));
  for (unsigned i = 0; i < COUNT; i++) api.free(blocks[i]);
}

static void many_of_one_size(size_t size, unsigned count) {
  unsigned **blocks = api.malloc(count * sizeof *blocks);
  REQUIRE(blocks);
  for (unsigned i = 0; i < count; i++) {
    blocks[i] = api.malloc(size);
    REQUIRE(blocks[i]);
    blocks[i][0] = i, blocks[i][size / sizeof(unsigned) - 1] = i;
  }
  unsigned wrong = 0;
  for (unsigned i = 0; i < count; i++) wrong += blocks[i][0] != i || blocks[i][size / sizeof(unsigned) - 1] != i;
  CHECK_EQ(wrong, 0);
  for (unsigned i = 0; i < count; i++) api.free(blocks[i]);
  api.free(blocks);
}

TEST(malloc_gives_200000_blocks_of_16) { many_of_one_size(16, 200000); }
TEST(malloc_gives_100000_blocks_of_64) { many_of_one_size(64, 100000); }
TEST(malloc_gives_20000_blocks_of_1000) { many_of_one_size(1000, 20000); }
TEST(malloc_gives_2000_blocks_of_16384) { many_of_one_size(16384, 2000); }
TEST(malloc_gives_200_blocks_of_262144) { many_of_one_size(262144, 200); }

TEST(malloc_content_survives_frees_of_neighbours) {
  enum { COUNT = 3000 };
  static void *blocks[COUNT];
  for (unsigned i = 0; i < COUNT; i++) blocks[i] = fill(api.malloc(sizes[i % 50]), sizes[i % 50], i);
  for (unsigned i = 0; i < COUNT; i += 2) api.free(blocks[i]);
  for (unsigned i = 0; i < COUNT; i += 2) blocks[i] = fill(api.malloc(sizes[i % 50]), sizes[i % 50], ~i);
  for (unsigned i = 1; i < COUNT; i += 2) CHECK(filled(blocks[i], sizes[i % 50], i));
  for (unsigned i = 0; i < COUNT; i++) api.free(blocks[i]);
}

TEST(malloc_reuses_what_was_freed) {
  for EACH_SIZE(size) {
    if (size < 4096) continue;
    size_t before = check_resident();
    for (size_t total = 0; total < ((size_t)64 << 20) + 16 * size; total += size) {
      char *block = api.malloc(size);
      REQUIRE(block);
      memset(block, 1, size < 8192 ? size : 8192);
      api.free(block);
    }
    CHECK(SANITIZED || check_resident() < before + ((size_t)24 << 20));
  }
}

TEST(malloc_serves_1_gib) {
  size_t size = (size_t)1 << 30;
  char *block = api.malloc(size);
  REQUIRE(block);
  block[0] = 1, block[size / 2] = 2, block[size - 1] = 3;
  CHECK(block[0] + block[size / 2] + block[size - 1] == 6);
  api.free(block);
}

/* ---- calloc ---- */

TEST(calloc_zeroes_every_size) {
  for EACH_SIZE(size) {
    void *block = api.calloc(1, size);
    REQUIRE(block);
    CHECK(all_bytes(block, size, 0));
    api.free(block);
  }
}

TEST(calloc_zeroes_reused_memory) {
  for EACH_SIZE(size) {
    dirty(size);
    void *blocks[4];
    for (int i = 0; i < 4; i++) {
      blocks[i] = api.calloc(1, size);
      REQUIRE(blocks[i]);
      CHECK(all_bytes(blocks[i], size, 0));
    }
    for (int i = 0; i < 4; i++) api.free(blocks[i]);
  }
}

TEST(calloc_zeroes_many_blocks_of_a_dirty_slab) {
  static void *blocks[5000];
  for (size_t size = 16; size <= 1024; size *= 4) {
    for (int i = 0; i < 5000; i++) blocks[i] = new_bytes(size, 0xff);
    for (int i = 0; i < 5000; i++) api.free(blocks[i]);
    for (int i = 0; i < 5000; i++) CHECK((blocks[i] = api.calloc(1, size)) && all_bytes(blocks[i], size, 0));
    for (int i = 0; i < 5000; i++) api.free(blocks[i]);
  }
}

TEST(calloc_zeroes_what_shrinking_left) {
  void *blocks[8];
  for (int i = 0; i < 8; i++) blocks[i] = api.realloc(new_bytes(3000000, 0xff), 100000);
  for (int i = 0; i < 8; i++) {
    void *block = api.calloc(2, 700000);
    CHECK(block && all_bytes(block, 1400000, 0));
    api.free(block), api.free(blocks[i]);
  }
}

TEST(calloc_zeroes_what_aligned_blocks_left) {
  for (size_t size = 16; size <= 2000000; size = size * 3 + 7) {
    void *block = api.aligned_alloc(4096, size);
    REQUIRE(block);
    memset(block, 0xff, size);
    api.free(block);
    block = api.calloc(size, 1);
    CHECK(block && all_bytes(block, size, 0));
    api.free(block);
  }
}

TEST(calloc_multiplies) {
  static const size_t counts[][2] = {{1, 1}, {3, 5}, {10, 100}, {100, 10}, {1000, 1000}, {7, 40000}, {65536, 16}};
  for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
    size_t size = counts[i][0] * counts[i][1];
    dirty(size);
    void *block = api.calloc(counts[i][0], counts[i][1]);
    REQUIRE(block);
    CHECK(all_bytes(block, size, 0));
    CHECK(filled(fill(block, size, 3), size, 3));
    CHECK(!api.malloc_usable_size || api.malloc_usable_size(block) >= size);
    api.free(block);
  }
}

TEST(calloc_overflow_is_enomem) {
  static const size_t pairs[][2] = {
      {SIZE_MAX, 2}, {2, SIZE_MAX}, {SIZE_MAX, SIZE_MAX}, {SIZE_MAX / 2 + 1, 2}, {3, SIZE_MAX / 2}, {(size_t)1 << 32, (size_t)1 << 32},
  };
  for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
    errno = 0;
    CHECK(!api.calloc(pairs[i][0], pairs[i][1]));
    CHECK_EQ(errno, ENOMEM);
  }
}

TEST(calloc_overflow_to_a_small_product_is_enomem) {
  for (size_t size = 2; size <= (size_t)1 << 40; size *= 2) {
    errno = 0;
    CHECK(!api.calloc(SIZE_MAX / size + 2, size)); /* wraps to `size` or less */
    CHECK_EQ(errno, ENOMEM);
  }
}

TEST(calloc_beyond_ptrdiff_max_is_enomem) {
  for EACH_IMPOSSIBLE(size) {
    errno = 0;
    CHECK(!api.calloc(1, size));
    CHECK_EQ(errno, ENOMEM);
    errno = 0;
    CHECK(!api.calloc(size, 1));
    CHECK_EQ(errno, ENOMEM);
  }
}

TEST(calloc_of_0_is_unique) {
  void *blocks[] = {api.calloc(0, 0), api.calloc(0, 100), api.calloc(100, 0), api.calloc(0, 0)};
  for (int i = 0; i < 4; i++) {
    CHECK(blocks[i]);
    for (int j = 0; j < i; j++) CHECK(blocks[i] != blocks[j]);
  }
  for (int i = 0; i < 4; i++) api.free(blocks[i]);
}

TEST(calloc_of_0_times_the_maximum_is_a_block) {
  void *first = api.calloc(0, SIZE_MAX), *second = api.calloc(SIZE_MAX, 0);
  CHECK(first && second && first != second);
  api.free(first), api.free(second);
}

TEST(calloc_aligns_to_16) {
  for EACH_SIZE(size) {
    void *block = api.calloc(size, 1);
    CHECK(aligned(block, 16));
    api.free(block);
  }
}

TEST(calloc_keeps_errno) {
  for EACH_SIZE(size) {
    errno = MARK;
    void *block = api.calloc(1, size);
    CHECK_EQ(errno, MARK);
    api.free(block);
  }
}

/* ---- free and cfree ---- */

TEST(free_of_null_is_no_action) {
  for (int i = 0; i < 10; i++) api.free(NULL);
  CHECK(true);
}

TEST(free_of_null_keeps_errno) {
  errno = MARK;
  api.free(NULL);
  CHECK_EQ(errno, MARK);
}

TEST(free_keeps_errno) {
  for EACH_SIZE(size) {
    void *block = api.malloc(size);
    errno = MARK;
    api.free(block);
    CHECK_EQ(errno, MARK);
  }
}

TEST(free_of_many_keeps_errno) {
  static void *blocks[20000];
  for (int i = 0; i < 20000; i++) blocks[i] = api.malloc(sizes[(unsigned)i % 60]);
  errno = MARK;
  for (int i = 0; i < 20000; i++) api.free(blocks[i]);
  CHECK_EQ(errno, MARK);
}

TEST(free_of_huge_blocks_keeps_errno) {
  for (int i = 0; i < 4; i++) {
    char *block = api.malloc((size_t)64 << 20);
    REQUIRE(block);
    block[0] = 1;
    errno = MARK;
    api.free(block);
    CHECK_EQ(errno, MARK);
  }
}

TEST(free_in_any_order) {
  enum { COUNT = 4096 };
  static void *blocks[COUNT];
  for (unsigned stride = 1; stride < 4000; stride = stride * 3 + 2) { /* odd, so that it is a permutation */
    unsigned step = stride | 1;
    for (unsigned i = 0; i < COUNT; i++) blocks[i] = fill(api.malloc(sizes[i % 40]), sizes[i % 40], i);
    for (unsigned i = 0; i < COUNT; i++) {
      unsigned slot = i * step % COUNT;
      CHECK(filled(blocks[slot], sizes[slot % 40], slot));
      api.free(blocks[slot]);
    }
  }
}

struct batch {
  void *blocks[4000];
  size_t size;
};

static void *free_batch(void *argument) {
  struct batch *batch = argument;
  errno = MARK;
  for (int i = 0; i < 4000; i++) api.free(batch->blocks[i]);
  CHECK_EQ(errno, MARK);
  return NULL;
}

TEST(free_in_another_thread) {
  static struct batch batch;
  for (batch.size = 16; batch.size <= 65536; batch.size *= 16)
    for (int round = 0; round < 3; round++) {
      for (unsigned i = 0; i < 4000; i++) batch.blocks[i] = fill(api.malloc(batch.size), 16, i);
      for (unsigned i = 0; i < 4000; i++) CHECK(filled(batch.blocks[i], 16, i));
      in_thread(free_batch, &batch);
    }
}

static void *fill_batch(void *argument) {
  struct batch *batch = argument;
  for (unsigned i = 0; i < 4000; i++) batch->blocks[i] = fill(api.malloc(batch->size), batch->size, i);
  return NULL;
}

TEST(free_of_blocks_whose_thread_has_exited) {
  static struct batch batch;
  for (batch.size = 16; batch.size <= 4096; batch.size *= 4) {
    in_thread(fill_batch, &batch);
    for (unsigned i = 0; i < 4000; i++) CHECK(filled(batch.blocks[i], batch.size, i));
    free_batch(&batch);
  }
}

static void *free_one(void *block) {
  errno = MARK;
  api.free(block);
  CHECK_EQ(errno, MARK);
  return NULL;
}

TEST(free_of_every_size_in_another_thread) {
  for EACH_SIZE(size) in_thread(free_one, fill(api.malloc(size), size, 1));
}

TEST(free_makes_room_for_the_next) {
  size_t before = check_resident();
  for (int round = 0; round < 50; round++) {
    static void *blocks[1000];
    for (int i = 0; i < 1000; i++) blocks[i] = new_bytes(20000, 1);
    for (int i = 0; i < 1000; i++) api.free(blocks[i]);
  }
  CHECK(SANITIZED || check_resident() < before + ((size_t)48 << 20)); /* 1 GB in all, 20 MB at a time */
}

TEST(cfree_frees) {
  NEED(api.cfree);
  size_t before = check_resident();
  for (int i = 0; i < 3000; i++) api.cfree(new_bytes(100000, 1));
  CHECK(SANITIZED || check_resident() < before + ((size_t)32 << 20));
}

TEST(cfree_of_null_keeps_errno) {
  NEED(api.cfree);
  errno = MARK;
  api.cfree(NULL);
  CHECK_EQ(errno, MARK);
}

TEST(cfree_keeps_errno) {
  NEED(api.cfree);
  for EACH_SIZE(size) {
    void *block = api.calloc(1, size);
    errno = MARK;
    api.cfree(block);
    CHECK_EQ(errno, MARK);
  }
}
