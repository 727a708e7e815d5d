/* series.c - see series.h. */
#include "series.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "harness.h"

enum { SAMPLES_MAX = 16384, JUDGED_LEAST = 3 };

static sample_t samples[SAMPLES_MAX];
static size_t sample_count;
static int table = STDOUT_FILENO;

static void table_write(const char *text) {
  ssize_t length = (ssize_t)strlen(text);
  if (write(table, text, (size_t)length) != length) stress_fail("the table cannot be written: %s", strerror(errno));
}

void series_open(const char *path) {
  char line[512];
  struct utsname system;
  const char *(*version)(void) = (const char *(*)(void))stress_symbol("hak_version");
  if (path != NULL && (table = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644)) < 0)
    stress_fail("%s: %s", path, strerror(errno));
  uname(&system);
  snprintf(line, sizeof line, "%s %s; %s %s, %s, %ld processors\n\n", version != NULL ? "hakmem" : "the system malloc",
           version != NULL ? version() : "", system.sysname, system.release, system.machine, sysconf(_SC_NPROCESSORS_ONLN));
  table_write(line);
  table_write(
      "| minute | live MiB | resident MiB | highest MiB | mappings | calls, millions | threads | forks |\n"
      "|---|---|---|---|---|---|---|---|\n");
}

static double mebibytes(size_t bytes) { return (double)bytes / (double)MIB; }

void series_add(const sample_t *sample) {
  char line[256];
  snprintf(line, sizeof line, "| %.1f | %.2f | %.2f | %.2f | %zu | %.2f | %llu | %llu |\n", sample->seconds / 60, mebibytes(sample->live),
           mebibytes(sample->resident), mebibytes(sample->highest), sample->mappings, (double)sample->calls / 1e6,
           (unsigned long long)sample->threads, (unsigned long long)sample->forks);
  table_write(line);
  if (sample_count < SAMPLES_MAX) samples[sample_count++] = *sample;
}

/* The growth an hour in percent of the mean, by least squares; `error` is its standard error. */
static double growth_of(const sample_t *first, size_t count, double *error) {
  double x = 0, y = 0, xx = 0, xy = 0, rest = 0, n = (double)count;
  for (size_t i = 0; i < count; i++) {
    x += first[i].seconds / 3600 / n;
    y += (double)first[i].resident / n;
  }
  for (size_t i = 0; i < count; i++) {
    double dx = first[i].seconds / 3600 - x;
    xx += dx * dx;
    xy += dx * ((double)first[i].resident - y);
  }
  for (size_t i = 0; i < count; i++) {
    double off = (double)first[i].resident - y - xy / xx * (first[i].seconds / 3600 - x);
    rest += off * off;
  }
  *error = 100 * sqrt(rest / (n - 2) / xx) / y;
  return 100 * xy / xx / y;
}

void series_judge(double growth, size_t mappings) {
  size_t skipped = sample_count / 4, most = 0;
  double error;
  if (sample_count - skipped < JUDGED_LEAST) stress_fail("%zu samples are too few to judge", sample_count);
  for (size_t i = 0; i < sample_count; i++) most = samples[i].mappings > most ? samples[i].mappings : most;
  double rise = growth_of(samples + skipped, sample_count - skipped, &error);
  stress_say("resident memory rises by %.3f percent an hour (standard error %.3f); at most %zu mappings", rise, error, most);
  stress_expect(rise <= growth, "resident memory rises by %.3f percent an hour, %.3f allowed", rise, growth);
  stress_expect(most < mappings, "%zu mappings", most);
}
