/* audit.h - what must hold of the region, its zones and the superslabs' words, at any moment.  Only with HAK_AUDIT.
 *
 * An audit ends the process with a line that names what does not hold.  The audits of this layer take no lock but the region's, and may be
 * called by any thread that holds none but an owner's.  `alone` requires that no other thread is inside, and that no fork has ever cut
 * one's work short. */
#ifndef SPACE_AUDIT_H
#define SPACE_AUDIT_H

#include "space/region.h"

/* Checks one superslab's words, and each of its units against what the records of the layer above say: whether it is in a span. */
void audit_superslab(uint32_t superslab, bool alone, bool (*in_span)(uint32_t unit));
/* Checks the counts of units in use and idle. */
void audit_counts_alone(void);

#endif
