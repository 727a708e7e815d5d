#include "common.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <unistd.h>

void compat_option(const char *name, int64_t value) {
  char variable[32] = "HAKMEM_";
  size_t at = strlen(variable);
  for (const char *c = name; *c != '\0' && at < sizeof variable - 1; c++) variable[at++] = (char)(*c >= 'a' && *c <= 'z' ? *c - 32 : *c);
  if (secure_getenv(variable) != NULL) return;
  int saved = errno;
  (void)hak_option_set(name, value); /* what is out of range leaves the default */
  errno = saved;
}

/* By way of a file: a pipe that nobody reads meanwhile would fill up. */
bool compat_capture(bool (*write)(int fd), compat_text_fn *out, void *to) {
  int saved = errno;
  int fd = memfd_create("report", MFD_CLOEXEC);
  if (fd < 0) return false;
  bool done = write(fd) && lseek(fd, 0, SEEK_SET) == 0;
  char text[4096];
  for (ssize_t n; done && (n = read(fd, text, sizeof text - 1)) > 0;) {
    text[n] = '\0';
    out(to, text);
  }
  close(fd);
  errno = saved;
  return done;
}
