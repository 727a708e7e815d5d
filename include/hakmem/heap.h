/* heap.h - named heaps: memory that a program counts, limits and frees as a whole.
 *
 *   hak_heap_t *cache = hak_heap_new("cache");
 *   void *block = hak_heap_malloc(cache, 100);
 *   hak_heap_free(cache);                    // frees all its blocks, too
 *
 * A block of a heap is like any other: free, realloc and malloc_usable_size accept it, in any thread.  Every function here is thread-safe,
 * with one rule: once hak_heap_free is called, no thread may use the heap or any of its blocks, and every free of one of its blocks must
 * have returned before that call.  A call with a heap that was freed ends the process with one line, unless its memory has become another
 * heap since.  No function is async-signal-safe.  Sizes, limits and figures are in bytes.
 *
 * A child of fork has the same heaps with the same blocks.  docs/heaps.md describes what a heap costs. */
#ifndef HAKMEM_HEAP_H
#define HAKMEM_HEAP_H

#include "hakmem/hakmem.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Named heaps ---- since 0.1 */

/* A heap.  The type is opaque. */
typedef struct hak_heap hak_heap_t;

/* Returns a new heap, or NULL with errno ENOMEM when memory is exhausted.  The first 31 characters of the name are kept, with '_' in place
 * of blanks, control characters, double quotes, backslashes and non-ASCII bytes; NULL is the empty name.  Names need not be unique. */
HAK_API HAK_MUST_USE hak_heap_t *hak_heap_new(const char *name);
/* Frees the heap and all its blocks.  If the heap is some thread's default heap, the process ends with one line.  NULL is ignored. */
HAK_API void hak_heap_free(hak_heap_t *heap);

/* Like malloc and its kin; they also fail with ENOMEM if the heap would exceed its limit. */
HAK_API HAK_MUST_USE HAK_MALLOC HAK_ALLOC_SIZE(2) void *hak_heap_malloc(hak_heap_t *heap, size_t size);
HAK_API HAK_MUST_USE HAK_MALLOC HAK_ALLOC_SIZE(2, 3) void *hak_heap_calloc(hak_heap_t *heap, size_t count, size_t size);
/* Returns NULL with EINVAL unless the alignment is a power of two. */
HAK_API HAK_MUST_USE HAK_MALLOC HAK_ALLOC_SIZE(3) void *hak_heap_aligned_alloc(hak_heap_t *heap, size_t alignment, size_t size);
/* Like strdup(3). */
HAK_API HAK_MUST_USE HAK_MALLOC char *hak_heap_strdup(hak_heap_t *heap, const char *text);
/* Like realloc, but moves a block of another heap, or of none, into this one.  Plain realloc leaves a block in its heap, and a block of
 * malloc in none, whatever the thread's default heap is.  Fails with ENOMEM at the limit of this heap, too. */
HAK_API HAK_MUST_USE HAK_ALLOC_SIZE(3) void *hak_heap_realloc(hak_heap_t *heap, void *block, size_t size);

/* Limits the total size of live blocks, each rounded up as hak_malloc_good_size reports; the secure library adds 8 bytes first, which that
 * function does not report.  A block of 0 bytes counts as 16.  0, the initial value, means no limit.  Blocks already live stay.  A realloc
 * that moves needs room for both blocks. */
HAK_API void hak_heap_set_limit(hak_heap_t *heap, size_t bytes);
/* From now on the calling thread's malloc and kin, including operator new, allocate from `heap`; with NULL, from the thread's own heap
 * again.  Returns the previous default heap, or NULL.  In a thread that has not allocated yet this may run out of memory: then nothing
 * changes and errno is ENOMEM; to detect that, set errno to 0 before the call.  The setting ends with the thread.  A child of fork keeps
 * the setting of the thread that forked.  What libc allocates and keeps in the meantime is also from `heap`: the storage of threads that
 * are started, which libc reuses for later threads, and the buffers of streams.  So start threads and open files first, or never free the
 * heap. */
HAK_API hak_heap_t *hak_heap_set_default(hak_heap_t *heap);
/* Returns the heap of a live block; NULL for a block of malloc, and for anything that is not a live block. */
HAK_API hak_heap_t *hak_heap_of(const void *block);
/* Returns the heap's name as hak_heap_new kept it; the string is valid as long as the heap. */
HAK_API const char *hak_heap_name(const hak_heap_t *heap);
/* Collects freed blocks and releases slabs without live blocks for use by other heaps; returns the bytes of these slabs. */
HAK_API size_t hak_heap_collect(hak_heap_t *heap);

/* Figures are exact at the time of the call, counted under the heap's lock [lock], or accumulated since hak_heap_new [counter].  Later
 * versions add fields only at the end. */
typedef struct hak_heap_usage {
  uint64_t struct_size; /* set by the caller to sizeof(hak_heap_usage_t); on return, the number of bytes filled */
  uint64_t limit; /* as set by hak_heap_set_limit; 0: none */
  uint64_t live; /* bytes of live blocks, rounded as for the limit; in the secure library including quarantined ones [lock] */
  uint64_t blocks; /* live blocks, a count; the same blocks as in `live` [lock] */
  uint64_t peak; /* highest value of `live` so far, including blocks freed but not yet collected [counter] */
  uint64_t slab_bytes; /* memory of its slabs [lock] */
  uint64_t large_bytes; /* the part of `live` in large blocks [lock] */
  uint64_t large_blocks; /* how many of `blocks` are large [lock] */
  uint64_t allocs; /* blocks allocated so far, a count [counter] */
  uint64_t frees; /* blocks freed so far, a count: allocs less blocks */
  uint64_t refused; /* allocations refused because of the limit, a count [counter] */
} hak_heap_usage_t;

/* Fills the struct_size bytes of *usage; further fields of a newer, longer structure are set to 0.  Returns false (EINVAL), with nothing
 * written, unless struct_size is a multiple of 8 from 16 to 4096. */
HAK_API bool hak_heap_usage_get(hak_heap_t *heap, hak_heap_usage_t *usage);

#ifdef __cplusplus
}
#endif
#endif
