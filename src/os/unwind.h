/* unwind.h - the return addresses of the calling thread's calls, from the innermost outward.
 *
 * By unwind tables; where an address has none, by its frame pointer, if that leads up the stack to a call of known code.  Not
 * the other way round: a chain of frame pointers can be right in each link and yet pass by the functions that keep none.
 *
 * Takes no lock, calls no function of libc but what compilers call by themselves and _dl_find_object, allocates nothing, keeps
 * errno.  Reads of the stack only what is known to be readable (stack.h), else what the kernel says to be, once a page and walk, and
 * upwards only: a frame that does not end above its callee's is the last, but for a signal's, which may be on another stack.  So it
 * may run in signal handlers, on alternate stacks and on those of fibers, and with tables that are wrong. */
#ifndef OS_UNWIND_H
#define OS_UNWIND_H

#include "base/bits.h"

/* Makes known what the loader cannot be asked later: once before the first walk, again after modules were loaded. It may lock and
 * read files; not while another thread is in it. */
void unwind_prepare(void);

/* What led a walk to its return addresses: words of the stack, of which those below `from` are left out.  Where the same function stands
 * at the same place and all of them are the same, a walk finds the same.  Not `all` of them are told if there are more, or not by rules
 * of earlier walks alone. */
enum { UNWIND_READS = 20 };
typedef struct unwind_reads {
  uintptr_t from;
  uintptr_t place[UNWIND_READS];
  uint32_t count;
  bool all;
} unwind_reads_t;

/* Where this was called, where that function was called, and so on, `most` at most; how many.  *whole, unless NULL: it came to where
 * the thread or fiber began.  `reads` may be NULL. */
uint32_t unwind_here(void **frames, uint32_t most, bool *whole, unwind_reads_t *reads);
/* Each walk leaves what it has learnt of addresses to later ones; this drops it, as for modules that have gone. */
void unwind_forget(void);

#endif
