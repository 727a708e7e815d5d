#include "slab/slab.h"

#include "base/check.h"
#include "kit/fault.h"
#include "slab/remote.h"
#include "space/span.h"

/* --- lists, linked by unit number ------------------------------------------------------ */

static void list_push(slab_list_t *list, slab_t *slab) {
  slab->prev = SLAB_END;
  slab->next = list->first;
  if (list->first != SLAB_END) slab_of(list->first)->prev = slab_unit(slab);
  list->first = slab_unit(slab);
}

static void list_remove(slab_list_t *list, slab_t *slab) {
  if (slab->prev == SLAB_END) list->first = slab->next;
  else slab_of(slab->prev)->next = slab->next;
  if (slab->next != SLAB_END) slab_of(slab->next)->prev = slab->prev;
}

void owner_init(slab_owner_t *owner) {
  for (unsigned c = 0; c < CLASS_COUNT; c++) {
    owner->partial[c].first = SLAB_END;
    owner->full[c].first = SLAB_END;
  }
}

static slab_list_t *slab_list(slab_owner_t *owner, const slab_t *slab) {
  unsigned c = atomic_seen(&slab->size_class);
  return slab->listed_full ? &owner->full[c] : &owner->partial[c];
}

static void slab_move(slab_owner_t *owner, slab_t *slab, bool full) {
  if (slab->listed_full == full) return;
  list_remove(slab_list(owner, slab), slab);
  slab->listed_full = full;
  list_push(slab_list(owner, slab), slab);
}

/* --- spans ------------------------------------------------------------------------------ */

void span_enter(uint32_t start, uint32_t units, slab_kind_t kind, unsigned size_class) {
  for (uint32_t i = units; i-- > 0;) {
    slab_t *slab = slab_of(start + i);
    slab->head = start;
    atomic_set(&slab->size_class, (uint8_t)size_class);
    atomic_set(&slab->units, units);
    atomic_publish(&slab->kind, (uint8_t)(i == 0 ? kind : SLAB_INSIDE));
  }
}

void span_leave(uint32_t start, uint32_t units) {
  for (uint32_t i = 0; i < units; i++) atomic_publish(&slab_of(start + i)->kind, (uint8_t)SLAB_FREE);
}

static void slab_set_thread(slab_t *slab, uintptr_t thread) {
  uint32_t unit = slab_unit(slab);
  for (uint32_t i = 0; i < atomic_seen(&slab->units); i++) hot_poke(region_owner(region.live, unit + i), thread);
}

/* --- slabs ------------------------------------------------------------------------------ */

/* The map may still name blocks that a plain move has brought back: see remote.c. */
static void units_clear_live(uint32_t unit, uint32_t units) {
  uint64_t *words = region_live_word(region_address(unit));
  for (size_t i = 0; i < units * (HAK_UNIT / 1024); i++) hot_poke(&words[i], 0);
}

static uint32_t slab_words(const slab_t *slab) { return (slab_class(slab)->blocks + 63) / 64; }

static slab_t *slab_create(slab_owner_t *owner, unsigned size_class, void *bin) {
  const class_info_t *info = &class_info[size_class];
  bool zero;
  uint32_t unit = span_alloc(info->units, 1, &zero);
  if (unit == SPAN_NONE) return NULL;
  slab_t *slab = slab_of(unit);
  for (uint32_t word = 0; word * 64 < info->blocks; word++) {
    uint32_t rest = info->blocks - word * 64;
    atomic_set(region_bits(region.free_bits, unit, word), rest >= 64 ? UINT64_MAX : ((uint64_t)1 << rest) - 1);
  }
  atomic_set(&slab->free, (uint16_t)info->blocks);
  if (HAK_CHECKS) units_clear_live(unit, info->units);
  slab->first_word = 0;
  slab->listed_full = false;
  atomic_set(&slab->owner, owner);
  for (uint32_t i = 0; i < info->units; i++) hot_poke(region_bin(region.live, unit + i), bin);
  span_enter(unit, info->units, SLAB_BLOCKS, size_class);
  slab_set_thread(slab, atomic_seen(&owner->thread));
  remote_open(unit);
  list_push(&owner->partial[size_class], slab);
  atomic_count_own(&owner->slab_count[size_class], 1);
  return slab;
}

/* False while a remote free announces itself: the slab is looked at again when that is collected. */
static bool slab_destroy(slab_owner_t *owner, slab_t *slab) {
  uint32_t unit = slab_unit(slab);
  if (!remote_close(unit)) return false;
  unsigned c = atomic_seen(&slab->size_class);
  list_remove(slab_list(owner, slab), slab);
  atomic_count_own(&owner->slab_count[c], (uint32_t)-1);
  slab_set_thread(slab, 0);
  uint32_t units = atomic_seen(&slab->units);
  span_leave(unit, units);
  span_free(unit, units);
  return true;
}

/* Takes up to `count` of the slab's free blocks, lowest first. */
static uint32_t slab_take_from(slab_t *slab, void **blocks, uint32_t count) {
  uint32_t unit = slab_unit(slab);
  const class_info_t *info = slab_class(slab);
  char *start = region_address(unit);
  uint32_t taken = 0;
  uint32_t word = slab->first_word;
  uint32_t words = slab_words(slab);
  for (; taken < count && word < words; word++) {
    _Atomic uint64_t *bits = region_bits(region.free_bits, unit, word);
    uint64_t left = atomic_seen(bits);
    uint64_t before = left;
    for (; left != 0 && taken < count; left &= left - 1) {
      hot_store(&blocks[taken++], (void *)(start + (size_t)(word * 64 + bits_lowest64(left)) * info->size));
    }
    if (left != before) atomic_set(bits, left);
    if (left != 0) break;
  }
  slab->first_word = (uint16_t)word;
  atomic_set(&slab->free, (uint16_t)(atomic_seen(&slab->free) - taken));
  return taken;
}

uint32_t slab_take(slab_owner_t *owner, unsigned size_class, void *bin, void **blocks, uint32_t count) {
  if (atomic_seen(&owner->pending) != 0) remote_collect(owner);
  uint32_t taken = 0;
  while (taken < count) {
    uint32_t first = owner->partial[size_class].first;
    /* Better a short batch than a further slab. */
    if (first == SLAB_END && taken > 0) break;
    slab_t *slab = first != SLAB_END ? slab_of(first) : slab_create(owner, size_class, bin);
    if (slab == NULL) break;
    taken += slab_take_from(slab, blocks + taken, count - taken);
    if (atomic_seen(&slab->free) == 0) slab_move(owner, slab, true);
  }
  return taken;
}

/* A class keeps one wholly free slab, unless another one has room: then a block
 * that comes and goes does not map and unmap. False: the slab is gone. */
static bool slab_settle(slab_owner_t *owner, slab_t *slab) {
  slab_move(owner, slab, false);
  if (atomic_seen(&slab->free) != slab_class(slab)->blocks) return true;
  bool alone = slab->prev == SLAB_END && slab->next == SLAB_END;
  return alone || !slab_destroy(owner, slab);
}

bool slab_give_bits(slab_owner_t *owner, slab_t *slab, uint32_t word, uint64_t bits) {
  uint32_t unit = slab_unit(slab);
  _Atomic uint64_t *free_bits = region_bits(region.free_bits, unit, word);
  uint64_t before = atomic_seen(free_bits);
  if (HAK_UNLIKELY((before & bits) != 0)) {
    uint32_t block = word * 64 + bits_lowest64(before & bits);
    const class_info_t *info = slab_class(slab);
    fault_abort("double free", "free", (char *)region_address(unit) + (size_t)block * info->size, "block is already free", info->size);
  }
  atomic_set(free_bits, before | bits);
  if (word < slab->first_word) slab->first_word = (uint16_t)word;
  atomic_set(&slab->free, (uint16_t)(atomic_seen(&slab->free) + bits_count64(bits)));
  return slab_settle(owner, slab);
}

void slab_give(slab_owner_t *owner, void **blocks, uint32_t count) {
  slab_t *slab = NULL;
  uint32_t word = 0;
  uint64_t bits = 0;
  for (uint32_t i = 0; i < count; i++) {
    char *address = hot_load(&blocks[i]);
    slab_t *head = slab_head((uint32_t)region_unit(address));
    size_t offset = (size_t)(address - (char *)region_address(slab_unit(head)));
    uint32_t block = class_block_at(atomic_seen(&head->size_class), offset);
    uint64_t bit = (uint64_t)1 << block % 64;
    if (head != slab || block / 64 != word || (bits & bit) != 0) {
      if (bits != 0) (void)slab_give_bits(owner, slab, word, bits);
      slab = head;
      word = block / 64;
      bits = 0;
    }
    bits |= bit;
  }
  if (bits != 0) (void)slab_give_bits(owner, slab, word, bits);
}

void slab_release_empty(slab_owner_t *owner) {
  for (unsigned c = 0; c < CLASS_COUNT; c++) {
    for (uint32_t unit = owner->partial[c].first; unit != SLAB_END;) {
      slab_t *slab = slab_of(unit);
      unit = slab->next;
      if (atomic_seen(&slab->free) == class_info[c].blocks) (void)slab_destroy(owner, slab);
    }
  }
}

void owner_set_thread(slab_owner_t *owner, uintptr_t thread) {
  atomic_store(&owner->thread, thread); /* before the lock is released: see remote_help */
  for (unsigned c = 0; c < CLASS_COUNT; c++) {
    for (uint32_t unit = owner->partial[c].first; unit != SLAB_END; unit = slab_of(unit)->next) slab_set_thread(slab_of(unit), thread);
    for (uint32_t unit = owner->full[c].first; unit != SLAB_END; unit = slab_of(unit)->next) slab_set_thread(slab_of(unit), thread);
  }
}

void slab_relist(slab_owner_t *owner, slab_t *slab) {
  uint32_t unit = slab_unit(slab);
  uint32_t free = 0;
  for (uint32_t word = 0; word < slab_words(slab); word++) free += bits_count64(atomic_seen(region_bits(region.free_bits, unit, word)));
  unsigned c = atomic_seen(&slab->size_class);
  atomic_set(&slab->free, (uint16_t)free);
  slab->first_word = 0;
  slab->listed_full = free == 0;
  list_push(slab_list(owner, slab), slab);
  atomic_count_own(&owner->slab_count[c], 1);
  slab_set_thread(slab, atomic_seen(&owner->thread));
}
