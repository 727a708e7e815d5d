/* mappings.c - a process that may have 1000 mappings, in which guards split mappings: more blocks, small and large, than mappings.
 * malloc does not fail because of the limit, and mmap and pthread_create keep working.
 *
 * The kernel's limit is the same for all processes.  This process first uses up all but 1000 of its mappings, and sees a file with the
 * number 1000 in place of the kernel's file.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <hakmem/hakmem.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "check.h"
#include "expect.h"
#include "filter.h"
#include "guards.h"

enum { LIMIT = 1000, MOST = 4000, GUARD = 102 };

static const char limit_file[] = "/proc/sys/vm/max_map_count";

static size_t limit_read(void) {
  char text[32] = {0};
  int file = open(limit_file, O_RDONLY | O_CLOEXEC);
  ssize_t length = file < 0 ? -1 : read(file, text, sizeof text - 1);
  close(file);
  return length <= 0 ? 65530 : strtoul(text, NULL, 10);
}

static size_t mappings_now(void) {
  static char text[1 << 16];
  int file = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  size_t lines = 0;
  for (ssize_t n; (n = read(file, text, sizeof text)) > 0;)
    for (ssize_t i = 0; i < n; i++) lines += text[i] == '\n';
  close(file);
  return lines;
}

/* ---- Before the library reads the file: the process starts again with another file in its place ---- */

static bool file_write(const char *path, const char *text) {
  int file = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  bool done = file >= 0 && write(file, text, strlen(text)) == (ssize_t)strlen(text);
  close(file);
  return done;
}

static bool limit_hide(void) {
  char path[] = "/tmp/hak-mappings-XXXXXX";
  int file = mkstemp(path);
  if (file < 0 || (unshare(CLONE_NEWNS) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0)) return false;
  close(file);
  bool done = file_write(path, "1000\n") && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
              mount(path, limit_file, NULL, MS_BIND, NULL) == 0;
  unlink(path);
  return done;
}

static void start_again(char **argv) {
  char real[32];
  if (getenv("MAPPINGS_LIMIT") != NULL) return;
  snprintf(real, sizeof real, "%zu", limit_read());
  if (!limit_hide()) return; /* the checks report it */
  setenv("MAPPINGS_LIMIT", real, 1);
  execv(check_self(), argv);
}

/* ---- In each check ---- */

/* Makes every second page readable, so that no page shares a mapping with its neighbours. */
static void use_up(size_t real) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE), spare = real - LIMIT;
  char *start = mmap(NULL, (spare + 2) * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  for (size_t i = 1; i < spare; i += 2) {
    if (start == MAP_FAILED || mprotect(start + i * page, page, PROT_READ) != 0) check_fail(__FILE__, __LINE__, "no mapping %zu", i);
  }
}

static void refuse_light_guards(void) {
  if (!filter_refuse_madvise(GUARD, EINVAL)) check_skip("system calls cannot be filtered here");
}

static void start(bool light) {
  const char *real = getenv("MAPPINGS_LIMIT");
  if (real == NULL) check_skip("no file can be mounted here");
  CHECK_EQ(limit_read(), LIMIT);
  if (light && !guards_are_light()) check_skip("the kernel has no light guards");
  if (!light) refuse_light_guards();
  use_up(strtoul(real, NULL, 10));
}

static hak_stats_t stats(void) {
  hak_stats_t figures = {.struct_size = sizeof figures};
  CHECK(hak_stats_get(&figures));
  return figures;
}

static void *do_nothing(void *unused) { return hak_free(hak_malloc(100)), unused; }

/* The program's own calls. */
static void check_program(void) {
  pthread_t threads[20];
  void *maps[100];
  for (int i = 0; i < 100; i++) {
    maps[i] = mmap(NULL, 4096, i % 2 ? PROT_READ : PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(maps[i] != MAP_FAILED);
  }
  for (int i = 0; i < 20; i++) CHECK(pthread_create(&threads[i], NULL, do_nothing, NULL) == 0);
  for (int i = 0; i < 20; i++) CHECK(pthread_join(threads[i], NULL) == 0);
  for (int i = 0; i < 100; i++) CHECK(munmap(maps[i], 4096) == 0);
}

static char *blocks[MOST];

static void take(size_t size) {
  for (size_t i = 0; i < MOST; i++) {
    blocks[i] = hak_malloc(size);
    REQUIRE(blocks[i] != NULL);
    blocks[i][0] = blocks[i][size - 1] = (char)i;
  }
}

static void give(size_t size, size_t step) {
  for (size_t i = 0; i < MOST; i += step) {
    if (blocks[i] == NULL) continue;
    CHECK(blocks[i][0] == (char)i && blocks[i][size - 1] == (char)i);
    hak_free(blocks[i]);
    blocks[i] = NULL;
  }
}

/* Each slab has one guard; each large block has two, and the end of its last unit is inaccessible. */
static void many(size_t size, bool light) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  start(light);
  for (int round = 0; round < 2; round++) {
    take(size);
    check_program();
    CHECK_EQ(SECURE && !light, stats().guards_left_out > 0);
    give(size, 3);
    check_program();
    give(size, 1);
    check_program();
    hak_collect(true);
  }
  char *last = hak_malloc(3 * page + 40000); /* the budget is available again */
  CHECK(last != NULL);
  uint64_t before = stats().guards_left_out;
  take(40000);
  if (SECURE && !light) CHECK(stats().guards_left_out - before < 2 * MOST - 200);
  check_program();
}

TEST(small_blocks) { many(30000, false); }
TEST(middle_blocks) { many(8000, false); }
TEST(large_blocks) { many(40000, false); }
TEST(large_blocks_of_units) { many(65536, false); }
TEST(larger_blocks) { many(300000, false); }
TEST(small_blocks_with_light_guards) { many(30000, true); }
TEST(large_blocks_with_light_guards) { many(40000, true); }

/* Idle memory moves to blocks at other places, and to blocks that grow. */
TEST(superslabs_that_move) {
  enum { COUNT = 200 };
  const size_t size = (size_t)6 << 20;
  start(false);
  for (int round = 0; round < 8; round++) {
    for (size_t i = 0; i < COUNT; i++) {
      size_t bytes = size + (i % 3) * ((size_t)2 << 20);
      blocks[i] = hak_realloc(blocks[i], bytes + (size_t)round * ((size_t)2 << 20));
      REQUIRE(blocks[i] != NULL);
      blocks[i][0] = blocks[i][bytes - 1] = (char)i; /* the content is not checked when pages move */
    }
    for (size_t i = (size_t)round % 2; i < COUNT; i += 2) hak_free(blocks[i]), blocks[i] = NULL;
    check_program();
  }
  if (!SECURE) CHECK(stats().superslabs_moved > 125);
  CHECK(mappings_now() < strtoul(getenv("MAPPINGS_LIMIT"), NULL, 10) - 200);
}

int main(int argc, char **argv) {
  start_again(argv);
  return check_main(argc, argv);
}
