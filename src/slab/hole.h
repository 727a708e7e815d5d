/* hole.h - whole free pages inside slabs that are partly used.
 *
 * They go back to the kernel once their slab was left alone for a while: a few
 * blocks that live long then pin their own pages, and not all of the slab's.
 * While the kernel works the blocks in the pages are out of the slab, as if a
 * program held them, so no lock is needed meanwhile. */
#ifndef SLAB_HOLE_H
#define SLAB_HOLE_H

#include "slab/slab.h"

/* More than this in free blocks than when holes were last looked for makes looking worthwhile. */
#define HOLE_WORTH ((int64_t)4 << 20)
HAK_INLINE int64_t hole_bytes_since_look(const slab_owner_t *owner) {
  return load_relaxed(&owner->free_bytes) - load_relaxed(&owner->free_when_looked_at);
}
/* Purges the holes of every slab that nothing happened to between the last two steps,
 * with `now` of all; brings in the remote frees that nobody announces. Any thread that holds no lock. *aging: slabs that will be looked at
 * by the next step. The bytes given back. */
size_t hole_step(bool now, uint32_t *aging);

/* A round over all slabs, in parts, each for a heap that has grown by so many units: of HOLE_PART_UNITS and eight times as many units,
 * and of twice as many slabs. `begin`: from here on all are to be looked at; else what is left of the round, if anything. */
#define HOLE_PART_UNITS 1024
size_t hole_round_part(bool begin, uint32_t grown);

/* In a fork's child: blocks that a thread that is gone has held go back, as bits alone. */
void hole_recover(slab_owner_t *owner);

uint64_t hole_bytes(void); /* given back so far */

/* Whether purged pages hold no block that is out of the slab. */
HAK_AUDITS(bool hole_audit(const slab_owner_t *owner, const unit_t *slab);)

#endif
