/* slabs.h - what the tests of slabs share. */
#ifndef SLABS_H
#define SLABS_H

#include "slab/batch.h"

/* As batch_take, with the lowest of a slab's blocks first.  gcc takes the loop to go beyond an array of one. */
static HAK_NOINLINE __attribute__((unused)) uint32_t take_blocks(slab_owner_t *owner, unsigned c, region_bin_t *bin, void **blocks,
                                                                 uint32_t count) {
  uint32_t taken = batch_take(owner, c, bin, blocks, count);
  for (uint32_t i = 0; i < taken / 2; i++) {
    void *block = blocks[i];
    blocks[i] = blocks[taken - 1 - i];
    blocks[taken - 1 - i] = block;
  }
  return taken;
}

/* All of them, however many slabs they lie in. */
static inline void give_blocks(slab_owner_t *owner, void **blocks, uint32_t count) {
  for (uint32_t given = 0; given < count;) given += batch_give(owner, blocks + given, count - given);
}

#endif
