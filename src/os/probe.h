/* probe.h - whether memory can be read, asked of the kernel without touching it.
 *
 * rt_sigprocmask copies the new set in before it finds that there is no such way to change the mask: EFAULT tells an address
 * that cannot be read, EINVAL one that can, and nothing has changed.  Any other answer, such as a filter's, proves nothing.  Valgrind
 * looks at the set itself and complains, so there a byte is copied. */
#ifndef OS_PROBE_H
#define OS_PROBE_H

#include <errno.h>

#include "os/memcheck.h"
#include "os/syscall.h"

#define PROBE_PAGE ((uintptr_t)4096) /* the smallest there is: what holds for a byte holds for these */

HAK_COLD static long probe_copy(uintptr_t address) {
  char byte;
  uintptr_t to[] = {(uintptr_t)&byte, 1}, from[] = {address, 1}; /* struct iovec */
  long self = syscall_3(SYS_getpid, 0, 0, 0);
  long result = syscall_6(SYS_process_vm_readv, self, (long)to, 1, (long)from, 1, 0);
  return result == 1 ? -EINVAL : result;
}

HAK_INLINE long probe_ask(uintptr_t address) {
  if (HAK_UNLIKELY(valgrind_on())) return probe_copy(address);
  return syscall_6(SYS_rt_sigprocmask, -1, (long)address, 0, 8, 0, 0);
}

/* Whether the 8 bytes there, and so all that is on their page, can be read. */
HAK_INLINE bool probe_readable(uintptr_t address) { return probe_ask(address) == -EINVAL; }

/* Whether the answers mean what they should: the end of the address space is nobody's. */
HAK_INLINE bool probe_works(void) { return probe_ask(0 - PROBE_PAGE) == -EFAULT; }

#endif
