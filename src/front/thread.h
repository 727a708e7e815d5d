/* thread.h - the calling thread's heap. */
#ifndef FRONT_THREAD_H
#define FRONT_THREAD_H

#include "base/thread.h"
#include "os/os.h"
#include "front/audit.h"
#include "front/repair.h"

/* The heap that the fast path of malloc pops from: heap_none before the first miss and after the thread's end. */
extern __thread heap_t *thread_fast_heap __attribute__((tls_model("initial-exec")));
/* The thread's heap in any case, NULL before the first miss and after the thread's end. */
extern __thread heap_t *thread_heap __attribute__((tls_model("initial-exec")));

/* Blocks of shared slabs that the thread has had without a heap. */
extern __thread uint8_t thread_shared_blocks __attribute__((tls_model("initial-exec")));

/* Every slow path runs between thread_enter and thread_leave.  They are where a fork's child is
 * repaired: a signal handler may fork while the thread is inside, and the child
 * then first ends what was begun. */

/* What a fork's child of another thread finds: whether this one was inside. */
HAK_INLINE void thread_show_inside(heap_t *heap, bool inside) {
  if (HAK_LIKELY(heap != NULL)) store_relaxed(&heap->inside, inside);
  else add_relaxed(&heapless_of(thread_self())->heapless_inside, inside ? 1 : (uint32_t)-1);
}
HAK_INLINE void thread_enter(void) {
  if (thread_inside == 0 && HAK_UNLIKELY(os_forked())) heap_after_fork(thread_heap);
  thread_inside++;
  atomic_signal_fence(memory_order_seq_cst); /* else a handler's thread_leave takes away what is shown */
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
/* thread_leave, after giving back what is due.  True: the program is to be told of a limit, where it may be (front/plea.h). */
bool thread_leave_with_upkeep(void);
/* The same where nothing was taken from the space or given back to it, and no more is kept than the keeper knows of: something may be due,
 * but no more than before, so that every eighth such call looks. */
bool thread_leave_unchanged(void);
/* From the fork handlers: before, in the parent and in the child. */
void thread_before_fork(void);
void thread_after_fork_here(void);
void thread_after_fork(void);

/* A block for a thread that has no heap yet, and may go on so; NULL if it needs one. */
HAK_CHECKED void *thread_take_shared(unsigned size_class);
/* The thread's heap, attached if need be; NULL when out of memory. */
HAK_CHECKED heap_t *thread_attach(void);
/* Has the thread, which has a heap, take from a named one instead; from its own with NULL. */
void thread_set_stand_in(heap_t *named);
/* For a thread without a heap that frees a large block which could be kept: after a few it gets a heap to keep them in. */
void thread_attach_to_keep(void);
/* For a thread without a heap that frees a block of this owner's: an orphan's heap becomes its own. Who frees one mostly frees more. */
void thread_adopt(slab_owner_t *owner);
/* Before the loader has given the main thread's variables their values: what malloc needs.  Calls nothing of libc's. */
void thread_start_early(void);
/* Makes threads give their heaps back when they end. Once, at start. */
void thread_watch_exits(void);
/* At the library's end, whose code the threads that end later may not find any more. */
void thread_unwatch_exits(void);

#endif
