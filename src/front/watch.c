#include "front/watch.h"

#include "front/heaps.h"
#include "front/repair.h"
#include "os/os.h"
#include "slab/remote.h"

#define WATCH_AGAIN_MS 1000

_Atomic bool watch_always;
HAK_APART watch_counts_t watch_others;

/* --- counts ------------------------------------------------------------------------------ */

unsigned watch_group_of_large(size_t size) {
  if (size >= EVENT_BYTES) return WATCH_CERTAIN;
  unsigned power = bits_highest64(size > HAK_SMALL_MAX_ZEROED ? size - 1 : HAK_SMALL_MAX_ZEROED);
  return WATCH_LARGE + power - WATCH_LARGE_FROM;
}

/* The distance to the next event is used up, or none was drawn yet. */
static HAK_NOINLINE void draw_event(heap_t *heap, unsigned group, int64_t bytes) {
  int64_t left = heap->until_event + bytes;
  if (left == 0) left = event_distance(&heap->random);
  if (left <= bytes) {
    event_count(group, (size_t)bytes);
    left = bytes + event_distance(&heap->random);
  }
  heap->until_event = left - bytes;
}

HAK_NOINLINE void watch_small(heap_t *heap, size_t size) {
  unsigned c = class_of_request(size);
  int64_t bytes = size == 0 ? 1 : (int64_t)size;
  owner_add(&heap->counts.counted_blocks[c], 1);
  owner_add(&heap->counts.counted_bytes[c], size);
  if ((heap->until_event -= bytes) <= 0) draw_event(heap, c, bytes);
}

HAK_NOINLINE void watch_other(unsigned group, size_t size) {
  add_relaxed(&watch_others.other_blocks[group], 1);
  add_relaxed(&watch_others.other_bytes[group], size);
  event_try(group, size);
}

HAK_COLD watch_sum_t watch_counted(unsigned group) {
  watch_sum_t sum = {load_relaxed(&watch_others.other_blocks[group]), load_relaxed(&watch_others.other_bytes[group])};
  for (heap_t *heap = heap_first(); group < CLASS_COUNT && heap != NULL; heap = load_relaxed(&heap->next)) {
    sum.blocks += load_relaxed(&heap->counts.counted_blocks[group]);
    sum.bytes += load_relaxed(&heap->counts.counted_bytes[group]);
  }
  return sum;
}

/* --- who is watched ---------------------------------------------------------------------- */

HAK_COLD void watch_heap(heap_t *heap) {
  heap_lock(heap);
  heap_set_watched(heap, watch_wanted());
  heap_unlock(heap);
}

HAK_COLD void watch_step(void) {
  static _Atomic uint64_t again_ms, seen_until_ms;
  uint64_t now = os_now_ms(), until = load_relaxed(&event_until_ms);
  bool anew = until != load_relaxed(&seen_until_ms); /* armed again, from outside: by now each thread has undone its own */
  if (event_expire() || (now < load_relaxed(&again_ms) && !anew)) return;
  store_relaxed(&seen_until_ms, until);
  store_relaxed(&again_ms, now + WATCH_AGAIN_MS);
  watch_heaps();
}

HAK_COLD void watch_heaps(void) {
  for (heap_t *heap = heap_first(); heap != NULL; heap = load_relaxed(&heap->next)) {
    if (load_relaxed(&heap->state) != HEAP_ATTACHED || !lock_try(&heap->owner.lock)) continue;
    heap_set_watched(heap, true); /* its thread alone undoes it */
    owner_unlock(&heap->owner); /* its thread may have ended since */
  }
}
