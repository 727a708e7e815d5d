/* end.c - the end of the process because of a fault.
 *
 * libc does not know the thread of os_thread_start, and its filter lets it neither write nor raise a signal.  So it leaves its line
 * (line.c) and ends, and the next thread that comes by ends the process: os_end_if_pending. */
#include <signal.h>
#include <stdlib.h>

#include "os/os.h"
#include "os/syscall.h"

_Atomic uintptr_t os_aborting;
_Atomic uintptr_t os_own_thread;
_Atomic uint32_t os_end_pending;

/* The thread's locks stay taken; lock_acquire calls os_end_if_pending while it waits. */
static HAK_COLD _Noreturn void leave_the_end(void) {
  store_release(&os_end_pending, 1u);
  for (;;) (void)syscall_3(SYS_exit, 0, 0, 0);
}

void os_abort(void) {
  if (os_thread_is_ours()) leave_the_end();
  store_relaxed(&os_aborting, thread_self());
  abort();
}

void os_end(void) {
  struct sigaction standard = {.sa_handler = SIG_DFL};
  if (os_thread_is_ours()) leave_the_end();
  (void)sigaction(SIGABRT, &standard, NULL);
  abort();
}
