/* clock.c - the times of os.h. */
#include <sys/syscall.h>
#include <time.h>

#include "os/os.h"
#include "os/syscall.h"

/* A library that is preloaded may have put its own clock_gettime before libc's, and use thread-local variables there, which our thread does
 * not have.  The program's threads call that one: a filter of the program's may not permit the system call. */
HAK_INLINE struct timespec time_by(clockid_t clock) {
  struct timespec now = {0};
  if (HAK_UNLIKELY(os_thread_is_ours())) (void)syscall_3(SYS_clock_gettime, clock, (long)&now, 0);
  else (void)clock_gettime(clock, &now);
  return now;
}

uint64_t os_now_ms(void) {
  struct timespec now = time_by(CLOCK_MONOTONIC_COARSE);
  return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

uint64_t os_wall_ns(void) {
  struct timespec now = time_by(CLOCK_REALTIME);
  return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}
