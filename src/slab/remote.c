#include "slab/remote.h"

#include "base/check.h"
#include "base/thread.h"

/* An owner with so many queued slabs is taken for idle.  If as many are left after a helper has collected, remote_is_behind returns true,
 * which starts the keeper. */
#define REMOTE_HELP_AT 64
/* The same for an owner that many threads share: there may be thousands that nobody allocates from any more. */
#define REMOTE_HELP_MANY_AT 8
/* Each freer that finds an owner idle brings in more slabs than it has queued: so the queue does not grow. */
#define REMOTE_HELP_SLABS 8
/* An owner with so many queued slabs lags.  This is noted once for as many slabs, since freers of all owners write to one word. */
#define REMOTE_LAG 4

uintptr_t remote_enter_freer(uint32_t unit) {
  _Atomic uintptr_t *freers = &remote_of(unit)->freers;
  uintptr_t none = 0, self = thread_self();
  store_relaxed(&unit_at(unit)->remote, true);
  if (atomic_compare_exchange_strong_explicit(freers, &none, self, memory_order_relaxed, memory_order_relaxed)) return self;
  return atomic_fetch_or(freers, REMOTE_OTHERS) | REMOTE_OTHERS;
}

/* Returns the slab's class. */
static unsigned remote_push(slab_owner_t *owner, const unit_t *slab) {
  uint32_t unit = unit_number(slab);
  unsigned c = racy_load(region_bin(region.live, unit))->size_class; /* the slab's record is in the owner's cache */
  _Atomic uint32_t *pending = &owner->pending[c];
  uint32_t first = load_relaxed(pending);
  do {
    store_relaxed(&remote_of(unit)->next, first);
  } while (!atomic_compare_exchange_weak_explicit(pending, &first, unit + 1, memory_order_seq_cst, memory_order_relaxed));
  /* A collection that has cleared the bit since then finds the slab.  Afterwards remote_help looks at the lock. */
  if ((atomic_load(&owner->pending_classes) >> c & 1) == 0) (void)atomic_fetch_or(&owner->pending_classes, (uint64_t)1 << c);
  return c;
}

/* Clears the live bits that freers have cleared once more, since a plain store of the owner's thread to the same word may have brought them
 * back.  The owner's thread clears by plain stores too: bits that such a store brings back are cleared when that freer's bits are taken.
 * The secure library uses plain stores only while the process has one thread, so there only a fork can have left a bit to clear. */
static void blocks_clear_live(char *first, uint32_t size, uint64_t bits, bool own) {
  while (bits != 0) {
    char *block = first + (size_t)bits_lowest64(bits) * size;
    uint64_t *word = region_live_word(block);
    uint64_t mask = 0;
    do {
      mask |= region_live_bit(block);
      bits &= bits - 1;
      block = first + (size_t)bits_lowest64(bits | UINT64_C(1) << 63) * size;
    } while (bits != 0 && region_live_word(block) == word);
    if (own) owner_store(word, owner_load(word) & ~mask);
    else __atomic_fetch_and(word, ~mask, __ATOMIC_RELAXED);
  }
}

static uint64_t marks_take(uint32_t unit, uint32_t word) {
  _Atomic uint64_t *seen = region_marks_seen(unit, word);
  uint64_t marks = load_acquire(region_marks(unit, word)), bits = marks ^ load_relaxed(seen);
  if (bits != 0) store_relaxed(seen, marks);
  return bits;
}

/* Takes a word of the slab's remote frees. */
static uint64_t word_take(uint32_t unit, uint32_t word, uintptr_t freers) {
  uint64_t bits = (freers & ~REMOTE_OTHERS) != 0 ? marks_take(unit, word) : 0;
  _Atomic uint64_t *others = region_bits(region.remote_bits, unit, word);
  if ((freers & REMOTE_OTHERS) != 0 && atomic_load(others) != 0) bits |= atomic_exchange(others, 0);
  return bits;
}

/* Takes all remote frees of the slab; false if that ended the slab.  It may end even if there are none, if it could not end while it was
 * queued. */
static bool remote_take(slab_owner_t *owner, unit_t *slab) {
  uint32_t unit = unit_number(slab);
  const class_info_t *info = slab_class(slab);
  char *start = region_address(unit);
  uintptr_t freers = atomic_load(&remote_of(unit)->freers); /* after the slab was opened */
  bool own = !HAK_SECURE && load_relaxed(&owner->thread) == thread_self();
  if (HAK_AUDIT && !own && load_relaxed(&owner->thread) > OWNER_OF_MANY) owner->helped = true;
  uint32_t given = 0;
  for (uint32_t word = 0; word * 64 < info->blocks; word++) {
    uint64_t bits = word_take(unit, word, freers);
    if (bits == 0) continue;
    if (HAK_CHECKS) blocks_clear_live(start + (size_t)word * 64 * info->size, info->size, bits, own);
    slab_set_free(owner, slab, word, bits, given);
    given += bits_count64(bits);
  }
  owner_add(&owner->remote_frees, given);
  slab->returned = slab->listed_full;
  if (given > 0 && !slab_count_given(owner, slab, given)) return false;
  return !owner->orphan || load_relaxed(&slab->free) == 0 || slab_end_if_free(owner, slab);
}

bool remote_look(slab_owner_t *owner, unit_t *slab) {
  return !load_relaxed(&slab->remote) || remote_waiting(slab) == 0 || remote_take(owner, slab);
}

static void list_look(slab_owner_t *owner, const slab_list_t *list) {
  for (uint32_t unit = list->first; unit != UNIT_NONE;) {
    unit_t *slab = unit_at(unit);
    unit = slab->next;
    (void)remote_look(owner, slab);
  }
}

void remote_look_at_all(slab_owner_t *owner) {
  for (unsigned c = 0; c < CLASS_COUNT; c++) {
    list_look(owner, &owner->partial[c]);
    list_look(owner, &owner->full[c]); /* last, since a slab in which this finds blocks moves to the partial ones */
  }
}

/* The stack leads from one cache miss to the next: a slab's misses overlap with the work on the slab before it. */
static void remote_prefetch(uint32_t unit) {
  __builtin_prefetch(remote_of(unit), 1);
  __builtin_prefetch(unit_at(unit), 1);
}

/* Brings in up to `most` of the class's deferred slabs; returns how many. */
static uint32_t deferred_collect(slab_owner_t *owner, unsigned c, uint32_t most) {
  uint32_t slabs = 0;
  for (; slabs < most && owner->deferred[c] != 0; slabs++) {
    uint32_t unit = owner->deferred[c] - 1;
    owner->deferred[c] = load_relaxed(&remote_of(unit)->next);
    if (owner->deferred[c] != 0) remote_prefetch(owner->deferred[c] - 1);
    atomic_exchange(&remote_of(unit)->state, (uint32_t)REMOTE_OPEN);
    (void)remote_take(owner, unit_at(unit));
  }
  return slabs;
}

/* True if everything that was there was brought in.  The rest stays queued, so that its slabs are neither announced again nor destroyed. */
static bool class_collect(slab_owner_t *owner, unsigned c, uint32_t *most) {
  uint32_t slabs = deferred_collect(owner, c, *most);
  bool all = slabs < *most;
  if (all) {
    owner->deferred[c] = atomic_exchange_explicit(&owner->pending[c], 0, memory_order_acquire);
    slabs += deferred_collect(owner, c, *most - slabs);
  }
  *most -= slabs;
  if (slabs > 0) store_relaxed(&owner->reopened, true);
  if (slabs > 0) (void)atomic_fetch_sub_explicit(&owner->pending_count, (int32_t)slabs, memory_order_relaxed);
  return all && owner->deferred[c] == 0;
}

/* How many slabs to collect: all of an orphan's, since nobody would see to the rest. */
static uint32_t collect_most(const slab_owner_t *owner, uint32_t slabs) { return load_relaxed(&owner->thread) == 0 ? UINT32_MAX : slabs; }

void remote_collect_class(slab_owner_t *owner, unsigned size_class) {
  uint32_t most = collect_most(owner, REMOTE_COLLECT_MOST);
  (void)class_collect(owner, size_class, &most);
}

/* Collects from at most `slabs` slabs, from all of an orphan's.  True if none are left. */
static bool classes_collect(slab_owner_t *owner, uint32_t slabs) {
  uint32_t most = collect_most(owner, slabs);
  if (load_relaxed(&owner->pending_classes) == 0) return true;
  uint64_t classes = atomic_exchange(&owner->pending_classes, 0), left = 0;
  for (; classes != 0; classes &= classes - 1) {
    unsigned c = bits_lowest64(classes);
    if (!class_collect(owner, c, &most)) left |= (uint64_t)1 << c;
  }
  if (left != 0) (void)atomic_fetch_or(&owner->pending_classes, left);
  return left == 0;
}

bool remote_collect(slab_owner_t *owner) { return classes_collect(owner, REMOTE_COLLECT_MOST); }
void remote_collect_all(slab_owner_t *owner) { (void)classes_collect(owner, UINT32_MAX); }

static struct {
  /* An owner whose queue is too long although it was helped: freers have announced slabs while a helper had the lock. */
  HAK_ALIGNED(HAK_CACHE_LINE) slab_owner_t *_Atomic owner_behind;
  _Atomic bool much_waits; /* every slow path reads both, so freers count on another line */
  HAK_ALIGNED(HAK_CACHE_LINE) _Atomic int64_t bytes; /* that wait so, since the keeper last looked */
} late;

/* Lost updates only delay the keeper. */
static void late_note(int64_t bytes) {
  if (bytes <= 0) return;
  bytes += load_relaxed(&late.bytes);
  store_relaxed(&late.bytes, bytes);
  if (bytes >= REMOTE_MUCH_BYTES && !load_relaxed(&late.much_waits)) store_relaxed(&late.much_waits, true);
}

bool remote_much_waits(void) { return load_relaxed(&late.much_waits); }

void remote_waits_no_more(void) {
  if (!load_relaxed(&late.much_waits)) return;
  store_relaxed(&late.bytes, 0);
  store_relaxed(&late.much_waits, false);
}

/* Collects in place of the owner's thread, which sleeps or is gone: so nobody else may notice what becomes free in slabs that stay. */
static void collect_for(slab_owner_t *owner, uint32_t slabs) {
  int64_t before = load_relaxed(&owner->free_bytes);
  (void)classes_collect(owner, slabs);
  late_note(load_relaxed(&owner->free_bytes) - before);
}

void owner_unlock(slab_owner_t *owner) {
  for (;;) {
    if (HAK_LIKELY(load_relaxed(&owner->thread) != 0)) { /* that thread will look itself */
      lock_release(&owner->lock);
      return;
    }
    /* Either this thread sees what was pushed before the lock was free, or the pushing thread sees the lock free. */
    lock_release_fully(&owner->lock);
    if (atomic_load(&owner->pending_classes) == 0 || !lock_try(&owner->lock)) return;
    collect_for(owner, REMOTE_COLLECT_MOST);
  }
}

/* The caller holds the owner's lock, which this releases. */
static void help_locked(slab_owner_t *owner) {
  collect_for(owner, REMOTE_HELP_SLABS);
  owner_unlock(owner);
  if (load_relaxed(&owner->pending_count) >= REMOTE_HELP_AT) store_relaxed(&late.owner_behind, owner);
}

static int32_t help_at(uintptr_t thread) {
  if (thread == 0) return 0;
  return thread == OWNER_OF_MANY ? REMOTE_HELP_MANY_AT : REMOTE_HELP_AT;
}

/* Counts the slab; collects for an owner whose thread will not, since it is gone or has been idle for long. */
static void remote_help(slab_owner_t *owner, unsigned size_class) {
  int32_t count = atomic_fetch_add_explicit(&owner->pending_count, 1, memory_order_relaxed) + 1;
  if (count % REMOTE_LAG == 0) late_note((int64_t)REMOTE_LAG * class_info[size_class].units * HAK_UNIT);
  if (count < help_at(atomic_load(&owner->thread))) return;
  if (lock_try(&owner->lock)) help_locked(owner);
}

bool remote_is_behind(void) { return load_relaxed(&late.owner_behind) != NULL; }

void remote_catch_up(void) {
  slab_owner_t *owner = load_relaxed(&late.owner_behind);
  if (HAK_LIKELY(owner == NULL) || !lock_try(&owner->lock)) return;
  store_relaxed(&late.owner_behind, NULL);
  help_locked(owner);
}

void remote_announce(unit_t *slab) {
  uint32_t open = REMOTE_OPEN;
  if (!atomic_compare_exchange_strong(&remote_of(unit_number(slab))->state, &open, (uint32_t)REMOTE_QUEUED)) return;
  slab_owner_t *owner = slab_owner(slab);
  remote_help(owner, remote_push(owner, slab));
}

HAK_COLD void remote_recover(slab_owner_t *owner, unit_t *slab) {
  if (!owner->relist && load_relaxed(&remote_of(unit_number(slab))->state) == REMOTE_OPEN) return;
  remote_open(unit_number(slab));
  (void)remote_take(owner, slab);
}

uint32_t remote_waiting(const unit_t *slab) {
  uint32_t waiting = 0;
  unsigned c = load_relaxed(&slab->size_class);
  if (c >= CLASS_COUNT) return 0; /* no longer a slab */
  for (uint32_t word = 0; word * 64 < class_info[c].blocks; word++) {
    waiting += bits_count64(remote_word(unit_number(slab), word));
  }
  return waiting;
}
