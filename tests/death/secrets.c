/* secrets.c - the content of a freed block is not seen again, and no correct program is ended for it, even if the kernel keeps
 * memory that it was told to drop: memory that the program has locked, in full or in part, immediately or on fault, or a filter
 * that refuses madvise.
 *
 * The same steps run under each of these conditions: blocks of every size are filled, freed and requested again, by a thread that lives,
 * by one that ends, and in a child.  calloc's blocks are zero in every library; all blocks are zero in the secure one.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <hakmem/hakmem.h>

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "expect.h"
#include "filter.h"

enum { MOST = 400 };

static const size_t sizes[] = {8, 100, 1000, 4000, 8000, 20000, 32000, 40000, 70000, 300000, 3 << 20, 5 << 20};
enum { SIZES = sizeof sizes / sizeof sizes[0] };

/* What the program does with a block of its own before it writes to it. */
static void (*lock_block)(void *block, size_t size);

static size_t count_of(size_t size) {
  size_t count = ((size_t)4 << 20) / size;
  return count < 4 ? 4 : count > MOST ? MOST : count;
}

static bool is_zero(const char *start, size_t bytes) { return start[0] == 0 && memcmp(start, start + 1, bytes - 1) == 0; }

static void fill(void *block, size_t size) {
  if (lock_block != NULL) lock_block(block, size);
  memset(block, 'S', size);
}

/* Fills and frees as many blocks as take_and_look takes later: free memory, quarantines and bins all get some. */
static void fill_and_free(size_t size) {
  void *blocks[MOST];
  size_t count = count_of(size);
  for (size_t i = 0; i < count; i++) {
    blocks[i] = hak_malloc(size);
    REQUIRE(blocks[i] != NULL);
    fill(blocks[i], size);
  }
  for (size_t i = 0; i < count; i++) hak_free(blocks[i]);
}

static void take_and_look(size_t size) {
  void *blocks[MOST];
  size_t count = count_of(size);
  for (size_t i = 0; i < count; i++) {
    bool zeroed = i % 2 == 0;
    blocks[i] = zeroed ? hak_calloc(1, size) : hak_malloc(size);
    REQUIRE(blocks[i] != NULL);
    if (zeroed) CHECK(is_zero(blocks[i], size));
    else if (SECURE) CHECK(is_zero(blocks[i], hak_malloc_usable_size(blocks[i])));
    fill(blocks[i], size);
  }
  for (size_t i = 0; i < count; i++) hak_free(blocks[i]);
}

/* In place or not: the bytes by which a block grows are zero in the secure library. */
static void grow_and_look(void) {
  size_t size = 50000;
  char *block = hak_malloc(size);
  REQUIRE(block != NULL);
  while (size < (size_t)6 << 20) {
    fill(block, size);
    size_t old = size;
    size += size / 3;
    block = hak_realloc(block, size);
    REQUIRE(block != NULL && block[old - 1] == 'S');
    if (SECURE) CHECK(is_zero(block + old, size - old));
  }
  hak_free(block);
}

static void *all_sizes(void *unused) {
  for (unsigned round = 0; round < 2 && check_failures() == 0; round++) {
    for (unsigned i = 0; i < SIZES; i++) fill_and_free(sizes[i]);
    if (round == 1) hak_collect(true); /* slabs end, and waiting blocks become free */
    for (unsigned i = SIZES; i-- > 0;) take_and_look(sizes[i]);
    grow_and_look();
  }
  return unused;
}

static void in_a_child(void) {
  int status = -1;
  pid_t child = fork();
  if (child == 0) {
    all_sizes(NULL);
    _exit(check_failures() != 0);
  }
  CHECK(child > 0 && waitpid(child, &status, 0) == child);
  CHECK_EQ(status, 0);
}

static void run_all(void) {
  pthread_t thread;
  all_sizes(NULL);
  REQUIRE(pthread_create(&thread, NULL, all_sizes, NULL) == 0);
  CHECK(pthread_join(thread, NULL) == 0);
  in_a_child();
  all_sizes(NULL);
}

/* ---- Memory that the kernel keeps ---- */

static void lock_all(int flags) {
  if (mlockall(flags) != 0) check_skip("this process may not lock its memory");
}

static void lock_now(void *block, size_t size) {
  if (mlock(block, size) != 0) check_skip("this process may not lock its memory");
}

/* Locks a page somewhere inside. */
static void lock_a_part(void *block, size_t size) { lock_now((char *)block + size / 3, 1); }

#ifdef SYS_mlock2
static void lock_on_fault(void *block, size_t size) {
  uintptr_t start = (uintptr_t)block & ~(uintptr_t)4095; /* the kernel rounds it for larger pages */
  if (syscall(SYS_mlock2, start, size + ((uintptr_t)block - start), 1 /* MLOCK_ONFAULT */) != 0) check_skip("no mlock2 here");
}
#endif

/* Refuses one kind of advice, or all if it is 0. */
static void refuse(uint32_t advice, uint32_t error) {
  if (!filter_refuse_madvise(advice, error)) check_skip("system calls cannot be filtered here");
}
enum { PURGE = 4, GUARD = 102, UNGUARD = 103 };

TEST(as_it_comes) { run_all(); }

TEST(all_locked) {
  lock_all(MCL_CURRENT | MCL_FUTURE);
  run_all();
}

TEST(all_locked_later) {
  run_all();
  lock_all(MCL_CURRENT | MCL_FUTURE);
  run_all();
  CHECK(munlockall() == 0);
  run_all();
}

TEST(what_is_there_locked) {
  all_sizes(NULL);
  lock_all(MCL_CURRENT);
  run_all();
}

#ifdef MCL_ONFAULT
TEST(all_locked_on_fault) {
  lock_all(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT);
  run_all();
}
#endif

TEST(blocks_locked) {
  lock_block = lock_now;
  run_all();
}

TEST(parts_of_blocks_locked) {
  lock_block = lock_a_part;
  run_all();
}

static size_t resident_pages(void) {
  unsigned long all = 0, resident = 0;
  FILE *file = fopen("/proc/self/statm", "r");
  if (file == NULL || fscanf(file, "%lu %lu", &all, &resident) != 2) check_skip("no /proc");
  (void)fclose(file);
  return resident;
}

/* While freed large blocks wait to be used again, their locked pages stay. */
TEST(locked_blocks_that_are_freed_hold_little) {
  enum { ROUNDS = 30, BYTES = 5 << 20, HELD_MOST = 40 << 20 };
  size_t before = resident_pages();
  for (int i = 0; i < ROUNDS; i++) {
    char *block = hak_malloc(BYTES);
    REQUIRE(block != NULL);
    lock_now(block, BYTES);
    memset(block, 1, BYTES);
    hak_free(block);
  }
  CHECK((resident_pages() - before) * (size_t)sysconf(_SC_PAGESIZE) < HELD_MOST);
}

#ifdef SYS_mlock2
TEST(blocks_locked_on_fault) {
  lock_block = lock_on_fault;
  run_all();
}
#endif

TEST(all_advice_refused) {
  refuse(0, EPERM);
  run_all();
}

TEST(all_advice_refused_later) {
  run_all();
  refuse(0, EPERM);
  run_all();
}

/* The kernel copies page after page while other threads run: a child may find memory with content that its records have free. */
static _Atomic bool other_is_there;
static void *stay(void *unused) {
  hak_free(hak_malloc(200));
  other_is_there = true;
  for (;;) pause();
  return unused;
}

TEST(all_advice_refused_in_a_child_that_was_copied_meanwhile) {
  enum { COUNT = 5000 };
  static char *blocks[COUNT];
  int status = -1;
  if (!SECURE) check_skip("of the secure library");
  for (int i = 0; i < COUNT; i++) blocks[i] = hak_malloc(200);
  for (int i = 0; i < COUNT; i++) hak_free(blocks[i]);
  hak_collect(false);
  pthread_t other; /* the thread that such memory can come from */
  REQUIRE(pthread_create(&other, NULL, stay, NULL) == 0);
  while (!other_is_there) usleep(1000);
  refuse(0, EPERM);
  char *volatile stray = blocks[COUNT / 2];
  memset(stray, 'S', 200);
  pid_t child = fork();
  if (child == 0) {
    for (int i = 0; i < COUNT; i++) CHECK(is_zero(hak_malloc(200), 200));
    _exit(check_failures() != 0);
  }
  CHECK(child > 0 && waitpid(child, &status, 0) == child);
  CHECK_EQ(status, 0);
}

TEST(purges_refused) {
  refuse(PURGE, EINVAL);
  run_all();
}

TEST(purges_and_guards_refused) {
  refuse(PURGE, EINVAL), refuse(GUARD, EINVAL);
  run_all();
}

TEST(purges_and_guards_refused_later) {
  run_all();
  refuse(PURGE, EPERM), refuse(GUARD, EPERM), refuse(UNGUARD, EPERM);
  run_all();
}

int main(int argc, char **argv) { return check_main(argc, argv); }
