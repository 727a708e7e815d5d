#include "front/watch.h"

#include "front/heaps.h"
#include "front/repair.h"
#include "os/os.h"

#define WATCH_AGAIN_MS 1000

_Atomic bool watch_always;

HAK_COLD void watch_heap(heap_t *heap) {
  heap_lock(heap);
  heap_set_watched(heap, watch_wanted());
  heap_unlock(heap);
}

HAK_COLD void watch_step(void) {
  static _Atomic uint64_t again_ms;
  uint64_t now = os_now_ms();
  if (event_expire() || now < load_relaxed(&again_ms)) return;
  store_relaxed(&again_ms, now + WATCH_AGAIN_MS);
  watch_heaps();
}

HAK_COLD void watch_heaps(void) {
  for (heap_t *heap = heap_first(); heap != NULL; heap = load_relaxed(&heap->next)) {
    if (load_relaxed(&heap->state) != HEAP_ATTACHED || !lock_try(&heap->owner.lock)) continue;
    heap_set_watched(heap, true); /* its thread alone undoes it */
    heap_unlock(heap);
  }
}
