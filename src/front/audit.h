/* audit.h - what must hold of heaps, their bins and whose each is; and when all audits are made.  With HAK_AUDIT alone.
 *
 * The end of each slow path makes a turn (thread_leave): the words of one superslab, and of the thread's heap one slab and one
 * bin; the whole heap as often as it has slabs and bins, so that a turn costs the same whatever its size; another heap and the
 * lists of all now and then.  `alone`, while the process has one thread, every block and unit must be accounted for. */
#ifndef FRONT_AUDIT_H
#define FRONT_AUDIT_H

#include "base/check.h"
#include "front/heap.h"

/* The end of a slow path of which no other is a part; by the thread whose heap this is, or NULL. */
void audit_slow_path(heap_t *mine);
/* All of it at once, for tests; the same. */
void audit_all(heap_t *mine);

#endif
