#include "os/probe.h"

#include <errno.h>
#include <time.h>

#include "os/memcheck.h"
#include "os/os.h"
#include "os/syscall.h"

/* The word is compared with this value.  If it happens to be equal, the wait times out immediately. */
#define VALUE 0x7ee5b0d3u

static HAK_COLD long copy(void *to, uintptr_t from, size_t bytes) {
  uintptr_t target[] = {(uintptr_t)to, bytes}, source[] = {from, bytes}; /* struct iovec */
  return syscall_6(SYS_process_vm_readv, (long)os_process_id(), (long)target, 1, (long)source, 1, 0);
}

HAK_COLD bool probe_copy(void *to, uintptr_t from, size_t bytes) {
  if (load_relaxed(&os_filters) != 0) return false;
  return copy(to, from, bytes) == (long)bytes;
}

static HAK_COLD long probe_by_copy(uintptr_t address) {
  char byte;
  long result = copy(&byte, address, 1);
  return result == 1 ? -EAGAIN : result;
}

static long probe_ask(uintptr_t address) {
  static const struct timespec at_once;
  uintptr_t word = address & ~(uintptr_t)3;
  if (HAK_UNLIKELY(valgrind_on())) return probe_by_copy(word);
  long result = syscall_6(SYS_futex, (long)word, FUTEX_WAIT | FUTEX_PRIVATE, VALUE, (long)&at_once, 0, 0);
  if (result == 0) os_wake((_Atomic uint32_t *)word, 1); /* this thread consumed a wake-up meant for another */
  return result;
}

/* A single-threaded process may run, from its start, under a filter that does not allow futex. */
static bool may_ask(void) { return load_relaxed(&os_filters) == 0 && (!os_single_threaded() || !os_started_filtered()); }

bool probe_readable(uintptr_t address) {
  if (!may_ask()) return false;
  long result = probe_ask(address);
  return result == -EAGAIN || result == -ETIMEDOUT || result == 0;
}

bool probe_works(void) { return may_ask() && probe_ask(0 - PROBE_PAGE) == -EFAULT; }
