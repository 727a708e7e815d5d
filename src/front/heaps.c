#include "front/heaps.h"

#include <string.h>

#include "os/lock.h"
#include "os/os.h"
#include "slab/remote.h"
#include "space/span.h"
#include "front/quarantine.h"
#include "kit/fault.h"
#include "kit/meta.h"

#define BUCKETS 256

heap_t *_Atomic heaps_newest;
static _Atomic uint32_t attached_count, orphan_count;

/* Guarded by `lists_lock`; the counts are read without it. */
static lock_t lists_lock = LOCK_OF_RANK(LOCK_LISTS);
static heap_t *attached[BUCKETS]; /* by thread */
static heap_t *orphans, *bare_heaps;
/* Named heaps that still had slabs when they ended, because of blocks in quarantine, and shared heaps of which another thread had made the
 * same: those to check next, and those to check after them. */
static heap_t *ended_heaps, *ended_later;

heap_t *heap_first(void) { return load_acquire(&heaps_newest); }
uint32_t heaps_attached(void) { return load_relaxed(&attached_count); }
uint32_t heaps_orphaned(void) { return load_relaxed(&orphan_count); }

/* --- lists: one store makes each change -------------------------------------------------- */

static heap_t **bucket_of(uintptr_t thread) { return &attached[(uint64_t)thread * GOLDEN_RATIO_64 >> 56]; }

static void chain_push(heap_t **list, heap_t *heap) {
  heap->link = *list;
  atomic_signal_fence(memory_order_seq_cst);
  *list = heap;
}

static heap_t *chain_pop(heap_t **list) {
  heap_t *heap = *list;
  if (heap != NULL) *list = heap->link;
  return heap;
}

static void chain_remove(heap_t **list, const heap_t *heap) {
  while (*list != NULL && *list != heap) list = &(*list)->link;
  if (*list != NULL) *list = heap->link;
}

static heap_t *ended_pop(void) {
  if (ended_heaps == NULL) {
    ended_heaps = ended_later;
    ended_later = NULL;
  }
  return chain_pop(&ended_heaps);
}

/* Takes the heap if it is among the first of the list, else the first heap; NULL if the list is empty. The bound is high, so that each of
 * many threads that begin finds the heap that it wants among those of as many that have just ended. A step costs one cache line; a heap
 * that is not found costs some operations for each of its blocks. */
#define CHAIN_LOOKED_AT 1024
static heap_t *chain_take(heap_t **list, const heap_t *heap) {
  heap_t **link = list;
  for (unsigned i = 0; heap != NULL && i < CHAIN_LOOKED_AT && *link != NULL && *link != heap; i++) link = &(*link)->link;
  return chain_pop(heap != NULL && *link == heap ? link : list);
}

static heap_t *chain_find(heap_t *list, uintptr_t thread) {
  while (list != NULL && list->thread != thread) list = list->link;
  return list;
}

static void heap_enter(heap_t *heap) {
  switch ((heap_state_t)load_relaxed(&heap->state)) {
    case HEAP_ATTACHED:
      chain_push(bucket_of(heap->thread), heap);
      owner_add(&attached_count, 1);
      break;
    case HEAP_ORPHAN:
      chain_push(&orphans, heap);
      owner_add(&orphan_count, 1);
      break;
    case HEAP_BARE: chain_push(&bare_heaps, heap); break;
    case HEAP_SHARED:
    case HEAP_NAMED: break;
  }
}

static void heap_hand_to(heap_t *heap, uintptr_t thread) {
  heap->thread = thread;
  store_relaxed(&heap->state, (uint32_t)HEAP_ATTACHED);
  heap_enter(heap);
}

/* --- making ------------------------------------------------------------------------------ */

/* A chunk of heaps is one mapping: the heaps side by side, since a thread may use little more, then the bins of each on
 * pages of their own, then what the secure library needs for each.  All bins are within reach of their heap's 16-bit
 * offsets, which count words. */
#define CHUNK_HEAPS 4

static size_t heads_bytes(uint32_t count) { return bits_round_up(count * sizeof(heap_t), os_page_size()); }

/* The kernel's memory or, where addresses have run out, free units. */
static void *heap_memory(size_t bytes) {
  void *memory = meta_alloc(bytes);
  if (memory != NULL) return memory;
  bool zero;
  uint32_t units = (uint32_t)((bytes + HAK_UNIT - 1) >> HAK_UNIT_SHIFT);
  uint32_t unit = span_alloc(units, 1, SPAN_SLAB, &zero);
  if (unit == SPAN_NONE) return NULL;
  units_enter(unit, units, UNIT_META, CLASS_NONE);
  memory = region_address(unit);
  return zero ? memory : memset(memory, 0, bytes);
}

static void heap_list(heap_t *heap, heap_state_t state, uintptr_t thread) {
  lock_acquire(&lists_lock);
  heap->thread = thread;
  store_relaxed(&heap->state, (uint32_t)state);
  heap_enter(heap);
  heap_t *newest = load_relaxed(&heaps_newest);
  heap->number = newest != NULL ? newest->number + 1 : 0;
  store_relaxed(&heap->next, newest);
  store_release(&heaps_newest, heap);
  lock_release(&lists_lock);
}

/* Makes `count` heaps, one of them for the thread. */
static heap_t *chunk_make(uint32_t count, uintptr_t thread) {
  size_t heads = heads_bytes(count), bins = heap_bins_bytes(), extra = HAK_SECURE ? quarantine_bytes() : 0;
  char *memory = heap_memory(heads + count * (bins + extra));
  if (memory == NULL) return NULL;
  heap_t *heap = NULL;
  for (uint32_t i = count; i-- > 0;) {
    heap = (heap_t *)(void *)memory + i;
    heap_init(heap, memory + heads + i * bins);
    if (HAK_SECURE) quarantine_init(heap, memory + heads + count * bins + i * extra);
    heap_list(heap, i == 0 ? HEAP_ATTACHED : HEAP_BARE, i == 0 ? thread : 0);
  }
  return heap;
}

/* The first heap is made alone: most processes have one thread. */
static heap_t *heap_create(uintptr_t thread) {
  heap_t *heap = NULL;
  bool reached = (heads_bytes(CHUNK_HEAPS) + CHUNK_HEAPS * heap_bins_bytes()) / 8 <= UINT16_MAX;
  if (heap_first() != NULL && reached) heap = chunk_make(CHUNK_HEAPS, thread);
  return heap != NULL ? heap : chunk_make(1, thread);
}

/* --- taking and giving ------------------------------------------------------------------- */

/* Takes an existing heap: the one that an earlier thread with this number has left behind unseen, else an orphan, else a bare one. NULL if
 * there is none. */
static heap_t *heap_find(uintptr_t thread, const heap_t *wanted) {
  lock_acquire(&lists_lock);
  heap_t *heap = chain_find(*bucket_of(thread), thread);
  if (heap == NULL) {
    heap = orphans != NULL ? chain_take(&orphans, wanted) : ended_pop();
    if (heap != NULL) owner_add(&orphan_count, (uint32_t)-1);
    else heap = chain_pop(&bare_heaps);
    if (heap != NULL) heap_hand_to(heap, thread);
  }
  lock_release(&lists_lock);
  return heap;
}

heap_t *heaps_take(uintptr_t thread, const heap_t *wanted) {
  heap_t *heap = heap_find(thread, wanted);
  return heap != NULL ? heap : heap_create(thread);
}

/* Takes an orphan without slabs. It gets none meanwhile, since no thread allocates from an orphan. A call checks at most this many. */
#define EMPTY_LOOKED_AT 64
static heap_t *orphan_take_empty(void) {
  heap_t **link = &orphans;
  for (unsigned i = 0; i < EMPTY_LOOKED_AT && *link != NULL; i++, link = &(*link)->link) {
    const slab_owner_t *owner = &(*link)->owner;
    bool empty = !owner_has_slabs(owner) && load_relaxed(&owner->large_blocks) == 0; /* a fork may leave some of a named heap that ended */
    if (empty) return chain_pop(link);
  }
  return NULL;
}

/* Checks them in rotation, since a thread that makes no calls may keep blocks of some in quarantine for ever. A call checks a share of all,
 * so that there are soon no more than four times as many as quarantines keep. */
static heap_t *ended_take_empty(void) {
  for (uint32_t i = EMPTY_LOOKED_AT + heaps_orphaned() / 4; i-- > 0;) {
    heap_t *heap = ended_pop();
    if (heap == NULL || !owner_has_slabs(&heap->owner)) return heap;
    chain_push(&ended_later, heap);
  }
  return NULL;
}

static heap_t *heap_find_empty(uintptr_t thread) {
  lock_acquire(&lists_lock);
  heap_t *heap = chain_pop(&bare_heaps);
  if (heap == NULL) {
    heap = ended_take_empty();
    if (heap == NULL) heap = orphan_take_empty();
    if (heap != NULL) owner_add(&orphan_count, (uint32_t)-1);
  }
  if (heap != NULL) heap_hand_to(heap, thread);
  lock_release(&lists_lock);
  return heap;
}

heap_t *heaps_take_empty(uintptr_t thread) {
  heap_t *heap = heap_find_empty(thread);
  return heap != NULL ? heap : heap_create(thread);
}

void heaps_end_unattached(heap_t *heap, heap_state_t state) {
  lock_acquire(&lists_lock);
  store_relaxed(&heap->state, (uint32_t)state);
  if (state == HEAP_ORPHAN) {
    chain_push(&ended_later, heap);
    owner_add(&orphan_count, 1);
  } else {
    heap_enter(heap);
  }
  lock_release(&lists_lock);
}

/* Whether a signal handler of the thread that is about to end has taken its heap again; then the thread's end runs once more. */
static bool is_taken_again(const heap_t *heap) { return load_relaxed(&heap->owner.thread) != 0; }

static void heap_leave(heap_t *heap, heap_state_t state) {
  bool ended = state == HEAP_ORPHAN || state == HEAP_BARE;
  if (ended && is_taken_again(heap)) return;
  chain_remove(bucket_of(heap->thread), heap);
  owner_add(&attached_count, (uint32_t)-1);
  heap->thread = 0;
  store_relaxed(&heap->state, (uint32_t)state);
  heap_enter(heap);
}

void heaps_give(heap_t *heap, heap_state_t state) {
  lock_acquire(&lists_lock);
  heap_leave(heap, state);
  lock_release(&lists_lock);
}

bool heaps_keep(heap_t *heap, uint32_t most) {
  lock_acquire(&lists_lock);
  bool kept = is_taken_again(heap) || heaps_orphaned() < most;
  if (kept) heap_leave(heap, HEAP_ORPHAN);
  lock_release(&lists_lock);
  return kept;
}

bool heaps_collect(void) {
  bool any = false;
  for (heap_t *heap = heap_first(); heap != NULL; heap = load_relaxed(&heap->next)) {
    if (load_relaxed(&heap->owner.pending_classes) == 0 || !lock_try_if_free(&heap->owner.lock)) continue;
    any = true;
    remote_collect_all(&heap->owner);
    owner_unlock(&heap->owner);
  }
  return any;
}

static uint32_t chain_audit(const heap_t *heap, heap_state_t state, uint32_t most) {
  uint32_t count = 0;
  for (; heap != NULL && count <= most; heap = heap->link, count++) {
    AUDIT(load_relaxed(&heap->state) == state, heap, "a heap is in the list of another state");
    AUDIT(state == HEAP_ATTACHED || load_relaxed(&heap->owner.thread) == 0, heap, "a heap that no thread has has an owner");
    for (unsigned c = 0; state == HEAP_BARE && c < CLASS_COUNT; c++) {
      AUDIT(!load_relaxed(&heap->has_bin[c]) && load_relaxed(&heap->owner.slab_count[c]) == 0, heap, "a bare heap has bins or slabs");
    }
  }
  return count;
}

HAK_AUDITED void heaps_audit(void) {
  lock_acquire(&lists_lock);
  uint32_t of[HEAP_NAMED + 1] = {0}, in_buckets = 0;
  for (const heap_t *heap = heap_first(); heap != NULL; heap = load_relaxed(&heap->next)) {
    uint32_t state = load_relaxed(&heap->state);
    AUDIT(state <= HEAP_NAMED, heap, "a heap is in no state");
    AUDIT(state != HEAP_SHARED || load_relaxed(&heap->owner.thread) == 0, heap, "a heap that all share has an owner");
    AUDIT(state != HEAP_NAMED || load_relaxed(&heap->owner.thread) <= OWNER_OF_MANY, heap, "a thread has a named heap");
    of[state % (HEAP_NAMED + 1)]++;
    AUDIT(state != HEAP_ATTACHED || chain_find(*bucket_of(heap->thread), heap->thread) == heap, heap, "a thread cannot find its heap");
  }
  for (unsigned i = 0; i < BUCKETS; i++) in_buckets += chain_audit(attached[i], HEAP_ATTACHED, of[HEAP_ATTACHED]);
  AUDIT(in_buckets == of[HEAP_ATTACHED] && in_buckets == heaps_attached(), attached, "attached heaps were not counted");
  uint32_t orphaned = 0;
  const heap_t *lists[] = {orphans, ended_heaps, ended_later};
  for (unsigned i = 0; i < 3; i++) orphaned += chain_audit(lists[i], HEAP_ORPHAN, of[HEAP_ORPHAN]);
  AUDIT(orphaned == of[HEAP_ORPHAN] && orphaned == heaps_orphaned(), &orphans, "orphans were not counted");
  AUDIT(chain_audit(bare_heaps, HEAP_BARE, of[HEAP_BARE]) == of[HEAP_BARE], &bare_heaps, "a bare heap is in no list");
  lock_release(&lists_lock);
}

HAK_COLD void heaps_after_fork(const heap_t *mine, const heap_t *forker, bool inside) {
  lock_abandon(&lists_lock, inside);
  for (unsigned i = 0; i < BUCKETS; i++) attached[i] = NULL;
  orphans = bare_heaps = ended_heaps = ended_later = NULL;
  store_relaxed(&attached_count, 0);
  store_relaxed(&orphan_count, 0);
  for (heap_t *heap = heap_first(); heap != NULL; heap = load_relaxed(&heap->next)) {
    bool gone = load_relaxed(&heap->state) == HEAP_ATTACHED && !heap_survives(heap, mine, forker);
    bool between = load_relaxed(&heap->state) == HEAP_NAMED && !load_relaxed(&heap->named.given); /* its end had begun */
    if (gone) store_relaxed(&heap->named.given, false); /* or its making had */
    if (gone || between) store_relaxed(&heap->state, (uint32_t)HEAP_ORPHAN);
    heap_enter(heap);
  }
}
