/* memcheck.h - blocks while Valgrind's memcheck watches: each is longer than requested, by a tail that nobody may touch.
 *
 * All of it is dead code where memcheck_on() is a constant: os/memcheck.h. */
#ifndef FRONT_MEMCHECK_H
#define FRONT_MEMCHECK_H

#include "front/inspect.h"
#include "os/memcheck.h"

/* The usable size, tail included, of the block for a request; SIZE_MAX if the request cannot be served. */
HAK_COLD size_t memcheck_room(size_t size, size_t align);
/* The same for a live block that is to be resized to `size` in place; 0 if it must move. */
HAK_COLD size_t memcheck_room_in_place(const block_info_t *info, const void *block, size_t size);
/* The bytes of a live block that the program may use, with or without memcheck. */
HAK_INLINE size_t memcheck_usable(const block_info_t *info, const void *block) {
  return memcheck_on() ? memcheck_size(block, info->size) : info->size;
}

#endif
