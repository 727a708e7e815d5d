#include "front/thread.h"

#include <pthread.h>

#include "front/boot.h"
#include "space/span.h"

__thread heap_t *thread_heap = &heap_none;
__thread heap_t *thread_own_heap;
__thread uint32_t thread_inside;

static pthread_key_t exit_key;
static _Atomic bool exits_watched;
static _Atomic bool counting;

/* Runs when the thread ends, again if other destructors have allocated since. */
static void thread_exit(void *own) {
  heap_t *heap = own;
  if (heap != thread_own_heap) return;
  thread_enter();
  heap_detach(heap);
  thread_heap = &heap_none;
  thread_own_heap = NULL;
  (void)span_decay();
  thread_leave();
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

void thread_count_all(void) { atomic_set(&counting, true); }

heap_t *thread_attach(void) {
  heap_t *heap = thread_own_heap;
  if (heap == NULL) {
    if (!boot()) return NULL;
    heap = heap_attach();
    if (heap == NULL) return NULL;
    /* Before pthread_setspecific, which may allocate. */
    thread_own_heap = heap;
    if (!atomic_seen(&counting)) thread_heap = heap;
    if (atomic_take(&exits_watched)) (void)pthread_setspecific(exit_key, heap);
  }
  return heap;
}
