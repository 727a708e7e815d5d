#include "slab/slab.h"

#include "base/check.h"
#include "kit/fault.h"
#include "kit/options.h"
#include "os/memcheck.h"
#include "os/os.h"
#include "slab/guard.h"
#include "slab/remote.h"
#include "space/purge.h"
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
  for (unsigned c = 0; c < CLASS_COUNT; c++) {
    owner->partial[c].first = UNIT_NONE;
    owner->full[c].first = UNIT_NONE;
  }
}

bool owner_has_slabs(const slab_owner_t *owner) {
  uint32_t slabs = 0;
  for (unsigned c = 0; c < CLASS_COUNT; c++) slabs |= load_relaxed(&owner->slab_count[c]);
  return slabs != 0;
}

void owner_forget(slab_owner_t *owner, bool lists) {
  store_relaxed(&owner->pending_classes, 0);
  store_relaxed(&owner->pending_count, 0);
  for (unsigned c = 0; c < CLASS_COUNT; c++) store_relaxed(&owner->pending[c], 0), owner->rest[c] = 0;
  owner->relist = lists;
  if (!lists) return;
  owner_init(owner);
  store_relaxed(&owner->free_bytes, 0);
  for (unsigned c = 0; c < CLASS_COUNT; c++) store_relaxed(&owner->slab_count[c], 0);
}

static slab_list_t *slab_list(slab_owner_t *owner, const unit_t *slab) {
  unsigned c = load_relaxed(&slab->size_class);
  return slab->listed_full ? &owner->full[c] : &owner->partial[c];
}

static void slab_move(slab_owner_t *owner, unit_t *slab, bool full) {
  if (slab->listed_full == full) return;
  list_remove(slab_list(owner, slab), slab);
  slab->listed_full = full;
  list_push(slab_list(owner, slab), slab);
}

/* Makes `bin` the one that takes the slab's blocks. */
static void slab_set_bin(const unit_t *slab, region_bin_t *bin) {
  uint32_t unit = unit_number(slab);
  for (uint32_t i = 0; i < load_relaxed(&slab->units); i++) racy_store(region_bin(region.live, unit + i), bin);
}

uint8_t slab_epoch;

/* --- slabs ------------------------------------------------------------------------------ */

/* The map may still have bits that a plain store has brought back: see remote.c. */
static void units_clear_live(uint32_t unit, uint32_t units) {
  uint64_t *words = region_live_word(region_address(unit));
  for (size_t i = 0; i < units * (HAK_UNIT / 1024); i++) racy_store(&words[i], 0);
}

static uint32_t slab_words(const unit_t *slab) { return (slab_class(slab)->blocks + 63) / 64; }

void slab_add_free(slab_owner_t *owner, unit_t *slab, int32_t blocks) {
  store_relaxed(&slab->free, (uint16_t)(load_relaxed(&slab->free) + blocks));
  owner_add(&owner->free_bytes, (int64_t)blocks * slab_class(slab)->size);
  slab->age = 0;
}

/* A class that has grown this far gets the pages of a new slab in one call and not by a fault each. */
#define POPULATE_FROM 16
static _Atomic uint64_t bytes_populated;

uint64_t slab_populated_bytes(void) { return load_relaxed(&bytes_populated); }

static void slab_populate(const slab_owner_t *owner, unsigned size_class, uint32_t unit) {
  if (option_get(OPTION_populate) == 0 || load_relaxed(&owner->slab_count[size_class]) < POPULATE_FROM) return;
  if (load_relaxed(&owner->thread) == 0) return; /* shared by threads of which each takes little */
  size_t bytes = class_info[size_class].units * HAK_UNIT;
  if (os_populate(region_address(unit), bytes)) add_relaxed(&bytes_populated, bytes);
}

/* The secure library has an inaccessible unit behind each slab. */
#define SLAB_GUARDS ((uint32_t)HAK_SECURE)

static void slab_guard(uint32_t unit, unsigned size_class) {
  if (HAK_SECURE) span_guard(unit + class_info[size_class].units, SLAB_GUARDS);
  if (size_class == CLASS_ZERO) span_guard(unit, class_info[size_class].units);
}

static unit_t *slab_create(slab_owner_t *owner, unsigned size_class, region_bin_t *bin) {
  const class_info_t *info = &class_info[size_class];
  bool zero;
  uint32_t unit = span_alloc(info->units + SLAB_GUARDS, 1, SPAN_SLAB, &zero);
  if (unit == SPAN_NONE) return NULL;
  slab_guard(unit, size_class);
  if (zero && size_class != CLASS_ZERO) slab_populate(owner, size_class, unit);
  memcheck_hide(region_address(unit), info->units * HAK_UNIT);
  unit_t *slab = unit_at(unit);
  for (uint32_t word = 0; word * 64 < info->blocks; word++) {
    uint32_t rest = info->blocks - word * 64;
    store_relaxed(region_bits(region.free_bits, unit, word), rest >= 64 ? UINT64_MAX : ((uint64_t)1 << rest) - 1);
  }
  if (HAK_CHECKS) units_clear_live(unit, info->units);
  slab->first_word = 0;
  slab->listed_full = false;
  slab->holes = 0;
  slab->touched = zero ? 0 : (uint16_t)info->blocks;
  slab->epoch = slab_epoch;
  slab->dirty_when_free = !zero && slab_epoch != 0;
  store_relaxed(&slab->owner, owner);
  span_enter(unit, info->units, UNIT_SLAB, size_class);
  store_relaxed(&slab->free, 0);
  slab_add_free(owner, slab, (int32_t)info->blocks);
  slab_set_bin(slab, bin);
  remote_open(unit);
  list_push(&owner->partial[size_class], slab);
  owner_add(&owner->slab_count[size_class], 1);
  return slab;
}

/* False while a remote free announces itself: the slab is looked at again when that is collected. */
static bool slab_destroy(slab_owner_t *owner, unit_t *slab) {
  uint32_t unit = unit_number(slab);
  if (!remote_close(unit)) return false;
  unsigned c = load_relaxed(&slab->size_class);
  list_remove(slab_list(owner, slab), slab);
  owner_add(&owner->slab_count[c], (uint32_t)-1);
  slab_add_free(owner, slab, -(int32_t)class_info[c].blocks);
  slab_set_bin(slab, &region_no_bin);
  uint32_t units = load_relaxed(&slab->units);
  if (HAK_SECURE && slab_may_be_dirty(slab) && c != CLASS_ZERO) span_clear(unit, units);
  if (HAK_SECURE) span_unguard(unit + units, SLAB_GUARDS);
  if (c == CLASS_ZERO) {
    span_enter(unit, units, UNIT_GUARD, CLASS_NONE);
    span_unguard(unit, units);
    return true;
  }
  span_leave(unit, units);
  span_free(unit, units);
  return true;
}

/* The pages from `first` to `last` will be written. */
static void holes_end(unit_t *slab, const void *first, const void *last) {
  uintptr_t start = (uintptr_t)region_address(unit_number(slab));
  size_t page = os_page_size();
  uint64_t from = ((uintptr_t)first - start) / page, to = ((uintptr_t)last - start) / page;
  slab->holes &= ~((UINT64_MAX << from) & (UINT64_MAX >> (63 - to)));
}

/* Takes up to `count` of the slab's free blocks, lowest first. */
static uint32_t slab_take_from(slab_owner_t *owner, unit_t *slab, void **blocks, uint32_t count) {
  uint32_t unit = unit_number(slab);
  const class_info_t *info = slab_class(slab);
  char *start = region_address(unit);
  uint32_t taken = 0;
  uint32_t word = slab->first_word;
  uint32_t words = slab_words(slab);
  for (; taken < count && word < words; word++) {
    _Atomic uint64_t *bits = region_bits(region.free_bits, unit, word);
    uint64_t left = load_relaxed(bits);
    uint64_t before = left;
    for (; left != 0 && taken < count; left &= left - 1) {
      owner_store(&blocks[taken++], (void *)(start + (size_t)(word * 64 + bits_lowest64(left)) * info->size));
    }
    if (left != before) store_relaxed(bits, left);
    if (left != 0) break;
  }
  slab->first_word = (uint16_t)word;
  slab_add_free(owner, slab, -(int32_t)taken);
  if (slab->holes != 0 && taken > 0) holes_end(slab, blocks[0], (char *)blocks[taken - 1] + info->size - 1);
  return taken;
}

static _Atomic uint64_t slabs_ahead;

uint64_t slab_ahead_count(void) { return load_relaxed(&slabs_ahead); }

/* An owner that lives from what others free would collect every few blocks what they have just freed, and take the cache
 * lines from them each time.  With a slab more it comes for as many blocks at once. */
static void slab_take_lead(slab_owner_t *owner, unsigned size_class, region_bin_t *bin) {
  const slab_list_t *partial = &owner->partial[size_class];
  if (option_get(OPTION_lead) == 0 || partial->first == UNIT_NONE) return;
  const unit_t *slab = unit_at(partial->first);
  if (slab->next != UNIT_NONE || load_relaxed(&slab->free) >= class_info[size_class].blocks / 4) return;
  (void)remote_collect(owner); /* other classes may have the memory */
  if (slab_create(owner, size_class, bin) != NULL) add_relaxed(&slabs_ahead, 1);
}

/* The slab to take blocks of the class from.  What others have freed is brought in
 * only when nothing else of the class is left: collected while they free,
 * the same cache lines would move back and forth.  Other classes' only before the heap
 * would take more memory. */
static unit_t *slab_with_free(slab_owner_t *owner, unsigned size_class, region_bin_t *bin) {
  slab_list_t *partial = &owner->partial[size_class];
  if (partial->first == UNIT_NONE) {
    remote_collect_class(owner, size_class);
    slab_take_lead(owner, size_class, bin);
  }
  if (partial->first == UNIT_NONE) (void)remote_collect(owner);
  return partial->first != UNIT_NONE ? unit_at(partial->first) : slab_create(owner, size_class, bin);
}

/* So many slabs are looked at for one batch: their records and bits are in no cache if the class has many. */
#define TAKE_SLABS 8

uint32_t slab_take(slab_owner_t *owner, unsigned size_class, region_bin_t *bin, void **blocks, uint32_t count) {
  uint32_t taken = 0, slabs = 0;
  do {
    unit_t *slab = slab_with_free(owner, size_class, bin);
    if (slab == NULL) break;
    taken += slab_take_from(owner, slab, blocks + taken, count - taken);
    if (load_relaxed(&slab->free) == 0) slab_move(owner, slab, true);
    /* Better a short batch than a further slab; but hole.c may have had all that was free. */
  } while (taken == 0 || (taken < count && ++slabs < TAKE_SLABS && owner->partial[size_class].first != UNIT_NONE));
  return taken;
}

/* A class keeps one wholly free slab, unless another one has room: then a block
 * that comes and goes does not map and unmap. */
bool slab_end_if_free(slab_owner_t *owner, unit_t *slab) {
  slab_move(owner, slab, false);
  if (load_relaxed(&slab->free) != slab_class(slab)->blocks) return true;
  bool kept = !owner->orphan && slab->prev == UNIT_NONE && slab->next == UNIT_NONE;
  return kept || !slab_destroy(owner, slab);
}

/* Nothing is half-changed yet, so the lock goes first: a handler of SIGABRT may allocate. */
static HAK_COLD _Noreturn void double_free(slab_owner_t *owner, const unit_t *slab, uint32_t word, uint64_t bits) {
  const class_info_t *info = slab_class(slab);
  size_t block = word * 64 + bits_lowest64(bits);
  if (lock_is_mine(&owner->lock)) lock_release(&owner->lock);
  fault_abort("double free", "free", (char *)region_address(unit_number(slab)) + block * info->size, "block is already free", info->size);
}

bool slab_give_bits(slab_owner_t *owner, unit_t *slab, uint32_t word, uint64_t bits) {
  _Atomic uint64_t *free_bits = region_bits(region.free_bits, unit_number(slab), word);
  uint64_t before = load_relaxed(free_bits);
  if (HAK_UNLIKELY((before & bits) != 0)) double_free(owner, slab, word, before & bits);
  store_relaxed(free_bits, before | bits);
  if (word < slab->first_word) slab->first_word = (uint16_t)word;
  slab_add_free(owner, slab, (int32_t)bits_count64(bits));
  return slab_end_if_free(owner, slab);
}

/* Of blocks that come from a bin.  One that another thread has freed at the same moment as the owner waits to be collected too. */
static void word_give(slab_owner_t *owner, unit_t *slab, uint32_t word, uint64_t bits) {
  uint64_t remote = load_relaxed(region_bits(region.remote_bits, unit_number(slab), word));
  if (HAK_UNLIKELY((remote & bits) != 0)) double_free(owner, slab, word, remote & bits);
  (void)slab_give_bits(owner, slab, word, bits);
}

/* So many words of free bits are written for one batch, or a few more; and so many blocks are looked at together. */
#define GIVE_WORDS 32
#define GIVE_TOGETHER 32

/* Where blocks lie in different slabs, whose records and bits are in no cache, the misses overlap if all are asked for first; then
 * the neighbours' of those that leave the list of full ones.  Of slabs of several units it may ask for the wrong lines. */
static void give_prefetch(void **blocks, uint32_t count) {
  uint32_t first = (uint32_t)region_unit(owner_load(&blocks[0])), last = first;
  unsigned c = load_relaxed(&unit_at(first)->size_class);
  for (uint32_t i = 1; i < count; i++) {
    void *block = owner_load(&blocks[i]);
    uint32_t unit = (uint32_t)region_unit(block);
    if (unit == last) continue;
    uint32_t word = class_block_at(c, (uintptr_t)block - (uintptr_t)region_address(unit)) / 64;
    __builtin_prefetch(unit_at(unit), 1);
    __builtin_prefetch(region_bits(region.free_bits, unit, word), 1);
    __builtin_prefetch(region_bits(region.remote_bits, unit, word), 0);
    last = unit;
  }
  if (last == first) return;
  for (uint32_t i = 1; i < count; i++) {
    const unit_t *slab = unit_at((uint32_t)region_unit(owner_load(&blocks[i])));
    if (!slab->listed_full) continue;
    if (slab->prev != UNIT_NONE) __builtin_prefetch(unit_at(slab->prev), 1);
    if (slab->next != UNIT_NONE) __builtin_prefetch(unit_at(slab->next), 1);
  }
}

/* Returns how many words it has written. */
static uint32_t give_together(slab_owner_t *owner, void **blocks, uint32_t count) {
  unit_t *slab = NULL;
  uint32_t word = 0, words = 0;
  uint64_t bits = 0;
  give_prefetch(blocks, count);
  for (uint32_t i = 0; i < count; i++) {
    char *address = owner_load(&blocks[i]);
    unit_t *head = unit_head((uint32_t)region_unit(address));
    size_t offset = (size_t)(address - (char *)region_address(unit_number(head)));
    uint32_t block = class_block_at(load_relaxed(&head->size_class), offset);
    uint64_t bit = (uint64_t)1 << block % 64;
    if (head != slab || block / 64 != word || (bits & bit) != 0) {
      if (bits != 0) word_give(owner, slab, word, bits);
      words++;
      slab = head;
      word = block / 64;
      bits = 0;
    }
    bits |= bit;
  }
  word_give(owner, slab, word, bits);
  return words;
}

uint32_t slab_give(slab_owner_t *owner, void **blocks, uint32_t count) {
  uint32_t given = 0, words = 0;
  while (given < count && words < GIVE_WORDS) {
    uint32_t together = count - given < GIVE_TOGETHER ? count - given : GIVE_TOGETHER;
    words += give_together(owner, blocks + given, together);
    given += together;
  }
  return given;
}

static void slab_release_empty_class(slab_owner_t *owner, unsigned size_class) {
  for (uint32_t unit = owner->partial[size_class].first; unit != UNIT_NONE;) {
    unit_t *slab = unit_at(unit);
    unit = slab->next;
    if (load_relaxed(&slab->free) == class_info[size_class].blocks) (void)slab_destroy(owner, slab);
  }
}

void slab_release_empty(slab_owner_t *owner) {
  for (unsigned c = 0; c < CLASS_COUNT; c++) slab_release_empty_class(owner, c);
}

void slab_relist(slab_owner_t *owner, unit_t *slab, region_bin_t *bin) {
  slab_set_bin(slab, bin);
  uint32_t unit = unit_number(slab);
  uint32_t free = 0;
  for (uint32_t word = 0; word < slab_words(slab); word++) free += bits_count64(load_relaxed(region_bits(region.free_bits, unit, word)));
  unsigned c = load_relaxed(&slab->size_class);
  store_relaxed(&slab->free, 0);
  slab_add_free(owner, slab, (int32_t)free);
  slab->first_word = 0;
  slab->listed_full = free == 0;
  list_push(slab_list(owner, slab), slab);
  owner_add(&owner->slab_count[c], 1);
}
