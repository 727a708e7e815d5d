/* crash.c - the reports on crashes: by HAKMEM_CRASH_REPORT, by guard slots, and
 * by the inaccessible memory of the secure library.
 *
 * Each case runs in a process of its own, which prints on its standard output
 * what it is about to touch; its standard error and its exit status are compared with
 * the table.
 *
 *   crash [filter]   run the cases whose names contain `filter`
 *   crash -x NAME    crash in this process, for a debugger
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <hakmem/hakmem.h>

#include <pthread.h>
#include <regex.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "expect.h"
#include "guards.h"

enum { LARGE = 1 << 20, PART = 1 << 16, LIMIT_SECONDS = 20, TEXT = 32768 };

/* ---- In the crashing process ---- */

/* Reports to the parent the address to be touched, and the related block. */
static char *announce(const void *at, const void *block) {
  char line[96];
  int length = snprintf(line, sizeof line, "%p %p %d\n", at, block, (int)getpid());
  if (write(STDOUT_FILENO, line, (size_t)length) != length) _exit(EXIT_BROKEN);
  return (char *)(uintptr_t)at;
}

static void touch(char *at) { *(volatile char *)hide(at) = 1; }

static char *new_block(size_t size) {
  char *block = hak_malloc(size);
  if (!block) _exit(EXIT_BROKEN);
  return block;
}

static char *mapped(int protection) {
  char *map = mmap(NULL, PART, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return map == MAP_FAILED ? NULL : map;
}

/* Makes the byte's page inaccessible. */
static char *forbid(char *at) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  if (mprotect((void *)((uintptr_t)at & ~(page - 1)), page, PROT_NONE) != 0) _exit(EXIT_BROKEN);
  return at;
}

static void near_null(void) { touch(announce((void *)(uintptr_t)8, NULL)); }
#ifdef __x86_64__
static void at_a_non_canonical_address(void) { touch(announce((void *)((uintptr_t)0x5a5a << 48 | 0x1230), NULL)); }
#endif
static void in_a_mapping(void) { touch(announce(mapped(PROT_NONE) + 5, NULL)); }

static void in_a_live_large_block(void) {
  char *block = new_block(LARGE);
  touch(announce(forbid(block + PART + 5), block));
}

static void in_a_live_block(void) {
  char *block = new_block(4096);
  touch(announce(forbid(block + 5), block));
}

static void in_a_freed_block(void) {
  char *block = new_block(4096), *other = new_block(4096);
  hak_free(block);
  touch(announce(forbid(block + 5), block));
  hak_free(other);
}

/* In the secure library the block is inaccessible anyway. */
static void in_a_freed_large_block(void) {
  char *block = new_block(LARGE);
  hak_free(block);
#ifndef EXPECT_SECURE
  forbid(block + 5);
#endif
  touch(announce(block + 5, block));
}

static void beyond_a_file(void) {
  int file = memfd_create("short", 0);
  if (file < 0 || ftruncate(file, PART) != 0) _exit(EXIT_BROKEN);
  char *map = mmap(NULL, PART, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (map == MAP_FAILED || ftruncate(file, 0) != 0) _exit(EXIT_BROKEN);
  touch(announce(map, NULL));
}

static void by_abort(void) {
  announce(NULL, NULL);
  abort();
}

static void by_kill(void) {
  announce(NULL, NULL);
  kill(getpid(), SIGSEGV);
}

/* As the kernel reports failed memory that no thread is about to use.  qemu, which runs the tests for aarch64, ends when it gets this
 * signal. */
#if defined(__x86_64__)
static void by_memory_that_failed(void) {
  siginfo_t info = {.si_signo = SIGBUS, .si_code = BUS_MCEERR_AO};
  info.si_addr = announce((void *)(uintptr_t)16, NULL);
  syscall(SYS_rt_tgsigqueueinfo, getpid(), syscall(SYS_gettid), SIGBUS, &info);
}
#endif

/* The secure library's options are fixed at the start. */
static void set_an_option(void) {
  int64_t decay = 0;
  bool set = hak_option_set("decay_ms", 4711), got = hak_option_get("decay_ms", &decay);
  if (!got || set != (decay == 4711) || set == SECURE) _exit(EXIT_BROKEN);
}

static char fill_the_stack(unsigned frames) {
  volatile char room[4096];
  room[0] = (char)frames;
  return frames == 0 ? room[0] : (char)(fill_the_stack(frames - 1) + room[0]);
}

/* The report needs the stack that the program has set up for its own handlers. */
static void overflow_the_stack(void) {
  static char room[PART];
  const stack_t other = {.ss_sp = room, .ss_size = sizeof room};
  const struct rlimit small = {1 << 20, 1 << 20};
  if (sigaltstack(&other, NULL) != 0 || setrlimit(RLIMIT_STACK, &small) != 0) _exit(EXIT_BROKEN);
  announce(NULL, NULL);
  if (fill_the_stack(1 << 20) == 1) _exit(EXIT_BROKEN);
}

/* ---- Other handlers ---- */

static void say(const char *text) {
  if (write(STDERR_FILENO, text, strlen(text)) < 0) _exit(EXIT_BROKEN);
}

static void plain_handler(int number) {
  say(number == SIGSEGV ? "plain handler\n" : "plain handler of another signal\n");
  _exit(0);
}

static void handle(struct sigaction action) { sigaction(SIGSEGV, &action, NULL); }

static void with_a_later_handler(void) {
  handle((struct sigaction){.sa_handler = plain_handler});
  near_null();
}

#ifdef __GLIBC__ /* musl runs nothing before the constructors of libraries */

static void full_handler(int number, siginfo_t *info, void *context) {
  char line[64];
  (void)context;
  snprintf(line, sizeof line, "handler of %d at %p\n", number, info->si_addr);
  say(line);
  _exit(0);
}

/* `early` has installed the handlers of these cases. */
static void after_a_full_handler(void) { near_null(); }
static void after_a_plain_handler(void) { near_null(); }
static void while_ignored(void) { near_null(); }
static void by_kill_while_ignored(void) { by_kill(); }

/* Runs before the constructors of every library, including hakmem's. */
static void early(int argc, char **argv, char **environment) {
  (void)environment;
  const char *name = argc == 3 ? argv[2] : "";
  if (strcmp(name, "after_a_full_handler") == 0) handle((struct sigaction){.sa_sigaction = full_handler, .sa_flags = SA_SIGINFO});
  if (strcmp(name, "after_a_plain_handler") == 0) handle((struct sigaction){.sa_handler = plain_handler});
  if (strstr(name, "while_ignored")) handle((struct sigaction){.sa_handler = SIG_IGN});
}
__attribute__((section(".preinit_array"), used)) static void (*const early_entry)(int, char **, char **) = early;

#endif

/* ---- The secure library's inaccessible memory, and its limits ---- */

#ifdef EXPECT_SECURE

static void past_a_large_block(void) {
  char *block = new_block(4 * PART);
  touch(announce(block + 4 * PART, block));
}

/* The bytes behind the requested ones, up to the end of the page, are checked when the block is freed. */
static size_t pages_of(const char *block) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  return (hak_malloc_usable_size(block) + page - 1) & ~(page - 1);
}

static void past_a_large_blocks_last_page(void) {
  char *block = new_block(4 * PART + 1);
  touch(announce(block + pages_of(block), block));
}

static void before_a_large_block(void) {
  char *block = new_block(4 * PART);
  touch(announce(block - 1, block));
}

static void past_an_aligned_large_block(void) {
  char *block = hak_aligned_alloc(4 << 20, 4 * PART);
  touch(announce(block + 4 * PART, block));
}

/* Upward from a block: at most to the end of its slab. */
static void past_a_slab(void) {
  char *at = new_block(200);
  announce(at, at);
  for (size_t i = 0; i <= PART; i += 16) touch(at + i);
}

static void in_nothing(void) {
  char *block = new_block(0);
  touch(announce(block, block));
}

/* Blocks of no bytes are blocks: they can grow. */
static void nothing_grows(void) {
  for (size_t size = 1; size < LARGE; size = size * 3 + 1) {
    char *block = new_block(0);
    if (hak_malloc_usable_size(block) != 0) _exit(EXIT_BROKEN);
    block = size % 2 ? hak_realloc(block, size) : hak_recallocarray(block, 0, size, 1);
    if (!block) _exit(EXIT_BROKEN);
    memset(block, 1, size);
    hak_free(block);
  }
}

/* More blocks than wait at one time, of different lengths: no guard stays behind in memory that is used again. */
static void large_blocks_come_again(void) {
  for (size_t i = 0; i < 200; i++) {
    size_t size = (size_t)(i % 2 ? 3 << 20 : 1 << 19) + i % 7 * 12345;
    char *block = new_block(size);
    for (size_t at = 0; at < size; at += 4096) touch(block + at);
    hak_free(block);
  }
}

/* `*moves` counts how often the block was moved. */
static char *grown_block(size_t from, size_t to, size_t step, int *moves) {
  char *block = new_block(from);
  memset(block, 'a', from);
  for (size_t size = from + step; size <= to; size += step) {
    char *grown = hak_realloc(block, size);
    if (!grown || grown[0] != 'a' || grown[size - step - 1] != 'a') _exit(EXIT_BROKEN);
    memset(grown + size - step, 'a', step);
    *moves += grown != block;
    block = grown;
  }
  return block;
}

/* In place if nothing is behind the block; a neighbour in the way is neither lost nor overwritten. */
static void large_blocks_grow(void) {
  int moves = 0;
  char *alone = grown_block(LARGE, 8 * LARGE, 5000, &moves);
  if (moves > 10) _exit(EXIT_BROKEN);
  char *block = new_block(LARGE), *neighbour = new_block(LARGE);
  memset(neighbour, 'b', LARGE);
  moves = 0;
  hak_free(grown_block(LARGE, 4 * LARGE, 70000, &moves));
  block = hak_realloc(block, 4 * LARGE);
  if (!block || moves > 10) _exit(EXIT_BROKEN);
  memset(block, 'c', 4 * LARGE);
  for (size_t i = 0; i < 8 * LARGE - LARGE; i++) {
    if (alone[i] != 'a' || (i < LARGE && neighbour[i] != 'b')) _exit(EXIT_BROKEN);
  }
  hak_free(alone), hak_free(block), hak_free(neighbour);
  for (int i = 0; i < 70; i++) hak_free(new_block(LARGE)); /* until none of them waits */
  large_blocks_come_again();
}

static void past_a_grown_block(void) {
  int moves = 0;
  char *block = grown_block(LARGE, 2 * LARGE, 4096, &moves);
  touch(announce(block + 2 * LARGE, block));
}

static void past_a_grown_blocks_last_page(void) {
  int moves = 0;
  char *block = grown_block(LARGE, LARGE + 6 * PART, 3 * PART / 2 + 4096, &moves);
  touch(announce(block + pages_of(block), block));
}

static void before_an_aligned_large_block(void) {
  char *block = hak_aligned_alloc(4 << 20, 4 * PART);
  touch(announce(block - 1, block));
}

/* The block has guards of its own: they stay when its neighbours are freed. */
static void before_an_aligned_large_block_left_alone(void) {
  char *blocks[16];
  for (size_t i = 0; i < 16; i++) blocks[i] = hak_aligned_alloc(2 * PART, PART);
  for (size_t i = 0; i < 16; i++) {
    if (i != 7) hak_free(blocks[i]);
  }
  for (int i = 0; i < 70; i++) hak_free(new_block(LARGE));
  touch(announce(blocks[7] - 1, blocks[7]));
}

/* Memory before the first multiple of a large alignment is free for other blocks. */
static void wide_alignments_cost_addresses(void) {
  const size_t align = (size_t)1 << 30;
  hak_stats_t stats = {.struct_size = sizeof stats};
  char *low = new_block(LARGE), *block = hak_aligned_alloc(align, LARGE);
  if (!block || (uintptr_t)block % align != 0 || block < low) _exit(EXIT_BROKEN);
  block[0] = block[LARGE - 1] = 1;
  if (!hak_stats_get(&stats) || stats.span_free + 8 * LARGE < (size_t)(block - low)) _exit(EXIT_BROKEN);
  hak_free(block);
}

static void in_a_large_block_freed_before_others(void) {
  char *block = new_block(4 * PART);
  hak_free(block);
  for (int i = 0; i < 60; i++) hak_free(new_block(4 * PART));
  touch(announce(block, block));
}

/* A block in the memory of an earlier block with as many units, which has waited; if guards are light, it has the guards of that block. */
static char *block_used_again(size_t size, size_t before) {
  char *first = new_block(before);
  memset(first, 'x', before);
  hak_free(first);
  for (int i = 0; i < 200; i++) {
    char *block = new_block(size);
    if (block == first) return block;
    memset(block, 'x', size);
    hak_free(block);
  }
  if (guards_are_light()) _exit(EXIT_BROKEN);
  return new_block(size);
}

static void past_a_block_used_again(void) {
  char *block = block_used_again(4 * PART, 3 * PART + 100);
  touch(announce(block + 4 * PART, block));
}

static void past_the_last_page_of_a_block_used_again(void) {
  char *block = block_used_again(4 * PART + 1, 5 * PART);
  touch(announce(block + pages_of(block), block));
}

static void before_a_block_used_again(void) {
  char *block = block_used_again(4 * PART, 4 * PART);
  touch(announce(block - 1, block));
}

static void in_a_block_used_again_and_freed(void) {
  char *block = block_used_again(4 * PART, 4 * PART);
  hak_free(block);
  touch(announce(block + 4 * PART - 1, block));
}

static void a_block_used_again_is_zero(void) {
  char *block = block_used_again(5 * PART, 4 * PART + 1);
  for (size_t i = 0; i < 5 * PART; i++) {
    if (block[i] != 0) _exit(EXIT_BROKEN);
  }
}

/* `freed`: bytes free after as many blocks were freed; `trimmed`: bytes that a trim adds. Neither counts blocks that wait or are ready. */
static void free_and_trim(int count, size_t *freed, size_t *trimmed) {
  char *blocks[100];
  hak_stats_t before = {.struct_size = sizeof before}, after = before;
  for (int i = 0; i < count; i++) blocks[i] = new_block(LARGE);
  for (int i = 0; i < count; i++) hak_free(blocks[i]);
  if (!hak_stats_get(&before)) _exit(EXIT_BROKEN);
  hak_collect(true);
  if (!hak_stats_get(&after)) _exit(EXIT_BROKEN);
  *freed = before.span_free;
  *trimmed = after.span_free - before.span_free;
}

static void large_blocks_wait_until_a_trim(void) {
  size_t freed, trimmed;
  free_and_trim(60, &freed, &trimmed);
  if (trimmed < (size_t)60 * LARGE) _exit(EXIT_BROKEN);
}

/* Whether or not some blocks are ready: each had a guard before it and one behind it. */
static void nothing_is_ready_after_a_trim(void) {
  size_t freed, trimmed;
  free_and_trim(90, &freed, &trimmed);
  if (freed + trimmed < (size_t)90 * (LARGE + 2 * PART)) _exit(EXIT_BROKEN);
}

static void freed_blocks_wait_for_others(void) {
  char *block = new_block(200);
  hak_free(block);
  for (int i = 0; i < 60; i++) {
    char *other = new_block(200);
    if (other == block) _exit(EXIT_BROKEN);
    hak_free(other);
  }
}

/* Few of the blocks are adjacent. */
static void blocks_come_in_no_order(void) {
  int in_order = 0;
  char *last = new_block(60);
  size_t step = class_bytes(hak_malloc_usable_size(last) + 8);
  for (int i = 0; i < 4000; i++) {
    char *block = new_block(60);
    in_order += block == last + step || last == block + step;
    last = block;
  }
  if (in_order > 1200) _exit(EXIT_BROKEN); /* a quarter is to be expected */
}

static char *_Atomic left_behind, *kept_block;

/* Frees a block; another block keeps the slab, if `keeps` is not NULL. */
static void *free_and_sleep(void *keeps) {
  char *block = new_block(200);
  if (keeps) kept_block = new_block(200);
  hak_free(block);
  left_behind = block;
  for (;;) pause();
  return keeps;
}

static void *use_many(void *unused) {
  for (int i = 0; i < 5000; i++) {
    char *block = new_block(200);
    for (int at = 0; at < 200; at++)
      if (block[at] != 0) _exit(EXIT_BROKEN);
  }
  return unused;
}

/* While a process forks, its other threads run: a block may be copied with content although its heap, copied before, has it free. The
 * child uses the block in its slab, or in a slab that is made of the same memory after that one has ended, immediately or later. */
static void fork_with_a_filled_block(bool keeps, bool ends_later) {
  pthread_t thread;
  int status = 0;
  if (pthread_create(&thread, NULL, free_and_sleep, keeps ? &thread : NULL) != 0) _exit(EXIT_BROKEN);
  while (!left_behind) usleep(1000);
  memset(hide(left_behind), 'x', 200);
  pid_t child = fork();
  if (child == 0) {
    if (ends_later) hak_free(kept_block), hak_collect(false);
    _exit(pthread_create(&thread, NULL, use_many, NULL) != 0 || pthread_join(thread, NULL) != 0);
  }
  if (waitpid(child, &status, 0) != child || status != 0) _exit(EXIT_BROKEN);
}

/* The same with memory that is in no slab. */
static void fork_with_a_filled_unit(void) {
  static char *blocks[5000];
  int status = 0;
  pthread_t thread; /* the thread that such memory can come from */
  if (pthread_create(&thread, NULL, free_and_sleep, NULL) != 0) _exit(EXIT_BROKEN);
  while (!left_behind) usleep(1000);
  for (int i = 0; i < 5000; i++) blocks[i] = new_block(200);
  for (int i = 0; i < 5000; i++) hak_free(blocks[i]);
  hak_collect(false);
  memset(hide(blocks[2500]), 'x', 200);
  pid_t child = fork();
  if (child == 0) _exit(use_many(NULL) != NULL);
  if (waitpid(child, &status, 0) != child || status != 0) _exit(EXIT_BROKEN);
}

static void fork_with_a_slab_that_stays(void) { fork_with_a_filled_block(true, false); }
static void fork_with_a_slab_that_ends(void) { fork_with_a_filled_block(false, false); }
static void fork_with_a_slab_that_ends_later(void) { fork_with_a_filled_block(true, true); }

/* A string that fills its block is followed by one or two bytes that are not 0: a program that writes its end there is detected. */
static void strings_end_behind_their_block(void) {
  for (size_t i = 0; i < 1000; i++) {
    size_t size = 90 + i % 30;
    char *block = hide(new_block(size));
    memset(block, 'a', size);
    if (hak_malloc_usable_size(block) != size || strlen(block) <= size || strlen(block) > size + 2) _exit(EXIT_BROKEN);
  }
}

#else

/* ---- Guard slots ---- */

/* A guarded block at the end of its page, or at its start: this is chosen at random. */
static char *new_guarded(size_t size, bool at_end) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  hak_free(hak_malloc(size)); /* a thread gets its first block before its heap, which counts allocations */
  for (int i = 0; i < 60; i++) {
    char *block = new_block(size);
    if ((((uintptr_t)block + (at_end ? (size + 15) & ~(size_t)15 : 0)) & (page - 1)) == 0) return block;
  }
  _exit(EXIT_BROKEN);
}

static void past_a_guarded_block(void) {
  char *block = new_guarded(64, true);
  touch(announce(block + 64, block));
}

/* Each slot has been used several times, and is clean again. */
static void past_a_guarded_block_of_a_used_slot(void) {
  for (int i = 0; i < 300; i++) hak_free(new_block(64));
  past_a_guarded_block();
}

static void before_a_guarded_block(void) {
  char *block = new_guarded(64, false);
  touch(announce(block - 1, block));
}

static void in_a_freed_guarded_block(void) {
  char *block = new_guarded(64, true);
  hak_free(block);
  touch(announce(block + 3, block));
}

static void *free_there(void *block) {
  hak_free(block);
  return NULL;
}

static void in_a_guarded_block_freed_elsewhere(void) {
  pthread_t thread;
  char *block = new_guarded(64, true);
  if (pthread_create(&thread, NULL, free_there, block) != 0 || pthread_join(thread, NULL) != 0) _exit(EXIT_BROKEN);
  touch(announce(block + 3, block));
}

static void free_twice(void) {
  char *block = new_guarded(64, true);
  hak_free(block);
  hak_free(announce(hide(block), block));
}

static void free_interior(void) {
  char *block = new_guarded(64, true);
  hak_free(announce(hide(block + 16), block));
}

static void free_misaligned(void) {
  char *block = new_guarded(64, true);
  hak_free(announce(hide(block + 1), block));
}

static void free_after_a_write_behind(void) {
  char *block = new_guarded(60, true);
  touch(block + 60);
  hak_free(announce(block, block));
}

static void free_after_a_write_before(void) {
  char *block = new_guarded(64, true);
  touch(block - 1);
  hak_free(announce(block, block));
}

static void free_sized_larger(void) {
  char *block = new_guarded(64, true);
  hak_free_sized(announce(block, block), 65);
}

static bool is_filled(const char *block, size_t size) {
  for (size_t i = 0; i < size; i++)
    if (block[i] != 'a') return false;
  return true;
}

/* Between a slot's block, a slab's block and a large block; the slots remain intact. */
static void guarded_blocks_change_size(void) {
  for (int i = 0; i < 100; i++) {
    static const size_t sizes[] = {24, 200, 10, 5000, 100000, 3 << 20};
    for (size_t j = 0; j < sizeof sizes / sizeof sizes[0]; j++) {
      size_t kept = sizes[j] < 100 ? sizes[j] : 100;
      char *block = new_block(100), *other = new_block(50);
      memset(block, 'a', 100), memset(other, 'b', 50);
      block = hak_realloc(block, sizes[j]);
      if (!block || !is_filled(block, kept)) _exit(EXIT_BROKEN);
      memset(block, 'c', sizes[j]);
      if (other[0] != 'b' || other[49] != 'b') _exit(EXIT_BROKEN);
      hak_free(other);
      hak_free(block);
      hak_free(hak_recallocarray(new_block(0), 0, sizes[j], 1));
    }
  }
}

#endif

/* ---- The table ---- */

enum { NO_STACK = 0, ALLOCATED = 1, FREED = 2, ELSEWHERE = 4 };

typedef struct crash {
  const char *name;
  void (*run)(void);
  const char *options; /* HAKMEM_... variables, separated by spaces */
  int signal;          /* 0: it ends without a crash */
  /* An extended regular expression for all output except the stacks.  In it @ stands
   * for the address that is touched, % for the block, & for the bytes between, # for the process. */
  const char *said;
  int stacks;
} crash_t;

#define SILENT "HAKMEM_CRASH_REPORT=0"
#define REPORT "HAKMEM_CRASH_REPORT=1"
#define GUARD "HAKMEM_GUARD=1 HAKMEM_GUARD_EVERY=1"
#ifdef EXPECT_SECURE
#define SLAB_SIZE "5120"
#define FREED_LARGE "guard or quarantined memory"
#else
#define SLAB_SIZE "4096"
#define FREED_LARGE "freed memory in no block"
#endif
#define SEGV_AT "hakmem: SIGSEGV at @: "
#define SLOT ", in a guard slot\n"

static const crash_t crashes[] = {
    {"near_null", near_null, REPORT, SIGSEGV, SEGV_AT "near NULL, not hakmem's\n", NO_STACK},
    {"near_null", near_null, SILENT, SIGSEGV, "", NO_STACK},
    {"near_null", near_null, GUARD, SIGSEGV, "", NO_STACK},
#ifdef __x86_64__
    {"at_a_non_canonical_address", at_a_non_canonical_address, REPORT, SIGSEGV,
     "hakmem: SIGSEGV at an address that the processor does not tell, such as one that is not canonical\n", NO_STACK},
#endif
    {"in_a_mapping", in_a_mapping, REPORT, SIGSEGV, SEGV_AT "foreign, not hakmem's\n", NO_STACK},
    {"in_a_live_large_block", in_a_live_large_block, REPORT, SIGSEGV, SEGV_AT "live block % of 1048576 bytes, at byte 65541, class large\n",
     NO_STACK},
    {"in_a_live_block", in_a_live_block, REPORT, SIGSEGV, SEGV_AT "live block % of " SLAB_SIZE " bytes, at byte 5, class " SLAB_SIZE "\n",
     NO_STACK},
    {"in_a_freed_block", in_a_freed_block, REPORT, SIGSEGV,
     SEGV_AT "freed block % of " SLAB_SIZE " bytes, at byte 5, class " SLAB_SIZE "\n", NO_STACK},
    {"in_a_freed_large_block", in_a_freed_large_block, REPORT, SIGSEGV, SEGV_AT FREED_LARGE "\n", NO_STACK},
    {"in_a_freed_large_block", in_a_freed_large_block, SILENT, SIGSEGV, "", NO_STACK},
    {"beyond_a_file", beyond_a_file, REPORT, SIGBUS, "hakmem: SIGBUS at @: foreign, not hakmem's\n", NO_STACK},
    {"beyond_a_file", beyond_a_file, SILENT, SIGBUS, "", NO_STACK},
    {"by_abort", by_abort, REPORT, SIGABRT, "hakmem: SIGABRT: sent by process #\n", NO_STACK},
    {"by_abort", by_abort, SILENT, SIGABRT, "", NO_STACK},
    {"by_kill", by_kill, REPORT, SIGSEGV, "hakmem: SIGSEGV: sent by process #\n", NO_STACK},
#if defined(__x86_64__)
    {"by_memory_that_failed", by_memory_that_failed, REPORT, SIGBUS, "hakmem: SIGBUS at @: near NULL, not hakmem's\n", NO_STACK},
#endif
    {"overflow_the_stack", overflow_the_stack, REPORT, SIGSEGV, "hakmem: SIGSEGV at 0x[0-9a-f]+: foreign, not hakmem's\n", NO_STACK},
    {"set_an_option", set_an_option, SILENT, 0, "", NO_STACK},
    {"with_a_later_handler", with_a_later_handler, REPORT, 0, "plain handler\n", NO_STACK},
#ifdef __GLIBC__
    {"after_a_full_handler", after_a_full_handler, REPORT, 0, SEGV_AT "near NULL, not hakmem's\nhandler of 11 at @\n", NO_STACK},
    {"after_a_plain_handler", after_a_plain_handler, REPORT, 0, SEGV_AT "near NULL, not hakmem's\nplain handler\n", NO_STACK},
    {"while_ignored", while_ignored, REPORT, SIGSEGV, SEGV_AT "near NULL, not hakmem's\n", NO_STACK},
    {"by_kill_while_ignored", by_kill_while_ignored, REPORT, 0, "hakmem: SIGSEGV: sent by process #\n", NO_STACK},
#endif
#ifdef EXPECT_SECURE
    {"past_a_large_block", past_a_large_block, REPORT, SIGSEGV, SEGV_AT "guard or quarantined memory\n", NO_STACK},
    {"past_a_large_block", past_a_large_block, SILENT, SIGSEGV, "", NO_STACK},
    {"past_a_large_blocks_last_page", past_a_large_blocks_last_page, REPORT, SIGSEGV,
     SEGV_AT "live block % of & bytes, at byte &, class large\n", NO_STACK},
    {"past_an_aligned_large_block", past_an_aligned_large_block, REPORT, SIGSEGV, SEGV_AT "guard or quarantined memory\n", NO_STACK},
    {"before_a_large_block", before_a_large_block, REPORT, SIGSEGV, SEGV_AT "guard or quarantined memory\n", NO_STACK},
    {"past_a_slab", past_a_slab, REPORT, SIGSEGV, "hakmem: SIGSEGV at 0x[0-9a-f]+0000: guard or quarantined memory\n", NO_STACK},
    {"in_nothing", in_nothing, REPORT, SIGSEGV, SEGV_AT "live block % of 0 bytes, at byte 0, from malloc\\(0\\)\n", NO_STACK},
    {"in_nothing", in_nothing, SILENT, SIGSEGV, "", NO_STACK},
    {"nothing_grows", nothing_grows, SILENT, 0, "", NO_STACK},
    {"large_blocks_come_again", large_blocks_come_again, SILENT, 0, "", NO_STACK},
    {"large_blocks_grow", large_blocks_grow, SILENT, 0, "", NO_STACK},
    {"past_a_grown_block", past_a_grown_block, REPORT, SIGSEGV, SEGV_AT "guard or quarantined memory\n", NO_STACK},
    {"past_a_grown_blocks_last_page", past_a_grown_blocks_last_page, REPORT, SIGSEGV,
     SEGV_AT "live block % of & bytes, at byte &, class large\n", NO_STACK},
    {"before_an_aligned_large_block", before_an_aligned_large_block, REPORT, SIGSEGV, SEGV_AT "guard or quarantined memory\n", NO_STACK},
    {"before_an_aligned_large_block_left_alone", before_an_aligned_large_block_left_alone, REPORT, SIGSEGV,
     SEGV_AT "guard or quarantined memory\n", NO_STACK},
    {"wide_alignments_cost_addresses", wide_alignments_cost_addresses, SILENT, 0, "", NO_STACK},
    {"in_a_large_block_freed_before_others", in_a_large_block_freed_before_others, REPORT, SIGSEGV, SEGV_AT "guard or quarantined memory\n",
     NO_STACK},
    {"large_blocks_wait_until_a_trim", large_blocks_wait_until_a_trim, SILENT, 0, "", NO_STACK},
    {"nothing_is_ready_after_a_trim", nothing_is_ready_after_a_trim, SILENT, 0, "", NO_STACK},
    {"past_a_block_used_again", past_a_block_used_again, REPORT, SIGSEGV, SEGV_AT "guard or quarantined memory\n", NO_STACK},
    {"past_the_last_page_of_a_block_used_again", past_the_last_page_of_a_block_used_again, REPORT, SIGSEGV,
     SEGV_AT "live block % of & bytes, at byte &, class large\n", NO_STACK},
    {"before_a_block_used_again", before_a_block_used_again, REPORT, SIGSEGV, SEGV_AT "guard or quarantined memory\n", NO_STACK},
    {"in_a_block_used_again_and_freed", in_a_block_used_again_and_freed, REPORT, SIGSEGV, SEGV_AT "guard or quarantined memory\n",
     NO_STACK},
    {"a_block_used_again_is_zero", a_block_used_again_is_zero, SILENT, 0, "", NO_STACK},
    {"freed_blocks_wait_for_others", freed_blocks_wait_for_others, SILENT, 0, "", NO_STACK},
    {"blocks_come_in_no_order", blocks_come_in_no_order, SILENT, 0, "", NO_STACK},
    {"fork_with_a_slab_that_stays", fork_with_a_slab_that_stays, SILENT, 0, "", NO_STACK},
    {"fork_with_a_slab_that_ends", fork_with_a_slab_that_ends, SILENT, 0, "", NO_STACK},
    {"fork_with_a_slab_that_ends_later", fork_with_a_slab_that_ends_later, SILENT, 0, "", NO_STACK},
    {"fork_with_a_filled_unit", fork_with_a_filled_unit, "HAKMEM_DECAY_MS=-1", 0, "", NO_STACK},
    {"strings_end_behind_their_block", strings_end_behind_their_block, SILENT, 0, "", NO_STACK},
#else
    {"past_a_guarded_block", past_a_guarded_block, GUARD, SIGSEGV, SEGV_AT "1 byte past the end of live block % of 64 bytes" SLOT,
     ALLOCATED},
    {"past_a_guarded_block", past_a_guarded_block, GUARD " HAKMEM_GUARD_SLOTS=4096", SIGSEGV,
     SEGV_AT "1 byte past the end of live block % of 64 bytes" SLOT, ALLOCATED},
    {"past_a_guarded_block_of_a_used_slot", past_a_guarded_block_of_a_used_slot, GUARD, SIGSEGV,
     SEGV_AT "1 byte past the end of live block % of 64 bytes" SLOT, ALLOCATED},
    {"before_a_guarded_block", before_a_guarded_block, GUARD, SIGSEGV, SEGV_AT "1 byte before live block % of 64 bytes" SLOT, ALLOCATED},
    {"in_a_freed_guarded_block", in_a_freed_guarded_block, GUARD, SIGSEGV, SEGV_AT "byte 3 of freed block % of 64 bytes" SLOT,
     ALLOCATED | FREED},
    {"in_a_guarded_block_freed_elsewhere", in_a_guarded_block_freed_elsewhere, GUARD " " REPORT, SIGSEGV,
     SEGV_AT "byte 3 of freed block % of 64 bytes" SLOT, ALLOCATED | FREED | ELSEWHERE},
    {"free_twice", free_twice, GUARD, SIGABRT, "hakmem: double free: free\\(%\\): block is already free" SLOT, ALLOCATED | FREED},
    {"free_twice", free_twice, GUARD " " REPORT, SIGABRT,
     "hakmem: double free: free\\(%\\): block is already free" SLOT "hakmem: SIGABRT: sent by process #\n", ALLOCATED | FREED},
    {"free_interior", free_interior, GUARD, SIGABRT, "hakmem: interior pointer: free\\(@\\): not the start of a block" SLOT, ALLOCATED},
    {"free_misaligned", free_misaligned, GUARD, SIGABRT, "hakmem: misaligned pointer: free\\(@\\): no block starts at this address" SLOT,
     ALLOCATED},
    {"free_after_a_write_behind", free_after_a_write_behind, GUARD, SIGABRT,
     "hakmem: overflow: free\\(%\\): bytes beside the block were overwritten" SLOT, ALLOCATED | FREED},
    {"free_after_a_write_before", free_after_a_write_before, GUARD, SIGABRT,
     "hakmem: underflow: free\\(%\\): bytes beside the block were overwritten" SLOT, ALLOCATED | FREED},
    {"free_sized_larger", free_sized_larger, GUARD, SIGABRT, "hakmem: size mismatch: free_sized\\(%\\): block is smaller" SLOT,
     ALLOCATED | FREED},
    {"guarded_blocks_change_size", guarded_blocks_change_size, GUARD, 0, "", NO_STACK},
#endif
};
enum { CRASHES = sizeof crashes / sizeof crashes[0] };

/* ---- In the parent ---- */

/* `environ` with the options at its end, where they take precedence. */
static void build_environment(const char *options, char **all, size_t room, char *text) {
  size_t count = 0;
  for (; environ[count] && count + 4 < room; count++) all[count] = environ[count];
  strcpy(text, options);
  for (char *word = strtok(text, " "); word && count + 1 < room; word = strtok(NULL, " ")) all[count++] = word;
  all[count] = NULL;
}

/* The expression with the announced values in place of @, % and #, and the distance of @ from % in place of &. */
static void expand(const char *said, const char *announced, char *pattern, size_t room) {
  char at[32] = "", block[32] = "", process[32] = "", distance[32];
  sscanf(announced, "%31s %31s %31s", at, block, process);
  snprintf(distance, sizeof distance, "%lu", strtoul(at, NULL, 0) - strtoul(block, NULL, 0));
  size_t length = (size_t)snprintf(pattern, room, "^");
  for (; *said; said++) {
    const char *word = *said == '@' ? at : *said == '%' ? block : *said == '#' ? process : *said == '&' ? distance : NULL;
    char plain[] = {*said, 0};
    length += (size_t)snprintf(pattern + length, room - length, "%s", word ? word : plain);
  }
  snprintf(pattern + length, room - length, "$");
}

static bool matches(const char *text, const char *pattern) {
  regex_t compiled;
  bool found = regcomp(&compiled, pattern, REG_EXTENDED) == 0 && regexec(&compiled, text, 0, NULL, 0) == 0;
  regfree(&compiled);
  return found;
}

enum { FRAMES = 2, FRAMES_HERE = 1 };

typedef struct stacks {
  int found;       /* ALLOCATED, FREED: with at least FRAMES frames, one of them in this program */
  long threads[4]; /* in the same order */
} stacks_t;

static bool is_frame(const char *line) { return strncmp(line, "hakmem:   #", 11) == 0; }

/* Removes the stacks from the text. */
static stacks_t take_stacks(char *text) {
  stacks_t stacks = {0, {0}};
  char kept[TEXT] = "", here[4096];
  int which = 0, frames = 0, frames_here = 0;
  snprintf(here, sizeof here, " %s+0x", check_self());
  for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
    long thread = 0;
    if (which && is_frame(line)) {
      frames++, frames_here += strstr(line, here) != NULL;
      if (frames >= FRAMES && frames_here >= FRAMES_HERE) stacks.found |= which;
      continue;
    }
    which = sscanf(line, "hakmem: allocated by thread %ld:", &thread) == 1 ? ALLOCATED
            : sscanf(line, "hakmem: freed by thread %ld:", &thread) == 1   ? FREED
                                                                           : 0;
    stacks.threads[which] = thread;
    frames = frames_here = 0;
    if (!which) strcat(strcat(kept, line), "\n");
  }
  strcpy(text, kept);
  return stacks;
}

static bool has_stacks(const stacks_t *stacks, int want) {
  if (stacks->found != (want & (ALLOCATED | FREED))) return false;
  bool elsewhere = stacks->threads[ALLOCATED] != stacks->threads[FREED];
  return (want & FREED) == 0 || elsewhere == ((want & ELSEWHERE) != 0);
}

static bool ended_as(const crash_t *crash, int status) {
  if (crash->signal == 0) return WIFEXITED(status) && WEXITSTATUS(status) == 0;
  return WIFSIGNALED(status) && WTERMSIG(status) == crash->signal;
}

static bool run(const crash_t *crash) {
  static char errors[TEXT], rest[TEXT], output[TEXT], pattern[1024], options[256], *environment[1024];
  char *const argv[] = {(char *)(uintptr_t)check_self(), (char *)(uintptr_t)"-x", (char *)(uintptr_t)crash->name, NULL};
  build_environment(crash->options, environment, sizeof environment / sizeof environment[0], options);
  int status = check_spawn(argv, environment, LIMIT_SECONDS, errors, output, TEXT);
  expand(crash->said, output, pattern, sizeof pattern);
  strcpy(rest, errors);
  stacks_t stacks = take_stacks(rest);
  if (ended_as(crash, status) && has_stacks(&stacks, crash->stacks) && matches(rest, pattern)) return true;
  printf("FAIL %s, %s: ", crash->name, crash->options);
  if (WIFSIGNALED(status)) printf("%s, not signal %d\n", strsignal(WTERMSIG(status)), crash->signal);
  else printf("exit status %d, not signal %d\n", WEXITSTATUS(status), crash->signal);
  printf("  said: %s\n  expected: %s and stacks %d, not %d\n", errors, pattern, crash->stacks, stacks.found);
  return false;
}

int main(int argc, char **argv) {
  if (argc == 3 && strcmp(argv[1], "-x") == 0) {
    for (size_t i = 0; i < CRASHES; i++)
      if (strcmp(crashes[i].name, argv[2]) == 0) return crashes[i].run(), 0;
    return EXIT_BROKEN;
  }
  int passed = 0, failed = 0;
  for (size_t i = 0; i < CRASHES; i++) {
    if (!strstr(crashes[i].name, argc > 1 ? argv[1] : "")) continue;
    if (run(&crashes[i])) passed++;
    else failed++;
  }
  printf("%d passed, %d failed\n", passed, failed);
  return failed || !passed;
}
