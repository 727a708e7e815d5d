/* track.h - tracked slabs: slabs with a record of every block, so that it is known whose blocks lie beside whose.
 *
 * One slab in HAKMEM_TRACK is tracked, chosen at random when it is made; of slabs of the smallest blocks half as many, since a record is
 * half as large as such a block.  All blocks of a tracked slab are sampled in the sense of slab/sample.h, which opens and closes the
 * records.  The exception is a block that is sampled by bytes too: it has its record there, and is what it would be in any slab.
 *
 * A record is one word, so a reader never sees parts of two.  From its lowest bits up it has track_state_t, how often the block was
 * allocated in the second that it was born in, its site, and when it was born (sample_clock).  The record of a free block describes the
 * last one there.  A slab's records lie side by side in memory of kit/meta.h, which is its owner's for good: any thread may read the word
 * that leads there, and what it leads to, at any time. */
#ifndef SLAB_TRACK_H
#define SLAB_TRACK_H

#include "kit/site.h"
#include "slab/unit.h"

typedef enum track_state {
  TRACK_FREE, /* 0, as memory of meta.h is */
  TRACK_LIVE,
  TRACK_QUIET /* as SAMPLE_QUIET */
} track_state_t;
enum { TRACK_STATE_BITS = 2, TRACK_FIRED_BITS = 6, TRACK_SITE_BITS = 24 };
enum { TRACK_SITE_SHIFT = TRACK_STATE_BITS + TRACK_FIRED_BITS, TRACK_BORN_SHIFT = TRACK_SITE_SHIFT + TRACK_SITE_BITS };
#define TRACK_FIRED_MOST (((uint32_t)1 << TRACK_FIRED_BITS) - 1)
_Static_assert(SITE_MOST <= 1 << TRACK_SITE_BITS && TRACK_BORN_SHIFT == 32, "a site's number and a time have their bits");

typedef _Atomic uint64_t track_t;

HAK_INLINE track_state_t track_state(uint64_t word) { return (track_state_t)(word & (((uint32_t)1 << TRACK_STATE_BITS) - 1)); }
HAK_INLINE uint32_t track_fired(uint64_t word) { return (uint32_t)(word >> TRACK_STATE_BITS) & TRACK_FIRED_MOST; }
HAK_INLINE uint32_t track_site(uint64_t word) { return (uint32_t)(word >> TRACK_SITE_SHIFT) & (((uint32_t)1 << TRACK_SITE_BITS) - 1); }
HAK_INLINE uint32_t track_born(uint64_t word) { return (uint32_t)(word >> TRACK_BORN_SHIFT); }
HAK_INLINE uint64_t track_word(uint32_t born, uint32_t site, uint32_t fired, track_state_t state) {
  return (uint64_t)born << TRACK_BORN_SHIFT | site << TRACK_SITE_SHIFT | fired << TRACK_STATE_BITS | (uint32_t)state;
}
HAK_INLINE uint64_t track_with(uint64_t word, track_state_t state) { return (word & ~(uint64_t)track_state(word)) | (uint32_t)state; }

/* unit_t.tracked: where the records begin, a multiple of a cache line; the bits below that say for how many there is room, as a power of
 * two.  So what this leads to is a record, whatever becomes of the slab meanwhile. */
#define TRACK_ORDER_MASK ((uintptr_t)HAK_CACHE_LINE - 1)
HAK_INLINE track_t *track_at(uintptr_t tracked, uint32_t block) {
  return (track_t *)(tracked & ~TRACK_ORDER_MASK) + (block & (((uint32_t)1 << (tracked & TRACK_ORDER_MASK)) - 1));
}

/* The record of the block, which begins at `block` in a slab; NULL if its slab is not tracked. */
HAK_INLINE track_t *track_find(const void *block) {
  const unit_t *slab = unit_head((uint32_t)region_unit(block));
  uintptr_t tracked = load_acquire(&slab->tracked);
  if (HAK_LIKELY(tracked == 0)) return NULL;
  size_t offset = (size_t)((const char *)block - (const char *)region_address(unit_number(slab)));
  unsigned c = load_relaxed(&slab->size_class);
  return c < CLASS_COUNT ? track_at(tracked, class_block_at(c, offset)) : NULL;
}

/* Memory for records that an owner of slabs has and does not use; guarded by the owner's lock.  A fork's child that finds the lock held
 * forgets the memory. */
enum { TRACK_ORDER_LEAST = 3, TRACK_ORDER_MOST = 12 };
typedef struct track_store {
  uintptr_t free[TRACK_ORDER_MOST + 1]; /* by order: records of tracked slabs that have ended, each leads to the next by its first word */
  uintptr_t next, end;                  /* not used yet */
} track_store_t;

/* The newest chunk of memory that records lie in: readers outside of the process count the chunks.  Each begins with the address of the one
 * before, 0 in the first.  None is ever given back. */
#define TRACK_CHUNK_BYTES (HAK_CACHE_LINE + HAK_UNIT)
extern _Atomic uintptr_t track_chunks;

/* One slab in so many is tracked; 0: none.  Set once, before the first slab. */
extern uint32_t track_every;
void track_start(uint32_t every);
/* Chooses whether a new slab is tracked. */
void track_choose(track_store_t *store, uint64_t *random, unit_t *slab);
/* Ends the records of a slab that ends; returns how many of them were quiet. */
uint32_t track_forget(track_store_t *store, unit_t *slab);

#endif
