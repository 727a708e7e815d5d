#include "front/handover.h"

#include "kit/options.h"
#include "kit/pressure.h"
#include "slab/remote.h"
#include "front/drain.h"

/* What may be parked: few blocks, and only of classes with one slab each, since otherwise a few blocks would keep many slabs. */
#define PARKED_MOST 8
#define PARKED_BYTES ((int64_t)512 << 10)

/* A place that names a heap is changed only by the holder of that heap's lock. */
static struct {
  heap_t *_Atomic heap;
  _Atomic bool aged;     /* it was here at the last check */
  _Atomic int64_t bytes; /* of free blocks, in its bins and in the slabs that these keep */
} parked_heaps[PARKED_MOST];
static _Atomic int64_t parked_bytes;
static _Atomic uint64_t parked_seen_ms;

static int64_t bins_bytes(heap_t *heap) {
  int64_t bytes = 0;
  for (unsigned c = heap_next_bin(heap, 0); c < CLASS_COUNT; c = heap_next_bin(heap, c + 1)) {
    if (load_relaxed(&heap->owner.slab_count[c]) == 1) bytes += (int64_t)bin_count(heap_bin(heap, c)) * class_info[c].size;
  }
  return bytes;
}

/* The secure library gives everything back: what waits in quarantine would wait there for good. */
static bool may_park(int64_t bytes) {
  if (HAK_SECURE || option_get(OPTION_decay_ms) <= 0 || pressure_now() != PRESSURE_NONE) return false;
  return bytes > 0 && bytes <= PARKED_BYTES;
}

/* Takes a free place for this heap and returns its number; PARKED_MOST if there is none. */
static unsigned place_take(heap_t *heap) {
  for (unsigned i = 0; i < PARKED_MOST; i++) {
    heap_t *none = NULL;
    if (load_relaxed(&parked_heaps[i].heap) != NULL) continue;
    if (atomic_compare_exchange_strong_explicit(&parked_heaps[i].heap, &none, heap, memory_order_acquire, memory_order_relaxed)) return i;
  }
  return PARKED_MOST;
}

bool handover_park(heap_t *heap) {
  int64_t bytes = bins_bytes(heap);
  unsigned i = may_park(bytes) ? place_take(heap) : PARKED_MOST;
  if (i == PARKED_MOST) return false;
  for (unsigned c = heap_next_bin(heap, 0); c < CLASS_COUNT; c = heap_next_bin(heap, c + 1)) {
    if (load_relaxed(&heap->owner.slab_count[c]) != 1) bin_empty(heap_bin(heap, c), &heap->owner);
  }
  bytes += load_relaxed(&heap->owner.free_bytes);
  store_relaxed(&parked_heaps[i].aged, false);
  store_relaxed(&parked_heaps[i].bytes, bytes);
  add_relaxed(&parked_bytes, bytes);
  drain_note(heap);
  return true;
}

/* Subtracts the heap's bytes before the place is free, since the next heap's are written there. */
static void place_leave(unsigned i) {
  add_relaxed(&parked_bytes, -load_relaxed(&parked_heaps[i].bytes));
  store_release(&parked_heaps[i].heap, NULL);
}

void handover_unpark(heap_t *heap) {
  for (unsigned i = 0; i < PARKED_MOST; i++) {
    if (load_relaxed(&parked_heaps[i].heap) == heap) place_leave(i);
  }
}

/* Passes over a heap whose lock is taken: it is about to be a thread's. */
static void handover_look(unsigned i, bool now) {
  heap_t *heap = load_relaxed(&parked_heaps[i].heap);
  if (heap == NULL || !lock_try_if_free(&heap->owner.lock)) return;
  bool same = load_relaxed(&parked_heaps[i].heap) == heap;
  if (same && (now || load_relaxed(&parked_heaps[i].aged))) {
    place_leave(i);
    drain_empty(heap);
  } else if (same) {
    store_relaxed(&parked_heaps[i].aged, true);
  }
  owner_unlock(&heap->owner);
}

uint32_t handover_age(uint64_t now_ms) {
  uint32_t count = 0;
  int64_t decay = pressure_decay(option_get(OPTION_decay_ms));
  /* Another thread's time may be a little later; or it was another clock's, a preloaded library's or that of another time namespace. */
  int64_t passed = (int64_t)(now_ms - load_relaxed(&parked_seen_ms));
  bool due = decay >= 0 && (passed >= decay || passed < -decay);
  if (due) store_relaxed(&parked_seen_ms, now_ms);
  for (unsigned i = 0; i < PARKED_MOST; i++) {
    if (due) handover_look(i, false);
    count += load_relaxed(&parked_heaps[i].heap) != NULL;
  }
  return count;
}

void handover_release(void) {
  for (unsigned i = 0; i < PARKED_MOST; i++) handover_look(i, true);
}

/* A fork may have come between the two stores of a change. */
HAK_COLD void handover_after_fork(void) {
  int64_t bytes = 0;
  for (unsigned i = 0; i < PARKED_MOST; i++) {
    if (load_relaxed(&parked_heaps[i].heap) != NULL) bytes += load_relaxed(&parked_heaps[i].bytes);
  }
  store_relaxed(&parked_bytes, bytes);
}

uint64_t handover_parked_bytes(void) {
  int64_t bytes = load_relaxed(&parked_bytes);
  return bytes > 0 ? (uint64_t)bytes : 0;
}
