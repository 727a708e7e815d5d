/* slots.h - guard slots: a sampled block on a page of its own between inaccessible ones.
 *
 * A block lies at one end of its page, the end mostly.  Freed, its page becomes
 * inaccessible until all other slots have been used, so that an access behind
 * the block or to a freed one is a fault at that instruction; the slot keeps
 * where the block was allocated and where it was freed.  What lies between the
 * block's bytes and the end of its page is checked when it is freed.
 *
 * Thread-safe without a lock: a slot changes hands by single steps of its state. */
#ifndef SLAB_SLOTS_H
#define SLAB_SLOTS_H

#include "base/format.h"
#include "slab/unit.h"

/* A block of up to a page, live, aligned to its size's largest power of two up to a page; NULL if no slot is free. */
HAK_CHECKED void *slot_alloc(size_t size);
/* Takes back a block whose live bit the caller has cleared. `function` is named if bytes around it were overwritten. */
void slot_free(void *block, const char *function);
/* The block of the slot that p lies in or beside; NULL if it never had one. */
void *slot_start(const void *p);
/* Its bytes, as requested. */
size_t slot_usable(const void *p);
/* What p is to the slot nearest to it; where that slot's block was allocated and freed. Async-signal-safe. */
void slot_describe(format_t *f, const void *p);
void slot_print(const void *p);
/* The end, after a free of a live block that was wrong: with where it was allocated, and where that free is. */
_Noreturn void slot_abort(const void *block);
/* Whether p lies among the slots. */
bool slots_hold(const void *p);

HAK_AUDITS(void slots_audit_alone(void);)

#endif
