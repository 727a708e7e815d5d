/* slots.h - guard slots: a sampled block on a page of its own between inaccessible ones.
 *
 * A block lies at one end of its page, mostly at the upper one.  When it is freed, its page becomes inaccessible until all other slots have
 * been used: so an access behind the block, or to a freed block, faults at that instruction.  The slot records where the block was
 * allocated and where it was freed.  The rest of the page is checked when the block is freed.
 *
 * Thread-safe without a lock: a slot changes hands by single atomic steps of its state. */
#ifndef SLAB_SLOTS_H
#define SLAB_SLOTS_H

#include "base/format.h"
#include "slab/unit.h"

/* Returns a live block of up to a page, aligned to the largest power of two that divides its size; NULL if no slot can be had. */
HAK_CHECKED void *slot_alloc(size_t size);
/* Takes back a block whose live bit the caller has cleared.  Ends the process, naming `function`, if bytes around it were overwritten. */
void slot_free(void *block, const char *function);
/* The block of the slot in or beside which p lies; NULL if that slot never had one. */
void *slot_start(const void *p);
/* Its bytes, as requested. */
size_t slot_usable(const void *p);
/* slot_describe writes where p lies relative to the block of the nearest slot; slot_print prints where that block was allocated and freed.
 * Async-signal-safe. */
void slot_describe(format_t *f, const void *p);
void slot_print(const void *p);
/* Ends the process after an invalid free of a live block; prints where the block was allocated, and where that free is. */
_Noreturn void slot_abort(const void *block);
/* Whether p lies among the slots. */
bool slots_hold(const void *p);

HAK_AUDITS(void slots_audit_alone(void);)

#endif
