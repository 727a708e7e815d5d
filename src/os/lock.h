/* lock.h - a lock for rare, short work.
 *
 * Its users tolerate a fork while it is held: the child releases locks held by
 * threads that it does not have (lock_abandon), and whatever a lock protects is
 * changed in an order that at worst leaks when the holder vanishes. */
#ifndef OS_LOCK_H
#define OS_LOCK_H

#include "base/config.h"
#include "os/os.h"

/* A thread that holds an owner's lock may wait for the growth lock; no other wait is allowed with a lock held: docs/protocols.md */
typedef enum lock_rank { LOCK_OWNER, LOCK_GROW, LOCK_LISTS } lock_rank_t;

typedef struct lock {
  _Atomic uintptr_t holder;  /* thread_self() of the holder, 0 when free */
  _Atomic uint32_t sleepers; /* sleeping threads; a release wakes one of them */
#if HAK_AUDIT
  uint32_t rank;
#endif
} lock_t;

#if HAK_AUDIT
#define LOCK_OF_RANK(rank) {0, 0, (rank)}
/* Ends the process if the calling thread holds any lock. */
void lock_audit_none(void);
#else
#define LOCK_OF_RANK(rank) {0, 0}
#define lock_audit_none() ((void)0)
#endif

/* Takes the lock if it is free.  Sequentially consistent, whether it succeeds or not. */
HAK_CHECKED bool lock_try(lock_t *lock);
/* The same, for a caller that tries another lock if this one is held.  It loads first, since a failed try also takes the cache line from
 * the holder.  A failure orders nothing. */
HAK_CHECKED HAK_INLINE bool lock_try_if_free(lock_t *lock) { return load_relaxed(&lock->holder) == 0 && lock_try(lock); }
/* Waits for the lock.  Returns false in a fork's child that is not repaired yet, since the holder may exist only in the parent.  Ends the
 * process if the calling thread itself holds the lock. */
HAK_CHECKED bool lock_wait(lock_t *lock);
/* The same, but in such a child takes the lock from its holder. */
void lock_acquire(lock_t *lock);
void lock_release(lock_t *lock);
/* The same, sequentially consistent: after this call the holder sees what other
 * threads did before they failed to take the lock. */
void lock_release_fully(lock_t *lock);
/* Only a signal handler that interrupted the allocator and calls it can wait for its own thread, and that wait would never end.  Writes
 * one line and ends the process. */
_Noreturn void lock_reentered(void);
/* Returns whether the calling thread holds the lock. */
bool lock_is_mine(const lock_t *lock);
/* In a fork's child: releases the lock, unless the calling thread holds it and is `inside` code that takes locks.  If it is not inside, a
 * matching holder is a gone thread with the same id. */
void lock_abandon(lock_t *lock, bool inside);

#endif
