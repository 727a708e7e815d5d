/* huge.h - which superslabs may be huge pages: those that will be full.
 *
 * A huge page saves hundreds of faults and most TLB misses, and costs up to
 * 2 MiB of resident memory where little of it is used.  So it is not for every
 * superslab, but, when its first unit is taken,
 *   for slabs         once the heap is large and nearly all of it is in use;
 *   for large blocks  once such blocks were found to be written all over when
 *                     they were freed.
 * A purge that meets a huge superslab ends its being one. */
#ifndef SPACE_HUGE_H
#define SPACE_HUGE_H

#include "space/region.h"

/* At start, before the program may have lost the right to read files: asks what the system does. */
void huge_start(void);
/* A slab, or a large block that covers it, begins to use the superslab, of which nothing is resident. */
void huge_slab_begin(uint32_t superslab);
void huge_large_begin(uint32_t superslab);
/* A large block is about to be freed. */
void huge_learn(uint32_t start, uint32_t units);
/* Part of superslabs [first, end) was purged. */
void huge_end(uint32_t first, uint32_t end);
uint64_t huge_count(void); /* superslabs that are huge now */

#endif
