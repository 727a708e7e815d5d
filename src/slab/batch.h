/* batch.h - blocks between an owner's slabs and its bins, many at a time.
 *
 * For the owner's thread, or for the holder of owner->lock.  The work of one call is bounded: it touches so many slabs and words of
 * bits at most, however far the blocks are scattered. */
#ifndef SLAB_BATCH_H
#define SLAB_BATCH_H

#include "slab/slab.h"

/* Takes up to `count` blocks of the class into blocks[0..), as entries (slab/sample.h): of each slab the lowest free ones, in falling
 * order of address: a bin then has the lowest on top, and the program walks upward. 0 only when memory is out. `bin` is what free finds for
 * the class. */
HAK_CHECKED uint32_t batch_take(slab_owner_t *owner, unsigned size_class, region_bin_t *bin, void **blocks, uint32_t count);
/* One block, where none is sampled, of the lowest BATCH_AMONG, or as many as one word of bits has: that which `number` says, modulo how
 * many they are; a number at random below BATCH_NUMBERS, which any of these divides, gives each the same chance.  NULL when memory is
 * out. */
#define BATCH_AMONG 4
#define BATCH_NUMBERS 12
HAK_CHECKED void *batch_take_among(slab_owner_t *owner, unsigned size_class, region_bin_t *bin, uint32_t number);
/* Gives entries or blocks of the owner back, all of one class, the first ones: of blocks in many slabs not all, and the others remain the
 * entries that they are. Returns how many. Ends the process if one is there already. */
uint32_t batch_give(slab_owner_t *owner, void **blocks, uint32_t count);
uint64_t batch_lead_slabs(void); /* slabs taken for the option `lead`, so far */

#endif
