/* library.c - the allocator in one translation unit, with numbers for threads. */
#include <stdint.h>

/* Replaces base/thread.h. */
#define BASE_THREAD_H
static uintptr_t player = 0x1000; /* never 0, which stands for no thread */
static inline uintptr_t thread_self(void) { return player; }

#include "allocator.c"
#include "entry/api.c"
#include "entry/writer.c"
#include "entry/report.c"
#include "library.h"

typedef struct thread_vars {
  heap_t *heap, *own_heap;
  uint32_t inside;
  uintptr_t self;
} thread_vars_t;

static thread_vars_t threads[THREADS];
static unsigned running;
static uintptr_t places; /* how many values of thread_self() have been used */

static void thread_make(unsigned number, uintptr_t place) { threads[number] = (thread_vars_t){&heap_none, NULL, 0, place}; }
static uintptr_t place_new(void) { return ++places * 0x1000; }

static void thread_load(void) {
  thread_fast_heap = threads[running].heap;
  thread_heap = threads[running].own_heap;
  thread_inside = threads[running].inside;
  player = threads[running].self;
}

void library_start(void) {
  store_relaxed(&options_read, true);
  for (unsigned i = 0; i < THREADS; i++) thread_make(i, place_new());
  running = 0;
  thread_load();
}

void library_watch(void) {
  trace_prepare();
  store_relaxed(&watch_always, true);
}

unsigned thread_running(void) { return running; }
uintptr_t thread_running_self(void) { return player; }

void thread_run_as(unsigned number) {
  threads[running] = (thread_vars_t){thread_fast_heap, thread_heap, thread_inside, player};
  running = number;
  thread_load();
}

void thread_end_running(thread_end_t how) {
  /* After END_UNSEEN the heap stays with this thread_self(), which the next thread therefore keeps. */
  bool elsewhere = how == END_ELSEWHERE && thread_heap != NULL;
  if (how != END_UNSEEN && thread_heap != NULL) thread_exit(thread_heap);
  thread_make(running, elsewhere ? place_new() : player);
  thread_load();
}

void thread_fork(void) {
  for (unsigned i = 0; i < THREADS; i++) {
    if (i != running) thread_make(i, place_new());
  }
  thread_before_fork();
  thread_after_fork();
}

void thread_escape(void) { thread_inside = 0; }
