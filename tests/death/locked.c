/* locked.c - faults that are found while the allocator is at work, some under a heap's lock, in a program whose SIGABRT handler
 * allocates and frees: one line is printed, the handler runs to its end, and the process ends.  Nothing hangs.
 *
 * The fault under the lock is a block that comes back a second time although both frees have found it live, as can happen with two threads
 * at the same instant (docs/security.md).  Here the block's live bit is set again between the two frees. These programs therefore
 * use internal functions, and are linked with the archive.
 *
 *   locked [filter]   run the rows whose name contains `filter`
 *   locked -x NAME    misuse in this process, for a debugger
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <hakmem/hakmem.h>

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "expect.h"
#include "space/region.h"

enum { SIZE = 1000, CLASS = 1024, BLOCKS = 2000, LIMIT_SECONDS = 60 };
static const char handled[] = "handled\n";

/* ---- In the misusing process ---- */

static void *get(size_t size) {
  void *block = hak_malloc(size);
  if (block == NULL) _exit(EXIT_BROKEN);
  return memset(block, 'a', size);
}

static void allocate_and_free(int number) {
  static const size_t sizes[] = {0, 16, SIZE, 4000, 30000, 300000, (size_t)5 << 20};
  void *blocks[64];
  (void)number;
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
    for (int j = 0; j < 64; j++) blocks[j] = get(sizes[i]);
    for (int j = 0; j < 64; j++) hak_free(blocks[j]);
  }
  if (write(STDOUT_FILENO, handled, sizeof handled - 1) < 0) _exit(EXIT_BROKEN);
}

static void *many[BLOCKS];
static void take_many(void) {
  for (int i = 0; i < BLOCKS; i++) many[i] = get(SIZE);
}
static void give_many(void) {
  for (int i = 0; i < BLOCKS; i++) hak_free(many[i]);
}

static char content[CLASS]; /* the secure library also recognises a live block by it */

static void *in_thread(void (*run)(void)) {
  pthread_t thread;
  union {
    void (*run)(void);
    void *(*start)(void *);
  } code = {run};
  if (pthread_create(&thread, NULL, code.start, NULL) != 0 || pthread_join(thread, NULL) != 0) _exit(EXIT_BROKEN);
  return NULL;
}

static void *twice; /* the block */
static void take_it(void) {
  take_many();
  twice = many[BLOCKS / 2];
  many[BLOCKS / 2] = get(SIZE);
  memcpy(content, twice, CLASS);
}
static void free_it(void) { hak_free(hide(twice)); }
static void free_it_again(void) {
  memcpy(hide(twice), content, CLASS);
  region_set_live(twice);
  free_it();
}
static void collect(void) { (void)hak_collect(true); }
static void free_it_again_and_collect(void) {
  free_it_again();
  collect();
}

/* Found when a bin is flushed that holds the block twice. */
static void flush(void) {
  take_it();
  free_it();
  free_it_again();
  give_many();
}

static void trim(void) {
  take_it();
  free_it();
  free_it_again();
  collect();
}

/* Found when a thread ends. */
static void free_twice_and_end(void) {
  take_it();
  free_it();
  free_it_again();
}
static void detach(void) { (void)in_thread(free_twice_and_end); }

/* The block is free in its slab when another thread's free of it is collected: by its owner that needs blocks, */
static void refill(void) {
  take_it();
  free_it();
  collect();
  (void)in_thread(free_it_again_and_collect);
  take_many();
  take_many();
}
/* by another thread that trims every heap, */
static void trim_others(void) {
  take_it();
  free_it();
  collect();
  (void)in_thread(free_it_again);
  (void)in_thread(collect);
}
/* or by the freeing thread, since the owner has ended. */
static void help(void) {
  (void)in_thread(take_it);
  free_it();
  collect();
  free_it_again_and_collect();
}

static void free_twice(void) {
  take_it();
  free_it();
  free_it();
}
static void free_inside(void) { hak_free(hide((char *)get(SIZE) + 16)); }
static void free_foreign(void) { hak_free(hide(&twice)); }
static void free_large_twice(void) {
  void *block = get((size_t)5 << 20);
  hak_free(block);
  hak_free(hide(block));
}
static void free_sized_larger(void) { hak_free_sized(hide(get(SIZE)), 2 * SIZE); }

static void overflow(void) {
  char *block = get(SIZE);
  hide(block)[SIZE] ^= 2;
  hak_free(block);
}
static void overflow_never_freed(void) { hide(get(SIZE))[SIZE] ^= 2; }
static void overflow_large(void) {
  char *block = get(300001);
  hide(block)[300001] = 1;
  hak_free(block);
}
static void write_after_free(void) {
  take_it();
  free_it();
  hide(twice)[8] = 1;
  give_many(); /* it has waited long enough */
  for (int i = 0; i < 2 * BLOCKS; i++) (void)get(SIZE);
}
static void write_after_free_until_exit(void) {
  take_it();
  free_it();
  hide(twice)[8] = 1;
}

/* Every block is on a page of its own. */
static void overflow_guarded(void) {
  for (int i = 0; i < 20; i++) {
    char *block = get(SIZE);
    hide(block)[SIZE] = 1;
    hak_free(block);
  }
}

typedef struct row {
  const char *name;
  void (*run)(void);
  const char *fault;
  int library; /* 0 and 1: only the default or the secure library; 2: both */
} row_t;

static const row_t rows[] = {
    {"flush", flush, "double free: free", 2},
    {"trim", trim, "double free: free", 2},
    {"detach", detach, "double free: free", 2},
    {"refill", refill, "double free: free", 2},
    {"trim_others", trim_others, "double free: free", 2},
    {"help", help, "double free: free", 2},
    {"free_twice", free_twice, "double free: free", 2},
    {"free_inside", free_inside, "interior pointer: free", 2},
    {"free_foreign", free_foreign, "foreign pointer: free", 2},
    {"free_large_twice", free_large_twice, "double free: free", 2},
    {"free_sized_larger", free_sized_larger, "size mismatch: free_sized", 2},
    {"overflow", overflow, "overflow: free", 1},
    {"overflow_never_freed", overflow_never_freed, "overflow: exit", 1},
    {"overflow_large", overflow_large, "overflow: free", 1},
    {"write_after_free", write_after_free, "use after free: malloc", 1},
    {"write_after_free_until_exit", write_after_free_until_exit, "use after free: exit", 1},
    {"overflow_guarded", overflow_guarded, "overflow: free", 0},
};

/* ---- In the parent ---- */

/* The stacks of a guard slot may follow. */
static bool says_once(const char *errors, const char *fault) {
  char start[128];
  snprintf(start, sizeof start, "hakmem: %s(0x", fault);
  return strncmp(errors, start, strlen(start)) == 0 && strstr(errors + strlen(start), "(0x") == NULL && strstr(errors, "handler") == NULL;
}

static int try_one(const row_t *row) {
  char errors[8192], output[256];
  char *const argv[] = {(char *)(uintptr_t)check_self(), (char *)(uintptr_t)"-x", (char *)(uintptr_t)row->name, NULL};
  int status = check_spawn(argv, environ, LIMIT_SECONDS, errors, output, sizeof output);
  /* If there is a quarantine, the lock of the thread's own heap is held too: then the handler is not promised to reach its end. */
  bool may_stop = SECURE && row->run == help;
  bool good =
      WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT && says_once(errors, row->fault) && (may_stop || strcmp(output, handled) == 0);
  printf("%s: %s\n", good ? "good" : "FAILED", row->name);
  if (!good) printf("  status %#x, %s\n%s", (unsigned)status, output, errors);
  return !good;
}

int main(int argc, char **argv) {
  const size_t count = sizeof rows / sizeof rows[0];
  if (argc == 3 && strcmp(argv[1], "-x") == 0) {
    if (signal(SIGABRT, allocate_and_free) == SIG_ERR) return EXIT_BROKEN;
    for (size_t i = 0; i < count; i++) {
      if (strcmp(rows[i].name, argv[2]) == 0) return rows[i].run(), 0;
    }
    return EXIT_BROKEN;
  }
  int failed = 0, tried = 0;
  setenv("HAKMEM_GUARD_EVERY", "1", 1);
  for (size_t i = 0; i < count; i++) {
    if ((argc > 1 && strstr(rows[i].name, argv[1]) == NULL) || rows[i].library == !SECURE) continue;
    setenv("HAKMEM_GUARD", rows[i].run == overflow_guarded ? "1" : "0", 1);
    failed += try_one(&rows[i]);
    tried++;
  }
  return failed > 0 || tried == 0;
}
