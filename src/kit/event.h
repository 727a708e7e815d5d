/* event.h - counting allocations by site, while the process is armed.
 *
 * Sampled blocks tell what is live without bias, but not how often a site allocates: a block that is used again and again is either one
 * of them or not.  So where that is asked for, every allocation passes here, and after so many bytes one is an event, at distances that
 * are exponential with a mean of EVENT_BYTES.  An allocation of s bytes is an event with a chance of 1 - exp(-s / EVENT_BYTES),
 * whatever was before it, and stands for 1 / chance; from EVENT_BYTES on each is one, and stands for itself.  The sums by site have no
 * bias, and n events an error of 1 / sqrt(n).
 *
 * What is allocated is counted besides, exactly, in groups of about equal sizes (front/watch.h).  So events are summed up by site and
 * group: who reads them scales those of a group to its count, and all lines sum to what was allocated.
 *
 * Anyone may read the sums at any time, also from outside of the process, which may be armed from there too: `event_until_ms` is all
 * there is to write. */
#ifndef KIT_EVENT_H
#define KIT_EVENT_H

#include "base/atomics.h"
#include "kit/site.h"

#define EVENT_BYTES ((uint64_t)512 << 10)
#define EVENT_OBJECT_BITS 16

/* What events stand for; grows only. */
typedef struct event_site {
  _Atomic uint64_t events, bytes;
  _Atomic uint64_t objects; /* in 1 / 2^EVENT_OBJECT_BITS */
} event_site_t;

/* The events of one site in one group.  A key once written stays. */
#define EVENT_GROUPS 64u /* numbers of groups are less */
#define EVENT_ROWS 8192u
typedef struct event_row {
  event_site_t sums;
  _Atomic uint64_t key; /* event_key; 0: none yet */
} event_row_t;
_Static_assert(sizeof(event_row_t) == 32, "two to a line of the cache");
HAK_INLINE uint64_t event_key(uint32_t site, unsigned group) { return (uint64_t)site << 32 | (group + 1); }

/* Armed until that time of os_now_ms; 0: not armed; EVENT_ALWAYS: for good, as the option asks for.  Whatever may be written to it from
 * outside is a time. */
#define EVENT_ALWAYS UINT64_MAX
extern _Atomic uint64_t event_until_ms;
HAK_INLINE bool event_armed(void) { return load_relaxed(&event_until_ms) != 0; }
/* Until that time, unless it is armed for longer. */
void event_arm(uint64_t until_ms);
/* Whether the time is over; then nothing is armed any more. */
bool event_expire(void);

/* In a fork's child: armed is only who is so for good, since nobody has asked this process.  What was counted stays, as the blocks do. */
void event_after_fork(void);

/* Chunks of SITE_CHUNK, by site. SITE_NONE has one too. */
extern void *_Atomic event_chunks[];
/* NULL where nothing was counted. */
const event_site_t *event_of(uint32_t site);
/* EVENT_ROWS rows.  The first EVENT_GROUPS are SITE_NONE's, by group: there goes too what finds no room behind them. */
extern void *_Atomic event_rows;
/* Row `number`; NULL where nothing was counted, and past the last one. */
const event_row_t *event_row_at(uint32_t number);

/* The bytes to the next event, at least 1. */
int64_t event_distance(uint64_t *random);
/* The calling thread allocates `bytes`, of the group, and that is an event. */
void event_count(unsigned group, size_t bytes);
/* The same for one of those that do not count down, which is an event by chance. */
void event_try(unsigned group, size_t bytes);

#endif
