/* guards.h - whether the kernel has light guards, which came with Linux 6.13. */
#ifndef TESTS_SUPPORT_GUARDS_H
#define TESTS_SUPPORT_GUARDS_H

#include <stdbool.h>
#include <sys/mman.h>
#include <unistd.h>

static inline bool guards_are_light(void) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  void *at = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return at != MAP_FAILED && madvise(at, page, 102 /* MADV_GUARD_INSTALL */) == 0;
}

#endif
