#include "slab/slots.h"

#include <string.h>

#include "os/memcheck.h"
#include "os/os.h"
#include "os/trace.h"
#include "kit/fault.h"
#include "kit/meta.h"
#include "kit/options.h"
#include "kit/random.h"
#include "space/ledger.h"
#include "space/span.h"
#include "space/split.h"
#include "space/dontfork.h"

#define FILL 0xa5 /* the page's bytes that are not the block's */

typedef enum slot_state { SLOT_UNUSED, SLOT_CHANGING, SLOT_LIVE, SLOT_FREED } slot_state_t;

typedef struct slot {
  _Atomic uint32_t state;
  uint32_t size;
  uint32_t place; /* of the block on its page, no address: a leak checker must not find pointers of ours */
  trace_t allocated, freed; /* `allocated` has no depth before the first block */
} slot_t;

typedef enum pool_state { POOL_NONE, POOL_UNDER_WAY, POOL_MADE } pool_state_t;

/* Made with the first slot; never given back. Page 2i + 1 is slot i's, the others are always inaccessible. */
static struct {
  slot_t *_Atomic slots; /* published after the next three, and before any unit is of kind UNIT_SLOTS */
  uint32_t count;
  char *start;
  size_t page;
  bool splits; /* an accessible page makes two mappings more */
  _Atomic uint32_t state; /* from POOL_MADE on a block of a slot can be freed */
  _Atomic uint32_t next;
  _Atomic uint64_t random;
} pool;

/* Unit by unit: in a larger range no single page could be made accessible. */
static bool pool_guard(uint32_t unit, uint32_t units) {
  for (uint32_t i = 0; i < units; i++) {
    os_guard_t guard = os_guard(region_address(unit + i), HAK_UNIT, true);
    if (guard == OS_OPEN) return false;
    pool.splits |= guard == OS_SPLIT;
  }
  return true;
}

static bool pool_make(void) {
  uint32_t none = POOL_NONE;
  if (load_acquire(&pool.state) == POOL_MADE) return true;
  if (!atomic_compare_exchange_strong_explicit(&pool.state, &none, (uint32_t)POOL_UNDER_WAY, memory_order_relaxed, memory_order_relaxed)) {
    return false;
  }
  uint32_t count = (uint32_t)option_get(OPTION_guard_slots);
  size_t bytes = (2 * (size_t)count + 1) * os_page_size();
  uint32_t units = units_of(bytes);
  slot_t *slots = meta_alloc(count * sizeof *slots);
  bool zero;
  /* Whatever is missing, one try is enough: the program runs as well without slots. */
  uint32_t unit = slots == NULL ? SPAN_NONE : span_alloc(units, 1, SPAN_SLAB, &zero);
  if (unit == SPAN_NONE) return false;
  unit_at(unit)->guard = OS_LIGHT; /* for the account of splits, in which its pages are counted one by one */
  units_enter_guard(unit, units);
  ledger_note_guards((int64_t)units);
  if (!pool_guard(unit, units)) {
    units_unguard(unit, units);
    return false;
  }
  pool.count = count;
  pool.start = region_address(unit);
  pool.page = os_page_size();
  store_relaxed(&pool.random, os_random());
  store_release(&pool.slots, slots);
  units_enter(unit, units, UNIT_SLOTS, CLASS_NONE);
  store_release(&pool.state, (uint32_t)POOL_MADE);
  return true;
}

static char *slot_page(uint32_t i) { return pool.start + (2 * (size_t)i + 1) * pool.page; }

/* The slot on whose page p lies, or the nearer one if p is between two. */
static uint32_t slot_index(const void *p) {
  size_t offset = (size_t)((const char *)p - pool.start);
  size_t half = (offset + pool.page / 2) / pool.page; /* pages, rounded to the nearer border */
  uint32_t i = half == 0 ? 0 : (uint32_t)((half - 1) / 2);
  return i < pool.count ? i : pool.count - 1;
}

static slot_t *slot_at(const void *p) { return &load_relaxed(&pool.slots)[slot_index(p)]; }

HAK_COLD void *slot_start(const void *p) {
  const slot_t *slot = slot_at(p);
  return slot->allocated.depth == 0 ? NULL : slot_page(slot_index(p)) + slot->place;
}

/* Claims a slot that is not in use, nearly the one that has waited longest. */
static slot_t *slot_claim(uint32_t *index) {
  slot_t *slots = load_relaxed(&pool.slots);
  for (uint32_t tries = 0; tries < pool.count; tries++) {
    *index = atomic_fetch_add_explicit(&pool.next, 1, memory_order_relaxed) % pool.count;
    slot_t *slot = &slots[*index];
    uint32_t state = load_relaxed(&slot->state);
    if (state != SLOT_UNUSED && state != SLOT_FREED) continue;
    if (atomic_compare_exchange_strong(&slot->state, &state, (uint32_t)SLOT_CHANGING)) return slot;
  }
  return NULL;
}

static bool at_page_end(void) {
  uint64_t state = atomic_fetch_add_explicit(&pool.random, RANDOM_STEP, memory_order_relaxed);
  return random_mix(state) % 4 != 0;
}

/* Blocks start at a multiple of the largest power of two that divides their size, so at any alignment that the size's class promises. */
static size_t start_from_end(size_t size, size_t page) {
  size_t align = size & (0 - size);
  if (align < HAK_GRANULE) align = HAK_GRANULE;
  return (page - size) & ~(align - 1);
}

static bool page_open(char *page) {
  if (pool.splits && !split_take(SPLIT_GUARD)) return false;
  if (os_unguard(page, pool.page)) return true;
  if (pool.splits) split_give(SPLIT_GUARD);
  return false;
}

static void page_close(char *page) {
  (void)os_guard(page, pool.page, true);
  if (pool.splits) split_give(SPLIT_GUARD);
}

HAK_COLD void *slot_alloc(size_t size) {
  uint32_t index;
  if (size > os_page_size() || !trace_ready() || !pool_make()) return NULL;
  slot_t *slot = slot_claim(&index);
  if (slot == NULL) return NULL;
  char *page = slot_page(index);
  if (!page_open(page)) {
    store_release(&slot->state, (uint32_t)SLOT_FREED);
    return NULL;
  }
  size_t place = at_page_end() ? start_from_end(size, pool.page) : 0;
  memcheck_open(page, pool.page);
  memset(page, FILL, place);
  memset(page + place, 0, size);
  memset(page + place + size, FILL, pool.page - place - size);
  memcheck_hide(page, pool.page);
  slot->size = (uint32_t)size;
  slot->place = (uint32_t)place;
  slot->freed.depth = 0;
  trace_take(&slot->allocated);
  region_set_live(page + place);
  store_release(&slot->state, (uint32_t)SLOT_LIVE);
  return page + place;
}

static bool is_filled(const char *from, const char *to) {
  return from == to || (*from == (char)FILL && memcmp(from, from + 1, (size_t)(to - from) - 1) == 0);
}

HAK_COLD void slot_free(void *block, const char *function) {
  slot_t *slot = slot_at(block);
  char *page = slot_page(slot_index(block)), *start = block;
  store_relaxed(&slot->state, (uint32_t)SLOT_CHANGING);
  trace_take(&slot->freed);
  memcheck_open(page, pool.page);
  bool lost = dontfork_seen() && !dontfork_is_mapped(page, pool.page) && dontfork_map(page, pool.page);
  bool before = lost || is_filled(page, start), behind = lost || is_filled(start + slot->size, page + pool.page);
  memcheck_hide(page, pool.page);
  if (!before || !behind) {
    fault_line(before ? "overflow" : "underflow", function, block, "bytes beside the block were overwritten", FAULT_GUARDED);
    slot_abort(block);
  }
  page_close(page);
  store_release(&slot->state, (uint32_t)SLOT_FREED);
}

HAK_COLD bool slots_hold(const void *p) {
  return load_acquire(&pool.slots) != NULL && (const char *)p >= pool.start &&
         (size_t)((const char *)p - pool.start) < (2 * (size_t)pool.count + 1) * pool.page;
}

HAK_COLD size_t slot_usable(const void *p) { return slot_at(p)->size; }

/* While no other thread is inside, no slot is between two states. */
HAK_COLD HAK_AUDITED void slots_audit_alone(void) {
  const slot_t *slots = load_relaxed(&pool.slots);
  for (uint32_t i = 0; slots != NULL && i < pool.count; i++) {
    uint32_t state = load_relaxed(&slots[i].state);
    const char *block = slot_page(i) + slots[i].place;
    bool was = state == SLOT_LIVE || (state == SLOT_FREED && slots[i].size > 0);
    AUDIT(state <= SLOT_FREED && state != SLOT_CHANGING, block, "a guard slot is left in a change");
    AUDIT(!was || (size_t)slots[i].place + slots[i].size <= pool.page, block, "a guarded block leaves its page");
    AUDIT(!HAK_CHECKS || region_is_live(block) == (state == SLOT_LIVE), block, "a guard slot is live and its block is not, or the reverse");
  }
}

/* --- words ------------------------------------------------------------------------------- */

HAK_COLD void slot_describe(format_t *f, const void *p) {
  const slot_t *slot = slot_at(p);
  const char *start = slot_start(p), *at = p;
  if (start == NULL) {
    format_text(f, "a guard slot that was never used");
    return;
  }
  if (at < start) {
    format_bytes(f, (uint64_t)(start - at));
    format_text(f, " before ");
  } else if (at >= start + slot->size) {
    format_bytes(f, (uint64_t)(at - start) - slot->size + 1);
    format_text(f, " past the end of ");
  } else {
    format_text(f, "byte ");
    format_unsigned(f, (uint64_t)(at - start));
    format_text(f, " of ");
  }
  bool freed = slot->freed.depth > 0 || load_relaxed(&slot->state) == SLOT_FREED;
  format_text(f, freed ? "freed block " : "live block ");
  format_hex(f, (uint64_t)(uintptr_t)start);
  format_text(f, " of ");
  format_bytes(f, slot->size);
  format_text(f, ", in a guard slot");
}

HAK_COLD void slot_print(const void *p) {
  const slot_t *slot = slot_at(p);
  if (slot->allocated.depth == 0) return;
  trace_print("allocated", &slot->allocated);
  if (slot->freed.depth > 0) trace_print("freed", &slot->freed);
}

HAK_COLD _Noreturn void slot_abort(const void *block) {
  trace_take(&slot_at(block)->freed);
  slot_print(block);
  os_abort();
}
