/* audit.h - the invariants of heaps, of their bins and of their owners; and when all audits run.  Only with HAK_AUDIT.
 *
 * Each slow path ends with one turn (thread_leave).  A turn checks the words of one superslab, and one slab and one bin of the
 * thread's heap.  After as many turns as the heap has slabs and bins, one turn checks the whole heap, so that the average cost
 * does not depend on the heap's size.  Another heap, or the lists of all heaps, is checked now and then.  `alone` says that the
 * process never had a second thread and is no fork's child: then every block and unit must be accounted for. */
#ifndef FRONT_AUDIT_H
#define FRONT_AUDIT_H

#include "base/check.h"
#include "front/heap.h"

/* One turn, at the end of an outermost slow path. `mine` is the calling thread's heap, or NULL. */
void audit_slow_path(heap_t *mine);
/* Checks everything in one call, for tests. */
void audit_all(heap_t *mine);

#endif
