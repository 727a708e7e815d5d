/* harness.h - what the stress programs share.
 *
 * Arguments (--name=value, or STRESS_NAME in the environment), a printed seed,
 * random numbers, memory that does not come from malloc, figures of the
 * process, and a watchdog against hangs.  Nothing here calls malloc after
 * stress_init, so the programs measure and disturb only themselves.
 *
 * The programs call the C library's names.  One binary thus runs on any
 * malloc: as it is, under LD_PRELOAD, or linked with hakmem.
 */
#ifndef STRESS_HARNESS_H
#define STRESS_HARNESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hakmem/hakmem.h"

#define KIB ((size_t)1024)
#define MIB (KIB * KIB)

/* ---- Arguments ---- */

/* Reads the arguments, prints the name and the seed.  Call it first in main. */
void stress_init(int argc, char **argv);
/* The value of --name=value, else of STRESS_<NAME>, else `otherwise`. Takes K, M and G suffixes. */
uint64_t stress_option(const char *name, uint64_t otherwise);
/* The same for how much is to be done, of which --share=N does the Nth part. */
uint64_t stress_count(const char *name, uint64_t otherwise);
/* The same for words; the result lives as long as the process. */
const char *stress_word(const char *name, const char *otherwise);
uint64_t stress_seed(void);

/* ---- Results ---- */

/* Prints one line with the seed on standard error and ends the process with abort. */
_Noreturn void stress_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Prints one line on standard output, without a buffer and without malloc. */
void stress_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Reports a failure and goes on; stress_finish then returns 1. */
void stress_expect(bool good, const char *format, ...) __attribute__((format(printf, 2, 3)));
int stress_finish(void);

/* The process aborts with a line naming `what` unless this is called again
 * within `seconds`; 0 ends the watch.  For hangs only, never for slowness. */
void stress_watch(unsigned seconds, const char *what);

/* ---- Random numbers: splitmix64 ---- */

typedef struct rng {
  uint64_t state;
} rng_t;

static inline uint64_t rng_mix(uint64_t value) {
  value = (value ^ (value >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  value = (value ^ (value >> 27)) * UINT64_C(0x94d049bb133111eb);
  return value ^ (value >> 31);
}

static inline uint64_t rng_next(rng_t *rng) {
  rng->state += UINT64_C(0x9e3779b97f4a7c15);
  return rng_mix(rng->state);
}

/* Uniform in [0, bound), bound < 2^32. */
static inline uint32_t rng_below(rng_t *rng, uint32_t bound) { return (uint32_t)(((rng_next(rng) >> 32) * bound) >> 32); }

static inline bool rng_one_in(rng_t *rng, uint32_t n) { return rng_below(rng, n) == 0; }

/* The random numbers of one thread: a stream of its own for each `stream`. */
rng_t rng_make(uint64_t stream);
/* Log-uniform in [0, 2^bits): the number of significant bits is uniform in 0..bits. */
static inline size_t rng_size(rng_t *rng, unsigned bits) {
  unsigned width = rng_below(rng, bits + 1);
  return width == 0 ? 0 : ((size_t)1 << (width - 1)) | (size_t)(rng_next(rng) & (((uint64_t)1 << (width - 1)) - 1));
}

/* ---- Memory that does not come from malloc ---- */

/* Zeroed pages; ends the process when there are none. Never given back. */
void *pages_take(size_t size);
/* The same, for `threads` stacks of pthread_attr_setstack. */
size_t pages_round(size_t size);

/* ---- Figures of the process ---- */

size_t process_resident(void); /* bytes, from /proc/self/statm */
size_t process_virtual(void);  /* bytes */
size_t process_status(const char *field); /* bytes, a kB line of /proc/self/status such as "VmHWM" */
uint64_t process_faults(void); /* minor faults so far */
uint64_t clock_ns(void);

/* ---- hakmem's own names, found at run time ---- */

/* The function `name` of the malloc in use, or NULL where it has none. */
typedef void (*stress_function_t)(void);
stress_function_t stress_symbol(const char *name);
/* True if the process runs on hakmem; fails if --expect=hakmem was given and it does not. */
bool stress_on_hakmem(void);
/* hakmem's statistics; false on another malloc. */
bool stress_stats(hak_stats_t *stats);
/* malloc_trim(0), or -1 where the malloc in use has none, as musl's. */
int stress_trim(void);

#endif
