/* ledger.h - how many units are in use, idle or out of sight, and the one way in which units become free.
 *
 * What spans, purges, moves and huge pages must know of each other stands here, below them all.  Idle units are free and may be
 * resident: they are not known to be zero.  Units out of sight are claimed by a purge or a move and free again in a moment: a thread
 * that finds no memory waits for them. */
#ifndef SPACE_LEDGER_H
#define SPACE_LEDGER_H

#include "space/region.h"

/* Units are in use, of which `dirty` were not known to be zero and `fresh` will become resident; or no more. */
void ledger_note_use(uint32_t units, uint32_t dirty, uint32_t fresh);
void ledger_note_free(uint32_t units, uint32_t dirty);
/* So many idle units were given back to the kernel. */
void ledger_note_purged(uint32_t units);
/* HAKMEM_LIMIT_HARD: ledger_heap_units may come to so many, of which ledger_permits is true while so many more fit. */
#define LEDGER_NO_CAP UINT64_MAX
void ledger_set_cap(uint64_t units);
uint64_t ledger_cap(void);
HAK_CHECKED bool ledger_permits(uint64_t units);
uint64_t ledger_used_units(void);
uint64_t ledger_idle_units(void);
/* So many units in use are inaccessible from now on, or are no more: the kernel has no pages for these. */
void ledger_note_guards(int64_t units);
/* All in use or idle but for those: what may be resident. */
uint64_t ledger_heap_units(void);
/* What has become resident since this was last not 0, as soon as it is `least` units. */
HAK_CHECKED uint64_t ledger_take_fresh(uint64_t least);

/* Sets units free that are the caller's: the end of a span, of a purge or of a move. */
void ledger_release(uint32_t superslab, uint32_t mask);
/* In superslabs [from, end) units are idle that may go back: all that were idle when they were set free; or are no longer refused. */
void ledger_note_idle(uint32_t from, uint32_t end);
typedef struct ledger_range {
  uint32_t from, end;
} ledger_range_t;
/* Where that was since the last such call; from the lowest on to the highest, so not all of it.  The caller looks at all of them. */
ledger_range_t ledger_take_idle(void);
/* No superslab below this one is likely to have a free unit. */
extern _Atomic uint32_t ledger_lowest;

/* Units are about to be claimed out of sight, or are free again; whether any are; how often that has ended. */
void ledger_note_in_flight(bool begins);
bool ledger_in_flight(void);
uint32_t ledger_completions(void);
uint32_t ledger_begun(void); /* how often it has begun; perhaps one too many */
/* So many of them are out of sight from now on, or are no more: those that the kernel is at work on. */
void ledger_note_hidden(int64_t units);
uint64_t ledger_hidden_units(void);

typedef struct ledger_census {
  uint64_t used_units, free_units, dirty_free_units;
} ledger_census_t;
/* What the superslabs' words say, all of which it reads. */
ledger_census_t ledger_census(void);
/* In a fork's child: counts anew; nothing is out of sight. */
void ledger_recover(void);

#endif
