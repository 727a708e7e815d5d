/* memo.h - numbers of stacks that look as they did, so that not each needs a walk.
 *
 * From one function, with its frame at one place, a walk goes on as the words of the stack say that it reads (unwind.h).  A memo has where
 * these lie, a sum of what they were, and the number that the caller has made of what the walk found. */
#ifndef OS_MEMO_H
#define OS_MEMO_H

#include "os/unwind.h"

/* `here` is the frame of the function that calls, which is always the same one.  False: there is none, or the stack is another. */
HAK_CHECKED bool memo_find(uintptr_t here, uint64_t *number);
/* After a walk that had `here` for reads->from. In place of another memo, perhaps. */
void memo_keep(const unwind_reads_t *reads, uint64_t number);
/* As unwind_forget. */
void memo_forget(void);

#endif
