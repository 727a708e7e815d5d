/* split.h - the mappings that we split, of which a process has a limited number.
 *
 * A guard that is made of protection, a superslab that was moved, and a row of huge ones each make two mappings more.  All of them together
 * take at most half of what the kernel allows; the rest is the program's, for its own mappings and its threads' stacks. */
#ifndef SPACE_SPLIT_H
#define SPACE_SPLIT_H

#include "base/bits.h"

typedef enum split { SPLIT_GUARD, SPLIT_MOVE, SPLIT_HUGE, SPLIT_KINDS } split_t;

/* One more; false: there are enough. */
HAK_CHECKED bool split_take(split_t kind);
/* One more that has been made already. */
void split_add(split_t kind);
/* There are so many of the kind, counted anew. */
void split_set(split_t kind, uint32_t count);
/* One less. */
void split_give(split_t kind);

#endif
