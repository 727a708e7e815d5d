/* sample.h - sampled blocks, from which profiles of the heap are made.
 *
 * In each unit of a slab at most one block is sampled.  It is chosen at random when the slab is made: a block of s bytes with a probability
 * of s / R, where R is HAKMEM_SAMPLE_KB.  Who will allocate the block plays no part in that.  So what is true of the sampled blocks, each
 * of which stands for R / s, is an unbiased estimate of what is true of all.  A sampled block remains one until its slab ends, and lies in
 * slabs and bins like any other: sampling changes no placement.
 *
 * Neither fast path spends an instruction on it.  The bin entry of a sampled block has its top bit set, which malloc takes for the end of
 * the bin.  The slow path then opens the block's record: where and when it was allocated, and how many bytes were requested.  The live bit
 * stays clear, so that free leaves the fast path too, and closes the record by a compare-and-exchange: of two frees one fails.
 *
 * All blocks of a tracked slab are sampled too, with the records of slab/track.h, and what is said here of blocks holds for them.  A
 * profile of live blocks does not count them: it would know less of the rest.
 *
 * A block that is allocated more than SAMPLE_FIRES times in a second, while its owner's sampled blocks together are allocated more than
 * SAMPLE_BUDGET times, becomes quiet for the rest of that second, and then until a tick finds it in a bin or it leaves its slab.  While
 * quiet it is allocated and freed unseen, and a profile takes it for what it was last.
 *
 * Where opening records becomes too costly, an owner gives up each of its sampled blocks with a probability of one half, and again if need
 * be: what is left stands for twice as much each time, and says so in its record.  That choice does not depend on what made records so
 * many: no estimate gets a bias.
 *
 * A large block is sampled with a probability of bytes / R, and always from R on; its record is that of its first unit.  One that is opened
 * too often becomes quiet immediately: it keeps the site of the block before.
 *
 * Opening and closing a record fires the probes otel_memory:alloc and otel_memory:free; the records of slab/track.h fire none.  While a
 * tracer listens to the first, no block with such a record becomes quiet: so what the reported bytes stand for sums to what was allocated.
 *
 * Anyone may read records at any time, also from outside of the process: `state` counts its changes, so that a reader finds out whether the
 * record became another block's meanwhile. */
#ifndef SLAB_SAMPLE_H
#define SLAB_SAMPLE_H

#include "slab/track.h"

typedef enum sample_state {
  SAMPLE_NONE,  /* no block of the unit is sampled */
  SAMPLE_FREE,
  SAMPLE_LIVE,  /* the record describes the block that is live */
  SAMPLE_QUIET  /* the block is live if its live bit says so, and may have been allocated more than once since the record was written */
} sample_state_t;
#define SAMPLE_STATE_BITS 2

typedef struct sample {
  _Atomic uint32_t state; /* sample_state_t, and above it the number of its changes */
  _Atomic uint32_t place; /* where the block begins in the unit, in granules */
  _Atomic uint32_t chance; /* the probability of being sampled, in 1/2^32; 0: certain */
  _Atomic uint32_t site;  /* kit/site.h */
  _Atomic uint32_t tag;   /* the thread's: hak_tag_set */
  _Atomic uint32_t asked; /* requested bytes, of a large block rounded to pages; UINT32_MAX: see its unit */
  _Atomic uint32_t born;  /* sample_clock */
  _Atomic uint32_t fired; /* the second, and in the low eight bits how often the block was allocated in it */
} sample_t;
_Static_assert(sizeof(sample_t) == REGION_SAMPLE_BYTES, "the zone of samples has one for each unit");

/* What an owner of slabs has for sampling. */
typedef struct sampler {
  uint64_t random;          /* guarded by the owner's lock, as is the next */
  track_store_t tracks;
  _Atomic uint32_t quiet;   /* blocks that are quiet */
  _Atomic uint32_t thinned; /* how often half of the blocks were given up */
  _Atomic uint32_t tenth, opened; /* records opened in that tenth of a second; threads lose few updates of it */
  _Atomic uint64_t fired;   /* the second, and in the low 32 bits how often sampled blocks were allocated in it */
} sampler_t;

/* How many bytes one sampled byte stands for; 0: no block is sampled.  Set once, before the first slab.  A small heap's blocks have no
 * site, unless `sites_at_once`: the first walk of a stack costs a short process more than everything that it allocates. */
extern uint64_t sample_rate;
void sample_start(uint64_t bytes, bool sites_at_once);

HAK_INLINE sample_t *sample_of(uint32_t unit) { return (sample_t *)(void *)region.samples + unit; }
HAK_INLINE sample_state_t sample_state(const sample_t *sample) {
  return (sample_state_t)(load_acquire(&sample->state) & (((uint32_t)1 << SAMPLE_STATE_BITS) - 1));
}

/* --- entries ------------------------------------------------------------------------------ */

/* What lies in bins, and what batch_take gives: a block's address, with the first of these bits set if the block is sampled.  With both,
 * malloc is not to go further down in the bin (front/drain.h), or, without a block, the bin ends there.  No address has these bits. */
#define ENTRY_SAMPLED ((uintptr_t)1 << 63)
#define ENTRY_BAR ((uintptr_t)1 << 62)
HAK_INLINE bool entry_is_sampled(const void *entry) { return (intptr_t)entry < 0; }
HAK_INLINE bool entry_is_barred(const void *entry) { return ((uintptr_t)entry & ENTRY_BAR) != 0; }
HAK_INLINE void *entry_block(void *entry) { return (void *)((uintptr_t)entry & (ENTRY_BAR - 1)); }
HAK_INLINE void *entry_sampled(void *block) { return (void *)((uintptr_t)block | ENTRY_SAMPLED); }
HAK_INLINE void *entry_barred(void *entry) { return (void *)((uintptr_t)entry | ENTRY_SAMPLED | ENTRY_BAR); }

/* The record of the block, which begins at `block` in a slab; NULL if it has none here. */
HAK_INLINE sample_t *sample_find(const void *block) {
  if (!HAK_SAMPLED || sample_rate == 0) return NULL;
  uint32_t unit = (uint32_t)region_unit(block);
  sample_t *sample = sample_of(unit);
  uint32_t place = (uint32_t)((uintptr_t)block % HAK_UNIT / HAK_GRANULE);
  return sample_state(sample) != SAMPLE_NONE && load_relaxed(&sample->place) == place ? sample : NULL;
}

/* The state of the block's record, of either kind; SAMPLE_NONE if the block is not sampled. */
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
/* Whether the slab's block that begins there is live. */
HAK_INLINE bool slab_block_is_live(const void *block) { return region_is_live(block) || sample_is_live(block); }

/* --- slabs -------------------------------------------------------------------------------- */

/* Chooses the sampled blocks of a new slab.  With the owner's lock, as the next two. */
void sample_choose(sampler_t *sampler, unit_t *slab);
/* Ends the records of a slab that ends. */
void sample_forget(sampler_t *sampler, unit_t *slab);
/* Makes entries of the slab's blocks, which are in descending order of address. */
void sample_enter(sampler_t *sampler, const unit_t *slab, void **blocks, uint32_t count);

/* --- blocks ------------------------------------------------------------------------------- */

/* The time in tenths of a second, from an arbitrary start. */
uint32_t sample_clock(void);
/* Opens the record of a sampled block that its owner's thread allocates; false if the block is quiet, or no longer sampled, and gets its
 * live bit like others. */
HAK_CHECKED bool sample_open(sampler_t *sampler, void *block, size_t asked);
/* Closes the record of a block that any thread frees; false if it was not live by its record. */
HAK_CHECKED bool sample_close(const void *block);
/* Notes the new size of a block that is resized in place. */
void sample_resize(const void *block, size_t asked);
/* Returns what the entry of a block that is in a bin, or about to be, is to be from now on. */
HAK_CHECKED void *sample_wake(sampler_t *sampler, void *block);

/* The same for a large block, which only the caller has. */
void sample_open_large(uint32_t unit, size_t bytes, size_t asked);
void sample_resize_large(uint32_t unit, size_t bytes, size_t asked);
void sample_ask_large(uint32_t unit, size_t asked); /* notes that fewer bytes were requested than the block was made for */
void sample_close_large(uint32_t unit);

#endif
