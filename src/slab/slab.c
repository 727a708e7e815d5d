#include "slab/slab.h"

#include <string.h>

#include "base/check.h"
#include "os/memcheck.h"
#include "os/os.h"
#include "kit/fault.h"
#include "kit/options.h"
#include "space/huge.h"
#include "space/span.h"

/* --- lists, linked by unit number ------------------------------------------------------ */

static void list_push(slab_list_t *list, unit_t *slab) {
  slab->prev = UNIT_NONE;
  slab->next = list->first;
  if (list->first != UNIT_NONE) unit_at(list->first)->prev = unit_number(slab);
  list->first = unit_number(slab);
}

static void list_remove(slab_list_t *list, unit_t *slab) {
  if (slab->prev == UNIT_NONE) list->first = slab->next;
  else unit_at(slab->prev)->next = slab->next;
  if (slab->next != UNIT_NONE) unit_at(slab->next)->prev = slab->prev;
}

void owner_init(slab_owner_t *owner) {
  owner->sampler.random = os_random_seed() ^ (uintptr_t)owner;
  owner->sampler.tracks = (track_store_t){.next = 0};
  for (unsigned c = 0; c < CLASS_COUNT; c++) {
    owner->partial[c].first = UNIT_NONE;
    owner->full[c].first = UNIT_NONE;
  }
  owner->large.first = UNIT_NONE;
}

int64_t owner_out_bytes(const slab_owner_t *owner) {
  const slab_held_t *held = &owner->held;
  int64_t out = load_relaxed(&owner->slab_bytes) - load_relaxed(&owner->free_bytes) + load_relaxed(&owner->large_bytes);
  return held->units == 0 ? out : out - (int64_t)(held->last - held->first + 1) * slab_class(unit_at(held->unit))->size;
}

bool owner_has_slabs(const slab_owner_t *owner) {
  uint32_t slabs = 0;
  for (unsigned c = 0; c < CLASS_COUNT; c++) slabs |= load_relaxed(&owner->slab_count[c]);
  return slabs != 0;
}

HAK_COLD void owner_forget(slab_owner_t *owner, bool lists) {
  store_relaxed(&owner->pending_classes, 0);
  store_relaxed(&owner->pending_count, 0);
  for (unsigned c = 0; c < CLASS_COUNT; c++) store_relaxed(&owner->pending[c], 0), owner->deferred[c] = 0;
  owner->relist = lists;
  if (!lists) return;
  owner_init(owner);
  store_relaxed(&owner->free_bytes, 0);
  store_relaxed(&owner->slab_bytes, 0);
  store_relaxed(&owner->large_blocks, 0);
  store_relaxed(&owner->large_bytes, 0);
  for (unsigned c = 0; c < CLASS_COUNT; c++) store_relaxed(&owner->slab_count[c], 0);
}

static slab_list_t *slab_list(slab_owner_t *owner, const unit_t *slab) {
  unsigned c = load_relaxed(&slab->size_class);
  return slab->listed_full ? &owner->full[c] : &owner->partial[c];
}

void slab_move(slab_owner_t *owner, unit_t *slab, bool full) {
  if (slab->listed_full == full) return;
  list_remove(slab_list(owner, slab), slab);
  slab->listed_full = full;
  list_push(slab_list(owner, slab), slab);
}

void large_own(slab_owner_t *owner, unit_t *first) {
  store_relaxed(&remote_of(unit_number(first))->owner, owner);
  store_relaxed(&first->owned, true);
  list_push(&owner->large, first);
  owner_add(&owner->large_blocks, 1);
  owner_add(&owner->large_bytes, (int64_t)load_relaxed(&first->bytes));
}

void large_disown(slab_owner_t *owner, unit_t *first) {
  list_remove(&owner->large, first);
  store_relaxed(&first->owned, false);
  owner_add(&owner->large_blocks, (uint64_t)-1);
  owner_add(&owner->large_bytes, -(int64_t)load_relaxed(&first->bytes));
}

static void slab_count(slab_owner_t *owner, unsigned size_class, int32_t slabs) {
  const class_info_t *info = &class_info[size_class];
  owner_add(&owner->slab_count[size_class], (uint32_t)slabs);
  owner_add(&owner->slab_bytes, (int64_t)slabs * info->blocks * info->size);
}

/* Makes `bin` the bin that a free finds for each of the slab's units. */
static void slab_set_bin(const unit_t *slab, region_bin_t *bin) {
  uint32_t unit = unit_number(slab);
  for (uint32_t i = 0; i < load_relaxed(&slab->units); i++) racy_store(region_bin(region.live, unit + i), bin);
}

uint8_t fork_epoch;

/* --- slabs ------------------------------------------------------------------------------ */

/* The map may still have bits that a plain store has brought back: see remote.c. */
static void units_clear_live(uint32_t unit, uint32_t units) {
  owner_clear(region_live_word(region_address(unit)), units * (HAK_UNIT / 1024));
}

/* A class that has grown this far gets the pages of a new slab in one call instead of by a fault each. */
#define POPULATE_FROM 16
static _Atomic uint64_t bytes_populated;

uint64_t slab_populated_bytes(void) { return load_relaxed(&bytes_populated); }

/* A program may use little of a block that is larger than a page.  So now and then a full slab of such a class is populated beside a new
 * one: the cost shows whether many of its pages were missing.  As long as they were, slabs of the class get only the pages that are written
 * to. */
#define LEARN_EVERY 64 /* slabs */
#define SPARSE_SHARE 4 /* a full slab lacked many pages if it cost more than this part of a new one's price */

static bool in_pages(unsigned size_class) { return class_info[size_class].size > os_page_size(); }

static void learn_sparse(slab_owner_t *owner, unsigned size_class, uint32_t unit) {
  uint64_t bit = (uint64_t)1 << size_class;
  bool due = (owner->learnt & bit) == 0 || load_relaxed(&owner->slab_count[size_class]) % LEARN_EVERY == 0;
  uint32_t newest = owner->full[size_class].first, older = newest != UNIT_NONE ? unit_at(newest)->next : UNIT_NONE;
  uint64_t start = due && older != UNIT_NONE ? os_thread_ns() : 0;
  size_t bytes = class_info[size_class].units * HAK_UNIT;
  if (start == 0 || !os_populate(region_address(older), bytes)) return;
  uint64_t old_end = os_thread_ns();
  (void)os_populate(region_address(unit), bytes);
  uint64_t new_ns = os_thread_ns() - old_end;
  owner->learnt |= bit;
  owner->sparse = (old_end - start) * SPARSE_SHARE > new_ns ? owner->sparse | bit : owner->sparse & ~bit;
}

/* SPAN_SLAB only where the slabs of the class would fill a huge page. */
static span_use_t slab_use(const slab_owner_t *owner, unsigned size_class) {
  bool filled = !in_pages(size_class) || ((owner->learnt & ~owner->sparse) >> size_class & 1) != 0;
  return filled ? SPAN_SLAB : SPAN_PLAIN;
}

static void slab_populate(slab_owner_t *owner, unsigned size_class, uint32_t unit) {
  if (option_get(OPTION_populate) == 0 || load_relaxed(&owner->slab_count[size_class]) < POPULATE_FROM) return;
  if (load_relaxed(&owner->thread) == 0) return; /* shared by threads each of which takes little */
  if (in_pages(size_class)) learn_sparse(owner, size_class, unit);
  size_t bytes = class_info[size_class].units * HAK_UNIT;
  if ((owner->sparse >> size_class & 1) != 0) return;
  if (os_populate(region_address(unit), bytes)) add_relaxed(&bytes_populated, bytes);
}

/* The secure library has an inaccessible unit behind each slab. */
#define SLAB_GUARDS ((uint32_t)HAK_SECURE)

static void slab_guard(uint32_t unit, unsigned size_class) {
  if (HAK_SECURE) units_guard(unit + class_info[size_class].units, SLAB_GUARDS);
  if (size_class == CLASS_ZERO) units_guard(unit, class_info[size_class].units);
}

unit_t *slab_create(slab_owner_t *owner, unsigned size_class, region_bin_t *bin) {
  const class_info_t *info = &class_info[size_class];
  bool zero;
  uint32_t unit = span_alloc(info->units + SLAB_GUARDS, 1, slab_use(owner, size_class), &zero);
  if (unit == SPAN_NONE) return NULL;
  slab_guard(unit, size_class);
  if (zero && size_class != CLASS_ZERO && !huge_has(unit)) slab_populate(owner, size_class, unit);
  memcheck_hide(region_address(unit), info->units * HAK_UNIT);
  unit_t *slab = unit_at(unit);
  for (uint32_t word = 0; word * 64 < info->blocks; word++) {
    uint32_t rest = info->blocks - word * 64;
    store_relaxed(region_bits(region.free_bits, unit, word), rest >= 64 ? UINT64_MAX : ((uint64_t)1 << rest) - 1);
  }
  if (HAK_CHECKS) units_clear_live(unit, info->units);
  slab->first_word = 0;
  slab->listed_full = false;
  slab->returned = false;
  store_relaxed(&slab->holes, 0);
  remote_of(unit)->refused = 0;
  slab->touched = zero ? 0 : (uint16_t)info->blocks;
  slab->fork_epoch = fork_epoch;
  slab->dirty_when_free = !zero && fork_epoch != 0;
  bool marked = info->blocks <= REGION_MARKED_BLOCKS;
  store_relaxed(&slab->remote, !marked);
  store_relaxed(&remote_of(unit)->freers, marked ? 0 : REMOTE_OTHERS);
  store_relaxed(&remote_of(unit)->owner, owner);
  units_enter(unit, info->units, UNIT_SLAB, size_class);
  store_relaxed(&slab->free, 0);
  slab_add_free(owner, slab, (int32_t)info->blocks);
  slab_set_bin(slab, bin);
  remote_open(unit);
  sample_choose(&owner->sampler, slab);
  list_push(&owner->partial[size_class], slab);
  slab_count(owner, size_class, 1);
  return slab;
}

/* False if a remote free has queued the slab: it is looked at again when that is collected. */
static bool slab_destroy(slab_owner_t *owner, unit_t *slab) {
  uint32_t unit = unit_number(slab);
  if (!remote_close(unit)) return false;
  unsigned c = load_relaxed(&slab->size_class);
  list_remove(slab_list(owner, slab), slab);
  slab_count(owner, c, -1);
  slab_add_free(owner, slab, -(int32_t)class_info[c].blocks);
  slab_set_bin(slab, &region_no_bin);
  sample_forget(&owner->sampler, slab);
  uint32_t units = load_relaxed(&slab->units);
  units_unadvise(slab, units);
  if (HAK_SECURE && slab_may_be_dirty(slab) && c != CLASS_ZERO) units_clear(unit, units);
  /* The guard behind goes last: a fork's child that finds the slab ends it once more, with its guard. */
  if (c == CLASS_ZERO) {
    units_enter_guard(unit, units);
    units_unguard(unit, units);
  } else {
    units_leave(unit, units);
    span_free(unit, units);
  }
  if (HAK_SECURE) units_unguard(unit + units, SLAB_GUARDS);
  return true;
}

/* A class keeps one wholly free slab, unless another slab has room: so a block that comes and goes does not map and unmap memory. */
bool slab_end_if_free(slab_owner_t *owner, unit_t *slab) {
  slab_move(owner, slab, false);
  if (load_relaxed(&slab->free) != slab_class(slab)->blocks) return true;
  bool kept = !owner->orphan && slab->prev == UNIT_NONE && slab->next == UNIT_NONE;
  return kept || !slab_destroy(owner, slab);
}

HAK_COLD _Noreturn void slab_double_free(slab_owner_t *owner, unit_t *slab, uint32_t word, uint64_t bits, uint32_t given) {
  const class_info_t *info = slab_class(slab);
  size_t block = word * 64 + bits_lowest64(bits);
  slab_add_free(owner, slab, (int32_t)given);
  if (lock_is_mine(&owner->lock)) lock_release(&owner->lock);
  fault_abort("double free", "free", (char *)region_address(unit_number(slab)) + block * info->size, "block is already free", info->size);
}

void slab_set_free(slab_owner_t *owner, unit_t *slab, uint32_t word, uint64_t bits, uint32_t given) {
  _Atomic uint64_t *at = region_bits(region.free_bits, unit_number(slab), word);
  uint64_t before = load_relaxed(at);
  if (HAK_UNLIKELY((before & bits) != 0)) slab_double_free(owner, slab, word, before & bits, given);
  store_relaxed(at, before | bits);
  if (word < slab->first_word) slab->first_word = (uint16_t)word;
}

bool slab_give_bits(slab_owner_t *owner, unit_t *slab, uint32_t word, uint64_t bits) {
  slab_set_free(owner, slab, word, bits, 0);
  return slab_count_given(owner, slab, bits_count64(bits));
}

static void slab_release_empty_class(slab_owner_t *owner, unsigned size_class) {
  for (uint32_t unit = owner->partial[size_class].first; unit != UNIT_NONE;) {
    unit_t *slab = unit_at(unit);
    unit = slab->next;
    if (load_relaxed(&slab->free) == class_info[size_class].blocks) (void)slab_destroy(owner, slab);
  }
}

HAK_COLD void slab_release_empty(slab_owner_t *owner) {
  for (unsigned c = 0; c < CLASS_COUNT; c++) slab_release_empty_class(owner, c);
}

HAK_COLD void slab_relist(slab_owner_t *owner, unit_t *slab, region_bin_t *bin) {
  slab_set_bin(slab, bin);
  uint32_t unit = unit_number(slab);
  uint32_t free = 0;
  for (uint32_t word = 0; word < slab_words(slab); word++) free += bits_count64(load_relaxed(region_bits(region.free_bits, unit, word)));
  unsigned c = load_relaxed(&slab->size_class);
  store_relaxed(&slab->free, 0);
  slab_add_free(owner, slab, (int32_t)free);
  slab->first_word = 0;
  store_relaxed(&slab->holes, 0); /* a block may have been taken whose page was still marked as purged */
  slab->listed_full = free == 0;
  list_push(slab_list(owner, slab), slab);
  slab_count(owner, c, 1);
}
