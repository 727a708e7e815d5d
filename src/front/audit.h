/* audit.h - what must hold of heaps, their bins and whose each is; and when all audits are made.  With HAK_AUDIT alone.
 *
 * The end of each slow path makes a turn (thread_leave): the words of one superslab, and of the thread's heap one slab and one
 * bin; the whole heap as often as it has slabs and bins, so that a turn costs the same whatever its size; another heap and the
 * lists of all now and then.  `alone`, while the process has one thread, every block and unit must be accounted for. */
#ifndef FRONT_AUDIT_H
#define FRONT_AUDIT_H

#include "base/check.h"
#include "front/heap.h"

/* All of it at once, for tests; by a thread that is inside, as audit_slow_path. */
void audit_all(void);
/* In a fork's child, which may have lost a block or have a bit of what others were about. */
void audit_note_fork(void);

/* heaps.c: the lists and counts of heaps. */
HAK_AUDITED void heaps_audit(void);
/* secure.c: the blocks that wait in the heap's quarantine; with its lock, or its thread. */
HAK_AUDITED void secure_audit(const heap_t *heap);

#endif
