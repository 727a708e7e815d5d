/* region.h - the one range of addresses that all blocks come from.
 *
 * Block memory is [base, base + units * 64 KiB); it is made usable from the bottom up.  Elsewhere lie the zones: arrays indexed by unit or
 * granule.  They are kept apart from the blocks so that a stray write does not meet them, and so that they do not share cache sets.  Every
 * zone grows along with the blocks.
 *
 * Both lie at places chosen at random, far from where programs, libraries and the kernel put things.  Nothing is mapped before it is
 * needed, so no unused addresses are held.  Foreign mappings where blocks would grow are stepped over; one where a zone would grow ends the
 * growth.
 *
 * Who writes what: the bin of a unit, its slab record and its free bits belong to the owner of the span that the unit is part of.  Remote
 * records and remote bits are atomic and open to all threads.  A slab's marks are written by one of the threads that free into it; the copy
 * of the marks that its owner has seen, by the holder of the owner's lock.  Live words are written by the owner's thread by plain stores,
 * and by others by atomic read-modify-writes (see slab/remote.h). */
#ifndef SPACE_REGION_H
#define SPACE_REGION_H

#include "base/check.h"
#include "space/room.h"

/* The bytes of a unit in each zone, except that of superslabs; records of the layers above assert theirs. */
#define REGION_BIN_BYTES sizeof(void *)
#define REGION_LIVE_BYTES (HAK_UNIT / HAK_GRANULE / 8)
#define REGION_UNIT_BITS_BYTES (HAK_UNIT / HAK_GRANULE / 8) /* for blocks of the smallest size: free bits, and as many remote bits */
#define REGION_UNIT_BYTES 64
#define REGION_REMOTE_BYTES 32
#define REGION_SAMPLE_BYTES 32

typedef struct region {
  HAK_ALIGNED(HAK_CACHE_LINE)    /* not on the variable, where clang would take it in place of the type's alignment */
  uintptr_t minus_base;          /* 0 - base: added to an address it gives the address's offset */
  uintptr_t limit;               /* offset >> REGION_LIMIT_SHIFT below which zones are readable; grows only; hot */
  uint64_t *live;                /* a bit for each granule: a live block starts there; hot */
  uintptr_t live_bias;           /* the live word for an address is at live_bias + (address >> 10) * 8 */
  uintptr_t gated_limit;         /* the same as limit once the gate is open, 0 before; hot */
  uintptr_t base;                /* address of unit 0; 0 before region_init */
  char *bins;                    /* see region_bin */
  char *unit_records;            /* slab/unit.h */
  char *free_bits;               /* see region_bits */
  char *remote_bits;             /* in the same zone, as are the marks */
  char *marks;                   /* see region_marks */
  char *remotes;                 /* slab/remote.h */
  char *samples;                 /* slab/sample.h */
  superslab_t *superslabs;
  room_t *rooms;
  _Atomic uint32_t units;        /* units below which block memory may be mapped; grows only */
} HAK_SEALED region_t;
extern region_t region;

/* With checks a free is classified by granule; without, by unit, which saves a shift. */
#define REGION_LIMIT_SHIFT (HAK_CHECKS ? HAK_GRANULE_SHIFT : HAK_UNIT_SHIFT)

/* What to compare with region.limit.  It is rotated, so that a misaligned pointer lies beyond any limit, as a foreign one does. */
HAK_INLINE uintptr_t region_index(const void *p) {
  uintptr_t offset = owner_load(&region.minus_base) + (uintptr_t)p;
  return HAK_CHECKS ? bits_rotr(offset, HAK_GRANULE_SHIFT) : offset >> HAK_UNIT_SHIFT;
}
/* The unit of such an index below the limit. */
HAK_INLINE size_t region_index_unit(uintptr_t place) { return HAK_CHECKS ? place >> HAK_UNIT_GRANULES_SHIFT : place; }

/* The bin zone lies at a fixed distance below the live zone, so that the fast
 * path of free needs one base for the two. */
#define REGION_BIN_OFFSET ((ptrdiff_t)1 << 29)
_Static_assert((HAK_REGION_MAX >> HAK_UNIT_SHIFT) * 8 <= (uint64_t)REGION_BIN_OFFSET, "the bin zone ends below the live zone");

/* What threads other than its owner's know of a bin. */
typedef struct region_bin {
  uintptr_t thread;    /* whose frees may push into it; 0: nobody's */
  uint32_t block_size; /* bytes; 0: no bin */
  uint32_t size_class;
} region_bin_t;
/* The bin of all units that are in no slab. */
extern region_bin_t region_no_bin;

/* The bin that takes the unit's blocks; hot. */
HAK_INLINE region_bin_t **region_bin(uint64_t *live, size_t unit) {
  return (region_bin_t **)(void *)((char *)live - REGION_BIN_OFFSET) + unit;
}

HAK_INLINE void *region_address(uint32_t unit) { return (void *)(region.base + ((uintptr_t)unit << HAK_UNIT_SHIFT)); }

/* The unit that holds the address, or a number >= region.units for a foreign one. */
HAK_INLINE size_t region_unit(const void *p) { return region.base == 0 ? SIZE_MAX : ((uintptr_t)p - region.base) >> HAK_UNIT_SHIFT; }

/* Bitmaps with a bit for each block.  Eight words of every unit of a superslab lie together as a group, so that slabs of few blocks touch
 * one page of a map for each superslab.  A superslab's free bits come first, then its remote bits, then its marks.  Beside each group of
 * marks lies the group of the marks seen, mostly on the same page. */
#define REGION_BITS_BYTES (WORD_UNITS * REGION_UNIT_BITS_BYTES)
#define REGION_BITS_GROUP (WORD_UNITS * 8 * sizeof(uint64_t))
_Static_assert(REGION_UNIT_BITS_BYTES / 64 * REGION_BITS_GROUP == REGION_BITS_BYTES, "the groups of eight words are all that there is");
/* Slabs of more blocks have no marks: with marks for the smallest blocks too, they would take twice the addresses. */
#define REGION_MARKED_BLOCKS 2048
#define REGION_MARKS_BYTES (REGION_MARKED_BLOCKS / 512 * 2 * REGION_BITS_GROUP)
#define REGION_MAPS_BYTES (2 * REGION_BITS_BYTES + REGION_MARKS_BYTES)
HAK_INLINE _Atomic uint64_t *region_map(char *map, size_t group_bytes, uint32_t unit, uint32_t word) {
  size_t superslab = unit / WORD_UNITS;
  size_t in_superslab = unit % WORD_UNITS;
  map += superslab * REGION_MAPS_BYTES + word / 8 * group_bytes + in_superslab * 64;
  return (_Atomic uint64_t *)(void *)map + word % 8;
}
/* Word `word` (of 64) of a unit's free or remote bits. */
HAK_INLINE _Atomic uint64_t *region_bits(char *bits, uint32_t unit, uint32_t word) {
  return region_map(bits, REGION_BITS_GROUP, unit, word);
}
/* Of its marks, or of the marks that its owner has seen: slab/remote.h. */
HAK_INLINE _Atomic uint64_t *region_marks(uint32_t unit, uint32_t word) {
  return region_map(region.marks, 2 * REGION_BITS_GROUP, unit, word);
}
HAK_INLINE _Atomic uint64_t *region_marks_seen(uint32_t unit, uint32_t word) {
  return region_map(region.marks + REGION_BITS_GROUP, 2 * REGION_BITS_GROUP, unit, word);
}

/* The live map: the owner's thread changes its words by plain stores, other threads by atomic read-modify-writes, which such a store can
 * undo: see slab/remote.c. */
HAK_INLINE size_t region_live_index(const void *p) { return (uintptr_t)p >> (HAK_GRANULE_SHIFT + 6); } /* from live_bias on */
HAK_INLINE uint64_t *region_live_word(const void *p) { return (uint64_t *)region.live_bias + region_live_index(p); }
HAK_INLINE uint64_t region_live_bit(const void *p) { return (uint64_t)1 << (((uintptr_t)p >> HAK_GRANULE_SHIFT) & 63); }
/* Always true without checks, where it is not known. */
HAK_INLINE bool region_is_live(const void *p) { return !HAK_CHECKS || (racy_load(region_live_word(p)) & region_live_bit(p)) != 0; }
HAK_INLINE void region_set_live(const void *p) { __atomic_fetch_or(region_live_word(p), region_live_bit(p), __ATOMIC_RELAXED); }
/* False if the bit was not set. */
HAK_INLINE bool region_clear_live(const void *p) {
  return (__atomic_fetch_and(region_live_word(p), ~region_live_bit(p), __ATOMIC_RELAXED) & region_live_bit(p)) != 0;
}

HAK_INLINE uint32_t region_superslabs(void) { return (load_acquire(&region.units) + WORD_UNITS - 1) / WORD_UNITS; }

/* Chooses the places and maps the first superslab.  `most_bytes` limits the blocks; 0: four times the physical memory.  For one thread,
 * which may try again after false. */
HAK_CHECKED bool region_init(uint64_t most_bytes);
/* Makes `units` contiguous units more usable, counting free ones at the end of what is mapped, for a caller that has found nothing below
 * `frontier`.  If the frontier has moved since, it returns true and does nothing: many threads that find nothing at the same moment wait
 * for one growth, and must not make one each.  False: out of memory or addresses. */
HAK_CHECKED bool region_grow(uint32_t frontier, uint32_t units);
/* Whether addresses or memory are limited, so that little is mapped ahead. */
HAK_CHECKED bool region_scarce(void);
/* Opens the gate, once operator new is known to be ours for good.  Until then gated_limit is 0: so operator delete, which compares with it,
 * takes the path that checks; afterwards the check costs it nothing (entry/cxx.c). */
void region_open_gate(void);
/* Whether so many units in a row, from a multiple of `align_units`, could be had if every block were freed. */
HAK_CHECKED bool region_may_hold(uint64_t units, uint64_t align_units);
/* In a fork's child, while no thread but the calling one is inside: releases the lock of growth, unless the caller is `inside` and holds
 * it. */
void region_after_fork(bool inside);

typedef struct region_census {
  uint64_t mapped, metadata; /* bytes; `mapped` is of blocks and metadata */
  uint64_t superslabs; /* that have any usable unit */
} region_census_t;
region_census_t region_census(void);

/* region_audit checks the frontier, the limits and the ends of the zones. region_maps and region_maps_unit return whether units are usable;
 * the first is certain, since it takes the lock. */
HAK_AUDITS(void region_audit(void);)
HAK_AUDITS(bool region_maps(uint32_t superslab, uint32_t mask);)
HAK_AUDITS(bool region_maps_unit(uint32_t unit);)

#endif
