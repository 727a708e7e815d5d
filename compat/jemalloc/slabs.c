/* slabs.c - what only hakmem's internals know: how full slabs are, for defragmentation, and the heaps that threads allocate from.  Only
 * this file and threads.c use the internals. */
#include "jemalloc.h"

#include <errno.h>
#include <string.h>

#include "front/alloc.h"
#include "front/census.h"
#include "front/heaps.h"
#include "front/inspect.h"
#include "front/named.h"
#include "front/thread.h"
#include "slab/remote.h"

slab_use_t slab_use(const void *block) {
  if (!compat_is_served()) return hak_is_live(block) ? (slab_use_t){0, 1, hak_malloc_usable_size(block)} : (slab_use_t){0, 0, 0};
  block_info_t info = block_inspect(block);
  if (info.state != BLOCK_LIVE) return (slab_use_t){0, 0, 0};
  uint8_t kind = load_relaxed(&info.span->kind);
  if (kind != UNIT_SLAB) return (slab_use_t){0, 1, info.size};
  const class_info_t *of = &class_info[load_relaxed(&info.span->size_class)];
  size_t free = load_relaxed(&info.span->free) + remote_waiting(info.span);
  return (slab_use_t){free < of->blocks ? free : of->blocks - 1, of->blocks, (size_t)of->units << HAK_UNIT_SHIFT};
}

int slab_use_of_each(const void *addresses, size_t size, void *uses, size_t uses_size) {
  const char *from = addresses;
  char *to = uses;
  size_t count = size / sizeof(void *);
  if (from == NULL || to == NULL || count == 0 || size % sizeof(void *) != 0) return EINVAL;
  if (uses_size != count * 3 * sizeof(size_t)) return EINVAL;
  for (size_t i = 0; i < count; i++) {
    const void *block;
    memcpy(&block, from + i * sizeof block, sizeof block);
    slab_use_t use = slab_use(block);
    const size_t told[] = {use.free, use.blocks, use.bytes};
    memcpy(to + i * sizeof told, told, sizeof told);
  }
  return 0;
}

void *slab_alloc(size_t size) { return compat_is_served() ? alloc_uncached(size) : hak_malloc(size); }

bool heap_clear(hak_heap_t *heap) {
  if (!compat_is_served()) return false;
  thread_enter();
  named_reset((heap_t *)(void *)heap, "mallctl");
  (void)thread_leave_with_upkeep();
  return true;
}

bool heap_set_span_hook(hak_heap_t *heap, void (*call)(void *heap, void *span, size_t bytes)) {
  if (!compat_is_served()) return false;
  thread_enter();
  named_set_span_hook((heap_t *)(void *)heap, call, "mallctl");
  (void)thread_leave_with_upkeep();
  return true;
}

bool heap_has_threads(hak_heap_t *heap) {
  if (compat_is_served()) {
    thread_enter(); /* in a fork's child this first removes the threads that are gone */
    bool has = load_relaxed(&((heap_t *)(void *)heap)->named.users) != 0;
    (void)thread_leave_with_upkeep();
    return has;
  }
  return compat_default() == heap;
}

static void count_nonfull(uint32_t *nonfull) {
  uint32_t end = load_acquire(&region.units);
  for (uint32_t unit = 0; unit < end;) {
    const unit_t *first = unit_at(unit);
    uint8_t kind = load_acquire(&first->kind);
    uint32_t units = load_relaxed(&first->units);
    unsigned c = load_relaxed(&first->size_class);
    if (kind == UNIT_SLAB && c < CLASS_ZERO && load_relaxed(&first->free) > 0) nonfull[c]++;
    unit += kind != UNIT_FREE && kind != UNIT_INSIDE && units > 0 ? units : 1;
  }
  for (uint32_t c = 0; c < CLASS_ZERO; c++) nonfull[c] -= nonfull[c] > 0; /* jemalloc does not count the slab that is being filled */
}

/* Reads all classes in one walk; hak_stats_class would take one for each. */
void slabs_look(snapshot_t *snapshot) {
  _Static_assert(CLASS_ZERO <= SNAPSHOT_CLASSES, "all classes that have bytes");
  hak_stats_t stats;
  hak_class_stats_t of_class[CLASS_COUNT];
  snapshot->bins = CLASS_ZERO;
  memset(snapshot->nonfull, 0, sizeof snapshot->nonfull);
  if (compat_is_served()) {
    census_take(&stats, of_class);
    memcpy(snapshot->bin, of_class, CLASS_ZERO * sizeof of_class[0]);
    count_nonfull(snapshot->nonfull);
    snapshot->threads = heaps_attached();
  } else {
    for (uint32_t c = 0; c < CLASS_ZERO; c++) (void)hak_stats_class(c, &snapshot->bin[c]);
    uint64_t others = snapshot->stats.heaps_orphaned + arena_heaps();
    snapshot->threads = snapshot->stats.heaps > others ? snapshot->stats.heaps - others : 0;
  }
  if (snapshot->threads == 0) snapshot->threads = 1; /* the caller may have no heap yet */
}
