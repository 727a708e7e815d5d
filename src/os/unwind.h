/* unwind.h - the return addresses of the calling thread, from the innermost call outward.
 *
 * A walk uses unwind tables; for an address without tables it uses the frame pointer, if that leads up the stack to a call in known code.
 * Not the other way round: each link in a chain of frame pointers can be right while the chain skips functions that keep none.
 *
 * Takes no lock, calls no function of libc except those that compilers call by themselves and _dl_find_object, allocates nothing, preserves
 * errno.  Reads only stack that is known to be readable (stack.h) or that the kernel reports as readable, asked once per page and walk, and
 * only upward: a frame that does not end above its callee's frame is the last, except a signal frame, which may be on another stack.  So a
 * walk may run in signal handlers, on alternate stacks and stacks of fibers, and with wrong tables. */
#ifndef OS_UNWIND_H
#define OS_UNWIND_H

#include "base/bits.h"

/* Collects what the loader cannot be asked during a walk.  Call it once before the first walk, and again after modules were loaded.  It
 * may take locks and read files; one thread at a time. */
void unwind_prepare(void);

/* The stack words that led a walk to its return addresses, without those below `from`.  If the same function has its frame at the same
 * place and all these words are the same, a walk finds the same addresses.  `all` is false if there were more words than fit, or if the
 * walk did not use rules of earlier walks alone. */
enum { UNWIND_READS = 20 };
typedef struct unwind_reads {
  uintptr_t from;
  uintptr_t place[UNWIND_READS];
  uint32_t count;
  bool all;
} unwind_reads_t;

/* Fills `frames` with the return address of this call, that of its caller, and so on, at most `most`; returns how many.  *whole, unless
 * NULL: whether the walk reached the start of the thread or fiber.  `reads` may be NULL. */
uint32_t unwind_here(void **frames, uint32_t most, bool *whole, unwind_reads_t *reads);
/* Walks cache what they learn about addresses for later walks; this drops the cache, as needed when modules have gone. */
void unwind_forget(void);

#endif
