/* barred.c - preloaded into a command it bars what Yama bars: to open and to read the memory of another process. What /proc tells of a
 * process beside that stays open, and the memory that the command itself has. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>

static bool is_memory(const char *path) {
  size_t length = strlen(path);
  return strncmp(path, "/proc/", 6) == 0 && length > 4 && strcmp(path + length - 4, "/mem") == 0;
}

#define OPENS(name)                                                                                 \
  int name(const char *path, int flags, ...) {                                                      \
    va_list words;                                                                                  \
    va_start(words, flags);                                                                         \
    mode_t mode = va_arg(words, mode_t);                                                            \
    va_end(words);                                                                                  \
    if (is_memory(path)) {                                                                          \
      errno = EACCES;                                                                               \
      return -1;                                                                                    \
    }                                                                                               \
    int (*next)(const char *, int, ...) = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, #name); \
    return next(path, flags, mode);                                                                 \
  }
OPENS(open)
OPENS(open64)

ssize_t process_vm_readv(pid_t process, const struct iovec *local, unsigned long locals, const struct iovec *remote, unsigned long remotes,
                         unsigned long flags) {
  (void)process, (void)local, (void)locals, (void)remote, (void)remotes, (void)flags;
  errno = EPERM;
  return -1;
}
