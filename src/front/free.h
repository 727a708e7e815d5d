/* free.h - freeing a block that is not a live one of the thread's own heap, or that fills its bin. */
#ifndef FRONT_FREE_H
#define FRONT_FREE_H

#include "front/bin.h"

/* Frees what the fast path cannot, or ends the process if the call is wrong. */
void free_miss(void *block, size_t size, const char *function);
/* For a full bin: half of it goes back to the slabs. */
void free_overflow(bin_t *bin);

#endif
