/* old_calls.c - checks that old_kernel refuses everything that the kernel of VERSION lacks, and nothing that it has.
 *
 *   old_kernel VERSION old_calls VERSION */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <unistd.h>

enum { RSEQ = 334, CLONE3 = 435, CLOSE_RANGE = 436, PROCESS_MADVISE = 440, BYTES = 64 << 10 };

static char *pages;

/* 0, or the error that a call failed with. */
static int error_of(long result) { return result == -1 ? errno : 0; }
static int call(long number, long a, long b, long c) { return error_of(syscall(number, a, b, c, 0, 0, 0)); }
static int advice(int number) { return call(SYS_madvise, (long)pages, BYTES, number); }

static int moved(void) { return error_of(syscall(SYS_mremap, pages, BYTES, BYTES, MREMAP_MAYMOVE | 4 /* DONTUNMAP */, 0)); }

/* If the flag is unknown, the address is only a hint. */
static int not_replaced(void) {
  long got = syscall(SYS_mmap, pages, BYTES, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | 0x100000, -1, 0);
  return got == -1 ? errno : got == (long)pages ? EFAULT : 0;
}

static int opened(const char *path) { return error_of(open(path, O_RDONLY)); }

static int copied(void) {
  char from = 1, to = 0;
  struct iovec source = {&from, 1}, target = {&to, 1};
  return process_vm_readv(getpid(), &target, 1, &source, 1, 0) == 1 && to == 1 ? 0 : ENOSYS;
}

static bool wrong(const char *name, int since, int version, int running, int error, int before, int after) {
  if (version >= since && running < since) return false; /* this machine's kernel lacks it too */
  int wanted = version >= since ? after : before;
  if (error != wanted) fprintf(stderr, "%s: %s, not %s\n", name, strerror(error), strerror(wanted));
  return error != wanted;
}

static int number_of(const char *version) {
  char *rest;
  long major = strtol(version, &rest, 10);
  return (int)(100 * major + (*rest == '.' ? strtol(rest + 1, NULL, 10) : 0));
}

int main(int argc, char **argv) {
  struct utsname machine;
  pages = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (argc != 2 || pages == MAP_FAILED || uname(&machine) != 0) return 2;
  int version = number_of(argv[1]), running = number_of(machine.release), faults = 0;
  if (prctl(PR_GET_SECCOMP) > 0) running = 0; /* under a filter it is not known what the test itself is refused */
  int unknown = version < 403 ? ENOSYS : EINVAL; /* of membarrier, whose commands were added one by one */
#define SEE(since, expression, before, after) faults += wrong(#expression, since, version, running, expression, before, after)
  SEE(302, copied(), ENOSYS, 0);
  SEE(317, call(SYS_getrandom, (long)pages, 8, 0), ENOSYS, 0);
  SEE(317, call(SYS_memfd_create, (long)"", 0, 0), ENOSYS, 0);
  SEE(317, opened("/proc/thread-self/status"), ENOENT, 0);
  SEE(403, call(SYS_membarrier, 0, 0, 0), ENOSYS, 0);
  SEE(411, call(SYS_statx, -1, (long)"", -1), ENOSYS, EINVAL);
  SEE(414, call(SYS_membarrier, 16, 0, 0), unknown, 0);
  SEE(414, call(SYS_membarrier, 8, 0, 0), unknown, 0);
  SEE(414, advice(18 /* WIPEONFORK */), EINVAL, 0);
  SEE(414, opened("/proc/self/smaps_rollup"), ENOENT, 0);
  SEE(417, not_replaced(), 0, EEXIST);
  SEE(418, call(RSEQ, 0, 0, -1), ENOSYS, EINVAL);
  SEE(503, call(CLONE3, 0, 0, 0), ENOSYS, EINVAL);
  SEE(504, advice(20 /* COLD */), EINVAL, 0);
  SEE(507, moved(), EINVAL, 0);
  SEE(509, call(CLOSE_RANGE, 9, 1, 0), ENOSYS, EINVAL);
  SEE(510, call(PROCESS_MADVISE, -1, 0, 0), ENOSYS, EBADF);
  SEE(514, advice(23 /* POPULATE_WRITE */), EINVAL, 0);
  SEE(613, advice(102 /* GUARD_INSTALL */), EINVAL, 0);
  if (faults == 0) printf("old_calls: as Linux %s\n", argv[1]);
  return faults != 0;
}
