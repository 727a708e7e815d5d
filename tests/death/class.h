/* class.h - the bytes of the block that a request gets, canary included: 16-byte steps to 128, then four for each doubling. */
#ifndef TESTS_DEATH_CLASS_H
#define TESTS_DEATH_CLASS_H

#include <stddef.h>

static inline size_t class_bytes(size_t size) {
  size_t step = 16;
  while (size > 8 * step) step *= 2;
  return (size + step - 1) / step * step;
}

#endif
