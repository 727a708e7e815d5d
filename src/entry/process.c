/* process.c - the events of a process's life: start, fork, exit. */
#include "entry/entry.h"

#include <pthread.h>

#include "front/boot.h"
#include "front/thread.h"

/* No lock is taken before a fork: a handler that did would wait for threads
 * that hold stdio's locks inside an allocation.  The child repairs instead. */

static __attribute__((constructor)) void start(void) {
  boot_finish();
  crash_watch();
  (void)pthread_atfork(NULL, NULL, thread_after_fork);
}

static __attribute__((destructor)) void end(void) {
  report_at_exit();
  thread_unwatch_exits();
}
