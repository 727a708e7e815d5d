/* purge.h - giving free memory back to the kernel.
 *
 * A free unit that was written to stays resident for a while, since it is likely to be used again.  It goes back
 *   by time    once it has been free for decay_ms, and
 *   by growth  when the heap is about to be larger than it ever was while more
 *              than idle_percent of what is in use lies idle; all that goes back
 *              by growth stays below half of what the heap has grown to, and
 *              nothing does while much of it is soon needed again.
 * Near a memory limit (kit/pressure.h) the time is shorter, and growth demands all that is idle.  Both are done where no lock is held; the
 * units are claimed meanwhile. */
#ifndef SPACE_PURGE_H
#define SPACE_PURGE_H

#include "space/region.h"

/* How long the kernel is not asked again for what it has refused. */
#define PURGE_REFUSED_MS 60000

/* Gives back every free page that may not be zero, locked or not; returns the bytes given back. */
size_t purge_all(void);
/* Gives back what is due by time and by growth; cheap when nothing is.  It calls the kernel, so the caller holds no lock.  Returns the
 * bytes given back. */
size_t purge_due(void);
/* The same of what is due by growth alone. */
size_t purge_growth_due(void);
/* Notes that so many bytes that were given back because the heap grew are needed again, by small spans or by blocks of a slab. */
void purge_note_again(size_t bytes);
/* Whether few of these bytes were needed again of late: otherwise what growth gives back costs more than it saves. */
bool purge_growth_pays(void);
uint64_t purge_again_bytes(void); /* so far */
/* Units that were fresh when the heap was about to exceed its highest size so far, in all. */
uint64_t purge_peak_units(void);
/* A count that changes when the heap is about to exceed its highest size, and by purge_epoch_advance.  Everything else that is rarely due
 * is looked for in each new epoch, so that slow paths need to read only this. */
uint64_t purge_epoch(void);
void purge_epoch_advance(void);
/* When the last step by time was, as os_now_ms; the variable is for readers outside of the process. */
uint64_t purge_last_step(void);
extern _Atomic uint64_t purge_last_step_ms;
/* Makes a step by time if there was none since `last`; false if it gave nothing back and found nothing new to give back. It ends early,
 * after 64 MiB at most, once *stop is not 0; NULL: never. */
HAK_CHECKED bool purge_step(uint64_t last, const _Atomic uint32_t *stop);
/* Gives back the pages of a span in use, which then reads as zero; false if it may not. */
HAK_CHECKED bool purge_span(uint32_t start, uint32_t units);
/* The same for a span that is about to be free: its units count as never written to then. */
bool purge_span_to_free(uint32_t start, uint32_t units);
uint64_t purge_bytes(void); /* given back so far */

#endif
