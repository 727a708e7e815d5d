/* probe.h - whether memory can be read, asked of the kernel without touching it.
 *
 * A futex's wait first compares the word with a value: EFAULT tells an address that cannot be read, EAGAIN one that can, and nothing
 * has changed.  Any other answer, such as a filter's, proves nothing.  glibc's malloc makes this call where threads meet, so that a
 * filter that was made for it knows the call; where it would make none, none is made.  Valgrind looks at the word itself and
 * complains, so there a byte is copied. */
#ifndef OS_PROBE_H
#define OS_PROBE_H

#include "base/bits.h"

#define PROBE_PAGE ((uintptr_t)4096) /* the smallest there is: what holds for a byte holds for these */

/* Whether the word that the byte is in, and so all that is on its page, can be read; false where that is not to be known. */
bool probe_readable(uintptr_t address);
/* Copies what another thread may unmap meanwhile; false where it cannot be read, or the kernel copies nothing. */
bool probe_copy(void *to, uintptr_t from, size_t bytes);
/* Whether the answers mean what they should: the end of the address space is nobody's. */
bool probe_works(void);

#endif
