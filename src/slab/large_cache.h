/* large_cache.h - the large blocks that a thread has freed and keeps for its next requests of as many units.
 *
 * Giving a span back to the space, and taking one from there, writes to words that all threads write: its superslab's, and the counts of
 * the whole heap.  So a thread caches a few of the spans that it frees, as spans of kind UNIT_CACHED.  A word leads to each span.  Whoever
 * changes that word to 0 has the span, and any thread may.
 *
 * A span that was not taken between two calls of large_cache_age goes back to the space.  All of them do before their thread takes memory
 * that would have to be faulted in, or more than it could have cached. */
#ifndef SLAB_LARGE_CACHE_H
#define SLAB_LARGE_CACHE_H

#include "slab/unit.h"

#define LARGE_CACHE_LONGEST 8u /* units of one span: 512 KiB */
#define LARGE_CACHE_UNITS 32u  /* of all spans together: 2 MiB */
#define LARGE_CACHE_ROWS 4u    /* spans of one length share a row */
#define LARGE_CACHE_WAYS 8u    /* spans in a row: a cache line */
#define LARGE_CACHE_MOST (LARGE_CACHE_ROWS * LARGE_CACHE_WAYS)

typedef struct large_cache {
  HAK_ALIGNED(HAK_CACHE_LINE) _Atomic uint64_t cached_spans[LARGE_CACHE_MOST]; /* 0: none */
  _Atomic uint64_t takes, puts; /* so far; written by the thread that the owner is attached to */
  _Atomic uint32_t released;    /* how often spans may have gone back to the space */
  /* For that thread alone: */
  uint32_t counted;       /* `released` when it last counted the units */
  uint32_t bound;         /* no more units are cached than these, except what a signal handler has put since */
  uint8_t top[LARGE_CACHE_ROWS]; /* the way after the one that was last put in the row */
} large_cache_t;

/* Takes a cached span of `units` units, for the owner's thread.  Returns its first unit, which is still of kind UNIT_CACHED and as it was
 * left; SPAN_NONE if there is none. */
HAK_CHECKED uint32_t large_cache_take(large_cache_t *cache, uint32_t units);
/* Caches the span of a large block that is not live any more, for the owner's thread, if there is room and no more than `most` units are
 * cached then.  Returns how many these are, at most; 0 if the span was not cached. */
HAK_CHECKED uint32_t large_cache_put(large_cache_t *cache, unit_t *first, uint32_t most);
/* Gives all cached spans back to the space; false if there were none. */
bool large_cache_flush(large_cache_t *cache);
/* Gives back the spans that were there at the call before; returns their units. */
uint32_t large_cache_age(large_cache_t *cache);
uint32_t large_cache_units(const large_cache_t *cache);
/* In a fork's child: empties the words, since its repair frees all units of that kind. */
void large_cache_forget(large_cache_t *cache);

HAK_AUDITS(void large_cache_audit_alone(const large_cache_t *cache);)

#endif
