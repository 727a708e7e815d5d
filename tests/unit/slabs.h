/* slabs.h - what the tests of slabs share. */
#ifndef SLABS_H
#define SLABS_H

#include "slab/slab.h"

/* All of them, however many slabs they lie in. */
static inline void give_blocks(slab_owner_t *owner, void **blocks, uint32_t count) {
  for (uint32_t given = 0; given < count;) given += batch_give(owner, blocks + given, count - given);
}

#endif
