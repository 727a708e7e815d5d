/* meta.h - memory for the allocator's own structures: zeroed, and never given back once used.
 * Users keep what they no longer need for the next use.  Thread-safe. */
#ifndef KIT_META_H
#define KIT_META_H

#include "base/bits.h"

/* Returns memory aligned to a cache line; NULL when out of memory. */
HAK_CHECKED void *meta_alloc(size_t bytes);
/* Gives back what meta_alloc returned for the same number of bytes and nobody else has seen, as when another thread was faster. */
void meta_return(void *start, size_t bytes);
/* Returns the memory that `*place` points to, and allocates it first if there is none; several threads may do so concurrently.  NULL when
 * out of memory. */
HAK_CHECKED void *meta_once(void *_Atomic *place, size_t bytes);
/* Bytes taken from the kernel so far. */
size_t meta_bytes(void);

#endif
