/* class.h - the size classes: 16-byte steps to 128, then four for each doubling; one for no bytes.
 *
 * Every class size is a multiple of 16, and of 2^k for the k that makes the
 * blocks of a slab naturally aligned to it.  A slab has as many units as keep
 * the unused tail small; the tail is never touched, so it costs addresses only. */
#ifndef SLAB_CLASS_H
#define SLAB_CLASS_H

#include "base/bits.h"
#include "base/config.h"

/* One more is for blocks of no bytes, which lie in inaccessible memory: no size but 0 leads to it. */
#define CLASS_ZERO 40
#define CLASS_COUNT (CLASS_ZERO + 1)
#define CLASS_NONE CLASS_COUNT

typedef struct class_info {
  uint32_t size;   /* bytes a block */
  uint32_t units;  /* units a slab */
  uint32_t blocks; /* blocks a slab */
  uint64_t inverse; /* ceil(2^40 / size) */
} class_info_t;

extern const class_info_t class_info[CLASS_COUNT];

/* The class of a size in 1..HAK_SMALL_MAX. */
HAK_INLINE unsigned class_of(size_t size) {
  if (size <= 128) return (unsigned)((size + 15) >> 4) - 1;
  unsigned shift = bits_highest64(size - 1) - 2;
  return 8 + (shift - 5) * 4 + (unsigned)((size - 1) >> shift) - 4;
}

/* The smallest class whose blocks hold `size` and start at multiples of `align`, or CLASS_NONE. */
HAK_INLINE unsigned class_of_aligned(size_t size, size_t align) {
  unsigned c = class_of(size);
  while (c < CLASS_ZERO && (class_info[c].size & (align - 1)) != 0) c++;
  return c < CLASS_ZERO ? c : CLASS_NONE;
}

/* The block that holds the byte at `offset` in a slab. */
HAK_INLINE uint32_t class_block_at(unsigned c, size_t offset) {
  return (uint32_t)(((uint64_t)offset * class_info[c].inverse) >> 40);
}

#endif
