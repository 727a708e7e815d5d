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

/* For the few words on the paths of every malloc and free.  They are plain
 * objects, each an aligned word that one instruction moves; compilers do not
 * fold a relaxed atomic load into an operand, which cost four instructions a
 * free.  Under ThreadSanitizer they are the relaxed atomics that they stand for. */
#if defined(__SANITIZE_THREAD__)
#define HOT_ATOMIC 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define HOT_ATOMIC 1
#endif
#endif
#if defined(HOT_ATOMIC)
#define hot_load(p) __atomic_load_n((p), __ATOMIC_RELAXED)
#define hot_store(p, v) __atomic_store_n((p), (v), __ATOMIC_RELAXED)
#else
#define hot_load(p) (*(p))
#define hot_store(p, v) ((void)(*(p) = (v)))
#endif
/* Such a word seen from elsewhere. */
#define hot_peek(p) __atomic_load_n((p), __ATOMIC_RELAXED)
#define hot_poke(p, v) __atomic_store_n((p), (v), __ATOMIC_RELAXED)

#endif
