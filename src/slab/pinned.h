/* pinned.h - which pages of a slab its live blocks keep.
 *
 * A page with a live block stays resident, with all of it that is free: its waste.  The states of the blocks give this exactly, for any
 * slab, while nothing changes; otherwise each block is read at another moment.  Whose blocks they are is known in tracked slabs:
 * slab/track.h. */
#ifndef SLAB_PINNED_H
#define SLAB_PINNED_H

#include "slab/slab.h"

#define PINNED_WORDS (HAK_UNIT / HAK_GRANULE / 64)

typedef struct pinned {
  uint64_t live[PINNED_WORDS]; /* a bit for each block */
  uint32_t blocks; /* that are live */
  uint32_t pages;  /* that have a live block, or a part of one */
  uint64_t waste;  /* bytes of these pages that are in no live block */
  uint64_t idle;   /* bytes of the other pages that have blocks, but of none given back: these may go, or were never resident */
  uint64_t wasteful; /* a bit for each page that has both live blocks and waste */
} pinned_t;

/* Fills in *pinned.  False if it is no slab with live blocks; any thread. */
HAK_CHECKED bool pinned_look(const unit_t *slab, pinned_t *pinned);
/* Whether a page on which the block lies has waste, in a slab of that class that pinned_look has read. */
bool pinned_wastes(const pinned_t *pinned, unsigned size_class, uint32_t block);

#endif
