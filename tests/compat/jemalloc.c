/* jemalloc.c - libjemalloc.so.2: its functions keep jemalloc's contract, and its nodes report the actual state. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/check.h"
#include "support/filter.h"

/* As jemalloc's header declares them. */
void *mallocx(size_t size, int flags);
void *rallocx(void *block, size_t size, int flags);
size_t xallocx(void *block, size_t size, size_t extra, int flags);
size_t sallocx(const void *block, int flags);
void dallocx(void *block, int flags);
void sdallocx(void *block, size_t size, int flags);
size_t nallocx(size_t size, int flags);
int mallctl(const char *name, void *old, size_t *old_size, void *fresh, size_t fresh_size);
int mallctlnametomib(const char *name, size_t *mib, size_t *length);
int mallctlbymib(const size_t *mib, size_t length, void *old, size_t *old_size, void *fresh, size_t fresh_size);
void malloc_stats_print(void (*out)(void *, const char *), void *to, const char *opts);
size_t malloc_usable_size(void *block);
extern void (*malloc_message)(void *to, const char *text);

#define ZERO 0x40
#define ALIGN(a) __builtin_ctzl(a)
#define ARENA(a) ((int)((a) + 1) << 20)
#define NO_CACHE (1 << 8)
#define ALL_ARENAS "4096"

static bool all_bytes(const char *block, size_t from, size_t to, char value) {
  for (size_t i = from; i < to; i++) {
    if (block[i] != value) return false;
  }
  return true;
}

static size_t figure(const char *name) {
  size_t value = 0, size = sizeof value;
  CHECK_EQ(mallctl(name, &value, &size, NULL, 0), 0);
  return value;
}

static unsigned number(const char *name) {
  unsigned value = 0;
  size_t size = sizeof value;
  CHECK_EQ(mallctl(name, &value, &size, NULL, 0), 0);
  return value;
}

static void next_epoch(void) {
  uint64_t epoch = 1;
  CHECK_EQ(mallctl("epoch", NULL, NULL, &epoch, sizeof epoch), 0);
}

TEST(functions_with_flags) {
  for (size_t size = 1; size < 300000; size = size * 3 / 2 + 1) {
    for (size_t align = 16; align <= 65536; align *= 4) {
      char *block = mallocx(size, (int)ALIGN(align) | NO_CACHE);
      CHECK_EQ((uintptr_t)block % align, 0);
      CHECK(sallocx(block, 0) >= size && sallocx(block, 0) == malloc_usable_size(block));
      memset(block, 7, sallocx(block, 0));
      dallocx(block, NO_CACHE);
      block = mallocx(size, (int)ALIGN(align) | ZERO);
      CHECK(all_bytes(block, 0, sallocx(block, 0), 0));
      memset(block, 7, sallocx(block, 0));
      sdallocx(block, size, (int)ALIGN(align));
    }
    CHECK_EQ(nallocx(size, 0), malloc_usable_size(mallocx(size, 0)));
  }
}

TEST(reallocations) {
  for (size_t size = 10; size < 200000; size = size * 5 / 2) {
    char *block = mallocx(size, ZERO);
    memset(block, 3, size);
    size_t before = sallocx(block, 0);
    memset(block + size, 0, before - size);
    block = rallocx(block, size * 4, ZERO | (int)ALIGN(4096));
    CHECK_EQ((uintptr_t)block % 4096, 0);
    CHECK(all_bytes(block, 0, size, 3) && all_bytes(block, size, sallocx(block, 0), 0));
    block = rallocx(block, size / 2, 0);
    CHECK(all_bytes(block, 0, size / 2, 3));
    dallocx(block, 0);
  }
}

/* However it is aligned. */
TEST(large_blocks_of_zeros_are_not_written) {
  enum { LARGE = 256 << 20 };
  unsigned arena = number("arenas.create");
  int flags[] = {ZERO, ZERO | (int)ALIGN(64), ZERO | (int)ALIGN(4096), ZERO | (int)ALIGN(65536), ZERO | (int)ALIGN(64) | ARENA(arena)};
  for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++) {
    size_t before = check_resident();
    char *block = mallocx(LARGE, flags[i]), *grown = rallocx(memset(mallocx(1 << 20, flags[i]), 3, 1 << 20), LARGE, flags[i]);
    CHECK(check_resident() < before + (16 << 20));
    size_t align = (size_t)1 << (flags[i] & 63);
    CHECK((uintptr_t)block % align == 0 && (uintptr_t)grown % align == 0);
    CHECK(all_bytes(grown, 0, 1 << 20, 3) && all_bytes(grown, 1 << 20, 3 << 20, 0) && all_bytes(grown, LARGE - 4096, sallocx(grown, 0), 0));
    CHECK(all_bytes(block, 0, 1 << 20, 0) && all_bytes(block, LARGE - 4096, sallocx(block, 0), 0));
    dallocx(block, 0), dallocx(grown, 0);
    CHECK_EQ(mallctl("arena." ALL_ARENAS ".purge", NULL, NULL, NULL, 0), 0);
  }
}

TEST(what_shrinks_gives_back) {
  for (int wanted = 4096; wanted <= 1 << 20; wanted <<= 8) {
    char *block = mallocx(64 << 20, 0);
    memset(block, 5, 64 << 20);
    block = rallocx(block, (size_t)wanted, 0);
    CHECK(sallocx(block, 0) < (size_t)wanted * 2 && all_bytes(block, 0, (size_t)wanted, 5));
    dallocx(block, 0);
  }
  char *block = rallocx(mallocx(30000, 0), 20, 0);
  CHECK(sallocx(block, 0) < 100);
  dallocx(block, 0);
  block = memset(mallocx(64 << 20, 0), 5, 64 << 20);
  size_t usable = sallocx(block, 0);
  CHECK_EQ(xallocx(block, SIZE_MAX, 1 << 20, 0), usable); /* the sum is less than the present size */
  CHECK(all_bytes(block, 0, 64 << 20, 5));
  char *same = rallocx(block, (64 << 20) - 100000, 0);
  CHECK(same == block && sallocx(block, 0) < (64 << 20) - 90000); /* a large block shrinks without being copied */
  dallocx(same, 0);
}

TEST(in_place_or_not_at_all) {
  char *block = mallocx(100, 0);
  size_t usable = sallocx(block, 0);
  CHECK_EQ(xallocx(block, usable, 0, 0), usable);
  CHECK_EQ(xallocx(block, 1 << 20, 0, 0), usable);
  CHECK_EQ(xallocx(block, usable, SIZE_MAX, 0), usable); /* extra is allowed, not required */
  CHECK_EQ(xallocx(block, usable, 0, (int)ALIGN(4096)), usable);
  dallocx(block, 0);
  block = mallocx(1 << 20, 0);
  size_t more = (1 << 20) + 200000;
  CHECK(xallocx(block, more, SIZE_MAX - more + 2, 0) >= more); /* the memory behind is free, and the sum wraps to 1 */
  dallocx(block, 0);
}

TEST(a_large_block_shrinks_in_place) {
  char *block = mallocx(16 << 20, 0);
  memset(block, 3, 16 << 20);
  size_t before = sallocx(block, 0), less = xallocx(block, 1 << 20, 100, 0);
  CHECK(less >= (1 << 20) + 100 && less == nallocx((1 << 20) + 100, 0));
  CHECK_EQ(less, sallocx(block, 0));
  CHECK(all_bytes(block, 0, (1 << 20) + 100, 3));
  CHECK_EQ(xallocx(block, 1 << 20, 15 << 20, 0), before); /* the memory that it gave back is still free */
  CHECK_EQ(xallocx(block, 4096, 0, 0), before); /* a small block would have to move */
  int aligned = __builtin_ctzl((uintptr_t)block);
  CHECK_EQ(xallocx(block, 1 << 20, 0, aligned + 1), before); /* its address does not have this alignment */
  dallocx(block, 0);
}

TEST(wrong_calls_of_mallctl) {
  size_t value = 0, size = sizeof value;
  CHECK_EQ(mallctl("stats.nothing", &value, &size, NULL, 0), ENOENT);
  CHECK_EQ(mallctl("stats", &value, &size, NULL, 0), ENOENT);
  CHECK_EQ(mallctl("stats.allocated.more", &value, &size, NULL, 0), ENOENT);
  CHECK_EQ(mallctl("", &value, &size, NULL, 0), ENOENT);
  CHECK_EQ(mallctl("arena.77.purge", NULL, NULL, NULL, 0), ENOENT);
  CHECK_EQ(mallctl("arena.x.purge", NULL, NULL, NULL, 0), ENOENT);
  CHECK_EQ(mallctl("arenas.bin.999.size", &value, &size, NULL, 0), ENOENT);
  CHECK_EQ(mallctl("stats.arenas.77.pactive", &value, &size, NULL, 0), ENOENT);
  uint32_t half = 0;
  size = sizeof half;
  CHECK_EQ(mallctl("stats.allocated", &half, &size, NULL, 0), EINVAL);
  CHECK_EQ(size, sizeof half);
  CHECK_EQ(mallctl("stats.allocated", NULL, NULL, &value, sizeof value), EPERM);
  CHECK_EQ(mallctl("arenas.dirty_decay_ms", NULL, NULL, &half, sizeof half), EINVAL);
  size = sizeof value;
  CHECK_EQ(mallctl("arena.0.purge", &value, &size, NULL, 0), EPERM);
  CHECK_EQ(mallctl("arena.0.destroy", NULL, NULL, NULL, 0), EFAULT);
  CHECK_EQ(mallctl("arena.0.reset", NULL, NULL, NULL, 0), EFAULT);
}

TEST(names_and_mibs_tell_the_same) {
  size_t mib[6], length = 6, bins = number("arenas.nbins");
  CHECK_EQ(mallctlnametomib("arenas.bin.0.size", mib, &length), 0);
  CHECK_EQ(length, 4);
  size_t before = 0;
  for (size_t i = 0; i < bins; i++) {
    char name[64];
    size_t by_mib = 0, size = sizeof by_mib;
    mib[2] = i;
    CHECK_EQ(mallctlbymib(mib, length, &by_mib, &size, NULL, 0), 0);
    (void)snprintf(name, sizeof name, "arenas.bin.%zu.size", i);
    CHECK_EQ(figure(name), by_mib);
    CHECK(by_mib > before && nallocx(by_mib, 0) == by_mib);
    before = by_mib;
    (void)snprintf(name, sizeof name, "arenas.bin.%zu.nregs", i);
    CHECK(number(name) > 0);
  }
  mib[2] = bins;
  size_t size = sizeof before;
  CHECK_EQ(mallctlbymib(mib, length, &before, &size, NULL, 0), ENOENT);
  mib[2] = 0;
  CHECK_EQ(mallctlbymib(mib, 2, &before, &size, NULL, 0), ENOENT);
  size_t two = 2;
  CHECK_EQ(mallctlnametomib("arenas.bin.0.size", mib, &two), 0); /* the beginning of a name */
  CHECK_EQ(two, 2);
  CHECK_EQ(mallctlnametomib("no.such.name", mib, &length), ENOENT);
  CHECK_EQ(mallctlnametomib("arena.77.purge", mib, &length), ENOENT);
  CHECK_EQ(mallctlnametomib("stats.arenas.77.pactive", mib, &length), ENOENT);
  CHECK_EQ(mallctlnametomib("arena." ALL_ARENAS ".purge", mib, &length), 0);
  CHECK_EQ(mallctlnametomib("arena", mib, &length), 0);
}

TEST(figures_are_of_the_last_epoch) {
  next_epoch();
  size_t before = figure("stats.allocated");
  char *block = mallocx(10 << 20, 0);
  memset(block, 1, 10 << 20);
  CHECK_EQ(figure("stats.allocated"), before);
  next_epoch();
  size_t grown = figure("stats.allocated") - before;
  CHECK(grown >= 10 << 20 && grown < 11 << 20);
  size_t active = figure("stats.active"), resident = figure("stats.resident"), mapped = figure("stats.mapped");
  CHECK(figure("stats.allocated") <= active && active <= resident && resident <= mapped);
  CHECK(figure("stats.arenas." ALL_ARENAS ".large.allocated") >= 10 << 20);
  CHECK_EQ(figure("stats.arenas.0.small.allocated") + figure("stats.arenas.0.large.allocated"), figure("stats.allocated"));
  CHECK_EQ(figure("stats.arenas.0.pactive") * figure("arenas.page"), active);
  dallocx(block, 0);
}

TEST(an_epoch_that_begins_is_read) {
  uint64_t epoch = 1, again = 0;
  size_t size = sizeof epoch;
  CHECK_EQ(mallctl("epoch", &epoch, &size, &epoch, sizeof epoch), 0); /* one variable for both, as programs do it */
  CHECK_EQ(mallctl("epoch", &again, &size, NULL, 0), 0);
  CHECK_EQ(epoch, again);
  CHECK_EQ(mallctl("epoch", NULL, NULL, &epoch, 4), EINVAL);
  CHECK_EQ(mallctl("epoch", NULL, NULL, NULL, 8), EINVAL);
  size = 4;
  CHECK_EQ(mallctl("epoch", &again, &size, NULL, 0), EINVAL);
  CHECK_EQ(size, 4);
}

TEST(bins_count_their_blocks) {
  enum { MANY = 5000 };
  void **blocks = calloc(MANY, sizeof *blocks);
  unsigned bin = 0, bins = number("arenas.nbins");
  char name[64], curregs[64], nonfull[64];
  for (;; bin++) {
    (void)snprintf(name, sizeof name, "arenas.bin.%u.size", bin);
    if (bin == bins || figure(name) == 320) break;
  }
  (void)snprintf(curregs, sizeof curregs, "stats.arenas.0.bins.%u.curregs", bin);
  (void)snprintf(nonfull, sizeof nonfull, "stats.arenas.0.bins.%u.nonfull_slabs", bin);
  next_epoch();
  size_t before = figure(curregs);
  for (int i = 0; i < MANY; i++) blocks[i] = malloc(320);
  next_epoch();
  size_t more = figure(curregs) - before;
  CHECK(more >= MANY && more < MANY + 600);
  size_t full = figure(nonfull);
  for (int i = 0; i < MANY; i += 2) free(blocks[i]);
  CHECK_EQ(mallctl("thread.tcache.flush", NULL, NULL, NULL, 0), 0);
  next_epoch();
  CHECK(figure(nonfull) > full + 10);
}

TEST(defragmentation_is_told_how_full_slabs_are) {
  enum { MANY = 4000 };
  void **blocks = calloc(MANY, sizeof *blocks);
  for (int i = 0; i < MANY; i++) blocks[i] = malloc(256);
  for (int i = 0; i < MANY; i++) {
    if (i % 4 != 0) free(blocks[i]);
  }
  (void)mallctl("thread.tcache.flush", NULL, NULL, NULL, 0);
  char local;
  void *asked[3] = {blocks[MANY / 2], malloc(1 << 20), &local};
  size_t told[9], size = sizeof told;
  CHECK_EQ(mallctl("experimental.utilization.batch_query", told, &size, asked, sizeof asked), 0);
  CHECK(told[1] == 65536 / 256 && told[0] >= told[1] / 2 && told[0] < told[1] && told[2] == 65536);
  CHECK(told[3] == 0 && told[4] == 1 && told[5] >= 1 << 20);
  CHECK(told[6] == 0 && told[7] == 0 && told[8] == 0);
  size = sizeof told - 1;
  CHECK_EQ(mallctl("experimental.utilization.batch_query", told, &size, asked, sizeof asked), EINVAL);
}

TEST(moving_what_lies_in_emptier_slabs_gives_memory_back) {
  enum { MANY = 100000 };
  void **blocks = calloc(MANY, sizeof *blocks);
  for (int i = 0; i < MANY; i++) blocks[i] = memset(malloc(320), 1, 320);
  for (int i = 0; i < MANY; i++) {
    if (i % 8 != 0) free(blocks[i]), blocks[i] = NULL;
  }
  CHECK_EQ(mallctl("arena." ALL_ARENAS ".purge", NULL, NULL, NULL, 0), 0);
  next_epoch();
  size_t before = figure("stats.active");
  for (int i = 0; i < MANY; i++) {
    if (blocks[i] == NULL) continue;
    size_t told[3], size = sizeof told;
    CHECK_EQ(mallctl("experimental.utilization.batch_query", told, &size, &blocks[i], sizeof blocks[i]), 0);
    if (told[0] * 2 < told[1]) continue; /* full enough */
    void *moved = mallocx(320, NO_CACHE);
    memcpy(moved, blocks[i], 320);
    dallocx(blocks[i], NO_CACHE);
    blocks[i] = moved;
  }
  CHECK_EQ(mallctl("arena." ALL_ARENAS ".purge", NULL, NULL, NULL, 0), 0);
  next_epoch();
  CHECK(figure("stats.active") < before / 2);
  for (int i = 0; i < MANY; i++) CHECK(blocks[i] == NULL || all_bytes(blocks[i], 0, 320, 1));
}

TEST(purging_gives_back) {
  char *block = malloc(64 << 20);
  memset(block, 1, 64 << 20);
  ssize_t never = -1;
  CHECK_EQ(mallctl("arenas.dirty_decay_ms", NULL, NULL, &never, sizeof never), 0);
  free(block);
  size_t before = check_resident();
  char purge[32];
  (void)snprintf(purge, sizeof purge, "arena.%u.purge", number("arenas.narenas")); /* all arenas, as older programs write it */
  CHECK_EQ(mallctl(purge, NULL, NULL, NULL, 0), 0);
  CHECK(check_resident() + (60 << 20) < before);
}

TEST(options_pass_both_ways) {
  ssize_t decay = 12345, back = 0;
  size_t size = sizeof back;
  CHECK_EQ(mallctl("arena.0.dirty_decay_ms", NULL, NULL, &decay, sizeof decay), 0);
  CHECK_EQ(mallctl("opt.dirty_decay_ms", &back, &size, NULL, 0), 0);
  CHECK_EQ(back, 12345);
  decay = -2;
  CHECK_EQ(mallctl("arena.0.dirty_decay_ms", NULL, NULL, &decay, sizeof decay), EFAULT);
  bool off = false, on = true;
  size = sizeof on;
  CHECK_EQ(mallctl("background_thread", &on, &size, &off, sizeof off), 0);
  CHECK_EQ(mallctl("background_thread", &on, &size, NULL, 0), 0);
  CHECK(!on);
  const char *version = NULL;
  size = sizeof version;
  CHECK_EQ(mallctl("version", &version, &size, NULL, 0), 0);
  CHECK(strncmp(version, "5.3.0-", 6) == 0);
}

/* Of arenas that do not exist. */
TEST(nodes_of_no_arena_are_not_there) {
  static const char *const names[] = {"arena.777.dss", "arena.777.muzzy_decay_ms", "stats.arenas.777.dss",
                                      "stats.arenas.777.muzzy_decay_ms"};
  char old[64];
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    size_t size = i % 2 == 0 ? sizeof(char *) : sizeof(ssize_t);
    CHECK_EQ(mallctl(names[i], old, &size, NULL, 0), ENOENT);
  }
  size_t mib[8], length = sizeof mib / sizeof mib[0], size = sizeof(ssize_t);
  CHECK_EQ(mallctlnametomib("arena.0.muzzy_decay_ms", mib, &length), 0);
  mib[1] = SIZE_MAX;
  CHECK_EQ(mallctlbymib(mib, length, old, &size, NULL, 0), ENOENT);
}

static bool called;
static void hear(void *to, const char *text) { (void)to, (void)text; }
static void *call_though_cancelled(void *name) {
  CHECK_EQ(pthread_cancel(pthread_self()), 0);
  const char *file = "cancelled.heap";
  uint64_t epoch = 1;
  if (name == NULL) malloc_stats_print(hear, NULL, "");
  else if (strcmp(name, "prof.dump") == 0) CHECK_EQ(mallctl(name, NULL, NULL, &file, sizeof file), 0);
  else CHECK_EQ(mallctl(name, NULL, NULL, &epoch, sizeof epoch), 0);
  called = true;
  pthread_testcancel();
  return NULL;
}

/* Otherwise the thread would end with the lock held. */
TEST(nothing_is_a_cancellation_point) {
  static char *const names[] = {"epoch", "prof.dump", NULL};
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    pthread_t thread;
    void *result = NULL;
    called = false;
    CHECK(pthread_create(&thread, NULL, call_though_cancelled, names[i]) == 0 && pthread_join(thread, &result) == 0);
    CHECK(called && result == PTHREAD_CANCELED);
    CHECK(number("arenas.narenas") > 0);
  }
  CHECK_EQ(unlink("cancelled.heap"), 0);
}

/* The first call must not wait for the loader's lock. */
TEST(a_library_that_is_opened_may_wait_for_a_first_call) {
  void *library = dlopen(OPENED, RTLD_NOW);
  REQUIRE(library != NULL);
  const int *served = dlsym(library, "opened_library_is_served");
  CHECK(served != NULL && *served == 1);
}

static unsigned taken_arena;
static void *take_and_stay(void *ready) {
  CHECK_EQ(mallctl("thread.arena", NULL, NULL, &taken_arena, sizeof taken_arena), 0);
  free(malloc(100));
  (void)pthread_barrier_wait(ready);
  (void)pause();
  return NULL;
}

TEST(in_a_child_an_arena_of_a_thread_that_is_gone_can_be_destroyed) {
  pthread_barrier_t ready;
  pthread_t thread;
  size_t size = sizeof taken_arena;
  char destroy[40];
  CHECK_EQ(mallctl("arenas.create", &taken_arena, &size, NULL, 0), 0);
  (void)snprintf(destroy, sizeof destroy, "arena.%u.destroy", taken_arena);
  REQUIRE(pthread_barrier_init(&ready, NULL, 2) == 0 && pthread_create(&thread, NULL, take_and_stay, &ready) == 0);
  (void)pthread_barrier_wait(&ready);
  CHECK_EQ(mallctl(destroy, NULL, NULL, NULL, 0), EFAULT);
  pid_t child = fork();
  if (child == 0) _exit(mallctl(destroy, NULL, NULL, NULL, 0));
  int status = 1;
  CHECK(child > 0 && waitpid(child, &status, 0) == child);
  CHECK_EQ(status, 0);
}

/* Creating a file without a name is a call that malloc itself never makes. */
TEST(statistics_under_a_filter) {
  filter_t filter = {0};
  filter_load(&filter, FILTER_NUMBER);
  filter_if_equal(&filter, SYS_memfd_create, FILTER_KILLED);
  filter_answer(&filter, FILTER_ALLOWED);
  filter.steps = filter.step;
  CHECK_EQ(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
  CHECK_EQ(prctl(PR_SET_SECCOMP, 2, &filter), 0);
  int out[2], kept = dup(STDERR_FILENO);
  CHECK(pipe2(out, O_NONBLOCK) == 0 && dup2(out[1], STDERR_FILENO) == STDERR_FILENO);
  malloc_stats_print(NULL, NULL, NULL);
  char text[64] = "";
  CHECK(dup2(kept, STDERR_FILENO) == STDERR_FILENO && read(out[0], text, sizeof text - 1) > 10);
}

/* With MALLOC_CONF as set by CMakeLists.txt. */
TEST(environment) {
  if (getenv("MALLOC_CONF") == NULL) check_skip("for compat.jemalloc.environment");
  CHECK_EQ((ssize_t)figure("arenas.dirty_decay_ms"), -1);
  bool on = true;
  size_t size = sizeof on;
  CHECK_EQ(mallctl("opt.background_thread", &on, &size, NULL, 0), 0);
  CHECK_EQ(on, getenv("HAKMEM_KEEPER") != NULL); /* hakmem's own option takes precedence */
  const char *prefix = NULL;
  size = sizeof prefix;
  CHECK_EQ(mallctl("opt.prof_prefix", &prefix, &size, NULL, 0), 0);
  CHECK(strcmp(prefix, "compat.x") == 0);
  const char *opts = NULL;
  CHECK_EQ(mallctl("opt.stats_print_opts", &opts, &size, NULL, 0), 0);
  CHECK(opts != NULL && strcmp(opts, "J") == 0);
  if (on) return;
  CHECK_EQ(mallctl("prof.dump", NULL, NULL, NULL, 0), 0);
  char name[64];
  (void)snprintf(name, sizeof name, "compat.x.%d.0.m0.heap", (int)getpid());
  CHECK_EQ(unlink(name), 0);
}

TEST(no_dumps_without_a_prefix) {
  const char *none = "";
  CHECK_EQ(mallctl("prof.prefix", NULL, NULL, &none, sizeof none), 0);
  CHECK_EQ(mallctl("prof.dump", NULL, NULL, NULL, 0), EFAULT);
}

TEST(arenas_are_heaps) {
  unsigned first = number("arenas.create"), second = number("arenas.create"), found = 0;
  CHECK(first > 0 && second == first + 1 && number("arenas.narenas") == second + 1);
  char *block = mallocx(1000, ARENA(first)), name[64];
  char *other = mallocx(100000, ARENA(second) | (int)ALIGN(8192) | ZERO);
  CHECK(block != NULL && (uintptr_t)other % 8192 == 0);
  size_t size = sizeof found;
  CHECK_EQ(mallctl("arenas.lookup", &found, &size, &block, sizeof block), 0);
  CHECK_EQ(found, first);
  block = rallocx(block, 5000, ARENA(first));
  next_epoch();
  (void)snprintf(name, sizeof name, "stats.arenas.%u.small.allocated", first);
  CHECK_EQ(figure(name), sallocx(block, 0));
  (void)snprintf(name, sizeof name, "stats.arenas.%u.large.allocated", second);
  CHECK_EQ(figure(name), sallocx(other, 0));
  CHECK_EQ(figure("stats.arenas.0.small.allocated") + figure("stats.arenas.0.large.allocated") + sallocx(block, 0) + sallocx(other, 0),
           figure("stats.allocated"));
  (void)snprintf(name, sizeof name, "arena.%u.destroy", second);
  CHECK_EQ(mallctl(name, NULL, NULL, NULL, 0), 0);
  CHECK(mallocx(10, ARENA(second)) == NULL);
  CHECK(mallocx(10, ARENA(second + 1)) == NULL);
  (void)snprintf(name, sizeof name, "arena.%u.reset", first);
  CHECK_EQ(mallctl(name, NULL, NULL, NULL, 0), 0);
  CHECK(mallocx(10, ARENA(first)) != NULL);
}

TEST(a_thread_may_take_another_arena) {
  unsigned arena = number("arenas.create"), before = 77, found;
  size_t size = sizeof before;
  CHECK_EQ(mallctl("thread.arena", &before, &size, &arena, sizeof arena), 0);
  CHECK_EQ(before, 0);
  void *block = malloc(100);
  CHECK_EQ(number("thread.arena"), arena);
  CHECK_EQ(mallctl("arenas.lookup", &found, &size, &block, sizeof block), 0);
  CHECK_EQ(found, arena);
  unsigned none = 4000;
  CHECK_EQ(mallctl("thread.arena", NULL, NULL, &none, sizeof none), EFAULT);
}

static size_t figure_of(unsigned arena, const char *what) {
  char name[64];
  (void)snprintf(name, sizeof name, "stats.arenas.%u.%s", arena, what);
  return figure(name);
}

TEST(figures_of_arenas_are_of_the_last_epoch) {
  enum { FIGURES = 3, ARENAS = 3 };
  static const char *const names[FIGURES] = {"small.allocated", "large.allocated", "pactive"};
  unsigned arena = number("arenas.create"), arenas[ARENAS] = {0, arena, 4096};
  CHECK(mallocx(1000, ARENA(arena)) != NULL && mallocx(200000, ARENA(arena)) != NULL);
  next_epoch();
  size_t before[ARENAS][FIGURES];
  for (int i = 0; i < ARENAS * FIGURES; i++) before[i / FIGURES][i % FIGURES] = figure_of(arenas[i / FIGURES], names[i % FIGURES]);
  for (int i = 0; i < 2000; i++) CHECK(mallocx(1000, ARENA(arena)) != NULL && mallocx(1000, 0) != NULL);
  CHECK(mallocx(1 << 20, ARENA(arena)) != NULL);
  for (int i = 0; i < ARENAS * FIGURES; i++) CHECK_EQ(figure_of(arenas[i / FIGURES], names[i % FIGURES]), before[i / FIGURES][i % FIGURES]);
  next_epoch();
  CHECK_EQ(figure_of(arena, names[0]), before[1][0] + 2000 * nallocx(1000, 0));
  CHECK_EQ(figure_of(arena, names[1]), before[1][1] + nallocx(1 << 20, 0));
  char name[64];
  (void)snprintf(name, sizeof name, "arena.%u.destroy", arena);
  CHECK_EQ(mallctl(name, NULL, NULL, NULL, 0), 0);
  CHECK_EQ(number("arenas.create"), arena); /* the number again */
  for (int i = 0; i < FIGURES; i++) CHECK_EQ(figure_of(arena, names[i]), 0);
}

/* ---- a thread's counts ---- */

static uint64_t bytes_of(const char *name) {
  uint64_t value = 0;
  size_t size = sizeof value;
  CHECK_EQ(mallctl(name, &value, &size, NULL, 0), 0);
  return value;
}

static const uint64_t *bytes_at(const char *name) {
  const uint64_t *at = NULL;
  size_t size = sizeof at;
  CHECK_EQ(mallctl(name, &at, &size, NULL, 0), 0);
  return at;
}

/* Checks the change of this thread's two counts by the calls. */
#define CHECK_BYTES(calls, taken, given)                                                         \
  do {                                                                                           \
    uint64_t taken_ = *bytes_at("thread.allocatedp"), given_ = *bytes_at("thread.deallocatedp"); \
    calls;                                                                                       \
    CHECK_EQ(*bytes_at("thread.allocatedp") - taken_, taken);                                    \
    CHECK_EQ(*bytes_at("thread.deallocatedp") - given_, given);                                  \
  } while (0)

TEST(each_call_is_counted_by_its_thread) {
  CHECK_EQ(bytes_of("thread.allocated"), *bytes_at("thread.allocatedp"));
  CHECK_EQ(bytes_of("thread.deallocated"), *bytes_at("thread.deallocatedp"));
  for (size_t size = 0; size < 3000000; size = size * 3 / 2 + 1) {
    size_t room = size != 0 ? nallocx(size, 0) : 0;
    for (int turn = 0; turn < 3; turn++) { /* a miss, then hits */
      void *volatile block = NULL;
      CHECK_BYTES(block = malloc(size), room, 0);
      CHECK_EQ(malloc_usable_size(block), room);
      CHECK_BYTES(free(block), 0, room);
    }
    char *block = calloc(1, size + 1), *moved = NULL;
    size_t before = malloc_usable_size(block), after = nallocx(2 * before, 0);
    CHECK_BYTES(moved = realloc(block, 2 * before), after, before);
    if (after > 1000000) CHECK_BYTES(moved = realloc(moved, after - 1), after, after); /* in the same pages */
    CHECK_BYTES(free(moved), 0, after);
  }
  void *volatile block = NULL;
  CHECK_BYTES(block = mallocx(100, (int)ALIGN(4096)), sallocx(block, 0), 0);
  CHECK_BYTES(sdallocx(block, 100, (int)ALIGN(4096)), 0, 4096);
  CHECK_BYTES(block = mallocx(100, NO_CACHE), nallocx(100, 0), 0);
  CHECK_BYTES(dallocx(block, NO_CACHE), 0, nallocx(100, 0));
  CHECK_BYTES(free(NULL), 0, 0);
  CHECK_BYTES(CHECK(malloc((size_t)PTRDIFF_MAX) == NULL), 0, 0);
  unsigned arena = 0;
  size_t size = sizeof arena;
  CHECK_EQ(mallctl("arenas.create", &arena, &size, NULL, 0), 0);
  CHECK_BYTES(block = mallocx(5000, ARENA(arena)), sallocx(block, 0), 0);
  size_t room = sallocx(block, 0);
  CHECK_BYTES(dallocx(block, 0), 0, room);
}

static void *free_there(void *block) {
  CHECK_EQ(bytes_of("thread.deallocated"), 0);
  uint64_t taken = bytes_of("thread.allocated");
  size_t size = malloc_usable_size(block);
  CHECK_BYTES(free(block), 0, size);
  CHECK_EQ(bytes_of("thread.allocated"), taken);
  return NULL;
}

TEST(a_block_is_counted_where_it_is_taken_and_where_it_is_freed) {
  const size_t sizes[] = {10, 5000, 100000};
  for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
    void *block = malloc(sizes[i]);
    pthread_t thread;
    REQUIRE(pthread_create(&thread, NULL, free_there, block) == 0);
    CHECK_BYTES(REQUIRE(pthread_join(thread, NULL) == 0), 0, 0);
  }
}

/* The difference of the two counts is the size of the thread's blocks, whatever has happened. */
TEST(what_was_had_less_what_was_given_back_is_what_there_is) {
  enum { SLOTS = 1000, TURNS = 200000 };
  void *blocks[SLOTS] = {NULL};
  uint64_t before = bytes_of("thread.allocated") - bytes_of("thread.deallocated"), live = 0;
  uint32_t state = 1;
  for (unsigned i = 0; i < TURNS; i++) {
    state = state * 1103515245u + 12345u;
    void **slot = &blocks[state >> 8 & 1023];
    if (slot >= blocks + SLOTS) continue;
    size_t size = state >> 20 == 0 ? 200000 + (state & 0xfffff) : (state >> 4 & 0xfff);
    if (state >> 30 == 0) *slot = realloc(*slot, size + 1);
    else free(*slot), *slot = malloc(size);
  }
  for (unsigned i = 0; i < SLOTS; i++) live += malloc_usable_size(blocks[i]);
  CHECK_EQ(bytes_of("thread.allocated") - bytes_of("thread.deallocated") - before, live);
  for (unsigned i = 0; i < SLOTS; i++) free(blocks[i]);
  CHECK_EQ(bytes_of("thread.allocated") - bytes_of("thread.deallocated"), before);
}

static uint64_t peak(void) { return bytes_of("thread.peak.read"); }

TEST(the_peak_is_the_most_since_it_was_reset) {
  enum { COUNT = 2000, SIZE = 1024, LARGE = 3 << 20, SLACK = 100 << 10 };
  void *blocks[COUNT];
  REQUIRE(mallctl("thread.peak.reset", NULL, NULL, NULL, 0) == 0);
  CHECK_EQ(peak(), 0);
  for (unsigned i = 0; i < COUNT; i++) blocks[i] = malloc(SIZE);
  uint64_t small = peak();
  CHECK_EQ(small, (uint64_t)COUNT * nallocx(SIZE, 0));
  for (unsigned i = 0; i < COUNT; i++) free(blocks[i]);
  CHECK_EQ(peak(), small);
  void *volatile large = malloc(LARGE);
  large = realloc(large, 2 * LARGE);
  size_t room = malloc_usable_size(large);
  CHECK(peak() >= room && peak() <= room + room / 2 + 1); /* if it could not grow in place, both blocks existed at one time */
  free(large);
  for (unsigned i = 0; i < COUNT; i++) blocks[i] = malloc(SIZE);
  REQUIRE(mallctl("thread.peak.reset", NULL, NULL, NULL, 0) == 0);
  for (unsigned i = 0; i < COUNT; i++) free(blocks[i]);
  CHECK_EQ(peak(), 0);
  for (unsigned i = 0; i < COUNT; i++) blocks[i] = malloc(SIZE), free(blocks[i]);
  CHECK_EQ(peak(), 0);

  /* The peak is not read when it is reached. */
  REQUIRE(mallctl("thread.peak.reset", NULL, NULL, NULL, 0) == 0);
  for (unsigned i = 0; i < COUNT; i++) blocks[i] = malloc(SIZE);
  for (unsigned i = 0; i < COUNT; i++) free(blocks[i]);
  CHECK(peak() <= small && peak() + SLACK >= small);
  CHECK_EQ(mallctl("thread.peak.reset", NULL, NULL, &small, sizeof small), EPERM);
}

static int arena_do(const char *what, unsigned arena) {
  char name[64];
  (void)snprintf(name, sizeof name, "arena.%u.%s", arena, what);
  return mallctl(name, NULL, NULL, NULL, 0);
}
static int arena_take(unsigned arena) { return mallctl("thread.arena", NULL, NULL, &arena, sizeof arena); }
static unsigned arena_with(const void *block) {
  unsigned found = 77777;
  size_t size = sizeof found;
  return mallctl("arenas.lookup", &found, &size, &block, sizeof block) == 0 ? found : 88888;
}

/* Allocates, and keeps the arena until the second barrier. */
static void *use_arena(void *to) {
  pthread_barrier_t *barrier = to;
  unsigned arena;
  size_t size = sizeof arena;
  CHECK_EQ(mallctl("arenas.create", &arena, &size, NULL, 0), 0);
  CHECK_EQ(arena_take(arena), 0);
  for (int i = 0; i < 1000; i++) CHECK(malloc((size_t)i * 50) != NULL);
  (void)pthread_barrier_wait(barrier);
  (void)pthread_barrier_wait(barrier);
  CHECK_EQ(arena_with(malloc(100)), arena);
  return (void *)(uintptr_t)arena;
}

TEST(an_arena_that_threads_use_can_be_reset) {
  unsigned arena = number("arenas.create");
  char held[64];
  CHECK_EQ(arena_take(arena), 0);
  void *small = malloc(100), *large = malloc(1 << 20);
  CHECK(arena_with(small) == arena && arena_with(large) == arena);
  CHECK_EQ(arena_do("destroy", arena), EFAULT);
  CHECK_EQ(arena_do("reset", arena), 0);
  next_epoch();
  (void)snprintf(held, sizeof held, "stats.arenas.%u.pactive", arena);
  CHECK_EQ(figure(held), 0);
  CHECK_EQ(arena_with(malloc(100)), arena);
  CHECK_EQ(arena_take(0), 0);
  CHECK_EQ(arena_do("destroy", arena), 0);
  pthread_barrier_t barrier;
  CHECK_EQ(pthread_barrier_init(&barrier, NULL, 2), 0);
  pthread_t thread;
  CHECK_EQ(pthread_create(&thread, NULL, use_arena, &barrier), 0);
  (void)pthread_barrier_wait(&barrier);
  CHECK_EQ(arena_do("destroy", arena), EFAULT); /* the thread's arena has the number now */
  CHECK_EQ(arena_do("reset", arena), 0);
  (void)pthread_barrier_wait(&barrier);
  void *theirs = NULL;
  CHECK_EQ(pthread_join(thread, &theirs), 0);
  CHECK_EQ((uintptr_t)theirs, arena);
  CHECK_EQ(arena_do("destroy", arena), 0);
}

TEST(numbers_of_arenas_come_again) {
  unsigned most = number("arenas.narenas") + 1;
  for (int i = 0; i < 5000; i++) {
    unsigned arena = number("arenas.create");
    CHECK(mallocx(100, ARENA(arena)) != NULL);
    CHECK_EQ(arena_do("destroy", arena), 0);
    CHECK_EQ(arena_do("destroy", arena), EFAULT);
  }
  CHECK(number("arenas.narenas") <= most);
}

static void *ask_about_all(void *node) {
  static bool end;
  if (node == NULL) __atomic_store_n(&end, true, __ATOMIC_RELAXED);
  while (!__atomic_load_n(&end, __ATOMIC_RELAXED)) {
    next_epoch();
    if (strncmp(node, "stats", 5) == 0) (void)figure(node);
    else CHECK_EQ(mallctl(node, NULL, NULL, NULL, 0), 0);
  }
  return NULL;
}

/* Arenas of another thread end while a node reads all of them. */
TEST(all_arenas_may_be_asked_about_while_some_end) {
  static const char *const nodes[] = {"arena." ALL_ARENAS ".purge", "stats.arenas.0.small.allocated", "stats.arenas.0.pactive"};
  pthread_t asking[3];
  for (int i = 0; i < 3; i++) REQUIRE(pthread_create(&asking[i], NULL, ask_about_all, (void *)(uintptr_t)nodes[i]) == 0);
  for (int i = 0; i < 3000; i++) {
    unsigned arena = number("arenas.create");
    CHECK(mallocx(100, ARENA(arena)) != NULL);
    CHECK_EQ(arena_do(i % 2 == 0 ? "reset" : "purge", arena), 0);
    CHECK_EQ(arena_do("destroy", arena), 0);
  }
  (void)ask_about_all(NULL);
  for (int i = 0; i < 3; i++) (void)pthread_join(asking[i], NULL);
}

/* Flags can name the last one too. */
TEST(arenas_end_where_their_numbers_do) {
  static unsigned arenas[4096];
  unsigned count = 0, last = 0;
  size_t size = sizeof last;
  while (count < 4096 && mallctl("arenas.create", &last, &size, NULL, 0) == 0) arenas[count++] = last;
  CHECK_EQ(last, 4094);
  void *block = mallocx(100, ARENA(last));
  CHECK(block != NULL && arena_with(block) == last);
  while (count > 0) CHECK_EQ(arena_do("destroy", arenas[--count]), 0);
}

TEST(arenas_are_no_threads) {
  unsigned arenas[7];
  free(malloc(100));
  for (int i = 0; i < 7; i++) arenas[i] = number("arenas.create");
  next_epoch();
  CHECK_EQ(number("stats.arenas.0.nthreads"), 1);
  for (int i = 0; i < 7; i++) CHECK_EQ(arena_do("destroy", arenas[i]), 0);
}

TEST(what_is_not_there_is_said_as_jemalloc_says_it) {
  size_t mib[6], length = 6;
  bool initialized = false;
  size_t size = sizeof initialized;
  CHECK(mallctl("arena." ALL_ARENAS ".initialized", &initialized, &size, NULL, 0) == 0 && initialized);
  CHECK_EQ(mallctl("arena." ALL_ARENAS ".destroy", NULL, NULL, NULL, 0), EFAULT);
  CHECK_EQ(mallctl("arena." ALL_ARENAS ".reset", NULL, NULL, NULL, 0), EFAULT);
  CHECK_EQ(mallctl("arena.3000.reset", NULL, NULL, NULL, 0), ENOENT);
  CHECK_EQ(mallctlnametomib("arenas.bin.1000.size", mib, &length), ENOENT);
  CHECK_EQ(mallctlnametomib("stats.arenas.0.bins.1000.curregs", mib, &length), ENOENT);
  CHECK_EQ(mallctlnametomib("arenas.bin.0.size", mib, &length), 0);
  CHECK_EQ(mallctl("tcache.flush", NULL, NULL, NULL, 0), EINVAL);
  CHECK_EQ(mallctl("tcache.destroy", NULL, NULL, NULL, 0), EINVAL);
  ssize_t decay = 100000000000, told = 0;
  size = sizeof told;
  CHECK_EQ(mallctl("arenas.dirty_decay_ms", NULL, NULL, &decay, sizeof decay), 0);
  CHECK(mallctl("arenas.dirty_decay_ms", &told, &size, NULL, 0) == 0 && told == 86400000);
  decay = -2;
  CHECK_EQ(mallctl("arenas.dirty_decay_ms", NULL, NULL, &decay, sizeof decay), EFAULT);
  decay = 0;
  static const char *const times[] = {"arena." ALL_ARENAS ".dirty_decay_ms", "arena." ALL_ARENAS ".muzzy_decay_ms"};
  for (int i = 0; i < 2; i++) { /* all arenas together have none */
    CHECK_EQ(mallctl(times[i], &told, &size, NULL, 0), EFAULT);
    CHECK_EQ(mallctl(times[i], NULL, NULL, &decay, sizeof decay), EFAULT);
  }
  CHECK(mallctl("arena.0.muzzy_decay_ms", &told, &size, NULL, 0) == 0 && told == 0);
  CHECK_EQ(mallctl("arena.0.muzzy_decay_ms", NULL, NULL, &decay, sizeof decay), 0);
  CHECK(mallctl("arenas.dirty_decay_ms", &told, &size, NULL, 0) == 0 && told == 86400000);
}

/* HAKMEM_SAMPLE_KB need not be a power of two. */
TEST(the_logarithm_is_rounded_down) {
  const char *text = getenv("HAKMEM_SAMPLE_KB");
  size_t bytes = (text != NULL ? strtoul(text, NULL, 10) : 128) << 10, lg = figure("prof.lg_sample");
  CHECK((size_t)1 << lg <= bytes && bytes < (size_t)2 << lg);
}

/* Also if the secure library is preloaded, which ends a process for a wrong pointer. */
TEST(foreign_addresses_are_in_no_arena) {
  static char mine[64];
  char here[64], *block = malloc(100);
  const void *of[] = {mine, here, block + 16, (void *)1};
  for (int i = 0; i < 4; i++) {
    unsigned arena = 0;
    size_t size = sizeof arena;
    CHECK_EQ(mallctl("arenas.lookup", &arena, &size, &of[i], sizeof of[i]), EINVAL);
  }
  CHECK_EQ(arena_with(block), 0);
  free(block);
}

TEST(a_block_moves_to_the_arena_that_is_named) {
  unsigned first = number("arenas.create"), second = number("arenas.create");
  void *block = rallocx(mallocx(100, ARENA(first)), 100000, ARENA(0));
  CHECK_EQ(arena_with(block), 0);
  block = rallocx(block, 300, ARENA(second));
  CHECK_EQ(arena_with(block), second);
}

static void *rallocx_plain(void *block, size_t size) { return rallocx(block, size, 0); }

/* To the thread's arena, so that the block outlives the one that it was from. */
TEST(what_is_moved_without_an_arena_leaves_its_own) {
  void *(*const functions[])(void *, size_t) = {realloc, rallocx_plain};
  static const size_t sizes[][2] = {{100, 5000}, {100, 300000}, {5000, 30}, {100000, 3000000}, {300000, 500}};
  unsigned kept = number("arenas.create");
  for (size_t i = 0; i < 2 * sizeof sizes / sizeof sizes[0]; i++) {
    void *(*change)(void *, size_t) = functions[i % 2];
    const size_t *size = sizes[i / 2];
    size_t both = size[0] < size[1] ? size[0] : size[1];
    unsigned arena = number("arenas.create");
    char *left = change(memset(mallocx(size[0], ARENA(arena)), 3, size[0]), size[1]);
    CHECK_EQ(arena_with(left), 0);
    CHECK_EQ(arena_take(kept), 0);
    char *taken = change(memset(mallocx(size[0], ARENA(arena)), 4, size[0]), size[1]);
    char *joined = change(memset(mallocx(size[0], ARENA(0)), 5, size[0]), size[1]);
    CHECK(arena_with(taken) == kept && arena_with(joined) == kept);
    CHECK_EQ(arena_take(0), 0);
    CHECK_EQ(arena_do("destroy", arena), 0);
    for (int j = 0; j < 10; j++) memset(malloc(size[1]), 9, size[1]);
    CHECK(all_bytes(left, 0, both, 3) && all_bytes(taken, 0, both, 4) && all_bytes(joined, 0, both, 5));
    free(left), free(taken), free(joined);
  }
  void *same = mallocx(100, ARENA(kept));
  CHECK(realloc(same, 99) == same && rallocx(same, 99, 0) == same && arena_with(same) == kept);
  CHECK_EQ(arena_with(rallocx(mallocx(100, ARENA(kept)), 5000, ARENA(kept))), kept);
  CHECK_EQ(arena_do("destroy", kept), 0);
}

TEST(caches_can_be_made_and_named) {
  unsigned cache = number("tcache.create"), other = number("tcache.create");
  CHECK(cache != other);
  void *block = mallocx(100, (int)(cache + 2) << 8);
  dallocx(block, (int)(cache + 2) << 8);
  CHECK_EQ(mallctl("tcache.flush", NULL, NULL, &cache, sizeof cache), 0);
  CHECK_EQ(mallctl("tcache.destroy", NULL, NULL, &cache, sizeof cache), 0);
}

static size_t printed;
static void print_count(void *to, const char *text) {
  CHECK_EQ((uintptr_t)to, (uintptr_t)&printed);
  printed += strlen(text);
}
static void message_count(void *to, const char *text) { (void)to, printed += strlen(text); }

TEST(statistics_are_printed) {
  malloc_stats_print(print_count, &printed, NULL);
  CHECK(printed > 500);
  printed = 0;
  malloc_stats_print(print_count, &printed, "J");
  CHECK(printed > 500);
  printed = 0;
  malloc_message = message_count;
  malloc_stats_print(NULL, NULL, NULL);
  CHECK(printed > 500);
}

TEST(a_profile_is_written) {
  enum { MANY = 20000 };
  void **blocks = calloc(MANY, sizeof *blocks);
  for (int i = 0; i < MANY; i++) blocks[i] = malloc(1000);
  const char *path = "compat.heap";
  CHECK_EQ(mallctl("prof.dump", NULL, NULL, &path, sizeof path), 0);
  FILE *file = fopen(path, "r");
  REQUIRE(file != NULL);
  unsigned long long count = 0, bytes = 0;
  CHECK_EQ(fscanf(file, "heap_v2/1\n t*: %llu: %llu [0: 0]\n@ 0x", &count, &bytes), 2);
  CHECK(count > MANY * 3 / 4 && count < MANY * 4 / 3);
  CHECK(bytes > 1024 * MANY * 3 / 4 && bytes < 1024 * MANY * 4 / 3);
  char line[512];
  bool mapped = false, whole = false;
  while (fgets(line, sizeof line, file) != NULL) {
    if (strcmp(line, "MAPPED_LIBRARIES:\n") == 0) mapped = true;
    if (mapped && strstr(line, "libjemalloc.so.2") != NULL) whole = true;
  }
  CHECK(mapped && whole);
  (void)fclose(file);
  (void)unlink(path);
  path = "/no/such/folder/x";
  CHECK_EQ(mallctl("prof.dump", NULL, NULL, &path, sizeof path), EFAULT);
}

static void *ask_on(void *end) {
  while (!__atomic_load_n((bool *)end, __ATOMIC_RELAXED)) next_epoch();
  return NULL;
}

TEST(a_child_may_ask_too) {
  bool end = false;
  pthread_t thread;
  CHECK_EQ(pthread_create(&thread, NULL, ask_on, &end), 0);
  for (int i = 0; i < 200; i++) {
    pid_t child = fork();
    if (child == 0) {
      alarm(10); /* detects a lock that is never released */
      next_epoch();
      _exit(0);
    }
    int status = 0;
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK_EQ(status, 0);
  }
  __atomic_store_n(&end, true, __ATOMIC_RELAXED);
  (void)pthread_join(thread, NULL);
}

int main(int argc, char **argv) { return check_main(argc, argv); }
