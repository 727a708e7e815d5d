/* audit.h - what must hold of spans, slabs and their owners.  Only with HAK_AUDIT; see space/audit.h. */
#ifndef SLAB_AUDIT_H
#define SLAB_AUDIT_H

#include "space/audit.h"
#include "slab/slab.h"

/* Counts of the blocks of one class of an owner. */
typedef struct audit_sum {
  uint32_t out; /* in no slab, not freed remotely and not live: in bins, in quarantine or held */
} audit_sum_t;

/* Whether the unit's record says that the unit lies in a span; any thread. */
bool audit_in_span(uint32_t unit);
/* Checks one unit's record against those of its span. */
void audit_unit_alone(uint32_t unit);
/* Checks one slab, its place in a list and its bits, and adds to `sum`, which may be NULL.  The caller holds the owner's lock. */
void audit_slab(slab_owner_t *owner, const unit_t *slab, audit_sum_t *sum);
/* Checks all of the owner, slabs included; `sums`, which may be NULL, has one entry for each class.  The caller holds the owner's lock. */
void audit_owner(slab_owner_t *owner, audit_sum_t *sums, bool alone);

#endif
