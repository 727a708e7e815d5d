/* attacks.c - small programs, each with one mistake, and which library ends them.
 *
 * Each row of the table is such a program, run by itself with each of its sizes: it makes its mistake, continues for a while as a
 * program would, and returns from main.  An end is a line of ours with SIGABRT, or a fault at the wrong instruction.  The
 * table states the required result for each library and kind of block; the last line counts the ends.
 *
 *   attacks [filter]       run the rows whose name contains `filter`
 *   attacks -x NAME SIZE   attack in this process, for a debugger
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <hakmem/hakmem.h>

#include <pthread.h>
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

/* musl allocates when pthread_atfork is called, which hakmem's start does. */
#ifdef __GLIBC__
enum { LIBC_ALLOCATES_FIRST = 0 };
#else
enum { LIBC_ALLOCATES_FIRST = 1 };
#endif
enum { LIMIT_SECONDS = 20, MANY = 300 };

/* ---- Building blocks ---- */

static volatile char sink;
static void *volatile kept[MANY];

static char *get(size_t size) {
  char *block = hide(hak_malloc(size));
  if (block == NULL) _exit(EXIT_BROKEN);
  return block;
}

static char *filled(size_t size) { return memset(get(size), 'a', size); }
static void drop(char *block) { hak_free(hide(block)); }
/* Changes the bytes, whatever their values are. */
static void put(char *at, size_t count) {
  for (size_t i = 0; i < count; i++) ((volatile char *)hide(at))[i] ^= 'A';
}
static void look(const char *at) { sink = *(volatile char *)hide(at); }

/* Continues like a program: allocates and frees blocks of the size. */
static void go_on(size_t size) {
  for (int i = 0; i < 20; i++) drop(filled(size));
}

/* A block with others before and behind it, all of them held. */
static char *among(size_t size) {
  char *block = NULL;
  for (int i = 0; i < 12; i++) {
    kept[i] = filled(size);
    if (i == 6) block = kept[i];
  }
  return block;
}

/* ---- Overflows ---- */

static void overflow(size_t size, size_t count) {
  char *block = among(size);
  put(block + size, count);
  drop(block);
}

static void overflow_1(size_t size) { overflow(size, 1); }
static void overflow_8(size_t size) { overflow(size, 8); }
static void overflow_64(size_t size) { overflow(size, 64); }
static void overflow_4096(size_t size) { overflow(size, 4096); }
static void overflow_far(size_t size) { overflow(size, 300000); }

/* Writes the end of a string for which no room was requested. */
static void overflow_nul(size_t size) {
  char *block = among(size);
  hide(block)[size] = 0;
  drop(block);
}

static void overflow_string(size_t size) {
  char *text = filled(size + 5), *block = among(size);
  text[size + 4] = 0;
  strcpy(hide(block), text);
  drop(block);
}

static void overflow_never_freed(size_t size) { put(among(size) + size, 1); }
static void overflow_64_never_freed(size_t size) { put(among(size) + size, 64); }

static void overflow_after_realloc(size_t size) {
  char *block = hak_realloc(among(size), size + 3);
  if (block == NULL) _exit(EXIT_BROKEN);
  put(block + size + 3, 1);
  drop(block);
}

static void overflow_after_shrinking(size_t size) {
  char *block = hak_realloc(among(size), size - size / 16 - 1);
  if (block == NULL) _exit(EXIT_BROKEN);
  put(block + size - size / 16 - 1, 1);
  drop(block);
}

static void overflow_then_realloc(size_t size) {
  char *block = among(size);
  put(block + size, 1);
  block = hak_realloc(block, size + 1);
  drop(block);
}

static void overflow_calloc(size_t size) {
  char *block = hide(hak_calloc(1, size));
  put(block + size, 1);
  drop(block);
}

static void overflow_aligned(size_t size) {
  char *block = hide(hak_aligned_alloc(256, size));
  put(block + size, 1);
  drop(block);
}

static void overflow_aligned_to_units(size_t size) {
  char *block = hide(hak_aligned_alloc(65536, size));
  put(block + size, 1);
  drop(block);
}

static void read_past_the_end(size_t size) {
  char *block = among(size);
  look(block + size);
  drop(block);
}

static void read_far_past_the_end(size_t size) {
  char *block = among(size);
  for (size_t at = 0; at < 300000; at += 16) look(block + size + at);
  drop(block);
}

/* ---- Underflows ---- */

static void underflow(size_t size, size_t count) {
  char *block = among(size);
  put(block - count, count);
  drop(block);
}

static void underflow_1(size_t size) { underflow(size, 1); }
static void underflow_8(size_t size) { underflow(size, 8); }
static void underflow_64(size_t size) { underflow(size, 64); }
static void underflow_far(size_t size) { underflow(size, 200000); }

static void underflow_alone(size_t size) {
  char *block = filled(size);
  put(block - 8, 8);
  drop(block);
}

static void underflow_never_freed(size_t size) { put(among(size) - 8, 8); }

static void underflow_freeing_all(size_t size) {
  put(among(size) - 8, 8);
  for (int i = 0; i < 12; i++) drop(kept[i]);
}

/* ---- After free ---- */

static char *freed(size_t size) {
  char *block = among(size);
  drop(block);
  return block;
}

static void read_after_free(size_t size) { look(freed(size)); }
static void write_after_free(size_t size) { put(freed(size), 8); }

static void write_the_end_after_free(size_t size) { put(freed(size) + size - 1, 1); }

static void write_after_free_and_go_on(size_t size) {
  put(freed(size), 8);
  for (int i = 0; i < MANY; i++) kept[i] = get(size);
}

static void write_after_free_of_others(size_t size) {
  char *block = freed(size);
  go_on(size);
  put(block, 8);
}

static void read_after_free_of_others(size_t size) {
  char *block = freed(size);
  go_on(size);
  look(block);
}

static void write_after_realloc(size_t size) {
  char *block = among(size), *moved = hak_realloc(block, size * 3 + 100);
  if (moved == NULL) _exit(EXIT_BROKEN);
  if (moved != block) put(block, 8);
  else abort();
}

static void read_after_realloc(size_t size) {
  char *block = among(size), *moved = hak_realloc(block, size * 3 + 100);
  if (moved == NULL) _exit(EXIT_BROKEN);
  if (moved != block) look(block);
  else abort();
}

static void end_well(void) { _exit(0); }

static void call_after_free(size_t size) {
  char *block = among(size);
  void (*function)(void) = end_well;
  memcpy(block, &function, sizeof function);
  drop(block);
  memcpy(&function, hide(block), sizeof function);
  function();
}

/* ---- Frees ---- */

static void free_twice(size_t size) { drop(freed(size)); }

static void free_twice_with_one_between(size_t size) {
  char *block = freed(size);
  drop(filled(size));
  drop(block);
}

static void free_twice_later(size_t size) {
  char *block = freed(size);
  go_on(size);
  drop(block);
}

/* Started before the free: what a libc allocates for a thread could reuse the block. */
static void *drop_when_told(void *block) {
  char *_Atomic *told = block;
  while (*told == NULL) usleep(50);
  return drop(*told), NULL;
}
static void free_twice_by_another(size_t size) {
  static char *_Atomic told;
  pthread_t thread;
  if (pthread_create(&thread, NULL, drop_when_told, &told) != 0) _exit(EXIT_BROKEN);
  told = freed(size);
  if (pthread_join(thread, NULL) != 0) _exit(EXIT_BROKEN);
}

static void free_after_realloc(size_t size) {
  char *block = among(size), *moved = hak_realloc(block, size * 3 + 100);
  if (moved == block || moved == NULL) abort();
  drop(block);
}

static void realloc_after_free(size_t size) { kept[0] = hak_realloc(freed(size), size * 2); }
static void free_inside(size_t size) { drop(among(size) + 16); }
static void free_misaligned(size_t size) { drop(among(size) + 1); }
static void free_before(size_t size) { drop(among(size) - 16); }
static void free_behind(size_t size) { drop(among(size) + ((size + 15) & ~(size_t)15) + 16); }
static void free_of_the_stack(size_t size) { drop((char *)&size); }
static void free_of_a_global(size_t size) { drop((char *)(uintptr_t)&kept[size % 16]); }
static void free_of_code(size_t size) { drop((char *)(uintptr_t)free_of_code + size * 0); }
static void free_of_the_environment(size_t size) { drop(environ[0] + size * 0); }
static void free_of_a_number(size_t size) { drop((char *)(uintptr_t)size); }

static void free_of_a_mapping(size_t size) {
  drop((char *)mmap(NULL, size + 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) + 16);
}

static void free_of_what_was_never_set(size_t size) {
  void **block = (void **)(void *)filled(size);
  drop(block[0]);
}

static void free_of_a_made_up_chunk(size_t size) {
  static _Alignas(64) size_t chunk[64];
  chunk[1] = size | 1, chunk[9] = 0x41;
  drop((char *)&chunk[2]);
}

static void usable_size_after_free(size_t size) { sink = (char)hak_malloc_usable_size(freed(size)); }
static void usable_size_inside(size_t size) { sink = (char)hak_malloc_usable_size(among(size) + 16); }

/* ---- Sizes that the program passes ---- */

static void free_sized_smaller(size_t size) { hak_free_sized(among(size), size / 2); }
static void free_sized_larger(size_t size) { hak_free_sized(among(size), size * 2); }
static void free_sized_one_less(size_t size) { hak_free_sized(among(size), size - 1); }
static void free_sized_one_more(size_t size) { hak_free_sized(among(size), size + 1); }

/* ---- Blocks of no bytes ---- */

static void nothing_read(size_t size) { look(get(size * 0)); }
static void nothing_written(size_t size) { put(get(size * 0), 1); }
static void nothing_overflown(size_t size) { put(get(size * 0) + 8, 8); }
static void nothing_by_calloc(size_t size) { put(hide(hak_calloc(0, size)), 1); }
static void nothing_freed_twice(size_t size) {
  char *block = get(size * 0);
  drop(block), drop(block);
}
static void nothing_by_an_array(size_t size) {
  char **array = (char **)(void *)get(size * 0 * sizeof(char *));
  array[0] = (char *)(uintptr_t)size;
  drop((char *)array);
}
static void nothing_read_after_free(size_t size) {
  char *block = get(size * 0);
  drop(block), look(block);
}

/* ---- The table ---- */

/* Whether such a program is ended: in the default library, then in the secure one. */
typedef struct attack {
  const char *name;
  void (*run)(size_t size);
  unsigned sizes; /* bits of `sizes` below */
  const char *ends; /* a sign for each size, in the order of `sizes`: default, then secure. x: ends, -: goes on, .: either,
                       * f: ends if no block comes before it, which is so if libc allocates nothing before main */
} attack_t;

static const size_t sizes[] = {20, 100, 1000, 5000, 100000, 262144};
enum { SIZES = sizeof sizes / sizeof sizes[0], EVERY = 63, ONE = 2 };

#include "attacks.def"

/* ---- In the parent ---- */

static bool ends(const attack_t *attack, const char *size, char *errors, size_t room, bool *broken) {
  char *const argv[] = {(char *)(uintptr_t)check_self(), (char *)(uintptr_t)"-x", (char *)(uintptr_t)attack->name, (char *)(uintptr_t)size,
                        NULL};
  int status = check_spawn(argv, environ, LIMIT_SECONDS, errors, NULL, room);
  if (WIFSIGNALED(status)) {
    int number = WTERMSIG(status);
    *broken = !(number == SIGABRT && strncmp(errors, "hakmem: ", 8) == 0) && number != SIGSEGV && number != SIGBUS;
    return true;
  }
  *broken = !WIFEXITED(status) || WEXITSTATUS(status) != 0;
  return false;
}

static int try_one(const attack_t *attack, size_t i, unsigned *ended) {
  char size[32], errors[4096];
  bool broken, wrong = false;
  snprintf(size, sizeof size, "%zu", sizes[i]);
  bool end = ends(attack, size, errors, sizeof errors, &broken);
  char want = attack->ends[SECURE * (SIZES + 1) + i];
  if (want == 'f') want = LIBC_ALLOCATES_FIRST ? '-' : 'x';
  wrong = broken || (want == 'x' && !end) || (want == '-' && end);
  putchar(broken ? '?' : end ? 'x' : '-');
  if (wrong) fprintf(stderr, "FAIL %s %s: %s, not %c\n%s", attack->name, size, broken ? "broken" : end ? "ended" : "went on", want, errors);
  *ended += end;
  return wrong;
}

int main(int argc, char **argv) {
  const size_t count = sizeof attacks / sizeof attacks[0];
  if (argc == 4 && strcmp(argv[1], "-x") == 0) {
    for (size_t i = 0; i < count; i++) {
      if (strcmp(attacks[i].name, argv[2]) == 0) return attacks[i].run(strtoul(argv[3], NULL, 10)), 0;
    }
    return EXIT_BROKEN;
  }
  unsigned ended = 0, tried = 0;
  int failed = 0;
  for (size_t i = 0; i < count; i++) {
    if (argc > 1 && !strstr(attacks[i].name, argv[1])) continue;
    for (size_t j = 0; j < SIZES; j++) {
      if ((attacks[i].sizes >> j & 1) == 0) putchar(' ');
      else failed += try_one(&attacks[i], j, &ended), tried++;
    }
    printf("  %s\n", attacks[i].name);
    fflush(stdout);
  }
  printf("%u of %u end, %d other than wanted\n", ended, tried, failed);
  return failed > 0 || tried == 0;
}
