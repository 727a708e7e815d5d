/* hakmem.h - the public interface of the hakmem memory allocator.
 *
 * Every function here is thread-safe and may be called before main and after thread destructors have run.  None is async-signal-safe unless
 * its comment says so.  Sizes and alignments are in bytes.  All blocks are aligned to at least 16 bytes.  Functions that allocate return
 * NULL with errno ENOMEM when memory is exhausted or the request exceeds PTRDIFF_MAX; an old block is then untouched.  On success no
 * function changes errno; hak_free never changes it.
 *
 * Passing a pointer that did not come from hakmem, was already freed, or does not point to the start of a block ends the process with one
 * line on standard error that names the pointer, the fault and the size class. */
#ifndef HAKMEM_H
#define HAKMEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* The version of this header; hak_version returns the version of the library. Since 0.1. */
#define HAK_VERSION_MAJOR 0
#define HAK_VERSION_MINOR 1
#define HAK_VERSION_PATCH 0

/* Attributes for the compiler.  A library that contains hakmem and does not export its names defines HAK_API as empty. */
#if defined(__GNUC__)
#ifndef HAK_API
#define HAK_API __attribute__((visibility("default")))
#endif
#define HAK_MALLOC __attribute__((malloc))
#define HAK_ALLOC_SIZE(...) __attribute__((alloc_size(__VA_ARGS__)))
#define HAK_MUST_USE __attribute__((warn_unused_result))
#else /* a compiler that does not know these attributes */
#define HAK_API
#define HAK_MALLOC
#define HAK_ALLOC_SIZE(...)
#define HAK_MUST_USE
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Returns the version of the library in use as "major.minor.patch", a static string. Since 0.1. */
HAK_API const char *hak_version(void);

/* ---- The C allocation functions, under a name that never collides ---- since 0.1 */

/* malloc(0) returns a unique block that must be freed.  calloc fails with ENOMEM if count * size overflows. */
HAK_API HAK_MUST_USE HAK_MALLOC HAK_ALLOC_SIZE(1) void *hak_malloc(size_t size);
HAK_API HAK_MUST_USE HAK_MALLOC HAK_ALLOC_SIZE(1, 2) void *hak_calloc(size_t count, size_t size);
/* realloc(NULL, n) is malloc(n); realloc(p, 0) frees p and returns NULL with errno unchanged. */
HAK_API HAK_MUST_USE HAK_ALLOC_SIZE(2) void *hak_realloc(void *block, size_t size);
/* Like realloc with count * size bytes; fails with ENOMEM if the product overflows. */
HAK_API HAK_MUST_USE HAK_ALLOC_SIZE(2, 3) void *hak_reallocarray(void *block, size_t count, size_t size);
/* BSD: like reallocarray, with new bytes zeroed and released ones cleared; NULL (EINVAL) if old_count * size is above the usable size. */
HAK_API HAK_MUST_USE HAK_ALLOC_SIZE(3, 4) void *hak_recallocarray(void *block, size_t old_count, size_t count, size_t size);
/* BSD: like realloc, but frees the old block on failure. */
HAK_API HAK_MUST_USE HAK_ALLOC_SIZE(2) void *hak_reallocf(void *block, size_t size);
/* NULL is ignored.  hak_cfree is an old name for the same function. */
HAK_API void hak_free(void *block);
HAK_API void hak_cfree(void *block);

/* Returns NULL with EINVAL unless the alignment is a power of two.  The size need not be a multiple of the alignment. */
HAK_API HAK_MUST_USE HAK_MALLOC HAK_ALLOC_SIZE(2) void *hak_aligned_alloc(size_t alignment, size_t size);
HAK_API HAK_MUST_USE HAK_MALLOC HAK_ALLOC_SIZE(2) void *hak_memalign(size_t alignment, size_t size);
/* Returns 0, EINVAL (not a power of two, or below sizeof(void *)) or ENOMEM.  On failure *result and errno are untouched. */
HAK_API HAK_MUST_USE int hak_posix_memalign(void **result, size_t alignment, size_t size);
/* The block is aligned to the system's page size, 4 KiB or larger; hak_pvalloc rounds the size up to whole pages. */
HAK_API HAK_MUST_USE HAK_MALLOC HAK_ALLOC_SIZE(1) void *hak_valloc(size_t size);
HAK_API HAK_MUST_USE HAK_MALLOC void *hak_pvalloc(size_t size);

/* C23. `size` is the size last requested, be it by realloc or hak_expand; one above the usable size ends the process. NULL is ignored. */
HAK_API void hak_free_sized(void *block, size_t size);
HAK_API void hak_free_aligned_sized(void *block, size_t alignment, size_t size);

/* Returns how many bytes of a live block may be used: at least the requested size, in the secure library exactly that; 0 for NULL.
 * For any other pointer returns 0; in the secure library such a pointer ends the process. */
HAK_API size_t hak_malloc_usable_size(const void *block);
/* Returns whether a live block starts at `address`, which may be any address.  Other threads may change that before the call returns. */
HAK_API bool hak_is_live(const void *address);
/* Returns the usable size that a successful malloc(size) provides, or less with HAKMEM_GUARD; 0 for more than any heap can hold. */
HAK_API size_t hak_malloc_good_size(size_t size);

/* Flags for hak_nallocx and hak_sdallocx, as in jemalloc: an alignment, by its binary logarithm or itself. HAK_ZERO has no effect here. */
#define HAK_LG_ALIGN(la) ((int)(la))
#define HAK_ALIGN(a) ((int)__builtin_ctzl(a))
#define HAK_ZERO 0x40
/* Like hak_malloc_good_size, for an allocation of `size` bytes with these flags. */
HAK_API size_t hak_nallocx(size_t size, int flags);
/* Like hak_free_sized; the flags are ignored. */
HAK_API void hak_sdallocx(void *block, size_t size, int flags);

/* ---- Beyond the C library ---- since 0.1 */

/* What hak_alloc_at_least returns. */
typedef struct hak_sized {
  void *ptr;   /* NULL with size 0 on failure */
  size_t size; /* usable bytes, at least the requested size */
} hak_sized_t;

/* Allocates at least `size` bytes and reports how many are usable. */
HAK_API HAK_MUST_USE hak_sized_t hak_alloc_at_least(size_t size);

/* Grows a block in place; returns false, with errno and the block unchanged, if it would have to move.  A smaller size returns true and
 * changes nothing; in the secure library a small block then has exactly that size, and a large block returns false. */
HAK_API HAK_MUST_USE bool hak_expand(void *block, size_t size);

/* Fills blocks[0..count) with blocks of `size` bytes and returns how many; fewer than count only when memory is exhausted (ENOMEM). */
HAK_API HAK_MUST_USE size_t hak_malloc_batch(size_t size, size_t count, void **blocks);
/* Frees blocks[0..count); NULL entries are skipped. */
HAK_API void hak_free_batch(void **blocks, size_t count);

/* Gives back the calling thread's cached blocks, most of those of other threads, pending remote frees and all free pages. With force false,
 * other running threads keep their cached blocks and pages stay for the decay time.  Returns the bytes returned to the operating system. */
HAK_API size_t hak_collect(bool force);

/* ---- The libc statistics names ---- since 0.1 */

/* Like malloc_trim(3): gives back all it can and returns 1 if any memory was returned to the system, else 0.  `pad` is ignored. */
HAK_API int hak_malloc_trim(size_t pad);
/* Accepts glibc's parameters; returns 1 if the request is honoured or harmless, 0 for an unknown parameter. */
HAK_API int hak_mallopt(int parameter, int value);
/* Writes human-readable statistics to standard error. */
HAK_API void hak_malloc_stats(void);
/* glibc's malloc_info: writes XML to `stream`, by stdio, and returns 0; returns EINVAL unless `options` is 0. */
HAK_API int hak_malloc_info(int options, FILE *stream);

/* glibc's mallinfo2, field by field; in bytes except for the counts. */
typedef struct hak_mallinfo {
  size_t arena; /* all block memory */
  size_t ordblks; /* slabs in use, a count */
  size_t smblks; /* 0 */
  size_t hblks; /* large blocks live, a count */
  size_t hblkhd; /* 0: large blocks are part of arena */
  size_t usmblks; /* 0 */
  size_t fsmblks; /* blocks cached in bins */
  size_t uordblks; /* live blocks */
  size_t fordblks; /* arena less uordblks */
  size_t keepcost; /* memory that malloc_trim could give back immediately */
} hak_mallinfo_t;
/* Returns what mallinfo2(3) would. */
HAK_API hak_mallinfo_t hak_mallinfo2(void);

/* ---- Statistics ---- since 0.1 */

/* In bytes unless noted otherwise.  The figures are read without stopping other threads: each is exact for its source, but operations in
 * progress may make them differ from each other.  Sources: [census] walks slab records and bins, [counter] is an atomic counter kept on
 * slow paths, [os] asks the kernel, [clock] measures time.  Later versions add fields only at the end. */
typedef struct hak_stats {
  uint32_t struct_size; /* set by the caller to sizeof(hak_stats_t); on return, the number of bytes filled */
  uint32_t classes; /* number of size classes; the last is the class of malloc(0) */
  uint64_t requested; /* estimate: live bytes less an estimate of rounding [census] */
  uint64_t live; /* in blocks held by the program [census] */
  uint64_t cached; /* in blocks in thread bins, ready for reuse [census] */
  uint64_t remote; /* in blocks freed by other threads and not yet collected [census] */
  uint64_t slab_free; /* free blocks in slabs in use, and the unused tails of slabs and large blocks [census] */
  uint64_t span_free; /* free units of committed superslabs [census] */
  uint64_t purge_pending; /* the part of span_free that has been touched and not yet given back to the kernel [census] */
  uint64_t metadata; /* records, maps, bitmaps and heaps, touched or not [counter] */
  uint64_t committed; /* readable and writable block memory: live + cached + remote + slab_free + span_free */
  uint64_t reserved; /* address space mapped, for blocks and metadata [counter] */
  uint64_t resident; /* resident set of the whole process [os] */
  uint64_t superslabs; /* superslabs with any committed unit, a count [counter] */
  uint64_t slabs; /* slabs in use, a count [census] */
  uint64_t large_blocks; /* live large blocks, a count [census] */
  uint64_t mappings; /* mappings of the whole process, a count [os] */
  uint64_t heaps; /* heaps of threads, in use and orphaned, and heaps of hak_heap_new, a count [counter] */
  uint64_t heaps_orphaned; /* heaps whose thread has exited, a count [counter] */
  uint64_t refills; /* bins refilled from slabs, a count [counter] */
  uint64_t refill_blocks; /* blocks that these refills brought, a count [counter] */
  uint64_t flushes; /* bins that gave blocks back, a count [counter] */
  uint64_t flush_blocks; /* blocks that these bins gave back, a count [counter] */
  uint64_t bin_hits; /* estimate: allocations served from bins without a refill, a count */
  uint64_t remote_frees; /* blocks freed by a thread that does not own them and collected by their owner, a count [counter] */
  uint64_t large_allocs; /* large blocks allocated so far, a count [counter] */
  uint64_t large_frees; /* large blocks freed so far, a count [counter] */
  uint64_t bins_grown; /* bins made larger because of their use, a count [counter] */
  uint64_t bins_shrunk; /* bins made smaller after disuse, a count [counter] */
  uint64_t purged; /* bytes of free spans given back to the kernel so far [counter] */
  uint64_t holes_purged; /* bytes of free pages in partly used slabs given back so far [counter] */
  uint64_t populated; /* bytes of slabs brought in by one call instead of one fault per page, so far [counter] */
  uint64_t lead_slabs; /* slabs taken so that remote frees are collected less often (HAKMEM_LEAD), so far, a count [counter] */
  uint64_t superslabs_moved; /* superslabs whose pages were remapped instead of copied or faulted in, a count [counter] */
  uint64_t superslabs_huge; /* superslabs that may be huge pages now, a count [counter] */
  uint64_t guards_left_out; /* guards left out so far, because mappings are limited (docs/security.md), a count [counter] */
  uint64_t keeper_starts; /* starts of the keeper, the thread that gives memory back while the program makes no calls, a count [counter] */
  uint64_t sys_mmap; /* system calls so far, counts [counter] */
  uint64_t sys_munmap, sys_mprotect, sys_madvise, sys_mremap, sys_other;
  uint64_t huge_trials; /* huge pages timed while they were brought in, where the system gives them on request, so far, a count [counter] */
  uint64_t huge_losses; /* trials so slow that no more huge pages were requested for a while (HAKMEM_HUGE), so far, a count [counter] */
  uint64_t huge_price_ns, small_price_ns; /* ns of processor time to bring in 2 MiB, as last measured; 0: never measured [clock] */
  uint64_t limit, limit_use; /* the limit that is nearest, a container's or HAKMEM_LIMIT_SOFT, and what is used of it; 0: no limit [os] */
  uint64_t limit_level, limit_percent; /* how near: 0 none, 1 low, 2 near, 3 urgent; highest use, in percent, when memory went back */
  uint64_t limit_given; /* bytes given back while a limit was near, so far: docs/containers.md [counter] */
  uint64_t limit_looks, limit_refused; /* so far, counts: limits read from the kernel; memory refused by HAKMEM_LIMIT_HARD [counter] */
  uint64_t purged_again; /* bytes given back because the heap grew and soon needed again (HAKMEM_IDLE_PERCENT), so far [counter] */
} hak_stats_t;

/* The figures of one size class. */
typedef struct hak_class_stats {
  uint64_t block_size; /* bytes per block; 0 for the class of malloc(0) */
  uint64_t slab_size; /* bytes per slab */
  uint64_t slabs; /* slabs in use, a count */
  uint64_t live_blocks; /* a count */
  uint64_t cached_blocks;
  uint64_t free_blocks;
  uint64_t remote_blocks;
  uint64_t refills;
  uint64_t flushes;
} hak_class_stats_t;

/* The figures of one heap: of a thread, or of hak_heap_new. */
typedef struct hak_heap_stats {
  uint64_t orphaned; /* 1 if its thread has exited */
  uint64_t slabs; /* slabs it owns, a count */
  uint64_t slab_bytes; /* memory of these slabs */
  uint64_t cached; /* bytes in its bins, in the secure library also in its quarantine */
  uint64_t refills; /* a count */
  uint64_t refill_blocks;
  uint64_t flushes;
  uint64_t flush_blocks;
  uint64_t remote_frees; /* its blocks freed by other threads and collected, a count */
} hak_heap_stats_t;

/* Fills the struct_size bytes of *stats: nothing beyond the end of an older, shorter structure is touched, and further fields of a newer,
 * longer one are set to 0.  Returns false (EINVAL), with nothing written, unless struct_size is a multiple of 8 from 16, which includes the
 * first figure, to 4096. */
HAK_API bool hak_stats_get(hak_stats_t *stats);
/* Fills *stats for one size class; returns false (EINVAL) for a class that does not exist. */
HAK_API bool hak_stats_class(uint32_t size_class, hak_class_stats_t *stats);
/* The same for heap number `heap`, from 0, newest record first (records are reused); takes time in proportion to that number. */
HAK_API bool hak_stats_heap(uint32_t heap, hak_heap_stats_t *stats);
/* Write a report to a file descriptor without allocating. Return false when writing fails. errno is unchanged, as by hak_options_json. */
HAK_API bool hak_stats_text(int fd);
HAK_API bool hak_stats_json(int fd);

/* ---- Options ---- since 0.1; the list is in docs/options.md */

/* Gets the current value of option `name` (without HAKMEM_, any case); returns false (EINVAL) for an unknown name or a path option. */
HAK_API bool hak_option_get(const char *name, int64_t *value);
/* Sets an option; false (EINVAL) for an unknown name, a value out of range, or one fixed at start, as all are in the secure library. */
HAK_API bool hak_option_set(const char *name, int64_t value);
/* Writes all options to a file descriptor as a JSON array, without allocating; false when writing fails. Each has "name", "type" ("switch",
 * "number", "path"), "default", "min", "max" (null for a path), "runtime" (hak_option_set may change it), "help"; not its current value. */
HAK_API bool hak_options_json(int fd);

#ifdef __cplusplus
}
#endif
#endif
