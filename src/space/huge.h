/* huge.h - which superslabs may be huge pages: those that will be full.
 *
 * A huge page saves hundreds of faults and most TLB misses, and costs up to 2 MiB of resident memory where little of it is used.  So a
 * superslab is made huge only when its first unit is taken, and only
 *   for slabs         once the heap is large and nearly all of it is in use;
 *   for large blocks  once such blocks were found to be written all over when
 *                     they were freed.
 * Where the system gives huge pages only to those who ask, only slabs have them: each is timed against small pages, and none is requested
 * while they do not pay.  Near a memory limit (kit/pressure.h) none is requested.  A purge of any part of a huge superslab makes it one of
 * small pages again. */
#ifndef SPACE_HUGE_H
#define SPACE_HUGE_H

#include "space/region.h"

/* Reads the system's setting at start, before the program may have lost the right to read files. */
void huge_start(void);
/* A slab that begins at the unit, or a large block that covers the superslab, is the first to use a superslab of which nothing is
 * resident. */
void huge_slab_begin(uint32_t unit);
void huge_large_begin(uint32_t superslab);
/* A large block is about to be freed. */
void huge_learn(uint32_t start, uint32_t units);
/* A part of superslabs [first, end) was purged. */
void huge_end(uint32_t first, uint32_t end);
/* A span was purged.  Whole superslabs of it stop being huge in any case: the program may have asked for huge pages for its block, and the
 * next user may need little of them. */
void huge_end_span(uint32_t start, uint32_t units);
/* The pages of one superslab have moved to another, and with them whether it is huge. */
void huge_move(uint32_t from, uint32_t to);
uint64_t huge_count(void); /* superslabs that are huge now */
/* Whether the unit's superslab is huge. */
HAK_INLINE bool huge_has(uint32_t unit) { return load_relaxed(&region.superslabs[unit / WORD_UNITS].huge) != 0; }

typedef struct huge_figures {
  uint64_t trials, losses;          /* huge pages timed so far; those after which no more were requested for a while */
  uint64_t huge_price, small_price; /* of a superslab, in ns of processor time, as last measured; 0 before */
} huge_figures_t;
huge_figures_t huge_figures(void);

#endif
