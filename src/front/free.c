#include "front/free.h"

#include "base/counted.h"
#include "front/inspect.h"
#include "front/named.h"
#include "front/quarantine.h"
#include "front/secure.h"
#include "front/supply.h"
#include "front/thread.h"
#include "kit/fault.h"
#include "os/memcheck.h"
#include "slab/large.h"
#include "slab/remote.h"
#include "slab/sample.h"
#include "slab/slots.h"

/* For a block that was live a moment ago. */
static HAK_COLD _Noreturn void fault_not_live(const void *block, const char *function) {
  block_info_t info = block_inspect(block);
  info.state = BLOCK_FREED;
  block_fault(&info, block, function);
}

/* Claims the live block for its one free. Another thread may have been faster: that ends the process. */
static void free_claim(const void *block, const char *function) {
  if (!HAK_CHECKS || HAK_LIKELY(region_clear_live(block))) return;
  fault_not_live(block, function);
}

/* One function for each kind of span. Each returns true if no upkeep has become due: thread_leave_unchanged. */

static bool free_large(unit_t *span, void *block, const char *function) {
  free_claim(block, function);
  large_require_whole(span, function);
  if (HAK_UNLIKELY(load_relaxed(&span->owned))) named_let_go(span);
  if (!HAK_SECURE && load_relaxed(&span->units) <= LARGE_CACHE_LONGEST) thread_attach_to_cache();
  heap_cached_t cached = heap_cache_large(thread_heap, span);
  if (cached == CACHED_NONE) large_free(span);
  return cached == CACHED_AS_NOTED;
}

static bool free_slot(unit_t *span, void *block, const char *function) {
  (void)span;
  free_claim(block, function);
  slot_free(block, function);
  return false;
}

/* For a sampled block, which is live by its record. One that is live by its bit now was not so in free_elsewhere: another thread has freed
 * it and got it again, and this free is wrong. */
static void free_sampled(void *block, const char *function) {
  if (!sample_close(block)) fault_not_live(block, function);
  heap_take_back(thread_heap, block);
}

static bool free_in_slab(unit_t *span, void *block, const char *function) {
  if (!HAK_SECURE) {
    free_sampled(block, function);
    return false;
  }
  free_claim(block, function);
  unsigned c = load_relaxed(&span->size_class);
  secure_clear(block, c, function);
  heap_t *heap = thread_attach();
  if (heap != NULL) block = quarantine_put(heap, block, c);
  if (block != NULL) heap_take_back(heap, block);
  return false;
}

static bool (*const free_of_kind[UNIT_CACHED + 1])(unit_t *span, void *block, const char *function) = {
    [UNIT_SLAB] = free_in_slab,
    [UNIT_LARGE] = free_large,
    [UNIT_SLOTS] = free_slot,
};

/* Frees what neither the fast path nor free_elsewhere has taken. */
static bool free_inspected(void *block, size_t size, const char *function) {
  block_info_t info = block_inspect(block);
  if (HAK_UNLIKELY(info.state != BLOCK_LIVE)) block_fault(&info, block, function);
  if (HAK_UNLIKELY(size > info.size)) block_fault_size(&info, block, function, "block is smaller");
  unsigned kind = load_relaxed(&info.span->kind);
  if (HAK_UNLIKELY(HAK_SECURE && size != 0 && size != info.size)) {
    bool known = kind != UNIT_SLAB || secure_knows_size(block, load_relaxed(&info.span->size_class));
    if (known) block_fault_size(&info, block, function, "block is larger");
  }
  if (HAK_UNLIKELY(free_of_kind[kind] == NULL)) fault_not_live(block, function); /* another thread was faster just now */
  return free_of_kind[kind](info.span, block, function);
}

static HAK_NOINLINE void free_announce(unit_t *slab) {
  thread_enter();
  thread_adopt(slab_owner(slab));
  remote_announce(slab);
  thread_leave_with_upkeep();
}

/* The record of the large block that starts there, live or not; NULL if none does. */
HAK_INLINE unit_t *large_at(const void *block) {
  size_t unit = region_unit(block);
  if (unit >= load_acquire(&region.units) || block != region_address((uint32_t)unit)) return NULL;
  return load_relaxed(&unit_at((uint32_t)unit)->kind) == UNIT_LARGE ? unit_at((uint32_t)unit) : NULL;
}

static HAK_NOINLINE void free_rest(void *block, size_t size, const char *function) {
  if (block == NULL) return;
  thread_enter();
  unit_t *large = HAK_SECURE ? NULL : large_at(block);
  bool usual = large != NULL && size <= large_usable(large);
  bool unchanged = usual ? free_large(large, block, function) : free_inspected(block, size, function);
  (void)(unchanged ? thread_leave_unchanged() : thread_leave_with_upkeep());
}

/* Frees another heap's block, by one atomic operation and mostly a plain store, and no more unless the slab has to be announced. The call
 * that announces comes last, so that the usual case saves no registers for it. */
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

/* memcheck comes first: it reports more about a wrong free than our line. */
HAK_NOINLINE void free_miss(void *block, size_t size, const char *function) {
  if (HAK_COUNTED && block != NULL) counted_give(block_inspect(block).size);
  if (memcheck_on() && block != NULL) memcheck_free(block);
  free_elsewhere(block, size, function);
}

/* Usually the bin is the thread's own. But a thread that is started in a fork's child may have the number of a thread that is gone, and so
 * push into that thread's bin. If another thread has that heap by now, it finds the bin full. */
HAK_NOINLINE void free_overflow(bin_t *bin) {
  thread_enter();
  void *last = entry_block(owner_load(&bin_entries(bin)[-1]));
  if (HAK_UNLIKELY(thread_heap == NULL)) thread_adopt(slab_owner(unit_head((uint32_t)region_unit(last))));
  heap_t *heap = thread_attach();
  if (heap != NULL && heap_bin(heap, bin->shared.size_class) == bin) heap_flush(heap, bin);
  thread_leave_with_upkeep();
}
