/* library.h - the allocator for the targets: over the fake kernel, and with numbers for threads.
 *
 * One real thread plays all of them, one operation at a time.  Since the operations are not concurrent, this loses nothing, and
 * every run is the same.  A thread consists of what the allocator knows of it: a thread pointer and three variables. */
#ifndef TESTS_FUZZ_LIBRARY_H
#define TESTS_FUZZ_LIBRARY_H

#include <stdbool.h>
#include <stdint.h>

enum { THREADS = 4 };

typedef enum thread_end {
  END_ELSEWHERE, /* the next thread of this number has another thread pointer */
  END_IN_PLACE,  /* it has the same thread pointer */
  END_UNSEEN     /* it has the same, and the allocator does not notice that the thread ends */
} thread_end_t;

/* Called first: nothing is read from the environment. */
void library_start(void);
/* Called before the first allocation: small allocations are watched from now on. */
void library_watch(void);
void thread_run_as(unsigned number);
unsigned thread_running(void);
uintptr_t thread_running_self(void); /* the running thread's thread_self() */
void thread_end_running(thread_end_t how);
/* Continues as in a fork's child: all threads except the running one are gone. */
void thread_fork(void);
/* Called after the running thread has left the allocator by os_abort. */
void thread_escape(void);

#endif
