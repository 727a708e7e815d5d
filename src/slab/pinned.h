/* pinned.h - what a slab's live blocks keep of its pages.
 *
 * A page with a live block stays, for all of it that is free: its waste.  The states of the blocks tell this exactly, of any slab, while
 * nothing moves; else the blocks of a slab are looked at one after the other.  Whose blocks they are tracked slabs tell: slab/track.h. */
#ifndef SLAB_PINNED_H
#define SLAB_PINNED_H

#include "slab/slab.h"

#define PINNED_WORDS (HAK_UNIT / HAK_GRANULE / 64)

typedef struct pinned {
  uint64_t live[PINNED_WORDS]; /* a bit for each block */
  uint32_t blocks; /* that are live */
  uint32_t pages;  /* that have a live block, or a part of one */
  uint64_t waste;  /* bytes of these pages that are in none */
  uint64_t idle;   /* bytes of the other pages that have blocks, but for those that were given back: they may go, or never came */
  uint64_t wasteful; /* a bit for each page that has both live blocks and waste */
} pinned_t;

/* False if it is no slab with live blocks; any thread. */
HAK_CHECKED bool pinned_look(const unit_t *slab, pinned_t *pinned);
/* Whether one of the pages that the block lies on has waste: of a slab of that class as it was looked at. */
bool pinned_wastes(const pinned_t *pinned, unsigned size_class, uint32_t block);

#endif
