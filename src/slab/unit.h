/* unit.h - the record of each unit of block memory: what span it is part of, and of what kind that is.
 *
 * A span is entered from its last unit to its first, and the first is published with its kind: who finds a kind finds the
 * rest of the record, and of the span.  A fork's child, the crash report and the census read records without a lock. */
#ifndef SLAB_UNIT_H
#define SLAB_UNIT_H

#include "slab/class.h"
#include "space/region.h"

typedef enum unit_kind {
  UNIT_FREE,   /* in no span */
  UNIT_SLAB,   /* first unit of a slab */
  UNIT_INSIDE, /* a further unit of any span; `head` leads back */
  UNIT_LARGE,  /* first unit of a large block */
  UNIT_SLOTS,  /* first unit of the guard slots: guarded.h */
  UNIT_META,   /* first unit of memory of ours: front/heap.c */
  UNIT_GUARD   /* first unit of inaccessible ones: guard.h */
} unit_kind_t;

struct slab_owner;

/* One for each unit, in its own zone. */
typedef struct unit {
  struct slab_owner *_Atomic owner; /* of a UNIT_SLAB; set before its first block is out */
  _Atomic uint8_t kind;
  _Atomic uint8_t size_class;
  uint16_t first_word; /* no free bit lies below this word */
  _Atomic uint16_t free; /* set bits */
  bool listed_full;
  uint8_t age;         /* hole.c */
  uint32_t head;       /* UNIT_INSIDE: the span's first unit */
  _Atomic uint32_t units; /* of the span, valid in its first unit */
  uint32_t next, prev; /* units, in the owner's list; UNIT_NONE ends */
  _Atomic uint64_t bytes; /* UNIT_LARGE: usable bytes */
  uint64_t holes;      /* a bit a page: purged, and no block of it taken since */
  uint16_t touched;    /* secure.c: the blocks that were live once lie below this one */
  bool dirty_when_free; /* secure.c: its free blocks may not be zero */
  uint8_t epoch;       /* slab_epoch when it was made */
  uint8_t guard;       /* guard.h: os_guard_t of inaccessible units, and of what a large block's last unit has behind it */
  uint32_t left;       /* UNIT_LARGE in the secure library: of `bytes`, what was not asked for; zero as long as nobody does wrong */
  uint8_t spare[4];
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

/* Marks units as one span, before its owner publishes a block of it / after the last is back. */
void span_enter(uint32_t start, uint32_t units, unit_kind_t kind, unsigned size_class);
void span_leave(uint32_t start, uint32_t units);
/* A large block's span has units [from, to) more, counted from its first. */
void span_extend(unit_t *first, uint32_t from, uint32_t to);

#endif
