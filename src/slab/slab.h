/* slab.h - slabs: spans of one size class, and the free blocks in them.
 *
 * A slab's free blocks are bits outside of it: no link lies in a block, so nothing that a program writes into freed memory is ever
 * followed, and giving a block back does not touch it.  A set bit means that the block is in the slab; a clear bit means that it is out:
 * held by the program, in a bin, or freed by another thread and not yet collected.
 *
 * A slab belongs to one owner.  The callers of these functions hold owner->lock; for frees by other threads see slab/remote.h. */
#ifndef SLAB_SLAB_H
#define SLAB_SLAB_H

#include "os/lock.h"
#include "slab/large_cache.h"
#include "slab/sample.h"

typedef struct slab_list {
  uint32_t first;
} slab_list_t;

/* A hole under way: blocks that are out of their slab while the kernel takes their pages.  The program does not hold them. */
typedef struct slab_held {
  uint32_t unit, first, last;
  uint32_t units;   /* 0: none; written last, cleared last */
  uintptr_t thread; /* that holds them */
} slab_held_t;

/* The value of slab_owner_t.thread where many threads share the owner: whoever takes the lock to allocate collects what others have freed,
 * once the class has nothing else. */
#define OWNER_OF_MANY ((uintptr_t)1)

/* The part of a heap that this layer knows. */
typedef struct slab_owner {
  HAK_ALIGNED(HAK_CACHE_LINE) _Atomic uintptr_t thread; /* that it is attached to, 0 for an orphan; read by others, and seldom written */
  /* Other threads write these too. */
  HAK_ALIGNED(HAK_CACHE_LINE) _Atomic uint64_t pending_classes; /* a bit for each whose stack may not be empty, set after the push */
  _Atomic int32_t pending_count; /* slabs on those stacks and in `deferred`, give or take those just on their way */
  _Atomic uint32_t pending[CLASS_COUNT]; /* stacks of slabs with remote frees, by first unit + 1; 0: none; any thread pushes */
  large_cache_t large_cache;
  HAK_ALIGNED(HAK_CACHE_LINE) lock_t lock; /* guards all below */
  uint32_t deferred[CLASS_COUNT]; /* taken off those stacks, and left for the next collection */
  _Atomic uint64_t remote_frees;
  sampler_t sampler;
  _Atomic int64_t free_bytes;  /* of free blocks in slabs */
  _Atomic int64_t slab_bytes;  /* of all blocks in slabs */
  _Atomic int64_t large_bytes; /* of the large blocks in the list */
  _Atomic uint64_t large_blocks; /* how many there are */
  _Atomic int64_t free_when_looked_at; /* free_bytes when holes were last looked for */
  slab_list_t partial[CLASS_COUNT]; /* slabs with a free block; some may be wholly free */
  slab_list_t full[CLASS_COUNT];
  slab_list_t large; /* large blocks: large_own */
  _Atomic uint32_t slab_count[CLASS_COUNT];
  slab_held_t held;
  uint64_t learnt, sparse; /* a bit a class. learnt: it is known whether programs use little of each block; sparse: they do */
  _Atomic bool reopened; /* a slab was opened again, and may have a mark that is not visible yet: remote.h. Cleared by front/supply.c */
  bool orphan; /* nobody allocates from it: it keeps no wholly free slab */
  bool relist; /* for the repair in a fork's child alone */
  bool helped; /* for audits: another thread has collected while it had a thread, whose plain stores may bring cleared live bits back */
} slab_owner_t;
_Static_assert(CLASS_COUNT <= 64, "pending_classes has a bit for each");

void owner_init(slab_owner_t *owner);
bool owner_has_slabs(const slab_owner_t *owner);
/* Bytes of the owner's large blocks, and of blocks that are out of its slabs for another reason than that the kernel takes their pages.
 * With the lock. */
int64_t owner_out_bytes(const slab_owner_t *owner);
/* In a fork's child: empties the pending stacks, since queued slabs are known by their state; with `lists`, resets the lists and counts
 * too. */
void owner_forget(slab_owner_t *owner, bool lists);

/* How many forks from processes with several threads lie behind this process.  The kernel copies pages that a device writes to earlier than
 * others: so in the child a block may be free in its bin and still hold what it held before. */
extern uint8_t fork_epoch;
/* Whether the slab's free blocks may not be zero although the secure library clears them. */
HAK_INLINE bool slab_may_be_dirty(const unit_t *slab) { return slab->dirty_when_free || slab->fork_epoch != fork_epoch; }
HAK_INLINE const class_info_t *slab_class(const unit_t *slab) { return &class_info[load_relaxed(&slab->size_class)]; }

HAK_INLINE uint32_t slab_words(const unit_t *slab) { return (slab_class(slab)->blocks + 63) / 64; } /* of free bits */

/* Makes a slab, all of whose blocks are free; NULL when out of memory.  `bin` is the bin that a free of its blocks finds. */
HAK_CHECKED unit_t *slab_create(slab_owner_t *owner, unsigned size_class, region_bin_t *bin);
/* Add a large block to the owner's list, or remove it. */
void large_own(slab_owner_t *owner, unit_t *first);
void large_disown(slab_owner_t *owner, unit_t *first);
/* Moves the slab to the owner's list of full slabs, or to its list of partial ones. */
void slab_move(slab_owner_t *owner, unit_t *slab, bool full);
/* Sets free the blocks in `bits` (word `word`) of the owner's slab; false if that ended the slab. */
bool slab_give_bits(slab_owner_t *owner, unit_t *slab, uint32_t word, uint64_t bits);
/* The same in two steps: slab_set_free for each word, then slab_count_given.  `given` blocks of the slab are set free and not counted
 * yet. */
void slab_set_free(slab_owner_t *owner, unit_t *slab, uint32_t word, uint64_t bits, uint32_t given);
/* Ends the slab if it is wholly free and not to be kept; false if it did. */
bool slab_end_if_free(slab_owner_t *owner, unit_t *slab);
/* Ends the process, since one of the blocks is free already.  Before that it counts the `given` blocks, so that nothing is half-changed,
 * and releases the lock, since a handler of SIGABRT may allocate. */
_Noreturn void slab_double_free(slab_owner_t *owner, unit_t *slab, uint32_t word, uint64_t bits, uint32_t given);
/* Counts `blocks` more free blocks in the slab, or fewer. */
HAK_INLINE void slab_add_free(slab_owner_t *owner, unit_t *slab, int32_t blocks) {
  store_relaxed(&slab->free, (uint16_t)(load_relaxed(&slab->free) + blocks));
  owner_add(&owner->free_bytes, (int64_t)blocks * slab_class(slab)->size);
  slab->age = 0;
}
HAK_INLINE bool slab_count_given(slab_owner_t *owner, unit_t *slab, uint32_t given) {
  slab_add_free(owner, slab, (int32_t)given);
  if (HAK_LIKELY(!slab->listed_full && load_relaxed(&slab->free) != slab_class(slab)->blocks)) return true;
  return slab_end_if_free(owner, slab);
}
uint64_t slab_populated_bytes(void); /* so far */
/* Gives the owner's wholly free slabs back to the space. */
void slab_release_empty(slab_owner_t *owner);
/* In a fork's child: enters the slab into the owner's lists again, from its bits alone; `bin` is its class's. */
void slab_relist(slab_owner_t *owner, unit_t *slab, region_bin_t *bin);
#endif
