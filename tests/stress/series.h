/* series.h - the samples of a long run: a table as they come, and a verdict on whether memory grew. */
#ifndef STRESS_SERIES_H
#define STRESS_SERIES_H

#include <stddef.h>
#include <stdint.h>

typedef struct sample {
  double seconds;                   /* since the start */
  size_t live, resident, highest;   /* bytes */
  size_t mappings;                  /* at most, since the last sample */
  uint64_t calls, threads, forks;   /* since the start */
} sample_t;

/* The table goes to the file `path`, or to standard output if NULL. */
void series_open(const char *path);
void series_add(const sample_t *sample);
/* Reports a failure if the resident sizes of the last three quarters rise by more than `growth` percent an hour, by a
 * straight line through them, or if there ever were `mappings` mappings. */
void series_judge(double growth, size_t mappings);

#endif
