/* resize.h - the sizes of blocks, and realloc. */
#ifndef FRONT_RESIZE_H
#define FRONT_RESIZE_H

#include "base/bits.h"

HAK_CHECKED void *block_realloc(void *block, size_t size);
/* The same, but takes a block that it moves to the heap that malloc allocates from; in place, the block of another heap does not grow. */
HAK_CHECKED void *block_realloc_to_default(void *block, size_t size);
/* Resizes in place; returns false if the block would have to move. */
HAK_CHECKED bool block_expand(void *block, size_t size);
/* Returns 0 for anything that is not a live block; in the secure library that ends the process. */
HAK_CHECKED size_t block_usable_size(const void *block);
/* The same, but anything that is not a live block ends the process. */
HAK_CHECKED size_t block_require(const void *block, const char *function);
/* The usable size that a request for `size` with `align` (a power of two) would get; 0 if it cannot be served. */
HAK_CHECKED size_t block_good_size(size_t size, size_t align);

#endif
