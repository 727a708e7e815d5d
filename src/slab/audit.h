/* audit.h - what must hold of spans, slabs and their owners.  With HAK_AUDIT alone; see space/audit.h. */
#ifndef SLAB_AUDIT_H
#define SLAB_AUDIT_H

#include "space/audit.h"
#include "slab/slab.h"

/* What the blocks of one class of an owner are. */
typedef struct audit_sum {
  uint32_t out; /* in no slab, not freed remotely and not live: in bins, in quarantine or held */
} audit_sum_t;

/* Whether the unit's record says that it lies in a span; any thread. */
bool audit_in_span(uint32_t unit);
/* One unit's record against those of its span. */
void audit_unit_alone(uint32_t unit);
/* With the owner's lock: one slab, its place in a list and its bits. `sum`, which may be NULL: adds to it. */
void audit_slab(slab_owner_t *owner, const unit_t *slab, audit_sum_t *sum);
/* With its lock: all of the owner, slabs included; `sums`, which may be NULL, has one for each class. */
void audit_owner(slab_owner_t *owner, audit_sum_t *sums, bool alone);

#endif
