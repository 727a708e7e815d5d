#include "front/named.h"

#include "front/heaps.h"
#include "front/quarantine.h"
#include "front/repair.h"
#include "front/secure.h"
#include "front/thread.h"
#include "kit/fault.h"
#include "kit/site.h"
#include "os/memcheck.h"
#include "slab/batch.h"
#include "slab/large.h"
#include "slab/remote.h"

/* --- making ------------------------------------------------------------------------------ */

/* Replaces what some report's format could not hold as it is. */
static char name_char(char c) { return c > ' ' && c < 0x7f && c != '"' && c != '\\' ? c : '_'; }

static void set_name(heap_named_t *named, const char *name) {
  size_t i = 0;
  for (; name != NULL && name[i] != '\0' && i + 1 < HEAP_NAME; i++) store_relaxed(&named->name[i], name_char(name[i]));
  for (; i < HEAP_NAME; i++) store_relaxed(&named->name[i], '\0');
}

heap_t *named_new(const char *name) {
  static _Atomic uint32_t made;
  char here; /* its address is the number of no thread, and of no other call */
  heap_t *heap = heaps_take_empty((uintptr_t)&here);
  if (heap == NULL) return NULL;
  heap_lock(heap);
  heap->owner.orphan = false;
  heap_set_thread(heap, OWNER_OF_MANY);
  heap_named_t *named = &heap->named;
  set_name(named, name);
  store_relaxed(&named->tag, NAMED_TAG | atomic_fetch_add_explicit(&made, 1, memory_order_relaxed));
  store_relaxed(&named->limit, 0);
  store_relaxed(&named->peak, 0);
  store_relaxed(&named->allocs, 0);
  store_relaxed(&named->refused, 0);
  named->span_hook = NULL;
  store_relaxed(&named->given, true);
  owner_unlock(&heap->owner);
  heaps_give(heap, HEAP_NAMED);
  return heap;
}

static _Noreturn HAK_COLD void no_heap(const heap_t *heap, const char *function) {
  fault_abort("dead heap", function, heap, "no heap of hak_heap_new, or freed", 0);
}

void named_require(const heap_t *heap, const char *function) {
  if (HAK_UNLIKELY(heap == NULL || !load_relaxed(&heap->named.given))) no_heap(heap, function);
}

/* Like heap_lock, but in a fork's child it is the thread's own heap that stays attached. */
static void lock(heap_t *heap) { heap_lock_as(heap, thread_heap); }

static void named_lock(heap_t *heap, const char *function) {
  named_require(heap, function);
  lock(heap);
  if (HAK_LIKELY(load_relaxed(&heap->named.given))) return;
  owner_unlock(&heap->owner);
  no_heap(heap, function);
}

heap_t *named_of(const unit_t *span) {
  uint8_t kind = load_acquire(&span->kind); /* the owner was written before the kind */
  if (kind != UNIT_SLAB && (kind != UNIT_LARGE || !load_relaxed(&span->owned))) return NULL;
  slab_owner_t *owner = slab_owner(span);
  return owner != NULL && load_relaxed(&heap_of(owner)->named.given) ? heap_of(owner) : NULL;
}

/* --- taking ------------------------------------------------------------------------------ */

static void collect_all(heap_t *heap) {
  remote_collect_all(&heap->owner);
  remote_look_at_all(&heap->owner);
}

static bool fits(const heap_t *heap, uint64_t bytes) {
  uint64_t limit = load_relaxed(&heap->named.limit);
  return limit == 0 || (uint64_t)owner_out_bytes(&heap->owner) + bytes <= limit;
}

static bool fits_once_collected(heap_t *heap, uint64_t bytes) {
  if (HAK_LIKELY(fits(heap, bytes))) return true;
  collect_all(heap);
  return fits(heap, bytes);
}

/* Whether there may be `bytes` more; counts a refusal. */
static bool allows(heap_t *heap, uint64_t bytes) {
  if (HAK_LIKELY(fits_once_collected(heap, bytes))) return true;
  owner_add(&heap->named.refused, 1);
  return false;
}

static void note_peak(heap_t *heap) {
  uint64_t live = (uint64_t)owner_out_bytes(&heap->owner);
  if (live > load_relaxed(&heap->named.peak)) store_relaxed(&heap->named.peak, live);
}

static void note_alloc(heap_t *heap) {
  owner_add(&heap->named.allocs, 1);
  note_peak(heap);
}

static void *take_one(heap_t *heap, unsigned size_class) {
  region_bin_t *bin = &heap_bin(heap, size_class)->shared;
  void *entry = NULL;
  if (HAK_SECURE) {
    void *block = batch_take_among(&heap->owner, size_class, bin, quarantine_choose(heap, BATCH_NUMBERS, BATCH_NUMBERS));
    if (block != NULL) unit_head((uint32_t)region_unit(block))->touched = UINT16_MAX; /* a thread may have the slab later */
    return block;
  }
  return batch_take(&heap->owner, size_class, bin, &entry, 1) == 1 ? entry : NULL;
}

/* A span that blocks are taken from, or the part that it grew by, of which the span hook is to be notified. */
typedef struct notice {
  span_hook_t *hook; /* NULL: nothing */
  void *start;
  size_t bytes;
} notice_t;

/* With the lock: the notice about the block's span. Its units from `grown` on are new in any case. */
static notice_t notice_of(const heap_t *heap, const void *block, uint32_t grown) {
  if (HAK_LIKELY(heap->named.span_hook == NULL)) return (notice_t){NULL, NULL, 0};
  unit_t *first = unit_head((uint32_t)region_unit(block));
  uint32_t units = load_relaxed(&first->units), from = first->notified ? grown : 0;
  if (from >= units) return (notice_t){NULL, NULL, 0};
  first->notified = true;
  return (notice_t){heap->named.span_hook, region_address(unit_number(first) + from), (units - from) * HAK_UNIT};
}

static void notify(heap_t *heap, notice_t notice) {
  if (HAK_UNLIKELY(notice.hook != NULL)) notice.hook(heap, notice.start, notice.bytes);
}

void *named_take(heap_t *heap, unsigned size_class, const char *function, bool *refused) {
  void *entry = NULL;
  notice_t notice = {NULL, NULL, 0};
  named_lock(heap, function);
  if (!load_relaxed(&heap->has_bin[size_class])) heap_add_bin(heap, size_class);
  *refused = !allows(heap, class_info[size_class].size);
  if (!*refused) entry = take_one(heap, size_class);
  if (entry != NULL) {
    note_alloc(heap);
    notice = notice_of(heap, entry_block(entry), UNIT_NONE);
  }
  owner_unlock(&heap->owner);
  notify(heap, notice);
  return entry;
}

/* Makes the new large block the heap's, if the limit allows it; returns whether it does. */
static bool adopt_large(heap_t *heap, unit_t *first) {
  bool allowed = allows(heap, load_relaxed(&first->bytes));
  if (!allowed) return false;
  large_own(&heap->owner, first);
  note_alloc(heap);
  return true;
}

/* The block is made without the lock, since zeroing takes time; the second check of the limit is the one that counts. */
void *named_take_large(heap_t *heap, size_t size, size_t align, span_use_t use, const char *function, bool *refused) {
  named_lock(heap, function);
  *refused = !allows(heap, large_good_size(size));
  owner_unlock(&heap->owner);
  void *block = *refused ? NULL : large_alloc(size, align, use);
  if (block == NULL) return NULL;
  unit_t *first = unit_at((uint32_t)region_unit(block));
  notice_t notice = {NULL, NULL, 0};
  named_lock(heap, function);
  *refused = !adopt_large(heap, first);
  if (!*refused) notice = notice_of(heap, block, UNIT_NONE);
  owner_unlock(&heap->owner);
  notify(heap, notice);
  if (!*refused) return block;
  if (HAK_CHECKS) (void)region_clear_live(block);
  large_free(first);
  return NULL;
}

/* --- large blocks ------------------------------------------------------------------------ */

void named_let_go(unit_t *first) {
  heap_t *heap = heap_of(slab_owner(first));
  lock(heap);
  if (load_relaxed(&first->owned)) large_disown(&heap->owner, first); /* else its heap has ended meanwhile */
  owner_unlock(&heap->owner);
}

bool named_resize_large(unit_t *first, size_t size) {
  heap_t *heap = heap_of(slab_owner(first));
  size_t old = load_relaxed(&first->bytes), bytes = large_good_size(size);
  notice_t notice = {NULL, NULL, 0};
  lock(heap);
  uint32_t units = load_relaxed(&first->units), tag = site_tag;
  bool fits = bytes <= old || fits_once_collected(heap, bytes - old); /* a refusal is counted when the move is tried */
  site_tag = load_relaxed(&heap->named.tag);
  bool resized = bytes != 0 && fits && large_resize(first, size);
  site_tag = tag;
  if (resized) {
    owner_add(&heap->owner.large_bytes, (int64_t)load_relaxed(&first->bytes) - (int64_t)old);
    note_peak(heap);
    notice = notice_of(heap, region_address(unit_number(first)), units);
  }
  owner_unlock(&heap->owner);
  notify(heap, notice);
  return resized;
}

/* --- the end ----------------------------------------------------------------------------- */

/* Releases the lock first: a handler of SIGABRT may allocate. */
static _Noreturn HAK_COLD void lost_bytes(heap_t *heap, void *block, size_t size, const char *function) {
  owner_unlock(&heap->owner);
  fault_abort("overflow", function, block, "bytes behind the block were overwritten", size);
}

static void free_larges(heap_t *heap, const char *function) {
  for (uint32_t unit = heap->owner.large.first; unit != UNIT_NONE;) {
    unit_t *first = unit_at(unit);
    void *block = region_address(unit);
    unit = first->next;
    large_disown(&heap->owner, first);
    if (HAK_CHECKS && !region_clear_live(block)) continue; /* another thread is about to free it */
    if (HAK_SECURE && !large_is_whole(first)) lost_bytes(heap, block, FAULT_LARGE, function);
    if (memcheck_on()) memcheck_free(block);
    first->use = SPAN_PLAIN; /* calloc's pages, too, go back with time: the heap's lock is held */
    large_free(first);
  }
}

typedef struct claimed {
  uint64_t words[HAK_UNIT / HAK_GRANULE / 64]; /* a bit for each block */
} claimed_t;

static void claim(claimed_t *claimed, uint32_t index) { claimed->words[index / 64] |= (uint64_t)1 << index % 64; }

/* Claims a word of the live map at a time; each word is this slab's alone. */
static void claim_live(claimed_t *claimed, const unit_t *slab) {
  unsigned c = load_relaxed(&slab->size_class);
  uint64_t *words = region_live_word(region_address(unit_number(slab)));
  for (size_t i = 0; i < load_relaxed(&slab->units) * (HAK_UNIT / (64 * HAK_GRANULE)); i++) {
    uint64_t live = racy_load(&words[i]);
    if (live == 0) continue;
    live = __atomic_exchange_n(&words[i], 0, __ATOMIC_RELAXED);
    for (; live != 0; live &= live - 1) claim(claimed, class_block_at(c, (i * 64 + bits_lowest64(live)) * HAK_GRANULE));
  }
}

static void claim_sampled(claimed_t *claimed, const unit_t *slab) {
  if (!HAK_SAMPLED || (!slab->sampled && load_relaxed(&slab->tracked) == 0)) return;
  const class_info_t *info = slab_class(slab);
  char *start = region_address(unit_number(slab));
  for (uint32_t i = 0; i < info->blocks; i++) {
    void *block = start + (size_t)i * info->size;
    if (sample_is_live(block) && sample_close(block)) claim(claimed, i);
  }
}

/* Without a live map, whatever is out is the program's, except for what a hole holds: for that the slab stays until the pages have gone. */
static void claim_out(claimed_t *claimed, const unit_t *slab) {
  uint32_t blocks = slab_class(slab)->blocks, unit = unit_number(slab);
  const slab_held_t *held = &slab_owner(slab)->held;
  for (uint32_t word = 0; word * 64 < blocks; word++) {
    uint64_t out = bits_range64(word, 0, blocks - 1);
    if (held->units != 0 && held->unit == unit && word >= held->first / 64 && word <= held->last / 64) {
      out &= ~bits_range64(word, held->first, held->last);
    }
    claimed->words[word] = out & ~load_relaxed(region_bits(region.free_bits, unit, word)) & ~remote_word(unit, word);
  }
}

/* For the claimed blocks, which are free from now on: clears them, or tells memcheck. */
static void wipe(heap_t *heap, const unit_t *slab, const claimed_t *claimed, const char *function) {
  const class_info_t *info = slab_class(slab);
  unsigned c = load_relaxed(&slab->size_class);
  char *start = region_address(unit_number(slab));
  for (uint32_t word = 0; word * 64 < info->blocks; word++) {
    for (uint64_t bits = claimed->words[word]; bits != 0; bits &= bits - 1) {
      char *block = start + (size_t)(word * 64 + bits_lowest64(bits)) * info->size;
      if (HAK_SECURE && !secure_wipe(block, c)) lost_bytes(heap, block, info->size, function);
      if (memcheck_on()) memcheck_free(block);
    }
  }
}

static void free_slab(heap_t *heap, unit_t *slab, const char *function) {
  claimed_t claimed = {{0}};
  uint32_t words = slab_words(slab);
  if (HAK_CHECKS) claim_live(&claimed, slab);
  else claim_out(&claimed, slab);
  claim_sampled(&claimed, slab);
  if (HAK_SECURE || memcheck_on()) wipe(heap, slab, &claimed, function);
  for (uint32_t word = 0; word < words; word++) {
    if (claimed.words[word] != 0 && !slab_give_bits(&heap->owner, slab, word, claimed.words[word])) return; /* the slab has ended */
  }
}

static void free_list(heap_t *heap, const slab_list_t *list, const char *function) {
  for (uint32_t unit = list->first; unit != UNIT_NONE;) {
    unit_t *slab = unit_at(unit);
    unit = slab->next;
    free_slab(heap, slab, function);
  }
}

static void free_all(heap_t *heap, const char *function) {
  slab_owner_t *owner = &heap->owner;
  free_larges(heap, function);
  for (unsigned c = 0; c < CLASS_COUNT; c++) {
    free_list(heap, &owner->partial[c], function);
    free_list(heap, &owner->full[c], function); /* last: what is freed moves a full slab to the other list */
  }
  slab_release_empty(owner);
}

void named_reset(heap_t *heap, const char *function) {
  named_lock(heap, function);
  collect_all(heap);
  free_all(heap, function);
  owner_unlock(&heap->owner);
}

void named_end(heap_t *heap, const char *function) {
  named_lock(heap, function);
  if (load_relaxed(&heap->named.users) != 0) {
    owner_unlock(&heap->owner);
    fault_abort("heap in use", function, heap, "a thread's default heap", 0);
  }
  slab_owner_t *owner = &heap->owner;
  collect_all(heap); /* before it is an orphan, whose slabs may end during the walk */
  store_relaxed(&heap->named.given, false);
  owner->orphan = true;
  heap_set_thread(heap, 0);
  free_all(heap, function);
  bool has_slabs = owner_has_slabs(owner);
  if (!has_slabs) heap_retire_bins(heap); /* under the lock: another thread may be emptying bins that have no thread */
  owner_unlock(owner);
  heaps_end_unattached(heap, has_slabs ? HEAP_ORPHAN : HEAP_BARE);
}

/* --- figures ----------------------------------------------------------------------------- */

static uint64_t slabs_bytes(const slab_owner_t *owner) {
  uint64_t bytes = 0;
  for (unsigned c = 0; c < CLASS_COUNT; c++) bytes += (uint64_t)load_relaxed(&owner->slab_count[c]) * class_info[c].units * HAK_UNIT;
  return bytes;
}

size_t named_collect(heap_t *heap, const char *function) {
  named_lock(heap, function);
  uint64_t before = slabs_bytes(&heap->owner);
  collect_all(heap);
  slab_release_empty(&heap->owner);
  uint64_t given = before - slabs_bytes(&heap->owner);
  owner_unlock(&heap->owner);
  return given;
}

void named_set_limit(heap_t *heap, uint64_t bytes, const char *function) {
  named_lock(heap, function);
  store_relaxed(&heap->named.limit, bytes);
  owner_unlock(&heap->owner);
}

void named_set_span_hook(heap_t *heap, span_hook_t *hook, const char *function) {
  named_lock(heap, function);
  heap->named.span_hook = hook;
  owner_unlock(&heap->owner);
}

static uint64_t blocks_out(const slab_list_t *list) {
  uint64_t out = 0;
  for (uint32_t unit = list->first; unit != UNIT_NONE; unit = unit_at(unit)->next) {
    out += slab_class(unit_at(unit))->blocks - load_relaxed(&unit_at(unit)->free);
  }
  return out;
}

named_figures_t named_count(heap_t *heap, const char *function) {
  named_figures_t figures = {0};
  named_lock(heap, function);
  const slab_owner_t *owner = &heap->owner;
  collect_all(heap);
  for (unsigned c = 0; c < CLASS_COUNT; c++) figures.blocks += blocks_out(&owner->partial[c]) + blocks_out(&owner->full[c]);
  figures.slab_bytes = slabs_bytes(owner);
  const slab_held_t *held = &owner->held;
  if (held->units != 0) figures.blocks -= held->last - held->first + 1;
  figures.live = (uint64_t)owner_out_bytes(owner);
  figures.large_blocks = load_relaxed(&owner->large_blocks);
  figures.large_bytes = (uint64_t)load_relaxed(&owner->large_bytes);
  figures.blocks += figures.large_blocks;
  figures.allocs = load_relaxed(&heap->named.allocs);
  if (figures.allocs < figures.blocks) figures.allocs = figures.blocks; /* a thread that a fork left behind was about to count one */
  owner_unlock(&heap->owner);
  return figures;
}
