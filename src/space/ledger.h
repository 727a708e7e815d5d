/* ledger.h - how many units are in use, idle or in flight, and the only way in which units become free.
 *
 * What spans, purges, moves and huge pages must know of each other is here, below them all.  Idle units are free and may be resident: they
 * are not known to be zero.  Units in flight were claimed by a purge or a move and will be free again in a moment: a thread that finds
 * no memory waits for them. */
#ifndef SPACE_LEDGER_H
#define SPACE_LEDGER_H

#include "space/region.h"

/* Note that units are in use, `dirty` of which were not known to be zero and `fresh` of which will become resident; or that they are in use
 * no longer. */
void ledger_note_use(uint32_t units, uint32_t dirty, uint32_t fresh);
void ledger_note_free(uint32_t units, uint32_t dirty);
/* Notes that so many idle units were given back to the kernel. */
void ledger_note_purged(uint32_t units);
/* HAKMEM_LIMIT_HARD: the most that ledger_heap_units may become. ledger_permits returns whether so many more units fit. */
#define LEDGER_NO_CAP UINT64_MAX
void ledger_set_cap(uint64_t units);
uint64_t ledger_cap(void);
HAK_CHECKED bool ledger_permits(uint64_t units);
uint64_t ledger_used_units(void);
uint64_t ledger_idle_units(void);
/* Notes that so many more units in use are inaccessible, or fewer: the kernel has no pages for these. */
void ledger_note_guards(int64_t units);
/* All units in use or idle except inaccessible ones: what may be resident. */
uint64_t ledger_heap_units(void);
/* The units that have become resident since this last returned other than 0; 0 while they are fewer than `least`. */
HAK_CHECKED uint64_t ledger_take_fresh(uint64_t least);

/* Sets free units that are the caller's, as a span, a purge or a move ends. */
void ledger_release(uint32_t superslab, uint32_t mask);
/* Notes that superslabs [from, end) have idle units that may be given back: all that were idle when they were set free, or that are no
 * longer refused. */
void ledger_note_idle(uint32_t from, uint32_t end);
typedef struct ledger_range {
  uint32_t from, end;
} ledger_range_t;
/* The superslabs noted since the last such call, as one range from the lowest to the highest: those between may have nothing idle.  The
 * caller looks at all of them. */
ledger_range_t ledger_take_idle(void);
/* No superslab below this one is likely to have a free unit. */
extern _Atomic uint32_t ledger_lowest;

/* ledger_note_in_flight: units are about to be claimed by a purge or a move, or are free again. ledger_in_flight returns whether any are,
 * ledger_completions how often that has ended. */
void ledger_note_in_flight(bool begins);
bool ledger_in_flight(void);
uint32_t ledger_completions(void);
uint32_t ledger_begun(void); /* how often it has begun; may be one too many */
/* Notes that so many more units are in flight, or fewer: those that the kernel is working on. */
void ledger_note_hidden(int64_t units);
uint64_t ledger_hidden_units(void);

typedef struct ledger_census {
  uint64_t used_units, free_units, dirty_free_units;
} ledger_census_t;
/* Counts units by the superslabs' words, all of which it reads. */
ledger_census_t ledger_census(void);
/* In a fork's child: counts anew; nothing is in flight. */
void ledger_recover(void);

#endif
