/* kept.h - large blocks that a thread has freed, for the next of as many units that it asks for.
 *
 * A span that comes and goes by way of the space writes to words that all threads write: its superslab's, and the figures of the whole
 * heap.  So a thread keeps a few of those that it frees, as spans of kind UNIT_KEPT.  A word leads to each, and who changes that word to 0
 * has the span: any thread may.
 *
 * What was not taken between two calls of kept_age goes back to the space; all of it does before its thread takes memory that would have
 * to be faulted in, or more than it could have kept. */
#ifndef SLAB_KEPT_H
#define SLAB_KEPT_H

#include "slab/unit.h"

#define KEPT_LONGEST 8u /* units of a span: 512 KiB */
#define KEPT_UNITS 32u  /* of all together: 2 MiB */
#define KEPT_ROWS 4u    /* spans of one length share a row */
#define KEPT_WAYS 8u    /* spans in a row: a line */
#define KEPT_MOST (KEPT_ROWS * KEPT_WAYS)

typedef struct kept {
  HAK_ALIGNED(HAK_CACHE_LINE) _Atomic uint64_t kept_spans[KEPT_MOST]; /* 0: none */
  _Atomic uint64_t takes, puts; /* so far, by the thread that has the owner */
  _Atomic uint32_t released;    /* how often some may have gone back to the space */
  /* Of that thread alone: */
  uint32_t counted;       /* `released` when it last counted the units */
  uint32_t bound;         /* no more units than these, but for what a signal handler has put since */
  uint8_t top[KEPT_ROWS]; /* behind where the last one of the row was put */
} kept_t;

/* The first unit of a span of so many units, which is still of kind UNIT_KEPT and as it was left; SPAN_NONE if none is kept. */
HAK_CHECKED uint32_t kept_take(kept_t *kept, uint32_t units);
/* Keeps the span of a large block that is not live any more, if that makes no more than `most` units: returns how many; else 0. */
HAK_CHECKED uint32_t kept_put(kept_t *kept, unit_t *first, uint32_t most);
/* Gives all back to the space; false if there was nothing. */
bool kept_release(kept_t *kept);
/* Gives back what was there at the call before; the units. */
uint32_t kept_age(kept_t *kept);
uint32_t kept_units(const kept_t *kept);
/* In a fork's child, whose repair frees all units of that kind. */
void kept_forget(kept_t *kept);

HAK_AUDITS(void kept_audit_alone(const kept_t *kept);)

#endif
