/* probe.h - asks the kernel whether memory can be read, without touching it.
 *
 * A futex wait first compares the word with a value: it returns EFAULT if the address cannot be read and EAGAIN if it can, and changes
 * nothing.  Any other answer, such as one from a filter, proves nothing.  glibc's malloc makes this call when threads contend, so a filter
 * made for glibc's malloc allows the call; where glibc's malloc would not make it, it is not made.  Valgrind reads the word itself and
 * complains, so there a byte is copied instead. */
#ifndef OS_PROBE_H
#define OS_PROBE_H

#include "base/bits.h"

#define PROBE_PAGE ((uintptr_t)4096) /* the smallest page size: what holds for one byte holds for its page */

/* Returns whether the word that contains the byte, and so its whole page, can be read; false if that cannot be determined. */
bool probe_readable(uintptr_t address);
/* Copies memory that another thread may unmap meanwhile; false if it cannot be read, or if the kernel refuses. */
bool probe_copy(void *to, uintptr_t from, size_t bytes);
/* Returns whether the answers can be trusted: a probe of the end of the address space, which is never mapped, must fail. */
bool probe_works(void);

#endif
