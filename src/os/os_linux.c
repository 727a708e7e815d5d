/* os_linux.c - os.h for Linux. */
#include "os/os.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000 /* older kernels take it for a hint, which os_map_at checks */
#endif
#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif
#ifndef MAP_NORESERVE
#define MAP_NORESERVE 0
#endif

os_counts_t os_counts;

/* An errno that cannot happen unless our own bookkeeping is wrong. */
static _Noreturn void os_broken(const char *call) {
  (void)os_write(2, "hakmem: unexpected error from ", 30);
  size_t n = 0;
  while (call[n] != '\0') n++;
  (void)os_write(2, call, n);
  (void)os_write(2, "\n", 1);
  os_abort();
}

size_t os_page_size(void) {
  static _Atomic size_t page;
  size_t bytes = atomic_seen(&page);
  if (bytes == 0) {
    bytes = (size_t)getauxval(AT_PAGESZ);
    atomic_set(&page, bytes);
  }
  return bytes;
}

uint64_t os_physical_memory(void) {
  int saved = errno;
  long pages = sysconf(_SC_PHYS_PAGES);
  errno = saved;
  return pages > 0 ? (uint64_t)pages * os_page_size() : 0;
}

uint64_t os_address_limit(void) {
  struct rlimit limit;
  atomic_count(&os_counts.other, 1);
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return UINT64_MAX;
  return limit.rlim_cur;
}

bool os_is_secure(void) { return getauxval(AT_SECURE) != 0; }

uint64_t os_random_seed(void) {
  const uint64_t *random = (const uint64_t *)getauxval(AT_RANDOM);
  return random != NULL ? random[0] ^ (random[1] << 1) : (uint64_t)(uintptr_t)&os_counts ^ os_now_ms();
}

uint64_t os_now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

void *os_reserve(size_t bytes) {
  int saved = errno;
  atomic_count(&os_counts.mmap, 1);
  void *start = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  errno = saved;
  return start == MAP_FAILED ? NULL : start;
}

bool os_commit(void *start, size_t bytes) {
  int saved = errno;
  atomic_count(&os_counts.mprotect, 1);
  bool done = mprotect(start, bytes, PROT_READ | PROT_WRITE) == 0;
  if (!done && errno != ENOMEM && errno != EAGAIN) os_broken("mprotect");
  errno = saved;
  return done;
}

os_map_t os_map_at(void *start, size_t bytes) {
  int saved = errno;
  atomic_count(&os_counts.mmap, 1);
  void *got =
      mmap(start, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  os_map_t result = OS_MAPPED;
  if (got == MAP_FAILED) {
    result = errno == EEXIST ? OS_TAKEN : OS_NOMEM;
  } else if (got != start) {
    result = OS_TAKEN;
    if (munmap(got, bytes) != 0) os_broken("munmap");
  }
  errno = saved;
  return result;
}

void *os_map(size_t bytes) {
  int saved = errno;
  atomic_count(&os_counts.mmap, 1);
  void *start = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  errno = saved;
  return start == MAP_FAILED ? NULL : start;
}

bool os_unmap(void *start, size_t bytes) {
  int saved = errno;
  atomic_count(&os_counts.munmap, 1);
  bool done = munmap(start, bytes) == 0;
  if (!done && errno != ENOMEM) os_broken("munmap");
  errno = saved;
  return done;
}

bool os_purge(void *start, size_t bytes) {
  int saved = errno;
  atomic_count(&os_counts.madvise, 1);
  bool done = madvise(start, bytes, MADV_DONTNEED) == 0;
  errno = saved;
  return done;
}

void os_yield(void) {
  int saved = errno;
  sched_yield();
  errno = saved;
}

void os_sleep_us(unsigned microseconds) {
  int saved = errno;
  struct timespec pause = {.tv_sec = 0, .tv_nsec = (long)microseconds * 1000};
  syscall(SYS_nanosleep, &pause, NULL); /* nanosleep(3) is a cancellation point */
  errno = saved;
}

bool os_write(int fd, const char *text, size_t bytes) {
  int saved = errno;
  while (bytes > 0) {
    ssize_t n = syscall(SYS_write, fd, text, bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    text += n;
    bytes -= (size_t)n;
  }
  errno = saved;
  return bytes == 0;
}

long os_read_file(const char *path, char *buffer, size_t size) {
  int saved = errno;
  long length = -1;
  int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
  if (fd >= 0) {
    size_t used = 0;
    ssize_t n = 1;
    while (used + 1 < size && n != 0) {
      n = syscall(SYS_read, fd, buffer + used, size - 1 - used);
      if (n < 0 && errno != EINTR) break;
      if (n > 0) used += (size_t)n;
    }
    buffer[used] = '\0';
    if (n >= 0) length = (long)used;
    syscall(SYS_close, fd);
  }
  errno = saved;
  return length;
}

/* 1 in the process that set it up, 0 in one forked from it since. */
static _Atomic uint32_t fork_unwatched = 1;
static _Atomic uint32_t *_Atomic fork_page = &fork_unwatched;

void os_fork_watch(void) {
  int saved = errno;
  _Atomic uint32_t *page = os_map(os_page_size());
  if (page != NULL && madvise(page, os_page_size(), MADV_WIPEONFORK) == 0) {
    atomic_set(page, 1);
    atomic_publish(&fork_page, page);
  } else if (page != NULL) {
    (void)os_unmap(page, os_page_size());
  }
  errno = saved;
}

bool os_forked(void) { return atomic_seen(atomic_take(&fork_page)) == 0; }
void os_fork_note(void) { atomic_set(atomic_take(&fork_page), 0); }
void os_fork_seen(void) { atomic_set(atomic_take(&fork_page), 1); }

void os_abort(void) { abort(); }
