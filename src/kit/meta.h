/* meta.h - memory for the allocator's own structures: zeroed, and not given back once it is used.
 * What is no longer needed is kept by its user for the next use. Thread-safe. */
#ifndef KIT_META_H
#define KIT_META_H

#include "base/bits.h"

/* NULL when out of memory; aligned to a cache line. */
HAK_CHECKED void *meta_alloc(size_t bytes);
/* What meta_alloc gave for as many bytes, and nobody else knows: another thread was faster. */
void meta_return(void *start, size_t bytes);
/* The memory of so many bytes that `*place` leads to; made if it leads to none yet, which several threads may ask for at once. NULL when
 * out of memory. */
HAK_CHECKED void *meta_once(void *_Atomic *place, size_t bytes);
/* Bytes taken from the kernel so far. */
size_t meta_bytes(void);

#endif
