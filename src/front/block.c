#include "front/block.h"

#include <errno.h>
#include <string.h>

#include "front/boot.h"
#include "kit/fault.h"
#include "os/os.h"
#include "slab/large.h"
#include "slab/remote.h"
#include "space/span.h"

static void *out_of_memory(void) {
  errno = ENOMEM;
  return NULL;
}

/* --- allocation -------------------------------------------------------------------------- */

/* While every allocation is counted, the fast path finds no heap: all come here. */
static void heap_count_alloc(heap_t *heap) {
  if (thread_heap != heap) atomic_count_own(&heap->counted_allocs, 1);
}

/* One block of the class; NULL when out of memory. */
static void *alloc_small(heap_t *heap, unsigned size_class) {
  void *block = heap->has_bin[size_class] ? bin_pop(heap_bin(heap, size_class)) : NULL;
  if (block != NULL) return block;
  block = heap_refill(heap, size_class);
  if (block != NULL && HAK_CHECKS) region_set_live(block);
  return block;
}

/* What is cached anywhere may make the room. */
static void trim_all(void) {
  if (thread_own_heap != NULL) heap_trim(thread_own_heap);
  heap_trim_others();
}

static void *alloc_large(size_t size, size_t align, span_use_t use) {
  if (size > PTRDIFF_MAX || !boot()) return out_of_memory();
  thread_enter();
  void *block = large_alloc(size, align, use);
  if (HAK_UNLIKELY(block == NULL)) {
    trim_all();
    block = large_alloc(size, align, use);
  }
  thread_settle();
  return block != NULL ? block : out_of_memory();
}

static void *alloc_refill(size_t size) {
  heap_t *heap = thread_attach();
  if (heap == NULL) return NULL;
  heap_count_alloc(heap);
  unsigned c = class_of(size == 0 ? 1 : size);
  void *block = alloc_small(heap, c);
  if (HAK_UNLIKELY(block == NULL)) {
    trim_all();
    block = alloc_small(heap, c);
  }
  return block;
}

HAK_NOINLINE void *alloc_miss(size_t size) {
  if (size > HAK_SMALL_MAX) return alloc_large(size, 1, SPAN_PLAIN);
  thread_enter();
  void *block = alloc_refill(size);
  thread_settle();
  return block != NULL ? block : out_of_memory();
}

void *block_alloc_zeroed(size_t size) {
  if (size > HAK_SMALL_MAX) return alloc_large(size, 1, SPAN_ZEROED);
  void *block = block_alloc(size);
  if (HAK_LIKELY(block != NULL)) memset(block, 0, size);
  return block;
}

void *block_alloc_aligned(size_t align, size_t size) {
  if (align <= HAK_GRANULE) return block_alloc(size);
  if (size > PTRDIFF_MAX) return out_of_memory();
  if (size <= HAK_SMALL_MAX && align <= HAK_SMALL_MAX) {
    unsigned c = class_of_aligned(size < align ? align : size, align);
    if (c != CLASS_NONE) return block_alloc(class_info[c].size);
  }
  return alloc_large(size > HAK_SMALL_MAX ? size : HAK_SMALL_MAX + 1, align, SPAN_PLAIN);
}

size_t block_alloc_batch(size_t size, size_t count, void **blocks) {
  size_t done = 0;
  while (done < count && (blocks[done] = block_alloc(size)) != NULL) done++;
  return done;
}

/* --- what a pointer is ------------------------------------------------------------------- */

typedef enum block_state {
  BLOCK_LIVE,
  BLOCK_FREED,      /* the start of a block that is not live, or memory in no span */
  BLOCK_INTERIOR,   /* inside a block, or in a slab's tail */
  BLOCK_MISALIGNED, /* in the region, not on a granule */
  BLOCK_FOREIGN     /* not in the region, or in no part of it that was ever used */
} block_state_t;

typedef struct block_info {
  block_state_t state;
  slab_t *slab; /* of the span, NULL if there is none */
  size_t size;  /* usable bytes */
} block_info_t;

static bool is_live(const void *block) { return !HAK_CHECKS || region_is_live(block); }

/* Where in its span the pointer is; the span is in use. */
static block_state_t block_place(const slab_t *slab, const void *p) {
  size_t offset = (size_t)((const char *)p - (const char *)region_address(slab_unit(slab)));
  if (atomic_seen(&slab->kind) == SLAB_LARGE) return offset != 0 ? BLOCK_INTERIOR : is_live(p) ? BLOCK_LIVE : BLOCK_FREED;
  unsigned c = atomic_seen(&slab->size_class);
  uint32_t block = class_block_at(c, offset);
  if ((size_t)block * class_info[c].size != offset || block >= class_info[c].blocks) return BLOCK_INTERIOR;
  return is_live(p) ? BLOCK_LIVE : BLOCK_FREED;
}

static block_info_t block_inspect(const void *p) {
  block_info_t info = {BLOCK_FOREIGN, NULL, 0};
  size_t unit = region_unit(p);
  if (unit >= atomic_take(&region.units)) return info;
  superslab_t *superslab = &region.superslabs[unit / HAK_UNITS_PER_SUPERSLAB];
  if ((atomic_take(&superslab->mapped) >> unit % HAK_UNITS_PER_SUPERSLAB & 1) == 0) return info;
  bool misaligned = ((uintptr_t)p & (HAK_GRANULE - 1)) != 0;
  slab_t *slab = slab_head((uint32_t)unit);
  uint8_t kind = atomic_take(&slab->kind);
  bool in_span = (kind == SLAB_BLOCKS || kind == SLAB_LARGE) && unit - slab_unit(slab) < atomic_seen(&slab->units);
  if (!in_span) {
    info.state = misaligned ? BLOCK_MISALIGNED : BLOCK_FREED;
    return info;
  }
  info.slab = slab;
  info.size = kind == SLAB_LARGE ? atomic_seen(&slab->bytes) : slab_class(slab)->size;
  info.state = misaligned ? BLOCK_MISALIGNED : block_place(slab, p);
  return info;
}

static _Noreturn void free_fault(const block_info_t *info, const void *p, const char *function) {
  static const struct {
    const char *fault, *detail;
  } texts[] = {
      [BLOCK_LIVE] = {"bug", "block is live"},
      [BLOCK_FREED] = {"double free", "block is already free"},
      [BLOCK_INTERIOR] = {"interior pointer", "not the start of a block"},
      [BLOCK_MISALIGNED] = {"misaligned pointer", "no block starts at this address"},
      [BLOCK_FOREIGN] = {"foreign pointer", "not from this allocator"},
  };
  const char *detail = info->slab == NULL && info->state == BLOCK_FREED ? "no block there" : texts[info->state].detail;
  size_t size_class = info->slab == NULL ? 0 : atomic_seen(&info->slab->kind) == SLAB_LARGE ? FAULT_LARGE : info->size;
  fault_abort(texts[info->state].fault, function, p, detail, size_class);
}

/* --- freeing ----------------------------------------------------------------------------- */

static void free_large(const block_info_t *info, void *block, const char *function) {
  if (HAK_CHECKS && !region_clear_live(block)) {
    block_info_t freed = *info;
    freed.state = BLOCK_FREED;
    free_fault(&freed, block, function);
  }
  large_free(info->slab);
}

/* What neither the fast path nor free_remote has taken. */
static void free_inspected(void *block, size_t size, const char *function) {
  block_info_t info = block_inspect(block);
  if (HAK_UNLIKELY(info.state != BLOCK_LIVE)) free_fault(&info, block, function);
  bool large = atomic_seen(&info.slab->kind) == SLAB_LARGE;
  if (HAK_UNLIKELY(size > info.size)) fault_abort("size mismatch", function, block, "block is smaller", large ? FAULT_LARGE : info.size);
  if (!large) free_fault(&info, block, function); /* free_remote would have taken it */
  free_large(&info, block, function);
}

/* Another heap's block: two atomic operations, and no more unless the owner has to be told. */
static bool free_remote(void *block, size_t size) {
  size_t unit = region_unit(block);
  if ((uintptr_t)block % HAK_GRANULE != 0 || unit >= atomic_take(&region.units)) return false;
  const region_bin_t *bin = hot_peek(region_bin(region.live, unit));
  if (bin->block_size == 0 || size > bin->block_size) return false;
  bool queued;
  if (!remote_free(bin, (uint32_t)unit, block, &queued)) return false;
  if (!queued) return true;
  thread_enter();
  remote_tell((uint32_t)unit);
  thread_settle();
  return true;
}

HAK_NOINLINE void free_miss(void *block, size_t size, const char *function) {
  if (block == NULL || free_remote(block, size)) return;
  thread_enter();
  free_inspected(block, size, function);
  thread_settle();
}

HAK_NOINLINE void free_overflow(bin_t *bin) {
  thread_enter();
  heap_t *heap = thread_attach(); /* the bin's heap, if need be by heap_find_own */
  if (heap != NULL) heap_flush(heap, bin);
  thread_settle();
}

/* --- size and realloc -------------------------------------------------------------------- */

/* The size of a live block of a slab; 0 for anything else, which block_inspect then tells apart.
 * Only where a live block starts is a bit in the live map set. */
static size_t small_size(const void *block) {
  uintptr_t place = region_place(block);
  if (HAK_UNLIKELY(place >= hot_load(&region.limit) || !is_live(block))) return 0;
  return hot_peek(region_bin(hot_load(&region.live), region_place_unit(place)))->block_size;
}

size_t block_usable_size(const void *block) {
  size_t small = small_size(block);
  if (HAK_LIKELY(small != 0)) return small;
  block_info_t info = block_inspect(block);
  return info.state == BLOCK_LIVE ? info.size : 0;
}

size_t block_good_size(size_t size, size_t align) {
  if (size > PTRDIFF_MAX || align > PTRDIFF_MAX) return 0;
  if (size <= HAK_SMALL_MAX && align <= HAK_SMALL_MAX) {
    size_t least = size < align ? align : size;
    unsigned c = class_of_aligned(least == 0 ? 1 : least, align);
    if (c != CLASS_NONE) return class_info[c].size;
  }
  return large_good_size(size > HAK_SMALL_MAX ? size : HAK_SMALL_MAX + 1);
}

static bool resize_small(size_t old, size_t size) { return size <= HAK_SMALL_MAX && class_info[class_of(size)].size == old; }

static bool resize_large(slab_t *slab, size_t size) {
  thread_enter();
  bool resized = size > HAK_SMALL_MAX && large_resize(slab, size);
  thread_settle();
  return resized;
}

bool block_expand(void *block, size_t size) {
  block_info_t info = block_inspect(block);
  if (info.state != BLOCK_LIVE) free_fault(&info, block, "hak_expand");
  if (size <= info.size) return true;
  return atomic_seen(&info.slab->kind) == SLAB_LARGE && resize_large(info.slab, size);
}

static void large_copy(slab_t *slab, void *from, void *to, size_t bytes) {
  if (bytes < atomic_seen(&slab->bytes)) {
    memcpy(to, from, bytes);
    return;
  }
  thread_enter();
  large_move(slab, to);
  thread_leave();
}

void *block_realloc(void *block, size_t size) {
  size_t old = small_size(block);
  slab_t *large = NULL;
  if (HAK_UNLIKELY(old == 0)) {
    block_info_t info = block_inspect(block);
    if (HAK_UNLIKELY(info.state != BLOCK_LIVE)) free_fault(&info, block, "realloc");
    old = info.size;
    large = info.slab;
  }
  if (size > PTRDIFF_MAX) return out_of_memory();
  if (large == NULL ? resize_small(old, size) : resize_large(large, size)) return block;
  int saved = errno;
  void *moved = block_alloc(size);
  if (HAK_UNLIKELY(moved == NULL)) {
    if (size > old) return NULL;
    errno = saved; /* shrinking cannot fail */
    return block;
  }
  size_t bytes = size < old ? size : old;
  if (large == NULL) memcpy(moved, block, bytes);
  else large_copy(large, block, moved, bytes);
  block_free(block, 0, "realloc");
  return moved;
}
