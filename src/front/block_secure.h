/* block_secure.h - the usual paths of malloc and free in the secure library. */
#ifndef FRONT_BLOCK_SECURE_H
#define FRONT_BLOCK_SECURE_H

#include "base/bits.h"

/* As block_alloc, block_alloc_own and block_free. */
HAK_CHECKED void *alloc_secure(size_t size);
HAK_CHECKED void *alloc_secure_own(size_t size);
void free_secure(void *block, size_t size, const char *function);

#endif
