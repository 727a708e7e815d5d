/* event.h - counting allocations by site, while the process is armed.
 *
 * Sampled blocks tell what is live without bias, but not how often a site allocates: a block that is used again and again is either one
 * of them or not.  So where that is asked for, every allocation passes here, and after so many bytes one is an event, at distances that
 * are exponential with a mean of EVENT_BYTES.  An allocation of s bytes is an event with a chance of 1 - exp(-s / EVENT_BYTES),
 * whatever was before it, and stands for 1 / chance.  The sums by site have no bias, and n events an error of 1 / sqrt(n).
 *
 * Anyone may read the sums at any time, also from outside of the process, which may be armed from there too: `event_until_ms` is all
 * there is to write. */
#ifndef KIT_EVENT_H
#define KIT_EVENT_H

#include "base/atomics.h"
#include "kit/site.h"

#define EVENT_BYTES ((uint64_t)512 << 10)
#define EVENT_OBJECT_BITS 16

/* What the events of a site stand for; grows only. */
typedef struct event_site {
  _Atomic uint64_t events, bytes;
  _Atomic uint64_t objects; /* in 1 / 2^EVENT_OBJECT_BITS */
} event_site_t;

/* Armed until that time of os_now_ms; 0: not armed. */
extern _Atomic uint64_t event_until_ms;
HAK_INLINE bool event_armed(void) { return load_relaxed(&event_until_ms) != 0; }
/* Whether the time is over; then nothing is armed any more. */
bool event_expire(void);

/* Chunks of SITE_CHUNK, by site. SITE_NONE has one too. */
extern void *_Atomic event_chunks[];
/* NULL where nothing was counted. */
const event_site_t *event_of(uint32_t site);

/* The bytes to the next event, at least 1. */
int64_t event_distance(uint64_t *random);
/* The calling thread allocates `bytes`, and that is an event. */
void event_count(size_t bytes);
/* The same for one of those that do not count down, which is an event by chance. */
void event_try(size_t bytes);

#endif
