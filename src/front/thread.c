#include "front/thread.h"

#include <pthread.h>

#include "front/boot.h"
#include "front/keeper.h"
#include "kit/options.h"
#include "slab/hole.h"
#include "space/purge.h"

__thread heap_t *thread_heap = &heap_none;
__thread heap_t *thread_own_heap;
__thread uint32_t thread_inside;

static pthread_key_t exit_key;
static _Atomic bool exits_watched;
static _Atomic bool watching;

/* When the heap grows, what is free inside slabs goes back too if it has become much. */
static void settle_holes(void) {
  static _Atomic uint32_t peaks_seen;
  uint32_t peaks = purge_peaks();
  if (HAK_LIKELY(atomic_seen(&peaks_seen) == peaks)) return;
  atomic_set(&peaks_seen, peaks);
  int64_t unsettled = 0, used = (int64_t)(purge_used_units() << HAK_UNIT_SHIFT);
  for (heap_t *heap = heap_first(); heap != NULL; heap = atomic_seen(&heap->next)) {
    unsettled += hole_unsettled(&heap->owner);
    used -= atomic_seen(&heap->owner.free_bytes);
  }
  uint32_t calming;
  if (unsettled > HOLE_WORTH && unsettled > used / 100 * option_get(OPTION_idle_percent)) (void)hole_step(true, &calming);
}

void thread_settle(void) {
  (void)purge_due();
  settle_holes();
  if (thread_own_heap != NULL) heap_tick(thread_own_heap);
  keeper_call(thread_own_heap);
  thread_leave();
}

/* The values come later, and the thread finds its heap again: heap_attach. */
void thread_start_early(void) {
  if (thread_heap == NULL) thread_heap = &heap_none;
}

/* Runs when the thread ends, again if other destructors have allocated since. */
static void thread_exit(void *own) {
  heap_t *heap = own;
  if (heap != thread_own_heap) return;
  thread_enter();
  heap_detach(heap);
  thread_heap = &heap_none;
  thread_own_heap = NULL;
  thread_settle();
}

void thread_watch_exits(void) {
  /* Without a key, heaps are taken over by the next thread at the same address: heap_attach. */
  if (pthread_key_create(&exit_key, thread_exit) == 0) atomic_publish(&exits_watched, true);
}

void thread_unwatch_exits(void) {
  if (atomic_exchange(&exits_watched, false)) (void)pthread_key_delete(exit_key);
}

void thread_after_fork(void) {
  os_fork_note();
  if (thread_inside == 0) heap_after_fork(thread_own_heap);
}

void thread_watch_all(void) { atomic_set(&watching, true); }

heap_t *thread_attach(void) {
  heap_t *heap = thread_own_heap;
  if (heap == NULL) {
    if (!boot()) return NULL;
    heap = heap_attach();
    if (heap == NULL) return NULL;
    /* Before pthread_setspecific, which may allocate. */
    thread_own_heap = heap;
    if (!atomic_seen(&watching)) thread_heap = heap;
    if (atomic_take(&exits_watched)) (void)pthread_setspecific(exit_key, heap);
  }
  return heap;
}
