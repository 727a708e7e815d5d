/* expect.h - what the programs of this folder share: which library they are tried with, its geometry, and their own ways. */
#ifndef TESTS_DEATH_EXPECT_H
#define TESTS_DEATH_EXPECT_H

#include <stddef.h>
#include <stdint.h>

#ifdef EXPECT_SECURE
enum { SECURE = 1 };
#else
enum { SECURE = 0 };
#endif

enum {
  LARGEST_SLAB_BLOCK = 32768,
  CANARY = 8 * SECURE, /* what a class's blocks have beyond the usable size */
  EXIT_BROKEN = 2,     /* a process that could not even make its mistake */
};

extern char **environ;

/* The compiler must not see that what is done with it is wrong. */
static inline char *hide(const void *pointer) {
  const void *volatile hidden = pointer;
  return (char *)(uintptr_t)hidden;
}

/* The bytes of the block that a request gets, canary included: 16-byte steps to 128, then four for each doubling. */
static inline size_t class_bytes(size_t size) {
  size_t step = 16;
  while (size > 8 * step) step *= 2;
  return (size + step - 1) / step * step;
}

#endif
