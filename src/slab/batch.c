#include "slab/batch.h"

#include "os/os.h"
#include "kit/options.h"
#include "space/purge.h"
#include "slab/remote.h"

/* --- taking ------------------------------------------------------------------------------- */

/* Ends the holes among the pages from `first` to `last`, which will be written. */
static void holes_end(unit_t *slab, const void *first, const void *last) {
  uintptr_t start = (uintptr_t)region_address(unit_number(slab));
  size_t page = os_page_size();
  uint64_t from = ((uintptr_t)first - start) / page, to = ((uintptr_t)last - start) / page;
  uint64_t holes = load_relaxed(&slab->holes), written = holes & (UINT64_MAX << from) & (UINT64_MAX >> (63 - to));
  store_relaxed(&slab->holes, holes & ~written);
  if (slab->holes_by_growth) purge_note_again(bits_count64(written) * page);
}

/* Takes up to `count` of the slab's free blocks, the lowest one last.  No entry beyond them is written: one there may belong to a free that
 * was interrupted by the signal handler which refills here. */
static uint32_t slab_take_from(slab_owner_t *owner, unit_t *slab, void **blocks, uint32_t count) {
  uint32_t unit = unit_number(slab);
  const size_t size = slab_class(slab)->size;
  char *start = region_address(unit);
  uint32_t free = load_relaxed(&slab->free), taken = free < count ? free : count, at = taken;
  uint32_t word = slab->first_word;
  uint32_t words = slab_words(slab);
  for (; at != 0; word++) {
    if (HAK_UNLIKELY(word >= words)) __builtin_trap(); /* fewer bits than it counts: the record is damaged */
    _Atomic uint64_t *bits = region_bits(region.free_bits, unit, word);
    uint64_t left = load_relaxed(bits);
    uint64_t before = left;
    char *first = start + (size_t)word * 64 * size;
    HAK_HIDE_VAR(first); /* otherwise two additions for each block */
    for (; left != 0 && at != 0; left &= left - 1) owner_store(&blocks[--at], (void *)(first + (size_t)bits_lowest64(left) * size));
    if (left != before) store_relaxed(bits, left);
    if (left != 0) break;
  }
  slab->first_word = (uint16_t)word;
  slab_add_free(owner, slab, -(int32_t)taken);
  if (load_relaxed(&slab->holes) != 0 && taken > 0) holes_end(slab, blocks[taken - 1], (char *)blocks[0] + size - 1);
  return taken;
}

/* Larger blocks are few in a batch, and so are the waits for them. */
#define RETURNED_SIZE 1024

/* Blocks that others have freed lie in those threads' caches.  The program would wait for each block as it writes to it, since a processor
 * completes its stores in order; where all are written to in a row, the waits overlap.  The content stays.  A prefetch for writing gains
 * little: docs/dead-ends.md. */
static void blocks_fetch(const unit_t *slab, void **blocks, uint32_t count) {
  const class_info_t *info = slab_class(slab);
  if (HAK_LIKELY(!slab->returned) || count == 1 || info->size > RETURNED_SIZE || info == &class_info[CLASS_ZERO]) return;
  for (uint32_t i = count; i-- > 0;) { /* in the order in which a bin has them */
    volatile char *first = owner_load(&blocks[i]);
    *first = *first;
  }
}

static _Atomic uint64_t lead_slabs;

uint64_t batch_lead_slabs(void) { return load_relaxed(&lead_slabs); }

/* An owner that lives on what others free would collect, every few blocks, what they have just freed, and take the cache lines from them
 * each time.  With one more slab it collects less often, and more blocks at a time. */
static void slab_take_lead(slab_owner_t *owner, unsigned size_class, region_bin_t *bin) {
  const slab_list_t *partial = &owner->partial[size_class];
  if (option_get(OPTION_lead) == 0 || partial->first == UNIT_NONE) return;
  const unit_t *slab = unit_at(partial->first);
  if (slab->next != UNIT_NONE || load_relaxed(&slab->free) >= class_info[size_class].blocks / 4) return;
  (void)remote_collect(owner); /* other classes may have the memory */
  if (slab_create(owner, size_class, bin) != NULL) add_relaxed(&lead_slabs, 1);
}

/* The slab to take blocks of the class from.  What others have freed is brought in only when nothing else of the class is left: if it were
 * collected while they free, the same cache lines would move back and forth.  What they have freed of other classes is brought in only
 * before the heap would take more memory. */
static unit_t *slab_with_free(slab_owner_t *owner, unsigned size_class, region_bin_t *bin) {
  slab_list_t *partial = &owner->partial[size_class];
  if (partial->first == UNIT_NONE) {
    remote_collect_class(owner, size_class);
    slab_take_lead(owner, size_class, bin);
  }
  if (partial->first == UNIT_NONE) (void)remote_collect(owner);
  return partial->first != UNIT_NONE ? unit_at(partial->first) : slab_create(owner, size_class, bin);
}

/* At most so many slabs are visited for one batch: their records and bits are in no cache if the class has many. */
#define TAKE_SLABS 8

uint32_t batch_take(slab_owner_t *owner, unsigned size_class, region_bin_t *bin, void **blocks, uint32_t count) {
  uint32_t taken = 0, slabs = 0;
  do {
    unit_t *slab = slab_with_free(owner, size_class, bin);
    if (slab == NULL) break;
    uint32_t more = slab_take_from(owner, slab, blocks + taken, count - taken);
    blocks_fetch(slab, blocks + taken, more);
    sample_enter(&owner->sampler, slab, blocks + taken, more);
    taken += more;
    if (load_relaxed(&slab->free) == 0) slab_move(owner, slab, true);
    /* Better a short batch than a further slab; but hole.c may hold all that was free. */
  } while (taken == 0 || (taken < count && ++slabs < TAKE_SLABS && owner->partial[size_class].first != UNIT_NONE));
  return taken;
}

/* One of the lowest BATCH_AMONG set bits, or of as many as there are; `number` says which.  `bits` is not 0. */
HAK_INLINE uint64_t bit_among(uint64_t bits, uint32_t number) {
  uint64_t lowest[BATCH_AMONG] = {0};
  uint32_t count = 0;
  for (; count < BATCH_AMONG && bits != 0; bits &= bits - 1) lowest[count++] = bits & -bits;
  return lowest[HAK_LIKELY(count == BATCH_AMONG) ? number % BATCH_AMONG : number % count];
}

/* NULL if the slab has none. */
static void *slab_take_among(slab_owner_t *owner, unit_t *slab, uint32_t number) {
  uint32_t unit = unit_number(slab), word = slab->first_word, words = slab_words(slab);
  const class_info_t *info = slab_class(slab);
  uint64_t all = 0;
  for (; word < words && (all = load_relaxed(region_bits(region.free_bits, unit, word))) == 0; word++) {
  }
  slab->first_word = (uint16_t)word;
  if (all == 0) return NULL;
  uint64_t bit = bit_among(all, number);
  store_relaxed(region_bits(region.free_bits, unit, word), all & ~bit);
  char *block = (char *)region_address(unit) + (size_t)(word * 64 + bits_lowest64(bit)) * info->size;
  slab_add_free(owner, slab, -1);
  if (load_relaxed(&slab->holes) != 0) holes_end(slab, block, block + info->size - 1);
  return block;
}

void *batch_take_among(slab_owner_t *owner, unsigned size_class, region_bin_t *bin, uint32_t number) {
  void *block = NULL;
  while (block == NULL) { /* hole.c may hold all that was free */
    unit_t *slab = slab_with_free(owner, size_class, bin);
    if (slab == NULL) break;
    block = slab_take_among(owner, slab, number);
    if (load_relaxed(&slab->free) == 0) slab_move(owner, slab, true);
  }
  return block;
}

/* --- giving ------------------------------------------------------------------------------- */

/* At most so many words of free bits are written for one batch, or a few more; and so many blocks are handled together. */
#define GIVE_WORDS 32
#define GIVE_TOGETHER 32

/* Blocks of one word of a slab's free bits. */
typedef struct share {
  unit_t *slab;
  _Atomic uint64_t *at;
  uint64_t bits;
  uint32_t word;
  uint32_t first; /* where its blocks begin in the batch */
} share_t;

/* Divides the blocks into shares, in their order; a block that is there twice begins another share.  One more share begins at `count`.
 * Blocks may lie in different slabs, whose records and bits are in no cache: the misses overlap, since all are prefetched first. */
static uint32_t shares_find(share_t *shares, void **blocks, uint32_t count) {
  unsigned c = load_relaxed(&unit_head((uint32_t)region_unit(entry_block(owner_load(&blocks[0]))))->size_class);
  const size_t bytes = 64 * (size_t)class_info[c].size, slab_bytes = class_info[c].units * HAK_UNIT;
  const uint32_t last = (class_info[c].blocks - 1) / 64; /* the last word of a slab, mostly of fewer blocks */
  const size_t bytes_of_last = slab_bytes - last * bytes;
  uintptr_t start = 0; /* where the blocks of the share's word begin, and how many bytes they have */
  size_t room = 0;
  share_t *share = shares;
  uint64_t bits = 0;
  for (uint32_t i = 0; i < count; i++) {
    uintptr_t entry = (uintptr_t)owner_load(&blocks[i]); /* a sampled one lies beyond any room, and begins a share */
    if (HAK_LIKELY(entry - start < room && !bits_test_and_set64(&bits, class_block_at(c, entry - start)))) continue;
    if (i > 0) share++->bits = bits;
    share->first = i;
    uintptr_t address = (uintptr_t)entry_block((void *)entry);
    uint32_t unit = (uint32_t)region_unit((void *)address);
    if (slab_bytes > HAK_UNIT) unit = unit_number(unit_head(unit));
    start = (uintptr_t)region_address(unit);
    uint32_t block = class_block_at(c, address - start);
    start += block / 64 * bytes;
    room = block / 64 == last ? bytes_of_last : bytes;
    __builtin_prefetch(unit_at(unit), 1);
    bits = (uint64_t)1 << block % 64;
    share->slab = unit_at(unit);
    share->word = block / 64;
    share->at = region_bits(region.free_bits, unit, block / 64);
    __builtin_prefetch(share->at, 1);
  }
  share++->bits = bits;
  share->first = count;
  return (uint32_t)(share - shares);
}

/* Prefetches the neighbours of slabs that leave the list of full ones. */
static void shares_prefetch(const share_t *shares, uint32_t count) {
  for (uint32_t i = 1; i < count; i++) {
    const unit_t *slab = shares[i].slab;
    if (slab == shares[i - 1].slab || !slab->listed_full) continue;
    if (slab->prev != UNIT_NONE) __builtin_prefetch(unit_at(slab->prev), 1);
    if (slab->next != UNIT_NONE) __builtin_prefetch(unit_at(slab->next), 1);
  }
}

/* Sets the share's blocks free.  A block that another thread has freed at the same moment as the owner waits to be collected too: that is a
 * double free. */
HAK_INLINE void share_give(slab_owner_t *owner, const share_t *share, uint32_t given) {
  unit_t *slab = share->slab;
  uint64_t before = load_relaxed(share->at), bits = share->bits, taken = before & bits;
  if (HAK_UNLIKELY(load_relaxed(&slab->remote))) taken |= remote_word(unit_number(slab), share->word) & bits;
  if (HAK_UNLIKELY(taken != 0)) slab_double_free(owner, slab, share->word, taken, given);
  store_relaxed(share->at, before | bits);
  if (share->word < slab->first_word) slab->first_word = (uint16_t)share->word;
}

/* Returns how many words it has written. */
static uint32_t give_together(slab_owner_t *owner, void **blocks, uint32_t count) {
  share_t shares[GIVE_TOGETHER + 1];
  uint32_t words = shares_find(shares, blocks, count), given = 0;
  shares_prefetch(shares, words);
  for (uint32_t i = 0; i < words; i++) {
    share_give(owner, &shares[i], given);
    given += shares[i + 1].first - shares[i].first;
    if (i + 1 < words && shares[i + 1].slab == shares[i].slab) continue;
    (void)slab_count_given(owner, shares[i].slab, given);
    given = 0;
  }
  return words;
}

uint32_t batch_give(slab_owner_t *owner, void **blocks, uint32_t count) {
  uint32_t given = 0, words = 0;
  while (given < count && words < GIVE_WORDS) {
    uint32_t together = count - given < GIVE_TOGETHER ? count - given : GIVE_TOGETHER;
    words += give_together(owner, blocks + given, together);
    given += together;
  }
  return given;
}
