/* pressure.h - how near the memory limits are, as last seen, and how that changes behaviour.
 *
 * front/limits.c writes the state; the layers below read one word.  Figures in units refer to the heap: its units
 * in use or idle, which may be resident. */
#ifndef KIT_PRESSURE_H
#define KIT_PRESSURE_H

#include "base/atomics.h"
#include "base/bits.h"

/* PRESSURE_NEAR and PRESSURE_URGENT are reported to the program, as HAK_PRESSURE_NEAR and HAK_PRESSURE_URGENT: their numbers differ. */
typedef enum pressure_level {
  PRESSURE_NONE,  /* changes nothing */
  PRESSURE_LOW,   /* at most a quarter of the limit, and at most 2 GiB, are left: no huge pages, decay time / 4, bins do not grow */
  PRESSURE_NEAR,  /* at most half of LOW's: decay time / 16, the heap does not grow while it has idle memory or holes, bins shrink */
  PRESSURE_URGENT /* at most a quarter of LOW's: decay time / 64, everything goes back that can */
} pressure_level_t;

/* The kind of limit. */
typedef enum pressure_source { PRESSURE_NOTHING, PRESSURE_MAX, PRESSURE_HIGH_MARK, PRESSURE_V1, PRESSURE_SOFT } pressure_source_t;

#define PRESSURE_ROOM ((uint64_t)2 << 30)
/* Heap size from which limits are looked up: smaller heaps matter little, and most processes stay below. */
#define PRESSURE_FIRST_UNITS ((uint64_t)128)

typedef struct pressure {
  _Atomic uint32_t level;
  _Atomic uint32_t source;     /* the kind of `limit` */
  _Atomic uint64_t limit, use; /* bytes, as last seen; limit 0: none */
  _Atomic uint64_t look_at;    /* heap size in units at which the next check is due; UINT64_MAX during a check */
  _Atomic uint32_t to_report;  /* the level to report to the program: front/notifier.h; PRESSURE_NONE: none */
  _Atomic bool has_callback;   /* the program has set a callback */
  _Atomic bool contained;      /* the process's control group has a limit, and the last read of it succeeded */
  /* Figures. */
  _Atomic uint64_t given;      /* bytes given back while the level was not PRESSURE_NONE */
  _Atomic uint64_t looks;      /* how often the kernel was asked for limits */
  _Atomic uint64_t refused;    /* spans refused because they would have exceeded the cap */
  _Atomic uint32_t given_percent, given_source; /* highest use, in percent of the limit, when memory was given back; its limit */
  _Atomic bool forked;         /* a fork has cut a check short, whose state may be half written */
  _Atomic uintptr_t callback_thread; /* the thread that runs the callback; 0: none */
} pressure_t;
extern pressure_t pressure;

HAK_INLINE pressure_level_t pressure_now(void) { return (pressure_level_t)load_relaxed(&pressure.level); }

/* Returns the level for this use of the limit; limit 0: none. */
pressure_level_t pressure_of(uint64_t use, uint64_t limit);
/* Returns how far the heap may grow before the kernel is asked again, in units: a quarter of what is left, at most a sixteenth of the
 * limit, and at least 2 MiB. */
uint64_t pressure_step(uint64_t use, uint64_t limit);
/* Returns the size in units that the heap may reach under its container's limit, given what all others use. */
uint64_t pressure_cap_of(uint64_t limit, uint64_t use, uint64_t heap_units);
/* Converts the value of an option to bytes: above 0 it is bytes, below 0 a percentage of the limit.  UINT64_MAX: no amount, because the
 * option is 0, or is a percentage and the limit is 0. */
uint64_t pressure_amount(int64_t option, uint64_t limit);
/* Records what was seen. */
void pressure_set(pressure_level_t level, pressure_source_t source, uint64_t use, uint64_t limit);
/* Records that bytes were given back. */
void pressure_note_given(uint64_t bytes);
/* Shortens the decay time of the option by the level.  Milliseconds; -1 and 0 stay as they are. */
HAK_INLINE int64_t pressure_decay(int64_t milliseconds) {
  int64_t shorter = milliseconds >> 2 * pressure_now();
  return shorter > 0 || milliseconds <= 0 ? shorter : 1;
}
/* "memory.current" and "memory.max", or the names for other kinds of limit; static strings. */
const char *pressure_use_name(pressure_source_t source);
const char *pressure_limit_name(pressure_source_t source);
uint64_t pressure_percent(uint64_t use, uint64_t limit);
/* Called in a fork's child by its only thread: a thread that was checking or in the callback may exist only in the parent. */
void pressure_after_fork(uintptr_t thread);

#endif
