/* atomics.h - the memory orders in use, by intent.
 *
 * `seen` accesses are relaxed: the value is advisory, or only its own thread writes it.
 * A field that one thread writes and others read is still declared _Atomic, so
 * that no tool and no reader has to guess; a relaxed access is a plain move. */
#ifndef BASE_ATOMICS_H
#define BASE_ATOMICS_H

#include <stdatomic.h>

#define atomic_seen(p) atomic_load_explicit((p), memory_order_relaxed)
#define atomic_set(p, v) atomic_store_explicit((p), (v), memory_order_relaxed)
#define atomic_take(p) atomic_load_explicit((p), memory_order_acquire)
#define atomic_publish(p, v) atomic_store_explicit((p), (v), memory_order_release)
#define atomic_count(p, n) ((void)atomic_fetch_add_explicit((p), (n), memory_order_relaxed))
/* For a counter that only one thread writes: no locked instruction. */
#define atomic_count_own(p, n) atomic_set((p), atomic_seen(p) + (n))

#endif
