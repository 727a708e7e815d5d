#include "os/probe.h"

#include <errno.h>
#include <time.h>

#include "os/memcheck.h"
#include "os/os.h"
#include "os/syscall.h"

/* What the word is compared with.  Where it happens to be that, the wait is for no time at all. */
#define VALUE 0x7ee5b0d3u

static HAK_COLD long probe_copy(uintptr_t address) {
  char byte;
  uintptr_t to[] = {(uintptr_t)&byte, 1}, from[] = {address, 1}; /* struct iovec */
  long self = syscall_3(SYS_getpid, 0, 0, 0);
  long result = syscall_6(SYS_process_vm_readv, self, (long)to, 1, (long)from, 1, 0);
  return result == 1 ? -EAGAIN : result;
}

static long probe_ask(uintptr_t address) {
  static const struct timespec at_once;
  uintptr_t word = address & ~(uintptr_t)3;
  if (HAK_UNLIKELY(valgrind_on())) return probe_copy(word);
  long result = syscall_6(SYS_futex, (long)word, FUTEX_WAIT | FUTEX_PRIVATE, VALUE, (long)&at_once, 0, 0);
  if (result == 0) os_wake((_Atomic uint32_t *)word, 1); /* woken within no time: that was meant for another */
  return result;
}

/* A process of one thread may be under a filter from its start that knows no futex at all. */
static bool may_ask(void) { return load_relaxed(&os_filters) == 0 && (!os_single_threaded() || !os_started_filtered()); }

bool probe_readable(uintptr_t address) {
  if (!may_ask()) return false;
  long result = probe_ask(address);
  return result == -EAGAIN || result == -ETIMEDOUT || result == 0;
}

bool probe_works(void) { return may_ask() && probe_ask(0 - PROBE_PAGE) == -EFAULT; }
