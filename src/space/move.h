/* move.h - pages change their address, so that they need neither be copied nor faulted in.
 *
 * The kernel moves a superslab's page tables in microseconds, where faulting it
 * in anew takes hundreds.  So a large block that grows past its place takes its
 * superslabs along, and fresh superslabs of a large block are backed with the
 * pages of idle ones.  Each moved superslab is a mapping of its own, until it is
 * purged: split.h bounds their number. */
#ifndef SPACE_MOVE_H
#define SPACE_MOVE_H

#include "space/region.h"

/* Fills a superslab that the caller has claimed, of which nothing is resident, with
 * the pages of an idle one. False: there is none, or pages are not to be moved. */
HAK_CHECKED bool move_idle_to(uint32_t superslab);
/* Moves the pages of as many whole superslabs as lie in the first `units` units
 * of two spans, both the caller's; the units moved, which are zero in `from` then. */
uint32_t move_pages(uint32_t from, uint32_t to, uint32_t units);
/* After a purge of the whole superslab that restored it. */
void move_forget(uint32_t superslab);
uint64_t move_count(void); /* superslabs moved so far */

#endif
