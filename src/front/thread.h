/* thread.h - the calling thread's heap. */
#ifndef FRONT_THREAD_H
#define FRONT_THREAD_H

#include "front/heap.h"

/* The heap that the fast path of malloc pops from: heap_none before the first
 * miss, after the thread's end, and while every allocation is to be counted. */
extern __thread heap_t *thread_heap __attribute__((tls_model("initial-exec")));
/* The thread's heap in any case, NULL before the first miss and after the thread's end. */
extern __thread heap_t *thread_own_heap __attribute__((tls_model("initial-exec")));

/* The thread's heap, attached if need be; NULL when out of memory. */
HAK_CHECKED heap_t *thread_attach(void);
/* Counts every allocation of heaps attached from now on: malloc then always misses. */
void thread_count_all(void);
/* Makes threads give their heaps back when they end. Once, at start. */
void thread_watch_exits(void);

#endif
