/* unit.h - the records of each unit of block memory: what span it is part of, and of what kind that is.
 *
 * A span is entered from its last unit to its first, and the first is published with its kind: a thread that finds the kind finds
 * the rest of the record, and of the span.  A fork's child, the crash report and the census read records without a lock. */
#ifndef SLAB_UNIT_H
#define SLAB_UNIT_H

#include "os/os.h"
#include "space/region.h"
#include "slab/class.h"

typedef enum unit_kind {
  UNIT_FREE,   /* in no span */
  UNIT_SLAB,   /* first unit of a slab */
  UNIT_INSIDE, /* a further unit of any span; `head` leads back */
  UNIT_LARGE,  /* first unit of a large block */
  UNIT_SLOTS,  /* first unit of the guard slots: slots.h */
  UNIT_META,   /* first unit of memory of ours: front/heaps.c */
  UNIT_GUARD,  /* first unit of inaccessible ones */
  UNIT_KEPT    /* first unit of a freed large block that its thread keeps: kept.h */
} unit_kind_t;

struct slab_owner;

/* One for each unit, in its own zone. */
typedef struct unit {
  _Atomic uint8_t kind;
  _Atomic uint8_t size_class;
  uint16_t first_word; /* no free bit lies below this word */
  _Atomic uint16_t free; /* set bits */
  bool listed_full;
  uint8_t age;         /* hole.c */
  uint32_t head;       /* UNIT_INSIDE: the span's first unit */
  _Atomic uint32_t units; /* of the span, valid in its first unit */
  uint32_t next, prev; /* units, in the owner's list; UNIT_NONE ends. Of a UNIT_LARGE if it is `owned` */
  _Atomic uint64_t bytes; /* UNIT_LARGE: usable bytes */
  _Atomic uint64_t holes; /* a bit a page: purged, and no block of it taken since */
  uint16_t touched;    /* secure.c: the blocks that were live once lie below this one */
  bool dirty_when_free; /* secure.c: its free blocks may not be zero */
  uint8_t epoch;       /* slab_epoch when it was made */
  bool holes_by_growth; /* the last ones were made as the heap grew */
  union {
    bool zeroed;       /* UNIT_LARGE: it is calloc's */
    bool returned;     /* UNIT_SLAB: what was free came from others, when last brought in; and no page of it has gone since */
  };
  uint8_t guard;       /* os_guard_t of inaccessible units, and of what a large block's last unit has behind it */
  uint8_t refused_at;  /* of a UNIT_SLAB: the minute in which it was last so refused a page */
  uint32_t left;       /* UNIT_LARGE in the secure library: of `bytes`, what was not asked for; zero as long as nobody does wrong */
  _Atomic bool remote;  /* of a UNIT_SLAB: another thread than its owner's may have freed a block of it */
  bool sampled;         /* of a UNIT_SLAB: slab/sample.h has a record of a block of it */
  _Atomic bool owned;   /* of a UNIT_LARGE alone: it is in the list of an owner, which remote_of tells */
  bool told;            /* of a UNIT_SLAB or UNIT_LARGE: the program knows of the span, and may have advised the kernel: named_tell */
  _Atomic uintptr_t tracked; /* of a UNIT_SLAB: leads to a record of each of its blocks, if there are any: slab/track.h */
} unit_t;
_Static_assert(sizeof(unit_t) == HAK_CACHE_LINE, "a unit's record is one cache line");
_Static_assert(sizeof(unit_t) == REGION_UNIT_BYTES, "the zone of units has one for each");

#define UNIT_NONE UINT32_MAX

HAK_INLINE unit_t *unit_at(uint32_t number) { return (unit_t *)(void *)region.unit_records + number; }
HAK_INLINE uint32_t unit_number(const unit_t *unit) { return (uint32_t)(unit - (unit_t *)(void *)region.unit_records); }
/* The record of the span that the unit is part of; its kind may be UNIT_FREE. */
HAK_INLINE unit_t *unit_head(uint32_t number) {
  unit_t *unit = unit_at(number);
  return load_relaxed(&unit->kind) == UNIT_INSIDE ? unit_at(unit->head) : unit;
}

/* Units for so many bytes, and for a power of two to align them to. */
HAK_INLINE uint32_t units_of(size_t bytes) { return (uint32_t)((bytes + HAK_UNIT - 1) >> HAK_UNIT_SHIFT); }
HAK_INLINE uint64_t units_of_align(size_t align) { return align > HAK_UNIT ? align >> HAK_UNIT_SHIFT : 1; }

/* Marks units as one span, before its owner publishes a block of it / after the last is back. */
void units_enter(uint32_t start, uint32_t units, unit_kind_t kind, unsigned size_class);
void units_leave(uint32_t start, uint32_t units);
/* Takes back what the program may have advised the kernel of the last units of a span that it was told of: before these leave it. */
void units_unadvise(unit_t *first, uint32_t units);
/* A large block's span has units [from, to) more, counted from its first. */
void units_extend(unit_t *first, uint32_t from, uint32_t to);

/* --- inaccessible units -------------------------------------------------------------------
 *
 * In the secure library those beside slabs and large blocks, and freed large blocks while they wait; in both what malloc(0) gives.
 *
 * Free units of the secure library are all zero, known to be or not, so what was guarded is zero when it is free again.
 * What could not be guarded, for want of mappings (unit_t.guard is OS_OPEN), may have been written to by a program that
 * does wrong, and is cleared then. */

/* Enters units of an allocated span as inaccessible ones, before they are: a fork's child takes what is in no span for usable. */
void units_enter_guard(uint32_t start, uint32_t units);
/* Makes units of an allocated span inaccessible, and zero in any case. */
void units_guard(uint32_t start, uint32_t units);
/* The same for bytes [from, to) of a large block that begins at `unit`, with `guard` the unit behind it: they make no
 * mapping more, since they are one with that, and are left as they are, but zero, if that is accessible. */
HAK_CHECKED os_guard_t units_guard_beside(uint32_t unit, size_t from, size_t to, uint32_t guard);
/* Frees such units. Those that the kernel does not make accessible again stay as they are. */
void units_unguard(uint32_t start, uint32_t units);
/* Makes units of a span zero. */
void units_clear(uint32_t start, uint32_t units);
uint64_t guards_left_out(void); /* guards that mappings did not allow, so far */

/* --- the records of remote frees, in a zone of their own: remote.h ----------------------- */

enum { REMOTE_CLOSED, REMOTE_OPEN, REMOTE_QUEUED };
#define REMOTE_OTHERS ((uintptr_t)1)

typedef struct remote {
  _Atomic uint32_t state;
  _Atomic uint32_t next; /* in the pending stack: unit + 1 */
  _Atomic uintptr_t freers; /* thread_self() of its marker, 0 for none; and REMOTE_OTHERS if others may have set remote bits */
  struct slab_owner *_Atomic owner; /* of the slab, set before its first block is out: here, since its freers ask for it; or of a
                                       large block that is `owned` */
  uint64_t refused; /* of a slab, under the owner's lock, a bit a page: the kernel would not take it: hole.c */
} remote_t;
_Static_assert(sizeof(remote_t) == REGION_REMOTE_BYTES, "the zone of remote records has one for each unit");

HAK_INLINE remote_t *remote_of(uint32_t unit) { return (remote_t *)(void *)region.remotes + unit; }
HAK_INLINE struct slab_owner *slab_owner(const unit_t *slab) { return load_relaxed(&remote_of(unit_number(slab))->owner); }
/* The slab that begins there accepts remote frees.  It has no remote bits yet: the release is for the slab's record, which the
 * announcing thread reads. */
HAK_INLINE void remote_open(uint32_t unit) { store_release(&remote_of(unit)->state, (uint32_t)REMOTE_OPEN); }
/* It accepts none any more, unless it is queued: then false. */
HAK_CHECKED HAK_INLINE bool remote_close(uint32_t unit) {
  uint32_t open = REMOTE_OPEN;
  return atomic_compare_exchange_strong(&remote_of(unit)->state, &open, (uint32_t)REMOTE_CLOSED);
}

#endif
