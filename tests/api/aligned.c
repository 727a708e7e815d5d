/* aligned.c - aligned_alloc, memalign, posix_memalign, valloc and pvalloc. */
#include "api.h"

static size_t page_size(void) { return (size_t)sysconf(_SC_PAGESIZE); }

static void *by_posix(size_t alignment, size_t size) {
  void *block = NULL;
  int code = api.posix_memalign(&block, alignment, size);
  errno = code ? code : errno;
  return code ? NULL : block;
}

typedef void *(*aligner_t)(size_t alignment, size_t size);

/* ---- What all aligned allocators have in common ---- */

static void serve(aligner_t aligner, size_t smallest) {
  for (size_t alignment = smallest; alignment <= 65536; alignment *= 2)
    for (size_t size = 1; size <= 200000; size = size * 2 + size / 3 + 1) {
      void *first = aligner(alignment, size), *second = aligner(alignment, size);
      REQUIRE(first && second);
      CHECK(aligned(first, alignment) && aligned(second, alignment));
      CHECK(aligned(first, 16) && aligned(second, 16));
      fill(first, size, 1), fill(second, size, 2);
      CHECK(filled(first, size, 1) && filled(second, size, 2));
      api.free(first), api.free(second);
    }
}

/* Alignments that may not fit: the result is aligned memory, or ENOMEM. */
static void serve_huge(aligner_t aligner) {
  for (int bits = 17; bits <= 40; bits++)
    for (size_t size = 1; size <= 5000000; size = size * 1000 + 7) {
      size_t alignment = (size_t)1 << bits;
      errno = 0;
      char *block = aligner(alignment, size);
      CHECK(block || errno == ENOMEM);
      CHECK(aligned(block, alignment));
      CHECK(block || bits > 26); /* up to 64 MiB it must work */
      if (block) block[0] = 1, block[size - 1] = 2;
      api.free(block);
    }
}

static void keep_errno(aligner_t aligner) {
  for (size_t alignment = 8; alignment <= (size_t)4 << 20; alignment *= 2)
    for (size_t size = 0; size < 100000; size = size * 10 + 1) {
      errno = MARK;
      void *block = aligner(alignment, size);
      CHECK_EQ(errno, MARK);
      api.free(block);
    }
}

static void refuse(aligner_t aligner, size_t alignment, int code) {
  for (size_t size = 0; size < 100000; size = size * 10 + 1) {
    errno = 0;
    CHECK(!aligner(alignment, size));
    CHECK_EQ(errno, code);
  }
}

static void refuse_odd(aligner_t aligner) {
  static const size_t odd[] = {3, 5, 6, 7, 9, 12, 24, 33, 48, 100, 4095, 4097, 12288, ((size_t)1 << 40) + 8, (size_t)PTRDIFF_MAX, SIZE_MAX};
  for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++) refuse(aligner, odd[i], EINVAL);
}

static void refuse_impossible(aligner_t aligner) {
  for (size_t alignment = 8; alignment <= (size_t)1 << 40; alignment *= 4)
    for EACH_IMPOSSIBLE(size) {
      errno = 0;
      CHECK(!aligner(alignment, size));
      CHECK_EQ(errno, ENOMEM);
    }
}

/* Alignment and size are possible one by one, but not together. */
static void refuse_the_sum(aligner_t aligner) {
  for (int bits = 60; bits <= 63; bits++)
    for (size_t size = 1; size < (size_t)PTRDIFF_MAX / 4; size = size * 1000) {
      errno = 0;
      CHECK(!aligner((size_t)1 << bits, size));
      CHECK_EQ(errno, ENOMEM);
    }
}

static void size_0(aligner_t aligner) {
  for (size_t alignment = 8; alignment <= (size_t)1 << 21; alignment *= 2) {
    void *first = aligner(alignment, 0), *second = aligner(alignment, 0);
    CHECK(first && second && first != second);
    CHECK(aligned(first, alignment) && aligned(second, alignment));
    api.free(first), api.free(second);
  }
}

static void not_overlap(aligner_t aligner) {
  enum { COUNT = 1500 };
  static void *blocks[COUNT];
  for (unsigned i = 0; i < COUNT; i++) {
    size_t size = sizes[i * 31 % 60];
    blocks[i] = aligner((size_t)16 << i % 10, size);
    REQUIRE(blocks[i] && aligned(blocks[i], (size_t)16 << i % 10));
    fill(blocks[i], size, i);
  }
  for (unsigned i = 0; i < COUNT; i += 2) api.free(blocks[i]);
  for (unsigned i = 0; i < COUNT; i += 2) {
    blocks[i] = aligner((size_t)16 << i % 10, sizes[i * 31 % 60]);
    REQUIRE(blocks[i]);
    fill(blocks[i], sizes[i * 31 % 60], i);
  }
  for (unsigned i = 0; i < COUNT; i++) CHECK(filled(blocks[i], sizes[i * 31 % 60], i));
  for (unsigned i = 0; i < COUNT; i++) api.free(blocks[i]);
}

static void use_whole(aligner_t aligner) {
  NEED(api.malloc_usable_size);
  for (size_t alignment = 8; alignment <= (size_t)1 << 22; alignment *= 2)
    for (size_t size = 1; size <= 300000; size = size * 7 + 1) {
      void *before = aligner(alignment, size), *block = aligner(alignment, size), *after = aligner(alignment, size);
      REQUIRE(before && block && after);
      fill(before, size, 1), fill(after, size, 2);
      size_t usable = api.malloc_usable_size(block);
      CHECK(usable >= size);
      memset(block, 0xff, usable);
      CHECK(filled(before, size, 1) && filled(after, size, 2));
      api.free(before), api.free(block), api.free(after);
    }
}

static void not_leak(aligner_t aligner) {
  size_t before = check_resident();
  for (int i = 0; i < 3000; i++) {
    size_t size = i % 2 ? 60000 : 600000;
    void *block = aligner((size_t)64 << i % 12, size);
    REQUIRE(block);
    memset(block, 1, size);
    api.free(block);
  }
  CHECK(SANITIZED || check_resident() < before + ((size_t)32 << 20));
}

/* ---- aligned_alloc ---- */

TEST(aligned_alloc_serves_every_alignment) { serve(api.aligned_alloc, 1); }
TEST(aligned_alloc_to_2_to_the_40) { serve_huge(api.aligned_alloc); }
TEST(aligned_alloc_keeps_errno) { keep_errno(api.aligned_alloc); }
TEST(aligned_alloc_of_alignment_0_is_einval) { refuse(api.aligned_alloc, 0, EINVAL); }
TEST(aligned_alloc_of_no_power_of_two_is_einval) { refuse_odd(api.aligned_alloc); }
TEST(aligned_alloc_beyond_ptrdiff_max_is_enomem) { refuse_impossible(api.aligned_alloc); }
TEST(aligned_alloc_of_an_impossible_sum_is_enomem) { refuse_the_sum(api.aligned_alloc); }
TEST(aligned_alloc_of_0_is_unique) { size_0(api.aligned_alloc); }
TEST(aligned_alloc_blocks_do_not_overlap) { not_overlap(api.aligned_alloc); }
TEST(aligned_alloc_usable_size_is_usable) { use_whole(api.aligned_alloc); }
TEST(aligned_alloc_does_not_leak) { not_leak(api.aligned_alloc); }

TEST(aligned_alloc_takes_sizes_that_are_no_multiple) {
  for (size_t alignment = 16; alignment <= 65536; alignment *= 2) {
    void *block = api.aligned_alloc(alignment, alignment + 1);
    REQUIRE(block);
    CHECK(aligned(block, alignment));
    memset(block, 1, alignment + 1);
    api.free(block);
    block = api.aligned_alloc(alignment, alignment / 2 - 1);
    CHECK(block && aligned(block, alignment));
    api.free(block);
  }
}

/* ---- memalign ---- */

TEST(memalign_serves_every_alignment) { serve(api.memalign, 1); }
TEST(memalign_to_2_to_the_40) { serve_huge(api.memalign); }
TEST(memalign_keeps_errno) { keep_errno(api.memalign); }
TEST(memalign_of_alignment_0_is_einval) { refuse(api.memalign, 0, EINVAL); }
TEST(memalign_of_no_power_of_two_is_einval) { refuse_odd(api.memalign); }
TEST(memalign_beyond_ptrdiff_max_is_enomem) { refuse_impossible(api.memalign); }
TEST(memalign_of_an_impossible_sum_is_enomem) { refuse_the_sum(api.memalign); }
TEST(memalign_of_0_is_unique) { size_0(api.memalign); }
TEST(memalign_blocks_do_not_overlap) { not_overlap(api.memalign); }
TEST(memalign_usable_size_is_usable) { use_whole(api.memalign); }
TEST(memalign_does_not_leak) { not_leak(api.memalign); }

/* ---- posix_memalign ---- */

TEST(posix_memalign_serves_every_alignment) { serve(by_posix, sizeof(void *)); }
TEST(posix_memalign_to_2_to_the_40) { serve_huge(by_posix); }
TEST(posix_memalign_keeps_errno) { keep_errno(by_posix); }
TEST(posix_memalign_of_alignment_0_is_einval) { refuse(by_posix, 0, EINVAL); }
TEST(posix_memalign_of_no_power_of_two_is_einval) { refuse_odd(by_posix); }
TEST(posix_memalign_beyond_ptrdiff_max_is_enomem) { refuse_impossible(by_posix); }
TEST(posix_memalign_of_an_impossible_sum_is_enomem) { refuse_the_sum(by_posix); }
TEST(posix_memalign_of_0_is_unique) { size_0(by_posix); }
TEST(posix_memalign_blocks_do_not_overlap) { not_overlap(by_posix); }
TEST(posix_memalign_usable_size_is_usable) { use_whole(by_posix); }
TEST(posix_memalign_does_not_leak) { not_leak(by_posix); }

TEST(posix_memalign_below_a_pointer_is_einval) {
  for (size_t alignment = 1; alignment < sizeof(void *); alignment *= 2) refuse(by_posix, alignment, EINVAL);
}

TEST(posix_memalign_einval_leaves_result_and_errno) {
  static const size_t wrong[] = {0, 1, 2, 4, 3, 24, 4097, SIZE_MAX};
  for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
    void *result = &result;
    errno = MARK;
    CHECK_EQ(api.posix_memalign(&result, wrong[i], 100), EINVAL);
    CHECK(result == &result);
    CHECK_EQ(errno, MARK);
  }
}

TEST(posix_memalign_enomem_leaves_result_and_errno) {
  for (size_t alignment = sizeof(void *); alignment <= (size_t)1 << 30; alignment *= 8)
    for EACH_IMPOSSIBLE(size) {
      void *result = &result;
      errno = MARK;
      CHECK_EQ(api.posix_memalign(&result, alignment, size), ENOMEM);
      CHECK(result == &result);
      CHECK_EQ(errno, MARK);
    }
}

TEST(posix_memalign_beyond_the_address_space_leaves_result_and_errno) {
  void *result = &result;
  errno = MARK;
  CHECK_EQ(api.posix_memalign(&result, 64, (size_t)1 << 60), ENOMEM);
  CHECK_EQ(api.posix_memalign(&result, (size_t)1 << 62, 64), ENOMEM);
  CHECK(result == &result);
  CHECK_EQ(errno, MARK);
}

/* ---- valloc and pvalloc ---- */

TEST(valloc_aligns_to_pages) {
  for EACH_SIZE(size) {
    void *block = api.valloc(size);
    REQUIRE(block);
    CHECK(aligned(block, page_size()));
    CHECK(filled(fill(block, size, 1), size, 1));
    api.free(block);
  }
}

TEST(valloc_of_0_is_unique) {
  void *first = api.valloc(0), *second = api.valloc(0);
  CHECK(first && second && first != second);
  CHECK(aligned(first, page_size()) && aligned(second, page_size()));
  api.free(first), api.free(second);
}

TEST(valloc_beyond_ptrdiff_max_is_enomem) {
  for EACH_IMPOSSIBLE(size) {
    errno = 0;
    CHECK(!api.valloc(size));
    CHECK_EQ(errno, ENOMEM);
  }
}

TEST(valloc_keeps_errno) {
  for EACH_SIZE(size) {
    errno = MARK;
    void *block = api.valloc(size);
    CHECK_EQ(errno, MARK);
    api.free(block);
  }
}

TEST(pvalloc_aligns_to_pages) {
  for EACH_SIZE(size) {
    void *block = api.pvalloc(size);
    REQUIRE(block);
    CHECK(aligned(block, page_size()));
    api.free(block);
  }
}

TEST(pvalloc_rounds_up_to_pages) {
  NEED(api.malloc_usable_size);
  for EACH_SIZE(size) {
    size_t whole = (size + page_size() - 1) / page_size() * page_size();
    void *block = api.pvalloc(size);
    REQUIRE(block);
    CHECK(api.malloc_usable_size(block) >= whole);
    CHECK(filled(fill(block, whole, 1), whole, 1));
    api.free(block);
  }
}

TEST(pvalloc_of_0_is_unique) {
  void *first = api.pvalloc(0), *second = api.pvalloc(0);
  CHECK(first && second && first != second);
  CHECK(aligned(first, page_size()) && aligned(second, page_size()));
  api.free(first), api.free(second);
}

TEST(pvalloc_beyond_ptrdiff_max_is_enomem) {
  for EACH_IMPOSSIBLE(size) {
    errno = 0;
    CHECK(!api.pvalloc(size));
    CHECK_EQ(errno, ENOMEM);
  }
}

TEST(pvalloc_that_rounds_to_0_is_enomem) {
  for (size_t less = 0; less < page_size(); less += 127) {
    errno = 0;
    CHECK(!api.pvalloc(SIZE_MAX - less));
    CHECK_EQ(errno, ENOMEM);
  }
}

TEST(pvalloc_keeps_errno) {
  for EACH_SIZE(size) {
    errno = MARK;
    void *block = api.pvalloc(size);
    CHECK_EQ(errno, MARK);
    api.free(block);
  }
}
