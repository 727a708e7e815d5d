#include "front/thread.h"

#include <limits.h>
#include <pthread.h>

#include "os/memcheck.h"
#include "os/module.h"
#include "kit/options.h"
#include "kit/pressure.h"
#include "kit/request.h"
#include "space/ledger.h"
#include "space/purge.h"
#include "space/dontfork.h"
#include "slab/hole.h"
#include "slab/remote.h"
#include "front/heaps.h"
#include "front/keeper.h"
#include "front/limits.h"
#include "front/repair.h"
#include "front/shared.h"
#include "front/supply.h"
#include "front/watch.h"

__thread heap_t *thread_fast_heap = &heap_none;
__thread heap_t *thread_heap;
__thread uint8_t thread_shared_blocks;
static __thread uint8_t thread_large_frees __attribute__((tls_model("initial-exec")));
static __thread uint8_t thread_exits __attribute__((tls_model("initial-exec"))); /* the round of destructors that the thread is in */

static pthread_key_t exit_key;
static _Atomic bool exits_watched;

/* At this free of a large block a thread without a heap gets one. */
#define LARGE_FREES_FIRST 4

/* How many heaps are checked at a peak. */
#define HOLE_HEAPS 64

/* Whether much has become free inside slabs since holes were last looked for. A call adds up a few heaps. */
static bool holes_are_worth_it(void) {
  static struct {
    HAK_ALIGNED(HAK_CACHE_LINE) heap_t *_Atomic at;
    _Atomic int64_t unsettled, free_bytes;
    _Atomic bool worth;
  } look;
  heap_t *heap = load_relaxed(&look.at);
  if (heap == NULL) heap = heap_first();
  int64_t unsettled = 0, free_bytes = 0; /* others write to the shared words too: one update a call, not one for each heap */
  for (unsigned i = 0; i < HOLE_HEAPS && heap != NULL; i++, heap = load_relaxed(&heap->next)) {
    unsettled += hole_bytes_since_look(&heap->owner);
    free_bytes += load_relaxed(&heap->owner.free_bytes);
  }
  add_relaxed(&look.unsettled, unsettled);
  add_relaxed(&look.free_bytes, free_bytes);
  store_relaxed(&look.at, heap);
  if (heap == NULL) {
    int64_t fresh = atomic_exchange(&look.unsettled, 0);
    int64_t used = (int64_t)(ledger_used_units() << HAK_UNIT_SHIFT) - atomic_exchange(&look.free_bytes, 0);
    store_relaxed(&look.worth, fresh > HOLE_WORTH && fresh > used / 100 * option_get(OPTION_idle_percent));
  }
  return load_relaxed(&look.worth);
}

/* When the heap grows, what is free inside slabs goes back too if it has become much. */
static void purge_new_holes(void) {
  static _Atomic uint64_t settled;
  uint64_t units = purge_peak_units(), before = load_relaxed(&settled);
  if (before >= units) return; /* another thread may have seen more */
  store_relaxed(&settled, units);
  bool near = pressure_now() >= PRESSURE_NEAR;
  if (!near && !purge_growth_pays()) return;
  (void)hole_round_part(near || holes_are_worth_it(), (uint32_t)(units - before));
}

/* Serves a request from outside. Not in a signal handler within a slow path, which may hold a lock that this would wait for. */
static HAK_COLD void collect_as_asked(void) {
  uint64_t number;
  if (thread_inside != 1 || !request_take(&number)) return;
  (void)heap_collect(thread_heap, true);
  request_finish(number);
}

/* Called on a slow path, which shows itself as one with a heap or without. A signal handler may have set the same heap just before. */
static void thread_heap_set(heap_t *heap) {
  heap_t *before = thread_heap;
  if (before == heap) return;
  thread_show_inside(heap, true);
  thread_heap = heap;
  thread_show_inside(before, false);
}

/* First the lock: a signal handler that allocates now ends the process at it, rather than take the heap again. */
static HAK_NOINLINE void give_heap_up(heap_t *heap) {
  heap_lock(heap);
  thread_fast_heap = &heap_none;
  thread_heap_set(NULL);
  heap_set_default(heap, NULL);
  heap_detach(heap);
}

/* After the last round nobody takes a heap from the thread. So it has one only for a call, or while a named heap is its default. */
static bool is_in_last_round(void) { return thread_exits >= PTHREAD_DESTRUCTOR_ITERATIONS; }
static bool keeps_heap_too_long(void) {
  return is_in_last_round() && thread_inside == 1 && thread_heap != NULL && thread_heap->default_heap == NULL;
}

static void leave(void) {
  if (HAK_UNLIKELY(load_relaxed(&os_end_pending) == 1) && thread_inside == 1) os_end_finish(); /* deeper, a lock may be held */
  if (HAK_UNLIKELY(keeps_heap_too_long())) give_heap_up(thread_heap);
  if (thread_heap != NULL) heap_tick(thread_heap);
  keeper_call(thread_heap);
  watch_due();
  if (HAK_UNLIKELY(request_waits())) collect_as_asked();
  thread_leave();
}

static _Atomic uint64_t epoch_seen;

/* A thread that frees may not call the program back, so what is to be reported stays due until a thread allocates. */
static HAK_NOINLINE bool leave_in_new_epoch(uint64_t epoch) {
  store_relaxed(&epoch_seen, epoch);
  limits_due(thread_heap);
  purge_new_holes();
  bool to_report = load_relaxed(&pressure.to_report) != (uint32_t)PRESSURE_NONE;
  if (to_report) purge_epoch_advance();
  leave();
  return to_report;
}

bool thread_leave_with_upkeep(void) {
  remote_catch_up();
  (void)(keeper_is_there() ? purge_growth_due() : purge_due());
  uint64_t epoch = purge_epoch();
  if (HAK_UNLIKELY(epoch != load_relaxed(&epoch_seen))) return leave_in_new_epoch(epoch);
  leave();
  return false;
}

#define UNCHANGED_EVERY 8 /* divides TICK_EVERY of supply.c: the slow paths that read the clock are among those that check */
bool thread_leave_unchanged(void) {
  heap_t *heap = thread_heap;
  if (heap == NULL || load_relaxed(&heap->slow_paths) % UNCHANGED_EVERY == 0) return thread_leave_with_upkeep();
  owner_add(&heap->slow_paths, 1);
  thread_leave();
  return false;
}

/* The loader sets the values later, and the thread then finds its heap again: heap_attach. */
void thread_start_early(void) {
  if (thread_fast_heap == NULL) thread_fast_heap = &heap_none;
}

/* Makes thread_exit run at the thread's end; `any` is not NULL. It may allocate. */
static void watch_exit(const heap_t *any) {
  if (load_acquire(&exits_watched)) (void)pthread_setspecific(exit_key, any);
}

/* Runs in each round of the destructors of a thread that has allocated: a later destructor may allocate. */
static void thread_exit(void *any) {
  if (++thread_exits < PTHREAD_DESTRUCTOR_ITERATIONS) watch_exit(any);
  if (thread_heap == NULL) return;
  thread_enter();
  give_heap_up(thread_heap);
  (void)thread_leave_with_upkeep();
}

void thread_watch_exits(void) {
  /* Without a key, the next thread at the same address takes the heap over: heap_attach. */
  if (pthread_key_create(&exit_key, thread_exit) != 0) return;
  store_release(&exits_watched, true);
  if (thread_heap != NULL) (void)pthread_setspecific(exit_key, thread_heap); /* main mostly has a heap by now, and may end first */
}

void thread_unwatch_exits(void) {
  if (atomic_exchange(&exits_watched, false)) (void)pthread_key_delete(exit_key);
}

/* The repair waits for the child's first slow path: most children have none. */
void thread_before_fork(void) { heap_show_fork(thread_heap, true); }
void thread_after_fork_here(void) { heap_show_fork(thread_heap, false); }
void thread_after_fork(void) {
  os_fork_note_libc();
  module_after_fork();
  heap_note_fork(thread_heap);
  if (HAK_SECURE) dontfork_expect(); /* free clears a block before any slow path */
}

void *thread_take_shared(unsigned size_class) {
  if (thread_heap != NULL || watch_wanted() || memcheck_on()) return NULL;
  if (HAK_UNLIKELY(is_in_last_round())) thread_shared_blocks = 1; /* as many as it wants */
  void *block = heap_take_shared(size_class, &thread_shared_blocks, false);
  if (thread_shared_blocks == 1) watch_exit(&heap_none); /* it may get a heap as late as in a destructor */
  return block;
}

/* For a thread that was about to get a heap and has got one from a signal handler meanwhile: keeps `heap`, leaves the other. */
static HAK_COLD heap_t *keep_one(heap_t *heap, heap_t *other) {
  if (other == NULL || other == heap) return heap;
  heap_lock(other);
  heap_detach(other);
  return heap;
}

static heap_t *attach_to(const heap_t *wanted) {
  if (thread_heap != NULL) return thread_heap;
  heap_t *heap = heap_attach(wanted);
  if (HAK_UNLIKELY(thread_heap != NULL)) return keep_one(thread_heap, heap);
  if (heap == NULL) return NULL;
  /* Before pthread_setspecific, which may allocate. */
  thread_heap_set(heap);
  if (load_relaxed(&heap->watched) != watch_wanted()) watch_heap(heap);
  thread_fast_heap = heap;
  watch_exit(heap);
  return heap;
}

heap_t *thread_attach(void) { return attach_to(NULL); }

void thread_set_default(heap_t *named) {
  heap_set_default(thread_heap, named);
  thread_fast_heap = named != NULL ? &heap_none : thread_heap;
}

void thread_attach_to_cache(void) {
  if (thread_heap == NULL && thread_exits == 0 && ++thread_large_frees >= LARGE_FREES_FIRST) (void)attach_to(NULL);
}

/* After the thread's end nothing would take the heap from it again. */
void thread_adopt(slab_owner_t *owner) {
  if (thread_heap != NULL || thread_exits != 0 || owner == NULL) return;
  const heap_t *heap = heap_of(owner);
  if (load_relaxed(&heap->state) == HEAP_ORPHAN) (void)attach_to(heap);
}
