/* span.h - runs of units: best fit, split and coalesce by bitmap.
 *
 * A superslab's free units are one word, and every change is one atomic
 * operation on it, so no lock is held and neighbours coalesce by themselves.
 * A span that crosses superslabs is claimed word by word and given back on
 * conflict.  Units of a span belong to whoever allocated it. */
#ifndef SPACE_SPAN_H
#define SPACE_SPAN_H

#include "space/region.h"

#define SPAN_NONE UINT32_MAX

/* A span of `units` units whose first unit's address is a multiple of
 * align_units * 64 KiB (a power of two).  *zero tells whether all of it is
 * known to be zero.  SPAN_NONE: out of memory. */
HAK_CHECKED uint32_t span_alloc(uint32_t units, uint64_t align_units, bool *zero);
/* Claims just these units if all are free, to grow the span that ends there. */
HAK_CHECKED bool span_claim(uint32_t start, uint32_t units, bool *zero);
void span_free(uint32_t start, uint32_t units);

/* Gives every free page back that may not be zero; the bytes given back. */
size_t span_purge(void);
/* The same for what has been free for the decay time; cheap when nothing is due.
 * Calls the kernel: to be called without a lock held. */
size_t span_decay(void);
/* Sets free what is mapped, in no span and not free; `used` tells the length of
 * the span that starts at a unit, 0 for none.  For a fork's child, while no thread is inside. */
void span_recover(uint32_t (*used)(uint32_t unit));

typedef struct span_census {
  uint64_t free_units, dirty_free_units;
} span_census_t;
span_census_t span_census(void);

#endif
