/* api.h - the allocation functions under test, by family, and what the checks share.
 *
 * Every check calls through `api`, so one body covers three families of names:
 *   libc      malloc, free, ...
 *   internal  __libc_malloc, __libc_free, ... where they exist, else libc's
 *   hak       hak_malloc, hak_free, ...
 * The family is the variant of the run (-v).  A function that the C library in
 * force does not have is NULL: that skips a check on the system's malloc and
 * fails it under hakmem.
 */
#ifndef TESTS_API_API_H
#define TESTS_API_API_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <hakmem/hakmem.h>

#include "check.h"

/* X(name, result, arguments) */
#define API_FUNCTIONS(X)                                     \
  X(malloc, void *, (size_t))                                \
  X(calloc, void *, (size_t, size_t))                        \
  X(realloc, void *, (void *, size_t))                       \
  X(reallocarray, void *, (void *, size_t, size_t))          \
  X(recallocarray, void *, (void *, size_t, size_t, size_t)) \
  X(reallocf, void *, (void *, size_t))                      \
  X(free, void, (void *))                                    \
  X(cfree, void, (void *))                                   \
  X(aligned_alloc, void *, (size_t, size_t))                 \
  X(memalign, void *, (size_t, size_t))                      \
  X(posix_memalign, int, (void **, size_t, size_t))          \
  X(valloc, void *, (size_t))                                \
  X(pvalloc, void *, (size_t))                               \
  X(malloc_usable_size, size_t, (void *))                    \
  X(free_sized, void, (void *, size_t))                      \
  X(free_aligned_sized, void, (void *, size_t, size_t))      \
  X(malloc_good_size, size_t, (size_t))                      \
  X(nallocx, size_t, (size_t, int))                          \
  X(sdallocx, void, (void *, size_t, int))                   \
  X(malloc_trim, int, (size_t))                              \
  X(mallopt, int, (int, int))                                \
  X(malloc_info, int, (int, FILE *))                         \
  X(malloc_stats, void, (void))

struct api {
#define X(name, result, arguments) result(*name) arguments;
  API_FUNCTIONS(X)
#undef X
};
extern struct api api;

/* What exists under hak_ only; for checks of FAMILY_HAK. */
#define HAK_FUNCTIONS(X)                                \
  X(version, const char *, (void))                      \
  X(expand, bool, (void *, size_t))                     \
  X(alloc_at_least, hak_sized_t, (size_t))              \
  X(malloc_batch, size_t, (size_t, size_t, void **))    \
  X(free_batch, void, (void **, size_t))                \
  X(is_live, bool, (const void *))                      \
  X(collect, size_t, (bool))                            \
  X(stats_get, bool, (hak_stats_t *))                   \
  X(stats_class, bool, (uint32_t, hak_class_stats_t *)) \
  X(stats_heap, bool, (uint32_t, hak_heap_stats_t *))   \
  X(stats_text, bool, (int))                            \
  X(stats_json, bool, (int))                            \
  X(options_json, bool, (int))                          \
  X(option_get, bool, (const char *, int64_t *))        \
  X(option_set, bool, (const char *, int64_t))

struct hak {
#define X(name, result, arguments) result(*name) arguments;
  HAK_FUNCTIONS(X)
#undef X
};
extern struct hak hak;

typedef enum family { FAMILY_LIBC, FAMILY_INTERNAL, FAMILY_HAK } family_t;
extern family_t api_family;

/* True when hakmem is what runs, by whatever way it came in. */
bool api_is_hakmem(void);

/* True when that is the secure library. */
bool is_secure(void);

/* Leaves the check when the function is missing: as a failure under hakmem. */
#define NEED(function)                                                                 \
  do {                                                                                 \
    if (!(function)) {                                                                 \
      if (api_is_hakmem()) check_fail(__FILE__, __LINE__, "%s is missing", #function); \
      check_skip(#function);                                                           \
    }                                                                                  \
  } while (0)

/* Leaves the check unless it runs for this family: for functions with one name only. */
#define ONLY(family)                                           \
  do {                                                         \
    if (api_family != (family)) check_skip("not in " #family); \
  } while (0)

/* A sanitizer's runtime keeps freed memory and needs a vast address space, so
 * bounds on either say nothing. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED true
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED true
#endif
#endif
#ifndef SANITIZED
#define SANITIZED false
#endif
#define UNSANITIZED() (SANITIZED ? check_skip("under a sanitizer") : (void)0)

/* ---- Sizes and alignments that the checks walk through ---- */

extern const size_t sizes[];
extern const size_t size_count;
#define EACH_SIZE(n) (size_t i_##n = 0, n; i_##n < size_count && (n = sizes[i_##n], true); i_##n++)

/* What no allocator may serve: beyond PTRDIFF_MAX. */
extern const size_t impossible[];
extern const size_t impossible_count;
#define EACH_IMPOSSIBLE(n) (size_t i_##n = 0, n; i_##n < impossible_count && (n = impossible[i_##n], true); i_##n++)

/* ---- Content ---- */

enum { MARK = 8191 }; /* an errno that no call sets */

/* malloc, every byte set; ends the check when there is no memory. */
void *new_bytes(size_t size, int byte);

/* Writes a pattern that depends on seed and position; fill returns block, and
 * ends the check when that is NULL. */
void *fill(void *block, size_t size, unsigned seed);
bool filled(const void *block, size_t size, unsigned seed);
bool all_bytes(const void *block, size_t size, unsigned char byte);
bool aligned(const void *block, size_t alignment);

/* Fills and frees some blocks of this size, so that later ones are dirty. */
void dirty(size_t size);

/* Runs body(argument) in a new thread and waits for it. */
void in_thread(void *(*body)(void *), void *argument);

#endif
