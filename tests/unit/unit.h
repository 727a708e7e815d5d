/* unit.h - what the unit tests share: numbers from a seed, memory with a pattern. */
#ifndef TESTS_UNIT_UNIT_H
#define TESTS_UNIT_UNIT_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

/* Of the run: UNIT_SEED in the environment, or always the same. */
static inline uint64_t unit_seed(void) {
  const char *text = getenv("UNIT_SEED");
  return text != NULL ? strtoull(text, NULL, 0) * 2 + 1 : 88172645463325252u;
}

/* xorshift64*; the state is never 0. */
static inline uint32_t unit_random(uint64_t *state) {
  *state ^= *state >> 12;
  *state ^= *state << 25;
  *state ^= *state >> 27;
  return (uint32_t)((*state * 2685821657736338717u) >> 32);
}

static inline uint32_t unit_below(uint64_t *state, uint32_t end) { return (uint32_t)(((uint64_t)unit_random(state) * end) >> 32); }

static inline bool unit_is_zero(const void *start, size_t bytes) {
  const char *at = start;
  return bytes == 0 || (at[0] == 0 && memcmp(at, at + 1, bytes - 1) == 0);
}

#endif
