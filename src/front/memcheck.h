/* memcheck.h - what blocks are while Valgrind's memcheck watches: a tail longer than asked for, which nobody may touch.
 *
 * All of it is dead code where memcheck_on() is a constant: os/memcheck.h. */
#ifndef FRONT_MEMCHECK_H
#define FRONT_MEMCHECK_H

#include "front/inspect.h"
#include "os/memcheck.h"

/* The usable size, tail included, of a block for a request; SIZE_MAX for one that cannot be. */
HAK_COLD size_t memcheck_room(size_t size, size_t align);
/* The same of a live block that is to be one of `size` where it is; 0 if it must move. */
HAK_COLD size_t memcheck_room_in_place(const block_info_t *info, const void *block, size_t size);
/* What the program may use of a live block, with or without memcheck. */
HAK_INLINE size_t memcheck_usable(const block_info_t *info, const void *block) {
  return memcheck_on() ? memcheck_size(block, info->size) : info->size;
}

#endif
