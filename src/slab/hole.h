/* hole.h - whole free pages inside slabs that are partly used.
 *
 * They go back to the kernel once their slab has been left alone for a while: so a few long-lived blocks pin only their own pages, not all
 * of the slab's.  While the kernel works, the blocks in these pages are out of the slab, as if the program held them, so no lock is needed
 * meanwhile. */
#ifndef SLAB_HOLE_H
#define SLAB_HOLE_H

#include "slab/slab.h"

/* Looking for holes is worthwhile once this many more bytes of blocks are free than at the last look. */
#define HOLE_WORTH ((int64_t)4 << 20)
HAK_INLINE int64_t hole_bytes_since_look(const slab_owner_t *owner) {
  return load_relaxed(&owner->free_bytes) - load_relaxed(&owner->free_when_looked_at);
}
/* Purges the holes of every slab that has not changed between the last two steps, or with `now` of every slab, and brings in the remote
 * frees that nobody announces.  Any thread that holds no lock.  Adds to *aging the slabs that the next step will look at.  Returns the
 * bytes given back. */
size_t hole_step(bool now, uint32_t *aging);
/* The same without `now`, for who may have to stop: ends early once *stop is not 0. */
size_t hole_step_until(const _Atomic uint32_t *stop, uint32_t *aging);

/* One part of a round over all slabs, for a heap that has grown by `grown` units: looks at HOLE_PART_UNITS + 8 * grown units, and purges at
 * most 2 * grown slabs.  `begin`: all slabs are to be looked at, from here on; otherwise what is left of the round, if anything.  Returns
 * the bytes given back. */
#define HOLE_PART_UNITS 1024
size_t hole_round_part(bool begin, uint32_t grown);

/* In a fork's child: puts back the blocks that a thread which is gone has held; it sets their bits alone. */
void hole_recover(slab_owner_t *owner);

uint64_t hole_bytes(void); /* given back so far */

/* Whether no purged page holds a block that is out of the slab, unless that block is held. */
HAK_AUDITS(bool hole_audit(const slab_owner_t *owner, const unit_t *slab);)

#endif
