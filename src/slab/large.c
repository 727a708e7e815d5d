#include "slab/large.h"

#include <string.h>

#include "os/os.h"
#include "kit/options.h"
#include "kit/pressure.h"
#include "space/huge.h"
#include "space/ledger.h"
#include "space/move.h"
#include "space/purge.h"
#include "space/span.h"
#include "space/dontfork.h"
#include "slab/large_secure.h"
#include "slab/sample.h"

_Atomic uint64_t large_alloc_count, large_free_count;

/* What a program may use of a block is the same whether it is zeroed or not. */
size_t large_good_size(size_t size) {
  if (size > HAK_REGION_MAX) return 0;
  return !HAK_SECURE && size <= SMALL_REQUEST_MAX ? class_usable(class_of_request(size)) : bits_round_up(size, os_page_size());
}

/* --- zeroed blocks ------------------------------------------------------------------------ */

/* Pages from the kernel are cheaper than clearing a block only where the program writes to few of them.  How many that were shows in what
 * it takes to give them back: a resident page takes 150 to 250 ns of the thread's time, so this is a third to a half of them.  (mincore
 * would tell as well, but a filter of the program's may end the process for that call.)  After a block that was written to more densely, so
 * many others are taken to be alike. */
#define DENSE_NS_PER_PAGE 80
#define DENSE_LEAST ((size_t)16 << 20) /* zero_kb's default; where it is less, less memory is wanted, whatever it takes */
#define DENSE_TRUST 32
static _Atomic uint32_t dense_ahead; /* 0: the last one was not; 1: it was, and the next one will show whether it is so still */
/* Units that dense blocks have left written to when they were freed.  No more than these are cleared: a sparse table must not become
 * resident because other blocks are dense. */
static _Atomic uint32_t dense_units;
#define DENSE_BLOCKS 4 /* of the last one's size */

/* Whether a zeroed block of so many bytes is large enough for the kernel's pages. */
static bool zeroed_by_kernel(size_t bytes) {
  int64_t kb = option_get(OPTION_zero_kb);
  return kb != 0 && bytes >> 10 >= (size_t)kb;
}

/* Gives back the pages of a zeroed block that is being freed, unless such blocks are densely used. */
static void zeroed_end(uint32_t unit, uint32_t units) {
  bool learns = units * HAK_UNIT >= DENSE_LEAST;
  uint32_t ahead = learns ? load_relaxed(&dense_ahead) : 0;
  if (ahead > 1) {
    uint32_t left = load_relaxed(&dense_units) + units;
    store_relaxed(&dense_units, left < DENSE_BLOCKS * units ? left : DENSE_BLOCKS * units);
    store_relaxed(&dense_ahead, ahead - 1);
    return;
  }
  uint64_t start = learns ? os_thread_ns() : 0, dear = units * HAK_UNIT / os_page_size() * DENSE_NS_PER_PAGE;
  if (!purge_span_to_free(unit, units) || !learns) return;
  store_relaxed(&dense_ahead, os_thread_ns() - start >= dear ? DENSE_TRUST + 1 : 0u);
}

/* Whether a zeroed block is to be cleared, since such blocks are densely used. */
static bool dense_take(uint32_t units) {
  uint32_t left = load_relaxed(&dense_units);
  if (left < units) return false;
  store_relaxed(&dense_units, left - units);
  return true;
}

/* In the secure library what lies behind the block's last page is inaccessible, and would not stay so if its unit were mapped anew. */
static void large_clear(uint32_t unit, size_t bytes) {
  uint32_t units = HAK_SECURE ? (uint32_t)(bytes >> HAK_UNIT_SHIFT) : units_of(bytes);
  bool sparse = zeroed_by_kernel(bytes) && (bytes < DENSE_LEAST || !dense_take(units));
  size_t purged = sparse && purge_span(unit, units) ? units * HAK_UNIT : 0;
  if (purged < bytes) memset((char *)region_address(unit) + purged, 0, bytes - purged);
}

static uint32_t large_span(size_t bytes, size_t align, span_use_t use, bool *zero) {
  uint32_t units = units_of(bytes);
  uint64_t align_units = units_of_align(align);
  /* Large blocks start at a huge page where that costs little: what they leave of their last one has no room for another block of their
   * size. */
  uint32_t left = -units % HAK_UNITS_PER_SUPERSLAB;
  if (bytes >= HAK_SUPERSLAB && align_units < HAK_UNITS_PER_SUPERSLAB && left <= units / 8) {
    uint32_t unit = span_alloc(units, HAK_UNITS_PER_SUPERSLAB, use, zero);
    if (unit != SPAN_NONE) return unit;
  }
  return span_alloc(units, align_units, use, zero);
}

/* --- blocks ------------------------------------------------------------------------------ */

/* The block's span is entered: from here on the block is the program's. */
static void *block_begin(uint32_t unit, size_t bytes, size_t size) {
  void *block = region_address(unit);
  if (HAK_CHECKS) region_set_live(block);
  sample_open_large(unit, bytes, size);
  return block;
}

bool large_trim(void) { return HAK_SECURE && large_secure_trim(); }

bool large_may_fit(size_t size, size_t align) {
  size_t bytes = large_good_size(size);
  if (option_get(OPTION_limit_hard) > 0 && units_of(bytes) > ledger_cap()) return false; /* percentages vary with what others use */
  return bytes != 0 && region_may_hold(units_of(bytes), units_of_align(align));
}

/* `size` bytes were requested. */
static void *block_enter(uint32_t unit, size_t bytes, size_t size, span_use_t use) {
  store_relaxed(&unit_at(unit)->bytes, bytes);
  unit_at(unit)->use = (uint8_t)use;
  unit_at(unit)->left = HAK_SECURE ? (uint32_t)(bytes - size) : 0;
  units_enter(unit, units_of(bytes), UNIT_LARGE, CLASS_NONE);
  add_relaxed(&large_alloc_count, 1);
  return block_begin(unit, bytes, size);
}

void large_note_size(void *block, size_t size) {
  unit_t *first = unit_at((uint32_t)region_unit(block));
  if (HAK_SECURE) first->left = (uint32_t)(load_relaxed(&first->bytes) - size);
  else sample_ask_large(unit_number(first), size);
}

void *large_alloc(size_t size, size_t align, span_use_t use) {
  size_t bytes = large_good_size(size);
  if (bytes == 0) return NULL;
  bool zero;
  uint32_t unit = HAK_SECURE ? large_secure_span(bytes, align, use, &zero) : large_span(bytes, align, use, &zero);
  if (unit == SPAN_NONE) return NULL;
  if (use == SPAN_ZEROED && !zero) large_clear(unit, bytes);
  return block_enter(unit, bytes, size, use);
}

void *large_alloc_to_grow(size_t size, span_use_t use, uint32_t home) {
  size_t bytes = large_good_size(size);
  bool zero;
  if (use == SPAN_GROWING && (region_scarce() || pressure_now() != PRESSURE_NONE)) use = SPAN_GROWN; /* any free place will do */
  if (HAK_SECURE || bytes == 0 || (use != SPAN_GROWING && bytes >= HAK_SUPERSLAB)) return large_alloc(size, 1, use);
  uint32_t unit = span_alloc_to_grow(units_of(bytes), use, home, &zero);
  return unit != SPAN_NONE ? block_enter(unit, bytes, size, use) : NULL;
}

void *large_take_cached(large_cache_t *cache, size_t size, span_use_t use) {
  size_t bytes = large_good_size(size);
  uint32_t units = units_of(bytes);
  uint32_t unit = bytes != 0 && units <= LARGE_CACHE_LONGEST ? large_cache_take(cache, units) : SPAN_NONE;
  if (unit == SPAN_NONE) {
    /* Long runs of free units, and runs that are not fresh, come before the cache: it is flushed where the space may have no such run. */
    bool first = (units > LARGE_CACHE_LONGEST && use != SPAN_ZEROED) || ledger_idle_units() < units;
    if (first && cache->bound != 0) (void)large_cache_flush(cache);
    return NULL;
  }
  if (dontfork_seen() && !dontfork_map(region_address(unit), units * HAK_UNIT)) {
    units_leave(unit, units);
    span_free(unit, units);
    return NULL;
  }
  unit_at(unit)->use = (uint8_t)use;
  if (use == SPAN_ZEROED) large_clear(unit, bytes);
  store_relaxed(&unit_at(unit)->bytes, bytes);
  store_release(&unit_at(unit)->kind, (uint8_t)UNIT_LARGE); /* with its bytes */
  owner_add(&cache->takes, 1);
  return block_begin(unit, bytes, size);
}

void large_free(unit_t *first) {
  uint32_t unit = unit_number(first);
  uint32_t units = load_relaxed(&first->units);
  if (HAK_SECURE) {
    units_unadvise(first, units);
    large_secure_free(first);
    add_relaxed(&large_free_count, 1);
    return;
  }
  sample_close_large(unit);
  /* The next calloc would give these pages back: so they need not wait for it. */
  bool fresh = first->use == SPAN_ZEROED && zeroed_by_kernel(load_relaxed(&first->bytes)) && option_get(OPTION_decay_ms) >= 0;
  units_leave(unit, units); /* first: what follows may wait for the kernel, and a fork's child would do it all again */
  add_relaxed(&large_free_count, 1);
  units_unadvise(first, units);
  huge_learn(unit, units);
  if (fresh) zeroed_end(unit, units);
  span_free(unit, units);
}

uint32_t large_put_cached(large_cache_t *cache, unit_t *first, uint32_t most) {
  if (load_relaxed(&first->units) > most || first->notified) return 0;
  sample_close_large(unit_number(first));
  uint32_t units = large_cache_put(cache, first, most);
  if (units != 0) owner_add(&cache->puts, 1);
  return units;
}

void large_move(unit_t *from, void *to) {
  size_t bytes = load_relaxed(&from->bytes);
  uint32_t start = unit_number(from);
  uint32_t moved = HAK_SECURE ? 0 : move_pages(start, (uint32_t)region_unit(to), (uint32_t)(bytes >> HAK_UNIT_SHIFT));
  size_t done = (size_t)moved << HAK_UNIT_SHIFT;
  memcpy((char *)to + done, (char *)region_address(start) + done, bytes - done);
}

bool large_is_before_cached(const unit_t *first) {
  uint32_t behind = unit_number(first) + load_relaxed(&first->units);
  return behind < load_relaxed(&region.units) && load_relaxed(&unit_at(behind)->kind) == UNIT_CACHED;
}

bool large_resize(unit_t *first, size_t size) {
  size_t bytes = large_good_size(size);
  if (size < LARGE_REQUEST_MIN || bytes == 0) return false;
  if (HAK_SECURE) return large_secure_resize(first, bytes, size);
  uint32_t start = unit_number(first);
  uint32_t have = load_relaxed(&first->units);
  uint32_t want = units_of(bytes);
  if (want > have) {
    if (!span_claim(start + have, want - have)) return false;
    units_extend(first, have, want);
  }
  store_relaxed(&first->bytes, bytes); /* while the span has the larger number of units: a census counts no more than these hold */
  if (want < have) {
    units_unadvise(first, have - want);
    store_relaxed(&first->units, want);
    units_leave(start + want, have - want);
    span_free(start + want, have - want);
  }
  sample_resize_large(start, bytes, size);
  return true;
}
