// mimalloc.cpp - libmimalloc.so.2: its functions and heaps, in a program that defines operator new by them as mimalloc's header does.
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <new>

#include <pthread.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/check.h"

struct mi_heap_t;
struct mi_heap_area_t {
  void *blocks;
  size_t reserved, committed, used, block_size, full_block_size;
};

extern "C" {
void *mi_malloc(size_t size);
void *mi_zalloc(size_t size);
void *mi_calloc(size_t count, size_t size);
void *mi_mallocn(size_t count, size_t size);
void *mi_realloc(void *block, size_t size);
void *mi_rezalloc(void *block, size_t size);
void *mi_recalloc_aligned(void *block, size_t count, size_t size, size_t alignment);
void *mi_reallocf(void *block, size_t size);
void *reallocf(void *block, size_t size);
int mi_reallocarr(void *at, size_t count, size_t size);
void *mi_expand(void *block, size_t size);
int mi_posix_memalign(void **result, size_t alignment, size_t size);
void *mi_malloc_aligned(size_t size, size_t alignment);
void *mi_zalloc_aligned(size_t size, size_t alignment);
void *mi_realloc_aligned(void *block, size_t size, size_t alignment);
void *mi_rezalloc_aligned(void *block, size_t size, size_t alignment);
void *mi_malloc_aligned_at(size_t size, size_t alignment, size_t offset);
char *mi_strdup(const char *text);
char *mi_strndup(const char *text, size_t most);
char *mi_realpath(const char *name, char *resolved);
int mi_dupenv_s(char **value, size_t *size, const char *name);
void mi_free(void *block);
void mi_free_size(void *block, size_t size);
void *mi_heap_alloc_new(mi_heap_t *heap, size_t size);
void *mi_heap_alloc_new_n(mi_heap_t *heap, size_t count, size_t size);
void mi_free_size_aligned(void *block, size_t size, size_t alignment);
void mi_cfree(void *block);
size_t mi_usable_size(const void *block);
size_t mi_good_size(size_t size);
void *mi_new(size_t size);
void *mi_new_n(size_t count, size_t size);
void *mi_new_nothrow(size_t size);
void *mi_new_aligned(size_t size, size_t alignment);
void *mi_new_aligned_nothrow(size_t size, size_t alignment);
void *mi_new_reallocn(void *block, size_t count, size_t size);
void mi_collect(bool force);
int mi_version(void);
bool mi_is_in_heap_region(const void *p);
bool mi_check_owned(const void *p);
mi_heap_t *mi_heap_new(void);
void mi_heap_delete(mi_heap_t *heap);
void mi_heap_destroy(mi_heap_t *heap);
mi_heap_t *mi_heap_set_default(mi_heap_t *heap);
mi_heap_t *mi_heap_get_default(void);
mi_heap_t *mi_heap_get_backing(void);
void *mi_heap_malloc(mi_heap_t *heap, size_t size);
void *mi_heap_realloc(mi_heap_t *heap, void *block, size_t size);
void *mi_heap_zalloc_aligned(mi_heap_t *heap, size_t size, size_t alignment);
bool mi_heap_contains_block(mi_heap_t *heap, const void *p);
bool mi_heap_check_owned(mi_heap_t *heap, const void *p);
bool mi_heap_visit_blocks(const mi_heap_t *heap, bool blocks_too,
                          bool (*visit)(const mi_heap_t *, const mi_heap_area_t *, void *, size_t, void *), void *to);
void mi_stats_print_out(void (*out)(const char *, void *), void *to);
void mi_register_output(void (*out)(const char *, void *), void *to);
void mi_stats_print(void *out);
void mi_process_info(size_t *elapsed, size_t *user, size_t *system, size_t *rss, size_t *peak_rss, size_t *commit, size_t *peak_commit,
                     size_t *faults);
long mi_option_get(int option);
void mi_option_set(int option, long value);
void mi_option_set_default(int option, long value);
void mi_option_set_enabled_default(int option, bool enable);
void mi_option_disable(int option);
bool mi_option_is_enabled(int option);
int mi_reserve_os_memory(size_t size, bool commit, bool large);
}

static int news; // as mimalloc-new-delete.h: these must not come back here by way of operator new
void *operator new(size_t size) { return news++, mi_new(size); }
void *operator new[](size_t size) { return news++, mi_new(size); }
void operator delete(void *block) noexcept { mi_free(block); }
void operator delete(void *block, size_t) noexcept { mi_free(block); }
void operator delete[](void *block) noexcept { mi_free(block); }
void operator delete[](void *block, size_t) noexcept { mi_free(block); }

static bool all_bytes(const void *block, size_t from, size_t to, char value) {
  for (size_t i = from; i < to; i++) {
    if (static_cast<const char *>(block)[i] != value) return false;
  }
  return true;
}

// Beside the secure library too, which knows what each block was asked for.
TEST(foreign_sized_free_is_of_the_last_size) {
  for (size_t size = 16; size < 100000; size = size * 5 / 4) {
    void *block = mi_realloc(mi_malloc(size), size * 3 / 5);
    mi_free_size(block, size * 3 / 5);
    block = mi_realloc_aligned(mi_malloc_aligned(size, 64), size * 3 / 5, 64);
    mi_free_size_aligned(block, size * 3 / 5, 64);
  }
}

TEST(functions) {
  for (size_t size = 1; size < 200000; size = size * 3 / 2 + 1) {
    void *block = mi_malloc(size);
    CHECK(mi_usable_size(block) >= size && mi_usable_size(block) == mi_good_size(size));
    memset(block, 1, mi_usable_size(block));
    free(block); // one heap
    block = mi_zalloc(size);
    CHECK(all_bytes(block, 0, mi_usable_size(block), 0));
    block = mi_rezalloc(block, size * 3);
    CHECK(all_bytes(block, 0, mi_usable_size(block), 0));
    block = mi_recalloc_aligned(block, 2, size * 2, 1024);
    CHECK(reinterpret_cast<uintptr_t>(block) % 1024 == 0 && all_bytes(block, 0, size * 4, 0));
    memset(block, 2, size);
    block = mi_realloc(block, size);
    CHECK(all_bytes(block, 0, size, 2));
    CHECK(mi_expand(block, mi_usable_size(block)) == block);
    memset(block, 2, mi_usable_size(block));
    mi_free(block);
  }
  CHECK(mi_calloc(SIZE_MAX / 2, 3) == nullptr && mi_mallocn(SIZE_MAX / 2, 3) == nullptr && errno == ENOMEM);
  CHECK(mi_expand(mi_malloc(10), 1 << 20) == nullptr);
  CHECK(mi_reallocf(mi_malloc(10), PTRDIFF_MAX) == nullptr);
  CHECK(mi_realloc(mi_malloc(10), 0) != nullptr); // not as realloc
  void *at = mi_malloc(10);
  CHECK(mi_reallocarr(&at, 100, 100) == 0 && mi_usable_size(at) >= 10000 && mi_reallocarr(&at, SIZE_MAX, 2) == ENOMEM);
  CHECK_EQ(mi_version(), 209);
}

TEST(what_shrinks_gives_back) {
  void *block = memset(mi_malloc(64 << 20), 5, 64 << 20);
  block = mi_realloc(block, 4096);
  CHECK(mi_usable_size(block) < 40000 && all_bytes(block, 0, 4096, 5));
  block = mi_realloc(mi_realloc(block, 30000), 20);
  CHECK(mi_usable_size(block) < 100);
  block = mi_recalloc_aligned(mi_zalloc_aligned(1 << 20, 1 << 16), 1, 2000, 1 << 16);
  CHECK(mi_usable_size(block) <= 1 << 16 && reinterpret_cast<uintptr_t>(block) % (1 << 16) == 0);
}

TEST(aligned) {
  void *block = mi_zalloc_aligned(100, 512);
  CHECK(reinterpret_cast<uintptr_t>(block) % 512 == 0);
  mi_free_size_aligned(block, 100, 512);
  CHECK(mi_zalloc_aligned(100, 24) == nullptr);
  CHECK(reinterpret_cast<uintptr_t>(mi_malloc_aligned_at(100, 64, 128)) % 64 == 0);
  CHECK(mi_malloc_aligned_at(100, 64, 8) == nullptr && errno == EINVAL);
  CHECK(mi_malloc_aligned(100, 0) == nullptr && mi_malloc_aligned(100, 3) == nullptr);
  block = mi_malloc(100);
  CHECK(mi_realloc_aligned(block, 100, 24) == nullptr); // the block stays
  block = memset(mi_realloc_aligned(mi_realloc_aligned(block, 5000, 0), 9000, 3), 7, 9000);
  CHECK(all_bytes(mi_rezalloc_aligned(block, 9500, 8), 0, 9000, 7));
  CHECK(mi_posix_memalign(&block, 64, 10) == 0 && mi_posix_memalign(&block, 3, 10) == EINVAL);
  CHECK_EQ(mi_posix_memalign(nullptr, 16, 10), EINVAL);
}

TEST(texts) {
  CHECK(strcmp(mi_strdup("four"), "four") == 0 && strcmp(mi_strndup("fourteen", 4), "four") == 0 && mi_strdup(nullptr) == nullptr);
  CHECK(strcmp(mi_realpath("/usr/../usr", nullptr), "/usr") == 0);
  char *value = nullptr;
  size_t size = 9;
  setenv("COMPAT_TEST", "value", 1);
  CHECK(mi_dupenv_s(&value, &size, "COMPAT_TEST") == 0 && strcmp(value, "value") == 0 && size == 5);
  CHECK(mi_dupenv_s(&value, &size, "COMPAT_NONE") == 0 && value == nullptr && size == 0);
}

static int asked;
static void make_no_room() {
  if (++asked == 3) std::set_new_handler(nullptr);
}

TEST(new_is_defined_by_it) {
  int before = news;
  delete new int[100];
  CHECK_EQ(news, before + 1);
  using make_t = void *();
  make_t *const makes[] = {
      [] { return mi_new(PTRDIFF_MAX); },
      [] { return mi_new_n(SIZE_MAX / 2, 3); },
      [] { return mi_new_reallocn(nullptr, SIZE_MAX / 2, 3); },
      [] { return mi_new_aligned(10, 3); },
      [] { return mi_new_aligned(10, 0); },
  };
  for (make_t *make : makes) {
    bool thrown = false;
    asked = 0;
    std::set_new_handler(make_no_room);
    try {
      mi_free(make());
    } catch (const std::bad_alloc &) {
      thrown = true;
    }
    CHECK(thrown && asked == 3);
  }
  CHECK(mi_new_nothrow(PTRDIFF_MAX) == nullptr);
  for (size_t alignment : {0, 3, 12, 24}) CHECK(mi_new_aligned_nothrow(10, alignment) == nullptr);
  for (size_t alignment : {1, 2, 8, 4096}) CHECK(reinterpret_cast<uintptr_t>(mi_new_aligned_nothrow(10, alignment)) % alignment == 0);
}

static void throw_it() { throw std::bad_alloc(); }

TEST(a_handler_that_throws_ends_in_null) {
  std::set_new_handler(throw_it);
  CHECK(mi_new_nothrow(PTRDIFF_MAX) == nullptr && mi_new_aligned_nothrow(PTRDIFF_MAX, 64) == nullptr);
  bool thrown = false;
  try {
    mi_free(mi_new(PTRDIFF_MAX));
  } catch (const std::bad_alloc &) {
    thrown = true;
  }
  CHECK(thrown);
}

static rlimit unlimited;
static int handler_calls;
static void lift_the_limit() {
  handler_calls++;
  CHECK_EQ(setrlimit(RLIMIT_AS, &unlimited), 0);
}

static void handler_makes_room(mi_heap_t *heap, void **blocks) {
  CHECK_EQ(getrlimit(RLIMIT_AS, &unlimited), 0);
  rlimit little = unlimited;
  little.rlim_cur = 1 << 20;
  for (int many = 0; many < 2; many++) {
    handler_calls = 0;
    CHECK_EQ(setrlimit(RLIMIT_AS, &little), 0);
    std::new_handler before = std::set_new_handler(lift_the_limit);
    blocks[many] = many != 0 ? mi_heap_alloc_new_n(heap, 300, 1 << 20) : mi_heap_alloc_new(heap, 300 << 20);
    std::set_new_handler(before);
    CHECK_EQ(handler_calls, 1);
    CHECK(mi_heap_contains_block(heap, blocks[many]));
  }
}

TEST(what_a_handler_made_room_for_is_the_heaps) {
  mi_heap_t *heap = mi_heap_new(), *other = mi_heap_new(), *before = mi_heap_set_default(other);
  void *blocks[3][2];
  handler_makes_room(heap, blocks[0]);
  handler_makes_room(other, blocks[1]);
  handler_makes_room(mi_heap_get_backing(), blocks[2]);
  mi_heap_set_default(before);
  for (auto &each : blocks) mi_free(each[0]), mi_free(each[1]);
  mi_heap_destroy(heap);
  mi_heap_destroy(other);
}

// Whatever lay there before.
TEST(what_grows_by_rezalloc_is_zero) {
  for (size_t size = 40; size < 20000; size = size * 3 / 2) {
    for (size_t larger = size; larger < size * 3 / 2; larger += 10) {
      for (int i = 0; i < 4; i++) {
        void *dirty = mi_malloc(larger);
        memset(dirty, 0xee, larger);
        mi_free(dirty);
      }
    }
    unsigned char *blocks[] = {static_cast<unsigned char *>(mi_zalloc_aligned(size, 4096)),
                               static_cast<unsigned char *>(mi_zalloc(size * 20))};
    for (unsigned char *block : blocks) {
      for (size_t larger = size; larger < size * 3 / 2; larger += 10) {
        block = static_cast<unsigned char *>(mi_rezalloc(block, larger));
        for (size_t i = 0; i < larger; i++) CHECK(block[i] == 0);
      }
      mi_free(block);
    }
  }
}

TEST(large_blocks_of_zeros_are_not_written) {
  enum : size_t { LARGE = 256 << 20 };
  size_t before = check_resident();
  void *blocks[] = {mi_zalloc_aligned(LARGE, 64), mi_heap_zalloc_aligned(mi_heap_new(), LARGE, 4096),
                    mi_rezalloc(mi_zalloc(1 << 20), LARGE), mi_rezalloc_aligned(mi_zalloc_aligned(1 << 20, 64), LARGE, 64)};
  CHECK(check_resident() < before + (32 << 20));
  for (void *block : blocks) {
    CHECK(all_bytes(block, 0, 3 << 20, 0) && all_bytes(block, LARGE - 4096, mi_usable_size(block), 0));
    mi_free(block);
  }
}

/* Also where the secure library is preloaded, which ends a process for a wrong pointer. */
TEST(foreign_addresses_are_nobodys) {
  static char mine[64];
  char here[64], *block = static_cast<char *>(malloc(100));
  CHECK(!mi_is_in_heap_region(here) && !mi_is_in_heap_region(mine) && mi_is_in_heap_region(block));
  CHECK(!mi_check_owned(here) && !mi_check_owned(mine) && mi_check_owned(block));
  free(block);
}

TEST(whose_a_block_is) {
  char *block = static_cast<char *>(mi_malloc(100)), local;
  CHECK(mi_is_in_heap_region(block) && mi_is_in_heap_region(block + 1) && !mi_is_in_heap_region(&local));
  CHECK(mi_check_owned(block) && !mi_check_owned(block + 1) && !mi_check_owned(&local));
  mi_cfree(&local); // nothing to free
  mi_cfree(block);
  CHECK(!mi_check_owned(block));
}

TEST(heaps) {
  mi_heap_t *heap = mi_heap_new(), *backing = mi_heap_get_backing();
  CHECK(heap != nullptr && mi_heap_get_default() == backing);
  void *block = mi_heap_malloc(heap, 100), *plain = mi_malloc(100);
  CHECK(mi_heap_contains_block(heap, block) && !mi_heap_contains_block(backing, block) && !mi_heap_contains_block(heap, plain));
  CHECK(mi_heap_contains_block(backing, plain) && !mi_heap_contains_block(backing, &plain));
  plain = mi_heap_realloc(heap, plain, 5000);
  CHECK(mi_heap_contains_block(heap, plain));
  CHECK_EQ(reinterpret_cast<uintptr_t>(mi_heap_zalloc_aligned(heap, 10, 4096)) % 4096, 0);
  CHECK(mi_heap_set_default(heap) == backing && mi_heap_get_default() == heap);
  CHECK(mi_heap_contains_block(heap, mi_malloc(10)) && mi_heap_contains_block(heap, malloc(10)));
  CHECK(mi_heap_contains_block(backing, mi_heap_malloc(backing, 10)) && mi_heap_get_default() == heap);
  mi_heap_destroy(heap);
  CHECK(mi_heap_get_default() == backing && !mi_check_owned(block) && !mi_check_owned(plain));
  CHECK(mi_heap_contains_block(backing, mi_malloc(10)));
  mi_heap_destroy(backing), mi_heap_delete(backing), mi_heap_destroy(nullptr);
}

static void *reallocarray_to(void *block, size_t size) { return reallocarray(block, 1, size); }

// Into the thread's default heap, so that the block outlives the heap that it was from.
TEST(what_realloc_moves_leaves_its_heap) {
  using realloc_t = void *(void *block, size_t size);
  realloc_t *const functions[] = {realloc, reallocf, reallocarray_to, mi_realloc, mi_reallocf, mi_rezalloc};
  static const size_t sizes[][2] = {{100, 5000},       {100, 300000},    {5000, 30},   {100000, 200000},
                                    {100000, 3000000}, {3000000, 40000}, {300000, 500}};
  mi_heap_t *backing = mi_heap_get_backing(), *kept = mi_heap_new();
  for (realloc_t *change : functions) {
    for (auto &size : sizes) {
      mi_heap_t *heap = mi_heap_new();
      size_t both = size[0] < size[1] ? size[0] : size[1];
      void *left = change(memset(mi_heap_malloc(heap, size[0]), 3, size[0]), size[1]);
      CHECK(mi_heap_contains_block(backing, left) && all_bytes(left, 0, both, 3) && mi_usable_size(left) >= size[1]);
      mi_heap_t *before = mi_heap_set_default(kept);
      void *taken = change(memset(mi_heap_malloc(heap, size[0]), 4, size[0]), size[1]);
      void *joined = change(memset(mi_heap_malloc(backing, size[0]), 5, size[0]), size[1]);
      CHECK(mi_heap_contains_block(kept, taken) && mi_heap_contains_block(kept, joined));
      mi_heap_set_default(before);
      mi_heap_destroy(heap);
      for (int i = 0; i < 10; i++) memset(mi_malloc(size[1]), 9, size[1]);
      CHECK(all_bytes(left, 0, both, 3) && all_bytes(taken, 0, both, 4) && all_bytes(joined, 0, both, 5));
      free(left), free(taken), free(joined);
    }
  }
  void *same = mi_heap_malloc(kept, 100);
  CHECK(realloc(same, 99) == same); // where nothing moves, the heap stays
  CHECK(mi_heap_contains_block(kept, mi_heap_realloc(kept, mi_heap_malloc(kept, 100000), 200000)));
  CHECK(realloc(mi_heap_malloc(kept, 100), 0) == nullptr && realloc(mi_heap_malloc(kept, 100), PTRDIFF_MAX) == nullptr);
  void *plain = realloc(nullptr, 100);
  CHECK(mi_heap_contains_block(backing, plain) && mi_heap_contains_block(backing, realloc(plain, 5000)));
  mi_heap_destroy(kept);
}

TEST(whose_an_address_is) {
  mi_heap_t *heap = mi_heap_new(), *other = mi_heap_new(), *backing = mi_heap_get_backing();
  for (size_t size = 24; size < 3000000; size *= 5) {
    char *block = static_cast<char *>(mi_heap_malloc(heap, size)), *last = block + (size - 1) / 8 * 8;
    for (char *p : {block, block + 8, block + 16, last}) CHECK(mi_heap_check_owned(heap, p) && !mi_heap_check_owned(other, p));
    CHECK(!mi_heap_check_owned(backing, block + 8) && !mi_check_owned(last) && !mi_heap_check_owned(nullptr, block));
    CHECK(!mi_heap_check_owned(heap, block + 1) && !mi_heap_contains_block(heap, block + 16));
    mi_free(block);
    CHECK(!mi_heap_check_owned(heap, block + 8));
  }
  char *plain = static_cast<char *>(mi_malloc(100)), *nothing = static_cast<char *>(mi_heap_malloc(heap, 0));
  CHECK(mi_check_owned(plain + 8) && mi_heap_check_owned(backing, plain + 96) && !mi_heap_check_owned(nullptr, plain));
  CHECK(mi_heap_check_owned(heap, nothing) && !mi_heap_check_owned(heap, nullptr) && !mi_heap_contains_block(nullptr, plain));
  mi_heap_delete(other);
}

TEST(deleted_heaps_leave_their_blocks) {
  void *blocks[600];
  for (size_t i = 0; i < 600; i++) {
    mi_heap_t *heap = mi_heap_new();
    (void)mi_heap_set_default(heap);
    blocks[i] = memset(mi_heap_malloc(heap, 200), static_cast<int>(i % 100), 200);
    mi_heap_delete(heap);
    CHECK(mi_heap_get_default() == mi_heap_get_backing());
    if (i % 2 == 0) mi_free(blocks[i]);
  }
  mi_collect(true);
  for (size_t i = 1; i < 600; i += 2) CHECK(all_bytes(blocks[i], 0, 200, static_cast<char>(i % 100)));
  for (size_t i = 1; i < 600; i += 2) mi_free(blocks[i]);
  mi_collect(true);
}

static size_t named_heaps; // in the report
static void count_heaps(const char *text, void *) {
  static const char name[] = "mi_heap\n";
  static size_t matched;
  for (; *text != '\0'; text++) {
    matched = *text == name[matched] ? matched + 1 : *text == name[0] ? 1 : 0;
    if (name[matched] != '\0') continue;
    named_heaps++;
    matched = 0;
  }
}
static size_t heaps_now() {
  mi_collect(false);
  named_heaps = 0;
  mi_stats_print_out(count_heaps, nullptr);
  return named_heaps;
}

// One with a live block, one that is empty, one that the thread itself has ended, and one that is its default.
static void *make_heaps(void *) {
  void *block = mi_heap_malloc(mi_heap_new(), 300);
  mi_heap_t *empty = mi_heap_new();
  mi_free(mi_heap_malloc(empty, 300));
  mi_heap_destroy(mi_heap_new());
  (void)mi_heap_set_default(mi_heap_new());
  mi_free(mi_malloc(20));
  CHECK(!mi_heap_contains_block(mi_heap_get_backing(), block));
  return block;
}

TEST(heaps_end_with_their_thread) {
  mi_heap_t *kept = mi_heap_new();
  size_t before = heaps_now();
  void *blocks[100];
  for (size_t i = 0; i < 100; i++) {
    pthread_t thread;
    CHECK(pthread_create(&thread, nullptr, make_heaps, nullptr) == 0 && pthread_join(thread, &blocks[i]) == 0);
    CHECK(mi_heap_contains_block(mi_heap_get_backing(), blocks[i]));
  }
  CHECK_EQ(heaps_now(), before + 100); // those with a live block
  for (size_t i = 0; i < 100; i++) mi_free(blocks[i]);
  CHECK_EQ(heaps_now(), before);
  mi_free(mi_heap_malloc(kept, 10));
  mi_heap_delete(kept);
  CHECK_EQ(heaps_now(), before - 1);
}

TEST(deleted_heaps_end_as_others_begin) {
  enum { HEAPS = 600, PARTS = 4 };
  size_t before = heaps_now();
  static void *blocks[HEAPS];
  for (void *&block : blocks) {
    mi_heap_t *heap = mi_heap_new();
    block = mi_heap_malloc(heap, 100);
    mi_heap_delete(heap);
  }
  for (void *block : blocks) mi_free(block);
  for (size_t i = 0; i < PARTS; i++) mi_heap_destroy(mi_heap_new()); // each looks at a part of them
  named_heaps = 0;
  mi_stats_print_out(count_heaps, nullptr);
  CHECK_EQ(named_heaps, before);
}

static mi_heap_t *heap_of_a_thread;
static void *make_and_stay(void *ready) {
  heap_of_a_thread = mi_heap_new();
  (void)pthread_barrier_wait(static_cast<pthread_barrier_t *>(ready));
  (void)pause();
  return nullptr;
}
static void *make_and_end(void *) {
  mi_heap_delete(mi_heap_new());
  return nullptr;
}

// It may have the place and the number of the one that has made the heap, and is gone.
TEST(a_childs_thread_ends_no_heap_of_one_that_is_gone) {
  pthread_barrier_t ready;
  pthread_t thread;
  CHECK(pthread_barrier_init(&ready, nullptr, 2) == 0 && pthread_create(&thread, nullptr, make_and_stay, &ready) == 0);
  (void)pthread_barrier_wait(&ready);
  pid_t child = fork();
  if (child == 0) {
    void *block = mi_heap_malloc(heap_of_a_thread, 100);
    bool served = block != nullptr;
    mi_free(block);
    bool ended = pthread_create(&thread, nullptr, make_and_end, nullptr) == 0 && pthread_join(thread, nullptr) == 0;
    _exit(served && ended && mi_heap_malloc(heap_of_a_thread, 100) != nullptr ? 0 : 1);
  }
  int status = 1;
  CHECK(child > 0 && waitpid(child, &status, 0) == child);
  CHECK_EQ(status, 0);
}

struct seen {
  size_t areas, used, blocks, bytes, stop_after;
};

static bool look(const mi_heap_t *, const mi_heap_area_t *area, void *block, size_t size, void *to) {
  seen *so_far = static_cast<seen *>(to);
  if (block == nullptr) {
    CHECK(size > 0 && size == area->block_size);
    so_far->areas++;
    so_far->used += area->used;
  } else {
    CHECK(mi_usable_size(block) == size);
    so_far->blocks++;
    so_far->bytes += size;
  }
  return so_far->blocks != so_far->stop_after;
}

TEST(blocks_are_visited) {
  mi_heap_t *heap = mi_heap_new();
  void *blocks[500];
  size_t bytes = 0;
  for (size_t i = 0; i < 500; i++) blocks[i] = mi_heap_malloc(heap, i % 50 == 0 ? 100000 : i * 2 + 1);
  for (size_t i = 0; i < 500; i += 3) mi_free(blocks[i]);
  for (size_t i = 0; i < 500; i++) bytes += i % 3 != 0 ? mi_usable_size(blocks[i]) : 0;
  seen all = {0, 0, 0, 0, SIZE_MAX};
  CHECK(mi_heap_visit_blocks(heap, true, look, &all));
  CHECK(all.areas > 2 && all.used == 333 && all.blocks == 333 && all.bytes == bytes);
  seen areas = {0, 0, 0, 0, 1};
  CHECK(mi_heap_visit_blocks(heap, false, look, &areas));
  CHECK(areas.areas == all.areas && areas.blocks == 0);
  seen few = {0, 0, 0, 0, 10};
  CHECK(!mi_heap_visit_blocks(heap, true, look, &few) && few.blocks == 10);
  void *mine = mi_malloc(777);
  seen before = {0, 0, 0, 0, SIZE_MAX}, after = {0, 0, 0, 0, SIZE_MAX};
  CHECK(mi_heap_visit_blocks(mi_heap_get_backing(), true, look, &before));
  mi_free(mine);
  CHECK(mi_heap_visit_blocks(mi_heap_get_backing(), true, look, &after));
  CHECK_EQ(before.blocks, after.blocks + 1);
}

TEST(blocks_of_no_bytes_are_visited) {
  mi_heap_t *heap = mi_heap_new();
  for (size_t i = 0; i < 10; i++) CHECK(mi_heap_malloc(heap, 0) != nullptr);
  for (size_t i = 0; i < 100; i++) CHECK(mi_heap_malloc(heap, 100) != nullptr);
  seen all = {0, 0, 0, 0, SIZE_MAX};
  CHECK(mi_heap_visit_blocks(heap, true, look, &all));
  CHECK(all.areas == 2 && all.used == 110 && all.blocks == 110 && all.bytes >= 10000);
}

static size_t visits[10];
static void *guarded[10];
static bool find_guarded(const mi_heap_t *, const mi_heap_area_t *area, void *block, size_t size, void *) {
  for (size_t i = 0; i < 10; i++) {
    if (block == nullptr || block != guarded[i]) continue;
    visits[i]++;
    CHECK(size == mi_usable_size(block) && block >= area->blocks && area->used == 1);
  }
  return true;
}

// With HAKMEM_GUARD, as CMakeLists.txt sets it.
TEST(guarded_blocks_are_visited) {
  if (getenv("HAKMEM_GUARD") == nullptr) check_skip("for compat.mimalloc.guarded");
  mi_free(mi_malloc(50));
  for (void *&block : guarded) block = mi_malloc(50);
  CHECK(mi_heap_visit_blocks(mi_heap_get_backing(), true, find_guarded, nullptr));
  for (size_t of : visits) CHECK_EQ(of, 1);
  mi_heap_t *other = mi_heap_new();
  std::memset(visits, 0, sizeof visits);
  CHECK(mi_heap_visit_blocks(other, true, find_guarded, nullptr));
  for (size_t of : visits) CHECK_EQ(of, 0);
}

// With what CMakeLists.txt sets.
TEST(environment) {
  if (getenv("MIMALLOC_PURGE_DELAY") == nullptr) check_skip("for compat.mimalloc.environment");
  CHECK_EQ(mi_option_get(15), 77);
  CHECK(mi_option_is_enabled(1));
  mi_option_set_default(15, 88);
  CHECK_EQ(mi_option_get(15), 77);
  if (getenv("MIMALLOC_MAX_ERRORS") == nullptr) return;
  mi_option_set_default(19, 9);
  mi_option_set_enabled_default(3, true);
  CHECK(mi_option_get(19) == 3 && !mi_option_is_enabled(3) && mi_option_is_enabled(2));
  mi_option_set(19, 4);
  CHECK_EQ(mi_option_get(19), 4);
}

TEST(precedence) {
  if (getenv("HAKMEM_DECAY_MS") == nullptr && getenv("HAKMEM_CONF") == nullptr) check_skip("for compat.mimalloc.precedence");
  mi_option_set_default(15, 88);
  CHECK_EQ(mi_option_get(15), 66);
}

TEST(no_number) {
  if (getenv("MIMALLOC_PURGE_DELAY") == nullptr) check_skip("for compat.mimalloc.no_number");
  if (strcmp(getenv("MIMALLOC_PURGE_DELAY"), "soon") == 0) CHECK_EQ(mi_option_get(15), 1000);
}

static size_t printed;
static void print_count(const char *text, void *to) {
  CHECK(to == &printed);
  printed += strlen(text);
}

TEST(statistics_and_options) {
  mi_stats_print_out(print_count, &printed);
  CHECK(printed > 500);
  printed = 0;
  mi_register_output(print_count, &printed);
  mi_stats_print(nullptr);
  CHECK(printed > 500);
  size_t rss = 0, peak = 0, commit = 0, elapsed = 0;
  mi_process_info(&elapsed, nullptr, nullptr, &rss, &peak, &commit, nullptr, nullptr);
  CHECK(rss > 100000 && peak >= rss / 2 && commit > 0 && elapsed < 100000);
  mi_option_set(15, 4321); // purge_delay
  CHECK(mi_option_get(15) == 4321);
  CHECK(!mi_option_is_enabled(2) && mi_option_get(1000) == 0 && mi_option_get(-1) == 0);
  mi_option_set(2, 1);
  CHECK(mi_option_is_enabled(2));
  CHECK_EQ(mi_reserve_os_memory(1 << 20, true, false), ENOMEM);
}

// The numbers are what mimalloc 2.0.9 answers; those of options that are hakmem's own are not among them.
TEST(options_that_nobody_has_set) {
  static const struct {
    int option;
    long value;
  } defaults[] = {{0, 0},    {3, 1},   {4, 0},   {7, 0},  {8, -1}, {9, 0},    {14, 1}, {16, 0},
                  {18, 100}, {19, 16}, {20, 16}, {21, 8}, {22, 1}, {23, 500}, {24, 1}, {25, 0}};
  for (auto &each : defaults) CHECK_EQ(mi_option_get(each.option), each.value);
  mi_option_set_default(15, 77);
  CHECK_EQ(mi_option_get(15), 77);
}

TEST(defaults_do_not_change_what_is_set) {
  mi_option_set_default(19, 7);
  mi_option_set_default(19, 8); // a default may change
  CHECK_EQ(mi_option_get(19), 8);
  mi_option_set_enabled_default(19, true);
  CHECK_EQ(mi_option_get(19), 1);
  mi_option_set(19, 5);
  mi_option_set_default(19, 9);
  CHECK_EQ(mi_option_get(19), 5);
  mi_option_disable(3);
  mi_option_set_enabled_default(3, true);
  CHECK(!mi_option_is_enabled(3));
  mi_option_set(15, 4321);
  mi_option_set_default(15, 77);
  CHECK_EQ(mi_option_get(15), 4321);
  mi_option_set_default(-1, 1), mi_option_set_default(1000, 1); // there are none
}

int main(int argc, char **argv) { return check_main(argc, argv); }
