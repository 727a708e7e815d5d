#include "os/lock.h"

#include "base/thread.h"

bool lock_try(lock_t *lock) {
  uintptr_t none = 0;
  return atomic_compare_exchange_strong(&lock->holder, &none, thread_self());
}

bool lock_is_mine(const lock_t *lock) { return atomic_seen(&lock->holder) == thread_self(); }

static _Atomic uintptr_t silent;

void lock_say_no_more(void) { atomic_set(&silent, thread_self()); }

/* Only a signal handler that has interrupted the allocator, and calls it, waits for its own thread: that has no end. */
static HAK_COLD _Noreturn void lock_reentered(void) {
  static const char line[] = "hakmem: a signal handler called the allocator, which its thread was inside of\n";
  if (atomic_seen(&silent) != thread_self()) (void)os_write(2, line, sizeof line - 1);
  os_end();
}

void lock_pause(const lock_t *lock, unsigned tries) {
  if (HAK_UNLIKELY(lock_is_mine(lock))) lock_reentered();
  if (tries < 64) os_yield();
  else os_sleep_us(100);
}

static void lock_wait(lock_t *lock) {
  for (unsigned tries = 0; !lock_try(lock); tries++) {
    /* The holder was left behind in the parent. */
    if (os_forked()) lock_abandon(lock);
    lock_pause(lock, tries);
  }
}

void lock_acquire(lock_t *lock) {
  if (HAK_UNLIKELY(!lock_try(lock))) lock_wait(lock);
}

void lock_release(lock_t *lock) { atomic_publish(&lock->holder, (uintptr_t)0); }
void lock_release_fully(lock_t *lock) { (void)atomic_exchange(&lock->holder, (uintptr_t)0); }

void lock_abandon(lock_t *lock) {
  if (!lock_is_mine(lock)) lock_release(lock);
}
