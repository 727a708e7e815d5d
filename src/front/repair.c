#include "front/repair.h"

#include "base/thread.h"
#include "front/drain.h"
#include "front/handover.h"
#include "front/heaps.h"
#include "front/keeper.h"
#include "kit/closed.h"
#include "kit/pressure.h"
#include "kit/event.h"
#include "kit/request.h"
#include "os/os.h"
#include "slab/hole.h"
#include "slab/large.h"
#include "slab/remote.h"
#include "space/span.h"
#include "space/dontfork.h"

/* The units of the span that begins there; 0 if none does. An `inside` unit that no span covers is left over from a span that a thread
 * which is gone had entered or left in part: it becomes free. */
static uint32_t span_used(uint32_t unit) {
  unit_t *first = unit_at(unit);
  uint8_t kind = load_relaxed(&first->kind);
  if (kind == UNIT_INSIDE) store_relaxed(&first->kind, (uint8_t)UNIT_FREE);
  return kind != UNIT_FREE && kind != UNIT_INSIDE ? load_relaxed(&first->units) : 0;
}

/* The same, but cached large blocks are no spans any more: a thread that was about to cache or take one may have left it in no place. */
static uint32_t span_used_but_cached(uint32_t unit) {
  unit_t *first = unit_at(unit);
  if (load_relaxed(&first->kind) == UNIT_CACHED) store_relaxed(&first->kind, (uint8_t)UNIT_FREE);
  return span_used(unit);
}

/* Frees all cached large blocks, but not where this thread itself may be caching or taking one. */
static void large_caches_recover(bool inside) {
  for (heap_t *heap = heap_first(); heap != NULL && !inside; heap = load_relaxed(&heap->next)) large_cache_forget(&heap->owner.large_cache);
  span_recover(inside ? span_used : span_used_but_cached);
}

static heap_t *_Atomic forker;
static _Atomic uintptr_t forker_thread;
static _Atomic uint32_t repairs, repairs_before; /* the latter: the number when a thread was about to fork */
static _Atomic bool repairing; /* a repair first clears what shows that threads were on slow paths: a child of the child finds none of it */

bool repair_was_made(void) { return load_relaxed(&repairs) != 0; }
uint32_t repair_count(void) { return load_relaxed(&repairs); }

void heap_show_fork(heap_t *mine, bool forking) {
  if (forking) store_relaxed(&repairs_before, load_relaxed(&repairs));
  if (mine != NULL) store_relaxed(&mine->forking, forking);
}

/* If the page is claimed, a thread repairs this child or has repaired it; or the kernel wipes no page, and it is as it was in the parent. A
 * thread of the child has counted its repair before it claimed the page. A thread of the parent may have counted a repair of the parent
 * just before the fork, but then the kernel wipes the page, and nobody has claimed it yet. */
void heap_note_fork(heap_t *mine) {
  bool claimed = os_fork_is_claimed();
  if (claimed && load_relaxed(&repairs) != load_relaxed(&repairs_before)) return;
  store_relaxed(&forker_thread, thread_self());
  store_relaxed(&forker, mine != NULL ? mine : &heap_none); /* it is known, and no other that was forking is here */
  if (claimed) os_fork_note();
}

/* Takes the heaps away from the threads that are gone; returns true if one of these was on a slow path. */
static bool heaps_orphan(const heap_t *mine, bool inside) {
  bool begun = false;
  for (unsigned i = 0; i < HEAPLESS_LINES; i++) begun |= atomic_exchange(&heapless[i].heapless_inside, 0) != 0;
  if (inside && mine == NULL) add_relaxed(&heapless_of(thread_self())->heapless_inside, 1); /* this thread, which is about to get a heap */
  const heap_t *by = load_relaxed(&forker);
  heaps_after_fork(mine, by, inside);
  for (heap_t *heap = heap_first(); heap != NULL; heap = load_relaxed(&heap->next)) store_relaxed(&heap->named.users, 0);
  for (heap_t *heap = heap_first(); heap != NULL; heap = load_relaxed(&heap->next)) {
    begun |= heap->owner.held.units != 0;
    bool survives = heap_survives(heap, mine, by);
    store_relaxed(&heap->forking, 0);
    if (!survives) heap->default_heap = NULL;
    if (heap->default_heap != NULL) owner_add(&heap->default_heap->named.users, 1);
    if (survives) continue;
    begun |= load_relaxed(&heap->inside) != 0;
    store_relaxed(&heap->inside, 0);
    if (load_relaxed(&heap->owner.thread) == 0 || load_relaxed(&heap->state) == HEAP_NAMED) continue;
    heap->owner.orphan = true;
    heap_set_thread(heap, 0);
  }
  return begun;
}

/* Resets the tables and lists of owners whose lock a thread that is gone has held; of all owners, if such a thread has left a repair
 * unfinished. */
static void owners_reset(bool inside, bool unfinished) {
  for (heap_t *heap = heap_first(); heap != NULL; heap = load_relaxed(&heap->next)) {
    slab_owner_t *owner = &heap->owner;
    bool mine = inside && lock_is_mine(&owner->lock);
    bool half = (!mine && (unfinished || load_relaxed(&owner->lock.holder) != 0)) || owner->held.units != 0;
    lock_abandon(&owner->lock, inside);
    hole_recover(owner);
    owner_forget(owner, half);
    for (unsigned c = 0; half && c < CLASS_COUNT; c++) heap_set_table(heap, c);
  }
}

/* The class's bin, which is made if it is missing: the class's first use may have been half done. */
static region_bin_t *slab_bin(const unit_t *slab) {
  heap_t *heap = heap_of(slab_owner(slab));
  unsigned c = load_relaxed(&slab->size_class);
  if (!load_relaxed(&heap->has_bin[c])) heap_add_bin(heap, c);
  return &heap_bin(heap, c)->shared;
}

/* For a large block. If it is not live, a thread that is gone had freed it, or was about to hand it out. */
static void large_recover(unit_t *first, bool inside) {
  slab_owner_t *owner = load_relaxed(&first->owned) ? slab_owner(first) : NULL; /* a named heap */
  if (owner != NULL && owner->relist) large_own(owner, first);
  if (!HAK_CHECKS || inside || region_is_live(region_address(unit_number(first)))) return;
  if (owner != NULL) large_disown(owner, first);
  first->use = SPAN_PLAIN; /* its pages go back with time, since others wait for the repair */
  large_free(first);
}

static void slabs_recover(bool inside) {
  uint32_t units = load_relaxed(&region.units);
  for (uint32_t unit = 0; unit < units;) {
    uint32_t length = span_used(unit);
    unit_t *slab = unit_at(unit);
    if (length > 0 && load_relaxed(&slab->kind) == UNIT_SLAB) {
      slab_owner_t *owner = slab_owner(slab);
      if (owner->relist) slab_relist(owner, slab, slab_bin(slab));
      remote_recover(owner, slab);
    }
    if (length > 0 && load_relaxed(&slab->kind) == UNIT_LARGE) large_recover(slab, inside);
    if (length == 0 && slab->notified) units_unadvise(slab, load_relaxed(&slab->units)); /* a thread that is gone was about to */
    unit += length > 0 ? length : 1;
  }
}

static void heap_repair(heap_t *mine, bool unfinished) {
  bool inside = thread_inside != 0;
  region_after_fork(inside);
  dontfork_after_fork();
  pressure_after_fork(load_relaxed(&forker_thread) != 0 ? load_relaxed(&forker_thread) : thread_self());
  if (heap_first() != NULL && load_relaxed(&heap_first()->next) != NULL) fork_epoch++;
  drain_after_fork();
  handover_after_fork();
  bool begun = keeper_after_fork();
  if (!heaps_orphan(mine, inside) && !begun && !unfinished) return;
  owners_reset(inside, unfinished);
  large_caches_recover(inside);
  slabs_recover(inside);
}

HAK_COLD void heap_after_fork(heap_t *mine) {
  if (!os_forked()) return;
  add_relaxed(&repairs, 1); /* before the claim: heap_note_fork */
  if (!os_fork_claim(thread_self())) return;
  event_after_fork();
  request_after_fork();
  lock_abandon(&loader_lock, true);
  bool unfinished = load_relaxed(&repairing);
  store_relaxed(&repairing, true);
  atomic_signal_fence(memory_order_seq_cst);
  if (region.base != 0) heap_repair(mine, unfinished);
  atomic_signal_fence(memory_order_seq_cst);
  store_relaxed(&repairing, false);
  store_relaxed(&forker, NULL);
  store_relaxed(&forker_thread, (uintptr_t)0);
  os_fork_seen(thread_self());
}

/* A thread that is repairing gets here only in a signal handler; whoever holds the lock is gone then. */
void heap_lock_as(heap_t *heap, heap_t *mine) {
  while (!lock_wait(&heap->owner.lock)) {
    heap_after_fork(mine);
    if (HAK_UNLIKELY(os_fork_is_claimed_by(thread_self()))) lock_reentered();
  }
}

void heap_lock(heap_t *heap) { heap_lock_as(heap, heap); }
