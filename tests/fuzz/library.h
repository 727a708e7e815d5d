/* library.h - the allocator as the targets see it: over the fake kernel, and with threads that are numbers.
 *
 * One thread of the system plays them all, one after the other: in lock-step nothing is lost by it, and a run is the same each
 * time.  A thread is what the allocator knows of one: a thread pointer and three variables. */
#ifndef TESTS_FUZZ_LIBRARY_H
#define TESTS_FUZZ_LIBRARY_H

#include <stdbool.h>
#include <stdint.h>

enum { THREADS = 4 };

typedef enum thread_end {
  END_ELSEWHERE, /* the next thread of this number has another place */
  END_IN_PLACE,  /* it has the same */
  END_UNSEEN     /* the same, and nothing of ours runs when the thread ends */
} thread_end_t;

/* Before all else: nothing is read from the environment. */
void library_start(void);
/* Small allocations are watched from now on, before the first one. */
void library_watch(void);
void thread_run_as(unsigned number);
unsigned thread_running(void);
uintptr_t thread_running_self(void); /* its thread_self() */
void thread_end_running(thread_end_t how);
/* As in a fork's child: all but the running thread are gone. */
void thread_fork(void);
/* The running thread has left the allocator by os_abort. */
void thread_escape(void);

#endif
