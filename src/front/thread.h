/* thread.h - the calling thread's heap. */
#ifndef FRONT_THREAD_H
#define FRONT_THREAD_H

#include "base/thread.h"
#include "os/os.h"
#include "front/audit.h"
#include "front/repair.h"

/* The heap that the fast path of malloc pops from: heap_none before the first miss, after the thread's end, and while a named heap is
 * its default. */
extern __thread heap_t *thread_fast_heap __attribute__((tls_model("initial-exec")));
/* The thread's own heap; NULL before the first miss and after the thread's end. */
extern __thread heap_t *thread_heap __attribute__((tls_model("initial-exec")));

/* How many blocks of shared slabs the thread has had without a heap. */
extern __thread uint8_t thread_shared_blocks __attribute__((tls_model("initial-exec")));

/* Every slow path runs between thread_enter and thread_leave.  A fork's child is
 * repaired in these two: a signal handler may fork while the thread is inside, and
 * the child then ends that path first. */

/* Shows the child of another thread's fork whether this thread was inside. */
HAK_INLINE void thread_show_inside(heap_t *heap, bool inside) {
  if (HAK_LIKELY(heap != NULL)) store_relaxed(&heap->inside, inside);
  else add_relaxed(&heapless_of(thread_self())->heapless_inside, inside ? 1 : (uint32_t)-1);
}
HAK_INLINE void thread_enter(void) {
  if (thread_inside == 0 && HAK_UNLIKELY(os_forked())) heap_after_fork(thread_heap);
  thread_inside++;
  atomic_signal_fence(memory_order_seq_cst); /* else a handler's thread_leave could clear what is shown */
  if (thread_inside == 1) thread_show_inside(thread_heap, true);
  atomic_signal_fence(memory_order_seq_cst);
}
HAK_INLINE void thread_leave(void) {
  if (HAK_AUDIT && thread_inside == 1) audit_slow_path(thread_heap);
  atomic_signal_fence(memory_order_seq_cst);
  if (--thread_inside != 0) return;
  thread_show_inside(thread_heap, false);
  if (HAK_UNLIKELY(os_forked())) heap_after_fork(thread_heap);
}
/* Does what is due, then thread_leave. True if a level is to be reported to the program, where that may be done (front/notifier.h). */
bool thread_leave_with_upkeep(void);
/* The same for a path that took nothing from the space, gave nothing to it, and caches no more than the keeper knows of. What is due is
 * then no more than before, so only every eighth such call checks. */
bool thread_leave_unchanged(void);
/* Called by the fork handlers: before the fork, after it in the parent, and after it in the child. */
void thread_before_fork(void);
void thread_after_fork_here(void);
void thread_after_fork(void);

/* Takes a shared block for a thread that has no heap and can do without; NULL if it needs one. */
HAK_CHECKED void *thread_take_shared(unsigned size_class);
/* The thread's heap, attached if need be; NULL when out of memory. */
HAK_CHECKED heap_t *thread_attach(void);
/* Makes a named heap the default of the thread, which has a heap: malloc takes from it instead; with NULL, from the thread's own again. */
void thread_set_default(heap_t *named);
/* Called where a thread frees a large block that could be cached: a thread without a heap gets one, to cache them in, after a few. */
void thread_attach_to_cache(void);
/* Called where a thread frees a block of this owner's. If the thread has no heap and the owner is an orphan, that heap becomes the
 * thread's: a thread that frees one of its blocks mostly frees more. */
void thread_adopt(slab_owner_t *owner);
/* Before the loader has initialised the main thread's thread-local variables: sets what malloc needs. Calls nothing of libc's. */
void thread_start_early(void);
/* Makes threads give their heaps back when they end. Once, at start. */
void thread_watch_exits(void);
/* At the library's end, since threads that end later may not find its code any more. */
void thread_unwatch_exits(void);

#endif
