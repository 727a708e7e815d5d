/* batch.h - moves blocks between an owner's slabs and its bins, many at a time.
 *
 * The caller holds owner->lock.  The work of one call is bounded: it touches only so many slabs and words of bits, however far the blocks
 * are scattered. */
#ifndef SLAB_BATCH_H
#define SLAB_BATCH_H

#include "slab/slab.h"

/* Takes up to `count` blocks of the class and writes them to blocks[0..) as entries (slab/sample.h).  From each slab it takes the lowest
 * free blocks, in descending order of address: a bin then has the lowest on top, and the program walks upward.  Returns how many; 0 only
 * when out of memory.  `bin` is the bin that a free of the blocks finds. */
HAK_CHECKED uint32_t batch_take(slab_owner_t *owner, unsigned size_class, region_bin_t *bin, void **blocks, uint32_t count);
/* Takes one of the lowest BATCH_AMONG free blocks, or of as many as one word of bits has, for an owner without sampled blocks.  The block
 * is number `number`, modulo how many there are; a random number below BATCH_NUMBERS, which each of these counts divides, gives every block
 * the same chance.  NULL when out of memory. */
#define BATCH_AMONG 4
#define BATCH_NUMBERS 12
HAK_CHECKED void *batch_take_among(slab_owner_t *owner, unsigned size_class, region_bin_t *bin, uint32_t number);
/* Gives entries or blocks of the owner back, all of one class, from blocks[0] on.  If they lie in many slabs it may stop early; the others
 * stay as they are.  Returns how many were given back.  Ends the process if one of them is free already. */
uint32_t batch_give(slab_owner_t *owner, void **blocks, uint32_t count);
uint64_t batch_lead_slabs(void); /* slabs made for the option `lead`, so far */

#endif
