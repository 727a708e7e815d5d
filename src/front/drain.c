#include "front/drain.h"

#include "os/os.h"
#include "slab/remote.h"
#include "front/heaps.h"
#include "front/quarantine.h"

/* How many calls of drain_idle in a row must find a heap's bins unchanged before the bins are drained. */
#define IDLE_LOOKS 3

/* A thread's bins that hold less are left alone. */
#define IDLE_BYTES ((int64_t)16 << 10)

/* One drain at a time: a second one would take a bar that no barrier has followed yet for its own. */
static _Atomic uint32_t draining;
static _Atomic int64_t drainable;
static _Atomic bool unable; /* the last try found no barrier: older kernels have none, and filters refuse it */

/* --- how much there is -------------------------------------------------------------------- */

HAK_INLINE bool is_drained(heap_t *heap, const heap_t *mine) { return heap != mine && load_relaxed(&heap->owner.thread) > OWNER_OF_MANY; }

/* The bytes in the heap's bins, without the uppermost entries of each, which stay; 0 if that is too little to take from a thread that
 * is idle. */
static int64_t bins_drainable(heap_t *heap) {
  int64_t bytes = 0;
  if (!is_drained(heap, NULL)) return 0;
  for (unsigned c = heap_next_bin(heap, 0); c < CLASS_COUNT; c = heap_next_bin(heap, c + 1)) {
    uint32_t count = bin_count(heap_bin(heap, c));
    if (HAK_SECURE) count += quarantine_waiting(heap, c);
    if (count > BIN_REACH) bytes += (int64_t)(count - BIN_REACH) * class_info[c].size;
  }
  return bytes >= IDLE_BYTES ? bytes : 0;
}

void drain_note(heap_t *heap) {
  uint32_t units = large_cache_units(&heap->owner.large_cache);
  store_relaxed(&heap->idle.noted_units, units);
  int64_t bytes = (int64_t)(units * HAK_UNIT) + bins_drainable(heap);
  add_relaxed(&drainable, bytes - load_relaxed(&heap->idle.noted));
  store_relaxed(&heap->idle.noted, bytes);
}

uint64_t drain_waiting(void) {
  int64_t bytes = load_relaxed(&drainable);
  return bytes > 0 && !load_relaxed(&unable) ? (uint64_t)bytes : 0;
}

/* A number that changes whenever the thread has used its bins, except for a malloc and free of the same class. */
static uint64_t heap_activity(heap_t *heap) {
  uint64_t sum = load_relaxed(&heap->slow_paths);
  for (unsigned c = heap_next_bin(heap, 0); c < CLASS_COUNT; c = heap_next_bin(heap, c + 1)) {
    sum = sum * GOLDEN_RATIO_64 + (uint64_t)racy_load(&heap_bin(heap, c)->top);
  }
  return sum;
}

/* --- taking blocks ------------------------------------------------------------------------ */

typedef uint64_t drain_step_t(heap_t *heap);

static uint64_t set_bars(heap_t *heap) {
  uint64_t bars = 0;
  for (unsigned c = heap_next_bin(heap, 0); c < CLASS_COUNT; c = heap_next_bin(heap, c + 1)) bars += bin_set_bar(heap_bin(heap, c));
  if (HAK_SECURE) bars += quarantine_mark(heap);
  return bars;
}

static uint64_t see_tops(heap_t *heap) {
  for (unsigned c = heap_next_bin(heap, 0); c < CLASS_COUNT; c = heap_next_bin(heap, c + 1)) bin_see_top(heap_bin(heap, c));
  if (HAK_SECURE) quarantine_see(heap);
  return 0;
}

static uint64_t take_quarantined(heap_t *heap) {
  unsigned c = 0;
  uint32_t place = 0, blocks = 0;
  for (void *block; (block = quarantine_take_marked(heap, &c, &place)) != NULL; blocks++) heap_give_block(heap, block);
  return blocks;
}

static uint64_t take_below(heap_t *heap) {
  uint64_t blocks = 0;
  for (unsigned c = heap_next_bin(heap, 0); c < CLASS_COUNT; c = heap_next_bin(heap, c + 1)) {
    blocks += bin_take_below(heap_bin(heap, c), &heap->owner);
  }
  if (HAK_SECURE) blocks += take_quarantined(heap);
  drain_note(heap);
  return blocks;
}

static void quarantine_empty(heap_t *heap) {
  for (void *block = quarantine_take(heap); block != NULL; block = quarantine_take(heap)) heap_give_block(heap, block);
}

void drain_empty(heap_t *heap) {
  if (HAK_SECURE) quarantine_empty(heap);
  for (unsigned c = heap_next_bin(heap, 0); c < CLASS_COUNT; c = heap_next_bin(heap, c + 1)) bin_empty(heap_bin(heap, c), &heap->owner);
  drain_note(heap);
}

/* Passes over heaps whose lock is taken: they are in use. */
static uint64_t each_heap(drain_step_t *take, const heap_t *mine, bool idle) {
  uint64_t sum = 0;
  for (heap_t *heap = heap_first(); heap != NULL; heap = load_relaxed(&heap->next)) {
    if (!is_drained(heap, mine) || (idle && heap->idle.looks < IDLE_LOOKS) || !lock_try_if_free(&heap->owner.lock)) continue;
    if (is_drained(heap, mine)) sum += take(heap);
    owner_unlock(&heap->owner);
  }
  return sum;
}

static uint64_t take_barred(const heap_t *mine, bool idle) {
  if (!os_barrier()) return 0;
  (void)each_heap(see_tops, mine, idle);
  return os_barrier() ? each_heap(take_below, mine, idle) : 0;
}

static uint64_t drain(const heap_t *mine, bool idle) {
  uint64_t blocks = 0;
  if (heaps_attached() <= (mine != NULL)) return 0; /* no other thread has bins: the kernel is not asked */
  if (atomic_exchange_explicit(&draining, 1, memory_order_acquire) != 0) return 0;
  bool possible = os_barrier(); /* else each bar would cost its thread a moment, for nothing */
  store_relaxed(&unable, !possible);
  if (possible && each_heap(set_bars, mine, idle) != 0) blocks = take_barred(mine, idle);
  store_release(&draining, 0);
  return blocks;
}

/* The large blocks that threads cache go back without a barrier. */
uint64_t drain_bins(const heap_t *mine) {
  for (heap_t *heap = heap_first(); heap != NULL; heap = load_relaxed(&heap->next)) {
    if (heap != mine) (void)large_cache_flush(&heap->owner.large_cache);
  }
  return drain(mine, false);
}

/* Returns true if some of what the thread caches went back. If the thread has taken some of it, and has been idle since, the keeper must
 * not wait for that: it is noted anew. */
static bool age_large_cache(heap_t *heap) {
  bool given = large_cache_age(&heap->owner.large_cache) != 0;
  if (large_cache_units(&heap->owner.large_cache) == load_relaxed(&heap->idle.noted_units) || !lock_try_if_free(&heap->owner.lock))
    return given;
  drain_note(heap);
  owner_unlock(&heap->owner);
  return given;
}

/* Gives back what a fork's child finds in the bins of a thread that it does not have. No thread takes from them, so no barrier is
 * needed. */
static bool drain_gone(heap_t *heap) {
  if (load_relaxed(&heap->owner.thread) != 0 || load_relaxed(&heap->idle.noted) == 0 || !lock_try_if_free(&heap->owner.lock)) return false;
  bool gone = load_relaxed(&heap->owner.thread) == 0;
  if (gone) {
    (void)large_cache_flush(&heap->owner.large_cache);
    drain_empty(heap);
    slab_release_empty(&heap->owner);
  }
  owner_unlock(&heap->owner);
  return gone;
}

/* Notes anew how much there is. Hits may have taken out what was noted, before the thread went idle; nothing else would show that there is
 * nothing to wait for. */
static void note_less(heap_t *heap) {
  if (load_relaxed(&heap->idle.noted) == 0 || !lock_try_if_free(&heap->owner.lock)) return;
  drain_note(heap);
  owner_unlock(&heap->owner);
}

/* Whether the heap's thread has been idle for long enough, and there is something to take. */
static bool heap_is_idle(heap_t *heap) {
  uint64_t activity = is_drained(heap, NULL) ? heap_activity(heap) : 0;
  bool same = activity != 0 && activity == heap->idle.activity, worth = bins_drainable(heap) > 0;
  heap->idle.activity = activity;
  if (!same || !worth) heap->idle.looks = 0;
  else if (heap->idle.looks < IDLE_LOOKS) heap->idle.looks++;
  if (same && !worth) note_less(heap);
  return heap->idle.looks == IDLE_LOOKS;
}

uint64_t drain_idle(uint32_t *aging) {
  bool any = false, aged = false;
  for (heap_t *heap = heap_first(); heap != NULL; heap = load_relaxed(&heap->next)) {
    aged |= age_large_cache(heap);
    aged |= drain_gone(heap);
    *aging += large_cache_units(&heap->owner.large_cache) > 0;
    bool idle = heap_is_idle(heap);
    any |= idle;
    *aging += !idle && heap->idle.looks > 0;
  }
  return (any ? drain(NULL, true) : 0) + aged;
}

/* A fork may have come between the two stores of a note. */
HAK_COLD void drain_after_fork(void) {
  int64_t bytes = 0;
  for (heap_t *heap = heap_first(); heap != NULL; heap = load_relaxed(&heap->next)) bytes += load_relaxed(&heap->idle.noted);
  store_relaxed(&drainable, bytes);
  store_relaxed(&draining, 0);
}
