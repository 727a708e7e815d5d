/* atomics.h - the memory orders in use.
 *
 * A relaxed access needs a reason: the value is advisory, or only its own thread
 * writes it; docs/memory_orders.md gives the reason for each word.  A field that one
 * thread writes and others read is declared _Atomic, so that no tool and no reader
 * has to guess; a relaxed access costs the same as a plain one. */
#ifndef BASE_ATOMICS_H
#define BASE_ATOMICS_H

#include <stdatomic.h>
#include <string.h>

#define load_relaxed(p) atomic_load_explicit((p), memory_order_relaxed)
#define store_relaxed(p, v) atomic_store_explicit((p), (v), memory_order_relaxed)
#define load_acquire(p) atomic_load_explicit((p), memory_order_acquire)
#define store_release(p, v) atomic_store_explicit((p), (v), memory_order_release)
#define add_relaxed(p, n) ((void)atomic_fetch_add_explicit((p), (n), memory_order_relaxed))
/* For a counter that only one thread writes: no atomic read-modify-write. */
#define owner_add(p, n) store_relaxed((p), load_relaxed(p) + (n))

/* For the few words that every malloc and free accesses.  They are plain
 * objects, each an aligned word that one instruction loads or stores, because
 * compilers do not fold a relaxed atomic load into an operand: that cost four
 * instructions per free.  Under ThreadSanitizer they are relaxed atomics. */
#if defined(__SANITIZE_THREAD__)
#define RACY_ATOMIC 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define RACY_ATOMIC 1
#endif
#endif
#if defined(RACY_ATOMIC)
#define owner_load(p) __atomic_load_n((p), __ATOMIC_RELAXED)
#define owner_store(p, v) __atomic_store_n((p), (v), __ATOMIC_RELAXED)
#define owner_move(to, from, count)                                                          \
  do {                                                                                       \
    for (size_t i_ = 0; i_ < (count); i_++) owner_store(&(to)[i_], owner_load(&(from)[i_])); \
  } while (0)
#define owner_clear(words, count)                                         \
  do {                                                                    \
    for (size_t i_ = 0; i_ < (count); i_++) owner_store(&(words)[i_], 0); \
  } while (0)
#else
#define owner_load(p) (*(p))
#define owner_store(p, v) ((void)(*(p) = (v)))
#define owner_move(to, from, count) ((void)memmove((to), (from), (count) * sizeof *(to))) /* downward */
#define owner_clear(words, count) ((void)memset((words), 0, (count) * sizeof *(words)))
#endif
/* Access to such a word by a thread that is not its owner. */
#define racy_load(p) __atomic_load_n((p), __ATOMIC_RELAXED)
#define racy_store(p, v) __atomic_store_n((p), (v), __ATOMIC_RELAXED)

#endif
