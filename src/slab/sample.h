/* sample.h - sampled blocks: what profiles of the heap are made from.
 *
 * In each unit of a slab at most one block is sampled, chosen at random when the slab is made: a block of s bytes with a chance of s / R,
 * R being HAKMEM_SAMPLE_KB.  Who will allocate it has no part in that.  So what is true of the sampled blocks, each of which stands for
 * R / s, is an estimate without bias of what is true of all.  A sampled block remains one until its slab ends, and lies in slabs and bins
 * like any other: to look changes no placement.
 *
 * Neither fast path spends an instruction on it.  A bin's entry of a sampled block has its top bit set, which malloc takes for the end
 * of the bin; on the slow path its record is opened, with where it was allocated, when, and how much was asked for.  Its live bit stays
 * clear, so that free leaves the fast path too, and closes the record by a compare-and-exchange: of two frees one fails.
 *
 * All blocks of a tracked slab are sampled too, by slab/track.h's records, and what is said here of blocks holds for them.  A profile of
 * what is live does not count them: it would know the less of the rest.
 *
 * A block that is allocated more than SAMPLE_FIRES times in a second, while its owner's sampled blocks together are more than SAMPLE_BUDGET
 * times, is quiet for the rest of it, and until a tick finds it in a bin, or it leaves its slab: it comes and goes unseen, and a profile
 * takes it for what it was last.
 *
 * Where so many records are opened that it costs, an owner gives up every second of its sampled blocks, by coin, and so on: what is left
 * stands for twice as much each time, and says so in its record.  Whatever led to that, a coin does not know it: no estimate gets a bias.
 *
 * A large block is sampled with a chance of bytes / R, and always from R on; its record is its first unit's.  One that is opened too
 * often is quiet at once: it keeps the site of the block before.
 *
 * A record that is opened, or closed, is told by the probes otel_memory:alloc and otel_memory:free.  While a tracer listens to the first
 * no block becomes quiet, so that the bytes that it is told of sum, by what they stand for, to what was allocated.
 *
 * Records can be read by anyone at any time, also from outside of the process: `state` counts its changes, so that who has read a
 * record finds out whether it was another one's meanwhile. */
#ifndef SLAB_SAMPLE_H
#define SLAB_SAMPLE_H

#include "slab/track.h"

typedef enum sample_state {
  SAMPLE_NONE,  /* no block of the unit is sampled */
  SAMPLE_FREE,
  SAMPLE_LIVE,  /* the record tells of the block that is live */
  SAMPLE_QUIET  /* of a block that may be live by now, as its live bit tells, or may have been others since the record was written */
} sample_state_t;
#define SAMPLE_STATE_BITS 2

typedef struct sample {
  _Atomic uint32_t state; /* sample_state_t, and above it how often it has changed */
  _Atomic uint32_t place; /* where the block begins in the unit, in granules */
  _Atomic uint32_t chance; /* of being sampled, in 1/2^32; 0: certain */
  _Atomic uint32_t site;  /* kit/site.h */
  _Atomic uint32_t tag;   /* of the thread: hak_tag_set */
  _Atomic uint32_t asked; /* bytes, of a large block rounded to pages; UINT32_MAX: its unit tells */
  _Atomic uint32_t born;  /* sample_clock */
  _Atomic uint32_t fired; /* the second, and in the low eight bits how often in that */
} sample_t;
_Static_assert(sizeof(sample_t) == REGION_SAMPLE_BYTES, "the zone of samples has one for each unit");

/* What an owner of slabs has for it. */
typedef struct sampler {
  uint64_t random;          /* guarded by the owner's lock, as the next */
  track_store_t tracks;
  _Atomic uint32_t quiet;   /* blocks that are */
  _Atomic uint32_t thinned; /* how often half of the blocks were given up */
  _Atomic uint32_t tenth, opened; /* records in that tenth of a second; what threads lose of it is few */
  _Atomic uint64_t fired;   /* the second, and below 2^32 how often sampled blocks were allocated in that */
} sampler_t;

/* How many bytes one sampled byte stands for; 0: none are sampled. Set once, before the first slab.  A small heap's blocks have no
 * site, unless `sites_at_once`: the first walk of a stack costs a short process more than all that it allocates. */
extern uint64_t sample_rate;
void sample_start(uint64_t bytes, bool sites_at_once);

HAK_INLINE sample_t *sample_of(uint32_t unit) { return (sample_t *)(void *)region.samples + unit; }
HAK_INLINE sample_state_t sample_state(const sample_t *sample) {
  return (sample_state_t)(load_acquire(&sample->state) & (((uint32_t)1 << SAMPLE_STATE_BITS) - 1));
}

/* --- entries ------------------------------------------------------------------------------ */

/* What lies in bins, and what batch_take gives: a block's address, with the first of these bits if it is sampled. Both: malloc is not
 * to go further down in the bin (front/drain.h), or, without a block, the bin ends there. No address has them. */
#define ENTRY_SAMPLED ((uintptr_t)1 << 63)
#define ENTRY_BAR ((uintptr_t)1 << 62)
HAK_INLINE bool entry_is_sampled(const void *entry) { return (intptr_t)entry < 0; }
HAK_INLINE bool entry_is_barred(const void *entry) { return ((uintptr_t)entry & ENTRY_BAR) != 0; }
HAK_INLINE void *entry_block(void *entry) { return (void *)((uintptr_t)entry & (ENTRY_BAR - 1)); }
HAK_INLINE void *entry_sampled(void *block) { return (void *)((uintptr_t)block | ENTRY_SAMPLED); }
HAK_INLINE void *entry_barred(void *entry) { return (void *)((uintptr_t)entry | ENTRY_SAMPLED | ENTRY_BAR); }

/* The record of the block, which is the start of a slab's block; NULL if it has none here. */
HAK_INLINE sample_t *sample_find(const void *block) {
  if (!HAK_SAMPLED || sample_rate == 0) return NULL;
  uint32_t unit = (uint32_t)region_unit(block);
  sample_t *sample = sample_of(unit);
  uint32_t place = (uint32_t)((uintptr_t)block % HAK_UNIT / HAK_GRANULE);
  return sample_state(sample) != SAMPLE_NONE && load_relaxed(&sample->place) == place ? sample : NULL;
}

/* The same of either kind of record; SAMPLE_NONE if the block is not sampled. */
HAK_INLINE sample_state_t sample_block_state(const void *block) {
  static const sample_state_t states[] = {[TRACK_FREE] = SAMPLE_FREE, [TRACK_LIVE] = SAMPLE_LIVE, [TRACK_QUIET] = SAMPLE_QUIET};
  if (!HAK_SAMPLED || sample_rate == 0) return SAMPLE_NONE;
  const sample_t *sample = sample_find(block);
  if (sample != NULL) return sample_state(sample);
  track_t *track = track_find(block);
  return track != NULL ? states[track_state(load_acquire(track))] : SAMPLE_NONE;
}
/* Whether the block is live by its record, not by its bit. */
HAK_INLINE bool sample_is_live(const void *block) { return sample_block_state(block) == SAMPLE_LIVE; }
/* Whether a block of a slab, which begins there, is live. */
HAK_INLINE bool slab_block_is_live(const void *block) { return region_is_live(block) || sample_is_live(block); }

/* --- slabs -------------------------------------------------------------------------------- */

/* Chooses the blocks of a new slab. With the owner's lock, as the next two. */
void sample_choose(sampler_t *sampler, unit_t *slab);
/* The slab ends. */
void sample_forget(sampler_t *sampler, unit_t *slab);
/* Makes entries of the slab's blocks, in falling order of address. */
void sample_enter(sampler_t *sampler, const unit_t *slab, void **blocks, uint32_t count);

/* --- blocks ------------------------------------------------------------------------------- */

/* Tenths of a second, from any start. */
uint32_t sample_clock(void);
/* A sampled block is allocated, by its owner's thread; false if it is quiet, and gets its live bit like others. */
HAK_CHECKED bool sample_open(sampler_t *sampler, void *block, size_t asked);
/* It is freed, by any thread; false if it was not live by its record. */
HAK_CHECKED bool sample_close(const void *block);
/* Its size changes in place. */
void sample_resize(const void *block, size_t asked);
/* Of a block that is in a bin, or about to be: what its entry is to be from now on. */
HAK_CHECKED void *sample_wake(sampler_t *sampler, void *block);

/* The same for a large block, which its caller alone has. */
void sample_open_large(uint32_t unit, size_t bytes);
void sample_resize_large(uint32_t unit, size_t bytes);
void sample_close_large(uint32_t unit);

#endif
