/* heap.c - the calls for named heaps: include/hakmem/heap.h.  front/named.h explains what these are. */
#include "entry/entry.h"

#include <errno.h>
#include <string.h>

#include "hakmem/heap.h"
#include "front/alloc.h"
#include "front/block.h"
#include "front/boot.h"
#include "front/inspect.h"
#include "front/named.h"
#include "front/resize.h"
#include "front/thread.h"

static heap_t *inner(hak_heap_t *heap) { return (heap_t *)(void *)heap; }
static hak_heap_t *outer(heap_t *heap) { return (hak_heap_t *)(void *)heap; }

static void *take(hak_heap_t *heap, size_t size, size_t align, span_use_t use, const char *function) {
  named_require(inner(heap), function);
  return alloc_from(inner(heap), size, align, use, function);
}

HAK_COLD hak_heap_t *hak_heap_new(const char *name) {
  if (!boot()) return out_of_memory();
  thread_enter();
  heap_t *heap = named_new(name);
  if (HAK_UNLIKELY(heap == NULL) && trim_all()) heap = named_new(name);
  thread_leave_with_upkeep();
  return heap != NULL ? outer(heap) : out_of_memory();
}

HAK_COLD void hak_heap_free(hak_heap_t *heap) {
  if (heap == NULL) return;
  named_require(inner(heap), "hak_heap_free");
  thread_enter();
  named_end(inner(heap), "hak_heap_free");
  thread_leave_with_upkeep();
}

void *hak_heap_malloc(hak_heap_t *heap, size_t size) { return take(heap, size, 1, SPAN_PLAIN, "hak_heap_malloc"); }

void *hak_heap_calloc(hak_heap_t *heap, size_t count, size_t size) {
  size_t bytes;
  if (__builtin_mul_overflow(count, size, &bytes)) return out_of_memory();
  return take(heap, bytes, 1, SPAN_ZEROED, "hak_heap_calloc");
}

void *hak_heap_aligned_alloc(hak_heap_t *heap, size_t alignment, size_t size) {
  if (!bits_is_pow2(alignment)) {
    errno = EINVAL;
    return NULL;
  }
  return take(heap, size, alignment, SPAN_PLAIN, "hak_heap_aligned_alloc");
}

char *hak_heap_strdup(hak_heap_t *heap, const char *text) {
  size_t size = strlen(text) + 1;
  char *copy = take(heap, size, 1, SPAN_PLAIN, "hak_heap_strdup");
  return copy != NULL ? memcpy(copy, text, size) : NULL;
}

static void *move_into(hak_heap_t *heap, void *block, size_t size) {
  size_t old = block_require(block, "hak_heap_realloc");
  void *moved = take(heap, size, 1, SPAN_PLAIN, "hak_heap_realloc");
  if (moved == NULL) return NULL;
  memcpy(moved, block, size < old ? size : old);
  block_free(block, 0, "hak_heap_realloc");
  return moved;
}

void *hak_heap_realloc(hak_heap_t *heap, void *block, size_t size) {
  if (block == NULL) return take(heap, size, 1, SPAN_PLAIN, "hak_heap_realloc");
  named_require(inner(heap), "hak_heap_realloc");
  if (size == 0) {
    block_free(block, 0, "hak_heap_realloc");
    return NULL;
  }
  return hak_heap_of(block) == heap ? block_realloc(block, size) : move_into(heap, block, size);
}

HAK_COLD void hak_heap_set_limit(hak_heap_t *heap, size_t bytes) {
  named_require(inner(heap), "hak_heap_set_limit");
  thread_enter();
  named_set_limit(inner(heap), bytes, "hak_heap_set_limit");
  thread_leave();
}

/* A thread without a heap of its own gets one, which records the named one as its default. */
HAK_COLD hak_heap_t *hak_heap_set_default(hak_heap_t *heap) {
  if (heap != NULL) named_require(inner(heap), "hak_heap_set_default");
  heap_t *mine = thread_heap;
  if (mine == NULL && heap == NULL) return NULL;
  thread_enter();
  if (mine == NULL) mine = thread_attach();
  if (HAK_UNLIKELY(mine == NULL) && trim_all()) mine = thread_attach();
  heap_t *before = mine != NULL ? mine->default_heap : NULL;
  if (mine != NULL) thread_set_default(inner(heap));
  else errno = ENOMEM;
  (void)thread_leave_with_upkeep();
  return outer(before);
}

hak_heap_t *hak_heap_of(const void *block) {
  block_info_t info = block_locate(block);
  return info.state == BLOCK_LIVE ? outer(named_of(info.span)) : NULL;
}

/* The name is an array of atomic characters, which a caller reads as plain ones. */
const char *hak_heap_name(const hak_heap_t *heap) {
  const heap_t *of = (const heap_t *)(const void *)heap;
  named_require(of, "hak_heap_name");
  return (const char *)(uintptr_t)of->named.name;
}

HAK_COLD size_t hak_heap_collect(hak_heap_t *heap) {
  named_require(inner(heap), "hak_heap_collect");
  thread_enter();
  size_t given = named_collect(inner(heap), "hak_heap_collect");
  thread_leave_with_upkeep();
  return given;
}

/* The sizes that a caller may state for its hak_heap_usage_t, of any version. */
#define USAGE_LEAST (2 * sizeof(uint64_t))
#define USAGE_MOST 4096

HAK_COLD bool hak_heap_usage_get(hak_heap_t *heap, hak_heap_usage_t *usage) {
  uint64_t size = usage->struct_size;
  if (size < USAGE_LEAST || size > USAGE_MOST || size % sizeof(uint64_t) != 0) {
    errno = EINVAL;
    return false;
  }
  const heap_named_t *named = &inner(heap)->named;
  named_require(inner(heap), "hak_heap_usage_get");
  thread_enter();
  named_figures_t figures = named_count(inner(heap), "hak_heap_usage_get");
  thread_leave_with_upkeep();
  hak_heap_usage_t known = {
      .struct_size = size < sizeof known ? size : sizeof known,
      .limit = load_relaxed(&named->limit),
      .live = figures.live,
      .blocks = figures.blocks,
      .peak = load_relaxed(&named->peak),
      .slab_bytes = figures.slab_bytes,
      .large_bytes = figures.large_bytes,
      .large_blocks = figures.large_blocks,
      .allocs = figures.allocs,
      .frees = figures.allocs - figures.blocks,
      .refused = load_relaxed(&named->refused),
  };
  memcpy(usage, &known, known.struct_size);
  memset((char *)usage + known.struct_size, 0, size - known.struct_size);
  return true;
}
