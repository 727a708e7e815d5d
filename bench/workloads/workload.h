/* workload.h - what the benchmark programs share: arguments, clock, random numbers, the result line.
 *
 * Each program prints one line: name, operations (a malloc and a free are two),
 * seconds, and millions of operations a second, all threads together.
 */
#ifndef BENCH_WORKLOAD_H
#define BENCH_WORKLOAD_H

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* The index-th argument as a number, or `otherwise` where there is none. */
static inline uint64_t workload_number(int argc, char **argv, int index, uint64_t otherwise) {
  if (index >= argc)
    return otherwise;
  char *end;
  uint64_t value = strtoull(argv[index], &end, 0);
  if (end == argv[index] || *end != 0) {
    fprintf(stderr, "%s: '%s' is not a number\n", argv[0], argv[index]);
    exit(2);
  }
  return value;
}

static inline double workload_seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* xorshift64: a few instructions, so that the allocator is what is measured. */
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

static inline void *workload_block(size_t size) {
  volatile unsigned char *block = malloc(size);
  if (block == NULL) {
    fprintf(stderr, "no block of %zu bytes\n", size);
    exit(1);
  }
  block[0] = (unsigned char)size; /* a program uses what it allocates */
  block[size - 1] = (unsigned char)size;
  return (void *)(uintptr_t)block;
}

static inline void workload_thread(pthread_t *handle, void *(*run)(void *), void *argument) {
  if (pthread_create(handle, NULL, run, argument) != 0) {
    fprintf(stderr, "no thread\n");
    exit(1);
  }
}

static inline void workload_report(const char *name, uint64_t operations, double seconds) {
  printf("%s: %llu operations in %.3f s, %.2f M operations/s\n", name, (unsigned long long)operations, seconds,
         (double)operations / seconds / 1e6);
}

#endif
