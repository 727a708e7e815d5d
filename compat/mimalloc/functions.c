/* functions.c - mimalloc's functions that allocate: each for the thread's default heap, and for a given heap.
 *
 * A block can be aligned at an offset only if its start is then aligned too, since free does not take pointers into blocks. */
#include "mimalloc.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

static void *fail(int error) {
  errno = error;
  return NULL;
}

static bool is_power_of_two(size_t n) { return n != 0 && (n & (n - 1)) == 0; }

void *heap_take(mi_heap_t *heap, size_t size, size_t alignment, bool zero) {
  if (heap == &heap_backing) return compat_take_automatic(size, alignment, zero);
  return compat_take(heap != NULL ? heap_named(heap) : NULL, size, alignment, zero);
}

/* In place, as in mimalloc, only if the block loses no more than half, or else grows or shrinks within the heap that is asked for. */
static void *resize(hak_heap_t *of, void *block, size_t size, size_t alignment) {
  size_t usable = hak_malloc_usable_size(block);
  if (size <= usable && size >= usable / 2 && compat_is_aligned(block, alignment) && hak_expand(block, size)) return block;
  return hak_heap_of(block) == of ? compat_resize(of, block, size, alignment) : NULL;
}

/* Size 0 also gives a block.  Alignments up to a word's are not checked, since every block has them. */
void *heap_change(mi_heap_t *heap, void *block, size_t size, size_t alignment, bool zero) {
  if (alignment <= sizeof(uintptr_t)) alignment = 1;
  if (!is_power_of_two(alignment)) return fail(EINVAL);
  if (block == NULL) return heap_take(heap, size, alignment, zero);
  size_t before = hak_malloc_usable_size(block);
  bool moves = size == 0 || (zero && compat_moves_for_zeros(before, size));
  void *moved = moves ? NULL : resize(heap != NULL ? heap_named(heap) : compat_default(), block, size, alignment);
  if (moved == NULL) {
    moved = heap_take(heap, size, alignment, zero && moves);
    if (moved == NULL) return NULL;
    if (before > size) before = size;
    memcpy(moved, block, before);
    hak_free(block);
  }
  return zero && !moves ? compat_clear_from(moved, before) : moved;
}

static bool product(size_t count, size_t size, size_t *bytes) {
  if (!__builtin_mul_overflow(count, size, bytes)) return true;
  errno = ENOMEM;
  return false;
}

static void *take_many(mi_heap_t *heap, size_t count, size_t size, size_t alignment, bool zero) {
  size_t bytes;
  return product(count, size, &bytes) ? heap_take(heap, bytes, alignment, zero) : NULL;
}

static void *change_many(mi_heap_t *heap, void *block, size_t count, size_t size, size_t alignment, bool zero) {
  size_t bytes;
  return product(count, size, &bytes) ? heap_change(heap, block, bytes, alignment, zero) : NULL;
}

static void *change_or_free(mi_heap_t *heap, void *block, size_t size) {
  void *moved = heap_change(heap, block, size, 1, false);
  if (moved == NULL) hak_free(block);
  return moved;
}

static bool offset_is_possible(size_t alignment, size_t offset) { return is_power_of_two(alignment) && offset % alignment == 0; }
#define AT(offset, call) (offset_is_possible(alignment, offset) ? (call) : fail(EINVAL))

static char *copy(mi_heap_t *heap, const char *text, size_t length) {
  char *copied = text != NULL ? heap_take(heap, length + 1, 1, false) : NULL;
  if (copied == NULL) return NULL;
  memcpy(copied, text, length);
  copied[length] = '\0';
  return copied;
}

static char *path_of(mi_heap_t *heap, const char *name, char *resolved) {
  char path[PATH_MAX];
  if (resolved != NULL) return realpath(name, resolved);
  return realpath(name, path) != NULL ? copy(heap, path, strlen(path)) : NULL;
}

/* Defines both forms of a function, from the parameters after the heap and from what it does with `heap`. */
#define BOTH(type, name, parameters, named_parameters, body) \
  COMPAT(type, mi_##name, parameters) {                      \
    mi_heap_t *heap = NULL;                                  \
    return body;                                             \
  }                                                          \
  COMPAT(type, mi_heap_##name, named_parameters) { return body; }
#define WITH(...) (__VA_ARGS__)
#define HEAP(...) (mi_heap_t * heap, __VA_ARGS__)
#define PAIR(type, name, body, ...) BOTH(type, name, WITH(__VA_ARGS__), HEAP(__VA_ARGS__), body)

PAIR(void *, malloc, heap_take(heap, size, 1, false), size_t size)
PAIR(void *, malloc_small, heap_take(heap, size, 1, false), size_t size)
PAIR(void *, zalloc, heap_take(heap, size, 1, true), size_t size)
PAIR(void *, calloc, take_many(heap, count, size, 1, true), size_t count, size_t size)
PAIR(void *, mallocn, take_many(heap, count, size, 1, false), size_t count, size_t size)
PAIR(void *, malloc_aligned, heap_take(heap, size, alignment, false), size_t size, size_t alignment)
PAIR(void *, zalloc_aligned, heap_take(heap, size, alignment, true), size_t size, size_t alignment)
PAIR(void *, calloc_aligned, take_many(heap, count, size, alignment, true), size_t count, size_t size, size_t alignment)
PAIR(void *, malloc_aligned_at, AT(offset, heap_take(heap, size, alignment, false)), size_t size, size_t alignment, size_t offset)
PAIR(void *, zalloc_aligned_at, AT(offset, heap_take(heap, size, alignment, true)), size_t size, size_t alignment, size_t offset)
PAIR(void *, calloc_aligned_at, AT(offset, take_many(heap, count, size, alignment, true)), size_t count, size_t size, size_t alignment,
     size_t offset)

PAIR(void *, realloc, heap_change(heap, block, size, 1, false), void *block, size_t size)
PAIR(void *, reallocn, change_many(heap, block, count, size, 1, false), void *block, size_t count, size_t size)
PAIR(void *, reallocf, change_or_free(heap, block, size), void *block, size_t size)
PAIR(void *, realloc_aligned, heap_change(heap, block, size, alignment, false), void *block, size_t size, size_t alignment)
PAIR(void *, realloc_aligned_at, AT(offset, heap_change(heap, block, size, alignment, false)), void *block, size_t size, size_t alignment,
     size_t offset)
PAIR(void *, rezalloc, heap_change(heap, block, size, 1, true), void *block, size_t size)
PAIR(void *, recalloc, change_many(heap, block, count, size, 1, true), void *block, size_t count, size_t size)
PAIR(void *, rezalloc_aligned, heap_change(heap, block, size, alignment, true), void *block, size_t size, size_t alignment)
PAIR(void *, recalloc_aligned, change_many(heap, block, count, size, alignment, true), void *block, size_t count, size_t size,
     size_t alignment)
PAIR(void *, rezalloc_aligned_at, AT(offset, heap_change(heap, block, size, alignment, true)), void *block, size_t size, size_t alignment,
     size_t offset)
PAIR(void *, recalloc_aligned_at, AT(offset, change_many(heap, block, count, size, alignment, true)), void *block, size_t count,
     size_t size, size_t alignment, size_t offset)

PAIR(char *, strdup, copy(heap, text, text != NULL ? strlen(text) : 0), const char *text)
PAIR(char *, strndup, copy(heap, text, text != NULL ? strnlen(text, most) : 0), const char *text, size_t most)
PAIR(char *, realpath, path_of(heap, name, resolved), const char *name, char *resolved)

COMPAT(void *, mi_zalloc_small, (size_t size)) { return heap_take(NULL, size, 1, true); }

/* --- free and sizes ------------------------------------------------------------------------- */

COMPAT(void, mi_free, (void *block)) { hak_free(block); }
COMPAT(void, mi_free_size, (void *block, size_t size)) { hak_free_sized(block, size); }
COMPAT(void, mi_free_size_aligned, (void *block, size_t size, size_t alignment)) { hak_free_aligned_sized(block, alignment, size); }
COMPAT(void, mi_free_aligned, (void *block, size_t alignment)) { (void)alignment, hak_free(block); }

COMPAT(size_t, mi_usable_size, (const void *block)) { return hak_malloc_usable_size(block); }
COMPAT(size_t, mi_malloc_size, (const void *block)) { return hak_malloc_usable_size(block); }
COMPAT(size_t, mi_malloc_usable_size, (const void *block)) { return hak_malloc_usable_size(block); }
COMPAT(size_t, malloc_size, (const void *block)) { return hak_malloc_usable_size(block); }
COMPAT(size_t, mi_good_size, (size_t size)) { return hak_malloc_good_size(size); }
COMPAT(size_t, mi_malloc_good_size, (size_t size)) { return hak_malloc_good_size(size); }

static void *expand(void *block, size_t size) {
  if (block == NULL) return NULL;
  return hak_expand(block, size) ? block : NULL;
}
COMPAT(void *, mi_expand, (void *block, size_t size)) { return expand(block, size); }
COMPAT(void *, mi__expand, (void *block, size_t size)) {
  void *expanded = expand(block, size);
  return expanded != NULL ? expanded : fail(ENOMEM);
}

/* --- the names of other systems --------------------------------------------------------------- */

COMPAT(int, mi_posix_memalign, (void **result, size_t alignment, size_t size)) {
  return result != NULL ? hak_posix_memalign(result, alignment, size) : EINVAL;
}
COMPAT(void *, mi_memalign, (size_t alignment, size_t size)) { return hak_memalign(alignment, size); }
COMPAT(void *, mi_aligned_alloc, (size_t alignment, size_t size)) { return hak_aligned_alloc(alignment, size); }
COMPAT(void *, _aligned_malloc, (size_t alignment, size_t size)) { return hak_aligned_alloc(alignment, size); }
COMPAT(void *, mi_valloc, (size_t size)) { return hak_valloc(size); }
COMPAT(void *, mi_pvalloc, (size_t size)) { return hak_pvalloc(size); }
COMPAT(void, vfree, (void *block)) { hak_free(block); }

COMPAT(void *, mi_reallocarray, (void *block, size_t count, size_t size)) { return change_many(NULL, block, count, size, 1, false); }
static int reallocarr_of(void *at, size_t count, size_t size) {
  void *block;
  if (at == NULL) return EINVAL;
  memcpy(&block, at, sizeof block);
  block = change_many(NULL, block, count, size, 1, false);
  if (block == NULL) return ENOMEM;
  memcpy(at, &block, sizeof block);
  return 0;
}
COMPAT(int, mi_reallocarr, (void *at, size_t count, size_t size)) { return reallocarr_of(at, count, size); }
COMPAT(int, reallocarr, (void *at, size_t count, size_t size)) { return reallocarr_of(at, count, size); }
COMPAT(void *, mi_aligned_recalloc, (void *block, size_t count, size_t size, size_t alignment)) {
  return change_many(NULL, block, count, size, alignment, true);
}
COMPAT(void *, mi_aligned_offset_recalloc, (void *block, size_t count, size_t size, size_t alignment, size_t offset)) {
  return AT(offset, change_many(NULL, block, count, size, alignment, true));
}

COMPAT(unsigned short *, mi_wcsdup, (const unsigned short *text)) {
  if (text == NULL) return NULL;
  size_t length = 0;
  while (text[length] != 0) length++;
  unsigned short *copied = hak_malloc((length + 1) * sizeof *text);
  return copied != NULL ? memcpy(copied, text, (length + 1) * sizeof *text) : NULL;
}
COMPAT(unsigned char *, mi_mbsdup, (const unsigned char *text)) {
  const char *chars = (const char *)text;
  return (unsigned char *)copy(NULL, chars, chars != NULL ? strlen(chars) : 0);
}
COMPAT(int, mi_dupenv_s, (char **value, size_t *size, const char *name)) {
  if (value == NULL || name == NULL) return EINVAL;
  if (size != NULL) *size = 0;
  const char *found = getenv(name);
  *value = copy(NULL, found, found != NULL ? strlen(found) : 0);
  if (found != NULL && *value == NULL) return ENOMEM;
  if (size != NULL && found != NULL) *size = strlen(found);
  return 0;
}
COMPAT(int, mi_wdupenv_s, (unsigned short **value, size_t *size, const unsigned short *name)) {
  if (value == NULL || name == NULL) return EINVAL;
  if (size != NULL) *size = 0;
  *value = NULL;
  return EINVAL; /* here the environment consists of bytes */
}

/* --- C++: the new handler is called, then std::bad_alloc is thrown ------------------------------ */

static size_t bytes_of(size_t count, size_t size) {
  size_t bytes;
  return product(count, size, &bytes) ? bytes : SIZE_MAX; /* for which there is never room */
}
COMPAT(void *, mi_new, (size_t size)) { return compat_new(NULL, size, 1); }
COMPAT(void *, mi_new_aligned, (size_t size, size_t alignment)) { return compat_new(NULL, size, alignment); }
COMPAT(void *, mi_new_nothrow, (size_t size)) { return compat_new_quiet(size, 1); }
COMPAT(void *, mi_new_aligned_nothrow, (size_t size, size_t alignment)) { return compat_new_quiet(size, alignment); }
COMPAT(void *, mi_new_n, (size_t count, size_t size)) { return compat_new(NULL, bytes_of(count, size), 1); }

static void *new_realloc(void *block, size_t size) {
  void *moved = heap_change(NULL, block, size, 1, false);
  if (moved != NULL) return moved;
  moved = compat_new(NULL, size, 1);
  size_t before = hak_malloc_usable_size(block);
  if (block != NULL) memcpy(moved, block, before < size ? before : size);
  hak_free(block);
  return moved;
}
COMPAT(void *, mi_new_realloc, (void *block, size_t size)) { return new_realloc(block, size); }
COMPAT(void *, mi_new_reallocn, (void *block, size_t count, size_t size)) { return new_realloc(block, bytes_of(count, size)); }

/* A new handler runs with the thread's own default heap in force. */
static void *heap_new(mi_heap_t *heap, size_t size) {
  if (heap == &heap_backing) return compat_new_automatic(size);
  return compat_new(heap != NULL ? heap_named(heap) : NULL, size, 1);
}
COMPAT(void *, mi_heap_alloc_new, (mi_heap_t * heap, size_t size)) { return heap_new(heap, size); }
COMPAT(void *, mi_heap_alloc_new_n, (mi_heap_t * heap, size_t count, size_t size)) { return heap_new(heap, bytes_of(count, size)); }
