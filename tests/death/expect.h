/* expect.h - shared by the programs of this folder: which library they are tested with, its geometry, and helpers. */
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
  CANARY = 8 * SECURE, /* the bytes of a class's blocks beyond the usable size */
  EXIT_BROKEN = 2,     /* a process that could not even make its mistake */
};

extern char **environ;

/* Hides from the compiler that the pointer is misused. */
static inline char *hide(const void *pointer) {
  const void *volatile hidden = pointer;
  return (char *)(uintptr_t)hidden;
}

/* The size of the block that serves a request, canary included: 16-byte steps to 128, then four steps for each doubling. */
static inline size_t class_bytes(size_t size) {
  size_t step = 16;
  while (size > 8 * step) step *= 2;
  return (size + step - 1) / step * step;
}

#endif
