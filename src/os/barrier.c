/* barrier.c - a memory barrier in all threads, issued by the kernel. */
#include <errno.h>

#include "os/memcheck.h"
#include "os/os.h"
#include "os/syscall.h"

/* ThreadSanitizer does not know the kernel's barriers. */
#if defined(RACY_ATOMIC)
#define BARRIER_UNSEEN true
#else
#define BARRIER_UNSEEN false
#endif

/* Commands of membarrier, private to the process; a barrier for all processes would wait for the kernel's next grace period. */
enum { BARRIER_PROCESS = 8, BARRIER_REGISTER = 16 };

bool os_barrier(void) {
  if (BARRIER_UNSEEN || valgrind_on() || load_relaxed(&os_filters) != 0 || os_started_filtered()) return false;
  long result = syscall_3(SYS_membarrier, BARRIER_PROCESS, 0, 0);
  if (result == -EPERM && syscall_3(SYS_membarrier, BARRIER_REGISTER, 0, 0) == 0) result = syscall_3(SYS_membarrier, BARRIER_PROCESS, 0, 0);
  add_relaxed(&os_counts.other, 1);
  return result == 0;
}
