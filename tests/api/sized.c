/* sized.c - usable and good sizes, nallocx, and the frees that take a size. */
#include "api.h"

/* ---- malloc_usable_size ---- */

TEST(usable_size_of_null_is_0) { CHECK_EQ(api.malloc_usable_size(NULL), 0); }

TEST(usable_size_is_at_least_what_was_asked) {
  for EACH_SIZE(size) {
    void *first = api.malloc(size), *second = api.calloc(1, size);
    CHECK(api.malloc_usable_size(first) >= size);
    CHECK(api.malloc_usable_size(second) >= size);
    api.free(first), api.free(second);
  }
}

TEST(usable_size_is_all_writable) {
  for EACH_SIZE(size) {
    void *blocks[9];
    for (int i = 0; i < 9; i++) blocks[i] = fill(api.malloc(size), size, (unsigned)i);
    size_t usable = api.malloc_usable_size(blocks[4]);
    memset(blocks[4], 0xff, usable);
    for (unsigned i = 0; i < 9; i++) CHECK(i == 4 || filled(blocks[i], size, i));
    CHECK(all_bytes(blocks[4], usable, 0xff));
    for (int i = 0; i < 9; i++) api.free(blocks[i]);
  }
}

TEST(usable_size_does_not_depend_on_the_content) {
  for EACH_SIZE(size) {
    void *block = api.malloc(size);
    size_t usable = api.malloc_usable_size(block);
    memset(block, 0xff, usable);
    CHECK_EQ(api.malloc_usable_size(block), usable);
    memset(block, 0, usable);
    CHECK_EQ(api.malloc_usable_size(block), usable);
    api.free(block);
  }
}

TEST(usable_size_keeps_errno) {
  for EACH_SIZE(size) {
    void *block = api.malloc(size);
    errno = MARK;
    CHECK(api.malloc_usable_size(block));
    CHECK_EQ(api.malloc_usable_size(NULL), 0);
    CHECK_EQ(errno, MARK);
    api.free(block);
  }
}

TEST(usable_size_survives_realloc_to_itself) {
  for EACH_SIZE(size) {
    void *block = api.malloc(size);
    size_t usable = api.malloc_usable_size(block);
    void *same = api.realloc(block, usable);
    CHECK(api.malloc_usable_size(same) >= usable);
    api.free(same);
  }
}

TEST(usable_size_wastes_less_than_a_quarter) {
  NEED(api.malloc_good_size); /* hakmem's size classes promise this */
  for EACH_SIZE(size) {
    void *block = api.malloc(size);
    size_t usable = api.malloc_usable_size(block);
    CHECK(usable <= size + size / 4 + 16 || size > 32768); /* larger blocks are whole units */
    CHECK(usable <= size + size / 4 + 65536);
    api.free(block);
  }
}

struct shared_block {
  void *block;
  size_t usable;
};

static void *read_usable_size(void *argument) {
  struct shared_block *shared = argument;
  shared->usable = api.malloc_usable_size(shared->block);
  return NULL;
}

TEST(usable_size_is_the_same_in_another_thread) {
  for EACH_SIZE(size) {
    struct shared_block shared = {api.malloc(size), 0};
    in_thread(read_usable_size, &shared);
    CHECK_EQ(shared.usable, api.malloc_usable_size(shared.block));
    api.free(shared.block);
  }
}

/* ---- malloc_good_size ---- */

static void compare_good_size(size_t size) {
  void *block = api.malloc(size);
  CHECK_EQ(api.malloc_good_size(size), api.malloc_usable_size(block));
  api.free(block);
}

TEST(good_size_is_the_usable_size_of_small_blocks) {
  NEED(api.malloc_good_size);
  for (size_t size = 0; size <= 5000; size++) compare_good_size(size);
}

TEST(good_size_is_the_usable_size_of_every_size) {
  NEED(api.malloc_good_size);
  for EACH_SIZE(size) compare_good_size(size);
}

TEST(good_size_never_falls) {
  NEED(api.malloc_good_size);
  size_t last = 0;
  for (size_t size = 0; size < (size_t)1 << 40; size += size / 64 + 1) {
    size_t good = api.malloc_good_size(size);
    CHECK(good >= size && good >= last);
    last = good;
  }
}

TEST(good_size_of_what_can_never_be_had_is_0) {
  NEED(api.malloc_good_size);
  const size_t never[] = {SIZE_MAX, PTRDIFF_MAX, (size_t)1 << 62, (size_t)1 << 48};
  for (size_t i = 0; i < sizeof never / sizeof never[0]; i++) {
    CHECK(api.malloc(never[i]) == NULL);
    CHECK_EQ(api.malloc_good_size(never[i]), 0);
  }
}

TEST(good_size_of_a_good_size_is_itself) {
  NEED(api.malloc_good_size);
  for EACH_SIZE(size) CHECK_EQ(api.malloc_good_size(api.malloc_good_size(size)), api.malloc_good_size(size));
}

TEST(good_size_of_the_impossible_is_0) {
  NEED(api.malloc_good_size);
  for EACH_IMPOSSIBLE(size) CHECK_EQ(api.malloc_good_size(size), 0);
}

TEST(good_size_keeps_errno) {
  NEED(api.malloc_good_size);
  errno = MARK;
  for EACH_SIZE(size) CHECK(api.malloc_good_size(size));
  CHECK_EQ(api.malloc_good_size(SIZE_MAX), 0);
  CHECK_EQ(errno, MARK);
}

/* ---- nallocx and sdallocx ---- */

TEST(nallocx_without_flags_is_the_good_size) {
  NEED(api.nallocx);
  for EACH_SIZE(size) CHECK_EQ(api.nallocx(size, 0), api.malloc_good_size(size));
}

TEST(nallocx_ignores_the_zero_flag) {
  NEED(api.nallocx);
  for EACH_SIZE(size) CHECK_EQ(api.nallocx(size, HAK_ZERO), api.nallocx(size, 0));
}

TEST(nallocx_with_an_alignment_is_the_usable_size) {
  NEED(api.nallocx);
  for (int bits = 0; bits <= 22; bits++)
    for EACH_SIZE(size) {
      void *block = api.aligned_alloc((size_t)1 << bits, size);
      CHECK_EQ(api.nallocx(size, HAK_LG_ALIGN(bits)), api.malloc_usable_size(block));
      api.free(block);
    }
}

TEST(nallocx_of_the_impossible_is_0) {
  NEED(api.nallocx);
  for EACH_IMPOSSIBLE(size) {
    CHECK_EQ(api.nallocx(size, 0), 0);
    CHECK_EQ(api.nallocx(size, HAK_LG_ALIGN(12)), 0);
  }
}

TEST(nallocx_keeps_errno) {
  NEED(api.nallocx);
  errno = MARK;
  for EACH_SIZE(size) CHECK(api.nallocx(size, HAK_LG_ALIGN(6)) >= size);
  CHECK_EQ(api.nallocx(SIZE_MAX, 0), 0);
  CHECK_EQ(errno, MARK);
}

TEST(sdallocx_frees_every_size) {
  NEED(api.sdallocx);
  for EACH_SIZE(size) {
    void *block = fill(api.malloc(size), size, 1);
    errno = MARK;
    api.sdallocx(block, size, 0);
    CHECK_EQ(errno, MARK);
  }
}

TEST(sdallocx_frees_every_alignment) {
  NEED(api.sdallocx);
  for (int bits = 0; bits <= 22; bits++)
    for EACH_SIZE(size) api.sdallocx(api.aligned_alloc((size_t)1 << bits, size), size, HAK_LG_ALIGN(bits));
}

TEST(sdallocx_takes_what_nallocx_says) {
  NEED(api.sdallocx);
  for EACH_SIZE(size) api.sdallocx(api.malloc(size), api.nallocx(size, 0), 0);
}

TEST(sdallocx_does_not_leak) {
  NEED(api.sdallocx);
  size_t before = check_resident();
  for (int i = 0; i < 2000; i++) api.sdallocx(new_bytes(100000, 1), 100000, 0);
  CHECK(SANITIZED || check_resident() < before + ((size_t)32 << 20));
}

/* ---- free_sized and free_aligned_sized ---- */

TEST(free_sized_of_null_is_no_action) {
  NEED(api.free_sized);
  errno = MARK;
  api.free_sized(NULL, 0);
  api.free_sized(NULL, 100);
  api.free_sized(NULL, SIZE_MAX);
  CHECK_EQ(errno, MARK);
}

TEST(free_sized_frees_every_size) {
  NEED(api.free_sized);
  for (size_t size = 0; size <= 5000; size++) api.free_sized(api.malloc(size), size);
  for EACH_SIZE(size) api.free_sized(api.malloc(size), size);
}

TEST(free_sized_frees_zeroed_blocks) {
  NEED(api.free_sized);
  for EACH_SIZE(size) api.free_sized(api.calloc(1, size), size);
  api.free_sized(api.calloc(10, 30), 300);
}

TEST(free_sized_takes_the_usable_size) {
  NEED(api.free_sized);
  for EACH_SIZE(size) {
    void *block = api.malloc(size);
    api.free_sized(block, api.malloc_usable_size(block));
  }
}

TEST(free_sized_keeps_errno) {
  NEED(api.free_sized);
  for EACH_SIZE(size) {
    void *block = api.malloc(size);
    errno = MARK;
    api.free_sized(block, size);
    CHECK_EQ(errno, MARK);
  }
}

TEST(free_sized_does_not_leak) {
  NEED(api.free_sized);
  size_t before = check_resident();
  for (int i = 0; i < 200000; i++) api.free_sized(new_bytes(1000, 1), 1000);
  for (int i = 0; i < 2000; i++) api.free_sized(new_bytes(100000, 1), 100000);
  CHECK(SANITIZED || check_resident() < before + ((size_t)32 << 20));
}

static void *free_sized_100000(void *block) {
  errno = MARK;
  api.free_sized(block, 100000);
  CHECK_EQ(errno, MARK);
  return NULL;
}

static void *free_sized_100(void *block) {
  errno = MARK;
  api.free_sized(block, 100);
  CHECK_EQ(errno, MARK);
  return NULL;
}

TEST(free_sized_in_another_thread) {
  NEED(api.free_sized);
  for (int i = 0; i < 20; i++) {
    in_thread(free_sized_100, api.malloc(100));
    in_thread(free_sized_100000, api.malloc(100000));
  }
}

TEST(free_aligned_sized_of_null_is_no_action) {
  NEED(api.free_aligned_sized);
  errno = MARK;
  api.free_aligned_sized(NULL, 0, 0);
  api.free_aligned_sized(NULL, 64, 100);
  api.free_aligned_sized(NULL, 3, SIZE_MAX);
  CHECK_EQ(errno, MARK);
}

TEST(free_aligned_sized_frees_every_alignment) {
  NEED(api.free_aligned_sized);
  for (size_t alignment = 1; alignment <= (size_t)4 << 20; alignment *= 2)
    for EACH_SIZE(size) {
      void *block = api.aligned_alloc(alignment, size);
      REQUIRE(block);
      api.free_aligned_sized(block, alignment, size);
    }
}

TEST(free_aligned_sized_of_size_0) {
  NEED(api.free_aligned_sized);
  for (size_t alignment = 1; alignment <= (size_t)1 << 20; alignment *= 2)
    api.free_aligned_sized(api.aligned_alloc(alignment, 0), alignment, 0);
}

TEST(free_aligned_sized_keeps_errno) {
  NEED(api.free_aligned_sized);
  for (size_t alignment = 16; alignment <= (size_t)1 << 20; alignment *= 4)
    for EACH_SIZE(size) {
      void *block = api.aligned_alloc(alignment, size);
      errno = MARK;
      api.free_aligned_sized(block, alignment, size);
      CHECK_EQ(errno, MARK);
    }
}

TEST(free_aligned_sized_does_not_leak) {
  NEED(api.free_aligned_sized);
  size_t before = check_resident();
  for (int i = 0; i < 2000; i++) api.free_aligned_sized(memset(api.aligned_alloc(4096, 100000), 1, 100000), 4096, 100000);
  CHECK(SANITIZED || check_resident() < before + ((size_t)32 << 20));
}
