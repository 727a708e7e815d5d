/* probe.h - whether memory can be read, asked of the kernel without touching it.
 *
 * rt_sigprocmask copies the new set in before it finds that there is no such way to change the mask: EFAULT tells an address
 * that cannot be read, EINVAL one that can, and nothing has changed.  Any other answer, such as a filter's, proves nothing. */
#ifndef OS_PROBE_H
#define OS_PROBE_H

#include <errno.h>

#include "os/syscall.h"

#define PROBE_PAGE ((uintptr_t)4096) /* the smallest there is: what holds for a byte holds for these */

HAK_INLINE long probe_ask(uintptr_t address) { return syscall_6(SYS_rt_sigprocmask, -1, (long)address, 0, 8, 0, 0); }

/* Whether the 8 bytes there, and so all that is on their page, can be read. */
HAK_INLINE bool probe_readable(uintptr_t address) { return probe_ask(address) == -EINVAL; }

/* Whether the answers mean what they should: the end of the address space is nobody's. */
HAK_INLINE bool probe_works(void) { return probe_ask(0 - PROBE_PAGE) == -EFAULT; }

#endif
