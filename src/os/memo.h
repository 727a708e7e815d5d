/* memo.h - remembers the result of a stack walk, so that an unchanged stack needs no second walk.
 *
 * For a given function with its frame at a given address, the stack words that a walk reads determine its course (unwind.h).  A memo holds
 * the places of these words, checksums of their values, and the number that the caller derived from the walk. */
#ifndef OS_MEMO_H
#define OS_MEMO_H

#include "os/unwind.h"

/* `here` is the frame of the calling function, which must always be the same function.  False: there is no memo, or the stack differs. */
HAK_CHECKED bool memo_find(uintptr_t here, uint64_t *number);
/* Keeps the result of a walk for which reads->from was `here`.  May replace another memo. */
void memo_keep(const unwind_reads_t *reads, uint64_t number);
/* Drops all memos, like unwind_forget. */
void memo_forget(void);

#endif
