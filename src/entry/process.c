/* process.c - the events of a process's life: start, fork, a lowered limit, exit. */
#include "entry/entry.h"

#include <pthread.h>
#include <stdarg.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "front/boot.h"
#include "front/secure.h"
#include "front/thread.h"
#include "space/region.h"

/* No lock is taken before a fork: a handler that did would wait for threads
 * that hold stdio's locks inside an allocation.  The child repairs instead. */

static __attribute__((constructor)) void start(void) {
  boot_finish();
  crash_watch();
  (void)pthread_atfork(NULL, NULL, thread_after_fork);
}

static __attribute__((destructor)) void end(void) {
  if (HAK_SECURE) secure_check();
  report_at_exit();
  thread_unwatch_exits();
}

#if HAK_OVERRIDE

static void release_reserve(void) {
  thread_enter();
  region_release_reserve();
  thread_leave();
}

/* A limit on addresses counts what is only reserved: that part goes first, or
 * the program could not even grow its stack. */
static int set_limit(pid_t pid, int resource, const struct rlimit *wanted, struct rlimit *old) {
  if (resource == RLIMIT_AS && wanted != NULL && wanted->rlim_cur != RLIM_INFINITY && (pid == 0 || pid == getpid())) {
    release_reserve();
  }
  return (int)syscall(SYS_prlimit64, pid, resource, wanted, old);
}

/* Under names of our own, since libc's headers spell these types in several ways. */
#define LIBC_NAME(name) __asm__(name)
HAK_API int lock_all(int flags) LIBC_NAME("mlockall");
HAK_API int set_own(int resource, const struct rlimit *limit) LIBC_NAME("setrlimit");
HAK_API int set_own64(int resource, const struct rlimit *limit) LIBC_NAME("setrlimit64");
HAK_API int set_any(pid_t pid, int resource, const struct rlimit *limit, struct rlimit *old) LIBC_NAME("prlimit");
HAK_API int set_any64(pid_t pid, int resource, const struct rlimit *limit, struct rlimit *old) LIBC_NAME("prlimit64");

_Static_assert(sizeof(rlim_t) == 8, "setrlimit and setrlimit64 take the same structure");
/* The limit on locked memory counts the reserve as well, and locking would fill it. */
int lock_all(int flags) {
  release_reserve();
  return (int)syscall(SYS_mlockall, flags);
}
int set_own(int resource, const struct rlimit *limit) { return set_limit(0, resource, limit, NULL); }
int set_own64(int resource, const struct rlimit *limit) { return set_limit(0, resource, limit, NULL); }
int set_any(pid_t pid, int resource, const struct rlimit *limit, struct rlimit *old) { return set_limit(pid, resource, limit, old); }
int set_any64(pid_t pid, int resource, const struct rlimit *limit, struct rlimit *old) { return set_limit(pid, resource, limit, old); }

#endif
