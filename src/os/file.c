#include "os/file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>

#include "os/syscall.h"

/* <linux/close_range.h>, which not every libc has; the number is the same on all processors. */
enum { CALL_CLOSE_RANGE = 436, CLOSE_UNSHARED = 2 };

/* One call unshares and closes, so that no descriptor of the program stays open in between. */
HAK_COLD bool file_apart(void) { return syscall_3(CALL_CLOSE_RANGE, 0, UINT32_MAX, CLOSE_UNSHARED) == 0; }

static int or_none(long file) { return syscall_failed(file) ? -1 : (int)file; }

HAK_COLD int file_open(const char *path) {
  return or_none(syscall_6(SYS_openat, AT_FDCWD, (long)path, O_RDONLY | O_CLOEXEC | O_NOCTTY, 0, 0, 0));
}

/* If the first thread has ended, the list of the process is empty.  It is still tried first, since emulators provide no other. */
HAK_COLD int file_mappings(void) {
  char byte;
  int file = file_open("/proc/self/maps");
  if (file_pread(file, &byte, 1, 0) == 1) return file;
  file_close(file);
  return file_open("/proc/thread-self/maps");
}

HAK_COLD int file_memory(const char *name) { return or_none(syscall_3(SYS_memfd_create, (long)name, 1 /* closed by exec */, 0)); }

HAK_COLD void file_close(int file) {
  if (file >= 0) (void)syscall_3(SYS_close, file, 0, 0);
}

HAK_COLD long file_pread(int file, void *to, size_t bytes, uint64_t from) {
  long count;
  do count = file < 0 ? -EBADF : syscall_6(SYS_pread64, file, (long)to, (long)bytes, (long)from, 0, 0);
  while (count == -EINTR);
  return count < 0 ? -1 : count;
}

HAK_COLD bool file_pwrite(int file, const void *from, size_t bytes, uint64_t to) {
  return file >= 0 && syscall_6(SYS_pwrite64, file, (long)from, (long)bytes, (long)to, 0, 0) == (long)bytes;
}

HAK_COLD bool file_owner_is_there(uint64_t process) {
  return process == 0 || process > INT32_MAX || syscall_3(SYS_kill, (long)process, 0, 0) != -ESRCH;
}

HAK_COLD bool file_copy(int memory, void *to, const void *from, size_t bytes) {
  if (!file_pwrite(memory, from, bytes, 0)) return false;
  return syscall_6(SYS_pread64, memory, (long)to, (long)bytes, 0, 0, 0) == (long)bytes;
}

/* Truncating is safe: a process that has the file mapped would hold the lock.  Not every file system can reserve space; if it cannot, a
 * full disk shows only later. */
static bool make_empty(int file, size_t bytes) {
  if (syscall_3(SYS_ftruncate, file, 0, 0) != 0 || syscall_3(SYS_ftruncate, file, (long)bytes, 0) != 0) return false;
  long result = syscall_6(SYS_fallocate, file, 0, 0, (long)bytes, 0, 0);
  if (result == 0 || result == -EOPNOTSUPP || result == -ENOSYS) return true;
  (void)syscall_3(SYS_ftruncate, file, 0, 0);
  return false;
}

HAK_COLD void *file_share(const char *path, size_t bytes, bool *taken) {
  *taken = false;
  int file = or_none(syscall_6(SYS_openat, AT_FDCWD, (long)path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0600, 0, 0));
  if (file < 0) return NULL;
  long locked = syscall_3(SYS_flock, file, LOCK_EX | LOCK_NB, 0), start = -1;
  *taken = locked == -EWOULDBLOCK;
  if (locked == 0 && make_empty(file, bytes)) {
    start = syscall_6(SYS_mmap, 0, (long)bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0); /* the mapping holds the lock from here on */
  }
  file_close(file);
  if (syscall_failed(start)) return NULL;
  if (syscall_3(SYS_madvise, start, (long)bytes, MADV_DONTFORK) == 0) return (void *)start;
  (void)syscall_3(SYS_munmap, start, (long)bytes, 0);
  return NULL;
}
