/* span.h - runs of units: best fit, split and coalesce by bitmap.
 *
 * A superslab's free units are one word, and every change is one atomic operation on it: so no lock is held, and neighbours coalesce by
 * themselves.  A span that crosses superslabs is claimed word by word, and given back on conflict.  The units of a span belong to whoever
 * allocated it. */
#ifndef SPACE_SPAN_H
#define SPACE_SPAN_H

#include "space/region.h"

#define SPAN_NONE UINT32_MAX

/* Those from SPAN_GROWN on are for span_alloc_to_grow. */
typedef enum span_use {
  SPAN_SLAB,
  SPAN_PLAIN, /* a large block, probably written all over */
  SPAN_ZEROED, /* a large block that must be zero, probably written only here and there */
  SPAN_GROWN,  /* a large block that realloc has made larger, and may make larger again in place */
  SPAN_GROWING /* the same, probably not for the last time */
} span_use_t;

/* Allocates a span of `units` units whose first unit's address is a multiple of align_units * 64 KiB (a power of two).  *zero: whether all
 * of it is known to be zero.  SPAN_NONE when out of memory. */
HAK_CHECKED uint32_t span_alloc(uint32_t units, uint64_t align_units, span_use_t use, bool *zero);
/* The same for SPAN_GROWN and SPAN_GROWING.  Blocks of one home, a number, lie near one another, so that other threads' blocks are not in
 * the way.  SPAN_GROWING has free units behind it, up to the next power of two, where they can be had: so blocks that grow in turn are
 * copied once a doubling and not at each step.  That room is not reserved: other spans may take it. */
HAK_CHECKED uint32_t span_alloc_to_grow(uint32_t units, span_use_t use, uint32_t home, bool *zero);
/* Claims exactly these units, if all are free or can be mapped, to grow the span that ends where they begin. */
HAK_CHECKED bool span_claim(uint32_t start, uint32_t units);
void span_free(uint32_t start, uint32_t units);

/* For a fork's child, while no thread is inside: sets free what is mapped, in no span and not free.  `used` returns the length of the span
 * that starts at a unit, 0 for none. */
void span_recover(uint32_t (*used)(uint32_t unit));

#endif
