/* heaps.c - mimalloc's heaps: named heaps, and one that stands for malloc's own.
 *
 * mi_heap_delete leaves the blocks that are live to their program.  A named heap cannot be given up so, so it stays, with nobody to
 * take from it, until it is seen to be empty. */
#include "mimalloc.h"

#include <stdatomic.h>
#include <string.h>

#include "front/inspect.h"

struct mi_heap_s heap_backing;

hak_heap_t *heap_named(const mi_heap_t *heap) { return heap == &heap_backing ? NULL : (hak_heap_t *)(uintptr_t)heap; }
static mi_heap_t *heap_from(hak_heap_t *named) { return named == NULL ? &heap_backing : (mi_heap_t *)(void *)named; }

static hak_heap_t *default_named(void) {
  hak_heap_t *in_force = hak_heap_set_default(NULL);
  if (in_force != NULL) (void)hak_heap_set_default(in_force);
  return in_force;
}

/* --- deleted ones --------------------------------------------------------------------------- */

#define DELETED_MOST 256
static hak_heap_t *_Atomic deleted[DELETED_MOST];

static bool is_empty(hak_heap_t *named) {
  hak_heap_usage_t usage = {.struct_size = sizeof usage};
  return hak_heap_usage_get(named, &usage) && usage.blocks == 0;
}

/* Each is one thread's as long as it is looked at.  Where there is no place for it, it stays for good. */
static void keep_deleted(hak_heap_t *named) {
  for (unsigned i = 0; i < DELETED_MOST; i++) {
    hak_heap_t *none = NULL;
    if (atomic_compare_exchange_strong(&deleted[i], &none, named)) return;
  }
}

static void end_empty(void) {
  for (unsigned i = 0; i < DELETED_MOST; i++) {
    if (atomic_load_explicit(&deleted[i], memory_order_relaxed) == NULL) continue;
    hak_heap_t *named = atomic_exchange(&deleted[i], NULL);
    if (named == NULL) continue;
    if (is_empty(named)) hak_heap_free(named);
    else keep_deleted(named);
  }
}

/* --- the functions --------------------------------------------------------------------------- */

COMPAT(mi_heap_t *, mi_heap_new, (void)) {
  end_empty();
  hak_heap_t *named = hak_heap_new("mi_heap");
  return named != NULL ? heap_from(named) : NULL;
}

static bool leave(const mi_heap_t *heap, hak_heap_t **named) {
  *named = heap != NULL ? heap_named(heap) : NULL;
  if (*named == NULL) return false;
  if (default_named() == *named) (void)hak_heap_set_default(NULL);
  return true;
}

COMPAT(void, mi_heap_delete, (mi_heap_t * heap)) {
  hak_heap_t *named;
  if (!leave(heap, &named)) return;
  if (is_empty(named)) hak_heap_free(named);
  else keep_deleted(named);
}

COMPAT(void, mi_heap_destroy, (mi_heap_t * heap)) {
  hak_heap_t *named;
  if (leave(heap, &named)) hak_heap_free(named);
}

COMPAT(mi_heap_t *, mi_heap_set_default, (mi_heap_t * heap)) {
  if (heap == NULL) return NULL;
  return heap_from(hak_heap_set_default(heap_named(heap)));
}
COMPAT(mi_heap_t *, mi_heap_get_default, (void)) { return heap_from(default_named()); }
COMPAT(mi_heap_t *, mi_heap_get_backing, (void)) { return &heap_backing; }

COMPAT(void, mi_heap_collect, (mi_heap_t * heap, bool force)) {
  hak_heap_t *named = heap_named(heap);
  if (named != NULL) (void)hak_heap_collect(named);
  (void)hak_collect(force);
}
COMPAT(void, mi_collect, (bool force)) {
  end_empty();
  (void)hak_collect(force);
}

/* --- whose a block is -------------------------------------------------------------------------- */

static bool is_live(const void *p) { return compat_place(p) == COMPAT_LIVE; }
static bool contains(const mi_heap_t *heap, const void *p) { return is_live(p) && hak_heap_of(p) == heap_named(heap); }

COMPAT(bool, mi_heap_contains_block, (mi_heap_t * heap, const void *p)) { return contains(heap, p); }
COMPAT(bool, mi_heap_check_owned, (mi_heap_t * heap, const void *p)) { return contains(heap, p); }
COMPAT(bool, mi_check_owned, (const void *p)) { return is_live(p) && hak_heap_of(p) == default_named(); }

static bool is_ours(const void *p) { return compat_place(p) != COMPAT_FOREIGN; }
COMPAT(bool, mi_is_in_heap_region, (const void *p)) { return is_ours(p); }
COMPAT(void, mi_cfree, (void *block)) {
  if (is_ours(block)) hak_free(block);
}

/* --- all blocks of a heap ----------------------------------------------------------------------- */

typedef struct mi_heap_area_s {
  void *blocks;
  size_t reserved, committed, used, block_size, full_block_size;
} mi_heap_area_t;
typedef bool visit_fn(const mi_heap_t *heap, const mi_heap_area_t *area, void *block, size_t block_size, void *to);

/* The blocks of one span, of which `each` are its size. */
static bool visit_span(const mi_heap_t *heap, const unit_t *span, bool blocks_too, visit_fn *visit, void *to) {
  char *start = region_address(unit_number(span));
  bool is_slab = load_relaxed(&span->kind) == UNIT_SLAB;
  unsigned c = load_relaxed(&span->size_class);
  size_t each = is_slab ? class_info[c].size : load_relaxed(&span->bytes), count = is_slab ? class_info[c].blocks : 1;
  size_t bytes = (size_t)load_relaxed(&span->units) << HAK_UNIT_SHIFT;
  mi_heap_area_t area = {start, bytes, bytes, 0, each, each};
  void *first = NULL;
  for (size_t i = 0; i < count; i++) {
    if (!is_live(start + i * each)) continue;
    if (area.used++ == 0) first = start + i * each;
  }
  if (first == NULL || hak_heap_of(first) != heap_named(heap)) return true;
  if (!visit(heap, &area, NULL, 0, to)) return false;
  for (size_t i = 0; i < count && blocks_too; i++) {
    if (is_live(start + i * each) && !visit(heap, &area, start + i * each, each, to)) return false;
  }
  return true;
}

/* Of malloc's own: the blocks of all threads.  Nobody may allocate or free meanwhile but what the visitor frees. */
COMPAT(bool, mi_heap_visit_blocks, (const mi_heap_t *heap, bool blocks_too, visit_fn *visit, void *to)) {
  if (!compat_is_served()) return false;
  uint32_t end = load_acquire(&region.units);
  for (uint32_t unit = 0; unit < end;) {
    const unit_t *span = unit_at(unit);
    uint8_t kind = load_acquire(&span->kind);
    uint32_t units = load_relaxed(&span->units);
    bool has_blocks = kind == UNIT_LARGE || (kind == UNIT_SLAB && load_relaxed(&span->size_class) < CLASS_ZERO);
    if (has_blocks && !visit_span(heap, span, blocks_too, visit, to)) return false;
    unit += kind != UNIT_FREE && kind != UNIT_INSIDE && units > 0 ? units : 1;
  }
  return true;
}
