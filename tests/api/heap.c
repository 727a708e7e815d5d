/* heap.c - named heaps: what they hold, count, refuse and free; threads, forks, and ten thousand heaps. */
#include "api.h"

#include <hakmem/heap.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <time.h>

#include "symbol.h"

#define HEAP_FUNCTIONS(X)                                  \
  X(new, hak_heap_t *, (const char *))                     \
  X(free, void, (hak_heap_t *))                            \
  X(malloc, void *, (hak_heap_t *, size_t))                \
  X(calloc, void *, (hak_heap_t *, size_t, size_t))        \
  X(aligned_alloc, void *, (hak_heap_t *, size_t, size_t)) \
  X(strdup, char *, (hak_heap_t *, const char *))          \
  X(realloc, void *, (hak_heap_t *, void *, size_t))       \
  X(set_limit, void, (hak_heap_t *, size_t))               \
  X(set_default, hak_heap_t *, (hak_heap_t *))             \
  X(of, hak_heap_t *, (const void *))                      \
  X(name, const char *, (const hak_heap_t *))              \
  X(collect, size_t, (hak_heap_t *))                       \
  X(usage_get, bool, (hak_heap_t *, hak_heap_usage_t *))

static struct {
#define X(name, result, arguments) result(*name) arguments;
  HEAP_FUNCTIONS(X)
#undef X
} heap;

static void find_heaps(void) {
  ONLY(FAMILY_HAK);
#define X(name, result, arguments)                                            \
  heap.name = (result(*) arguments)(uintptr_t)symbol_find("hak_heap_" #name); \
  NEED(heap.name);
  HEAP_FUNCTIONS(X)
#undef X
}

static hak_heap_usage_t usage_of(hak_heap_t *of) {
  hak_heap_usage_t usage = {.struct_size = sizeof usage};
  CHECK(heap.usage_get(of, &usage));
  CHECK_EQ(usage.struct_size, sizeof usage);
  CHECK_EQ(usage.allocs - usage.frees, usage.blocks);
  return usage;
}

static uint64_t live_of(hak_heap_t *of) { return usage_of(of).live; }

/* In the secure library freed blocks wait in a quarantine, so counts are not exact. */
static bool exact(void) { return !is_secure(); }

/* ---- one heap ---- */

TEST(heap_gives_blocks_like_any_other) {
  find_heaps();
  hak_heap_t *one = heap.new("one");
  REQUIRE(one);
  for EACH_SIZE(size) {
    if (size > (size_t)64 << 20) continue;
    char *block = heap.malloc(one, size);
    CHECK(block && aligned(block, 16) && api.malloc_usable_size(block) >= size);
    CHECK(heap.of(block) == one);
    fill(block, size, 1);
    char *zero = heap.calloc(one, 1, size), *at = heap.aligned_alloc(one, 4096, size);
    CHECK(zero && all_bytes(zero, size, 0) && heap.of(zero) == one);
    CHECK(at && aligned(at, 4096) && heap.of(at) == one);
    CHECK(filled(block, size, 1));
    api.free(block);
    api.free_sized(zero, size);
    api.free(at);
  }
  char *text = heap.strdup(one, "some text");
  CHECK(text && strcmp(text, "some text") == 0 && heap.of(text) == one);
  void *other = api.malloc(100);
  CHECK(!heap.of(other) && !heap.of(NULL) && !heap.of(&one));
  api.free(other);
  heap.free(one);
}

TEST(heap_has_its_name) {
  find_heaps();
  hak_heap_t *one = heap.new("a \"b\"\\c\n"), *none = heap.new(NULL), *longer = heap.new("0123456789012345678901234567890123456789");
  REQUIRE(one && none && longer);
  CHECK(strcmp(heap.name(one), "a__b__c_") == 0);
  CHECK(strcmp(heap.name(none), "") == 0);
  CHECK(strcmp(heap.name(longer), "0123456789012345678901234567890") == 0);
  heap.free(one);
  heap.free(none);
  heap.free(longer);
  heap.free(NULL);
}

TEST(heap_refuses_what_cannot_be) {
  find_heaps();
  hak_heap_t *one = heap.new("one");
  for EACH_IMPOSSIBLE(size) {
    errno = 0;
    CHECK(!heap.malloc(one, size) && errno == ENOMEM);
  }
  errno = 0;
  CHECK(!heap.calloc(one, SIZE_MAX / 2, 3) && errno == ENOMEM);
  errno = 0;
  CHECK(!heap.aligned_alloc(one, 24, 100) && errno == EINVAL);
  hak_heap_usage_t usage = {.struct_size = 12};
  errno = 0;
  CHECK(!heap.usage_get(one, &usage) && errno == EINVAL);
  CHECK_EQ(usage_of(one).blocks, 0);
  heap.free(one);
}

TEST(heap_counts_to_the_byte) {
  find_heaps();
  UNSANITIZED();
  hak_heap_t *one = heap.new("one");
  enum { BLOCKS = 3000 };
  static void *blocks[BLOCKS];
  uint64_t bytes = 0, large = 0, larges = 0, canary = is_secure() ? 8 : 0;
  for (unsigned i = 0; i < BLOCKS; i++) {
    size_t size = api.malloc_good_size(i % 100 == 0 ? 100000 + i * 16 : 1 + i % 2000);
    blocks[i] = heap.malloc(one, size);
    REQUIRE(blocks[i]);
    bool is_large = i % 100 == 0;
    large += is_large ? api.malloc_usable_size(blocks[i]) : 0;
    larges += is_large;
    if (!is_large && canary == 0) bytes += size;
  }
  hak_heap_usage_t usage = usage_of(one);
  CHECK_EQ(usage.blocks, BLOCKS);
  CHECK_EQ(usage.allocs, BLOCKS);
  CHECK_EQ(usage.frees, 0);
  CHECK_EQ(usage.large_blocks, larges);
  if (canary == 0) CHECK_EQ(usage.large_bytes, large);
  if (canary == 0) CHECK_EQ(usage.live, bytes + large);
  CHECK_EQ(usage.peak, usage.live);
  CHECK(usage.slab_bytes >= usage.live - usage.large_bytes && usage.slab_bytes % 65536 == 0);
  for (unsigned i = 0; i < BLOCKS; i += 2) api.free(blocks[i]);
  if (exact()) {
    CHECK_EQ(usage_of(one).blocks, BLOCKS / 2);
    CHECK_EQ(usage_of(one).frees, BLOCKS / 2);
  }
  CHECK_EQ(usage_of(one).large_blocks, 0);
  CHECK_EQ(usage_of(one).large_bytes, 0);
  CHECK_EQ(usage_of(one).peak, usage.peak);
  for (unsigned i = 1; i < BLOCKS; i += 2) CHECK(heap.of(blocks[i]) == one);
  for (unsigned i = 1; i < BLOCKS; i += 2) api.free(blocks[i]);
  if (exact()) {
    CHECK_EQ(live_of(one), 0);
    uint64_t slabs = usage_of(one).slab_bytes;
    size_t given = heap.collect(one);
    CHECK(given > 0);
    CHECK_EQ(given, slabs - usage_of(one).slab_bytes);
    CHECK_EQ(usage_of(one).slab_bytes, 0);
  }
  heap.free(one);
}

TEST(heap_fills_no_more_than_the_caller_has_room_for) {
  find_heaps();
  hak_heap_t *one = heap.new("one");
  heap.set_limit(one, 12345);
  struct {
    hak_heap_usage_t usage;
    uint64_t behind[2];
  } longer = {.behind = {7, 8}};
  longer.usage.struct_size = sizeof longer.usage + 8;
  CHECK(heap.usage_get(one, &longer.usage));
  CHECK_EQ(longer.usage.struct_size, sizeof longer.usage);
  CHECK_EQ(longer.behind[0], 0);
  CHECK_EQ(longer.behind[1], 8);
  memset(&longer, 0xff, sizeof longer);
  longer.usage.struct_size = 16;
  CHECK(heap.usage_get(one, &longer.usage));
  CHECK_EQ(longer.usage.limit, 12345);
  CHECK_EQ(longer.usage.live, UINT64_MAX);
  heap.free(one);
}

TEST(heap_keeps_to_its_limit) {
  find_heaps();
  hak_heap_t *one = heap.new("one");
  heap.set_limit(one, 100000);
  void *blocks[200];
  unsigned count = 0;
  errno = 0;
  while (count < 200 && (blocks[count] = heap.malloc(one, 1000)) != NULL) count++;
  CHECK_EQ(errno, ENOMEM);
  CHECK_EQ(count, 100000 / 1024);
  CHECK(live_of(one) <= 100000);
  CHECK_EQ(usage_of(one).refused, 1);
  errno = 0;
  CHECK(!heap.malloc(one, 80000) && errno == ENOMEM);
  CHECK_EQ(usage_of(one).refused, 2);
  void *malloced = api.malloc(100000);
  CHECK(malloced); /* the limit is of this heap alone */
  api.free(malloced);
  for (unsigned i = 0; i < count; i++) api.free(blocks[i]);
  if (exact()) { /* freed blocks are collected before anything is refused */
    void *large = heap.malloc(one, 80000);
    CHECK(large && api.realloc(large, 90000) != NULL);
    CHECK_EQ(usage_of(one).refused, 2);
    errno = 0;
    CHECK(!heap.malloc(one, 20000) && errno == ENOMEM);
    heap.set_limit(one, 0);
    CHECK(heap.malloc(one, 20000));
  }
  heap.free(one);
}

TEST(heap_limit_holds_where_a_large_block_grows_in_place) {
  find_heaps();
  hak_heap_t *one = heap.new("one");
  heap.set_limit(one, 200000);
  char *block = heap.malloc(one, 100000);
  REQUIRE(block);
  CHECK(!hak.expand(block, 300000));
  CHECK(!api.realloc(block, 300000));
  CHECK(heap.of(block) == one && live_of(one) <= 200000);
  CHECK_EQ(usage_of(one).refused, 1); /* expand does not count as refused, since nothing else was tried */
  heap.set_limit(one, 0);
  block = api.realloc(block, 300000);
  CHECK(block && heap.of(block) == one && live_of(one) >= 300000);
  block = api.realloc(block, 70000);
  CHECK(block && heap.of(block) == one);
  if (exact()) CHECK(live_of(one) <= 80000);
  api.free(block);
  CHECK_EQ(usage_of(one).large_bytes, 0);
  heap.free(one);
}

TEST(heap_keeps_what_realloc_moves) {
  find_heaps();
  hak_heap_t *one = heap.new("one"), *two = heap.new("two");
  char *block = NULL;
  for (size_t size = 1; size < (size_t)4 << 20; size *= 3) {
    char *before = block;
    block = before ? api.realloc(before, size) : heap.realloc(one, NULL, size);
    REQUIRE(block);
    CHECK(heap.of(block) == one);
    CHECK(size == 1 || filled(block, size / 3, 5));
    fill(block, size, 5);
  }
  size_t size = (size_t)1 << 20;
  block = api.realloc(block, size);
  block = heap.realloc(two, fill(block, size, 6), size / 2);
  CHECK(block && heap.of(block) == two && filled(block, size / 2, 6));
  block = api.recallocarray(block, size / 2, size / 4, 1);
  CHECK(block && heap.of(block) == two && filled(block, size / 4, 6));
  block = heap.realloc(one, api.realloc(block, 100), 200);
  CHECK(block && heap.of(block) == one && filled(block, 100, 6));
  char *own = heap.realloc(one, fill(api.malloc(50), 50, 7), 60);
  CHECK(own && heap.of(own) == one && filled(own, 50, 7));
  CHECK(!heap.realloc(one, own, 0));
  heap.free(one);
  heap.free(two);
}

/* While another heap is the thread's default, too. */
TEST(heap_of_the_thread_takes_no_block_of_malloc) {
  find_heaps();
  hak_heap_t *one = heap.new("one");
  for (size_t size = 1; size < (size_t)2 << 20; size *= 3) {
    char *up = fill(api.malloc(size), size, 3), *down = fill(api.malloc(size), size, 4), *cleared = fill(api.malloc(size), size, 5);
    size_t less = size / 3 + 1;
    hak_heap_t *before = heap.set_default(one);
    up = api.realloc(up, size * 3);
    down = api.realloc(down, less);
    cleared = api.recallocarray(cleared, size, size * 3, 1);
    (void)heap.set_default(before);
    REQUIRE(up && down && cleared);
    CHECK(heap.of(up) == NULL && filled(up, size, 3));
    CHECK(heap.of(down) == NULL && filled(down, less < size ? less : size, 4));
    CHECK(heap.of(cleared) == NULL && filled(cleared, size, 5) && all_bytes(cleared + size, size * 2, 0));
    api.free(up);
    api.free(down);
    api.free(cleared);
  }
  heap.free(one);
}

/* ---- the end of a heap ---- */

TEST(heap_free_frees_all) {
  find_heaps();
  UNSANITIZED();
  hak_stats_t before = {.struct_size = sizeof before}, after = before;
  (void)hak.stats_get(&before);
  for (unsigned round = 0; round < 50; round++) {
    hak_heap_t *one = heap.new("one");
    REQUIRE(one);
    for (unsigned i = 0; i < 2000; i++) {
      size_t size = i % 50 == 0 ? 100000 : i % 3000;
      char *block = heap.malloc(one, size);
      REQUIRE(block);
      memset(block, 1, size);
      if (i % 7 == 0) api.free(block);
    }
    heap.free(one);
  }
  (void)hak.collect(true);
  (void)hak.stats_get(&after);
  bool beside = strcmp(check_context(), "beside") == 0; /* with other threads' blocks; a leak in every round would be 300 MiB */
  CHECK(after.live <= before.live + ((uint64_t)(beside ? 64 : 1) << 20)); /* what the first calls of stdio and others allocate */
  CHECK(beside || after.slabs <= before.slabs + 30);
  CHECK(beside || after.large_blocks <= before.large_blocks);
  if (exact()) CHECK(after.heaps <= before.heaps + 3); /* otherwise there are orphans whose last blocks wait in quarantine */
}

static void dies(void (*body)(void), const char *what) {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], 2);
    body();
    _exit(0);
  }
  close(ends[1]);
  char text[512];
  ssize_t length = 0, n;
  while ((n = read(ends[0], text + length, sizeof text - 1 - (size_t)length)) > 0) length += n;
  text[length] = '\0';
  close(ends[0]);
  int status;
  CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
  if (!strstr(text, what)) check_fail(__FILE__, __LINE__, "not \"%s\" but \"%s\"", what, text);
}

static void free_twice(void) {
  hak_heap_t *one = heap.new("one");
  heap.free(one);
  heap.free(one);
}
static void malloc_after_free(void) {
  hak_heap_t *one = heap.new("one");
  heap.free(one);
  (void)!heap.malloc(one, 10);
}
static void free_a_default(void) {
  hak_heap_t *one = heap.new("one");
  (void)heap.set_default(one);
  heap.free(one);
}
static void free_a_block_of_none(void) {
  hak_heap_t *one = heap.new("one");
  char *block = heap.malloc(one, 1000);
  heap.free(one);
  api.free(block);
}
static void overflow_large(void) {
  hak_heap_t *one = heap.new("one");
  char *block = heap.malloc(one, 100001);
  block[100001] = 1;
  heap.free(one);
}
static void overflow(void) {
  hak_heap_t *one = heap.new("one");
  char *block = heap.malloc(one, 100);
  block[100] ^= 2; /* always changes the byte: one in 128 of these bytes is 1 */
  heap.free(one);
}

TEST(heap_wrong_calls_end_the_process) {
  find_heaps();
  dies(free_twice, "dead heap: hak_heap_free(");
  dies(malloc_after_free, "dead heap: hak_heap_malloc(");
  dies(free_a_default, "heap in use: hak_heap_free(");
  dies(free_a_block_of_none, "double free");
  if (is_secure()) dies(overflow, "overflow: hak_heap_free(");
  if (is_secure()) dies(overflow_large, "overflow: hak_heap_free(");
}

/* ---- a thread's default heap ---- */

TEST(heap_default_is_what_malloc_takes_from) {
  find_heaps();
  hak_heap_t *one = heap.new("one"), *two = heap.new("two");
  void *before = api.malloc(48);
  CHECK(!heap.set_default(one));
  for EACH_SIZE(size) {
    if (size > (size_t)16 << 20) continue;
    void *block = api.malloc(size), *zero = api.calloc(size, 1), *at = api.aligned_alloc(256, size);
    CHECK(block && heap.of(block) == one);
    CHECK(zero && heap.of(zero) == one && all_bytes(zero, size, 0));
    CHECK(at && heap.of(at) == one && aligned(at, 256));
    api.free(block);
    api.free(zero);
    api.free(at);
  }
  CHECK(!heap.of(before));
  api.free(before);
  CHECK(heap.set_default(two) == one);
  char *last = api.malloc(100);
  CHECK(heap.of(last) == two);
  CHECK(heap.set_default(NULL) == two);
  void *own = api.malloc(100);
  CHECK(own && !heap.of(own));
  api.free(own);
  heap.free(one);
  heap.free(two);
}

static void *with_default(void *of) {
  (void)heap.set_default(of);
  return api.malloc(64);
}

TEST(heap_default_ends_with_its_thread) {
  find_heaps();
  hak_heap_t *one = heap.new("one");
  for (unsigned i = 0; i < 5; i++) {
    pthread_t thread;
    void *block;
    REQUIRE(pthread_create(&thread, NULL, with_default, one) == 0);
    pthread_join(thread, &block);
    CHECK(heap.of(block) == one);
  }
  heap.free(one); /* otherwise it would end the process */
}

/* ---- blocks of other heaps ---- */

enum { LEFT = 300 };
static void *leave_blocks(void *blocks) {
  for (unsigned i = 0; i < LEFT; i++) ((char **)blocks)[i] = fill(api.malloc(200 + i % 5 * 300), 200, i);
  return NULL;
}

TEST(heap_is_none_that_a_thread_has_left) {
  find_heaps();
  static char *blocks[4][LEFT];
  for (unsigned i = 0; i < 4; i++) in_thread(leave_blocks, blocks[i]);
  hak_heap_t *heaps[16];
  for (unsigned i = 0; i < 16; i++) {
    heaps[i] = heap.new("one");
    REQUIRE(heaps[i] && heap.malloc(heaps[i], 200));
  }
  for (unsigned i = 0; i < 16; i++) heap.free(heaps[i]);
  for (unsigned i = 0; i < 4; i++) {
    for (unsigned k = 0; k < LEFT; k++) {
      CHECK(!heap.of(blocks[i][k]) && filled(blocks[i][k], 200, k));
      api.free(blocks[i][k]);
    }
  }
}

TEST(heap_blocks_are_cleared_in_the_secure_library) {
  find_heaps();
  if (!is_secure()) check_skip("not the secure library");
  hak_heap_t *one = heap.new("one");
  enum { BLOCKS = 200 };
  static char *blocks[BLOCKS];
  for (unsigned i = 0; i < BLOCKS; i++) {
    blocks[i] = heap.malloc(one, 1000);
    REQUIRE(blocks[i]);
    memset(blocks[i], 's', 1000);
  }
  void *kept = heap.malloc(one, 1000);
  api.free(kept); /* in quarantine, so its slab stays */
  heap.free(one);
  uintptr_t slab = (uintptr_t)kept & ~(uintptr_t)65535;
  for (unsigned i = 0; i < BLOCKS; i++) {
    if (((uintptr_t)blocks[i] & ~(uintptr_t)65535) == slab) CHECK(all_bytes(blocks[i], 1000, 0));
  }
}

/* How many blocks of a new heap lie above the block that was taken before. */
static unsigned rising(unsigned count, size_t size) {
  hak_heap_t *one = heap.new("one");
  unsigned rises = 0;
  char *last = NULL;
  for (unsigned i = 0; i < count; i++) {
    char *block = heap.malloc(one, size);
    rises += block > last;
    last = block;
  }
  heap.free(one);
  return rises;
}

/* Each time one of the four lowest blocks is taken. The bounds fail by chance in at most one of 10^9 runs. */
TEST(heap_blocks_lie_in_random_order_in_the_secure_library) {
  find_heaps();
  if (!is_secure()) check_skip("not the secure library");
  enum { BLOCKS = 200 };
  static const size_t of[] = {16, 100, 700, 3000};
  for (unsigned i = 0; i < sizeof of / sizeof of[0]; i++) {
    unsigned rises = rising(BLOCKS, of[i]);
    CHECK(rises > BLOCKS / 4 && rises < BLOCKS * 9 / 10);
  }
}

TEST(heap_is_known_by_name_in_a_snapshot) {
  find_heaps();
  if (is_secure()) check_skip("which has no samples");
  bool (*write_to)(int) = (bool (*)(int))(uintptr_t)symbol_find("hak_profile_write");
  REQUIRE(write_to);
  hak_heap_t *one = heap.new("a cache");
  REQUIRE(heap.malloc(one, (size_t)4 << 20));
  FILE *file = tmpfile();
  REQUIRE(file && write_to(fileno(file)));
  rewind(file);
  static char line[8192], name[64];
  unsigned tag = 0, found = 0;
  while (fgets(line, sizeof line, file)) {
    unsigned of;
    if (sscanf(line, "heap %u %63s", &of, name) == 2 && strcmp(name, "a_cache") == 0) tag = of;
    if (sscanf(line, "sample %*s %*s %*s %*s %*s %u", &of) == 1 && tag != 0) found += of == tag;
  }
  fclose(file);
  CHECK(tag != 0);
  CHECK_EQ(found, 1);
  heap.free(one);
}

TEST(heap_is_in_the_report) {
  find_heaps();
  hak_heap_t *one = heap.new("of a report");
  REQUIRE(heap.malloc(one, 1000) && heap.malloc(one, 100000));
  for (unsigned json = 0; json < 2; json++) {
    FILE *file = tmpfile();
    REQUIRE(file && (json ? hak.stats_json(fileno(file)) : hak.stats_text(fileno(file))));
    rewind(file);
    static char text[1 << 20];
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    CHECK(strstr(text, json ? "{\"name\": \"of_a_report\", \"limit\": 0, \"live\": 1" : "of_a_report\n"));
  }
  heap.free(one);
}

static _Atomic bool stays;
static void *stay_with_default(void *of) {
  (void)heap.set_default(of);
  atomic_store(&stays, true);
  while (atomic_load(&stays)) usleep(1000);
  return NULL;
}

TEST(heap_is_no_default_of_threads_that_a_child_has_not) {
  find_heaps();
  hak_heap_t *one = heap.new("one");
  pthread_t thread;
  REQUIRE(pthread_create(&thread, NULL, stay_with_default, one) == 0);
  while (!atomic_load(&stays)) usleep(1000);
  pid_t child = fork();
  if (child == 0) {
    heap.free(one);
    _exit(0);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
  atomic_store(&stays, false);
  pthread_join(thread, NULL);
  heap.free(one);
}

/* ---- threads ---- */

enum { THREADS = 8, SLOTS = 512 };
static struct {
  hak_heap_t *_Atomic now;
  void *_Atomic slots[SLOTS];
  _Atomic unsigned round;
  pthread_barrier_t barrier;
} shared;

/* All threads take from one heap, free each other's blocks, and leave the rest to the heap's end. */
static void *work(void *argument) {
  uint64_t random = (uintptr_t)argument * 2654435761u + 1;
  for (unsigned round = 0; round < 20; round++) {
    if (argument == NULL) atomic_store(&shared.now, heap.new("shared"));
    pthread_barrier_wait(&shared.barrier);
    hak_heap_t *of = atomic_load(&shared.now);
    for (unsigned i = 0; i < 3000; i++) {
      random = random * 6364136223846793005u + 1442695040888963407u;
      size_t size = (random >> 40) % (i % 100 == 0 ? 100000 : 800);
      char *block = heap.malloc(of, size);
      CHECK(block != NULL);
      if (!block) return NULL;
      if (size > 0) block[0] = (char)i, block[size - 1] = (char)i;
      char *old = atomic_exchange(&shared.slots[(random >> 20) % SLOTS], block);
      CHECK(!old || heap.of(old) == of);
      api.free(old);
    }
    pthread_barrier_wait(&shared.barrier);
    if (argument == NULL) {
      unsigned held = 0;
      for (unsigned i = 0; i < SLOTS; i++) held += atomic_exchange(&shared.slots[i], NULL) != NULL;
      if (exact()) CHECK_EQ(usage_of(of).blocks, held);
      CHECK_EQ(usage_of(of).allocs, THREADS * 3000);
      heap.free(of);
    }
  }
  return NULL;
}

TEST(heap_of_eight_threads) {
  find_heaps();
  pthread_t threads[THREADS];
  pthread_barrier_init(&shared.barrier, NULL, THREADS);
  for (uintptr_t i = 0; i < THREADS; i++) REQUIRE(pthread_create(&threads[i], NULL, work, (void *)i) == 0);
  for (unsigned i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
}

/* The other thread frees the blocks in the slots, and the heap ends right after the last of these calls, while the last blocks may
 * still be on their way to their slabs.  The end of the heap leaves a block whose live bit a free has cleared to that free. */
static void *free_slots(void *unused) {
  for (unsigned i = 0; i < SLOTS; i++) api.free(atomic_exchange(&shared.slots[i], NULL));
  atomic_store(&shared.round, 1);
  return unused;
}

TEST(heap_ends_beside_the_last_frees) {
  find_heaps();
  for (unsigned round = 0; round < 200; round++) {
    hak_heap_t *of = heap.new("beside");
    for (unsigned i = 0; i < SLOTS; i++) atomic_store(&shared.slots[i], heap.malloc(of, i % 20 == 0 ? 50000 : 100));
    for (unsigned i = 0; i < SLOTS; i++) REQUIRE(heap.malloc(of, 100));
    atomic_store(&shared.round, 0);
    pthread_t thread;
    REQUIRE(pthread_create(&thread, NULL, free_slots, NULL) == 0);
    while (atomic_load(&shared.round) == 0) {
    }
    heap.free(of);
    pthread_join(thread, NULL);
  }
}

/* ---- fork ---- */

static void in_child(hak_heap_t *one, char *small, char *large) {
  if (heap.of(small) != one || heap.of(large) != one || strcmp(heap.name(one), "forked") != 0) _exit(1);
  api.free(small);
  api.free(large);
  if (usage_of(one).large_blocks != 1) _exit(2);
  for (unsigned i = 0; i < 1000; i++) {
    if (!heap.malloc(one, i)) _exit(3);
  }
  heap.free(one);
  hak_heap_t *two = heap.new("two");
  if (!two || !heap.malloc(two, 100)) _exit(4);
  heap.free(two);
  _exit(check_failures() != 0);
}

TEST(heap_in_a_child_of_fork) {
  find_heaps();
  hak_heap_t *one = heap.new("forked");
  char *small = heap.malloc(one, 100), *large = heap.malloc(one, 100000);
  REQUIRE(small && large && heap.malloc(one, 70000));
  pid_t child = fork();
  if (child == 0) in_child(one, small, large);
  int status;
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
  CHECK_EQ(WEXITSTATUS(status), 0);
  CHECK(heap.of(small) == one && heap.of(large) == one);
  heap.free(one);
}

static _Atomic bool stop;
static void *churn(void *of) {
  void *blocks[64] = {NULL};
  for (unsigned i = 0; !atomic_load(&stop); i++) {
    api.free(blocks[i % 64]);
    blocks[i % 64] = heap.malloc(of, i % 16 == 0 ? 40000 + i % 100000 : i % 1000);
  }
  for (unsigned i = 0; i < 64; i++) api.free(blocks[i]);
  return NULL;
}

TEST(heap_in_children_forked_while_threads_take_from_it) {
  find_heaps();
  hak_heap_t *one = heap.new("busy");
  pthread_t threads[4];
  for (unsigned i = 0; i < 4; i++) REQUIRE(pthread_create(&threads[i], NULL, churn, one) == 0);
  for (unsigned round = 0; round < 60; round++) {
    (void)heap.set_default(round % 2 ? one : NULL);
    pid_t child = fork();
    if (child == 0) {
      alarm(30);
      for (unsigned i = 0; i < 100; i++) {
        char *block = heap.malloc(one, i * 700);
        if (!block || heap.of(block) != one) _exit(1);
        if (i % 2) api.free(block);
      }
      if (round % 2) {
        void *block = api.malloc(10);
        if (heap.of(block) != one || heap.set_default(NULL) != one) _exit(2);
      }
      uint64_t large = usage_of(one).large_bytes;
      if (large > (uint64_t)1 << 30) _exit(3);
      heap.free(one);
      _exit(check_failures() != 0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
    CHECK_EQ(WEXITSTATUS(status), 0);
    if (check_failures()) break;
  }
  atomic_store(&stop, true);
  for (unsigned i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  (void)heap.set_default(NULL);
  if (exact()) CHECK_EQ(usage_of(one).blocks, 0);
  heap.free(one);
}

/* ---- many heaps ---- */

static double processor_seconds(void) {
  struct timespec now;
  CHECK_EQ(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now), 0);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* The time must be proportional to the number of heaps. */
static void report_all(void) {
  int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
  double before = processor_seconds();
  CHECK(hak.stats_text(nowhere) && hak.stats_json(nowhere));
  double took = processor_seconds() - before;
  if (took > 1.5) check_fail(__FILE__, __LINE__, "the reports took %.1f s", took);
  (void)close(nowhere);
}

/* In the secure library these heaps have blocks in quarantine when they end. */
static uint64_t records_after(unsigned heaps) {
  for (unsigned i = 0; i < heaps; i++) {
    hak_heap_t *one = heap.new("short");
    CHECK(one);
    api.free(heap.malloc(one, 16 + i % 4 * 16));
    heap.free(one);
  }
  hak_stats_t stats = {.struct_size = sizeof stats};
  CHECK(hak.stats_get(&stats));
  return stats.heaps;
}

TEST(heap_leaves_its_record_to_the_next) {
  find_heaps();
  uint64_t before = records_after(4000);
  CHECK(before < 2000);
  CHECK(records_after(4000) <= before + 100);
}

TEST(heap_times_ten_thousand) {
  find_heaps();
  UNSANITIZED();
  enum { HEAPS = 10000 };
  static hak_heap_t *heaps[HEAPS];
  size_t before = check_resident();
  for (unsigned round = 0; round < 2; round++) {
    for (unsigned i = 0; i < HEAPS; i++) {
      heaps[i] = heap.new("many");
      REQUIRE(heaps[i]);
      for (unsigned k = 0; k < 16; k++) REQUIRE(heap.malloc(heaps[i], 64 - 8));
    }
    size_t each = (check_resident() - before) / HEAPS;
    if (each > 80 * 1024) check_fail(__FILE__, __LINE__, "a heap of 1 KiB takes %zu bytes", each);
    report_all();
    for (unsigned i = 0; i < HEAPS; i++) heap.free(heaps[i]);
  }
  before = check_resident();
  (void)hak.collect(true);
  CHECK(check_resident() <= before + ((size_t)1 << 20)); /* giving back touches no pages of ended heaps */
}
