#include "slab/audit.h"

#include "os/os.h"
#include "kit/fault.h"
#include "slab/hole.h"
#include "slab/large.h"
#include "slab/remote.h"
#include "slab/slots.h"

static void *unit_address(const unit_t *slab) { return region_address(unit_number(slab)); }

/* --- units ------------------------------------------------------------------------------- */

bool audit_in_span(uint32_t unit) { return load_acquire(&unit_at(unit)->kind) != UNIT_FREE; }

static void audit_large(const unit_t *slab, uint32_t units) {
  void *at = unit_address(slab);
  size_t bytes = load_relaxed(&slab->bytes), room = units * HAK_UNIT;
  AUDIT(bytes <= room && bytes > room - HAK_UNIT && bytes == large_good_size(bytes), at, "a large block has not the bytes of its units");
  size_t most = bytes == large_good_size(large_request(0)) ? bytes : os_page_size() - 1; /* that many: large for its alignment alone */
  AUDIT(slab->left <= most && slab->guard <= OS_SPLIT, at, "a large block has more left over than a page");
  AUDIT(!HAK_CHECKS || region_is_live(at), at, "a large block is not live");
  AUDIT(!load_relaxed(&slab->owned) || slab_owner(slab) != NULL, at, "a large block is in the list of no owner");
}

static void audit_head(const unit_t *slab, uint8_t kind) {
  uint32_t unit = unit_number(slab), units = load_relaxed(&slab->units);
  void *at = unit_address(slab);
  unsigned c = load_relaxed(&slab->size_class);
  AUDIT(units > 0 && units <= load_relaxed(&region.units) - unit, at, "a span ends beyond the frontier");
  const unit_t *last = unit_at(unit + units - 1);
  AUDIT(last == slab || (load_relaxed(&last->kind) == UNIT_INSIDE && last->head == unit), at, "a span's last unit is not in it");
  AUDIT(kind == UNIT_SLAB ? c < CLASS_COUNT && units == class_info[c].units : c == CLASS_NONE, at, "a span has not its kind's class");
  AUDIT(kind != UNIT_SLAB || slab_owner(slab) != NULL, at, "a slab has no owner");
  AUDIT(kind != UNIT_GUARD || slab->guard <= OS_SPLIT, at, "a guard is none that the kernel makes");
  AUDIT(kind != UNIT_SLOTS || slots_hold(at), at, "a span of guard slots has none");
  if (kind == UNIT_LARGE) audit_large(slab, units);
}

void audit_unit_alone(uint32_t unit) {
  const unit_t *slab = unit_at(unit), *head = unit_head(unit);
  uint8_t kind = load_relaxed(&slab->kind), of_span = load_relaxed(&head->kind);
  void *at = region_address(unit);
  AUDIT(kind <= UNIT_CACHED, at, "a unit is of no kind");
  if (kind == UNIT_INSIDE) {
    bool within = slab->head < unit && of_span != UNIT_INSIDE && of_span != UNIT_FREE && unit - slab->head < load_relaxed(&head->units);
    AUDIT(within, at, "a further unit is in no span");
  } else if (kind != UNIT_FREE) {
    audit_head(slab, kind);
  }
  bool has_bin = racy_load(region_bin(region.live, unit)) != &region_no_bin;
  AUDIT(has_bin == (of_span == UNIT_SLAB), at, "a unit has a bin and no slab, or a slab and no bin");
}

/* --- slabs ------------------------------------------------------------------------------- */

static void audit_listed(const slab_owner_t *owner, const unit_t *slab, unsigned c) {
  uint32_t unit = unit_number(slab);
  void *at = unit_address(slab);
  const slab_list_t *list = slab->listed_full ? &owner->full[c] : &owner->partial[c];
  bool before = slab->prev == UNIT_NONE ? list->first == unit : unit_at(slab->prev)->next == unit;
  bool behind = slab->next == UNIT_NONE || unit_at(slab->next)->prev == unit;
  bool held = owner->held.units != 0 && owner->held.unit == unit;
  uint32_t free = load_relaxed(&slab->free), state = load_relaxed(&remote_of(unit)->state);
  AUDIT(before && behind, at, "a slab's neighbours in its list do not know it");
  AUDIT(slab->listed_full ? free == 0 : free > 0 || held, at, "a slab is in the list of the others");
  AUDIT(state == REMOTE_OPEN || state == REMOTE_QUEUED, at, "a slab takes no remote frees");
}

/* Checks that the slab's units lead to it, and to one bin. */
static void audit_units(const unit_t *slab, uint32_t units) {
  uint32_t unit = unit_number(slab);
  const region_bin_t *bin = racy_load(region_bin(region.live, unit));
  AUDIT(bin != &region_no_bin && load_relaxed(&slab->units) == units, unit_address(slab), "a slab has no bin, or not its class's units");
  for (uint32_t i = 1; i < units; i++) {
    const unit_t *inside = unit_at(unit + i);
    bool leads = load_relaxed(&inside->kind) == UNIT_INSIDE && inside->head == unit;
    AUDIT(leads && racy_load(region_bin(region.live, unit + i)) == bin, region_address(unit + i), "a slab's unit does not lead to it");
  }
}

/* How many of the blocks in `bits` are live. */
static uint32_t live_count(const unit_t *slab, uint32_t word, uint64_t bits) {
  char *start = (char *)unit_address(slab) + (size_t)word * 64 * slab_class(slab)->size;
  uint32_t live = 0;
  for (; HAK_CHECKS && bits != 0; bits &= bits - 1) {
    live += slab_block_is_live(start + (size_t)bits_lowest64(bits) * slab_class(slab)->size);
  }
  return live;
}

/* Checks one word of the slab's bits; returns the free ones.  No block that is in its slab waits as freed by another thread. */
static uint64_t audit_word(const slab_owner_t *owner, const unit_t *slab, uint32_t word, audit_sum_t *sum) {
  void *at = unit_address(slab);
  uint32_t unit = unit_number(slab), rest = slab_class(slab)->blocks - word * 64;
  uint64_t all = rest >= 64 ? UINT64_MAX : ((uint64_t)1 << rest) - 1;
  uint64_t free = load_relaxed(region_bits(region.free_bits, unit, word));
  uint64_t remote = remote_word(unit, word);
  AUDIT(((free | remote) & ~all) == 0, at, "a slab has bits beyond its blocks");
  AUDIT((free & remote) == 0, at, "a free block was freed remotely");
  AUDIT(word >= slab->first_word || free == 0, at, "a block is free below the first word");
  AUDIT((!HAK_SECURE && owner->helped) || live_count(slab, word, free) == 0, at, "a free block is live");
  if (sum != NULL) {
    uint64_t out = all & ~free & ~remote;
    sum->out += bits_count64(out) - live_count(slab, word, out);
  }
  return free;
}

void audit_slab(slab_owner_t *owner, const unit_t *slab, audit_sum_t *sum) {
  void *at = unit_address(slab);
  unsigned c = load_relaxed(&slab->size_class);
  bool owned = load_relaxed(&slab->kind) == UNIT_SLAB && slab_owner(slab) == owner;
  AUDIT(owned && c < CLASS_COUNT, at, "a listed slab is not the owner's");
  audit_units(slab, class_info[c].units);
  audit_listed(owner, slab, c);
  uint32_t free = 0;
  for (uint32_t word = 0; word * 64 < class_info[c].blocks; word++) free += bits_count64(audit_word(owner, slab, word, sum));
  AUDIT(free == load_relaxed(&slab->free), at, "a slab's free blocks were not counted");
  AUDIT(load_relaxed(&slab->holes) == 0 || hole_audit(owner, slab), at, "a purged page holds a block that is out");
}

/* --- owners ------------------------------------------------------------------------------ */

/* Checks the slabs of one list.  It ends even if one is in it twice, since there are no more than `most`. */
static uint32_t audit_list(slab_owner_t *owner, uint32_t first, unsigned c, bool full, audit_sum_t *sum, int64_t *free_bytes) {
  uint32_t slabs = 0, most = load_relaxed(&owner->slab_count[c]);
  for (uint32_t unit = first; unit != UNIT_NONE; unit = unit_at(unit)->next) {
    const unit_t *slab = unit_at(unit);
    AUDIT(slabs < most, unit_address(slab), "a list has more slabs than were counted");
    if (slabs++ >= most) break;
    AUDIT(load_relaxed(&slab->size_class) == c && slab->listed_full == full, unit_address(slab), "a slab is in another's list");
    audit_slab(owner, slab, sum);
    *free_bytes += (int64_t)load_relaxed(&slab->free) * class_info[c].size;
  }
  return slabs;
}

/* Checks a stack of queued slabs, which nobody takes from while the lock is held; returns how many there are. */
static uint32_t audit_chain(const slab_owner_t *owner, uint32_t first, unsigned c) {
  uint32_t slabs = 0, most = load_relaxed(&owner->slab_count[c]);
  for (; first != 0; first = load_relaxed(&remote_of(first - 1)->next)) {
    const unit_t *slab = unit_at(first - 1);
    bool known = first <= load_relaxed(&region.units) && load_relaxed(&slab->kind) == UNIT_SLAB && slab_owner(slab) == owner;
    AUDIT(known && load_relaxed(&slab->size_class) == c, unit_address(slab), "a pending slab is not the owner's");
    AUDIT(load_relaxed(&remote_of(first - 1)->state) == REMOTE_QUEUED, unit_address(slab), "a pending slab is not queued");
    AUDIT(slabs < most, unit_address(slab), "a slab is pending twice");
    if (slabs++ >= most) break;
  }
  return slabs;
}

static uint32_t queued_in(uint32_t unit) {
  uint32_t queued = 0;
  for (; unit != UNIT_NONE; unit = unit_at(unit)->next) queued += load_relaxed(&remote_of(unit)->state) == REMOTE_QUEUED;
  return queued;
}

/* A slab is first queued, then pushed: only in a process with one thread can nobody be between the two. */
static void audit_pending(const slab_owner_t *owner, unsigned c, bool alone) {
  uint32_t deferred = audit_chain(owner, owner->deferred[c], c);
  uint32_t pending = audit_chain(owner, load_acquire(&owner->pending[c]), c);
  AUDIT(deferred + pending <= load_relaxed(&owner->slab_count[c]), owner, "a slab is pending and deferred");
  if (!alone) return;
  AUDIT(queued_in(owner->partial[c].first) + queued_in(owner->full[c].first) == deferred + pending, owner, "a queued slab is not pending");
  bool announced = load_relaxed(&owner->pending[c]) == 0 || (load_relaxed(&owner->pending_classes) >> c & 1) != 0;
  AUDIT(announced, owner, "a pending class has no bit");
}

static void audit_held(const slab_owner_t *owner) {
  const slab_held_t *held = &owner->held;
  if (held->units == 0) return;
  const unit_t *slab = unit_at(held->unit);
  bool known = held->unit < load_relaxed(&region.units) && load_relaxed(&slab->kind) == UNIT_SLAB && slab_owner(slab) == owner;
  AUDIT(known && held->first <= held->last && held->last < slab_class(slab)->blocks, owner, "what is held is in no slab of the owner");
  AUDIT(!known || held->units == slab_class(slab)->units, owner, "what is held is in no slab of the owner");
}

/* Checks the large blocks of a named heap.  One may be on its way out and not live any more. */
static void audit_large_list(const slab_owner_t *owner) {
  uint64_t blocks = 0, most = load_relaxed(&owner->large_blocks);
  int64_t bytes = 0;
  uint32_t before = UNIT_NONE;
  for (uint32_t unit = owner->large.first; unit != UNIT_NONE && blocks <= most; unit = unit_at(unit)->next, blocks++) {
    const unit_t *first = unit_at(unit);
    bool known = load_relaxed(&first->kind) == UNIT_LARGE && load_relaxed(&first->owned) && slab_owner(first) == owner;
    AUDIT(known && first->prev == before, unit_address(first), "a large block in an owner's list is not its");
    bytes += (int64_t)load_relaxed(&first->bytes);
    before = unit;
  }
  AUDIT(blocks == most && bytes == load_relaxed(&owner->large_bytes), owner, "an owner's large blocks were not counted");
}

void audit_owner(slab_owner_t *owner, audit_sum_t *sums, bool alone) {
  int64_t free_bytes = 0, slab_bytes = 0;
  audit_held(owner);
  for (unsigned c = 0; c < CLASS_COUNT; c++) {
    audit_sum_t *sum = sums == NULL ? NULL : &sums[c];
    uint32_t slabs = audit_list(owner, owner->partial[c].first, c, false, sum, &free_bytes);
    slabs += audit_list(owner, owner->full[c].first, c, true, sum, &free_bytes);
    AUDIT(slabs == load_relaxed(&owner->slab_count[c]), owner, "slabs that were counted are in no list");
    slab_bytes += (int64_t)slabs * class_info[c].blocks * class_info[c].size;
    audit_pending(owner, c, alone);
  }
  AUDIT(free_bytes == load_relaxed(&owner->free_bytes), owner, "free bytes were not counted");
  AUDIT(slab_bytes == load_relaxed(&owner->slab_bytes), owner, "bytes of slabs were not counted");
  audit_large_list(owner);
}
