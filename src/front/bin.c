#include "front/bin.h"

#include "kit/options.h"
#include "kit/pressure.h"
#include "slab/batch.h"

#define CAPACITY_FIRST 16
/* Of larger blocks, as many as these bytes hold. */
#define CAPACITY_LEAST 8
#define CAPACITY_LEAST_BYTES ((size_t)256 << 10)
#define CAPACITY_MOST 256
#define CAPACITY_ZERO 32 /* of blocks of no bytes, for which every heap has room */
#define RESERVE_BYTES ((size_t)512 << 10)
#define BATCH_FIRST 4
_Static_assert(BATCH_FIRST <= CAPACITY_LEAST && BATCH_FIRST <= CAPACITY_LEAST_BYTES / HAK_SMALL_MAX,
               "a bin of any capacity has room for the first batch");

typedef enum bin_event { BIN_NEW, BIN_REFILLED, BIN_FLUSHED } bin_event_t;

/* Runs at each refill and flush, where the cost of a division would show. */
static intptr_t least_capacity(unsigned c) {
  uint32_t n = class_block_at(c, CAPACITY_LEAST_BYTES);
  return (intptr_t)(n < CAPACITY_LEAST ? n : CAPACITY_LEAST);
}

static intptr_t entries_for(size_t bytes, unsigned c) {
  intptr_t n = (intptr_t)class_block_at(c, bytes), least = least_capacity(c);
  if (c == CLASS_ZERO) return CAPACITY_ZERO;
  return n < least ? least : n > CAPACITY_MOST ? CAPACITY_MOST : n;
}

static intptr_t usual_capacity(unsigned c) {
  intptr_t usual = entries_for((size_t)option_get(OPTION_bin_kb) << 10, c);
  return usual < bin_reserve(c) ? usual : bin_reserve(c);
}

static bool adapts(void) { return option_get(OPTION_bin_adapt) != 0; }

intptr_t bin_reserve(unsigned size_class) { return entries_for(RESERVE_BYTES, size_class); }

void bin_init(bin_t *bin, unsigned size_class, uintptr_t thread) {
  intptr_t usual = usual_capacity(size_class);
  intptr_t capacity = adapts() && usual > CAPACITY_FIRST ? CAPACITY_FIRST : usual;
  bin->shared.size_class = size_class;
  bin->shared.block_size = class_info[size_class].size;
  bin->batch = BATCH_FIRST;
  racy_store(&bin->capacity, capacity); /* a census may read it */
  owner_store(&bin_entries(bin)[-capacity - 1], BIN_END);
  owner_store(&bin->top, -capacity);
  racy_store(&bin->shared.thread, thread);
}

/* --- capacity ---------------------------------------------------------------------------- */

/* Moves the entries, at most `capacity` of them, to where they belong under the new capacity. */
static void bin_resize(bin_t *bin, intptr_t capacity) {
  void **entries = bin_entries(bin);
  intptr_t from = -bin->capacity, to = -capacity;
  intptr_t bottom = from < to ? from : to, count = owner_load(&bin->top) - from;
  owner_store(&entries[bottom - 1], BIN_END); /* first: a fork may come while this thread waits for the page of new entries */
  atomic_signal_fence(memory_order_seq_cst);
  owner_store(&bin->top, bottom); /* empty under either capacity */
  atomic_signal_fence(memory_order_seq_cst);
  racy_store(&bin->capacity, capacity);
  if (to < from) {
    for (intptr_t i = 0; i < count; i++) owner_store(&entries[to + i], owner_load(&entries[from + i]));
  } else {
    for (intptr_t i = count; i-- > 0;) owner_store(&entries[to + i], owner_load(&entries[from + i]));
  }
  owner_store(&entries[to - 1], BIN_END);
  atomic_signal_fence(memory_order_seq_cst);
  owner_store(&bin->top, to + count);
}

/* The bin's thread has met a bar, or is on a slow path anyway: moves the entries that are left down to the bin's bottom, and removes
 * bars. */
static HAK_NOINLINE void bin_settle_barred(bin_t *bin) {
  void **entries = bin_entries(bin);
  intptr_t bottom = -bin->capacity, from = bottom + bin->taken, count = owner_load(&bin->top) - from;
  owner_store(&bin->top, bottom);
  atomic_signal_fence(memory_order_seq_cst);
  for (intptr_t i = 0; i < count; i++) {
    void *entry = owner_load(&entries[from + i]);
    if (entry_is_barred(entry)) {
      void *block = entry_block(entry);
      entry = sample_block_state(block) == SAMPLE_FREE ? entry_sampled(block) : block;
    }
    owner_store(&entries[bottom + i], entry);
  }
  store_relaxed(&bin->gone, 0);
  bin->taken = 0;
  bin->barred = false;
  bin->bar = 0;
  atomic_signal_fence(memory_order_seq_cst);
  owner_store(&bin->top, bottom + count);
}

HAK_INLINE void bin_settle(bin_t *bin) {
  if (HAK_UNLIKELY(bin->barred)) bin_settle_barred(bin);
}

static size_t extra_bytes(const bin_t *bin, intptr_t capacity) {
  intptr_t usual = usual_capacity(bin->shared.size_class);
  return capacity > usual ? (size_t)(capacity - usual) * bin->shared.block_size : 0;
}

static bool bin_change(bin_t *bin, bin_budget_t *budget, intptr_t capacity) {
  size_t extra = budget->extra_bytes - extra_bytes(bin, bin->capacity) + extra_bytes(bin, capacity);
  if (capacity > bin->capacity && extra > budget->extra_bytes && extra > (size_t)option_get(OPTION_bins_extra_kb) << 10) return false;
  budget->extra_bytes = extra;
  owner_add(capacity > bin->capacity ? &budget->grown : &budget->shrunk, 1);
  bin_resize(bin, capacity);
  return true;
}

static void bin_adapt(bin_t *bin, bin_budget_t *budget, bin_event_t event) {
  bool in_turn = bin->last != BIN_NEW && bin->last != event;
  bin->last = (uint8_t)event;
  bin->used = true;
  if (!adapts()) return;
  intptr_t most = in_turn ? bin_reserve(bin->shared.size_class) : usual_capacity(bin->shared.size_class);
  intptr_t capacity = bin->capacity * 2 < most ? bin->capacity * 2 : most;
  if (capacity > bin->capacity && pressure_now() == PRESSURE_NONE) (void)bin_change(bin, budget, capacity);
}

/* --- blocks ------------------------------------------------------------------------------ */

/* Gives up to `count` entries back; returns how many. The oldest leave first, so that the blocks used last stay. The bin looks empty while
 * they are on their way: a fork in between leaks them, but leaves no block in two places. */
static intptr_t bin_give(bin_t *bin, slab_owner_t *owner, intptr_t count) {
  void **entries = bin_entries(bin);
  intptr_t bottom = -bin->capacity;
  intptr_t top = owner_load(&bin->top);
  owner_store(&bin->top, bottom);
  atomic_signal_fence(memory_order_seq_cst);
  count = (intptr_t)batch_give(owner, &entries[bottom], (uint32_t)count);
  owner_move(&entries[bottom], &entries[bottom + count], (size_t)(top - bottom - count));
  atomic_signal_fence(memory_order_seq_cst);
  owner_store(&bin->top, top - count);
  owner_add(&bin->flushes, 1);
  owner_add(&bin->flush_blocks, (uint64_t)count);
  return count;
}

/* If a signal handler frees a block between the push that fills the bin and the flush, it pushes that block over shared.thread. All further
 * blocks of the class that it frees bypass the bin. */
void bin_flush(bin_t *bin, slab_owner_t *owner, bin_budget_t *budget) {
  bin_settle(bin);
  intptr_t top = owner_load(&bin->top);
  if (HAK_LIKELY(top >= 0)) {
    (void)bin_give(bin, owner, (bin->capacity + 1) / 2);
    bin_adapt(bin, budget, BIN_FLUSHED);
  }
  uintptr_t thread = load_relaxed(&owner->thread);
  if (HAK_UNLIKELY(racy_load(&bin->shared.thread) != thread)) racy_store(&bin->shared.thread, thread);
}

void bin_recover(bin_t *bin, slab_owner_t *owner, bin_budget_t *budget) {
  bin_settle(bin);
  intptr_t bottom = -bin->capacity;
  if (owner_load(&bin->top) < bottom) owner_store(&bin->top, bottom);
  owner_store(&bin_entries(bin)[bottom - 1], BIN_END);
  bin_flush(bin, owner, budget);
}

void bin_empty(bin_t *bin, slab_owner_t *owner) {
  bin_settle(bin);
  for (intptr_t count = (intptr_t)bin_count(bin); count > 0;) count -= bin_give(bin, owner, count);
  bin->batch = BATCH_FIRST;
}

void *bin_refill(bin_t *bin, slab_owner_t *owner, bin_budget_t *budget) {
  bin_settle(bin);
  void *left = bin_pop_entry(bin);
  if (HAK_UNLIKELY(left != NULL)) return left;
  bin_adapt(bin, budget, BIN_REFILLED);
  void **entries = bin_entries(bin) - bin->capacity;
  uint32_t count = bin->batch;
  uint32_t taken = batch_take(owner, bin->shared.size_class, &bin->shared, entries, count);
  if (taken == 0) return NULL;
  atomic_signal_fence(memory_order_seq_cst);
  owner_store(&bin->top, (intptr_t)taken - 1 - bin->capacity);
  owner_add(&bin->refills, 1);
  owner_add(&bin->refill_blocks, taken);
  uint32_t most = (uint32_t)bin->capacity / 2;
  bin->batch = count * 2 < most ? count * 2 : most;
  return owner_load(&entries[taken - 1]);
}

/* Marks the entries of sampled blocks that are no longer quiet, so that malloc sees them again. */
static void bin_wake(bin_t *bin, slab_owner_t *owner) {
  void **entries = bin_entries(bin);
  for (intptr_t i = -bin->capacity; i < owner_load(&bin->top); i++) {
    void *entry = owner_load(&entries[i]);
    if (!entry_is_sampled(entry)) owner_store(&entries[i], sample_wake(&owner->sampler, entry));
  }
}

void bin_tick(bin_t *bin, slab_owner_t *owner, bin_budget_t *budget) {
  bin_settle(bin);
  if (HAK_UNLIKELY(load_relaxed(&owner->sampler.quiet) != 0)) bin_wake(bin, owner);
  intptr_t least = least_capacity(bin->shared.size_class);
  if ((!bin->used || pressure_now() >= PRESSURE_NEAR) && adapts() && bin->capacity > least) {
    intptr_t capacity = bin->capacity / 2 > least ? bin->capacity / 2 : least;
    intptr_t surplus = (intptr_t)bin_count(bin) - capacity + 1; /* one entry less: a bin is full only between a push and its flush */
    while (surplus > 0) surplus -= bin_give(bin, owner, surplus);
    (void)bin_change(bin, budget, capacity);
    bin->batch = BATCH_FIRST;
  }
  bin->used = false;
}

/* --- what other threads take ---------------------------------------------------------------- */

/* Sets the bar below what the thread may have in its hands already. In the secure library, where hits read how many entries there are, the
 * bar is that number. */
bool bin_set_bar(bin_t *bin) {
  intptr_t at = racy_load(&bin->top) - 1 - BIN_REACH;
  if (at < bin->taken - bin->capacity) return false;
  void **place = &bin_entries(bin)[at], *entry = racy_load(place);
  if (HAK_SECURE) store_relaxed(&bin->gone, (uint16_t)(at + 1 + bin->capacity));
  else if (!__atomic_compare_exchange_n(place, &entry, entry_barred(entry), false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) return false;
  bin->barred = true;
  bin->bar = (int16_t)at;
  bin->seen = INT16_MIN;
  return true;
}

void bin_see_top(bin_t *bin) { bin->seen = (int16_t)racy_load(&bin->top); }

/* If a fork stops this, the blocks on their way are lost, but none is in two places. */
uint32_t bin_take_below(bin_t *bin, slab_owner_t *owner) {
  void **entries = bin_entries(bin);
  intptr_t at = bin->bar, first = bin->taken - bin->capacity;
  bin->bar = 0;
  if (at == 0 || bin->seen < at + 1 + BIN_REACH || !(HAK_SECURE || entry_is_barred(racy_load(&entries[at])))) {
    store_relaxed(&bin->gone, bin->taken);
    return 0;
  }
  void *last = entry_block(racy_load(&entries[at]));
  bin->taken = (uint16_t)(at + 1 + bin->capacity);
  store_relaxed(&bin->gone, bin->taken);
  atomic_signal_fence(memory_order_seq_cst);
  racy_store(&entries[at], BIN_END);
  for (intptr_t i = first; i < at;) i += (intptr_t)batch_give(owner, &entries[i], (uint32_t)(at - i));
  (void)batch_give(owner, &last, 1);
  owner_add(&bin->flush_blocks, (uint64_t)(at + 1 - first));
  return (uint32_t)(at + 1 - first);
}
