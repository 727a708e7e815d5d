/* resize.h - how large blocks are, and realloc. */
#ifndef FRONT_RESIZE_H
#define FRONT_RESIZE_H

#include "base/bits.h"

HAK_CHECKED void *block_realloc(void *block, size_t size);
/* In place; false if the block would have to move. */
HAK_CHECKED bool block_expand(void *block, size_t size);
/* For anything that is not a live block 0; in the secure library that ends the process. */
HAK_CHECKED size_t block_usable_size(const void *block);
/* The same; anything else ends the process. */
HAK_CHECKED size_t block_require(const void *block, const char *function);
/* The usable size that `size` with `align` (a power of two) would get, or 0. */
HAK_CHECKED size_t block_good_size(size_t size, size_t align);

#endif
