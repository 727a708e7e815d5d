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
 * A record that is opened more than SAMPLE_FIRES times in a second is quiet until a tick finds its block in a bin, or it is back in its
 * slab: the block comes and goes unseen, and a profile takes it for what it was last.
 *
 * A large block is sampled with a chance of bytes / R, and always from R on; its record is its first unit's.
 *
 * Records can be read by anyone at any time, also from outside of the process: `state` counts its changes, so that who has read a
 * record finds out whether it was another one's meanwhile. */
#ifndef SLAB_SAMPLE_H
#define SLAB_SAMPLE_H

#include "slab/unit.h"

/* The secure library knows no block by its live bit alone, and without live bits free would not leave the fast path. */
#define HAK_SAMPLED (HAK_CHECKS && !HAK_SECURE)

typedef enum sample_state {
  SAMPLE_NONE,  /* no block of the unit is sampled */
  SAMPLE_FREE,
  SAMPLE_LIVE,  /* the record tells of the block that is live */
  SAMPLE_QUIET  /* of a block that may be live by now, as its live bit tells, or may have been others since */
} sample_state_t;
#define SAMPLE_STATE_BITS 2

typedef struct sample {
  _Atomic uint32_t state; /* sample_state_t, and above it how often it has changed */
  _Atomic uint32_t place; /* where the block begins in the unit, in granules */
  _Atomic uint32_t chance; /* of being sampled, in 1/2^32; 0: certain */
  _Atomic uint32_t site;  /* kit/site.h */
  _Atomic uint32_t tag;   /* of the thread: hak_tag_set */
  _Atomic uint32_t asked; /* bytes; of a large block its unit tells */
  _Atomic uint32_t born;  /* sample_clock */
  _Atomic uint32_t fired; /* the second, and in the low eight bits how often in that */
} sample_t;
_Static_assert(sizeof(sample_t) == REGION_SAMPLE_BYTES, "the zone of samples has one for each unit");

/* What an owner of slabs has for it. */
typedef struct sampler {
  uint64_t random;        /* guarded by the owner's lock */
  _Atomic uint32_t quiet; /* blocks that are */
} sampler_t;

/* How many bytes one sampled byte stands for; 0: none are sampled. Set once, before the first slab. */
extern uint64_t sample_rate;
void sample_start(uint64_t bytes);

HAK_INLINE sample_t *sample_of(uint32_t unit) { return (sample_t *)(void *)region.samples + unit; }
HAK_INLINE sample_state_t sample_state(const sample_t *sample) {
  return (sample_state_t)(load_acquire(&sample->state) & (((uint32_t)1 << SAMPLE_STATE_BITS) - 1));
}

/* --- entries ------------------------------------------------------------------------------ */

/* What lies in bins, and what batch_take gives: a block's address, with this bit if it is sampled. No address has it. */
#define ENTRY_SAMPLED ((uintptr_t)1 << 63)
HAK_INLINE bool entry_is_sampled(const void *entry) { return (intptr_t)entry < 0; }
HAK_INLINE void *entry_block(void *entry) { return (void *)((uintptr_t)entry & ~ENTRY_SAMPLED); }
HAK_INLINE void *entry_sampled(void *block) { return (void *)((uintptr_t)block | ENTRY_SAMPLED); }

/* The record of the block, which is the start of a slab's block; NULL if that is not sampled. */
HAK_INLINE sample_t *sample_find(const void *block) {
  if (!HAK_SAMPLED || sample_rate == 0) return NULL;
  uint32_t unit = (uint32_t)region_unit(block);
  sample_t *sample = sample_of(unit);
  uint32_t place = (uint32_t)((uintptr_t)block % HAK_UNIT / HAK_GRANULE);
  return sample_state(sample) != SAMPLE_NONE && load_relaxed(&sample->place) == place ? sample : NULL;
}

/* Whether the block is live by its record, not by its bit. */
HAK_INLINE bool sample_is_live(const void *block) {
  const sample_t *sample = sample_find(block);
  return sample != NULL && sample_state(sample) == SAMPLE_LIVE;
}
/* Whether a block of a slab, which begins there, is live. */
HAK_INLINE bool slab_block_is_live(const void *block) { return region_is_live(block) || sample_is_live(block); }

/* --- slabs -------------------------------------------------------------------------------- */

/* Chooses the blocks of a new slab. With the owner's lock, as the next two. */
void sample_choose(sampler_t *sampler, unit_t *slab);
/* The slab ends. */
void sample_forget(unit_t *slab);
/* Makes entries of the slab's blocks, which rise. */
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
/* Of a block in a bin: what its entry is to be from now on. */
HAK_CHECKED void *sample_wake(sampler_t *sampler, void *block);

/* The same for a large block, which its caller alone has. */
void sample_open_large(uint32_t unit, size_t bytes);
void sample_resize_large(uint32_t unit, size_t bytes);
void sample_close_large(uint32_t unit);

#endif
