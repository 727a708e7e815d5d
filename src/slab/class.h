/* class.h - the size classes: 16-byte steps to 128, then four for each doubling; one for no bytes.
 *
 * Every class size is a multiple of 16; where it is a multiple of 2^k, all blocks of a slab are aligned to 2^k.  A slab has as many units
 * as keep the unused tail small; the tail is never touched, so it costs addresses only. */
#ifndef SLAB_CLASS_H
#define SLAB_CLASS_H

#include "base/bits.h"
#include "base/config.h"

/* One more class is for blocks of no bytes, which lie in inaccessible memory: no size but 0 leads to it. */
#define CLASS_ZERO 44
#define CLASS_COUNT (CLASS_ZERO + 1)
#define CLASS_NONE CLASS_COUNT

/* All classes in order, as CLASS(bytes a block, units a slab), for a user that defines CLASS. */
#define CLASS_DOUBLING(from, units) \
  CLASS((from) / 4 * 5, units), CLASS((from) / 4 * 6, units), CLASS((from) / 4 * 7, units), CLASS((from) / 4 * 8, units)
#define CLASS_SIZES                                                                                                             \
  CLASS(16, 1), CLASS(32, 1), CLASS(48, 1), CLASS(64, 1), CLASS(80, 1), CLASS(96, 1), CLASS(112, 1), CLASS(128, 1),             \
      CLASS_DOUBLING(128, 1), CLASS_DOUBLING(256, 1), CLASS_DOUBLING(512, 1), CLASS_DOUBLING(1024, 1), CLASS_DOUBLING(2048, 1), \
      CLASS_DOUBLING(4096, 1), CLASS_DOUBLING(8192, 2), CLASS_DOUBLING(16384, 4), CLASS_DOUBLING(32768, 4), CLASS(16, 1) /* CLASS_ZERO */

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

/* --- what a program asks for --- */

/* Bytes of a slab's block that the program may not use: the secure library's canary. */
#define CLASS_CANARY ((size_t)(HAK_SECURE ? 8 : 0))
/* The largest size that a slab's block holds. */
#define SMALL_REQUEST_MAX (HAK_SMALL_MAX - CLASS_CANARY)
/* The smallest size that a large block is made or resized for. */
#define LARGE_REQUEST_MIN ((SMALL_REQUEST_MAX < HAK_SMALL_MAX_ZEROED ? SMALL_REQUEST_MAX : HAK_SMALL_MAX_ZEROED) + 1)

/* The bytes of a class's block that the program may use; in the secure library it may use what it has requested, at most these. */
HAK_INLINE size_t class_usable(unsigned c) { return c == CLASS_ZERO ? 0 : class_info[c].size - CLASS_CANARY; }
/* The class of a request of up to SMALL_REQUEST_MAX bytes. */
HAK_INLINE unsigned class_of_request(size_t size) { return size == 0 ? CLASS_ZERO : class_of(size + CLASS_CANARY); }
/* The same, aligned; CLASS_NONE where only a large block will do. */
HAK_INLINE unsigned class_of_request_aligned(size_t size, size_t align) {
  if (size > SMALL_REQUEST_MAX || align > HAK_SMALL_MAX) return CLASS_NONE;
  if (align <= HAK_GRANULE) return class_of_request(size);
  size_t least = size + CLASS_CANARY;
  return class_of_aligned(least < align ? align : least, align);
}

/* The block that holds the byte at `offset` in a slab. */
HAK_INLINE uint32_t class_block_at(unsigned c, size_t offset) { return (uint32_t)(((uint64_t)offset * class_info[c].inverse) >> 40); }

#endif
