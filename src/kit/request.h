/* request.h - requests from outside the process to give memory back, as malloc_trim would.
 *
 * The requester writes a number other than `request_done` into `request_wanted` and waits until `request_done` has it.  The next slow path
 * of any thread, or the keeper, does the work; so a process that makes no call and has no keeper does nothing.  The written value is only
 * compared: it is no address, and each change of it costs at most one collection.
 *
 * A fork's child does not answer: the request was for its parent. */
#ifndef KIT_REQUEST_H
#define KIT_REQUEST_H

#include "base/atomics.h"
#include "base/bits.h"

extern _Atomic uint64_t request_wanted; /* written only from outside, except in a fork's child */
extern _Atomic uint64_t request_taken;  /* the last number whose work was begun */
extern _Atomic uint64_t request_done;   /* the last number whose work was done */

HAK_INLINE bool request_waits(void) { return load_relaxed(&request_wanted) != load_relaxed(&request_taken); }
/* For any thread.  True for one of the threads that find a request: it must do the work and then call request_finish. */
HAK_CHECKED bool request_take(uint64_t *number);
void request_finish(uint64_t number);
void request_after_fork(void);

#endif
