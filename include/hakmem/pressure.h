/* pressure.h - a call of the program's when memory becomes scarce: near the limit of a container, or near limits of its own.
 *
 * hakmem gives back what it holds idle by itself.  What the program holds, such as caches, it alone can free: here it is told when.
 * docs/containers.md tells which limits there are, and HAKMEM_LIMIT_SOFT and HAKMEM_LIMIT_HARD. */
#ifndef HAKMEM_PRESSURE_H
#define HAKMEM_PRESSURE_H

#include "hakmem/hakmem.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How scarce it is. Since 0.1. */
#define HAK_PRESSURE_NEAR 1    /* an eighth of the limit is left, or less; of a limit above 8 GiB: 1 GiB */
#define HAK_PRESSURE_URGENT 2  /* half of that; or HAKMEM_LIMIT_SOFT is passed */
#define HAK_PRESSURE_FAILING 3 /* an allocation is about to fail, at HAKMEM_LIMIT_HARD or since the system gives nothing more */

/* What the program is told. Later versions add fields at the end alone. Since 0.1. */
typedef struct hak_pressure {
  uint32_t struct_size; /* bytes of it that are filled */
  uint32_t level;       /* HAK_PRESSURE_* */
  uint64_t used;        /* bytes that count against the limit: of this heap; or of all in the container, as if what the heap has lately
                           grown by were not written to yet, but will be */
  uint64_t limit;       /* bytes: of the limit that is nearest, the container's or HAKMEM_LIMIT_SOFT; of HAKMEM_LIMIT_HARD, where that is
                           why an allocation is about to fail: in percent, too, what this heap may come to. 0: none is known */
  uint64_t wanted;      /* bytes of the allocation that is about to fail; else 0 */
} hak_pressure_t;

/* Returns how many bytes it has freed, or about so many; 0: none.  May allocate and free, but is not called again by what it calls.  Runs
 * in whichever thread allocates, inside that call: it must not take a lock that the program holds while it allocates, and not end by
 * longjmp, an exception or pthread_exit.  The thread is not cancelled in it.  errno is kept. */
typedef size_t hak_pressure_callback_t(const hak_pressure_t *pressure, void *argument);

/* From now on this is called when memory becomes scarce: as it does, then once a second at most while it lasts, and whenever an
 * allocation is about to fail; by one thread at a time.  Where it says that it has freed something, that is given back to the system, and
 * an allocation that was about to fail is tried again.  Replaces the one before; NULL: none.  When this returns no other thread is in the
 * one before, so it must not be called with a lock that this one takes.  In a fork's child it stays.  Since 0.1. */
HAK_API void hak_on_pressure(hak_pressure_callback_t *callback, void *argument);

#ifdef __cplusplus
}
#endif
#endif
