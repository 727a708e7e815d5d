/* functions.c - jemalloc's own functions. */
#include "jemalloc.h"

#include <string.h>
#include <unistd.h>

/* Programs assign to this, and call through it. */
HAK_API extern void (*malloc_message)(void *, const char *);
void (*malloc_message)(void *, const char *);

static void *allocate(hak_heap_t *heap, size_t size, int flags) {
  size_t alignment = FLAG_ALIGN(flags);
  bool zero = (flags & FLAG_ZERO) != 0;
  if (heap == NULL && FLAG_ARENA(flags) == ARENA_AUTOMATIC + 1) return compat_take_automatic(size, alignment, zero);
  if (heap == NULL && FLAG_UNCACHED(flags) && alignment <= COMPAT_ALIGNED && !zero) return slab_alloc(size);
  return compat_take(heap, size, alignment, zero);
}

/* In the flags 0 stands for the automatic choice, so an arena's number is one more there. */
static bool heap_of(int flags, hak_heap_t **heap) {
  unsigned arena = FLAG_ARENA(flags);
  *heap = NULL;
  return arena == 0 || arena_heap(arena - 1, heap);
}

COMPAT(void *, mallocx, (size_t size, int flags)) {
  hak_heap_t *heap;
  return heap_of(flags, &heap) ? allocate(heap, size, flags) : NULL;
}

/* What moves goes to the arena that the flags name, else to the thread's, as in jemalloc.  Growth in place stays within that arena, so that
 * the block does not end with another one; jemalloc leaves this to chance. */
COMPAT(void *, rallocx, (void *block, size_t size, int flags)) {
  hak_heap_t *heap;
  if (!heap_of(flags, &heap)) return NULL;
  size_t before = hak_malloc_usable_size(block);
  bool zero = (flags & FLAG_ZERO) != 0, moves = zero && compat_moves_for_zeros(before, size);
  void *moved = moves ? NULL : compat_resize(FLAG_ARENA(flags) != 0 ? heap : compat_default(), block, size, FLAG_ALIGN(flags));
  if (moved == NULL) {
    moved = allocate(heap, size, moves ? flags : flags & ~FLAG_ZERO);
    if (moved == NULL) return NULL;
    memcpy(moved, block, before < size ? before : size);
    hak_free(block);
  }
  return zero && !moves ? compat_clear_from(moved, before) : moved;
}

COMPAT(size_t, xallocx, (void *block, size_t size, size_t extra, int flags)) {
  size_t before = hak_malloc_usable_size(block);
  if (!compat_is_aligned(block, FLAG_ALIGN(flags)) || size > PTRDIFF_MAX) return before;
  if (extra > (size_t)PTRDIFF_MAX - size) extra = (size_t)PTRDIFF_MAX - size;
  bool resized = size + extra < before ? compat_shrink(block, size + extra)
                                       : hak_expand(block, size + extra) || (size > before && hak_expand(block, size));
  (void)resized; /* the returned size shows it */
  if ((flags & FLAG_ZERO) != 0) (void)compat_clear_from(block, before);
  return hak_malloc_usable_size(block);
}

COMPAT(size_t, sallocx, (const void *block, int flags)) {
  (void)flags;
  return hak_malloc_usable_size(block);
}

COMPAT(void, dallocx, (void *block, int flags)) {
  (void)flags;
  hak_free(block);
}

/* --- reports ----------------------------------------------------------------------------- */

/* The report is hakmem's own; of the letters in `opts` only J, for JSON, has an effect. */
COMPAT(void, malloc_stats_print, (void (*out)(void *, const char *), void *to, const char *opts)) {
  bool json = opts != NULL && strchr(opts, 'J') != NULL, (*write_stats)(int fd) = json ? hak_stats_json : hak_stats_text;
  if (out == NULL) out = malloc_message;
  if (out == NULL) (void)write_stats(STDERR_FILENO);
  else if (!compat_capture(write_stats, out, to)) out(to, "hakmem: no statistics: no memory, or a filter of system calls\n");
}
