/* guard.h - units that are inaccessible, as far as mappings allow: in the secure library those beside slabs and blocks,
 * and freed large blocks while they wait; in both what malloc(0) gives.
 *
 * Free units of the secure library are all zero, known to be or not, so what was guarded is zero when it is free again.
 * What could not be guarded, for want of mappings (unit_t.guard is OS_OPEN), may have been written to by a program that
 * does wrong, and is cleared then. */
#ifndef SLAB_GUARD_H
#define SLAB_GUARD_H

#include "os/os.h"
#include "slab/unit.h"

/* Makes units of an allocated span inaccessible, and zero in any case. */
void span_guard(uint32_t start, uint32_t units);
/* The same for bytes [from, to) of a large block that begins at `unit`, with `guard` the unit behind it: they make no
 * mapping more, since they are one with that, and are left as they are, but zero, if that is accessible. */
HAK_CHECKED os_guard_t span_guard_beside(uint32_t unit, size_t from, size_t to, uint32_t guard);
/* Frees such units. Those that the kernel does not make accessible again stay as they are. */
void span_unguard(uint32_t start, uint32_t units);
/* Makes units of a span zero. */
void span_clear(uint32_t start, uint32_t units);
uint64_t guard_left_out(void); /* guards that mappings did not allow, so far */

#endif
