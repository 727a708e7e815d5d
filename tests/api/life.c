/* life.c - threads that start and end, fork and spawn. */
#include "api.h"

#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <sys/stat.h>
#include <sys/wait.h>

/* Empty, because the program may be built for another libc or processor than a preloaded library. */
static char *const no_environment[] = {NULL};

/* ---- A thread's first call ---- */

static void *first_malloc(void *unused) {
  errno = MARK;
  void *block = api.malloc(100);
  CHECK_EQ(errno, MARK);
  CHECK(block && filled(fill(block, 100, 1), 100, 1));
  api.free(block);
  return unused;
}

static void *first_calloc(void *unused) {
  void *block = api.calloc(100, 10);
  CHECK(block && all_bytes(block, 1000, 0));
  api.free(block);
  return unused;
}

static void *first_aligned(void *unused) {
  void *block = api.aligned_alloc(4096, 100);
  CHECK(block && aligned(block, 4096));
  api.free(block);
  return unused;
}

static void *first_realloc(void *block) {
  errno = MARK;
  char *moved = api.realloc(block, 5000);
  CHECK_EQ(errno, MARK);
  CHECK(moved && (!block || filled(moved, 100, 1)));
  if (moved) memset(moved, 1, 5000);
  api.free(moved);
  return NULL;
}

static void *first_realloc_to_0(void *block) {
  CHECK(!api.realloc(block, 0));
  return NULL;
}

static void *first_free(void *block) {
  errno = MARK;
  api.free(block);
  CHECK_EQ(errno, MARK);
  return NULL;
}

static void *first_free_sized(void *block) {
  errno = MARK;
  api.free_sized(block, block ? 100 : 0);
  CHECK_EQ(errno, MARK);
  return NULL;
}

static void *first_free_aligned_sized(void *block) {
  api.free_aligned_sized(block, block ? 64 : 0, block ? 100 : 0);
  return NULL;
}

static void *first_usable_size(void *block) {
  CHECK(api.malloc_usable_size(block) >= (block ? 100u : 0u));
  return NULL;
}

static void *first_large(void *unused) {
  char *block = api.malloc((size_t)3 << 20);
  CHECK(block);
  if (block) block[0] = 1, block[(3 << 20) - 1] = 1;
  api.free(block);
  return unused;
}

static void *first_failure(void *unused) {
  errno = 0;
  CHECK(!api.malloc(SIZE_MAX));
  CHECK_EQ(errno, ENOMEM);
  return unused;
}

static void *first_batch_free(void *block) {
  hak.free_batch(&block, 1);
  return NULL;
}

TEST(thread_begins_with_malloc) { in_thread(first_malloc, NULL); }
TEST(thread_begins_with_calloc) { in_thread(first_calloc, NULL); }
TEST(thread_begins_with_aligned_alloc) { in_thread(first_aligned, NULL); }
TEST(thread_begins_with_a_large_block) { in_thread(first_large, NULL); }
TEST(thread_begins_with_a_failure) { in_thread(first_failure, NULL); }
TEST(thread_begins_with_realloc_of_null) { in_thread(first_realloc, NULL); }
TEST(thread_begins_with_realloc) { in_thread(first_realloc, fill(api.malloc(100), 100, 1)); }
TEST(thread_begins_with_realloc_to_0) { in_thread(first_realloc_to_0, api.malloc(100)); }
TEST(thread_begins_with_free_of_null) { in_thread(first_free, NULL); }
TEST(thread_begins_with_free) {
  for EACH_SIZE(size) in_thread(first_free, api.malloc(size));
}
TEST(thread_begins_with_usable_size) {
  void *block = api.malloc(100);
  in_thread(first_usable_size, block);
  in_thread(first_usable_size, NULL);
  api.free(block);
}
TEST(thread_begins_with_free_sized) {
  NEED(api.free_sized);
  in_thread(first_free_sized, NULL);
  in_thread(first_free_sized, api.malloc(100));
}
TEST(thread_begins_with_free_aligned_sized) {
  NEED(api.free_aligned_sized);
  in_thread(first_free_aligned_sized, NULL);
  in_thread(first_free_aligned_sized, api.aligned_alloc(64, 100));
}
TEST(thread_begins_with_free_batch) {
  ONLY(FAMILY_HAK);
  in_thread(first_batch_free, api.malloc(100));
}

/* ---- A thread's end ---- */

static pthread_key_t key;
static atomic_int rounds;

static size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

static void use_heap(void) {
  void *blocks[40];
  for (unsigned i = 0; i < 40; i++) blocks[i] = fill(api.malloc(sizes[i * 2]), smaller(sizes[i * 2], 500), i);
  for (unsigned i = 0; i < 40; i++) {
    CHECK(filled(blocks[i], smaller(sizes[i * 2], 500), i));
    if (i % 2) blocks[i] = api.realloc(blocks[i], 700);
    api.free(blocks[i]);
  }
}

/* The block of each round is freed in the next round, and the key is set again each time. */
static void end_of_thread(void *block) {
  CHECK(filled(block, 100, 77));
  api.free(block);
  use_heap();
  if (atomic_fetch_add(&rounds, 1) + 1 < PTHREAD_DESTRUCTOR_ITERATIONS) pthread_setspecific(key, fill(api.malloc(100), 100, 77));
}

static void *set_key(void *unused) {
  use_heap();
  pthread_setspecific(key, fill(api.malloc(100), 100, 77));
  return unused;
}

TEST(thread_ends_with_4_rounds_of_key_destructors) {
  REQUIRE(pthread_key_create(&key, end_of_thread) == 0);
  for (int i = 0; i < 50; i++) {
    atomic_store(&rounds, 0);
    in_thread(set_key, NULL);
    CHECK_EQ(atomic_load(&rounds), PTHREAD_DESTRUCTOR_ITERATIONS);
  }
}

static void *set_key_only(void *block) {
  pthread_setspecific(key, block);
  return NULL;
}

TEST(thread_ends_with_its_first_calls) {
  REQUIRE(pthread_key_create(&key, end_of_thread) == 0);
  for (int i = 0; i < 20; i++) {
    atomic_store(&rounds, 0);
    in_thread(set_key_only, fill(api.malloc(100), 100, 77));
    CHECK_EQ(atomic_load(&rounds), PTHREAD_DESTRUCTOR_ITERATIONS);
  }
}

static void *small_life(void *unused) {
  use_heap();
  return unused;
}

TEST(thread_keys_may_all_be_taken) {
  pthread_key_t unused;
  int taken = 0;
  while (pthread_key_create(&unused, NULL) == 0) taken++;
  CHECK(taken > 100);
  for (int i = 0; i < 100; i++) in_thread(small_life, NULL);
  size_t before = check_resident();
  for (int i = 0; i < 1000; i++) in_thread(small_life, NULL);
  CHECK(SANITIZED || check_resident() < before + ((size_t)8 << 20));
}

TEST(thread_lives_leave_nothing_behind) {
  for (int i = 0; i < 100; i++) in_thread(small_life, NULL);
  size_t before = check_resident();
  for (int i = 0; i < 3000; i++) in_thread(small_life, NULL);
  CHECK(SANITIZED || check_resident() < before + ((size_t)4 << 20));
}

#define TOGETHER 200
static pthread_barrier_t together;

/* In its last round as well: after that the allocator hears of the thread no more. */
static void end_in_rounds(void *round) {
  use_heap();
  if ((uintptr_t)round < PTHREAD_DESTRUCTOR_ITERATIONS) pthread_setspecific(key, (char *)round + 1);
}

/* Those that use more get a heap of their own, the others only in a destructor. */
static void *live_together(void *times) {
  pthread_barrier_wait(&together);
  for (unsigned i = 0; i < (uintptr_t)times; i++) use_heap();
  pthread_setspecific(key, (void *)1);
  return NULL;
}

TEST(threads_that_allocate_in_their_last_destructors_leave_their_heaps) {
  ONLY(FAMILY_HAK);
  pthread_t threads[TOGETHER];
  REQUIRE(pthread_key_create(&key, end_in_rounds) == 0);
  pthread_barrier_init(&together, NULL, TOGETHER);
  for (unsigned i = 0; i < TOGETHER; i++)
    REQUIRE(pthread_create(&threads[i], NULL, live_together, (void *)(uintptr_t)(i % 2 ? 10 : 1)) == 0);
  for (unsigned i = 0; i < TOGETHER; i++) pthread_join(threads[i], NULL);
  hak_stats_t stats = {.struct_size = sizeof stats};
  REQUIRE(hak.stats_get(&stats));
  CHECK(stats.heaps - stats.heaps_orphaned < 20); /* the main thread's, and those that all share */
}

static void *orphans[20000];

static void *make_orphans(void *unused) {
  for (unsigned i = 0; i < 20000; i++) orphans[i] = fill(api.malloc(100), 100, i);
  return unused;
}

static void *free_orphans(void *unused) {
  for (unsigned i = 0; i < 20000; i++) {
    CHECK(filled(orphans[i], 100, i));
    api.free(orphans[i]);
  }
  return unused;
}

TEST(thread_leaves_blocks_that_others_free) {
  in_thread(make_orphans, NULL);
  in_thread(free_orphans, NULL);
  size_t before = check_resident();
  for (int i = 0; i < 30; i++) in_thread(make_orphans, NULL), in_thread(free_orphans, NULL);
  CHECK(SANITIZED || check_resident() < before + ((size_t)12 << 20)); /* 60 MB were allocated in all */
}

static void *wait_to_be_cancelled(void *unused) {
  for (;;) {
    void *block = api.malloc(1000);
    pthread_testcancel();
    api.free(block);
  }
  return unused;
}

TEST(thread_may_be_cancelled) {
  for (int i = 0; i < 50; i++) {
    pthread_t thread;
    REQUIRE(pthread_create(&thread, NULL, wait_to_be_cancelled, NULL) == 0);
    if (i % 2) usleep(200);
    pthread_cancel(thread);
    pthread_join(thread, NULL);
    use_heap();
  }
}

static bool figures_came;
static void *take_figures_though_cancelled(void *unused) {
  hak_stats_t stats = {.struct_size = sizeof stats};
  (void)pthread_cancel(pthread_self());
  figures_came = hak.stats_get(&stats) && stats.resident > 0;
  pthread_testcancel();
  return unused;
}

TEST(thread_that_is_to_be_cancelled_takes_figures) { /* figures are read from files: callers may hold locks */
  ONLY(FAMILY_HAK);
  NEED(hak.stats_get);
  pthread_t thread;
  void *result = NULL;
  REQUIRE(pthread_create(&thread, NULL, take_figures_though_cancelled, NULL) == 0);
  CHECK(pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED);
  CHECK(figures_came);
}

static void *deep_use(void *unused) {
  use_heap();
  void *block = api.malloc((size_t)3 << 20);
  CHECK(block);
  block = api.realloc(block, (size_t)8 << 20);
  CHECK(block);
  api.free(block);
  block = api.aligned_alloc((size_t)1 << 21, 100);
  CHECK(block);
  api.free(block);
  for (unsigned i = 0; i < 5000; i++) orphans[i] = api.malloc(sizes[i % 60]);
  for (unsigned i = 0; i < 5000; i++) api.free(orphans[i]);
  api.malloc_trim(0);
  return unused;
}

TEST(thread_stacks_may_be_16_kib) {
  pthread_attr_t attributes;
  pthread_t thread;
  pthread_attr_init(&attributes);
  size_t least = (size_t)PTHREAD_STACK_MIN; /* musl's minimum is 2 KiB; on aarch64 it is more than 16 KiB */
  REQUIRE(pthread_attr_setstacksize(&attributes, least > 16 << 10 ? least : 16 << 10) == 0);
  for (int i = 0; i < 20; i++) {
    REQUIRE(pthread_create(&thread, &attributes, deep_use, NULL) == 0);
    pthread_join(thread, NULL);
  }
}

/* Coroutines run on stacks whose size their program chooses, down to 4 KiB.  To measure another allocator:
 * STACK_OF_CALLS=1 LD_BIND_NOW=1 LD_PRELOAD=LIBRARY build/tests/api/api_preloaded -c alone -v libc -x calls_take_little_stack */
#if defined(__aarch64__)
enum { STACK_OF_CALLS = 4608 }; /* frames are larger here, the unwinder's above all */
#else
enum { STACK_OF_CALLS = 4096 };
#endif
enum { PAINTED = 128 << 10, PAINT = 0x5a };
static _Alignas(64) unsigned char painted[PAINTED];

/* Uses a heap that must check limits, and leaves idle memory for which a keeper is started. */
static void use_much(void) {
  enum { MANY = 200, LARGE = 100000 };
  static void *blocks[MANY];
  deep_use(NULL);
  for (int i = 0; i < MANY; i++) memset(blocks[i] = api.malloc(LARGE), 1, LARGE);
  for (int i = 0; i < MANY; i++) api.free(blocks[i]);
  deep_use(NULL);
}

static void *measure_stack(void *unused) {
  unsigned char *here = __builtin_frame_address(0);
  size_t below = (size_t)(here - painted) - 256; /* this function's own stack */
  memset(painted, PAINT, below);
  use_much();
  size_t left = 0;
  while (left < below && painted[left] == PAINT) left++;
  size_t used = below - left;
  const char *bound = getenv("STACK_OF_CALLS");
  if (used > (bound != NULL ? (size_t)atol(bound) : STACK_OF_CALLS)) check_fail(__FILE__, __LINE__, "calls take %zu bytes of stack", used);
  return unused;
}

TEST(calls_take_little_stack) {
  NOT_COUNTED();
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  check_skip("their frames are larger");
#endif
  pthread_attr_t attributes;
  pthread_t thread;
  pthread_attr_init(&attributes);
  REQUIRE(pthread_attr_setstack(&attributes, painted, sizeof painted) == 0);
  REQUIRE(pthread_create(&thread, &attributes, measure_stack, NULL) == 0);
  REQUIRE(pthread_join(thread, NULL) == 0);
}

/* ---- fork, vfork, spawn ---- */

static int status_of(pid_t child) {
  int status = -1;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  return status;
}

static void *end_at_once(void *unused) {
  api.free(api.malloc(100));
  return unused;
}

static void *let_threads_end(void *stop) {
  while (!atomic_load((atomic_bool *)stop)) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, end_at_once, NULL) == 0) pthread_join(thread, NULL);
  }
  return NULL;
}

/* If such a thread holds something of libc's, the child may never get it. */
TEST(fork_child_ends_though_threads_were_ending) {
  atomic_bool stop = false;
  pthread_t threads[2];
  for (size_t i = 0; i < 2; i++) REQUIRE(pthread_create(&threads[i], NULL, let_threads_end, &stop) == 0);
  for (int i = 0; i < 1000; i++) {
    pid_t child = fork();
    if (child == 0) exit(0);
    int status = -1, waited = 0;
    while (waitpid(child, &status, WNOHANG) == 0 && ++waited < 200000) usleep(100);
    if (waited == 200000) kill(child, SIGKILL); /* SIGKILL, since other signals may be blocked */
    CHECK_EQ(status, 0);
    if (status != 0) break;
  }
  atomic_store(&stop, true);
  for (size_t i = 0; i < 2; i++) pthread_join(threads[i], NULL);
}

TEST(fork_child_allocates_and_frees_what_it_inherits) {
  for (int round = 0; round < 30; round++) {
    for (unsigned i = 0; i < 2000; i++) orphans[i] = fill(api.malloc(sizes[i % 60]), sizes[i % 60], i);
    pid_t child = fork();
    if (child == 0) {
      alarm(20);
      for (unsigned i = 0; i < 2000; i++) {
        CHECK(filled(orphans[i], sizes[i % 60], i));
        api.free(orphans[i]);
      }
      use_heap();
      in_thread(small_life, NULL);
      _exit(check_failures() != 0);
    }
    CHECK_EQ(status_of(child), 0);
    for (unsigned i = 0; i < 2000; i++) {
      CHECK(filled(orphans[i], sizes[i % 60], i));
      api.free(orphans[i]);
    }
  }
}

static atomic_bool stop;

static void *allocate_until_stopped(void *unused) {
  while (!atomic_load(&stop)) use_heap();
  return unused;
}

TEST(fork_while_threads_allocate) {
  UNSANITIZED(); /* their runtime starts no thread in such a child */
  pthread_t threads[4];
  for (int i = 0; i < 4; i++) REQUIRE(pthread_create(&threads[i], NULL, allocate_until_stopped, NULL) == 0);
  for (int round = 0; round < 50; round++) {
    pid_t child = fork();
    if (child == 0) {
      alarm(20);
      for (int i = 0; i < 5; i++) use_heap();
      in_thread(small_life, NULL);
      _exit(check_failures() != 0);
    }
    CHECK_EQ(status_of(child), 0);
    use_heap();
  }
  atomic_store(&stop, true);
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
}

TEST(fork_of_a_forked_child) {
  pid_t child = fork();
  if (child == 0) {
    use_heap();
    pid_t grandchild = fork();
    if (grandchild == 0) {
      use_heap();
      in_thread(small_life, NULL);
      _exit(check_failures() != 0);
    }
    CHECK_EQ(status_of(grandchild), 0);
    use_heap();
    _exit(check_failures() != 0);
  }
  CHECK_EQ(status_of(child), 0);
}

/* Leaves so much idle that the library may start a thread for it: the process must still end with its only other thread. */
static int leave_much_idle(void *status) {
  enum { BLOCKS = 200, BYTES = 60000 };
  void *blocks[BLOCKS];
  for (int i = 0; i < BLOCKS; i++) blocks[i] = fill(api.malloc(BYTES), BYTES, (unsigned)i);
  for (int i = 0; i < BLOCKS; i++) api.free(blocks[i]);
  return (int)(intptr_t)status;
}

TEST(child_of_clone_ends_with_its_status) {
  UNSANITIZED();
  enum { STACK = 1 << 18 };
  static _Alignas(64) char stack[STACK];
  pid_t child = clone(leave_much_idle, stack + STACK, SIGCHLD, (void *)(intptr_t)7);
  CHECK_EQ(status_of(child), 7 << 8);
}

#ifndef HAK_ONLY /* this build leaves libc's syscall alone */
TEST(child_that_ends_its_only_thread_ends_with_its_status) {
#ifndef __GLIBC__
  if (getauxval(AT_BASE) == 0) check_skip("a static program has musl's own syscall");
#endif
  pid_t child = fork();
  if (child == 0) syscall(SYS_exit, leave_much_idle((void *)(intptr_t)7));
  CHECK_EQ(status_of(child), 7 << 8);
}
#endif

static int thread_count(void) {
  struct stat status;
  return stat("/proc/self/task", &status) == 0 ? (int)status.st_nlink - 2 : 0;
}

/* According to the thread's status file, which Linux has since 3.17. */
static bool is_unfiltered(void) {
  FILE *file = fopen("/proc/thread-self/status", "r");
  char line[256];
  bool found = false;
  while (file != NULL && !found && fgets(line, sizeof line, file) != NULL) found = strcmp(line, "Seccomp:\t0\n") == 0;
  if (file != NULL) fclose(file);
  return found;
}

static int leave_much_idle_and_look(void *unused) {
  (void)leave_much_idle(unused);
  api.free(api.malloc(100000));
  return thread_count();
}

/* The library's thread would end with the child, whatever it held at that time, and the memory is the parent's. */
TEST(child_that_shares_the_memory_starts_no_thread) {
  UNSANITIZED();
  enum { STACK = 1 << 18 };
  static _Alignas(64) char stack[STACK];
  pid_t child = clone(leave_much_idle_and_look, stack + STACK, CLONE_VM | CLONE_VFORK | SIGCHLD, NULL);
  CHECK_EQ(status_of(child), 1 << 8);
  /* The child does not keep its parent from starting one. Beside another thread it may have been started before, and under a filter
   * that was installed before the process started there may be none. */
  int before = thread_count(), after = leave_much_idle_and_look(NULL);
  if (api_is_hakmem() && !is_secure() && is_unfiltered() && strcmp(check_context(), "beside") != 0) CHECK_EQ(after, before + 1);
}

TEST(vfork_and_exec) {
  for (volatile int i = 0; i < 20; i++) { /* vfork returns twice */
    pid_t child = vfork();
    if (child == 0) {
      execle("/bin/true", "true", (char *)NULL, no_environment);
      _exit(1);
    }
    CHECK_EQ(status_of(child), 0);
    use_heap();
  }
}

TEST(spawn_works) {
  char *const argv[] = {(char *)(uintptr_t)"true", NULL};
  for (int i = 0; i < 20; i++) {
    pid_t child;
    REQUIRE(posix_spawn(&child, "/bin/true", NULL, NULL, argv, no_environment) == 0);
    CHECK_EQ(status_of(child), 0);
    use_heap();
  }
}
