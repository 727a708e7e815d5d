/* move.h - pages change their address, so that they need neither be copied nor faulted in.
 *
 * The kernel moves a superslab's page tables in microseconds; faulting the superslab in anew takes hundreds.  So a large block that grows
 * past its place takes its superslabs along, and fresh superslabs of a large block are backed with the pages of idle ones.  Each moved
 * superslab is a mapping of its own until it is purged: split.h bounds their number. */
#ifndef SPACE_MOVE_H
#define SPACE_MOVE_H

#include "space/region.h"

/* Fills a superslab that the caller has claimed, and of which nothing is resident, with the pages of an idle one.  False if there is none,
 * or if pages are not to be moved. */
HAK_CHECKED bool move_idle_to(uint32_t superslab);
/* Moves the pages of the whole superslabs in the first `units` units from one span to another; both are the caller's.  Returns the units
 * moved, which read as zero in `from` then. */
uint32_t move_pages(uint32_t from, uint32_t to, uint32_t units);
/* Called after a purge of the whole superslab has made it part of its neighbours' mapping again. */
void move_forget(uint32_t superslab);
uint64_t move_count(void); /* superslabs moved so far */

#endif
