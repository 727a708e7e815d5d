#include "front/block.h"

#include <errno.h>
#include <string.h>

#include "os/memcheck.h"
#include "os/os.h"
#include "kit/fault.h"
#include "kit/options.h"
#include "space/span.h"
#include "slab/large.h"
#include "slab/large_secure.h"
#include "slab/remote.h"
#include "slab/slots.h"
#include "front/boot.h"
#include "front/inspect.h"
#include "front/quarantine.h"
#include "front/secure.h"
#include "front/supply.h"

static void *out_of_memory(void) {
  errno = ENOMEM;
  return NULL;
}

/* The largest size that a slab's block holds. */
#define SMALL_MAX (HAK_SMALL_MAX - SECURE_CANARY)

static unsigned class_for(size_t size) {
  return size == 0 ? CLASS_ZERO : class_of(size + SECURE_CANARY);
}

/* CLASS_NONE where only a large block will do. */
static unsigned class_for_aligned(size_t size, size_t align) {
  if (size > SMALL_MAX || align > HAK_SMALL_MAX) return CLASS_NONE;
  if (align <= HAK_GRANULE) return class_for(size);
  size_t least = size + SECURE_CANARY;
  return class_of_aligned(least < align ? align : least, align);
}

/* --- allocation -------------------------------------------------------------------------- */

/* One block of the class; NULL when out of memory. */
static void *alloc_small(heap_t *heap, unsigned size_class, size_t size) {
  if (HAK_SECURE) return secure_alloc(heap, size_class, size);
  void *block = load_relaxed(&heap->has_bin[size_class]) ? bin_pop(heap_bin(heap, size_class)) : NULL;
  if (block != NULL) return block;
  block = memcheck_on() ? heap_take_one(heap, size_class) : heap_refill(heap, size_class);
  if (block != NULL && HAK_CHECKS) region_set_live(block);
  return block;
}

/* Other threads' heaps are walked so often at most. */
#define TRIM_OTHERS_MS 10

/* What is cached anywhere may make the room.  False: nothing is, for all that is known. */
static bool trim_all(void) {
  static _Atomic uint64_t others_ms;
  heap_t *heap = thread_heap;
  bool own = heap != NULL && heap_may_trim(heap);
  if (own) heap_trim(heap);
  uint64_t now = os_now_ms();
  bool others = now - load_relaxed(&others_ms) >= TRIM_OTHERS_MS;
  if (others) {
    store_relaxed(&others_ms, now);
    heap_trim_others();
  }
  return large_trim() || own || others;
}

static void *alloc_large(size_t size, size_t align, span_use_t use) {
  if (size > PTRDIFF_MAX || !boot()) return out_of_memory();
  thread_enter();
  void *block = large_alloc(size, align, use);
  if (HAK_UNLIKELY(block == NULL) && large_may_fit(size, align) && trim_all()) block = large_alloc(size, align, use);
  thread_leave_with_upkeep();
  return block != NULL ? block : out_of_memory();
}

static void *alloc_small_miss(size_t size);

static void *alloc_refill(size_t size) {
  if (!boot()) return NULL;
  bool first = thread_heap == NULL;
  unsigned c = class_for(size);
  void *block = thread_take_shared(c);
  if (block != NULL) {
    if (HAK_CHECKS) region_set_live(block);
    return block;
  }
  heap_t *heap = thread_attach();
  if (heap == NULL) return NULL;
  if (first && thread_fast_heap != heap) return alloc_small_miss(size); /* watched from the first on */
  block = alloc_small(heap, c, size);
  if (HAK_UNLIKELY(block == NULL) && trim_all()) block = alloc_small(heap, c, size);
  return block;
}

/* The heap has nothing ready for the size. */
static HAK_NOINLINE void *alloc_more(size_t size) {
  thread_enter();
  void *block = alloc_refill(size);
  thread_leave_with_upkeep();
  return block != NULL ? block : out_of_memory();
}

/* From a bin of the heap, as malloc's fast path does it; NULL if there is nothing. */
HAK_INLINE void *alloc_hit(heap_t *heap, size_t size) {
  if (HAK_SECURE) return size > 0 ? secure_pop(heap, size) : NULL;
  return bin_pop(heap_bin_at(heap, size <= HAK_TABLE_MAX ? heap_small_index(size) : heap_mid_index(size)));
}

/* It is time for one in a guard slot. */
static HAK_NOINLINE void *alloc_sampled(heap_t *heap, size_t size) {
  heap->until_guarded = heap_guard_interval(heap);
  void *block = NULL;
  if (!HAK_SECURE && option_get(OPTION_guard) != 0) {
    thread_enter();
    block = slot_alloc(size);
    thread_leave_with_upkeep();
  }
  if (block == NULL) block = alloc_hit(heap, size);
  return block != NULL ? block : alloc_more(size);
}

/* While allocations are watched, all of them come here: each is counted, and one now and then gets a guard slot. */
static void *alloc_small_miss(size_t size) {
  heap_t *heap = thread_heap;
  if (heap == NULL || thread_fast_heap == heap) return alloc_more(size);
  owner_add(&heap->counted_allocs, 1);
  if (HAK_UNLIKELY(heap->until_guarded-- == 0)) return alloc_sampled(heap, size);
  void *block = alloc_hit(heap, size);
  return HAK_LIKELY(block != NULL) ? block : alloc_more(size);
}

/* The usable size, tail included, of a block under memcheck; 0 for a size that cannot be. */
static size_t memcheck_room(size_t align, size_t size) {
  if (size > PTRDIFF_MAX - MEMCHECK_TAIL) return 0;
  size += MEMCHECK_TAIL;
  unsigned c = class_for_aligned(size, align);
  return c != CLASS_NONE ? class_usable(c) : large_good_size(size > SMALL_MAX ? size : SMALL_MAX + 1);
}

/* Every allocation under memcheck. `use` counts above SMALL_MAX. */
static HAK_COLD void *alloc_under_memcheck(size_t align, size_t size, span_use_t use) {
  size_t room = memcheck_room(align, size);
  if (room == 0) return out_of_memory();
  void *block = room <= SMALL_MAX ? alloc_small_miss(room) : alloc_large(room, align, use);
  if (block != NULL) memcheck_alloc(block, size, room, use == SPAN_ZEROED);
  return block;
}

/* Above SMALL_MAX. */
static void *alloc_above(size_t size, span_use_t use) {
  return memcheck_on() ? alloc_under_memcheck(1, size, use) : alloc_large(size, 1, use);
}

HAK_NOINLINE void *alloc_miss(size_t size) {
  if (size > SMALL_MAX) return alloc_above(size, SPAN_PLAIN);
  return memcheck_on() ? alloc_under_memcheck(1, size, SPAN_PLAIN) : alloc_small_miss(size);
}

void *block_alloc_zeroed(size_t size) {
  if (size > SMALL_MAX) return alloc_above(size, SPAN_ZEROED);
  void *block = block_alloc(size);
  if (!HAK_SECURE && HAK_LIKELY(block != NULL)) memset(block, 0, size);
  return block;
}

void *block_alloc_aligned(size_t align, size_t size) {
  if (align <= HAK_GRANULE) return block_alloc(size);
  if (memcheck_on()) return alloc_under_memcheck(align, size, SPAN_PLAIN);
  if (size > PTRDIFF_MAX) return out_of_memory();
  unsigned c = class_for_aligned(size, align);
  if (c != CLASS_NONE) {
    void *block = block_alloc(class_usable(c));
    if (HAK_SECURE && block != NULL) secure_resize(block, c, size, "aligned_alloc");
    return block;
  }
  return alloc_large(size > SMALL_MAX ? size : SMALL_MAX + 1, align, SPAN_PLAIN);
}

size_t block_alloc_batch(size_t size, size_t count, void **blocks) {
  size_t done = 0;
  while (done < count && (blocks[done] = block_alloc(size)) != NULL) done++;
  return done;
}

/* --- freeing ----------------------------------------------------------------------------- */

static _Noreturn void fault_freed(const block_info_t *info, const void *block, const char *function) {
  block_info_t freed = *info;
  freed.state = BLOCK_FREED;
  block_fault(&freed, block, function);
}

/* Claims the live block for its one free: another thread may have been faster. */
static void free_claim(const block_info_t *info, const void *block, const char *function) {
  if (HAK_CHECKS && !region_clear_live(block)) fault_freed(info, block, function);
}

static void free_large(const block_info_t *info, void *block, const char *function) {
  free_claim(info, block, function);
  if (HAK_SECURE && !large_is_whole(info->slab)) {
    fault_abort("overflow", function, block, "bytes behind the block were overwritten", FAULT_LARGE);
  }
  large_free(info->slab);
}

static void free_guarded(const block_info_t *info, void *block, const char *function) {
  free_claim(info, block, function);
  slot_free(block, function);
}

/* Whether an allocation of `size`, with some alignment, leads to such a block. */
static bool may_have_size(const block_info_t *info, size_t size) {
  if (load_relaxed(&info->slab->kind) != UNIT_LARGE) return size == info->size;
  return (size > SMALL_MAX ? size : SMALL_MAX + 1) == info->size;
}

static void free_quarantined(const block_info_t *info, void *block, const char *function) {
  free_claim(info, block, function);
  unsigned c = load_relaxed(&info->slab->size_class);
  secure_clear(block, c, function);
  heap_t *heap = thread_attach();
  if (heap != NULL) block = quarantine_put(heap, block, c);
  if (block != NULL) heap_take_back(heap, block);
}

/* What neither the fast path nor free_miss has taken. */
static void free_inspected(void *block, size_t size, const char *function) {
  block_info_t info = block_inspect(block);
  if (HAK_UNLIKELY(info.state != BLOCK_LIVE)) block_fault(&info, block, function);
  if (HAK_UNLIKELY(size > info.size)) block_fault_size(&info, block, function, "block is smaller");
  if (HAK_UNLIKELY(HAK_SECURE && size != 0 && !may_have_size(&info, size))) {
    block_fault_size(&info, block, function, "block is larger");
  }
  uint8_t kind = load_relaxed(&info.slab->kind);
  if (kind == UNIT_LARGE) free_large(&info, block, function);
  else if (kind == UNIT_SLOTS) free_guarded(&info, block, function);
  else if (HAK_SECURE) free_quarantined(&info, block, function);
  else fault_freed(&info, block, function); /* it was not live for free_miss: who freed it has got it again */
}

static HAK_NOINLINE void free_announce(unit_t *slab) {
  thread_enter();
  remote_announce(slab);
  thread_leave_with_upkeep();
}

static HAK_NOINLINE void free_rest(void *block, size_t size, const char *function) {
  if (block == NULL) return;
  thread_enter();
  free_inspected(block, size, function);
  thread_leave_with_upkeep();
}

/* Another heap's block: two atomic operations, and no more unless its slab has to be announced. What
 * does is called last, so that the usual case keeps nothing for it. */
HAK_INLINE void free_elsewhere(void *block, size_t size, const char *function) {
  size_t unit = region_index_unit(region_index(block));
  if (HAK_SECURE || HAK_UNLIKELY(unit >= load_acquire(&region.units))) goto rest;
  const region_bin_t *bin = racy_load(region_bin(region.live, unit));
  if (HAK_UNLIKELY(bin->block_size == 0 || size > bin->block_size)) goto rest;
  if (HAK_CHECKS && HAK_UNLIKELY(!region_clear_live(block))) goto rest;
  unit_t *unannounced = remote_mark(bin, (uint32_t)unit, block);
  if (HAK_UNLIKELY(unannounced != NULL)) free_announce(unannounced);
  return;
rest:
  free_rest(block, size, function);
}

static HAK_COLD HAK_NOINLINE void free_under_memcheck(void *block, size_t size, const char *function) {
  if (block == NULL) return;
  memcheck_free(block); /* first: it says more of a wrong free than our line */
  free_elsewhere(block, size, function);
}

HAK_NOINLINE void free_miss(void *block, size_t size, const char *function) {
  if (memcheck_on()) free_under_memcheck(block, size, function);
  else free_elsewhere(block, size, function);
}

HAK_NOINLINE void free_overflow(bin_t *bin) {
  thread_enter();
  heap_t *heap = thread_attach(); /* the bin's heap, if need be by heap_find_own */
  if (heap != NULL) heap_flush(heap, bin);
  thread_leave_with_upkeep();
}

/* --- the secure library's usual paths ----------------------------------------------------- */

void *alloc_secure(size_t size) {
  void *block = size - 1 < SMALL_MAX ? secure_pop(thread_fast_heap, size) : NULL;
  return HAK_LIKELY(block != NULL) ? block : alloc_miss(size);
}

static HAK_NOINLINE void free_waited(void *block) {
  thread_enter();
  heap_take_back(thread_heap, block);
  thread_leave_with_upkeep();
}

/* Puts a block that has waited into its bin, if that is the thread's own. */
static void free_to_bin(void *block) {
  bin_t *bin = (bin_t *)(void *)owner_load(region_bin(owner_load(&region.live), region_unit(block)));
  if (HAK_UNLIKELY(owner_load(&bin->shared.thread) != thread_self())) free_waited(block);
  else if (HAK_UNLIKELY(bin_push(bin, block))) free_overflow(bin);
}

/* Another heap's blocks too: the quarantine is the freer's. */
void free_secure(void *block, size_t size, const char *function) {
  uintptr_t place = region_index(block);
  heap_t *heap = thread_fast_heap;
  if (HAK_UNLIKELY(place >= owner_load(&region.limit) || heap->quarantine == NULL)) goto miss;
  const region_bin_t *bin = racy_load(region_bin(owner_load(&region.live), region_index_unit(place)));
  if (HAK_UNLIKELY(bin->block_size == 0)) goto miss;
  unsigned c = bin->size_class;
  if (size != 0 && (!block_is_live(block) || HAK_UNLIKELY(secure_size(block, c, function) != size))) goto miss;
  if (HAK_UNLIKELY(!secure_claim_live(block))) goto miss;
  secure_clear(block, c, function);
  block = quarantine_put(heap, block, c);
  if (block != NULL) free_to_bin(block);
  return;
miss:
  free_miss(block, size, function);
}

/* --- size and realloc -------------------------------------------------------------------- */

/* The size of a live block of a slab; 0 for anything else, which block_inspect then tells apart.
 * Only where a live block starts is a bit in the live map set. */
static size_t small_size(const void *block, const char *function) {
  (void)function;
  uintptr_t place = region_index(block);
  if (HAK_UNLIKELY(place >= owner_load(&region.limit) || !block_is_live(block))) return 0;
  const region_bin_t *bin = racy_load(region_bin(owner_load(&region.live), region_index_unit(place)));
  if (HAK_SECURE) return bin->block_size != 0 ? secure_size(block, bin->size_class, function) : 0;
  return HAK_UNLIKELY(bin->size_class == CLASS_ZERO) ? 0 : bin->block_size;
}

/* What the program may use of a live block. */
static size_t live_size(const block_info_t *info, const void *block) {
  return memcheck_on() ? memcheck_size(block, info->size) : info->size;
}

size_t block_usable_size(const void *block) {
  size_t small = small_size(block, "malloc_usable_size");
  if (HAK_LIKELY(small != 0)) return small;
  block_info_t info = block_inspect(block);
  if (HAK_SECURE && info.state != BLOCK_LIVE) block_fault(&info, block, "malloc_usable_size");
  return info.state == BLOCK_LIVE ? live_size(&info, block) : 0;
}

size_t block_require(const void *block, const char *function) {
  block_info_t info = block_inspect(block);
  if (info.state != BLOCK_LIVE) block_fault(&info, block, function);
  return live_size(&info, block);
}

size_t block_good_size(size_t size, size_t align) {
  if (size > PTRDIFF_MAX || align > PTRDIFF_MAX) return 0;
  if (memcheck_on()) return size;
  unsigned c = class_for_aligned(size, align);
  if (HAK_SECURE) return c != CLASS_NONE || size > SMALL_MAX ? size : SMALL_MAX + 1; /* no more than was asked for */
  return c != CLASS_NONE ? class_usable(c) : large_good_size(size > SMALL_MAX ? size : SMALL_MAX + 1);
}

/* The secure library takes note of the new size. */
static bool resize_in_class(void *block, size_t size, bool grows) {
  unsigned c = load_relaxed(&unit_head((uint32_t)region_unit(block))->size_class);
  if (size > SMALL_MAX || (grows ? c == CLASS_ZERO || size > class_usable(c) : class_for(size) != c)) return false;
  secure_resize(block, c, size, "realloc");
  return true;
}

static bool resize_small(void *block, size_t old, size_t size) {
  if (HAK_SECURE) return resize_in_class(block, size, false);
  return size <= SMALL_MAX && class_usable(class_for(size)) == old;
}

static bool resize_large(unit_t *slab, size_t size) {
  thread_enter();
  bool resized = size > SMALL_MAX && large_resize(slab, size);
  thread_leave_with_upkeep();
  return resized;
}

/* Under memcheck a block gives nothing back in place: another one could have it before memcheck knows. */
static HAK_COLD bool resize_under_memcheck(const block_info_t *info, void *block, size_t size) {
  size_t old = memcheck_size(block, info->size);
  size_t room = memcheck_room(1, size);
  if (room == 0 || (size < old && room != info->size)) return false;
  if (room < info->size) room = info->size;
  if (room > info->size && !(load_relaxed(&info->slab->kind) == UNIT_LARGE && resize_large(info->slab, room))) return false;
  memcheck_resize(block, old, size, room);
  return true;
}

bool block_expand(void *block, size_t size) {
  block_info_t info = block_inspect(block);
  if (info.state != BLOCK_LIVE) block_fault(&info, block, "hak_expand");
  if (size <= live_size(&info, block)) return true;
  if (memcheck_on()) return resize_under_memcheck(&info, block, size);
  if (load_relaxed(&info.slab->kind) == UNIT_LARGE) return resize_large(info.slab, size);
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

/* `old`: what the program may use of it; `large`: its slab if it is a large one whose pages may move. */
HAK_INLINE void *realloc_elsewhere(void *block, unit_t *large, size_t old, size_t size) {
  int saved = errno;
  void *moved = block_alloc(size);
  if (HAK_UNLIKELY(moved == NULL)) {
    if (size > old || HAK_SECURE) return NULL; /* a sized free tells classes apart there: the block must have the size */
    errno = saved; /* shrinking cannot fail */
    return block;
  }
  size_t bytes = size < old ? size : old;
  if (large == NULL) memcpy(moved, block, bytes);
  else large_copy(large, block, moved, bytes);
  block_free(block, 0, "realloc");
  return moved;
}

static HAK_COLD void *realloc_under_memcheck(const block_info_t *info, void *block, size_t size) {
  if (resize_under_memcheck(info, block, size)) return block;
  return realloc_elsewhere(block, NULL, live_size(info, block), size);
}

void *block_realloc(void *block, size_t size) {
  size_t old = small_size(block, "realloc");
  unit_t *large = NULL;
  if (HAK_UNLIKELY(old == 0)) {
    block_info_t info = block_inspect(block);
    if (HAK_UNLIKELY(info.state != BLOCK_LIVE)) {
      if (memcheck_on()) memcheck_free(block);
      block_fault(&info, block, "realloc");
    }
    if (memcheck_on()) return realloc_under_memcheck(&info, block, size);
    old = info.size;
    if (load_relaxed(&info.slab->kind) == UNIT_LARGE) large = info.slab;
  }
  if (size > PTRDIFF_MAX) return out_of_memory();
  if (large == NULL ? resize_small(block, old, size) : resize_large(large, size)) return block;
  return realloc_elsewhere(block, large, old, size);
}
