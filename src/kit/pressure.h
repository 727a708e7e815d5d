/* pressure.h - how near the memory's limits are, as far as was last seen, and what that changes.
 *
 * front/limits.c writes it; every layer below reads one word.  While the level is PRESSURE_FAR nothing here changes anything.  Figures in
 * units are of the heap: units in use or idle, which is what may be resident of it. */
#ifndef KIT_PRESSURE_H
#define KIT_PRESSURE_H

#include "base/atomics.h"
#include "base/bits.h"

typedef enum pressure_level {
  PRESSURE_FAR,
  PRESSURE_NEAR,  /* a quarter of the limit is left, and less than 2 GiB: no huge pages, a quarter of the decay time, no larger bins */
  PRESSURE_HIGH,  /* half of that: a sixteenth; the heap grows no further while it has idle memory or holes; bins shrink */
  PRESSURE_URGENT /* a quarter of that: a 64th; all goes back that can */
} pressure_level_t;

/* What limits. */
typedef enum pressure_source { PRESSURE_NOTHING, PRESSURE_MAX, PRESSURE_HIGH_MARK, PRESSURE_V1, PRESSURE_SOFT } pressure_source_t;

#define PRESSURE_ROOM ((uint64_t)2 << 30)
/* The heap from which on limits are looked for: smaller ones change little, and most processes end before. */
#define PRESSURE_FIRST_UNITS ((uint64_t)128)

typedef struct pressure {
  _Atomic uint32_t level;
  _Atomic uint32_t source;     /* of `limit` */
  _Atomic uint64_t limit, use; /* bytes, as last seen; 0: none */
  _Atomic uint64_t look_at;    /* units of the heap from which on the next look is due; UINT64_MAX while one is under way */
  _Atomic uint32_t to_tell;    /* the level that the program is to be told of: front/plea.h; PRESSURE_FAR: nothing */
  _Atomic bool listens;        /* the program wants to be told */
  _Atomic bool contained;      /* its group has a limit, which could be read last */
  /* Figures. */
  _Atomic uint64_t given;      /* bytes given back while the level was not PRESSURE_FAR */
  _Atomic uint64_t looks;      /* times that the kernel was asked */
  _Atomic uint64_t refused;    /* spans that would have passed the cap */
  _Atomic uint32_t given_percent, given_source; /* of the limit, the most that was in use when something was given back; which limit */
  _Atomic bool forked;         /* what the looker knows may be half written */
  _Atomic uintptr_t teller;    /* the thread in which the program is being told; 0: none */
} pressure_t;
extern pressure_t pressure;

HAK_INLINE pressure_level_t pressure_now(void) { return (pressure_level_t)load_relaxed(&pressure.level); }

/* The level that so much in use comes to; 0 as the limit: none. */
pressure_level_t pressure_of(uint64_t use, uint64_t limit);
/* How far the heap may grow before the kernel is asked again, in units: a quarter of what is left, between 2 MiB and a sixteenth of the
 * limit. */
uint64_t pressure_step(uint64_t use, uint64_t limit);
/* The units that the heap may come to for a limit of its container's, of which all others use the rest. */
uint64_t pressure_cap_of(uint64_t limit, uint64_t use, uint64_t heap_units);
/* An amount that an option tells, in bytes: more than 0 is bytes, less so many percent of the limit, which may be 0: none.
 * UINT64_MAX: no amount. */
uint64_t pressure_amount(int64_t option, uint64_t limit);
/* What is seen is so from now on. */
void pressure_set(pressure_level_t level, pressure_source_t source, uint64_t use, uint64_t limit);
/* Bytes were given back. */
void pressure_note_given(uint64_t bytes);
/* What the option says, shortened by the level. Milliseconds; -1 and 0 stay. */
HAK_INLINE int64_t pressure_decay(int64_t milliseconds) {
  int64_t shorter = milliseconds >> 2 * pressure_now();
  return shorter > 0 || milliseconds <= 0 ? shorter : 1;
}
/* "memory.current" and "memory.max", or what the limit is called otherwise; static texts. */
const char *pressure_use_name(pressure_source_t source);
const char *pressure_limit_name(pressure_source_t source);
uint64_t pressure_percent(uint64_t use, uint64_t limit);
/* In a fork's child, for the thread that is there: whoever looked or told may have stayed behind. */
void pressure_after_fork(uintptr_t thread);

#endif
