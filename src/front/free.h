/* free.h - freeing what is not a live block of the thread's own heap, or has no room in its bin. */
#ifndef FRONT_FREE_H
#define FRONT_FREE_H

#include "front/bin.h"

/* Frees what the fast path cannot, or ends the process. */
void free_miss(void *block, size_t size, const char *function);
/* The bin is full: half of it goes back to the slabs. */
void free_overflow(bin_t *bin);

#endif
