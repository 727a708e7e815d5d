/* workload.h - what the benchmark programs share: arguments, threads, random numbers, tagged blocks, the result line.
 *
 * The arguments fix the amount of work, so the time is the result.
 */
#ifndef BENCH_WORKLOAD_H
#define BENCH_WORKLOAD_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
  WORKLOAD_THREADS = 256, /* at most */
  WORKLOAD_SMALLEST = 8,  /* a block has room for its tag or a pointer */
  WORKLOAD_APART = 128,   /* distance between data that different threads write */
  WORKLOAD_PAGE = 4096,
  WORKLOAD_MIXED_MEAN = 1274 /* of workload_mixed */
};

_Noreturn static inline void workload_fail(const char *what) {
  fprintf(stderr, "%s\n", what);
  _Exit(1);
}

/* ---- Arguments ---- */

/* A number, or, if the name lists words ("forward|reverse"), the index of one of them. */
typedef struct workload_argument {
  const char *name;
  uint64_t value; /* the default, until the command line changes it */
  uint64_t least, most;
} workload_argument_t;

_Noreturn static inline void workload_usage(const char *program, const workload_argument_t *arguments, int count) {
  fprintf(stderr, "usage: %s", program);
  for (int i = 0; i < count; i++) fprintf(stderr, " [%s]", arguments[i].name);
  fprintf(stderr, "\n");
  exit(2);
}

static inline bool workload_word(const char *words, const char *text, uint64_t *value) {
  size_t length = strlen(text);
  *value = 0;
  for (const char *word = words;; word++, ++*value) {
    size_t until = strcspn(word, "|");
    if (until == length && memcmp(word, text, length) == 0) return true;
    word += until;
    if (*word == 0) return false;
  }
}

static inline bool workload_number(const char *text, uint64_t *value) {
  char *end;
  *value = strtoull(text, &end, 10);
  return *text >= '0' && *text <= '9' && *end == 0;
}

static inline void workload_arguments(int argc, char **argv, workload_argument_t *arguments, int count) {
  if (argc > count + 1) workload_usage(argv[0], arguments, count);
  for (int i = 0; i + 1 < argc; i++) {
    workload_argument_t *argument = &arguments[i];
    const char *text = argv[i + 1];
    bool words = strchr(argument->name, '|') != NULL;
    bool good = words ? workload_word(argument->name, text, &argument->value)
                      : workload_number(text, &argument->value) && argument->value >= argument->least && argument->value <= argument->most;
    if (good) continue;
    if (words) fprintf(stderr, "%s: '%s' is not one of %s\n", argv[0], text, argument->name);
    else
      fprintf(stderr, "%s: %s: '%s' is not a number from %llu to %llu\n", argv[0], argument->name, text,
              (unsigned long long)argument->least, (unsigned long long)argument->most);
    workload_usage(argv[0], arguments, count);
  }
}

/* Arguments that many programs have, with their defaults. */
#define WORKLOAD_STEPS(usual) {"steps", usual, 1, UINT32_MAX}
#define WORKLOAD_SIZE(name, usual) {name, usual, WORKLOAD_SMALLEST, UINT32_MAX / 2}
#define WORKLOAD_COUNT(name, usual) {name, usual, 1, 1 << 24}
#define WORKLOAD_THREAD_COUNT(usual) {"threads", usual, 1, WORKLOAD_THREADS}
#define WORKLOAD_SEED {"seed", 1, 0, UINT32_MAX}

/* ---- Random numbers ---- */

static inline uint64_t workload_seed(uint64_t seed, uint64_t thread) {
  return (seed * WORKLOAD_THREADS + thread + 1) * UINT64_C(0x9e3779b97f4a7c15) | 1;
}

/* xorshift64: only a few instructions, so that the allocator is measured and not this. */
static inline uint32_t workload_random(uint64_t *state) {
  *state ^= *state << 13;
  *state ^= *state >> 7;
  *state ^= *state << 17;
  return (uint32_t)(*state >> 32);
}

/* Uniform in [0, bound). */
static inline uint32_t workload_below(uint64_t *state, uint32_t bound) {
  return (uint32_t)(((uint64_t)workload_random(state) * bound) >> 32);
}

/* Uniform from smallest to largest. */
static inline uint32_t workload_between(uint64_t *state, uint32_t smallest, uint32_t largest) {
  return smallest + workload_below(state, largest - smallest + 1);
}

/* From smallest to largest, with linearly falling probability. */
static inline uint32_t workload_falling(uint64_t *state, uint32_t smallest, uint32_t largest) {
  uint32_t one = workload_between(state, smallest, largest), other = workload_between(state, smallest, largest);
  return one < other ? one : other;
}

/* Sizes as in a program's heap: of 1000 blocks 950 are small, 49 up to 32 KiB, and one up to 1 MiB; each kind takes a considerable
 * share of the memory. */
static inline uint32_t workload_mixed(uint64_t *state) {
  uint32_t sort = workload_below(state, 1000);
  if (sort >= 50) return workload_falling(state, 16, 1 << 10);
  return sort > 0 ? workload_falling(state, 1 << 10, 32 << 10) : workload_falling(state, 32 << 10, 1 << 20);
}

/* ---- Blocks ---- */

/* Uses a new block as a program would: its beginning and its end are written. */
static inline void *workload_mark(void *block, size_t size, uint32_t tag) {
  if (block == NULL) workload_fail("a block was refused");
  volatile unsigned char *bytes = block;
  volatile uint32_t *first = block;
  bytes[size - 1] = (unsigned char)tag;
  *first = tag;
  return block;
}

static inline void *workload_block(size_t size, uint32_t tag) { return workload_mark(malloc(size), size, tag); }

static inline void workload_check(const void *block, uint32_t tag) {
  if (*(const uint32_t *)block != tag) workload_fail("a block lost its content");
}

static inline void workload_write_pages(void *block, size_t size) {
  volatile unsigned char *bytes = block;
  for (size_t at = WORKLOAD_PAGE; at < size; at += WORKLOAD_PAGE) bytes[at] = 1;
}

/* A table that the program itself keeps its blocks in. */
static inline void *workload_table(size_t count, size_t size) {
  void *table = calloc(count, size);
  if (table == NULL) workload_fail("a table was refused");
  return table;
}

/* ---- Threads ---- */

static inline void workload_join(pthread_t handle) {
  if (pthread_join(handle, NULL) != 0) workload_fail("a thread was lost");
}

/* Runs each item in its own thread, `rounds` times: when an item's thread has ended, a new one takes the item over.
 * With one thread and one round the caller runs the item itself, so the program never becomes multi-threaded. */
static inline void workload_threads(void *(*run)(void *), void *items, size_t item_size, uint64_t threads, uint64_t rounds) {
  pthread_t handles[WORKLOAD_THREADS];
  if (threads == 1 && rounds == 1) {
    run(items);
    return;
  }
  for (uint64_t round = 0; round < rounds; round++)
    for (uint64_t i = 0; i < threads; i++) {
      if (round > 0) workload_join(handles[i]);
      if (pthread_create(&handles[i], NULL, run, (char *)items + i * item_size) != 0) workload_fail("a thread was refused");
    }
  for (uint64_t i = 0; i < threads; i++) workload_join(handles[i]);
}

/* ---- The result ---- */

static inline double workload_seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* One line: name, operations (a malloc and a free are two), and their rate, all threads together. */
static inline void workload_report(const char *name, uint64_t operations, double seconds) {
  printf("%s: %llu operations in %.3f s, %.2f M operations/s\n", name, (unsigned long long)operations, seconds,
         (double)operations / seconds / 1e6);
}

#endif
