/* hakmem.h - the public interface of the hakmem memory allocator.
 *
 * Every function here is thread-safe and may be called before main and after thread destructors have run.  None is async-signal-safe unless
 * it says so. Sizes and alignments are in bytes.  All blocks are aligned to 16 bytes at least.  Functions that allocate return NULL with
 * errno ENOMEM when memory is out or the request exceeds PTRDIFF_MAX; old blocks are untouched then. On success no function changes errno;
 * hak_free never changes it.
 *
 * A pointer that was not obtained from hakmem, was already freed, or does not point to the start of a block ends the process with one line
 * on standard error that names the pointer, the fault and the size class. */
#ifndef HAKMEM_H
#define HAKMEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* The version of this header, for which hak_version tells that of the library. Since 0.1. */
#define HAK_VERSION_MAJOR 0
#define HAK_VERSION_MINOR 1
#define HAK_VERSION_PATCH 0

/* What the declarations tell a compiler.  A library that has hakmem in it and keeps the names to itself defines HAK_API as nothing. */
#if defined(__GNUC__)
#ifndef HAK_API
#define HAK_API __attribute__((visibility("default")))
#endif
#define HAK_MALLOC __attribute__((malloc))
#define HAK_ALLOC_SIZE(...) __attribute__((alloc_size(__VA_ARGS__)))
#define HAK_MUST_USE __attribute__((warn_unused_result))
#else /* which would not understand */
#define HAK_API
#define HAK_MALLOC
#define HAK_ALLOC_SIZE(...)
#define HAK_MUST_USE
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* The version in use as "major.minor.patch"; a static string. Since 0.1. */
HAK_API const char *hak_version(void);

/* ---- The C allocation functions, under a name that never collides ---- since 0.1 */

/* malloc(0) returns a unique block that must be freed. */
HAK_API HAK_MUST_USE HAK_MALLOC HAK_ALLOC_SIZE(1) void *hak_malloc(size_t size);
HAK_API HAK_MUST_USE HAK_MALLOC HAK_ALLOC_SIZE(1, 2) void *hak_calloc(size_t count, size_t size);
/* realloc(NULL, n) is malloc(n); realloc(p, 0) frees p and returns NULL with errno unchanged. */
HAK_API HAK_MUST_USE HAK_ALLOC_SIZE(2) void *hak_realloc(void *block, size_t size);
/* As realloc of count * size; an overflowing product is ENOMEM. */
HAK_API HAK_MUST_USE HAK_ALLOC_SIZE(2, 3) void *hak_reallocarray(void *block, size_t count, size_t size);
/* BSD: as reallocarray, new bytes are zero and released ones are cleared first; old_count * size beyond the usable size is EINVAL. */
HAK_API HAK_MUST_USE HAK_ALLOC_SIZE(3, 4) void *hak_recallocarray(void *block, size_t old_count, size_t count, size_t size);
/* BSD: as realloc, but frees the old block when it fails. */
HAK_API HAK_MUST_USE HAK_ALLOC_SIZE(2) void *hak_reallocf(void *block, size_t size);
/* NULL is no action.  hak_cfree is an old name of the same. */
HAK_API void hak_free(void *block);
HAK_API void hak_cfree(void *block);

/* The alignment must be a power of two, else NULL with EINVAL. Any size. */
HAK_API HAK_MUST_USE HAK_MALLOC HAK_ALLOC_SIZE(2) void *hak_aligned_alloc(size_t alignment, size_t size);
HAK_API HAK_MUST_USE HAK_MALLOC HAK_ALLOC_SIZE(2) void *hak_memalign(size_t alignment, size_t size);
/* Returns 0, EINVAL (not a power of two, or below sizeof(void *)) or ENOMEM; *result and errno are untouched on failure. */
HAK_API HAK_MUST_USE int hak_posix_memalign(void **result, size_t alignment, size_t size);
/* Aligned to pages, of 4 KiB or as large as the system has them; hak_pvalloc rounds the size up to whole ones. */
HAK_API HAK_MUST_USE HAK_MALLOC HAK_ALLOC_SIZE(1) void *hak_valloc(size_t size);
HAK_API HAK_MUST_USE HAK_MALLOC void *hak_pvalloc(size_t size);

/* C23. `size` is what was asked for last, also by realloc or hak_expand; one larger than the block ends the process. NULL is no action. */
HAK_API void hak_free_sized(void *block, size_t size);
HAK_API void hak_free_aligned_sized(void *block, size_t alignment, size_t size);

/* The bytes that may be used in a live block, at least those asked for, in the secure library just those; 0 for NULL. For a pointer to
 * anything else 0; in the secure library it ends the process. */
HAK_API size_t hak_malloc_usable_size(const void *block);
/* Whether a live block starts at `address`, which may be any; any thread may ask. Others may change that before the answer is there. */
HAK_API bool hak_is_live(const void *address);
/* The usable size that malloc(size) would give, if there is room, or less with HAKMEM_GUARD; 0 for more than any heap holds. */
HAK_API size_t hak_malloc_good_size(size_t size);

/* Flags for hak_nallocx and hak_sdallocx: the alignment as its logarithm, as in jemalloc. HAK_ZERO changes nothing here. */
#define HAK_LG_ALIGN(la) ((int)(la))
#define HAK_ALIGN(a) ((int)__builtin_ctzl(a))
#define HAK_ZERO 0x40
/* The same of an allocation of `size` with these flags. */
HAK_API size_t hak_nallocx(size_t size, int flags);
/* As hak_free_sized; the flags tell nothing that the size does not. */
HAK_API void hak_sdallocx(void *block, size_t size, int flags);

/* ---- Beyond the C library ---- since 0.1 */

/* What hak_alloc_at_least returns. */
typedef struct hak_sized {
  void *ptr;   /* NULL with size 0 on failure */
  size_t size; /* bytes usable, at least those asked for */
} hak_sized_t;

/* Allocates at least `size` bytes and says how many there are. */
HAK_API HAK_MUST_USE hak_sized_t hak_alloc_at_least(size_t size);

/* Makes a block larger in place; false (errno and block unchanged) where it would move. A smaller size is true and leaves it as it is; in
 * the secure library a small block then has just that size, and a large one is false. */
HAK_API HAK_MUST_USE bool hak_expand(void *block, size_t size);

/* Fills blocks[0..count) with blocks of `size` bytes; returns how many it got: fewer only when memory is out, with ENOMEM. */
HAK_API HAK_MUST_USE size_t hak_malloc_batch(size_t size, size_t count, void **blocks);
/* Frees blocks[0..count); NULL entries are skipped. */
HAK_API void hak_free_batch(void **blocks, size_t count);

/* Gives memory back: the calling thread's cached blocks, most of other threads', pending remote frees, every free page. With force false,
 * nothing of threads that run, and pages that have been free for the decay time. Returns the bytes returned to the operating system. */
HAK_API size_t hak_collect(bool force);

/* ---- The libc statistics names ---- since 0.1 */

/* As malloc_trim(3): gives back what it can; 1 if any memory was returned. `pad` is ignored. */
HAK_API int hak_malloc_trim(size_t pad);
/* Accepts glibc's parameters; 1 where the request is honoured or harmless, 0 for an unknown one. */
HAK_API int hak_mallopt(int parameter, int value);
/* Human-readable statistics on standard error. */
HAK_API void hak_malloc_stats(void);
/* glibc's malloc_info: XML on `stream`; `options` must be 0, else EINVAL is returned. */
HAK_API int hak_malloc_info(int options, FILE *stream);

/* glibc's mallinfo2, field by field; bytes but for the counts. */
typedef struct hak_mallinfo {
  size_t arena; /* block memory in all */
  size_t ordblks; /* slabs in use, a count */
  size_t smblks; /* 0 */
  size_t hblks; /* large blocks live, a count */
  size_t hblkhd; /* 0: large blocks are part of arena */
  size_t usmblks; /* 0 */
  size_t fsmblks; /* cached in bins */
  size_t uordblks; /* live blocks */
  size_t fordblks; /* arena less uordblks */
  size_t keepcost; /* what malloc_trim could give back at once */
} hak_mallinfo_t;
/* Filled in as mallinfo2(3) would. */
HAK_API hak_mallinfo_t hak_mallinfo2(void);

/* ---- Statistics ---- since 0.1 */

/* All in bytes unless the name says otherwise.  Read without stopping other threads: each figure is exact for its source, the set may be
 * skewed by operations under way.  Sources: [census] walks slab records and bins, [counter] is an atomic counter kept on slow paths, [os]
 * asks the kernel, [clock] measures.  Later versions add fields at the end alone. */
typedef struct hak_stats {
  uint32_t struct_size; /* set by the caller to sizeof(hak_stats_t); afterwards, how many bytes are filled */
  uint32_t classes; /* number of size classes; the last is that of malloc(0) */
  uint64_t requested; /* estimate: live bytes less an estimate of rounding [census] */
  uint64_t live; /* in blocks held by the program [census] */
  uint64_t cached; /* in blocks in thread bins, ready for reuse [census] */
  uint64_t remote; /* in blocks freed by other threads, not yet collected [census] */
  uint64_t slab_free; /* free blocks inside slabs in use, and their tails [census] */
  uint64_t span_free; /* free units of committed superslabs [census] */
  uint64_t purge_pending; /* the part of span_free that has been touched and not yet given back [census] */
  uint64_t metadata; /* records, maps, bitmaps and heaps, touched or not [counter] */
  uint64_t committed; /* readable and writable block memory: live + cached + remote + slab_free + span_free */
  uint64_t reserved; /* address space mapped, for blocks and metadata [counter] */
  uint64_t resident; /* resident set of the whole process [os] */
  uint64_t superslabs; /* superslabs with any committed unit, a count [counter] */
  uint64_t slabs; /* slabs in use, a count [census] */
  uint64_t large_blocks; /* live ones, a count [census] */
  uint64_t mappings; /* mappings of the whole process, a count [os] */
  uint64_t heaps; /* heaps of threads, used and orphaned, and of hak_heap_new, a count [counter] */
  uint64_t heaps_orphaned; /* heaps whose thread has exited, a count [counter] */
  uint64_t refills; /* bins refilled from slabs, a count [counter] */
  uint64_t refill_blocks; /* blocks those brought, a count [counter] */
  uint64_t flushes; /* bins that gave blocks back, a count [counter] */
  uint64_t flush_blocks; /* blocks those gave, a count [counter] */
  uint64_t bin_hits; /* estimate: allocations served from bins without a refill, a count */
  uint64_t remote_frees; /* blocks freed by a thread that does not own them, once their owner has them back, a count [counter] */
  uint64_t large_allocs; /* large blocks allocated so far, a count [counter] */
  uint64_t large_frees; /* large blocks freed so far, a count [counter] */
  uint64_t bins_grown; /* bins made larger, as their use asked for, a count [counter] */
  uint64_t bins_shrunk; /* bins made smaller after disuse, a count [counter] */
  uint64_t purged; /* bytes of free spans given back to the kernel so far [counter] */
  uint64_t holes_purged; /* bytes of free pages in partly used slabs given back so far [counter] */
  uint64_t populated; /* bytes of slabs brought in by one call instead of a fault a page, so far [counter] */
  uint64_t lead_slabs; /* slabs taken so that fewer collections of remote frees are needed (HAKMEM_LEAD), so far, a count [counter] */
  uint64_t superslabs_moved; /* superslabs whose pages changed their address instead of being copied or faulted in, a count [counter] */
  uint64_t superslabs_huge; /* superslabs that may be huge pages now, a count [counter] */
  uint64_t guards_left_out; /* inaccessible units not made, since mappings are limited: docs/security.md, so far, a count [counter] */
  uint64_t keeper_starts; /* times that the keeper, which gives memory back while the program rests, was started [counter] */
  uint64_t sys_mmap; /* system calls so far, counts [counter] */
  uint64_t sys_munmap, sys_mprotect, sys_madvise, sys_mremap, sys_other;
  uint64_t huge_trials; /* huge pages timed as they were brought in, where the system gives them on request, so far, a count [counter] */
  uint64_t huge_losses; /* of these, those so slow that no more were asked for, for a while (HAKMEM_HUGE), a count [counter] */
  uint64_t huge_price_ns, small_price_ns; /* ns of processor time to bring in 2 MiB, as last measured; 0: never [clock] */
  uint64_t limit, limit_use; /* of the limit that is met first, a container's or HAKMEM_LIMIT_SOFT: it, and what is used; 0: none [os] */
  uint64_t limit_level, limit_percent; /* how near: 0 far to 3 at it; of the limit, the most used as something was given back for it */
  uint64_t limit_given; /* bytes given back while a limit was near, so far: docs/containers.md [counter] */
  uint64_t limit_looks, limit_refused; /* so far, counts: the kernel was asked for limits; HAKMEM_LIMIT_HARD held back memory [counter] */
  uint64_t purged_again; /* bytes given back because the heap grew, and soon needed again: HAKMEM_IDLE_PERCENT, so far [counter] */
} hak_stats_t;

/* The figures of one size class. */
typedef struct hak_class_stats {
  uint64_t block_size; /* bytes a block; 0 for those of malloc(0) */
  uint64_t slab_size; /* bytes a slab */
  uint64_t slabs; /* slabs in use, a count */
  uint64_t live_blocks; /* counts */
  uint64_t cached_blocks;
  uint64_t free_blocks;
  uint64_t remote_blocks;
  uint64_t refills;
  uint64_t flushes;
} hak_class_stats_t;

/* The figures of one heap: a thread's, or one of hak_heap_new. */
typedef struct hak_heap_stats {
  uint64_t orphaned; /* 1 if its thread has exited */
  uint64_t slabs; /* slabs it owns, a count */
  uint64_t slab_bytes; /* the memory of those */
  uint64_t cached; /* bytes in its bins */
  uint64_t refills; /* counts */
  uint64_t refill_blocks;
  uint64_t flushes;
  uint64_t flush_blocks;
  uint64_t remote_frees; /* its blocks freed by other threads and collected */
} hak_heap_stats_t;

/* Fills as much of *stats as struct_size says the caller has room for: nothing behind the end of an older, shorter structure is
 * touched; what a newer, longer one has more is set to 0.  False (EINVAL), with nothing written, if struct_size is not a multiple of
 * 8 from 16, the first figure, to 4096. */
HAK_API bool hak_stats_get(hak_stats_t *stats);
/* Fills *stats for one size class; false (EINVAL) for a class that does not exist. */
HAK_API bool hak_stats_class(uint32_t size_class, hak_class_stats_t *stats);
/* Fills *stats for heap `heap`, from 0, the newest record first (ended threads' are used again); false (EINVAL) if there are fewer. */
HAK_API bool hak_stats_heap(uint32_t heap, hak_heap_stats_t *stats);
/* Write a report to a file descriptor, without allocating. Return false when writing fails. */
HAK_API bool hak_stats_text(int fd);
HAK_API bool hak_stats_json(int fd);

/* ---- Options ---- since 0.1; the list is in docs/options.md */

/* The value in force of the option `name` (without HAKMEM_, any case); false (EINVAL) for an unknown name, or a path's. */
HAK_API bool hak_option_get(const char *name, int64_t *value);
/* Sets an option; false (EINVAL) for an unknown name, a value out of range, or one read at start only, as all in the secure library. */
HAK_API bool hak_option_set(const char *name, int64_t value);
/* Writes all options to a file descriptor as a JSON array, without allocating; false when writing fails. Each has "name", "type" ("switch",
 * "number", "path"), "default", "min" and "max" (null for a path), "runtime" (hak_option_set may change it), "help"; not the value now. */
HAK_API bool hak_options_json(int fd);

#ifdef __cplusplus
}
#endif
#endif
