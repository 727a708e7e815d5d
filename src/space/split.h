/* split.h - the mappings that we split, of which a process has a limited number.
 *
 * A guard made by protection, a superslab that was moved, and a row of huge superslabs each add two mappings.  All of them together take at
 * most half of what the kernel allows; the rest is left to the program, for its own mappings and its threads' stacks. */
#ifndef SPACE_SPLIT_H
#define SPACE_SPLIT_H

#include "base/bits.h"

typedef enum split { SPLIT_GUARD, SPLIT_MOVE, SPLIT_HUGE, SPLIT_KINDS } split_t;

/* Counts one more; false if there are enough. */
HAK_CHECKED bool split_take(split_t kind);
/* Counts one more that has been made already. */
void split_add(split_t kind);
/* Sets the number of that kind, which was counted anew. */
void split_set(split_t kind, uint32_t count);
/* Counts one less. */
void split_give(split_t kind);

#endif
