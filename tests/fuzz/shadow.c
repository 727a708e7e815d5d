#include "shadow.h"

#include <string.h>

#include "front/census.h"
#include "front/heaps.h"
#include "front/inspect.h"
#include "fuzz.h"
#include "slab/large.h"
#include "slab/slots.h"

shadow_t shadows[SHADOWS];
static uint32_t marks;
static size_t bytes_held;

unsigned shadow_next(unsigned from) {
  for (unsigned n = 0; n < SHADOWS; n++) {
    unsigned i = (from + n) % SHADOWS;
    if (shadows[i].block != NULL) return i;
  }
  return SHADOWS;
}

size_t shadow_bytes(void) { return bytes_held; }

/* --- content ----------------------------------------------------------------------------- */

enum { PAGE = 4096, AT_PAGE = 64 };

/* The next filled word after the one at `at`. */
static size_t word_after(size_t at, size_t usable) {
  at += 8;
  if (usable <= SHADOW_FULL || at % PAGE < AT_PAGE || at >= usable - AT_PAGE) return at;
  size_t page = (at + PAGE - 1) / PAGE * PAGE, end = (usable - AT_PAGE) & ~(size_t)7;
  return page < end ? page : end;
}

static uint64_t word_of(uint32_t mark, size_t at) { return (at + 1) * UINT64_C(0x9e3779b97f4a7c15) ^ mark * UINT64_C(0x100000001b3); }

static void fill(const shadow_t *s) {
  for (size_t at = 0; at < s->usable; at = word_after(at, s->usable)) {
    uint64_t word = word_of(s->mark, at);
    memcpy(s->block + at, &word, s->usable - at < 8 ? s->usable - at : 8);
  }
}

void shadow_check_moved(const shadow_t *before, const unsigned char *block, size_t bytes) {
  for (size_t at = 0; at < bytes; at = word_after(at, before->usable)) {
    uint64_t word = word_of(before->mark, at);
    if (memcmp(block + at, &word, bytes - at < 8 ? bytes - at : 8) != 0) {
      fuzz_fail(__FILE__, __LINE__, "byte %zu of %p, %zu bytes, is not what was written there", at, (const void *)block, before->size);
    }
  }
}

void shadow_check(unsigned i) {
  const shadow_t *s = &shadows[i];
  if (s->block == NULL) return;
  shadow_check_moved(s, s->block, s->usable);
  if (s->usable > 0) FUZZ_EQ(hak_malloc_usable_size(s->block), s->usable);
}

void shadow_check_all(void) {
  for (unsigned i = 0; i < SHADOWS; i++) shadow_check(i);
}

void shadow_check_zero(const unsigned char *block, size_t bytes) {
  for (size_t at = 0; at < bytes; at = word_after(at, bytes)) {
    static const unsigned char zero[8];
    if (memcmp(block + at, zero, bytes - at < 8 ? bytes - at : 8) != 0) {
      fuzz_fail(__FILE__, __LINE__, "byte %zu of %zu at %p is not 0", at, bytes, (const void *)block);
    }
  }
}

/* --- entries ----------------------------------------------------------------------------- */

static void check_alone(const unsigned char *block, size_t usable) {
  size_t bytes = usable > 0 ? usable : 1;
  for (unsigned i = 0; i < SHADOWS; i++) {
    const shadow_t *other = &shadows[i];
    if (other->block == NULL || block >= other->block + (other->usable > 0 ? other->usable : 1) || other->block >= block + bytes) continue;
    fuzz_fail(__FILE__, __LINE__, "%zu bytes at %p overlap %zu at %p", usable, (const void *)block, other->usable, (void *)other->block);
  }
}

void shadow_enter(unsigned i, void *block, size_t size) {
  shadow_t *s = &shadows[i];
  FUZZ_CHECK(s->block == NULL && (uintptr_t)block % HAK_GRANULE == 0);
  size_t usable = hak_malloc_usable_size(block);
  FUZZ_CHECK(usable >= size);
  check_alone(block, usable);
  FUZZ_CHECK(slab_block_is_live(block));
  *s = (shadow_t){block, size, usable, ++marks};
  bytes_held += usable;
  fill(s);
}

void shadow_forget(unsigned i) {
  bytes_held -= shadows[i].usable;
  shadows[i].block = NULL;
}

void *shadow_leave(unsigned i) {
  void *block = shadows[i].block;
  shadow_check(i);
  shadow_forget(i);
  return block;
}

/* --- the allocator's account ------------------------------------------------------------- */

/* A region of more units is not scanned. */
#define LOOK_MOST 8192u

/* Blocks of a tracked slab that are live by their records. */
static uint64_t live_tracked(uint32_t unit) {
  const unit_t *slab = unit_at(unit);
  uintptr_t tracked = load_relaxed(&slab->tracked);
  uint64_t live = 0;
  if (load_relaxed(&slab->kind) != UNIT_SLAB || tracked == 0) return 0;
  for (uint32_t i = 0; i < class_info[load_relaxed(&slab->size_class)].blocks; i++) {
    live += track_state(load_relaxed(track_at(tracked, i))) == TRACK_LIVE;
  }
  return live;
}

static void check_live_map(uint64_t held) {
  uint32_t units = load_relaxed(&region.units);
  if (region.base == 0 || units > LOOK_MOST) return;
  uint64_t live = 0;
  const uint64_t *words = region_live_word(region_address(0));
  for (size_t i = 0; i < (size_t)units * (HAK_UNIT / 1024); i++) live += bits_count64(words[i]);
  for (uint32_t unit = 0; unit < units; unit++) { /* a sampled block has its live bit clear, but a large one has it set */
    bool in_slab = load_relaxed(&unit_head(unit)->kind) == UNIT_SLAB;
    live += in_slab && HAK_SAMPLED && sample_state(sample_of(unit)) == SAMPLE_LIVE;
    live += live_tracked(unit);
  }
  FUZZ_EQ(live, held);
}

/* A bin is full only between a push and its flush, and takes frees only from its heap's thread. */
static void check_bins(void) {
  for (heap_t *heap = heap_first(); heap != NULL; heap = load_relaxed(&heap->next)) {
    for (unsigned c = 0; c < CLASS_COUNT; c++) {
      if (!heap->has_bin[c]) continue;
      const bin_t *bin = heap_bin(heap, c);
      FUZZ_CHECK(bin->top < 0 && bin->top >= -bin->capacity && bin->capacity <= bin_reserve(c));
      FUZZ_EQ(bin->shared.thread, load_relaxed(&heap->owner.thread));
    }
  }
}

/* In the secure library the requested size does not determine the class: an alignment may have required a larger one. */
unsigned shadow_class(const shadow_t *s) {
  if (HAK_SECURE) return load_relaxed(&unit_head((uint32_t)region_unit(s->block))->size_class);
  return s->usable == 0 ? CLASS_ZERO : class_of(s->usable);
}

bool shadow_is_large(const shadow_t *s) { return load_relaxed(&unit_head((uint32_t)region_unit(s->block))->kind) == UNIT_LARGE; }

void shadow_census(void) {
  check_bins();
  hak_stats_t stats;
  hak_class_stats_t of_class[CLASS_COUNT];
  uint64_t held[CLASS_COUNT] = {0}, held_in_all = 0, spans = 0, bytes = 0;
  for (unsigned i = 0; i < SHADOWS; i++) {
    const shadow_t *s = &shadows[i];
    if (s->block == NULL) continue;
    held_in_all++;
    if (slots_hold(s->block)) continue;
    if (shadow_is_large(s)) {
      spans++;
      bytes += HAK_SECURE ? bits_round_up(large_request(s->usable), os_page_size()) : s->usable;
    } else {
      held[shadow_class(s)]++;
    }
  }
  census_take(&stats, of_class);
  for (unsigned c = 0; c < CLASS_COUNT; c++) {
    if (of_class[c].live_blocks != held[c]) {
      fuzz_fail(__FILE__, __LINE__, "%llu blocks of class %u are live, not %llu", (unsigned long long)of_class[c].live_blocks, c,
                (unsigned long long)held[c]);
    }
    bytes += c == CLASS_ZERO ? 0 : held[c] * class_info[c].size;
  }
  FUZZ_EQ(stats.large_blocks, spans);
  FUZZ_EQ(stats.live, bytes);
  check_live_map(held_in_all);
}

static uint64_t units_of_kind(unit_kind_t kind) {
  uint64_t units = 0;
  for (uint32_t unit = 0; unit < load_relaxed(&region.units); unit++) {
    if (load_relaxed(&unit_at(unit)->kind) == kind) units += load_relaxed(&unit_at(unit)->units);
  }
  return units;
}

static uint64_t units_mapped(void) {
  uint64_t units = 0;
  for (uint32_t s = 0; s < region_superslabs(); s++) units += bits_count32(load_relaxed(&region.superslabs[s].mapped));
  return units;
}

void shadow_nothing_is_lost(bool refused) {
  (void)hak_collect(true);
  if (region.base == 0) return;
  hak_stats_t stats;
  census_take(&stats, NULL);
  FUZZ_EQ(stats.live, 0);
  FUZZ_EQ(stats.cached, 0);
  FUZZ_EQ(stats.remote, 0);
  FUZZ_EQ(stats.slabs, 0);
  FUZZ_EQ(stats.large_blocks, 0);
  FUZZ_EQ(stats.purge_pending, 0);
  FUZZ_EQ(stats.heaps, stats.heaps_orphaned);
  uint64_t ours = units_of_kind(UNIT_META) + units_of_kind(UNIT_SLOTS) + (refused ? units_of_kind(UNIT_GUARD) : 0);
  FUZZ_EQ(stats.span_free, (units_mapped() - ours) * HAK_UNIT);
  check_live_map(0);
}
