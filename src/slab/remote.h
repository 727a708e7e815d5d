/* remote.h - blocks freed by threads that do not own them.
 *
 * The freer sets the block's bit in the slab's remote bits, a zone that the
 * owner's lines do not share, and the first to do so since the owner last
 * looked puts the slab on the owner's pending stack of its class.  The owner collects
 * that when the class runs out; for an orphan or an idle owner, the freer does it.
 *
 *   freer: set bit; if state is OPEN: swap it to QUEUED; the one that succeeds pushes the slab
 *   owner: pop all; for each: state to OPEN; take the bits
 *
 * Both sides' steps are sequentially consistent: if the freer sees QUEUED, the
 * owner's taking of the bits comes after the freer's setting of its bit.  A
 * QUEUED slab is never destroyed, so the freer may follow slab->owner.  After
 * its bit is set the freer may find the slab destroyed and its units reused:
 * the worst is that another slab, which begins at the same unit and has no
 * remote frees, is queued; then that slab's owner collects it. */
#ifndef SLAB_REMOTE_H
#define SLAB_REMOTE_H

#include "slab/slab.h"

/* Frees a block, known not to be live any more, of another owner's slab. Any thread, with or
 * without a heap. Returns the slab to announce, by remote_announce, or NULL if that is done. The slab
 * is the one that begins at the block's first unit by now: from the set bit on the block's own may
 * be gone, so nothing may be looked up by the block again. */
HAK_CHECKED HAK_INLINE unit_t *remote_mark(const region_bin_t *bin, uint32_t unit, const void *block) {
  /* The owner writes to the slab's record and to its bins all the time; not to what this reads,
   * but for the head of a slab of several units. */
  const class_info_t *info = &class_info[bin->size_class];
  if (info->units > 1) unit = unit_number(unit_head(unit));
  uint32_t offset = (uint32_t)((const char *)block - (const char *)region_address(unit));
  uint32_t index = class_block_at(bin->size_class, offset);
  (void)atomic_fetch_or(region_bits(region.remote_bits, unit, index / 64), (uint64_t)1 << index % 64);
  return atomic_load(&remote_of(unit)->state) == REMOTE_OPEN ? unit_at(unit) : NULL;
}
/* Announces the slab's remote frees, unless another freer does. Of the calls that a fork's child repairs. */
void remote_announce(unit_t *slab);
/* Brings in what others have freed, of one class or of all: of REMOTE_COLLECT_MOST slabs, the rest later. For an orphan,
 * which nobody would collect later, of all slabs; remote_collect_all does so for any.  For the owner, or the holder of its lock.
 * remote_collect is false if it has left some. */
#define REMOTE_COLLECT_MOST 32
void remote_collect_class(slab_owner_t *owner, unsigned size_class);
bool remote_collect(slab_owner_t *owner);
void remote_collect_all(slab_owner_t *owner);
/* Remote frees pile up for an idle owner when helpers find its lock taken.  Whether some do; and one more part of the work, which any
 * thread does on its slow path, without a lock: else the heap would grow while they wait. */
bool remote_is_behind(void);
void remote_catch_up(void);

/* Releases owner->lock.  Every release of a lock on an owner that may be an orphan:
 * what was freed to it meanwhile, by threads that found the lock taken, is collected. */
void owner_unlock(slab_owner_t *owner);
/* In a fork's child: the slab accepts remote frees again; those that nobody announces any more are brought in. */
void remote_recover(slab_owner_t *owner, unit_t *slab);
/* Blocks waiting in the slab's remote bits; any thread. */
uint32_t remote_waiting(const unit_t *slab);

#endif
