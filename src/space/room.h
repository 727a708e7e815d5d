/* room.h - which superslabs may have room, so that a search need not look at each.
 *
 * The bit of a superslab at level n says that it may have 2^n free units in a row.  A thread that sets units free sets the bits afterwards;
 * a search that finds a bit wrong clears it and then looks at the units once more.  All four steps are sequentially consistent: either the
 * search sees the units, or the thread that has set them free sees the cleared bit and sets it again.  Taking units changes no bit.
 *
 * The first superslabs have no bits and are always looked at: so a small heap touches no page for this. */
#ifndef SPACE_ROOM_H
#define SPACE_ROOM_H

#include "base/check.h"
#include "space/superslab.h"

#define ROOM_LEVELS 6 /* the last: all units of a superslab */
#define ROOM_GROUP 64 /* superslabs that share a cache line */
/* In debug builds all superslabs have bits, so that every test exercises them. */
#define ROOM_FIRST (HAK_DEBUG ? 0u : (uint32_t)ROOM_GROUP)

typedef struct room {
  HAK_ALIGNED(HAK_CACHE_LINE) _Atomic uint64_t may_have[ROOM_LEVELS];
} room_t;
_Static_assert(sizeof(room_t) == ROOM_GROUP, "a byte of its zone for each superslab");

/* Sets the bits for the superslab's free units, which are these now, or were when some became free. */
void room_note(room_t *rooms, uint32_t superslab, uint32_t free);
/* The first superslab of [from, end) that has 2^level free units in a row; `end` if there is none. */
HAK_CHECKED uint32_t room_next(room_t *rooms, const superslab_t *superslabs, uint32_t from, uint32_t end, unsigned level);
/* Whether the superslab has all the bits that the units in `free` call for. */
HAK_AUDITS(bool room_has_noted(const room_t *rooms, uint32_t superslab, uint32_t free);)

#endif
