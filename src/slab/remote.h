/* remote.h - blocks freed by threads that do not own them.
 *
 * The freer sets a bit of the block's in a zone that the owner's lines do not share, and the first to do so since the owner
 * last looked puts the slab on the owner's pending stack of its class.  The owner collects that when the class runs out; for an
 * orphan or an idle owner, the freer does it.
 *
 *   freer: set bit; if state is OPEN: swap it to QUEUED; the one that succeeds pushes the slab
 *   owner: pop all; for each: state to OPEN; take the bits
 *
 * There are two kinds of bits.  The first thread to free into a slab is its marker, for as long as the slab lasts.  It alone writes
 * the slab's marks, and toggles one by a plain load and store.  The owner keeps a copy of what it has seen of them: where the two
 * differ, a block waits.  All other freers set a remote bit, by an atomic operation, and the owner takes a word of these by
 * another; it need not look at them before one of these freers has said that it is there.
 *
 * With remote bits both sides' steps are sequentially consistent: if the freer sees QUEUED, the owner's taking of the bits comes
 * after the freer's setting of its bit.  A mark may still be on its way when its freer looks at the state: the freer sees QUEUED,
 * the owner opens the slab and sees no mark.  Then the block waits for the next one that is freed into the slab, whose freer
 * announces both, or for a look that needs no announcement: remote_look.
 *
 * A QUEUED slab is never destroyed, so the freer may follow slab->owner.  Neither is a slab with a mark that was not seen, since
 * its block is missing; so the marks equal their copy when a slab ends, and the next one there begins with them.
 *
 * After its bit is set the freer may find the slab destroyed and its units reused: the worst is that another slab, which begins at
 * the same unit and has no remote frees, is queued; then that slab's owner collects it. */
#ifndef SLAB_REMOTE_H
#define SLAB_REMOTE_H

#include "base/thread.h"
#include "slab/slab.h"

/* Makes the calling thread the marker, unless another one was faster, or else one of the others. */
uintptr_t remote_enter_freer(uint32_t unit);
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
  uint64_t bit = (uint64_t)1 << index % 64;
  uintptr_t freers = load_acquire(&remote_of(unit)->freers), self = thread_self();
  if (HAK_UNLIKELY((freers & ~REMOTE_OTHERS) != self && (freers & REMOTE_OTHERS) == 0)) freers = remote_enter_freer(unit);
  if (HAK_LIKELY((freers & ~REMOTE_OTHERS) == self)) {
    _Atomic uint64_t *marks = region_marks(unit, index / 64);
    store_release(marks, load_relaxed(marks) ^ bit);
  } else {
    (void)atomic_fetch_or(region_bits(region.remote_bits, unit, index / 64), bit);
  }
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
/* Whether so much waits for owners that lag, or has come free in slabs of those that were helped, that the keeper is to look: a thread that
 * sleeps, or is gone, does not.  remote_waits_no_more: from now on it is counted anew. */
#define REMOTE_MUCH_BYTES ((int64_t)4 << 20)
bool remote_much_waits(void);
void remote_waits_no_more(void);

/* Releases owner->lock.  Every release of a lock on an owner that may be an orphan:
 * what was freed to it meanwhile, by threads that found the lock taken, is collected. */
void owner_unlock(slab_owner_t *owner);
/* In a fork's child: the slab accepts remote frees again; those that nobody announces any more are brought in. */
void remote_recover(slab_owner_t *owner, unit_t *slab);
/* Of a word of the slab's blocks, those that wait; any thread. */
HAK_INLINE uint64_t remote_word(uint32_t unit, uint32_t word) {
  bool marker = (load_relaxed(&remote_of(unit)->freers) & ~REMOTE_OTHERS) != 0;
  uint64_t marked = marker ? load_relaxed(region_marks(unit, word)) ^ load_relaxed(region_marks_seen(unit, word)) : 0;
  return marked | load_relaxed(region_bits(region.remote_bits, unit, word));
}
/* How many wait in the slab; any thread. */
uint32_t remote_waiting(const unit_t *slab);
/* Brings in what waits in the slab and is not announced, of one slab or of all that the owner has; false if that was the end of the
 * slab.  For the holder of the owner's lock. */
bool remote_look(slab_owner_t *owner, unit_t *slab);
void remote_look_at_all(slab_owner_t *owner);

#endif
