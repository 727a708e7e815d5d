/* explore_atomics.h - included before all else where the allocator is compiled for the explorer.
 *
 * Every access to a shared word goes through one of the compiler's primitives
 * below, whether <stdatomic.h> or base/atomics.h names it; each lets the
 * explorer run another actor first.  The sources themselves are as they are
 * in the library. */
#ifndef EXPLORE_ATOMICS_H
#define EXPLORE_ATOMICS_H

#include <stdatomic.h>

#include "explore.h"

/* memcheck is told of nothing. */
#define HAK_VALGRIND 0

/* The hot words too: base/atomics.h then has them accessed by the primitives. */
#define HOT_ATOMIC 1

/* In place of base/thread.h: actors are threads of their own to the allocator. */
#define BASE_THREAD_H
static inline uintptr_t thread_self(void) { return explore_self; }

/* Nor is a process of several actors one with a single thread. */
#define __libc_single_threaded explore_single_threaded

#define EXPLORE_BEFORE(p, access) explore_point((p), (access), __func__, __LINE__)

/* The name of a macro inside its own expansion is the primitive itself. */
#define __atomic_load_n(p, order) \
  ({ __auto_type explore_p = (p); EXPLORE_BEFORE(explore_p, EXPLORE_READ); __atomic_load_n(explore_p, order); })
#define __atomic_store_n(p, v, order)                    \
  ({                                                     \
    __auto_type explore_p = (p);                         \
    __typeof__((void)0, *explore_p) explore_v = (v);     \
    EXPLORE_BEFORE(explore_p, EXPLORE_WRITE);            \
    __atomic_store_n(explore_p, explore_v, order);       \
  })
#define EXPLORE_FETCH(operation, p, v, order)            \
  ({                                                     \
    __auto_type explore_p = (p);                         \
    __auto_type explore_v = (v);                         \
    EXPLORE_BEFORE(explore_p, EXPLORE_WRITE);            \
    operation(explore_p, explore_v, order);              \
  })
#define __atomic_fetch_add(p, v, order) EXPLORE_FETCH(__atomic_fetch_add, p, v, order)
#define __atomic_fetch_and(p, v, order) EXPLORE_FETCH(__atomic_fetch_and, p, v, order)
#define __atomic_fetch_or(p, v, order) EXPLORE_FETCH(__atomic_fetch_or, p, v, order)

/* <stdatomic.h> gives these plain variables. */
#define __atomic_load(p, to, order) ({ EXPLORE_BEFORE(p, EXPLORE_READ); __atomic_load(p, to, order); })
#define __atomic_store(p, from, order) ({ EXPLORE_BEFORE(p, EXPLORE_WRITE); __atomic_store(p, from, order); })
#define __atomic_exchange(p, from, to, order) ({ EXPLORE_BEFORE(p, EXPLORE_WRITE); __atomic_exchange(p, from, to, order); })
/* One that may fail by chance never does: it would only go round its loop. */
#define __atomic_compare_exchange(p, expected, from, weak, order, failed)                    \
  ({                                                                                         \
    EXPLORE_BEFORE(p, EXPLORE_CHANGE);                                                       \
    _Bool explore_done = __atomic_compare_exchange(p, expected, from, 0, order, failed);     \
    if (explore_done) explore_changed(p);                                                        \
    explore_done;                                                                            \
  })

#endif
