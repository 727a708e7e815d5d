/* companion.c - the names that must serve whichever malloc the process uses.
 *
 * A program, or a library that is loaded before this one, may define malloc, calloc, realloc and free, but not the names that are made of
 * them.  glibc's reallocarray calls realloc by its name, so it serves that heap; the names here do the same.
 *
 * nallocx and sdallocx belong to a family of names.  If the process has mallocx, another library has the whole family, and blocks of its
 * own. */
#include "entry/entry.h"

#if HAK_OVERRIDE

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomics.h"
#include "space/region.h"

HAK_EXPORT void *reallocarray(void *block, size_t count, size_t size);
HAK_EXPORT void *reallocf(void *block, size_t size);
HAK_EXPORT void *recallocarray(void *block, size_t old_count, size_t count, size_t size);
HAK_EXPORT size_t nallocx(size_t size, int flags);
HAK_EXPORT void sdallocx(void *block, size_t size, int flags);
void *reallocarray(void *block, size_t count, size_t size) {
  size_t bytes;
  if (!__builtin_mul_overflow(count, size, &bytes)) return realloc(block, bytes);
  errno = ENOMEM;
  return NULL;
}

void *__libc_reallocarray(void *block, size_t count, size_t size) HAK_ALIAS(reallocarray);

HAK_COLD void *reallocf(void *block, size_t size) {
  void *moved = realloc(block, size);
  if (moved == NULL && block != NULL && size != 0) free(block);
  return moved;
}

static bool is_anothers(const void *block) { return block != NULL && region_unit(block) >= load_relaxed(&region.units); }

/* The block of another malloc: all that is known of it is what the caller says. */
static void *recallocarray_anothers(void *block, size_t old_bytes, size_t count, size_t size) {
  void *moved = calloc(count, size);
  if (moved == NULL) return NULL;
  memcpy(moved, block, count * size < old_bytes ? count * size : old_bytes);
  memset(block, 0, old_bytes);
  __asm__ volatile("" : : "r"(block) : "memory"); /* else the compiler removes it as a dead store */
  free(block);
  return moved;
}

HAK_COLD void *recallocarray(void *block, size_t old_count, size_t count, size_t size) {
  void (*used)(void *) = free;
  HAK_HIDE_VAR(used); /* else the compiler may take the free that is used for the one in this library */
  if (used == hak_free || (block != NULL && !is_anothers(block))) return hak_recallocarray(block, old_count, count, size);
  size_t bytes;
  if (block == NULL) return calloc(count, size);
  if (!__builtin_mul_overflow(old_count, size, &bytes)) return recallocarray_anothers(block, bytes, count, size);
  errno = EINVAL;
  return NULL;
}

#if HAK_ARCHIVE || HAK_FAMILY /* no other library has the family */

size_t nallocx(size_t size, int flags) HAK_ALIAS(hak_nallocx);
void sdallocx(void *block, size_t size, int flags) HAK_ALIAS(hak_sdallocx);

#else

void *mallocx(size_t size, int flags);
#pragma weak mallocx
#pragma weak dlsym

/* The family's own function, or else `otherwise`, which is kept unless it is NULL: a library opened later may have the function. */
static HAK_COLD void *family_next(void *_Atomic *known, const char *name, void *otherwise) {
  void *next = load_acquire(known);
  if (next == NULL && &dlsym != NULL) next = dlsym(RTLD_NEXT, name);
  if (next == NULL) next = otherwise;
  store_release(known, next);
  return next;
}

size_t nallocx(size_t size, int flags) {
  static void *_Atomic known;
  if (HAK_LIKELY(&mallocx == NULL)) return hak_nallocx(size, flags);
  return ((size_t (*)(size_t, int))family_next(&known, "nallocx", (void *)hak_nallocx))(size, flags);
}

void sdallocx(void *block, size_t size, int flags) {
  static void *_Atomic known;
  void (*next)(void *, size_t, int) = NULL;
  if (HAK_UNLIKELY(is_anothers(block))) next = (void (*)(void *, size_t, int))family_next(&known, "sdallocx", NULL);
  if (HAK_UNLIKELY(next != NULL)) next(block, size, flags);
  else hak_sdallocx(block, size, flags);
}

#endif
#endif
