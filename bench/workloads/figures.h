/* figures.h - for what a workload measures itself, besides the time and the memory that the runner measures.
 *
 *   figure: NAME: VALUE UNIT   something to be judged: less is better
 *   fact: NAME: VALUE UNIT     a condition of the run, not judged
 *
 * The unit is ns, KiB, or none for a count. A line follows the result line; the runner and the report take it from there.
 */
#ifndef BENCH_FIGURES_H
#define BENCH_FIGURES_H

#include <fcntl.h>
#include <unistd.h>

#include "workload.h"

static inline void workload_figure(const char *name, double value, const char *unit) { printf("figure: %s: %.1f %s\n", name, value, unit); }

static inline void workload_fact(const char *name, double value, const char *unit) { printf("fact: %s: %.1f %s\n", name, value, unit); }

/* A line of this process's status in KiB, such as "VmRSS:"; read without malloc, so that an idle allocator stays idle. */
static inline uint64_t workload_status_kib(const char *line) {
  char text[8192];
  int file = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
  ssize_t size = file < 0 ? -1 : read(file, text, sizeof text - 1);
  if (size <= 0) workload_fail("/proc/self/status can't be read");
  close(file);
  text[size] = 0;
  const char *found = strstr(text, line);
  if (found == NULL) workload_fail("/proc/self/status lacks a line");
  return strtoull(found + strlen(line), NULL, 10);
}

static inline uint64_t workload_resident_kib(void) { return workload_status_kib("VmRSS:"); }

static inline void workload_sleep(uint64_t nanoseconds) {
  struct timespec left = {.tv_sec = (time_t)(nanoseconds / 1000000000), .tv_nsec = (long)(nanoseconds % 1000000000)};
  while (nanosleep(&left, &left) != 0);
}

#endif
