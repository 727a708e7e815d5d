/* mimalloc.h - what the files of libmimalloc.so.2 share. */
#ifndef COMPAT_MIMALLOC_H
#define COMPAT_MIMALLOC_H

#include "../common.h"

/* A heap is a named heap, or heap_backing, which stands for malloc's own heap. */
typedef struct mi_heap_s mi_heap_t;
extern struct mi_heap_s {
  char unused;
} heap_backing;

/* NULL for heap_backing. */
hak_heap_t *heap_named(const mi_heap_t *heap);

/* All functions that allocate call these.  A heap of NULL is the thread's default. */
void *heap_take(mi_heap_t *heap, size_t size, size_t alignment, bool zero);
/* With `zero` what the block grows by is zero. */
void *heap_change(mi_heap_t *heap, void *block, size_t size, size_t alignment, bool zero);

typedef void output_fn(const char *text, void *to);

#endif
