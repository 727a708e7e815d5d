/* random.h - a random number generator with one word of state (splitmix64): fast, not cryptographic.  One thread per state. */
#ifndef KIT_RANDOM_H
#define KIT_RANDOM_H

#include "base/bits.h"

/* What one number adds to the state; any odd number that is no simple pattern would do. */
#define RANDOM_STEP GOLDEN_RATIO_64

HAK_INLINE uint64_t random_mix(uint64_t x) {
  x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
  return x ^ x >> 31;
}

HAK_INLINE uint64_t random_next(uint64_t *state) { return random_mix(*state += RANDOM_STEP); }

/* Returns a number below `bound`, which must be small: the bias is bound / 2^32. */
HAK_INLINE uint32_t random_below(uint64_t *state, uint32_t bound) { return (uint32_t)((random_next(state) >> 32) * bound >> 32); }

#endif
