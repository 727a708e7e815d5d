/* event.h - counts allocations by site, while the process is armed.
 *
 * Sampled blocks give an unbiased estimate of what is live, but not of how often a site allocates: a block that is reused again and again
 * is either sampled or not.  So while armed, every allocation is counted here, and some become events, at distances in bytes that are
 * exponentially distributed with a mean of EVENT_BYTES.  An allocation of s bytes is an event with probability 1 - exp(-s / EVENT_BYTES),
 * independent of earlier allocations, and stands for 1 / probability allocations; from EVENT_BYTES on, each allocation is an event and
 * stands for itself.  The sums by site are unbiased, and n events have an error of 1 / sqrt(n).
 *
 * Allocations are also counted exactly, in groups of about equal sizes (front/watch.h).  Events are summed by site and group, so that a
 * reader can scale the events of a group to its exact count; then all lines sum to what was allocated.
 *
 * Anyone may read the sums at any time, also from outside the process.  The process can be armed from outside, too, by a write to
 * `event_until_ms` alone. */
#ifndef KIT_EVENT_H
#define KIT_EVENT_H

#include "base/atomics.h"
#include "kit/site.h"

#define EVENT_BYTES ((uint64_t)512 << 10)
#define EVENT_OBJECT_BITS 16

/* Sums of what events stand for; they only grow. */
typedef struct event_site {
  _Atomic uint64_t events, bytes;
  _Atomic uint64_t objects; /* in 1 / 2^EVENT_OBJECT_BITS */
} event_site_t;

/* The events of one site in one group.  A key, once written, never changes. */
#define EVENT_GROUPS 64u /* group numbers are below this */
#define EVENT_ROWS 8192u
typedef struct event_row {
  event_site_t sums;
  _Atomic uint64_t key; /* event_key; 0: none yet */
} event_row_t;
_Static_assert(sizeof(event_row_t) == 32, "two to a line of the cache");
HAK_INLINE uint64_t event_key(uint32_t site, unsigned group) { return (uint64_t)site << 32 | (group + 1); }

/* The process is armed until this time of os_now_ms; 0: not armed; EVENT_ALWAYS: permanently, as the option sets it.  Any value written
 * from outside is taken as a time. */
#define EVENT_ALWAYS UINT64_MAX
extern _Atomic uint64_t event_until_ms;
HAK_INLINE bool event_armed(void) { return load_relaxed(&event_until_ms) != 0; }
/* Arms the process until that time, unless it is already armed for longer. */
void event_arm(uint64_t until_ms);
/* Returns true, and ends the arming, if its time is over. */
bool event_expire(void);

/* In a fork's child: ends the arming unless it is permanent, since nobody has armed this process.  The counts stay, as the blocks do. */
void event_after_fork(void);

/* Chunks of SITE_CHUNK entries, indexed by site.  SITE_NONE has an entry, too. */
extern void *_Atomic event_chunks[];
/* The sums of a site; NULL if nothing was counted in its chunk. */
const event_site_t *event_of(uint32_t site);
/* EVENT_ROWS rows.  The first EVENT_GROUPS belong to SITE_NONE, by group; events that find no free row after these go there, too. */
extern void *_Atomic event_rows;
/* Row `number`; NULL if nothing was counted, and past the last row. */
const event_row_t *event_row_at(uint32_t number);

/* Returns a random distance to the next event in bytes, at least 1. */
int64_t event_distance(uint64_t *random);
/* Counts an allocation of `bytes` bytes in the group by the calling thread as an event. */
void event_count(unsigned group, size_t bytes);
/* The same for an allocation that no countdown covers: makes it an event with its probability. */
void event_try(unsigned group, size_t bytes);

#endif
