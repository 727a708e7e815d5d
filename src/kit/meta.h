/* meta.h - memory for the allocator's own structures: zeroed, never given back.
 * What is no longer needed is kept by its user for the next use. Thread-safe. */
#ifndef KIT_META_H
#define KIT_META_H

#include "base/bits.h"

/* NULL when out of memory; aligned to a cache line. */
HAK_CHECKED void *meta_alloc(size_t bytes);
/* Bytes taken from the kernel so far. */
size_t meta_bytes(void);

#endif
