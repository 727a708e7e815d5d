#include "os/lock.h"

#include "base/thread.h"
#include "os/line.h"

/* --- the order of locks ------------------------------------------------------------------- */

#if HAK_AUDIT

/* All held locks and their holders; locks that find no room are not checked.  A thread looks only for its own entries. */
#define HELD_MOST 64
static struct {
  const lock_t *_Atomic lock; /* NULL: free */
  _Atomic uintptr_t thread;
} held_locks[HELD_MOST];

static HAK_COLD _Noreturn void order_broken(const char *line) {
  line_write(line);
  os_abort();
}
#define ORDER(condition, text)                                                     \
  do {                                                                             \
    if (HAK_UNLIKELY(!(condition))) order_broken("broken invariant: lock: " text); \
  } while (0)

static void held_enter(const lock_t *lock) {
  for (unsigned i = 0; i < HELD_MOST; i++) {
    const lock_t *none = NULL;
    if (load_relaxed(&held_locks[i].lock) != NULL) continue;
    if (!atomic_compare_exchange_strong_explicit(&held_locks[i].lock, &none, lock, memory_order_relaxed, memory_order_relaxed)) continue;
    store_relaxed(&held_locks[i].thread, thread_self());
    return;
  }
}

static void held_leave(const lock_t *lock) {
  for (unsigned i = 0; i < HELD_MOST; i++) {
    if (load_relaxed(&held_locks[i].lock) != lock) continue;
    store_relaxed(&held_locks[i].thread, 0);
    store_relaxed(&held_locks[i].lock, NULL);
    return;
  }
}

/* Returns whether all locks that the thread holds, except `but`, have the lowest rank; *any: whether it holds any. */
static bool holds_owners(const lock_t *but, bool *any) {
  bool owners = true;
  *any = false;
  for (unsigned i = 0; i < HELD_MOST; i++) {
    if (load_relaxed(&held_locks[i].thread) != thread_self()) continue;
    const lock_t *lock = load_relaxed(&held_locks[i].lock);
    if (lock == NULL || lock == but || !lock_is_mine(lock)) continue;
    *any = true;
    owners &= lock->rank == LOCK_OWNER;
  }
  return owners;
}

/* Checks that the thread may wait for the lock with the locks that it holds. */
static void audit_wait(const lock_t *lock) {
  bool any, owners = holds_owners(lock, &any);
  ORDER(!any || (owners && lock->rank == LOCK_GROW), "waited for in the wrong order");
}

void lock_audit_none(void) {
  bool any;
  (void)holds_owners(NULL, &any);
  ORDER(!any, "held at the end of a slow path");
}

static void audit_taken(const lock_t *lock) {
  bool any;
  ORDER(holds_owners(lock, &any), "taken while one is held under which none may be");
  held_enter(lock);
}

static void audit_left(const lock_t *lock) {
  ORDER(lock_is_mine(lock), "released by a thread that does not hold it");
  held_leave(lock);
}

#else
#define audit_wait(lock) ((void)0)
#define audit_taken(lock) ((void)0)
#define audit_left(lock) ((void)0)
#define held_leave(lock) ((void)0)
#endif

/* --- locks -------------------------------------------------------------------------------- */

bool lock_try(lock_t *lock) {
  uintptr_t none = 0;
  if (!atomic_compare_exchange_strong(&lock->holder, &none, thread_self())) return false;
  audit_taken(lock);
  return true;
}

bool lock_is_mine(const lock_t *lock) { return load_relaxed(&lock->holder) == thread_self(); }

HAK_COLD void lock_reentered(void) {
  if (load_relaxed(&os_aborting) != thread_self()) line_write("a signal handler called the allocator, which its thread was inside of");
  os_end();
}

/* The holder is mostly a few instructions from its release, unless it has lost its processor.  It would hardly get the processor back
 * from a thousand polling threads, so waiters sleep until a release wakes one. */
#define YIELDS 4
/* A release checks for sleepers without waiting until its store is visible, so it may miss a thread that has just begun to sleep; the
 * timeout bounds that. */
#define SLEEP_US 10000

/* The kernel waits on 32 bits.  They distinguish most holders; if two look alike, the waiter wakes by timeout and tries again. */
static void *holder_word(lock_t *lock) { return (void *)(uintptr_t)&lock->holder; }
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the holder's first half is the lower one");

/* Waits between two tries. */
static void lock_pause(lock_t *lock, unsigned tries) {
  uintptr_t holder = load_relaxed(&lock->holder);
  if (HAK_UNLIKELY(holder == thread_self())) lock_reentered();
  os_end_if_pending(); /* it may be the holder that has left this */
  if (tries < YIELDS) {
    os_yield();
  } else if (holder != 0) {
    add_relaxed(&lock->sleepers, 1);
    os_wait(holder_word(lock), (uint32_t)holder, SLEEP_US, false);
    add_relaxed(&lock->sleepers, -1);
  }
}

static void lock_wake(lock_t *lock) {
  if (HAK_UNLIKELY(load_relaxed(&lock->sleepers) != 0)) os_wake(holder_word(lock), 1);
}

bool lock_wait(lock_t *lock) {
  audit_wait(lock);
  for (unsigned tries = 0; HAK_UNLIKELY(!lock_try(lock)); tries++) {
    lock_pause(lock, tries);
    if (os_forked()) return false;
  }
  return true;
}

void lock_acquire(lock_t *lock) {
  while (!lock_wait(lock)) lock_abandon(lock, true);
}

void lock_release(lock_t *lock) {
  audit_left(lock);
  store_release(&lock->holder, (uintptr_t)0);
  lock_wake(lock);
}

void lock_release_fully(lock_t *lock) {
  audit_left(lock);
  (void)atomic_exchange(&lock->holder, (uintptr_t)0);
  lock_wake(lock);
}

void lock_abandon(lock_t *lock, bool inside) {
  if (inside && lock_is_mine(lock)) return;
  held_leave(lock);
  store_relaxed(&lock->sleepers, 0); /* the sleepers are in the parent */
  store_release(&lock->holder, (uintptr_t)0);
}
