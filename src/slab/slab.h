/* slab.h - slabs: spans of one size class, and the free blocks in them.
 *
 * A slab's free blocks are bits outside of it: no link lies in a block, so
 * nothing a program writes into freed memory is ever followed, and giving a
 * block back does not touch it.  A set bit means that the block is in the slab;
 * a clear one that it is out: held by the program, in a bin, or freed by
 * another thread and not yet collected.
 *
 * A slab belongs to one owner.  All functions here are for the owner's thread,
 * or for the holder of owner->lock; see slab/remote.h for others. */
#ifndef SLAB_SLAB_H
#define SLAB_SLAB_H

#include "os/lock.h"
#include "slab/class.h"
#include "space/region.h"

typedef enum slab_kind {
  SLAB_FREE,    /* the unit starts no span */
  SLAB_BLOCKS,  /* first unit of a slab */
  SLAB_INSIDE,  /* a further unit; `head` leads back */
  SLAB_LARGE,   /* first unit of a large block; its further units are SLAB_INSIDE too */
  SLAB_SLOTS,   /* the guard slots: guarded.h */
  SLAB_META,    /* first unit of memory of ours: front/heap.c */
  SLAB_GUARD    /* first unit of inaccessible ones, in the secure library */
} slab_kind_t;

struct slab_owner;

/* One for each unit, in its own zone. */
typedef struct slab {
  struct slab_owner *_Atomic owner; /* of a SLAB_BLOCKS; set before its first block is out */
  _Atomic uint8_t kind;
  _Atomic uint8_t size_class;
  uint16_t first_word; /* no free bit lies below this word */
  _Atomic uint16_t free; /* set bits */
  bool listed_full;
  uint8_t age;        /* hole.c */
  uint32_t head;       /* SLAB_INSIDE: the span's first unit */
  _Atomic uint32_t units; /* of the span, valid in its first unit */
  uint32_t next, prev; /* units, in the owner's list; SLAB_END ends */
  _Atomic uint64_t bytes; /* SLAB_LARGE: usable bytes */
  uint64_t holes;      /* a bit a page: purged, and no block of it taken since */
  uint16_t touched;    /* secure.c: the blocks that were live once lie below this one */
  bool dirty_when_free;         /* secure.c: its free blocks may not be zero */
  uint8_t epoch;       /* slab_epoch when it was made */
  uint8_t guard;       /* guard.h: os_guard_t of inaccessible units, and of what a large block's last unit has behind it */
  uint32_t left;       /* SLAB_LARGE in the secure library: of `bytes`, what was not asked for; zero as long as nobody does wrong */
  uint8_t spare[4];
} slab_t;
_Static_assert(sizeof(slab_t) == HAK_CACHE_LINE, "a slab's record is one cache line");
_Static_assert(sizeof(slab_t) == REGION_SLAB_BYTES, "the zone of slabs has one for each unit");

#define SLAB_END UINT32_MAX

typedef struct slab_list {
  uint32_t first;
} slab_list_t;

/* Blocks that are out of their slab while the kernel takes their pages. */
typedef struct slab_held {
  uint32_t unit, first, last;
  uint32_t units; /* 0: none; written last, cleared last */
} slab_held_t;

/* What a heap is to this layer. */
typedef struct slab_owner {
  lock_t lock;                 /* guards all below but `pending` */
  _Atomic uintptr_t thread;    /* that has it, 0 for an orphan */
  _Atomic uint32_t pending[CLASS_COUNT]; /* stacks of units with remote frees: unit + 1, 0 for none; any thread pushes */
  _Atomic uint64_t pending_classes; /* a bit for each whose stack may not be empty, set after the push */
  uint32_t rest[CLASS_COUNT];  /* taken off those stacks, and left for the next collection */
  _Atomic int32_t pending_count; /* units on those stacks and in `rest`, give or take those just on their way */
  _Atomic uint64_t remote_frees;
  _Atomic int64_t free_bytes;  /* of free blocks in slabs */
  _Atomic int64_t free_settled; /* the same when holes were last looked for */
  slab_list_t partial[CLASS_COUNT]; /* slabs with a free block; some may be wholly free */
  slab_list_t full[CLASS_COUNT];
  _Atomic uint32_t slab_count[CLASS_COUNT];
  slab_held_t held;
  bool orphan; /* nobody takes from it: it keeps no wholly free slab */
  bool relist; /* for the repair in a fork's child alone */
  bool helped; /* for audits: another thread has collected for one that has a thread, which may undo its clearing of live bits */
} slab_owner_t;
_Static_assert(CLASS_COUNT <= 64, "pending_classes has a bit for each");

void owner_init(slab_owner_t *owner);
bool owner_has_slabs(const slab_owner_t *owner);
/* In a fork's child: the pending stacks are forgotten, whose slabs are known by their state; with `lists`, the lists and counts too. */
void owner_forget(slab_owner_t *owner, bool lists);
/* Releases owner->lock.  Every release of a lock on an owner that may be an orphan:
 * what was freed to it meanwhile, by threads that found the lock taken, is collected. */
void owner_unlock(slab_owner_t *owner);

HAK_INLINE slab_t *slab_of(uint32_t unit) { return (slab_t *)(void *)region.slabs + unit; }
HAK_INLINE uint32_t slab_unit(const slab_t *slab) { return (uint32_t)(slab - (slab_t *)(void *)region.slabs); }
/* How many forks from processes with several threads lie behind this process. The kernel copies pages that a device
 * writes to earlier than others: a block of before may be filled that its bin has free. */
extern uint8_t slab_epoch;
/* Whether the slab's free blocks may not be zero, for all that the secure library does for it. */
HAK_INLINE bool slab_may_be_dirty(const slab_t *slab) { return slab->dirty_when_free || slab->epoch != slab_epoch; }
HAK_INLINE const class_info_t *slab_class(const slab_t *slab) { return &class_info[load_relaxed(&slab->size_class)]; }
/* The record of the span that the unit is part of; its kind may be SLAB_FREE. */
HAK_INLINE slab_t *slab_head(uint32_t unit) {
  slab_t *slab = slab_of(unit);
  return load_relaxed(&slab->kind) == SLAB_INSIDE ? slab_of(slab->head) : slab;
}

/* Takes up to `count` blocks of the class, lowest addresses first, into
 * blocks[0..). 0 only when memory is out. `bin` is what free finds for the class. */
HAK_CHECKED uint32_t slab_take(slab_owner_t *owner, unsigned size_class, region_bin_t *bin, void **blocks, uint32_t count);
/* Gives blocks of the owner back, the first ones: of blocks in many slabs not all. Returns how many. Ends the process if one
 * is there already. */
uint32_t slab_give(slab_owner_t *owner, void **blocks, uint32_t count);
/* Sets free the blocks in `bits` (word `word`) of the owner's slab; false if that was the end of the slab. */
bool slab_give_bits(slab_owner_t *owner, slab_t *slab, uint32_t word, uint64_t bits);
/* Ends the slab if it is wholly free and not to be kept; false if that was so. */
bool slab_end_if_free(slab_owner_t *owner, slab_t *slab);
/* `blocks` more, or fewer, are free in the slab. */
void slab_add_free(slab_owner_t *owner, slab_t *slab, int32_t blocks);
uint64_t slab_populated_bytes(void); /* so far */
uint64_t slab_ahead_count(void);     /* slabs taken for `lead`, so far */
/* Gives wholly free slabs back to the space. */
void slab_release_empty(slab_owner_t *owner);
/* In a fork's child: enters slab into the owner's lists again, from its bits alone; `bin` is its class's. */
void slab_relist(slab_owner_t *owner, slab_t *slab, region_bin_t *bin);

/* Marks units as one span, before its owner publishes a block of it / after the last is back. */
void span_enter(uint32_t start, uint32_t units, slab_kind_t kind, unsigned size_class);
void span_leave(uint32_t start, uint32_t units);
#endif
