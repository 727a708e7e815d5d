/* sandboxed.c - a process that may write no files and is under a filter, like sshd's children: its reports at exit must not end it.
 * Run with HAKMEM_STATS=1 and with HAKMEM_PROFILE. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "filter.h"

static int skipped(const char *why) { return printf("skipped: sandboxed: %s\n", why), 0; }

int main(void) {
  static filter_t filter;
  FILE *file = tmpfile(); /* in place of standard error: for a pipe there is no limit */
  const struct rlimit none = {0, 0};
  if (file == NULL || dup2(fileno(file), STDERR_FILENO) != STDERR_FILENO) return skipped("no file");
  if (setrlimit(RLIMIT_FSIZE, &none) != 0) return skipped("no limit");
  filter_answer(&filter, FILTER_ALLOWED);
  const char *why = filter_install(&filter, false);
  if (why != NULL) return skipped(why);
  free(malloc(1000));
  return 0;
}
