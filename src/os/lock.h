/* lock.h - a lock for rare, short work.
 *
 * It is never held across fork by design of its users: a child releases what
 * threads that are gone have held (lock_abandon), and whatever the lock protects
 * changes in an order that only ever leaks when its holder vanishes. */
#ifndef OS_LOCK_H
#define OS_LOCK_H

#include "base/config.h"
#include "os/os.h"

/* A holder of an owner's lock may wait for the lock of growth; no other wait is allowed with a lock held: docs/protocols.md */
typedef enum lock_rank { LOCK_OWNER, LOCK_GROW, LOCK_LISTS } lock_rank_t;

typedef struct lock {
  _Atomic uintptr_t holder;  /* thread_self() of the holder, 0 when free */
  _Atomic uint32_t sleepers; /* threads that the next release has to wake one of */
#if HAK_AUDIT
  uint32_t rank;
#endif
} lock_t;

#if HAK_AUDIT
#define LOCK_OF_RANK(rank) {0, 0, (rank)}
/* Ends the process if the calling thread holds any. */
void lock_audit_none(void);
#else
#define LOCK_OF_RANK(rank) {0, 0}
#define lock_audit_none() ((void)0)
#endif

/* Sequentially consistent, whether it succeeds or not. */
HAK_CHECKED bool lock_try(lock_t *lock);
/* The same, for who goes on to another lock where this one is taken: it looks first, since a try takes the line from the holder even if
 * it fails. A failure orders nothing. */
HAK_CHECKED HAK_INLINE bool lock_try_if_free(lock_t *lock) { return load_relaxed(&lock->holder) == 0 && lock_try(lock); }
/* Waits for the lock. False in a fork's child that was not repaired yet: the holder may have stayed behind in the parent. Ends the
 * process if the calling thread itself holds the lock. */
HAK_CHECKED bool lock_wait(lock_t *lock);
/* The same; in such a child the lock is taken from its holder. */
void lock_acquire(lock_t *lock);
void lock_release(lock_t *lock);
/* The same, sequentially consistent: what a thread did before it failed to take the
 * lock is seen by the holder after this. */
void lock_release_fully(lock_t *lock);
/* Only a signal handler that has interrupted the allocator, and calls it, waits for its own thread: that has no end. One line, and the
 * process ends. */
_Noreturn void lock_reentered(void);
/* Whether the calling thread holds it. */
bool lock_is_mine(const lock_t *lock);
/* In a fork's child: releases the lock, unless the calling thread is `inside` of what takes locks and itself holds it: what is not
 * may have the number of a thread that is gone. */
void lock_abandon(lock_t *lock, bool inside);

#endif
