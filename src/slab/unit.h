/* unit.h - the record of each unit of block memory: which span it is part of, and of what kind that is.
 *
 * A span is entered from its last unit to its first, and the first is published with its kind: a thread that finds the kind finds the rest
 * of the record, and of the span.  A fork's child, the crash report and the census read records without a lock. */
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
  UNIT_META,   /* first unit of memory of our own: front/heaps.c */
  UNIT_GUARD,  /* first unit of an inaccessible span */
  UNIT_CACHED  /* first unit of a freed large block that a thread caches: large_cache.h */
} unit_kind_t;

struct slab_owner;

/* One for each unit, in its own zone. */
typedef struct unit {
  _Atomic uint8_t kind;
  _Atomic uint8_t size_class;
  uint16_t first_word; /* no free bit lies below this word */
  _Atomic uint16_t free; /* number of set free bits */
  bool listed_full;
  uint8_t age;         /* hole.c */
  uint32_t head;       /* UNIT_INSIDE: the span's first unit */
  _Atomic uint32_t units; /* of the span, valid in its first unit */
  uint32_t next, prev; /* neighbours in the owner's list, UNIT_NONE at its ends; of a UNIT_LARGE only if `owned` */
  _Atomic uint64_t bytes; /* UNIT_LARGE: usable bytes */
  _Atomic uint64_t holes; /* a bit a page: purged, and no block on it taken since */
  uint16_t touched;    /* secure.c: every block that was ever live lies below this one */
  bool dirty_when_free; /* secure.c: its free blocks may not be zero */
  uint8_t fork_epoch;  /* fork_epoch when the slab was made */
  bool holes_by_growth; /* the last holes were made as the heap grew */
  union {
    uint8_t use;       /* UNIT_LARGE: the span_use_t that it was allocated with */
    bool returned;     /* UNIT_SLAB: when last collected, it had no free blocks but what others have freed; no page was purged since */
  };
  uint8_t guard;       /* os_guard_t of inaccessible units, and of what lies behind a large block in its last unit */
  uint8_t refused_at;  /* of a UNIT_SLAB: the minute in which the kernel last refused one of its pages */
  uint32_t left;       /* UNIT_LARGE in the secure library: those of `bytes` that were not requested, zero while the program is right */
  _Atomic bool remote;  /* of a UNIT_SLAB: a thread other than its owner's may have freed a block of it */
  bool sampled;         /* of a UNIT_SLAB: slab/sample.h has a record of one of its blocks */
  _Atomic bool owned;   /* of a UNIT_LARGE: it is in the list of an owner, which remote_of names */
  bool notified;        /* of a UNIT_SLAB or UNIT_LARGE: its span hook was called, and may have advised the kernel: front/named.h */
  _Atomic uintptr_t tracked; /* of a UNIT_SLAB: leads to the records of its blocks, if it is tracked: slab/track.h */
} unit_t;
_Static_assert(sizeof(unit_t) == HAK_CACHE_LINE, "a unit's record is one cache line");
_Static_assert(sizeof(unit_t) == REGION_UNIT_BYTES, "the zone of units has one for each");

#define UNIT_NONE UINT32_MAX

HAK_INLINE unit_t *unit_at(uint32_t number) { return (unit_t *)(void *)region.unit_records + number; }
HAK_INLINE uint32_t unit_number(const unit_t *unit) { return (uint32_t)(unit - (unit_t *)(void *)region.unit_records); }
/* The record of the first unit of the span that the unit is part of; its kind may be UNIT_FREE. */
HAK_INLINE unit_t *unit_head(uint32_t number) {
  unit_t *unit = unit_at(number);
  return load_relaxed(&unit->kind) == UNIT_INSIDE ? unit_at(unit->head) : unit;
}

/* Units that hold so many bytes; units to align to a power of two. */
HAK_INLINE uint32_t units_of(size_t bytes) { return (uint32_t)((bytes + HAK_UNIT - 1) >> HAK_UNIT_SHIFT); }
HAK_INLINE uint64_t units_of_align(size_t align) { return align > HAK_UNIT ? align >> HAK_UNIT_SHIFT : 1; }

/* Enter units as one span, before its owner publishes a block of it; leave it after the last block is back. */
void units_enter(uint32_t start, uint32_t units, unit_kind_t kind, unsigned size_class);
void units_leave(uint32_t start, uint32_t units);
/* Takes back what the program's span hook may have advised the kernel about the last units of a span; called before they leave the span. */
void units_unadvise(unit_t *first, uint32_t units);
/* Adds units [from, to), counted from its first, to a large block's span. */
void units_extend(unit_t *first, uint32_t from, uint32_t to);

/* --- inaccessible units -------------------------------------------------------------------
 *
 * In the secure library these are the units beside slabs and large blocks, and freed large blocks while they wait; in all libraries, what
 * malloc(0) returns.
 *
 * Free units of the secure library are all zero, whether known to be or not, so guarded units must be zero when they are free again.
 * Where a guard could not be made, for want of mappings (unit_t.guard is OS_OPEN), a faulty program may have written to the units: they
 * are cleared then. */

/* Enters units of an allocated span as inaccessible, before they are: a fork's child takes units in no span for usable. */
void units_enter_guard(uint32_t start, uint32_t units);
/* Makes units of an allocated span inaccessible; they become zero in any case. */
void units_guard(uint32_t start, uint32_t units);
/* The same for bytes [from, to) of a large block that begins at `unit`, with `guard` the unit behind it.  This makes no further mapping,
 * since they join that unit's; if that unit is accessible, they stay so too, but become zero. */
HAK_CHECKED os_guard_t units_guard_beside(uint32_t unit, size_t from, size_t to, uint32_t guard);
/* Frees such units.  Units that the kernel does not make accessible again stay guards. */
void units_unguard(uint32_t start, uint32_t units);
/* Makes units of a span zero. */
void units_clear(uint32_t start, uint32_t units);
uint64_t guards_left_out(void); /* guards that could not be made for want of mappings, so far */

/* --- the records of remote frees, in a zone of their own: remote.h ----------------------- */

enum { REMOTE_CLOSED, REMOTE_OPEN, REMOTE_QUEUED };
#define REMOTE_OTHERS ((uintptr_t)1)

typedef struct remote {
  _Atomic uint32_t state;
  _Atomic uint32_t next; /* in the pending stack: the next slab's first unit + 1 */
  _Atomic uintptr_t freers; /* thread_self() of the marker, 0 for none; and REMOTE_OTHERS if other threads may have set remote bits */
  struct slab_owner *_Atomic owner; /* of the slab, set before its first block is out: here, since freers read it; or of a large block that
                                       is `owned` */
  uint64_t refused; /* of a slab, under the owner's lock, a bit a page that the kernel would not take: hole.c */
} remote_t;
_Static_assert(sizeof(remote_t) == REGION_REMOTE_BYTES, "the zone of remote records has one for each unit");

HAK_INLINE remote_t *remote_of(uint32_t unit) { return (remote_t *)(void *)region.remotes + unit; }
HAK_INLINE struct slab_owner *slab_owner(const unit_t *slab) { return load_relaxed(&remote_of(unit_number(slab))->owner); }
/* Makes the slab that begins there accept remote frees.  It has no remote bits yet: the release is for the slab's record, which the
 * announcing thread reads. */
HAK_INLINE void remote_open(uint32_t unit) { store_release(&remote_of(unit)->state, (uint32_t)REMOTE_OPEN); }
/* Makes it accept none any more, unless it is queued: then false. */
HAK_CHECKED HAK_INLINE bool remote_close(uint32_t unit) {
  uint32_t open = REMOTE_OPEN;
  return atomic_compare_exchange_strong(&remote_of(unit)->state, &open, (uint32_t)REMOTE_CLOSED);
}

#endif
