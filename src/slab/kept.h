/* kept.h - large blocks that a thread has freed, kept for its next request of as many units.
 *
 * Giving a span back to the space, and taking one from there, writes to words that all threads write: its superslab's, and the counts of
 * the whole heap.  So a thread keeps a few of the spans that it frees, as spans of kind UNIT_KEPT.  A word leads to each span.  Whoever
 * changes that word to 0 has the span, and any thread may.
 *
 * A span that was not taken between two calls of kept_age goes back to the space.  All of them do before their thread takes memory that
 * would have to be faulted in, or more than it could have kept. */
#ifndef SLAB_KEPT_H
#define SLAB_KEPT_H

#include "slab/unit.h"

#define KEPT_LONGEST 8u /* units of one span: 512 KiB */
#define KEPT_UNITS 32u  /* of all spans together: 2 MiB */
#define KEPT_ROWS 4u    /* spans of one length share a row */
#define KEPT_WAYS 8u    /* spans in a row: a cache line */
#define KEPT_MOST (KEPT_ROWS * KEPT_WAYS)

typedef struct kept {
  HAK_ALIGNED(HAK_CACHE_LINE) _Atomic uint64_t kept_spans[KEPT_MOST]; /* 0: none */
  _Atomic uint64_t takes, puts; /* so far; written by the thread that the owner is attached to */
  _Atomic uint32_t released;    /* how often spans may have gone back to the space */
  /* For that thread alone: */
  uint32_t counted;       /* `released` when it last counted the units */
  uint32_t bound;         /* no more units are kept than these, except what a signal handler has put since */
  uint8_t top[KEPT_ROWS]; /* the way after the one that was last put in the row */
} kept_t;

/* Takes a kept span of `units` units, for the owner's thread.  Returns its first unit, which is still of kind UNIT_KEPT and as it was left;
 * SPAN_NONE if none is kept. */
HAK_CHECKED uint32_t kept_take(kept_t *kept, uint32_t units);
/* Keeps the span of a large block that is not live any more, for the owner's thread, if there is room and no more than `most` units are
 * kept then.  Returns how many these are, at most; 0 if the span was not kept. */
HAK_CHECKED uint32_t kept_put(kept_t *kept, unit_t *first, uint32_t most);
/* Gives all kept spans back to the space; false if there were none. */
bool kept_release(kept_t *kept);
/* Gives back the spans that were there at the call before; returns their units. */
uint32_t kept_age(kept_t *kept);
uint32_t kept_units(const kept_t *kept);
/* In a fork's child: empties the words, since its repair frees all units of that kind. */
void kept_forget(kept_t *kept);

HAK_AUDITS(void kept_audit_alone(const kept_t *kept);)

#endif
