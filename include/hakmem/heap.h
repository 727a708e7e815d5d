/* heap.h - named heaps: memory that a program counts, limits and frees as one.
 *
 *   hak_heap_t *cache = hak_heap_new("cache");
 *   void *block = hak_heap_malloc(cache, 100);
 *   hak_heap_free(cache);                    // and all its blocks
 *
 * A block of a heap is like any other: free, realloc and malloc_usable_size take it, in any thread.  Every function here is thread-safe,
 * with one rule: nobody may use a heap, or a block of it, from when hak_heap_free is called on, and a free of such a block has to have
 * returned by then.  A call with a heap that is no more ends the process with one line, unless the same memory is another
 * heap by then.  None is async-signal-safe.  Sizes, limits and figures are in bytes.
 *
 * In a child of fork there are the same heaps with the same blocks.  docs/heaps.md tells what a heap costs. */
#ifndef HAKMEM_HEAP_H
#define HAKMEM_HEAP_H

#include "hakmem/hakmem.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Named heaps ---- since 0.1 */

/* A heap; only pointers to it are passed. */
typedef struct hak_heap hak_heap_t;

/* A new heap.  Of the name the first 31 characters are kept, with '_' for blanks, quotes, backslashes and all that is not ASCII; NULL is
 * the empty name.  Names need not differ.  NULL with errno ENOMEM when memory is out. */
HAK_API HAK_MUST_USE hak_heap_t *hak_heap_new(const char *name);
/* Frees all blocks of the heap, and the heap.  If it is a thread's default heap, the process ends with one line.  NULL is no action. */
HAK_API void hak_heap_free(hak_heap_t *heap);

/* As malloc and its kin; ENOMEM also where the heap would get beyond its limit. */
HAK_API HAK_MUST_USE HAK_MALLOC HAK_ALLOC_SIZE(2) void *hak_heap_malloc(hak_heap_t *heap, size_t size);
HAK_API HAK_MUST_USE HAK_MALLOC HAK_ALLOC_SIZE(2, 3) void *hak_heap_calloc(hak_heap_t *heap, size_t count, size_t size);
/* The alignment must be a power of two, else NULL with EINVAL. */
HAK_API HAK_MUST_USE HAK_MALLOC HAK_ALLOC_SIZE(3) void *hak_heap_aligned_alloc(hak_heap_t *heap, size_t alignment, size_t size);
/* As strdup(3). */
HAK_API HAK_MUST_USE HAK_MALLOC char *hak_heap_strdup(hak_heap_t *heap, const char *text);
/* A block of another heap, or of none, moves into this one; plain realloc leaves a block in its heap.  NULL and 0 as with realloc. */
HAK_API HAK_MUST_USE HAK_ALLOC_SIZE(3) void *hak_heap_realloc(hak_heap_t *heap, void *block, size_t size);

/* What live blocks may take, rounded as hak_malloc_good_size tells (in the secure library with 8 more before that; 0 bytes take 16); 0,
 * with which a heap begins, is no limit.  What is live already stays.  A realloc that has to move needs room for both. */
HAK_API void hak_heap_set_limit(hak_heap_t *heap, size_t bytes);
/* The calling thread's malloc and kin, with operator new, take from `heap` from now on; with NULL from the thread's own again.  Returns
 * the heap before, or NULL.  Out of memory, in a thread that has not allocated yet, nothing changes and errno is ENOMEM; set it to 0
 * before to see that.  It ends with the thread.  A child of fork keeps that of the thread that forked.  What libc allocates meanwhile
 * and keeps is from it too: the storage of threads that are started, which libc uses again for others, and the buffers of streams.  So
 * start threads and open files before, or do not free the heap. */
HAK_API hak_heap_t *hak_heap_set_default(hak_heap_t *heap);
/* The heap of a live block; NULL if it is malloc's, or no live block. */
HAK_API hak_heap_t *hak_heap_of(const void *block);
/* The name as it was kept; it lives as long as the heap. */
HAK_API const char *hak_heap_name(const hak_heap_t *heap);
/* Brings in what was freed and gives slabs without a block back, for others to use; returns their bytes. */
HAK_API size_t hak_heap_collect(hak_heap_t *heap);

/* Exact for the moment of the call, under the heap's lock [lock], or kept since hak_heap_new [counter].  Later versions add fields at the
 * end alone. */
typedef struct hak_heap_usage {
  uint64_t struct_size;  /* set by the caller to sizeof(hak_heap_usage_t); afterwards, how many bytes are filled */
  uint64_t limit;        /* hak_heap_set_limit */
  uint64_t live;         /* bytes of blocks, rounded, as the limit counts them; in the secure library also in quarantine [lock] */
  uint64_t blocks;       /* of those, a count [lock] */
  uint64_t peak;         /* the most that `live` was, with what had been freed and was not yet brought in [counter] */
  uint64_t slab_bytes;   /* the memory of its slabs [lock] */
  uint64_t large_bytes;  /* of `live`, in large blocks [lock] */
  uint64_t large_blocks; /* of `blocks` [lock] */
  uint64_t allocs;       /* blocks allocated so far, a count [counter] */
  uint64_t frees;        /* blocks freed so far: allocs less blocks */
  uint64_t refused;      /* allocations that the limit has refused, a count [counter] */
} hak_heap_usage_t;

/* Fills as much of *usage as struct_size says; what a newer, longer one has more is set to 0.  False (EINVAL), with nothing written, if
 * struct_size is not a multiple of 8 from 16 to 4096. */
HAK_API bool hak_heap_usage_get(hak_heap_t *heap, hak_heap_usage_t *usage);

#ifdef __cplusplus
}
#endif
#endif
