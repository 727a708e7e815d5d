#include "slab/hole.h"

#include "base/thread.h"
#include "os/os.h"
#include "kit/pressure.h"
#include "space/huge.h"
#include "space/purge.h"
#include "slab/remote.h"

static _Atomic uint64_t bytes_purged;

uint64_t hole_bytes(void) { return load_relaxed(&bytes_purged); }

/* unit_t.age */
enum { AGE_CHANGED, AGE_ONE_STEP, AGE_LOOKED_AT };

/* Whether blocks [first, last] are all free. */
static bool blocks_free(uint32_t unit, uint32_t first, uint32_t last) {
  for (uint32_t word = first / 64; word <= last / 64; word++) {
    uint64_t mask = bits_range64(word, first, last);
    if ((load_relaxed(region_bits(region.free_bits, unit, word)) & mask) != mask) return false;
  }
  return true;
}

/* Takes blocks [first, last], all free, out of the slab. */
static void blocks_hold(slab_owner_t *owner, unit_t *slab, uint32_t first, uint32_t last) {
  uint32_t unit = unit_number(slab);
  owner->held.unit = unit;
  owner->held.first = first;
  owner->held.last = last;
  owner->held.thread = thread_self();
  atomic_signal_fence(memory_order_seq_cst);
  owner->held.units = slab_class(slab)->units;
  atomic_signal_fence(memory_order_seq_cst);
  for (uint32_t word = first / 64; word <= last / 64; word++) {
    uint64_t mask = bits_range64(word, first, last);
    _Atomic uint64_t *bits = region_bits(region.free_bits, unit, word);
    store_relaxed(bits, load_relaxed(bits) & ~mask);
    slab_add_free(owner, slab, -(int32_t)bits_count64(mask));
  }
}

/* Puts them back; false if that ended the slab, which only the last word of them can do. Its units may be another's then, and still noted
 * as held: hole_recover. */
static bool blocks_return(slab_owner_t *owner, unit_t *slab, uint32_t first, uint32_t last) {
  bool there = true;
  for (uint32_t word = first / 64; word <= last / 64; word++) there = slab_give_bits(owner, slab, word, bits_range64(word, first, last));
  atomic_signal_fence(memory_order_seq_cst);
  owner->held.units = 0;
  return there;
}

/* The owner has made no other slab there, since its lock is held until blocks_return is done. */
HAK_COLD void hole_recover(slab_owner_t *owner) {
  const slab_held_t *held = &owner->held;
  if (held->units == 0) return;
  const unit_t *slab = unit_at(held->unit);
  bool there = load_relaxed(&slab->kind) == UNIT_SLAB && slab_owner(slab) == owner;
  for (uint32_t word = held->first / 64; there && word <= held->last / 64; word++) {
    _Atomic uint64_t *bits = region_bits(region.free_bits, held->unit, word);
    store_relaxed(bits, load_relaxed(bits) | bits_range64(word, held->first, held->last));
  }
  owner->held.units = 0;
}

typedef struct hole {
  uint32_t first, last; /* blocks */
  uint32_t page, pages;
} hole_t;

/* The blocks that have bytes on a page; false if there are none. */
static bool page_blocks(const unit_t *slab, uint32_t page, uint32_t *first, uint32_t *last) {
  unsigned c = load_relaxed(&slab->size_class);
  size_t bytes = os_page_size();
  *first = class_block_at(c, page * bytes);
  *last = class_block_at(c, (page + 1) * bytes - 1);
  if (*last >= class_info[c].blocks) *last = class_info[c].blocks - 1;
  return *first <= *last;
}

/* A block that lies on two pages may be held for the sake of the other page. */
HAK_AUDITED bool hole_audit(const slab_owner_t *owner, const unit_t *slab) {
  uint32_t pages = (uint32_t)(slab_class(slab)->units * HAK_UNIT / os_page_size()), unit = unit_number(slab), first, last;
  const slab_held_t *held = owner->held.units != 0 && owner->held.unit == unit ? &owner->held : NULL;
  for (uint64_t holes = load_relaxed(&slab->holes); holes != 0; holes &= holes - 1) {
    unsigned page = bits_lowest64(holes);
    if (page >= pages || !page_blocks(slab, page, &first, &last)) return false;
    for (uint32_t block = first; block <= last; block++) {
      if (!blocks_free(unit, block, block) && (held == NULL || block < held->first || block > held->last)) return false;
    }
  }
  return true;
}

static uint64_t hole_mask(const hole_t *hole) { return UINT64_MAX >> (64 - hole->pages) << hole->page; }

/* Pages that the kernel has refused are not requested again within the same minute, however the slab changes; later they may no longer be
 * locked. */
static uint8_t minute_now(void) { return (uint8_t)(os_now_ms() / PURGE_REFUSED_MS); }
static bool refusals_are_old(const unit_t *slab) { return remote_of(unit_number(slab))->refused != 0 && slab->refused_at != minute_now(); }

static void refusals_note(unit_t *slab, uint64_t asked, uint64_t gone) {
  uint64_t *refused = &remote_of(unit_number(slab))->refused;
  *refused = (*refused & ~asked) | (asked & ~gone);
  if (gone != asked) slab->refused_at = minute_now();
}

/* The next run of pages from `page` on that are free, resident as far as is known, and were not refused. */
static bool hole_find(const unit_t *slab, uint32_t page, hole_t *hole) {
  uint32_t unit = unit_number(slab);
  uint32_t pages = (uint32_t)(slab_class(slab)->units * HAK_UNIT / os_page_size());
  uint64_t holes = load_relaxed(&slab->holes) | remote_of(unit)->refused;
  hole->pages = 0;
  for (; page < pages; page++) {
    uint32_t first, last;
    bool is_hole = (holes >> page & 1) == 0 && page_blocks(slab, page, &first, &last) && blocks_free(unit, first, last);
    if (!is_hole && hole->pages > 0) break;
    if (!is_hole) continue;
    if (hole->pages++ == 0) {
      hole->page = page;
      hole->first = first;
    }
    hole->last = last;
  }
  return hole->pages > 0;
}

/* A locked page fails everything that the kernel would do from that page on, so if a run fails, its pages are tried one by one.  Where all
 * of a large slab is locked, no more than REFUSALS_MOST are.  Returns a bit for each page that went. */
#define REFUSALS_MOST 16
static uint64_t pages_purge(uint32_t unit, const hole_t *hole, bool locked_too, unsigned *refusals) {
  size_t bytes = os_page_size();
  char *start = (char *)region_address(unit) + hole->page * bytes;
  if (os_purge(start, hole->pages * bytes) || (locked_too && os_purge_locked(start, hole->pages * bytes))) return hole_mask(hole);
  uint64_t gone = 0;
  for (uint32_t n = 0; n < hole->pages && hole->pages > 1 && *refusals < REFUSALS_MOST; n++) {
    if (os_purge(start + n * bytes, bytes)) gone |= (uint64_t)1 << (hole->page + n);
    else ++*refusals;
  }
  return gone;
}

/* The caller holds the owner's lock, which is released while the kernel works; false if it could not be taken again.  Adds the bytes given
 * back to *purged.  *there: whether the slab still exists. */
static bool slab_purge_holes(slab_owner_t *owner, unit_t *slab, bool locked_too, size_t *purged, bool *there) {
  hole_t hole = {.page = 0};
  unsigned refusals = 0;
  *there = true;
  while (*there && hole_find(slab, hole.page + hole.pages, &hole)) {
    blocks_hold(owner, slab, hole.first, hole.last);
    owner_unlock(owner);
    uint64_t gone = pages_purge(unit_number(slab), &hole, locked_too, &refusals);
    if (!lock_wait(&owner->lock)) return false; /* a signal handler has forked: the repair sees to the rest */
    huge_end(unit_number(slab) / HAK_UNITS_PER_SUPERSLAB, unit_number(slab) / HAK_UNITS_PER_SUPERSLAB + 1);
    if (gone != 0) store_relaxed(&slab->holes, load_relaxed(&slab->holes) | gone), slab->returned = false;
    refusals_note(slab, hole_mask(&hole), gone);
    *purged += bits_count64(gone) * os_page_size();
    *there = blocks_return(owner, slab, hole.first, hole.last);
  }
  return true;
}

typedef enum hole_cause { HOLE_AGED, HOLE_ASKED, HOLE_GROWTH } hole_cause_t;

/* Where the program has asked, this waits for another thread that is at work on the owner: it would otherwise pass over all of the owner's
 * slabs in no time, and the other thread may have lost its processor.  It does not wait for good: it may be in a signal handler that has
 * interrupted what the other thread waits for. */
#define HOLE_PATIENCE 2000
#define HOLE_WAIT_US 500
#define HOLE_YIELDS 4

/* Takes the owner's lock; false if another thread still has it, or this thread itself.  A hole of the owner that another thread holds is
 * waited for in the same way. */
static bool owner_enter(slab_owner_t *owner, unsigned *patience) {
  for (unsigned tries = 0;; tries++) {
    bool locked = lock_try_if_free(&owner->lock);
    bool busy = locked ? owner->held.units != 0 && owner->held.thread != thread_self() : !lock_is_mine(&owner->lock);
    if (HAK_LIKELY(!busy) || *patience == 0 || os_forked()) return locked;
    if (locked) owner_unlock(owner);
    --*patience;
    if (tries < HOLE_YIELDS) os_yield();
    else os_sleep_us(HOLE_WAIT_US);
  }
}

/* The step of one slab. */
static size_t slab_step(unit_t *slab, hole_cause_t cause, unsigned *patience, uint32_t *aging) {
  slab_owner_t *owner = slab_owner(slab);
  if (!owner_enter(owner, patience)) return 0;
  size_t purged = 0;
  bool unheld = owner->held.units == 0; /* one at a time: a fork's child finds there what it must put back */
  bool there = unheld && load_acquire(&slab->kind) == UNIT_SLAB && slab_owner(slab) == owner;
  there = there && remote_look(owner, slab) && load_relaxed(&slab->free) != 0 && load_relaxed(&slab->size_class) != CLASS_ZERO;
  bool again = there && refusals_are_old(slab);
  if (there && (cause != HOLE_AGED || slab->age == AGE_ONE_STEP || (again && slab->age == AGE_LOOKED_AT))) {
    if (again || cause == HOLE_ASKED) remote_of(unit_number(slab))->refused = 0;
    bool locked = slab_purge_holes(owner, slab, cause == HOLE_ASKED, &purged, &there);
    add_relaxed(&bytes_purged, purged);
    pressure_note_given(purged);
    if (!locked) return purged;
    if (there) slab->age = AGE_LOOKED_AT;
    if (there && purged > 0) slab->holes_by_growth = cause == HOLE_GROWTH;
  } else if (there && slab->age == AGE_CHANGED) {
    slab->age = AGE_ONE_STEP;
    ++*aging;
  }
  store_relaxed(&owner->free_when_looked_at, load_relaxed(&owner->free_bytes));
  owner_unlock(owner);
  return purged;
}

/* The units to the end of the large block that begins there; 1 for anything else.  What has ended meanwhile may be passed over. */
static uint32_t units_to_pass(const unit_t *first) {
  uint32_t units = load_relaxed(&first->kind) == UNIT_LARGE ? load_relaxed(&first->units) : 0;
  return units > 0 ? units : 1;
}

/* The step of the slabs from *unit on: of up to `units` units, until `slabs` slabs have given something back or *stop, if there is one, is
 * not 0. */
static HAK_COLD size_t hole_steps(uint32_t *unit, uint32_t units, uint32_t slabs, hole_cause_t cause, const _Atomic uint32_t *stop,
                                  uint32_t *aging) {
  size_t purged = 0;
  unsigned patience = cause == HOLE_ASKED ? HOLE_PATIENCE : 0;
  uint32_t end = load_acquire(&region.units), passed = 1;
  for (; *unit < end && units > 0 && slabs > 0; *unit += passed, units -= passed < units ? passed : units) {
    unit_t *slab = unit_at(*unit);
    passed = units_to_pass(slab);
    if (load_acquire(&slab->kind) != UNIT_SLAB) continue;
    if (stop != NULL && load_relaxed(stop) != 0) break;
    size_t bytes = slab_step(slab, cause, &patience, aging);
    purged += bytes;
    slabs -= bytes != 0;
  }
  return purged;
}

HAK_COLD size_t hole_step(bool now, uint32_t *aging) {
  uint32_t unit = 0;
  return hole_steps(&unit, UINT32_MAX, UINT32_MAX, now ? HOLE_ASKED : HOLE_AGED, NULL, aging);
}

HAK_COLD size_t hole_step_until(const _Atomic uint32_t *stop, uint32_t *aging) {
  uint32_t unit = 0;
  return hole_steps(&unit, UINT32_MAX, UINT32_MAX, HOLE_AGED, stop, aging);
}

size_t hole_round_part(bool begin, uint32_t grown) {
  static _Atomic uint32_t at, left;
  uint32_t end = load_acquire(&region.units), unit = load_relaxed(&at), aging;
  uint32_t to_look_at = begin ? end : load_relaxed(&left);
  if (to_look_at == 0) return 0;
  if (unit >= end) unit = 0;
  uint32_t from = unit;
  size_t purged = hole_steps(&unit, HOLE_PART_UNITS + 8 * grown, 2 * grown, HOLE_GROWTH, NULL, &aging);
  store_relaxed(&at, unit);
  store_relaxed(&left, to_look_at > unit - from ? to_look_at - (unit - from) : 0);
  return purged;
}
