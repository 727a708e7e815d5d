/* purge.h - giving free memory back to the kernel.
 *
 * A free unit that was written to stays resident for a while, since it is
 * likely to be used again.  It goes back
 *   by time    once it has been free for decay_ms, and
 *   by growth  when the heap is about to be larger than it ever was, while more
 *              than idle_percent of what is in use lies idle; in all, half of what the heap
 *              has grown to, and none while much of it is soon needed again.
 * Near a limit of memory (kit/pressure.h) the time is shorter, and growth demands all that is idle.
 * Both are done where no lock is held, with the units claimed meanwhile. */
#ifndef SPACE_PURGE_H
#define SPACE_PURGE_H

#include "space/region.h"

/* Gives every free page back that may not be zero; the bytes given back. */
size_t purge_all(void);
/* What is due by time and by growth; cheap when nothing is. Calls the kernel:
 * to be called without a lock held. The bytes given back. */
size_t purge_due(void);
/* Of that, what is due by growth alone. */
size_t purge_growth_due(void);
/* What was given back because the heap grew is needed by small spans again, in bytes. */
void purge_note_again(size_t bytes);
/* Whether that has come to little of late: else what growth gives back costs more than it spares. */
bool purge_growth_pays(void);
uint64_t purge_again_bytes(void); /* in all */
/* Units that were fresh where the heap was about to exceed its highest so far, in all. */
uint64_t purge_peak_units(void);
/* Changes when the heap was about to exceed its highest, and by purge_turn: what else is rarely due is looked for then, so that slow
 * paths need to read no more than this. */
uint64_t purge_turns(void);
void purge_turn(void);
/* When the last step by time was, in any unit; for readers outside, by os_now_ms. */
uint64_t purge_last_step(void);
extern _Atomic uint64_t purge_last_step_ms;
/* Makes a step by time if there was none since `last`; false if it gave nothing back and found nothing new to. */
HAK_CHECKED bool purge_step(uint64_t last);
/* Gives the pages of a span in use back, which then reads as zero; false: it may not. */
HAK_CHECKED bool purge_span(uint32_t start, uint32_t units);
/* The same for one that is about to be free: its units are then as if nobody had written to them. */
bool purge_span_to_free(uint32_t start, uint32_t units);
uint64_t purge_bytes(void); /* given back so far */

#endif
