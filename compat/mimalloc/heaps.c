/* heaps.c - mimalloc's heaps: named heaps, and one that stands for malloc's own.
 *
 * A heap is deleted by mi_heap_delete, or when the thread that made it ends.  Its live blocks then remain the program's, and count as
 * malloc's own.  To end a named heap would free them, so it stays, with nobody allocating from it, until it is found empty. */
#include "mimalloc.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

#include "front/inspect.h"
#include "os/os.h"
#include "slab/slots.h"

struct mi_heap_s heap_backing;

hak_heap_t *heap_named(const mi_heap_t *heap) { return heap == &heap_backing ? NULL : (hak_heap_t *)(uintptr_t)heap; }
static mi_heap_t *heap_from(hak_heap_t *named) { return named == NULL ? &heap_backing : (mi_heap_t *)(void *)named; }

/* --- who owns heaps --------------------------------------------------------------------------- */

/* Records are reused and never freed, so that no walk needs a lock, which a fork's child might find held. */
typedef struct record {
  hak_heap_t *_Atomic heap;  /* NULL: unused */
  _Atomic uintptr_t holder; /* the number of the thread that made the heap, or DELETED; NOBODY while a thread changes the record */
} record_t;

/* Thread numbers are never reused, so in a fork's child the heaps of threads that are gone belong to no thread. */
enum { NOBODY, DELETED, FIRST_THREAD };

#define RECORDS_EACH 255
typedef struct records {
  struct records *_Atomic next;
  record_t each[RECORDS_EACH];
} records_t;

static records_t first_records;

static uintptr_t this_thread(void) {
  static atomic_uintptr_t numbers = FIRST_THREAD;
  static _Thread_local uintptr_t number;
  if (number == NOBODY) number = atomic_fetch_add(&numbers, 1);
  return number;
}

static record_t *record_find(const hak_heap_t *heap) {
  for (records_t *some = &first_records; some != NULL; some = atomic_load(&some->next)) {
    for (unsigned i = 0; i < RECORDS_EACH; i++) {
      if (atomic_load(&some->each[i].heap) == heap) return &some->each[i];
    }
  }
  return NULL;
}

static bool record_new(hak_heap_t *heap) {
  for (records_t *some = &first_records;;) {
    for (unsigned i = 0; i < RECORDS_EACH; i++) {
      hak_heap_t *none = NULL;
      if (!atomic_compare_exchange_strong(&some->each[i].heap, &none, heap)) continue;
      atomic_store(&some->each[i].holder, this_thread());
      return true;
    }
    records_t *next = atomic_load(&some->next);
    if (next == NULL) {
      records_t *fresh = mmap(NULL, sizeof *fresh, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (fresh == MAP_FAILED) return false;
      if (atomic_compare_exchange_strong(&some->next, &next, fresh)) next = fresh;
      else (void)munmap(fresh, sizeof *fresh);
    }
    some = next;
  }
}

/* A thread that succeeds may change the record, and end its heap. */
static bool record_claim(record_t *record, uintptr_t holder) {
  return holder != NOBODY && atomic_compare_exchange_strong(&record->holder, &holder, NOBODY);
}

static void end(record_t *claimed) {
  hak_heap_t *heap = atomic_exchange(&claimed->heap, NULL);
  hak_heap_free(heap);
}

static void end_if_empty(record_t *claimed) {
  hak_heap_usage_t usage = {.struct_size = sizeof usage};
  if (hak_heap_usage_get(atomic_load(&claimed->heap), &usage) && usage.blocks == 0) end(claimed);
  else atomic_store(&claimed->holder, DELETED);
}

static void end_empty_of(records_t *some, uintptr_t holder) {
  for (unsigned i = 0; i < RECORDS_EACH; i++) {
    record_t *record = &some->each[i];
    if (atomic_load(&record->holder) == holder && record_claim(record, holder)) end_if_empty(record);
  }
}

static void end_empty(uintptr_t holder) {
  for (records_t *some = &first_records; some != NULL; some = atomic_load(&some->next)) end_empty_of(some, holder);
}

/* Checks one group of records per call, in rotation, since thousands of deleted heaps may each keep a block. */
static void end_some_empty(void) {
  static records_t *_Atomic in_turn;
  records_t *some = atomic_load(&in_turn);
  if (some == NULL) some = &first_records;
  atomic_store(&in_turn, atomic_load(&some->next));
  end_empty_of(some, DELETED);
}

/* The heap of a block; NULL for malloc's own. */
static hak_heap_t *named_of(const void *block) {
  hak_heap_t *heap = hak_heap_of(block);
  record_t *record = heap != NULL ? record_find(heap) : NULL;
  return record != NULL && atomic_load(&record->holder) == DELETED ? NULL : heap;
}

/* --- ends of threads --------------------------------------------------------------------------- */

static pthread_key_t key;
static bool has_key;

static void thread_ended(void *holder) {
  (void)hak_heap_set_default(NULL);
  end_empty((uintptr_t)holder);
}
static void make_key(void) { has_key = pthread_key_create(&key, thread_ended) == 0; }

static void at_end_of_thread(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  (void)pthread_once(&once, make_key);
  if (has_key) (void)pthread_setspecific(key, (void *)this_thread()); /* which is not 0 */
}

/* --- the functions --------------------------------------------------------------------------- */

COMPAT(mi_heap_t *, mi_heap_new, (void)) {
  end_some_empty();
  hak_heap_t *named = hak_heap_new("mi_heap");
  if (named == NULL) return NULL;
  if (!record_new(named)) {
    hak_heap_free(named);
    return NULL;
  }
  at_end_of_thread();
  return heap_from(named);
}

/* Claims the record of a heap, which the caller must then end; NULL for malloc's own, and for a heap that no longer exists. */
static record_t *leave(const mi_heap_t *heap) {
  hak_heap_t *named = heap != NULL ? heap_named(heap) : NULL;
  if (named == NULL) return NULL;
  if (compat_default() == named) (void)hak_heap_set_default(NULL);
  record_t *record = record_find(named);
  return record != NULL && record_claim(record, atomic_load(&record->holder)) ? record : NULL;
}

COMPAT(void, mi_heap_delete, (mi_heap_t * heap)) {
  record_t *record = leave(heap);
  if (record != NULL) end_if_empty(record);
}

COMPAT(void, mi_heap_destroy, (mi_heap_t * heap)) {
  record_t *record = leave(heap);
  if (record != NULL) end(record);
}

COMPAT(mi_heap_t *, mi_heap_set_default, (mi_heap_t * heap)) {
  if (heap == NULL) return NULL;
  return heap_from(hak_heap_set_default(heap_named(heap)));
}
COMPAT(mi_heap_t *, mi_heap_get_default, (void)) { return heap_from(compat_default()); }
COMPAT(mi_heap_t *, mi_heap_get_backing, (void)) { return &heap_backing; }

COMPAT(void, mi_heap_collect, (mi_heap_t * heap, bool force)) {
  hak_heap_t *named = heap_named(heap);
  if (named != NULL) (void)hak_heap_collect(named);
  (void)hak_collect(force);
}
COMPAT(void, mi_collect, (bool force)) {
  end_empty(DELETED);
  (void)hak_collect(force);
}

/* --- which heap a block is from --------------------------------------------------------------------- */

static bool is_live(const void *p) { return compat_place(p) == COMPAT_LIVE; }
static bool contains(const mi_heap_t *heap, const void *p) { return heap != NULL && is_live(p) && named_of(p) == heap_named(heap); }

/* The start of the block that p may lie in. */
static const char *block_at(const void *p) {
  const unit_t *span = block_inspect(p).span;
  if (span == NULL) return p;
  const char *start = region_address(unit_number(span));
  unsigned c = load_relaxed(&span->size_class);
  switch (load_relaxed(&span->kind)) {
    case UNIT_SLAB:
      if (c >= CLASS_COUNT) return p; /* the span was a large block when its class was read */
      return start + class_block_at(c, (size_t)((const char *)p - start)) * class_info[c].size;
    case UNIT_LARGE: return start;
    case UNIT_SLOTS: return slot_start(p);
    default: return p;
  }
}

/* Whether p lies in a live block of the heap.  As in mimalloc, only a word-aligned pointer can. */
static bool holds(const mi_heap_t *heap, const void *p) {
  if (contains(heap, p)) return true;
  if (!compat_is_served() || (uintptr_t)p % sizeof(void *) != 0) return false;
  const char *block = block_at(p);
  return contains(heap, block) && (uintptr_t)p - (uintptr_t)block < hak_malloc_usable_size(block);
}

COMPAT(bool, mi_heap_contains_block, (mi_heap_t * heap, const void *p)) { return contains(heap, p); }
COMPAT(bool, mi_heap_check_owned, (mi_heap_t * heap, const void *p)) { return holds(heap, p); }
COMPAT(bool, mi_check_owned, (const void *p)) { return holds(heap_from(compat_default()), p); }

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

/* Visits the blocks of one span, which are `each` bytes apart.  Blocks of no bytes are reported as such, since they may not be touched, but
 * their area reports the room of each, since programs divide by it. */
static bool visit_span(const mi_heap_t *heap, const unit_t *span, bool blocks_too, visit_fn *visit, void *to) {
  char *start = region_address(unit_number(span));
  bool is_slab = load_relaxed(&span->kind) == UNIT_SLAB;
  unsigned c = load_relaxed(&span->size_class);
  size_t each = is_slab ? class_info[c].size : load_relaxed(&span->bytes), count = is_slab ? class_info[c].blocks : 1;
  size_t usable = is_slab ? class_usable(c) : each;
  size_t bytes = (size_t)load_relaxed(&span->units) << HAK_UNIT_SHIFT;
  mi_heap_area_t area = {start, bytes, bytes, 0, each, each};
  void *first = NULL;
  for (size_t i = 0; i < count; i++) {
    if (!is_live(start + i * each)) continue;
    if (area.used++ == 0) first = start + i * each;
  }
  if (first == NULL || named_of(first) != heap_named(heap)) return true;
  if (!visit(heap, &area, NULL, each, to)) return false;
  for (size_t i = 0; i < count && blocks_too; i++) {
    if (is_live(start + i * each) && !visit(heap, &area, start + i * each, usable, to)) return false;
  }
  return true;
}

/* Guard slots, each on a page of its own, count as malloc's own. */
static bool visit_slots(const mi_heap_t *heap, const unit_t *span, bool blocks_too, visit_fn *visit, void *to) {
  char *page = region_address(unit_number(span)), *end = page + ((size_t)load_relaxed(&span->units) << HAK_UNIT_SHIFT);
  size_t bytes = os_page_size();
  for (; page < end && heap_named(heap) == NULL; page += bytes) {
    char *block = slot_start(page);
    if (block < page || block >= page + bytes || !is_live(block)) continue;
    mi_heap_area_t area = {page, bytes, bytes, 1, bytes, bytes};
    if (!visit(heap, &area, NULL, bytes, to)) return false;
    if (blocks_too && !visit(heap, &area, block, hak_malloc_usable_size(block), to)) return false;
  }
  return true;
}

/* For malloc's own heap, the blocks of all threads.  Meanwhile nobody may allocate or free, except that the visitor may free. */
COMPAT(bool, mi_heap_visit_blocks, (const mi_heap_t *heap, bool blocks_too, visit_fn *visit, void *to)) {
  if (!compat_is_served()) return false;
  uint32_t end = load_acquire(&region.units);
  for (uint32_t unit = 0; unit < end;) {
    const unit_t *span = unit_at(unit);
    uint8_t kind = load_acquire(&span->kind);
    uint32_t units = load_relaxed(&span->units);
    if ((kind == UNIT_LARGE || kind == UNIT_SLAB) && !visit_span(heap, span, blocks_too, visit, to)) return false;
    if (kind == UNIT_SLOTS && !visit_slots(heap, span, blocks_too, visit, to)) return false;
    unit += kind != UNIT_FREE && kind != UNIT_INSIDE && units > 0 ? units : 1;
  }
  return true;
}
