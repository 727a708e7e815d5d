/* matrix.c - each misuse at each size, and the state of the program when it goes on afterwards.
 *
 * A misuse may have no effect, may be trapped (one line, SIGABRT), or may crash.
 * It must never lead to memory that malloc hands out twice, or to memory that
 * an attacker has chosen: after its misuse a process allocates and frees on,
 * and then checks all blocks that it holds.  The table states what must be
 * trapped besides.
 *
 *   matrix [filter]       run the misuses whose name contains `filter`
 *   matrix -x NAME SIZE   misuse in this process, for a debugger
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <hakmem/hakmem.h>

#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "expect.h"

enum { MOST_HELD = 1 << 16, TARGET = 1 << 16, LIMIT_SECONDS = 20 };

/* The exit status of a process that survives its misuse. */
enum { EXIT_SILENT = 0, EXIT_OVERLAP = EXIT_BROKEN + 1, EXIT_ATTACKER, EXIT_NOT_ZERO };

/* ---- The blocks that the process holds ---- */

typedef struct held {
  char *start;
  size_t size;
  bool marked; /* its first and last word are `mark` of its address */
} held_t;
static held_t held[MOST_HELD];
static size_t held_count;

/* Memory that an attacker would have malloc return. */
typedef struct range {
  const char *start;
  size_t size;
} range_t;
static range_t named[2];
static _Alignas(64) char target[TARGET];

static uint64_t mark(const char *start) { return (uintptr_t)start * UINT64_C(0x9e3779b97f4a7c15); }

static bool has_mark(const held_t *block) {
  uint64_t first, last, want = mark(block->start);
  memcpy(&first, block->start, sizeof first);
  memcpy(&last, block->start + block->size - sizeof last, sizeof last);
  return first == want && last == want;
}

static char *hold(char *start, size_t size, bool marked) {
  if (!start || held_count == MOST_HELD) _exit(EXIT_BROKEN);
  held[held_count++] = (held_t){start, size, marked};
  if (marked) memcpy(start, &(uint64_t){mark(start)}, 8), memcpy(start + size - 8, &(uint64_t){mark(start)}, 8);
  return start;
}

static void hold_many(size_t size, size_t count) {
  for (size_t i = 0; i < count; i++) hold(hak_malloc(size), size, true);
}

static void free_held(size_t i) {
  char *start = held[i].start;
  if (held[i].marked && !has_mark(&held[i])) _exit(EXIT_OVERLAP);
  held[i] = held[--held_count];
  hak_free(start);
}

static void free_all(void) {
  while (held_count > 0) free_held(held_count - 1);
}

/* The misuse that follows is of this block: the program no longer holds it. */
static char *let_go(char *start) {
  for (size_t i = 0; i < held_count; i++)
    if (held[i].start == start) held[i--] = held[--held_count];
  return start;
}

/* Sorts by address; qsort may allocate. */
static void sort_held(void) {
  for (size_t gap = held_count / 2; gap > 0; gap /= 2)
    for (size_t i = gap; i < held_count; i++) {
      held_t moving = held[i];
      size_t at = i;
      for (; at >= gap && held[at - gap].start > moving.start; at -= gap) held[at] = held[at - gap];
      held[at] = moving;
    }
}

static void look_at(const held_t *block, const char *before_ends) {
  for (size_t i = 0; i < sizeof named / sizeof named[0]; i++)
    if (block->start < named[i].start + named[i].size && named[i].start < block->start + block->size) _exit(EXIT_ATTACKER);
  if (hak_malloc_usable_size(block->start) < block->size || block->start < before_ends) _exit(EXIT_OVERLAP);
  if (block->marked && !has_mark(block)) _exit(EXIT_OVERLAP);
}

static void look(void) {
  const char *before_ends = NULL;
  sort_held();
  for (size_t i = 0; i < held_count; i++) {
    look_at(&held[i], before_ends);
    before_ends = held[i].start + hak_malloc_usable_size(held[i].start);
  }
}

/* ---- Going on after the misuse ---- */

/* So many that every free block of the size is in use, including blocks that wait in the secure library. */
static size_t many_of(size_t size) {
  return size <= 64 ? 6000 : size <= 1024 ? 2000 : size <= 4096 ? 300 : size <= LARGEST_SLAB_BLOCK ? 60 : size < 1 << 20 ? 20 : 6;
}

static bool is_zero(const char *start, size_t size) { return start[0] == 0 && memcmp(start, start + 1, size - 1) == 0; }

static bool callocs_are_zero(size_t size) {
  bool zero = true;
  for (int i = 0; i < 4; i++) {
    char *start = hold(hak_calloc(1, size), size, false);
    zero = zero && is_zero(start, size);
  }
  return zero;
}

/* In the secure library, large blocks wait for others too. */
static void come_and_go(size_t size) {
  for (int i = 0; i < 100; i++) hak_free(hak_malloc(size));
}

static void go_on(size_t size) {
  static const size_t others[] = {16, 48, 200, 1000, 4096, 20000, 100000, 1 << 20};
  bool zero = callocs_are_zero(size);
  for (int round = 0; round < 2; round++) {
    size_t first = held_count;
    hold_many(size, many_of(size));
    look();
    for (size_t i = first; i < held_count; i++) free_held(i); /* every second one: the last takes the freed one's place */
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) hold_many(others[i], many_of(others[i]) / 8 + 1);
    look();
  }
  come_and_go(size);
  hold_many(size, 2 * many_of(size));
  look();
  free_all();
  hold_many(size, many_of(size));
  look();
  _exit(zero ? EXIT_SILENT : EXIT_NOT_ZERO);
}

/* ---- The misuses ---- */

/* A block whose neighbours are held too. */
static char *new_block(size_t size) {
  size_t count = size > LARGEST_SLAB_BLOCK ? 5 : 64;
  for (size_t i = 0; i < count; i++) memset(hold(hak_malloc(size), size, false), 1, size);
  size_t stride = class_bytes(hak_malloc_usable_size(held[0].start) + CANARY);
  sort_held();
  for (size_t i = count / 2; i + 1 < count; i++) {
    char *block = held[i].start;
    if (held[i - 1].start == block - stride && held[i + 1].start == block + stride) return block;
  }
  if (size <= LARGEST_SLAB_BLOCK) _exit(EXIT_BROKEN);
  return held[count / 2].start; /* large blocks may lie apart */
}

static char *freed_block(size_t size) {
  char *block = let_go(new_block(size));
  hak_free(block);
  return hide(block);
}

/* If malloc has returned the block in the meantime, the program's mistake frees that block. */
static void free_again(char *block) { hak_free(let_go(hide(block))); }

static void free_some(size_t count) {
  for (size_t i = 0; i < count; i++) free_held(held_count - 1);
}

static void hold_some(size_t size, size_t count) {
  for (size_t i = 0; i < count; i++) hold(hak_malloc(size), size, false);
}

/* Started before the block exists: what pthread_create allocates could reuse it. */
typedef struct helper {
  pthread_t thread;
  sem_t ready;
  char *block;
  int times;
} helper_t;

static void *free_when_ready(void *argument) {
  helper_t *helper = argument;
  while (sem_wait(&helper->ready) != 0) continue;
  for (int i = 0; i < helper->times; i++) hak_free(hide(helper->block));
  return NULL;
}

static void start_helper(helper_t *helper, int times) {
  helper->times = times;
  if (sem_init(&helper->ready, 0, 0) != 0 || pthread_create(&helper->thread, NULL, free_when_ready, helper) != 0) _exit(EXIT_BROKEN);
}

static void free_by_helper(helper_t *helper, char *block) {
  helper->block = block;
  sem_post(&helper->ready);
  pthread_join(helper->thread, NULL);
}

static void free_twice(size_t size) { free_again(freed_block(size)); }

static void free_twice_after_others(size_t size) {
  char *block = freed_block(size);
  free_some(3);
  free_again(block);
}

static void free_twice_after_others_reused(size_t size) {
  char *block = freed_block(size);
  free_some(3);
  hold_some(size, 2);
  free_again(block);
}

/* All free blocks are handed out, except those that wait in the secure library. */
static void free_twice_after_reuse(size_t size) {
  char *block = freed_block(size);
  hold_some(size, many_of(size));
  free_again(block);
}

static void free_twice_elsewhere(size_t size) {
  helper_t helper;
  start_helper(&helper, 2);
  free_by_helper(&helper, let_go(new_block(size)));
}

static void free_here_after_elsewhere(size_t size) {
  helper_t helper;
  start_helper(&helper, 1);
  char *block = let_go(new_block(size));
  free_by_helper(&helper, block);
  free_again(block);
}

static void free_elsewhere_after_here(size_t size) {
  helper_t helper;
  start_helper(&helper, 1);
  free_by_helper(&helper, freed_block(size));
}

static size_t middle_of(const char *block) { return hak_malloc_usable_size(block) / 2 & ~(size_t)15; }

static void free_interior(size_t size) {
  char *block = new_block(size);
  hak_free(hide(block + middle_of(block)));
}

static void free_misaligned(size_t size) { hak_free(hide(new_block(size) + 8)); }

/* If another block starts there, that block is freed; with canaries none can start there. */
static void free_the_end(size_t size) {
  char *block = new_block(size), *end = block + hak_malloc_usable_size(block);
  if (!SECURE && hak_malloc_usable_size(end) != 0) hak_free(let_go(end));
  hak_free(hide(end));
}

static void free_page_inside(size_t size) { hak_free(hide(new_block(size) + 4096)); }

static void realloc_freed(size_t size) { hold(hak_realloc(freed_block(size), size + size / 2), size, false); }

static void realloc_interior(size_t size) {
  char *block = new_block(size);
  hold(hak_realloc(hide(block + middle_of(block)), size), size, false);
}

static void size_of_freed(size_t size) {
  if (hak_malloc_usable_size(freed_block(size)) != 0) _exit(EXIT_BROKEN);
}

static void size_of_interior(size_t size) {
  char *block = new_block(size);
  if (hak_malloc_usable_size(hide(block + middle_of(block))) != 0 || hak_malloc_usable_size(hide(block + 1)) != 0) _exit(EXIT_BROKEN);
}

static void free_sized_larger(size_t size) {
  char *block = let_go(new_block(size));
  hak_free_sized(block, hak_malloc_usable_size(block) + 1);
}

static void free_sized_smaller(size_t size) { hak_free_sized(let_go(new_block(size)), size / 2); }

/* Addresses of the target and of the stack, alternately. */
static void fill_with_links(char *from, size_t size) {
  for (size_t at = 0; at + sizeof(char *) <= size; at += sizeof(char *)) {
    const char *link = named[at / sizeof(char *) % 2].start + 4096;
    memcpy(from + at, &link, sizeof link);
  }
}

static void write_word_after_free(size_t size) { memset(freed_block(size), 'A', 8); }
static void write_all_after_free(size_t size) { memset(freed_block(size), 'A', size); }

/* Writes into several blocks, so that more allocations than the next could follow an address. */
static void write_links_after_free(size_t size) {
  char *block = freed_block(size);
  for (int i = 0; i < 8 && held_count > 0; i++) {
    char *other = held[held_count - 1].start;
    free_held(held_count - 1);
    fill_with_links(hide(other), size);
  }
  fill_with_links(block, size);
}

/* Writes past the usable size, and then frees all blocks. */
static void overflow(size_t size, size_t bytes) {
  char *block = new_block(size), *end = hide(block + hak_malloc_usable_size(block));
  if (bytes == 1) end[0] = (char)(end[0] ^ 1); /* a fixed value could be the one that is there */
  else fill_with_links(end, bytes);
  hak_free(let_go(block));
  free_all();
}

static void overflow_by_1(size_t size) { overflow(size, 1); }
static void overflow_by_8(size_t size) { overflow(size, 8); }
static void overflow_by_64(size_t size) { overflow(size, 64); }

static void underflow_by_8(size_t size) {
  fill_with_links((char *)hide(new_block(size)) - 8, 8);
  free_all();
}

static void free_among_overwritten(size_t size) {
  char *block = hide(new_block(size));
  size_t usable = hak_malloc_usable_size(block);
  memset(block - 64, 'A', 64);
  memset(block + usable, 'A', 64);
  hak_free(let_go(block));
  free_all();
}

static void write_to_nothing(size_t size) {
  char *block = hide(hak_malloc(0));
  block[0] = (char)size;
  hak_free(block);
}

/* ---- Wild pointers ---- */

static char *mapped(void) { return mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); }

static char *wild(const char *name) {
  char *map = mapped();
  if (strcmp(name, "wild_null_plus_16") == 0) return (char *)(uintptr_t)16;
  if (strcmp(name, "wild_1") == 0) return (char *)(uintptr_t)1;
  if (strcmp(name, "wild_low_page") == 0) return (char *)(uintptr_t)4096;
  if (strcmp(name, "wild_non_canonical") == 0) return (char *)((uintptr_t)0x5a5a << 48 | 0x1230);
  if (strcmp(name, "wild_kernel") == 0) return (char *)((uintptr_t)0xffff8880 << 32 | 0x1000);
  if (strcmp(name, "wild_stack") == 0) return (char *)(uintptr_t)named[1].start + 4096;
  if (strcmp(name, "wild_global") == 0) return target + 4096;
  if (strcmp(name, "wild_unmapped") == 0) munmap(map, 65536);
  return map;
}

static const char *misuse_name;
static void free_wild(size_t size) { hak_free(hide(wild(misuse_name) + 0 * size)); }
static void realloc_wild(size_t size) { hold(hak_realloc(hide(wild(misuse_name)), size), size, false); }
static void size_of_wild(size_t size) {
  if (hak_malloc_usable_size(hide(wild(misuse_name) + 0 * size)) != 0) _exit(EXIT_BROKEN);
}

/* ---- The table ---- */

/* The required result of a misuse, besides no overlap and no address of the attacker. */
typedef enum want { ANY, SURVIVE, TRAP, CRASH } want_t;

typedef struct misuse {
  const char *name;
  void (*run)(size_t size);
  want_t slab, large, secure_slab, secure_large;
  size_t smallest, largest; /* the range of sizes for which it makes sense */
} misuse_t;

#define ALL 16, SIZE_MAX
#define ALWAYS TRAP, TRAP, TRAP, TRAP
#define IN_SECURE ANY, ANY, TRAP, TRAP
#define BY_MEMORY ANY, ANY, TRAP, CRASH /* a large block is surrounded by inaccessible memory, and is inaccessible once freed */

static const misuse_t misuses[] = {
    {"free_twice", free_twice, ALWAYS, ALL},
    {"free_twice_after_others", free_twice_after_others, ALWAYS, ALL},
    {"free_twice_after_others_reused", free_twice_after_others_reused, TRAP, ANY, TRAP, TRAP, ALL},
    {"free_twice_after_reuse", free_twice_after_reuse, IN_SECURE, ALL},
    {"free_twice_elsewhere", free_twice_elsewhere, ALWAYS, ALL},
    {"free_here_after_elsewhere", free_here_after_elsewhere, ALWAYS, ALL},
    {"free_elsewhere_after_here", free_elsewhere_after_here, ALWAYS, ALL},
    {"free_interior", free_interior, ALWAYS, 200, SIZE_MAX},
    {"free_misaligned", free_misaligned, ALWAYS, ALL},
    {"free_the_end", free_the_end, ALWAYS, ALL},
    {"free_page_inside", free_page_inside, ALWAYS, 256 << 10, SIZE_MAX},
    {"realloc_freed", realloc_freed, ALWAYS, ALL},
    {"realloc_interior", realloc_interior, ALWAYS, 200, SIZE_MAX},
    {"size_of_freed", size_of_freed, SURVIVE, SURVIVE, TRAP, TRAP, ALL},
    {"size_of_interior", size_of_interior, SURVIVE, SURVIVE, TRAP, TRAP, 200, SIZE_MAX},
    {"free_sized_larger", free_sized_larger, ALWAYS, ALL},
    {"free_sized_smaller", free_sized_smaller, IN_SECURE, 200, SIZE_MAX},
    {"write_word_after_free", write_word_after_free, BY_MEMORY, ALL},
    {"write_all_after_free", write_all_after_free, BY_MEMORY, ALL},
    {"write_links_after_free", write_links_after_free, BY_MEMORY, ALL},
    {"overflow_by_1", overflow_by_1, BY_MEMORY, ALL},
    {"overflow_by_8", overflow_by_8, BY_MEMORY, ALL},
    {"overflow_by_64", overflow_by_64, BY_MEMORY, ALL},
    {"underflow_by_8", underflow_by_8, BY_MEMORY, ALL},
    {"free_among_overwritten", free_among_overwritten, BY_MEMORY, ALL},
    {"write_to_nothing", write_to_nothing, CRASH, CRASH, CRASH, CRASH, 16, 16},
};

static const char *const wilds[] = {"wild_null_plus_16", "wild_1",      "wild_low_page", "wild_non_canonical", "wild_kernel",
                                    "wild_stack",        "wild_global", "wild_mapped",   "wild_unmapped"};
/* A column for each call, in place of a size. */
static const misuse_t wild_calls[] = {
    {"free", free_wild, ALWAYS, ALL},
    {"realloc", realloc_wild, ALWAYS, ALL},
    {"usable", size_of_wild, SURVIVE, SURVIVE, TRAP, TRAP, ALL},
};

static const size_t sizes[] = {16, 200, 4096, 256 << 10, 4 << 20};
#define COUNT(array) (sizeof(array) / sizeof(array)[0])

/* `column` is a size, or the function to which a wild pointer is passed. */
static void misuse(const char *name, const char *column) {
  char on_stack[TARGET];
  named[0] = (range_t){target, sizeof target};
  named[1] = (range_t){hide(on_stack), sizeof on_stack};
  misuse_name = name;
  size_t size = strtoul(column, NULL, 10);
  for (size_t i = 0; i < COUNT(misuses); i++)
    if (strcmp(misuses[i].name, name) == 0) misuses[i].run(size), go_on(size);
  for (size_t i = 0; i < COUNT(wild_calls); i++)
    if (strcmp(wild_calls[i].name, column) == 0) wild_calls[i].run(64), go_on(64);
  _exit(EXIT_BROKEN);
}

/* ---- In the parent ---- */

typedef enum outcome { SILENT, NOT_ZERO, TRAPPED, CRASHED, OVERLAP, ATTACKER, HANG, BROKEN } outcome_t;
static const char *const outcomes[] = {"silent", "not zero", "trap", "crash", "OVERLAP", "ATTACKER", "HANG", "BROKEN"};
static int counts[COUNT(outcomes)];

static outcome_t run(const char *name, const char *column, char *errors, size_t room) {
  char *const argv[] = {(char *)(uintptr_t)check_self(), (char *)(uintptr_t)"-x", (char *)(uintptr_t)name, (char *)(uintptr_t)column, NULL};
  int status = check_spawn(argv, environ, LIMIT_SECONDS, errors, NULL, room);
  bool asks_size = strncmp(name, "size_of", 7) == 0 || strcmp(column, "usable") == 0;
  if (WIFSIGNALED(status)) {
    switch (WTERMSIG(status)) {
      case SIGABRT:
        if (!asks_size && strstr(errors, ": malloc_usable_size(")) return OVERLAP; /* look() has found a block that is not live */
        return strncmp(errors, "hakmem: ", 8) == 0 ? TRAPPED : BROKEN;
      case SIGSEGV:
      case SIGBUS: return errors[0] == 0 ? CRASHED : BROKEN;
      case SIGALRM: return HANG;
      default: return BROKEN;
    }
  }
  switch (WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_BROKEN) {
    case EXIT_SILENT: return SILENT;
    case EXIT_NOT_ZERO: return NOT_ZERO;
    case EXIT_OVERLAP: return OVERLAP;
    case EXIT_ATTACKER: return ATTACKER;
    default: return BROKEN;
  }
}

static bool is_wanted(want_t want, outcome_t outcome) {
  if (outcome >= OVERLAP) return false;
  switch (want) {
    case SURVIVE: return outcome == SILENT;
    case TRAP: return outcome == TRAPPED;
    case CRASH: return outcome == CRASHED;
    default: return true;
  }
}

/* One cell of the printed table. */
static bool try_one(const misuse_t *misuse, const char *name, const char *column, bool large) {
  char errors[4096];
  outcome_t outcome = run(name, column, errors, sizeof errors);
  want_t want = SECURE ? (large ? misuse->secure_large : misuse->secure_slab) : (large ? misuse->large : misuse->slab);
  bool right = is_wanted(want, outcome);
  printf(" %9s%c", outcomes[outcome], right ? ' ' : '!');
  if (!right) fprintf(stderr, "FAIL %s %s: %s\n%s", name, column, outcomes[outcome], errors);
  counts[outcome]++;
  return right;
}

static int try_sizes(const char *filter) {
  int failed = 0;
  printf("%-31s %9s  %9s  %9s  %9s  %9s\n", "misuse", "16", "200", "4096", "256 KiB", "4 MiB");
  for (size_t i = 0; i < COUNT(misuses); i++) {
    if (!strstr(misuses[i].name, filter)) continue;
    printf("%-31s", misuses[i].name);
    for (size_t j = 0; j < COUNT(sizes); j++) {
      char column[32];
      snprintf(column, sizeof column, "%zu", sizes[j]);
      if (sizes[j] < misuses[i].smallest || sizes[j] > misuses[i].largest) printf(" %9s ", "-");
      else failed += !try_one(&misuses[i], misuses[i].name, column, sizes[j] > LARGEST_SLAB_BLOCK);
    }
    printf("\n");
  }
  return failed;
}

static int try_wild(const char *filter) {
  int failed = 0;
  printf("%-31s %9s  %9s  %9s\n", "pointer", "free", "realloc", "usable");
  for (size_t i = 0; i < COUNT(wilds); i++) {
    if (!strstr(wilds[i], filter)) continue;
    printf("%-31s", wilds[i]);
    for (size_t j = 0; j < COUNT(wild_calls); j++) failed += !try_one(&wild_calls[j], wilds[i], wild_calls[j].name, false);
    printf("\n");
  }
  return failed;
}

int main(int argc, char **argv) {
  if (argc == 4 && strcmp(argv[1], "-x") == 0) misuse(argv[2], argv[3]);
  const char *filter = argc > 1 ? argv[1] : "";
  int failed = try_sizes(filter) + try_wild(filter), tried = 0;
  for (size_t i = 0; i < COUNT(outcomes); i++) {
    if (counts[i] > 0) printf("%s %d, ", outcomes[i], counts[i]);
    tried += counts[i];
  }
  printf("%d of %d wrong\n", failed, tried);
  return failed > 0 || tried == 0;
}
