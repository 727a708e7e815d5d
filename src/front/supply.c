#include "front/supply.h"

#include <string.h>

#include "base/thread.h"
#include "front/drain.h"
#include "front/handover.h"
#include "front/heaps.h"
#include "front/quarantine.h"
#include "front/repair.h"
#include "front/shared.h"
#include "kit/options.h"
#include "kit/pressure.h"
#include "os/memcheck.h"
#include "os/os.h"
#include "space/ledger.h"
#include "space/purge.h"
#include "slab/batch.h"
#include "slab/hole.h"
#include "slab/large.h"
#include "slab/remote.h"
#include "slab/sample.h"

#define TICK_MS 1000
#define TICK_NEAR_MS 100 /* while a memory limit is near */
#define TICK_EVERY 64 /* slow paths: reading the clock costs as much as a short one */

/* This many orphans stay as they are for the next threads; beyond that, only those with slabs. */
#define ORPHANS_KEPT 16

static void bins_recover(heap_t *heap) {
  for (unsigned c = heap_next_bin(heap, 0); c < CLASS_COUNT; c = heap_next_bin(heap, c + 1)) {
    bin_recover(heap_bin(heap, c), &heap->owner, &heap->budget);
  }
}

heap_t *heap_attach(const heap_t *wanted) {
  heap_t *heap = heaps_take(thread_self(), wanted);
  if (heap == NULL) return NULL;
  heap_lock(heap);
  handover_unpark(heap);
  heap->owner.orphan = false;
  heap_set_thread(heap, thread_self());
  if (HAK_UNLIKELY(repair_was_made())) bins_recover(heap);
  drain_note(heap);
  heap_unlock(heap);
  memset(heap->shared_blocks, 0, sizeof heap->shared_blocks);
  heap_set_default(heap, NULL); /* left by a thread that has ended unseen */
  return heap;
}

/* If a bin has grown, the heap may have more for others to take than is noted, and a thread that makes no further call would never note
 * it. */
static void note_bins(heap_t *heap) {
  uint32_t grown = load_relaxed(&heap->budget.grown);
  if (HAK_LIKELY(grown == heap->idle.grown)) return;
  heap->idle.grown = grown;
  drain_note(heap);
}

void heap_flush(heap_t *heap, bin_t *bin) {
  heap_lock(heap);
  bin_flush(bin, &heap->owner, &heap->budget);
  note_bins(heap);
  heap_unlock(heap);
}

void heap_take_back(heap_t *heap, void *block) {
  unit_t *slab = unit_head((uint32_t)region_unit(block));
  if (heap == NULL || slab_owner(slab) != &heap->owner) {
    heap_free_remotely(block);
    return;
  }
  bin_t *bin = heap_bin(heap, load_relaxed(&slab->size_class));
  if (bin_push(bin, sample_block_state(block) != SAMPLE_NONE ? entry_sampled(block) : block)) heap_flush(heap, bin);
}

/* --- large blocks ------------------------------------------------------------------------ */

/* How many units of large blocks each thread may cache: all threads together a sixteenth of what is in use, but each at least two. */
#define LARGE_CACHE_SHARE 16
#define LARGE_CACHE_LEAST 2u
static uint32_t cache_units_most(void) {
  if (HAK_SECURE || memcheck_on() || option_get(OPTION_decay_ms) == 0 || pressure_now() >= PRESSURE_NEAR) return 0;
  uint64_t share = ledger_used_units() / LARGE_CACHE_SHARE, threads = heaps_attached() | 1;
  if (HAK_LIKELY(share >= LARGE_CACHE_UNITS * threads)) return LARGE_CACHE_UNITS; /* the usual case, and a division is slow */
  return share <= LARGE_CACHE_LEAST * threads ? LARGE_CACHE_LEAST : (uint32_t)(share / threads);
}

void *heap_take_large(heap_t *heap, size_t size, span_use_t use) {
  return HAK_SECURE || heap == NULL ? NULL : large_take_cached(&heap->owner.large_cache, size, use);
}

heap_cached_t heap_cache_large(heap_t *heap, unit_t *first) {
  if (heap == NULL || load_relaxed(&first->units) > LARGE_CACHE_LONGEST) return CACHED_NONE;
  uint32_t cached = large_put_cached(&heap->owner.large_cache, first, cache_units_most());
  if (cached == 0) return CACHED_NONE;
  if (HAK_LIKELY(cached <= load_relaxed(&heap->idle.noted_units))) return CACHED_AS_NOTED;
  heap_lock(heap);
  drain_note(heap);
  heap_unlock(heap);
  return CACHED_MORE;
}

/* --- what goes back ---------------------------------------------------------------------- */

void heap_tick(heap_t *heap) {
  owner_add(&heap->slow_paths, 1);
  if (load_relaxed(&heap->slow_paths) % TICK_EVERY != 1) return;
  uint64_t now = os_now_ms();
  if (now - heap->last_tick_ms < (pressure_now() >= PRESSURE_NEAR ? TICK_NEAR_MS : TICK_MS)) return;
  heap->last_tick_ms = now;
  (void)large_cache_age(&heap->owner.large_cache);
  heap_lock(heap);
  (void)remote_collect(&heap->owner);
  for (unsigned c = heap_next_bin(heap, 0); c < CLASS_COUNT; c = heap_next_bin(heap, c + 1)) {
    bin_tick(heap_bin(heap, c), &heap->owner, &heap->budget);
  }
  drain_note(heap);
  heap_unlock(heap);
  handover_age(now);
  if (load_relaxed(&pressure.limit) != 0) purge_epoch_advance(); /* a limit is checked by time, too */
}

/* A mark is visible to every thread in less time than this. */
#define MARK_VISIBLE_MS 10

/* Whether a slab may have frees that nobody announces, since it was opened again, or since a freer stayed in the parent of this process. */
static bool heap_may_have_unseen_marks(const heap_t *heap) {
  return load_relaxed(&heap->owner.reopened) || load_relaxed(&heap->repairs_seen) != repair_count();
}

/* Looks for frees that nobody has announced. A slab that was opened again has only those whose marks were not visible then: so once a look
 * has come long enough after the last such slab was opened, a further one finds nothing. With the heap's lock. */
static void heap_look_briefly(heap_t *heap) {
  slab_owner_t *owner = &heap->owner;
  if (heap_may_have_unseen_marks(heap)) {
    store_relaxed(&owner->reopened, false);
    store_relaxed(&heap->repairs_seen, repair_count());
    store_relaxed(&heap->unseen_marks, true);
    heap->reopened_ms = os_now_ms();
  }
  if (!load_relaxed(&heap->unseen_marks)) return;
  store_relaxed(&heap->unseen_marks, os_now_ms() - heap->reopened_ms < MARK_VISIBLE_MS);
  remote_look_at_all(owner);
}

/* Brings in what others have freed, and gives back the slabs that are wholly free. With the heap's lock. */
static void heap_collect_slabs(heap_t *heap, bool briefly) {
  remote_collect_all(&heap->owner);
  if (briefly) heap_look_briefly(heap);
  else remote_look_at_all(&heap->owner);
  slab_release_empty(&heap->owner);
}

bool heap_may_trim(heap_t *heap) {
  if (load_relaxed(&heap->owner.pending_classes) != 0 || load_relaxed(&heap->owner.free_bytes) > heap->trimmed_free_bytes) return true;
  if (large_cache_units(&heap->owner.large_cache) > 0 || load_relaxed(&heap->unseen_marks) || heap_may_have_unseen_marks(heap)) return true;
  for (unsigned c = heap_next_bin(heap, 0); c < CLASS_COUNT; c = heap_next_bin(heap, c + 1)) {
    if (bin_count(heap_bin(heap, c)) > 0) return true;
  }
  for (unsigned c = 0; HAK_SECURE && c < CLASS_COUNT; c++) { /* it has no bin for blocks that others have allocated */
    if (quarantine_waiting(heap, c) > 0) return true;
  }
  return false;
}

/* Gives back everything that the heap keeps. */
static void heap_empty(heap_t *heap, bool briefly) {
  heap_lock(heap);
  (void)large_cache_flush(&heap->owner.large_cache);
  drain_empty(heap);
  heap_collect_slabs(heap, briefly);
  heap->trimmed_free_bytes = load_relaxed(&heap->owner.free_bytes);
  heap_unlock(heap);
}

void heap_trim(heap_t *heap) { heap_empty(heap, false); }
void heap_trim_briefly(heap_t *heap) { heap_empty(heap, true); }

/* Returns false, and does nothing, if a signal handler of the ending thread has taken the heap again. */
static bool retire_bins(heap_t *heap) {
  heap_lock(heap);
  bool ended = load_relaxed(&heap->owner.thread) == 0;
  if (ended) heap_retire_bins(heap);
  heap_unlock(heap);
  return ended;
}

void heap_detach(heap_t *heap) {
  (void)large_cache_flush(&heap->owner.large_cache);
  heap->owner.orphan = true;
  heap_set_thread(heap, 0);
  (void)remote_collect(&heap->owner);
  slab_release_empty(&heap->owner); /* from here on slabs end as they become free */
  if (!handover_park(heap)) drain_empty(heap);
  bool has_slabs = owner_has_slabs(&heap->owner);
  owner_unlock(&heap->owner);
  if (heaps_keep(heap, has_slabs ? UINT32_MAX : ORPHANS_KEPT)) return;
  if (retire_bins(heap)) heaps_give(heap, HEAP_BARE);
}

static void heaps_trim_others(bool briefly) {
  for (heap_t *heap = heap_first(); heap != NULL; heap = load_relaxed(&heap->next)) {
    if (!lock_try(&heap->owner.lock)) continue;
    if (load_relaxed(&heap->owner.thread) == 0) {
      (void)large_cache_flush(&heap->owner.large_cache);
      handover_unpark(heap);
      drain_empty(heap);
    }
    heap_collect_slabs(heap, briefly);
    owner_unlock(&heap->owner);
  }
}

void heap_trim_others(void) { heaps_trim_others(false); }
void heap_trim_others_briefly(void) { heaps_trim_others(true); }

/* Blocks go back first, so that what they leave empty can be purged. */
HAK_COLD size_t heap_collect(heap_t *heap, bool now) {
  if (heap != NULL) heap_trim(heap);
  if (now) (void)drain_bins(heap); /* not otherwise: a thread that says that it will be idle would cost all others their bins */
  heap_trim_others();
  (void)large_trim();
  uint32_t aging = 0;
  return now ? purge_all() + hole_step(true, &aging) : purge_due();
}

void *heap_refill(heap_t *heap, unsigned size_class) {
  if (!load_relaxed(&heap->has_bin[size_class])) {
    void *block = heap_take_shared(size_class, &heap->shared_blocks[size_class], true);
    if (block != NULL) return block;
  }
  heap_lock(heap);
  if (!load_relaxed(&heap->has_bin[size_class])) heap_add_bin(heap, size_class);
  void *block = bin_refill(heap_bin(heap, size_class), &heap->owner, &heap->budget);
  heap_unlock(heap);
  return block;
}

void *heap_take_one(heap_t *heap, unsigned size_class) {
  void *block;
  heap_lock(heap);
  if (!load_relaxed(&heap->has_bin[size_class])) heap_add_bin(heap, size_class);
  bin_t *bin = heap_bin(heap, size_class);
  bool taken = batch_take(&heap->owner, size_class, &bin->shared, &block, 1) == 1;
  if (taken) bin_count_taken(bin);
  heap_unlock(heap);
  return taken ? block : NULL;
}
