/* limits.c - limits on addresses and on memory, however they are set, and requests that can never be met. */
#include "api.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static void *many[20000];

/* Frees blocks of all small sizes, so that some are cached. */
static void use_heap(void) {
  for (unsigned i = 0; i < 2000; i++) many[i] = fill(api.malloc(i * 7 % 20000 + 1), 1, i);
  for (unsigned i = 0; i < 2000; i++) {
    CHECK(filled(many[i], 1, i));
    api.free(many[i]);
  }
}

static void *small_life(void *unused) {
  for (unsigned i = 0; i < 40; i++) {
    void *block = fill(api.malloc(sizes[i * 2]), 1, i);
    if (i % 2) block = api.realloc(block, 700);
    api.free(block);
  }
  return unused;
}

/* ---- Limits that the program sets ---- */

enum { MIB = 1 << 20 };

static bool limit_address_space(size_t bytes) {
  struct rlimit limit = {bytes, bytes};
  getrlimit(RLIMIT_AS, &limit);
  limit.rlim_cur = bytes;
  return setrlimit(RLIMIT_AS, &limit) == 0;
}

TEST(limit_then_memory_within_it) {
  UNSANITIZED();
  use_heap();
  REQUIRE(limit_address_space((size_t)512 * MIB));
  char *block = api.malloc((size_t)64 * MIB);
  CHECK(block);
  if (block) memset(block, 1, (size_t)64 * MIB);
  for (int i = 0; i < 20000; i++) CHECK((many[i] = api.malloc(1000)) != NULL);
  for (int i = 0; i < 20000; i++) api.free(many[i]);
  api.free(block);
  in_thread(small_life, NULL);
}

TEST(limit_then_enomem_and_recovery) {
  NOT_COUNTED();
  UNSANITIZED();
  REQUIRE(limit_address_space((size_t)512 * MIB));
  for (int round = 0; round < 5; round++) {
    errno = 0;
    CHECK(!api.malloc((size_t)1 << 30));
    CHECK_EQ(errno, ENOMEM);
    void *blocks[600];
    int count = 0;
    errno = 0;
    while (count < 600 && (blocks[count] = api.malloc(MIB)) != NULL) fill(blocks[count], 4096, (unsigned)count), count++;
    CHECK(count > 100 && count < 600);
    CHECK_EQ(errno, ENOMEM);
    errno = 0;
    CHECK(!api.realloc(blocks[0], (size_t)600 * MIB));
    CHECK_EQ(errno, ENOMEM);
    CHECK(!api.calloc(600, MIB));
    CHECK(!api.aligned_alloc(4096, (size_t)600 * MIB));
    for (int i = 0; i < count; i++) {
      CHECK(filled(blocks[i], 4096, (unsigned)i));
      api.free(blocks[i]);
    }
    use_heap();
  }
}

TEST(limit_then_small_blocks_until_enomem) {
  NOT_COUNTED();
  UNSANITIZED();
  REQUIRE(limit_address_space((size_t)400 * MIB));
  struct link {
    struct link *next;
    char content[1000];
  } *first = NULL;
  size_t count[3] = {0};
  for (int round = 0; round < 3; round++) {
    errno = 0;
    for (struct link *link; (link = api.malloc(sizeof *link)) != NULL; first = link) link->next = first, count[round]++;
    CHECK_EQ(errno, ENOMEM);
    if (strcmp(check_context(), "beside") != 0) CHECK(!api.calloc(1, sizeof *first));
    while (first) {
      struct link *next = first->next;
      api.free(first);
      first = next;
    }
  }
  CHECK(count[0] > 100000);
  CHECK(count[1] * 100 >= count[0] * 95 && count[2] * 100 >= count[0] * 95);
}

TEST(limit_lifted_again) {
  UNSANITIZED();
  struct rlimit before;
  getrlimit(RLIMIT_AS, &before);
  REQUIRE(limit_address_space((size_t)256 * MIB));
  CHECK(!api.malloc((size_t)1 << 30));
  REQUIRE(setrlimit(RLIMIT_AS, &before) == 0);
  char *block = api.malloc((size_t)1 << 30);
  CHECK(block);
  api.free(block);
}

TEST(limit_in_threads) {
  UNSANITIZED();
  pthread_t threads[4];
  REQUIRE(limit_address_space((size_t)600 * MIB));
  for (int i = 0; i < 4; i++) REQUIRE(pthread_create(&threads[i], NULL, small_life, NULL) == 0);
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
}

/* ---- Limits that the library is not told of ---- */

static size_t status_bytes(const char *field) {
  char line[256];
  size_t kib = 0;
  FILE *status = fopen("/proc/self/status", "r");
  while (status && fgets(line, sizeof line, status))
    if (strncmp(line, field, strlen(field)) == 0) kib = strtoull(line + strlen(field) + 1, NULL, 10);
  if (status) fclose(status);
  return kib << 10;
}

static bool limit_by_system_call(pid_t pid, size_t bytes) {
  uint64_t limit[2] = {bytes, bytes}, old[2];
  if (syscall(SYS_prlimit64, pid, RLIMIT_AS, NULL, old) != 0) return false;
  limit[1] = old[1];
  return syscall(SYS_prlimit64, pid, RLIMIT_AS, limit, NULL) == 0;
}

static bool limit_itself(size_t bytes) { return limit_by_system_call(0, bytes); }

/* As `prlimit -p` does it. */
static bool limit_from_outside(size_t bytes) {
  pid_t child = fork();
  int status = 0;
  if (child == 0) _exit(!limit_by_system_call(getppid(), bytes));
  return waitpid(child, &status, 0) == child && status == 0;
}

/* What a program does besides allocating. */
static void check_the_rest_works(void) {
  void *pages = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(pages != MAP_FAILED);
  if (pages != MAP_FAILED) munmap(pages, MIB);
  pthread_t thread;
  int error = pthread_create(&thread, NULL, small_life, NULL);
  CHECK_EQ(error, 0);
  if (error == 0) pthread_join(thread, NULL);
#if defined(__GLIBC__)
  void *library = dlopen("libBrokenLocale.so.1", RTLD_NOW); /* from libc's own package, and loaded by no program */
  CHECK(library);
  if (library) dlclose(library);
#endif
}

/* The mapped bytes, without ranges of a GiB and more that are only held. The list of mappings may show a range twice as it grows. */
static size_t used_bytes(void) {
  static char line[4400];
  size_t held = 0;
  FILE *maps = fopen("/proc/self/maps", "r");
  unsigned long from, to;
  char permissions[8];
  while (maps && fgets(line, sizeof line, maps)) {
    bool is_range = sscanf(line, "%lx-%lx %7s", &from, &to, permissions) == 3;
    if (is_range && strncmp(permissions, "---", 3) == 0 && to - from >= (size_t)1 << 30) held += to - from;
  }
  if (maps) fclose(maps);
  return status_bytes("VmSize:") - held;
}

/* A program with a heap, whose limit is lowered to little more than it uses. */
static void check_lowered(bool (*lower)(size_t bytes)) {
  UNSANITIZED();
  enum { LIVE = 20000, MORE = 128 * MIB, MOST = 512 }; /* MORE: greater than what the heap grows by while the limit is set */
  for (unsigned i = 0; i < LIVE; i++) many[i] = fill(api.malloc(i % 4000 + 1), 1, i);
  REQUIRE(lower(used_bytes() + MORE));
  check_the_rest_works();
  void *blocks[MOST];
  unsigned count = 0;
  errno = 0;
  while (count < MOST && (blocks[count] = api.malloc(MIB)) != NULL) count++;
  CHECK(count >= 8 && count < MOST);
  CHECK_EQ(errno, ENOMEM);
  while (count > 0) api.free(blocks[--count]);
  for (unsigned i = 0; i < LIVE; i++) CHECK(filled(many[i], 1, i));
  for (unsigned i = 0; i < LIVE; i++) api.free(many[i]);
  use_heap();
}

TEST(limit_by_system_call_while_nobody_knows) { check_lowered(limit_itself); }
TEST(limit_from_outside_while_nobody_knows) { check_lowered(limit_from_outside); }
TEST(limit_by_libc_while_nobody_knows) { check_lowered(limit_address_space); }

/* ---- Requests that can never be met ---- */

static bool counted(void) { return api_is_hakmem() && strcmp(check_context(), "beside") != 0; }

typedef struct effort {
  uint64_t cached, flushes, system_calls;
} effort_t;

static effort_t effort(void) {
  hak_stats_t stats = {.struct_size = sizeof stats};
  if (!counted() || !hak.stats_get(&stats)) return (effort_t){0, 0, 0};
  return (effort_t){stats.cached, stats.flushes, stats.sys_mmap + stats.sys_munmap + stats.sys_mprotect + stats.sys_madvise};
}

#define FAILS(call)          \
  do {                       \
    errno = 0;               \
    CHECK(!(call));          \
    CHECK_EQ(errno, ENOMEM); \
    asked++;                 \
  } while (0)

/* Every call fails immediately: cached memory is not given back for it, and the kernel is hardly called. */
static void check_never(size_t size) {
  char *block = fill(api.malloc(100), 100, 7), *large = fill(api.malloc(100000), 100, 8);
  effort_t before = effort();
  uint64_t asked = 0;
  void *aligned_block = NULL;
  FAILS(api.malloc(size));
  FAILS(api.calloc(1, size));
  FAILS(api.calloc(size / 2 + 1, 2));
  FAILS(api.realloc(block, size));
  FAILS(api.realloc(large, size));
  FAILS(api.aligned_alloc(4096, size & ~(size_t)4095));
  FAILS(api.aligned_alloc((size_t)1 << 21, size & ~(size_t)4095));
  FAILS(api.memalign(64, size));
  FAILS(api.valloc(size));
  CHECK(api.posix_memalign(&aligned_block, 4096, size) == ENOMEM && !aligned_block);
  asked++;
  effort_t after = effort();
  CHECK_EQ(after.cached, before.cached);
  CHECK_EQ(after.flushes, before.flushes);
  CHECK(after.system_calls - before.system_calls <= 8 * asked);
  CHECK(filled(block, 100, 7) && filled(large, 100, 8));
  api.free(block), api.free(large);
}

TEST(what_can_never_be_had_empties_nothing) {
  UNSANITIZED();
  use_heap();
  for EACH_IMPOSSIBLE(size) check_never(size);
  for (unsigned shift = 43; shift < 63; shift++) check_never((size_t)1 << shift);
  for (size_t less = 1; less < (size_t)1 << 20; less *= 2) check_never((size_t)PTRDIFF_MAX - less);
}

TEST(alignments_that_can_never_be_had_empty_nothing) {
  UNSANITIZED();
  use_heap();
  effort_t before = effort();
  for (unsigned shift = 47; shift < 63; shift++) {
    void *block = NULL;
    CHECK(api.posix_memalign(&block, (size_t)1 << shift, 100) == ENOMEM && !block);
  }
  effort_t after = effort();
  CHECK_EQ(after.cached, before.cached);
  CHECK_EQ(after.flushes, before.flushes);
}

TEST(limit_that_makes_a_size_impossible) {
  UNSANITIZED();
  use_heap();
  REQUIRE(limit_itself(used_bytes() + 64 * (size_t)MIB));
  for (size_t size = 128 * (size_t)MIB; size < (size_t)1 << 43; size *= 2) check_never(size);
}

TEST(limit_of_data_that_makes_a_size_impossible) {
  UNSANITIZED();
  use_heap();
  struct rlimit limit;
  getrlimit(RLIMIT_DATA, &limit);
  limit.rlim_cur = status_bytes("VmData:") + 64 * (size_t)MIB;
  REQUIRE(setrlimit(RLIMIT_DATA, &limit) == 0);
  for (size_t size = 128 * (size_t)MIB; size < (size_t)1 << 43; size *= 2) check_never(size);
}

/* The search for memory that freed blocks might yield is made once, and again only after blocks were freed. */
TEST(limit_reached_again_and_again) {
  UNSANITIZED();
  enum { ASKED = 1000 };
  static void *live[600];
  unsigned count = 0;
  use_heap();
  REQUIRE(limit_itself(used_bytes() + 200 * (size_t)MIB));
  while (count < 600 && (live[count] = api.malloc(MIB)) != NULL) count++;
  CHECK(count > 100 && count < 600);
  CHECK(!api.malloc(100 * (size_t)MIB));
  effort_t before = effort();
  for (unsigned i = 0; i < ASKED; i++) CHECK(!api.malloc(100 * (size_t)MIB));
  effort_t after = effort();
  CHECK_EQ(after.cached, before.cached);
  CHECK_EQ(after.flushes, before.flushes);
  CHECK(after.system_calls - before.system_calls <= 8 * ASKED);
  while (count > 0) api.free(live[--count]);
  void *block = api.malloc(100 * (size_t)MIB);
  CHECK(block);
  api.free(block);
}

/* ---- Idle memory when a limit is met ---- */

static size_t fill_with(void **blocks, size_t most, size_t size) {
  size_t count = 0;
  errno = 0;
  while (count < most && (blocks[count] = api.malloc(size)) != NULL) fill(blocks[count], 64, (unsigned)count), count++;
  CHECK(count < most);
  CHECK_EQ(errno, ENOMEM);
  return count;
}

/* The blocks that are freed last, and stay in a cache, lie far apart, so that much of the memory is not in one piece. */
static void free_apart(void **blocks, size_t count) {
  enum { APART = 67 };
  for (size_t first = 0; first < APART; first++) {
    for (size_t i = first; i < count; i += APART) api.free(blocks[i]);
  }
}

static bool is_beside(void) { return strcmp(check_context(), "beside") == 0; }

/* The limit counts all that is mapped, given back or not, so nothing is given back earlier: memory freed in one size serves the next
 * size when the kernel refuses more.  In the secure library guards and the quarantine take part of it. */
static void check_idle_serves(bool lowered) {
  enum { MOST = 1 << 18 };
  static void *blocks[MOST];
  UNSANITIZED();
  REQUIRE(lowered);
  size_t pieces = fill_with(blocks, MOST, MIB);
  free_apart(blocks, pieces);
  for (int round = 0; round < 3; round++) {
    size_t small = fill_with(blocks, MOST, 1000);
    free_apart(blocks, small);
    size_t again = fill_with(blocks, MOST, MIB);
    free_apart(blocks, again);
    if (!api_is_hakmem() || is_secure()) continue;
    CHECK(small >= pieces * MIB / 1000 / 100 * 95);
    CHECK(again + 2 >= pieces || is_beside()); /* each slab of the other thread may lie in a piece */
  }
}

TEST(limit_of_addresses_is_met_with_what_lies_idle) {
  use_heap();
  check_idle_serves(limit_itself(used_bytes() + 128 * (size_t)MIB));
}

TEST(limit_of_data_is_met_with_what_lies_idle) {
  use_heap();
  struct rlimit limit;
  getrlimit(RLIMIT_DATA, &limit);
  limit.rlim_cur = status_bytes("VmData:") + 128 * (size_t)MIB;
  check_idle_serves(setrlimit(RLIMIT_DATA, &limit) == 0);
}

/* ---- Locked memory ---- */

#ifndef HAK_ONLY

TEST(mlockall_locks_what_is_used_alone) {
  use_heap();
  if (mlockall(MCL_CURRENT) != 0) check_skip("not allowed");
  CHECK(status_bytes("VmLck:") < (size_t)1 << 30);
  use_heap();
  CHECK(munlockall() == 0);
  use_heap();
}

#endif
