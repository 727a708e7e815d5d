#include "front/thread.h"

#include <pthread.h>

#include "front/boot.h"

__thread heap_t *thread_heap = &heap_none;
__thread heap_t *thread_own_heap;

static pthread_key_t exit_key;
static _Atomic bool exits_watched;
static _Atomic bool counting;

/* Runs when the thread ends, again if other destructors have allocated since. */
static void thread_exit(void *own) {
  heap_t *heap = own;
  if (heap != thread_own_heap) return;
  heap_detach(heap);
  thread_heap = &heap_none;
  thread_own_heap = NULL;
}

void thread_watch_exits(void) {
  /* Without a key, heaps are taken over by the next thread at the same address: heap_attach. */
  if (pthread_key_create(&exit_key, thread_exit) == 0) atomic_publish(&exits_watched, true);
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
