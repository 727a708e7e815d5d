#include "front/resize.h"

#include <errno.h>
#include <string.h>

#include "front/block.h"
#include "front/inspect.h"
#include "front/memcheck.h"
#include "front/named.h"
#include "front/secure.h"
#include "slab/large.h"
#include "slab/sample.h"

/* The size of a live block of a slab; 0 for anything else, which block_inspect then classifies. A bit of the live map is set only where a
 * live block starts. */
HAK_INLINE size_t small_size_in(const region_bin_t **in, const void *block, const char *function) {
  (void)function;
  uintptr_t place = region_index(block);
  if (HAK_UNLIKELY(place >= owner_load(&region.limit) || !region_is_live(block))) return 0;
  const region_bin_t *bin = racy_load(region_bin(owner_load(&region.live), region_index_unit(place)));
  *in = bin;
  if (HAK_SECURE) return bin->block_size != 0 ? secure_size(block, bin->size_class, function) : 0;
  return HAK_UNLIKELY(bin->size_class == CLASS_ZERO) ? 0 : bin->block_size;
}

static size_t small_size(const void *block, const char *function) {
  const region_bin_t *bin;
  return small_size_in(&bin, block, function);
}

/* The record of the live large block that starts there; NULL if none does.  As block_inspect finds it, in a fraction of the time. */
HAK_INLINE unit_t *large_live_at(const void *block) {
  size_t unit = region_unit(block);
  if (unit >= load_acquire(&region.units) || block != region_address((uint32_t)unit)) return NULL;
  unit_t *first = unit_at((uint32_t)unit);
  return load_acquire(&first->kind) == UNIT_LARGE && region_is_live(block) ? first : NULL;
}

size_t block_usable_size(const void *block) {
  size_t small = small_size(block, "malloc_usable_size");
  if (HAK_LIKELY(small != 0)) return small;
  const unit_t *large = memcheck_on() ? NULL : large_live_at(block);
  if (large != NULL) return large_usable(large);
  block_info_t info = block_inspect(block);
  if (HAK_SECURE && info.state != BLOCK_LIVE) block_fault(&info, block, "malloc_usable_size");
  return info.state == BLOCK_LIVE ? memcheck_usable(&info, block) : 0;
}

size_t block_require(const void *block, const char *function) {
  block_info_t info = block_inspect(block);
  if (info.state != BLOCK_LIVE) block_fault(&info, block, function);
  return memcheck_usable(&info, block);
}

size_t block_good_size(size_t size, size_t align) {
  if (size > PTRDIFF_MAX || align > PTRDIFF_MAX) return 0;
  unsigned c = class_of_request_aligned(size, align);
  size_t pages = c == CLASS_NONE ? large_good_size(large_request(size)) : 0;
  if (c == CLASS_NONE && pages == 0) return 0;
  if (memcheck_on()) return size;
  if (HAK_SECURE) return size; /* no more than requested */
  return c != CLASS_NONE ? class_usable(c) : pages;
}

/* In the secure library, which records the new size in the block. */
static bool resize_in_class(void *block, size_t size, bool grows) {
  unsigned c = load_relaxed(&unit_head((uint32_t)region_unit(block))->size_class);
  if (size > SMALL_REQUEST_MAX || (grows ? c == CLASS_ZERO || size > class_usable(c) : class_of_request(size) != c)) return false;
  secure_resize(block, c, size, "realloc");
  return true;
}

static bool resize_small(void *block, size_t old, size_t size) {
  if (HAK_SECURE) return resize_in_class(block, size, false);
  return size <= SMALL_REQUEST_MAX && class_usable(class_of_request(size)) == old;
}

/* Resizes a large block that keeps its pages: its heap, its span and the bytes that it stands for in profiles stay as they are. Returns
 * false if it would not keep them, and in the secure library, which records and checks every size. */
HAK_INLINE bool resize_in_pages(unit_t *large, size_t size) {
  if (HAK_SECURE || size < LARGE_REQUEST_MIN || large_good_size(size) != load_relaxed(&large->bytes)) return false;
  sample_ask_large(unit_number(large), size);
  if (HAK_COUNTED) {
    counted_give(large_usable(large));
    counted_take_slow(large_usable(large));
  }
  return true;
}

static bool resize_large(unit_t *slab, size_t size) {
  if (resize_in_pages(slab, size)) return true;
  large_require_whole(slab, "realloc");
  size_t before = HAK_COUNTED ? large_usable(slab) : 0;
  thread_enter();
  bool owned = load_relaxed(&slab->owned);
  bool resized = size >= LARGE_REQUEST_MIN && (HAK_UNLIKELY(owned) ? named_resize_large(slab, size) : large_resize(slab, size));
  heap_t *heap = thread_heap;
  bool may_grow = !resized && !owned && size > large_usable(slab);
  bool again = may_grow && heap != NULL && large_is_before_cached(slab) && large_cache_flush(&heap->owner.large_cache);
  if (again) resized = large_resize(slab, size);
  thread_leave_with_upkeep();
  if (HAK_COUNTED && resized) {
    counted_give(before);
    counted_take_slow(large_usable(slab));
  }
  return resized;
}

static HAK_COLD bool resize_under_memcheck(const block_info_t *info, void *block, size_t size) {
  size_t old = memcheck_size(block, info->size), room = memcheck_room_in_place(info, block, size);
  if (room == 0 || (room > info->size && !resize_large(info->span, room))) return false;
  memcheck_resize(block, old, size, room);
  return true;
}

bool block_expand(void *block, size_t size) {
  block_info_t info = block_inspect(block);
  if (info.state != BLOCK_LIVE) block_fault(&info, block, "hak_expand");
  size_t usable = memcheck_usable(&info, block);
  if (size == usable || (size < usable && (!HAK_SECURE || memcheck_on() || size == 0))) return true; /* the secure one records less, too */
  if (memcheck_on()) return resize_under_memcheck(&info, block, size);
  if (load_relaxed(&info.span->kind) == UNIT_LARGE) return resize_large(info.span, size);
  return HAK_SECURE && resize_in_class(block, size, true);
}

static void large_copy(unit_t *slab, void *from, void *to, size_t bytes) {
  if (bytes < load_relaxed(&slab->bytes)) {
    memcpy(to, from, bytes);
    return;
  }
  thread_enter();
  large_move(slab, to);
  thread_leave();
}

/* `old`: the bytes of the block that the program may use; `large`: its record if it is a large one whose pages may move. */
HAK_INLINE void *move_to(void *moved, void *block, unit_t *large, size_t old, size_t size) {
  size_t bytes = size < old ? size : old;
  if (large == NULL) memcpy(moved, block, bytes);
  else large_copy(large, block, moved, bytes);
  block_free(block, 0, "realloc");
  return moved;
}

/* `heap`: the named heap that the block is from, or NULL. */
HAK_INLINE void *realloc_elsewhere(void *block, heap_t *heap, unit_t *large, size_t old, size_t size) {
  int saved = large != NULL || size <= old ? errno : 0;
  void *moved;
  if (heap != NULL) moved = alloc_from(heap, size, 1, SPAN_PLAIN, "realloc");
  else moved = size > old && size >= LARGE_REQUEST_MIN ? alloc_own(size, 1, large_use_to_grow(large, old, size)) : block_alloc_own(size);
  if (HAK_UNLIKELY(moved == NULL)) {
    bool grown = large != NULL && size > old && resize_large(large, size); /* what went back meanwhile may be enough for that */
    if (!grown && (size > old || HAK_SECURE)) return NULL; /* a sized free checks the size there: the block must have it */
    errno = saved; /* shrinking cannot fail */
    return block;
  }
  return move_to(moved, block, large, old, size);
}

static HAK_COLD void *realloc_under_memcheck(const block_info_t *info, void *block, size_t size) {
  if (resize_under_memcheck(info, block, size)) return block;
  return realloc_elsewhere(block, named_of(info->span), NULL, memcheck_usable(info, block), size);
}

static HAK_NOINLINE void *realloc_any(void *block, size_t size) {
  const region_bin_t *bin = &region_no_bin;
  size_t old = small_size_in(&bin, block, "realloc");
  unit_t *large = old == 0 && !memcheck_on() ? large_live_at(block) : NULL;
  bool sampled = false;
  if (large != NULL) {
    old = large_usable(large);
  } else if (HAK_UNLIKELY(old == 0)) {
    block_info_t info = block_inspect(block);
    if (HAK_UNLIKELY(info.state != BLOCK_LIVE)) {
      if (memcheck_on()) memcheck_free(block);
      block_fault(&info, block, "realloc");
    }
    if (memcheck_on()) return realloc_under_memcheck(&info, block, size);
    old = info.size;
    sampled = load_relaxed(&info.span->kind) == UNIT_SLAB;
  }
  if (size > PTRDIFF_MAX) return out_of_memory();
  if (large == NULL ? resize_small(block, old, size) : resize_large(large, size)) {
    if (sampled) sample_resize(block, size);
    return block;
  }
  heap_t *heap = HAK_LIKELY(racy_load(&bin->thread) > OWNER_OF_MANY) ? NULL : named_of(unit_head((uint32_t)region_unit(block)));
  return realloc_elsewhere(block, heap, large, old, size);
}

static HAK_NOINLINE void *realloc_small(void *block, size_t old, size_t size) { return realloc_elsewhere(block, NULL, NULL, old, size); }

/* A small block that stays small and is from no named heap takes the short path. */
void *block_realloc(void *block, size_t size) {
  const region_bin_t *bin;
  size_t old = small_size_in(&bin, block, "realloc");
  if (HAK_UNLIKELY(old == 0 || size > SMALL_REQUEST_MAX)) return realloc_any(block, size);
  if (HAK_SECURE ? resize_in_class(block, size, false) : class_of_request(size) == bin->size_class) return block;
  if (HAK_UNLIKELY(racy_load(&bin->thread) <= OWNER_OF_MANY)) return realloc_any(block, size);
  return realloc_small(block, old, size);
}

/* Whether the block, which is from another heap than the one that is asked for, stays there with the new size. */
static bool stays_with(size_t old, size_t size) {
  bool wasteful = size < old / 2 || (size <= SMALL_REQUEST_MAX && block_good_size(size, 1) != old);
  return size <= old && !wasteful;
}

static HAK_NOINLINE void *realloc_leaving(const block_info_t *info, void *block, size_t size) {
  size_t old = memcheck_usable(info, block);
  if (stays_with(old, size)) return block_realloc(block, size);
  if (size > PTRDIFF_MAX) return out_of_memory();
  bool grown = size > old && size >= LARGE_REQUEST_MIN, large = !memcheck_on() && load_relaxed(&info->span->kind) == UNIT_LARGE;
  int saved = errno;
  void *moved = grown ? alloc_any(size, 1, large_use_to_grow(large ? info->span : NULL, old, size)) : block_alloc(size);
  if (HAK_LIKELY(moved != NULL)) return move_to(moved, block, large ? info->span : NULL, old, size);
  if (size > old) return NULL;
  errno = saved;
  return block;
}

void *block_realloc_to_default(void *block, size_t size) {
  if (!HAK_REALLOC_LEAVES) return block_realloc(block, size);
  const heap_t *mine = thread_heap, *to = mine != NULL ? mine->default_heap : NULL;
  const region_bin_t *bin;
  bool of_thread = small_size_in(&bin, block, "realloc") != 0 && racy_load(&bin->thread) > OWNER_OF_MANY;
  if (HAK_LIKELY(of_thread && to == NULL)) return block_realloc(block, size);
  block_info_t info = block_inspect(block);
  if (info.state != BLOCK_LIVE || named_of(info.span) == to) return block_realloc(block, size);
  return realloc_leaving(&info, block, size);
}
