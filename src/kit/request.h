/* request.h - what somebody outside of the process asks of it: that it gives back what it can, as malloc_trim would.
 *
 * Who asks writes a number into `request_wanted` that is not in `request_done`, and waits for it there.  The next slow path of any thread
 * does it, or the keeper; so a process that makes no call and has no keeper does nothing.  Whatever is written is a number to be compared:
 * it leads nowhere, and the most that it costs is one such collection each time that it is changed.
 *
 * A fork's child answers nobody: the request was its parent's. */
#ifndef KIT_REQUEST_H
#define KIT_REQUEST_H

#include "base/atomics.h"
#include "base/bits.h"

extern _Atomic uint64_t request_wanted; /* written from outside alone, but in a fork's child */
extern _Atomic uint64_t request_taken;  /* the last that somebody has begun with */
extern _Atomic uint64_t request_done;   /* the last that was done */

HAK_INLINE bool request_waits(void) { return load_relaxed(&request_wanted) != load_relaxed(&request_taken); }
/* Any thread: true for one of those that find a request, which is to do it and to say so. */
HAK_CHECKED bool request_take(uint64_t *number);
void request_finish(uint64_t number);
void request_after_fork(void);

#endif
