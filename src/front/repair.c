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

/* The units of the span that begins there; 0 where none does.  A further unit outside of any span is from one that a thread which is
 * gone had entered or left in part: it is in none. */
static uint32_t span_used(uint32_t unit) {
  unit_t *first = unit_at(unit);
  uint8_t kind = load_relaxed(&first->kind);
  if (kind == UNIT_INSIDE) store_relaxed(&first->kind, (uint8_t)UNIT_FREE);
  return kind != UNIT_FREE && kind != UNIT_INSIDE ? load_relaxed(&first->units) : 0;
}

/* The same, where what threads have kept of large blocks is no span any more: one that was about to keep a block, or to take it, may
 * have left it in no place. */
static uint32_t span_used_but_kept(uint32_t unit) {
  unit_t *first = unit_at(unit);
  if (load_relaxed(&first->kind) == UNIT_KEPT) store_relaxed(&first->kind, (uint8_t)UNIT_FREE);
  return span_used(unit);
}

/* Not where this thread itself may be about it. */
static void kept_recover(bool inside) {
  for (heap_t *heap = heap_first(); heap != NULL && !inside; heap = load_relaxed(&heap->next)) kept_forget(&heap->owner.kept);
  span_recover(inside ? span_used : span_used_but_kept);
}

static heap_t *_Atomic forker;
static _Atomic uintptr_t forker_thread;
static _Atomic uint32_t repairs, repairs_before; /* the latter: as a thread was about to fork */
static _Atomic bool repairing; /* what tells of threads that were on slow paths goes first: a child of the child finds none of it */

bool repair_was_made(void) { return load_relaxed(&repairs) != 0; }

void heap_show_fork(heap_t *mine, bool forking) {
  if (forking) store_relaxed(&repairs_before, load_relaxed(&repairs));
  if (mine != NULL) store_relaxed(&mine->forking, forking);
}

/* The page is another's: of a thread that repairs, or has repaired, this child, or, where the kernel wipes none, what it was in the
 * parent.  A thread of the child has counted itself before; a thread of the parent may have repaired that just before the fork, but then
 * the page is wiped, and no one's yet. */
void heap_note_fork(heap_t *mine) {
  bool claimed = os_fork_is_claimed();
  if (claimed && load_relaxed(&repairs) != load_relaxed(&repairs_before)) return;
  store_relaxed(&forker_thread, thread_self());
  store_relaxed(&forker, mine);
  if (claimed) os_fork_note();
}

/* Takes the heaps from the threads that are gone; true if one of these was on a slow path. */
static bool heaps_orphan(const heap_t *mine, bool inside) {
  bool begun = false;
  for (unsigned i = 0; i < HEAPLESS_LINES; i++) begun |= atomic_exchange(&heapless[i].heapless_inside, 0) != 0;
  if (inside && mine == NULL) add_relaxed(&heapless_of(thread_self())->heapless_inside, 1); /* this thread, which is about to get one */
  const heap_t *by = load_relaxed(&forker);
  heaps_after_fork(mine, by, inside);
  for (heap_t *heap = heap_first(); heap != NULL; heap = load_relaxed(&heap->next)) store_relaxed(&heap->named.users, 0);
  for (heap_t *heap = heap_first(); heap != NULL; heap = load_relaxed(&heap->next)) {
    begun |= heap->owner.held.units != 0;
    bool survives = heap_survives(heap, mine, by);
    store_relaxed(&heap->forking, 0);
    if (!survives) heap->stand_in = NULL;
    if (heap->stand_in != NULL) owner_add(&heap->stand_in->named.users, 1);
    if (survives) continue;
    begun |= load_relaxed(&heap->inside) != 0;
    store_relaxed(&heap->inside, 0);
    if (load_relaxed(&heap->owner.thread) == 0 || load_relaxed(&heap->state) == HEAP_NAMED) continue;
    heap->owner.orphan = true;
    heap_set_thread(heap, 0);
  }
  return begun;
}

/* The table and the lists of the owners whose lock a thread that is gone has held; of all owners if one has left a repair unfinished. */
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

/* The class's first use may lie between what the slab's record and the heap's table tell. */
static region_bin_t *slab_bin(const unit_t *slab) {
  heap_t *heap = heap_of(slab_owner(slab));
  unsigned c = load_relaxed(&slab->size_class);
  if (!load_relaxed(&heap->has_bin[c])) heap_add_bin(heap, c);
  return &heap_bin(heap, c)->shared;
}

/* One that is not live a thread which is gone had freed, or was about to give out. */
static void large_recover(unit_t *first, bool inside) {
  slab_owner_t *owner = load_relaxed(&first->owned) ? slab_owner(first) : NULL; /* a named heap */
  if (owner != NULL && owner->relist) large_own(owner, first);
  if (!HAK_CHECKS || inside || region_is_live(region_address(unit_number(first)))) return;
  if (owner != NULL) large_disown(owner, first);
  first->zeroed = false; /* its pages go back with time, since others wait for the repair */
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
    if (length == 0 && slab->told) units_unadvise(slab, load_relaxed(&slab->units)); /* a thread that is gone was about to */
    unit += length > 0 ? length : 1;
  }
}

static void heap_repair(heap_t *mine, bool unfinished) {
  bool inside = thread_inside != 0;
  region_after_fork(inside);
  pressure_after_fork(load_relaxed(&forker_thread) != 0 ? load_relaxed(&forker_thread) : thread_self());
  if (heap_first() != NULL && load_relaxed(&heap_first()->next) != NULL) slab_epoch++;
  drain_after_fork();
  handover_after_fork();
  bool begun = keeper_after_fork();
  if (!heaps_orphan(mine, inside) && !begun && !unfinished) return;
  owners_reset(inside, unfinished);
  kept_recover(inside);
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

/* Within its own repair a thread calls this in a signal handler alone, and whoever holds the lock is gone. */
void heap_lock_as(heap_t *heap, heap_t *mine) {
  while (!lock_wait(&heap->owner.lock)) {
    heap_after_fork(mine);
    if (HAK_UNLIKELY(os_fork_is_claimed_by(thread_self()))) lock_reentered();
  }
}

void heap_lock(heap_t *heap) { heap_lock_as(heap, heap); }
