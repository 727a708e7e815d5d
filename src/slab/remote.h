/* remote.h - blocks freed by threads that do not own them.
 *
 * The freer sets the block's bit in a map that shares no cache line with what the owner writes.  The first freer to do so since the owner
 * last collected the slab pushes it onto the owner's pending stack of its class.  The owner collects that stack when the class runs out;
 * for an orphan or an idle owner, the freer does it.
 *
 *   freer: set bit; if state is OPEN: swap it to QUEUED; the one that succeeds pushes the slab
 *   owner: pop all; for each: state to OPEN; take the bits
 *
 * There are two kinds of bits.  The first thread to free into a slab is its marker for as long as the slab lasts.  Only the marker writes
 * the slab's marks: it toggles a block's mark by a plain load and store.  The owner keeps a copy of the marks as it last saw them; where a
 * mark differs from its copy, the block waits.  Every other freer sets a remote bit by an atomic operation, and the owner takes a word of
 * these by another.  The owner need not look at remote bits until one of these freers has said in `freers` that it exists.
 *
 * With remote bits both sides' steps are sequentially consistent: if the freer sees QUEUED, it has set its bit before the owner takes the
 * bits.  A mark may become visible only after its freer has looked at the state: the freer sees QUEUED, the owner opens the slab and sees
 * no mark.  Then the block waits for the next one that is freed into the slab, whose freer announces both, or for remote_look, which needs
 * no announcement.  Only a slab that was opened again can have such a mark: owner->reopened says that there is one.
 *
 * A QUEUED slab is never destroyed, so the freer may follow slab->owner.  A slab with an unseen mark is not destroyed either, since the
 * marked block is still missing from it.  So the marks equal their copy when a slab ends, and the next slab there begins with both as they
 * are.
 *
 * After its bit is set the freer may find the slab destroyed and its units reused.  At worst it then queues another slab, which begins at
 * the same unit and has no remote frees, and that slab's owner collects it. */
#ifndef SLAB_REMOTE_H
#define SLAB_REMOTE_H

#include "base/thread.h"
#include "slab/slab.h"

/* Makes the calling thread the slab's marker; if another thread is that already, or becomes it first, notes that the slab has other freers.
 * Returns the new value of `freers`. */
uintptr_t remote_enter_freer(uint32_t unit);
/* Frees a block, known not to be live any more, of another owner's slab.  Any thread, with or without a heap.  Returns the slab to pass to
 * remote_announce, or NULL if there is nothing to announce.  Once the bit is set the block's own slab may end: the slab returned is the one
 * that begins at its first unit by then, and nothing may be looked up by the block again. */
HAK_CHECKED HAK_INLINE unit_t *remote_mark(const region_bin_t *bin, uint32_t unit, const void *block) {
  /* The owner writes to the slab's record and to its bins all the time.  No line that it writes is read here, except, in a slab of several
   * units, the slab's record where the block lies in the first. */
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
/* Announces the slab's remote frees, unless another freer does.  If a fork cuts this short, the child repairs it. */
void remote_announce(unit_t *slab);
/* Brings in what others have freed, of one class or of all: from at most REMOTE_COLLECT_MOST slabs, leaving the rest for later.  For an
 * orphan, which nobody would collect later, it collects all slabs; remote_collect_all does so for any owner.  The caller holds the owner's
 * lock. remote_collect returns false if it has left some. */
#define REMOTE_COLLECT_MOST 32
void remote_collect_class(slab_owner_t *owner, unsigned size_class);
bool remote_collect(slab_owner_t *owner);
void remote_collect_all(slab_owner_t *owner);
/* Remote frees pile up for an idle owner when helpers find its lock taken. remote_is_behind returns whether an owner is known to be in that
 * state. remote_catch_up collects a few slabs for it; any thread calls this on its slow path, without a lock: otherwise the heap would grow
 * while these blocks wait. */
bool remote_is_behind(void);
void remote_catch_up(void);
/* Whether the keeper should look, because much waits for owners that lag, or has become free in slabs of owners that were helped: their
 * threads, which are idle or gone, do not look. remote_waits_no_more starts the count anew. */
#define REMOTE_MUCH_BYTES ((int64_t)4 << 20)
bool remote_much_waits(void);
void remote_waits_no_more(void);

/* Releases owner->lock.  Every lock on an owner that may be an orphan is released by this: it collects what was freed meanwhile by threads
 * that found the lock taken. */
void owner_unlock(slab_owner_t *owner);
/* In a fork's child: makes the slab accept remote frees again, and brings in those that nobody announces any more. */
void remote_recover(slab_owner_t *owner, unit_t *slab);
/* Of one word of the slab's blocks, those that wait; any thread. */
HAK_INLINE uint64_t remote_word(uint32_t unit, uint32_t word) {
  bool marker = (load_relaxed(&remote_of(unit)->freers) & ~REMOTE_OTHERS) != 0;
  uint64_t marked = marker ? load_relaxed(region_marks(unit, word)) ^ load_relaxed(region_marks_seen(unit, word)) : 0;
  return marked | load_relaxed(region_bits(region.remote_bits, unit, word));
}
/* How many blocks wait in the slab; any thread. */
uint32_t remote_waiting(const unit_t *slab);
/* Brings in what waits in the slab, announced or not; remote_look_at_all does so for every slab of the owner. remote_look returns false if
 * that ended the slab.  The caller holds the owner's lock. */
bool remote_look(slab_owner_t *owner, unit_t *slab);
void remote_look_at_all(slab_owner_t *owner);

#endif
