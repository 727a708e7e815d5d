/* pressure.c - limits that the program sets: when its callback is called, with which values, and what its allocations return. */
#include "api.h"

#include <hakmem/heap.h>
#include <hakmem/pressure.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "symbol.h"

enum { MIB = 1 << 20, LIMIT = 64, MOST = 256 };
#define AS_MUCH ((size_t)LIMIT * MIB) /* as large as the limit: passes it together with other blocks (use_some), but not alone */

static void (*on_pressure)(hak_pressure_callback_t *, void *);

/* The blocks that the program could free, and the values that its callback was given; atomic, since another thread may run it too. */
static void *_Atomic cache[MOST];
static atomic_uint calls, inside, wrong, free_each;
static _Atomic uint32_t told_level;
static _Atomic uint64_t told_limit, told_use, told_wanted, told_size;

static void find_pressure(void) {
  ONLY(FAMILY_HAK);
  on_pressure = (void (*)(hak_pressure_callback_t *, void *))(uintptr_t)symbol_find("hak_on_pressure");
  NEED(on_pressure);
  NEED(hak.option_set);
  if (is_secure()) check_skip("its options are sealed: confined.container sets them from outside");
}

static size_t cache_free(unsigned count) {
  size_t freed = 0;
  for (unsigned i = 0; i < MOST && freed < count; i++) {
    void *block = atomic_exchange(&cache[i], NULL);
    api.free(block);
    freed += block != NULL;
  }
  return freed * MIB;
}

/* Allocates and frees, also more than can be had; this must not call the callback again. */
static size_t callback(const hak_pressure_t *pressure, void *argument) {
  if (atomic_fetch_add(&inside, 1) != 0 || argument != &calls) atomic_fetch_add(&wrong, 1);
  atomic_fetch_add(&calls, 1);
  told_level = pressure->level;
  told_limit = pressure->limit;
  told_use = pressure->used;
  told_wanted = pressure->wanted;
  told_size = pressure->struct_size;
  void *small = api.malloc(100), *large = api.malloc(AS_MUCH);
  api.free(small);
  api.free(large);
  size_t freed = cache_free(free_each);
  errno = EXDEV;
  atomic_fetch_sub(&inside, 1);
  return freed;
}

/* Puts blocks of 1 MiB into the cache until one is refused; returns how many there were. */
static unsigned cache_fill(unsigned count) {
  for (unsigned i = 0; i < count; i++) {
    void *block = api.malloc(MIB);
    if (block == NULL) return i;
    memset(block, 1, MIB);
    cache[i] = block;
  }
  return count;
}

TEST(pressure_is_told_from_the_soft_limit_on) {
  find_pressure();
  CHECK(hak.option_set("limit_soft", (int64_t)LIMIT * MIB));
  on_pressure(callback, &calls);
  CHECK_EQ(cache_fill(LIMIT / 2), LIMIT / 2);
  CHECK_EQ(calls, 0);
  CHECK_EQ(cache_fill(LIMIT + 16), LIMIT + 16); /* soft: nothing is refused */
  CHECK(calls > 0);
  CHECK_EQ(told_level, HAK_PRESSURE_URGENT);
  CHECK_EQ(told_limit, (uint64_t)LIMIT * MIB);
  CHECK_EQ(told_wanted, 0);
  CHECK_EQ(told_size, sizeof(hak_pressure_t));
  CHECK(told_use >= (uint64_t)LIMIT * MIB && told_use <= (uint64_t)2 * LIMIT * MIB);
  CHECK_EQ(wrong, 0);
}

/* Takes a slow path now and then; some of these read the clock. */
static void pass_time(void) {
  void *blocks[100];
  for (unsigned i = 0; i < 100; i++) blocks[i] = api.malloc(3000);
  for (unsigned i = 0; i < 100; i++) api.free(blocks[i]);
  usleep(1000);
}

static uint32_t level_now(void) {
  hak_stats_t stats = {.struct_size = sizeof stats};
  CHECK(hak.stats_get(&stats));
  return (uint32_t)stats.limit_level;
}

TEST(pressure_ends_below_the_soft_limit) {
  find_pressure();
  CHECK(hak.option_set("limit_soft", (int64_t)LIMIT * MIB));
  CHECK_EQ(cache_fill(LIMIT + 16), LIMIT + 16);
  CHECK_EQ(level_now(), 3);
  cache_free(MOST);
  while (level_now() != 0) pass_time();
}

/* The 30 free MiB are given back only when the 80 are refused; then the block may grow into what lies behind it. */
TEST(pressure_hard_limit_leaves_room_to_grow_in_place) {
  find_pressure();
  if (strcmp(check_context(), "beside") == 0) check_skip("the other thread may take what is behind the block");
  CHECK(hak.option_set("decay_ms", -1));
  CHECK(hak.option_set("limit_hard", (int64_t)100 * MIB));
  char *first = api.malloc((size_t)30 * MIB), *block = api.malloc((size_t)60 * MIB);
  CHECK(first != NULL && block != NULL);
  memset(first, 1, (size_t)30 * MIB);
  memset(block, 2, (size_t)60 * MIB);
  api.free(first);
  errno = EXDEV;
  char *grown = api.realloc(block, (size_t)80 * MIB);
  CHECK(grown == block && errno == EXDEV);
  if (grown != NULL) CHECK(grown[0] == 2 && grown[(size_t)60 * MIB - 1] == 2);
  api.free(grown != NULL ? grown : block);
}

TEST(pressure_is_not_told_for_what_can_never_be_had) {
  UNSANITIZED();
  find_pressure();
  on_pressure(callback, &calls);
  free_each = 4;
  CHECK_EQ(cache_fill(LIMIT), LIMIT);
  struct rlimit limit;
  CHECK_EQ(getrlimit(RLIMIT_AS, &limit), 0);
  limit.rlim_cur = (rlim_t)8 << 30;
  CHECK_EQ(setrlimit(RLIMIT_AS, &limit), 0);
  errno = 0;
  CHECK(api.malloc((size_t)64 << 30) == NULL && errno == ENOMEM);
  CHECK_EQ(calls, 0);
  cache_free(MOST);
}

TEST(pressure_is_not_told_for_what_passes_the_hard_limit_alone) {
  find_pressure();
  CHECK(hak.option_set("limit_hard", (int64_t)LIMIT * MIB));
  on_pressure(callback, &calls);
  free_each = 4;
  CHECK_EQ(cache_fill(LIMIT / 4), LIMIT / 4);
  errno = 0;
  CHECK(api.malloc(2 * AS_MUCH) == NULL && errno == ENOMEM);
  CHECK_EQ(calls, 0);
  cache_free(MOST);
}

TEST(pressure_hard_limit_refuses_what_would_pass_it) {
  find_pressure();
  CHECK(hak.option_set("limit_hard", (int64_t)LIMIT * MIB));
  errno = 0;
  unsigned filled = cache_fill(MOST);
  CHECK_EQ(errno, ENOMEM);
  CHECK(filled >= LIMIT / 2 && filled <= LIMIT);
  hak_stats_t stats = {.struct_size = sizeof stats};
  CHECK(hak.stats_get(&stats) && stats.limit_refused > 0);
  CHECK(stats.limit != 0 || stats.limit_use == 0); /* without a limit, the container's use does not count */
  cache_free(MOST);
  CHECK(cache_fill(LIMIT / 2) == LIMIT / 2); /* freed memory can be used again */
  CHECK(hak.option_set("limit_hard", 0));
  cache_free(MOST);
  CHECK_EQ(cache_fill(2 * LIMIT), 2 * LIMIT);
}

TEST(pressure_is_asked_before_an_allocation_fails) {
  NOT_COUNTED();
  find_pressure();
  CHECK(hak.option_set("limit_hard", (int64_t)LIMIT * MIB));
  on_pressure(callback, &calls);
  free_each = 4;
  errno = 0;
  for (unsigned i = 0; i < 3 * LIMIT; i++) {
    void *block = api.malloc(MIB);
    CHECK(block);
    if (block == NULL) break;
    cache[i] = block;
  }
  CHECK_EQ(errno, 0); /* set neither by the callback nor by a call that succeeded in the end */
  CHECK(calls > 0);
  CHECK_EQ(told_level, HAK_PRESSURE_FAILING);
  CHECK_EQ(told_wanted, MIB);
  CHECK_EQ(told_limit, (uint64_t)LIMIT * MIB); /* this limit, not the container's */
  CHECK(told_use <= told_limit && told_use + 2 * MIB > told_limit);
  CHECK_EQ(wrong, 0);
  free_each = 0;
  unsigned before = calls;
  CHECK(api.malloc((size_t)LIMIT * MIB) == NULL && errno == ENOMEM);
  CHECK(calls > before);
  on_pressure(NULL, NULL);
  before = calls;
  CHECK(api.malloc((size_t)LIMIT * MIB) == NULL);
  CHECK_EQ(calls, before);
}

static __thread bool to_cancel;
static size_t cancel_in_callback(const hak_pressure_t *pressure, void *argument) {
  (void)pressure, (void)argument;
  if (!to_cancel) return 0;
  atomic_fetch_add(&calls, 1);
  CHECK_EQ(pthread_cancel(pthread_self()), 0);
  pthread_testcancel();
  atomic_fetch_add(&inside, 1);
  return 0;
}
static void use_some(void) {
  static void *volatile kept;
  REQUIRE((kept = api.malloc(MIB)) != NULL);
}

static void *fill_and_be_cancelled(void *unused) {
  to_cancel = true;
  void *volatile block = api.malloc(AS_MUCH);
  CHECK(block == NULL);
  pthread_testcancel();
  return unused;
}

TEST(pressure_does_not_make_malloc_a_cancellation_point) {
  find_pressure();
  use_some();
  CHECK(hak.option_set("limit_hard", (int64_t)LIMIT * MIB));
  on_pressure(cancel_in_callback, NULL);
  pthread_t thread;
  REQUIRE(pthread_create(&thread, NULL, fill_and_be_cancelled, NULL) == 0);
  void *result = NULL;
  CHECK_EQ(pthread_join(thread, &result), 0);
  CHECK(result == PTHREAD_CANCELED);
  CHECK(calls > 0 && calls == inside); /* each call has ended */
  calls = inside = 0;
  on_pressure(callback, &calls); /* no thread is in the earlier callback */
  CHECK(api.malloc(AS_MUCH) == NULL);
  CHECK(calls > 0 && wrong == 0);
}

TEST(pressure_is_asked_for_named_heaps) {
  find_pressure();
  hak_heap_t *(*heap_new)(const char *) = (hak_heap_t * (*)(const char *))(uintptr_t)symbol_find("hak_heap_new");
  void *(*heap_malloc)(hak_heap_t *, size_t) = (void *(*)(hak_heap_t *, size_t))(uintptr_t)symbol_find("hak_heap_malloc");
  NEED(heap_new);
  NEED(heap_malloc);
  hak_heap_t *one = heap_new("one");
  REQUIRE(one);
  CHECK(hak.option_set("limit_hard", (int64_t)LIMIT * MIB));
  on_pressure(callback, &calls);
  free_each = 4;
  for (unsigned i = 0; i < 2 * LIMIT; i++) {
    void *block = heap_malloc(one, MIB);
    CHECK(block);
    if (block == NULL) break;
    cache[i] = block;
  }
  CHECK(calls > 0);
  CHECK_EQ(told_level, HAK_PRESSURE_FAILING);
  CHECK_EQ(wrong, 0);
}

/* As if the thread that checks or reports had stayed in the parent: the child is forked inside the callback, and its callback is called
 * too. */
static size_t fork_in_callback(const hak_pressure_t *pressure, void *argument) {
  pid_t *child = argument;
  (void)pressure;
  atomic_fetch_add(&calls, 1);
  if (*child == -1) *child = fork();
  return 0;
}

TEST(pressure_stays_in_a_child) {
  find_pressure();
  use_some();
  CHECK(hak.option_set("limit_hard", (int64_t)LIMIT * MIB));
  pid_t child = -1;
  on_pressure(fork_in_callback, &child);
  CHECK(api.malloc(AS_MUCH) == NULL); /* returns in both processes */
  CHECK(child != -1);
  unsigned before = calls;
  CHECK(api.malloc(AS_MUCH) == NULL && errno == ENOMEM);
  CHECK(calls > before);
  if (child == 0) _exit(check_failures());
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK_EQ(status, 0);
}
