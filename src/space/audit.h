/* audit.h - what must hold of the region, its zones and the superslabs' words, at any moment.  With HAK_AUDIT alone.
 *
 * An audit ends the process with a line that names what does not hold.  Those of this layer need no lock and may be called by any
 * thread that holds none but an owner's, but for `alone`: while no other thread is inside, and none ever was whose work a fork cut. */
#ifndef SPACE_AUDIT_H
#define SPACE_AUDIT_H

#include "space/region.h"

/* One superslab's words, and each of its units against what the records above say: whether it is in a span. */
void audit_superslab(uint32_t superslab, bool alone, bool (*in_span)(uint32_t unit));
/* The counts of units in use and idle. */
void audit_counts_alone(void);

#endif
