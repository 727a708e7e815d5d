#include "slab/track.h"

#include "kit/meta.h"
#include "kit/random.h"

/* Each chunk is a mapping, touched where it is used: first the address of the chunk before, then, from the next cache line on, records. */
#define RECORD_BYTES HAK_UNIT
_Static_assert(TRACK_CHUNK_BYTES == HAK_CACHE_LINE + RECORD_BYTES, "a chunk has its line and its records");
_Static_assert(sizeof(track_t) << TRACK_ORDER_LEAST == HAK_CACHE_LINE, "records begin at a multiple of a cache line");
_Static_assert((size_t)1 << TRACK_ORDER_MOST == HAK_UNIT / HAK_GRANULE, "there is room for a slab of the smallest blocks");
_Static_assert(sizeof(track_t) << TRACK_ORDER_MOST <= RECORD_BYTES, "a chunk has room for the most records");

uint32_t track_every;
_Atomic uintptr_t track_chunks;

void track_start(uint32_t every) { track_every = every; }

/* --- memory for records ------------------------------------------------------------------ */

static uintptr_t records_used(track_store_t *store, unsigned order) {
  uintptr_t records = store->free[order];
  if (records == 0) return 0;
  store->free[order] = (uintptr_t)load_relaxed(track_at(records, 0));
  for (uint32_t i = 0; i < (uint32_t)1 << order; i++) store_relaxed(track_at(records | order, i), 0);
  return records;
}

/* Returns where the chunk's records begin; 0 if there is no memory. */
static uintptr_t chunk_new(void) {
  uintptr_t chunk = (uintptr_t)meta_alloc(TRACK_CHUNK_BYTES), before = load_relaxed(&track_chunks);
  if (chunk == 0) return 0;
  do store_relaxed((_Atomic uintptr_t *)chunk, before);
  while (!atomic_compare_exchange_weak_explicit(&track_chunks, &before, chunk, memory_order_relaxed, memory_order_relaxed));
  return chunk + HAK_CACHE_LINE;
}

static uintptr_t records_new(track_store_t *store, unsigned order) {
  size_t bytes = sizeof(track_t) << order;
  if (store->end - store->next < bytes) {
    uintptr_t first = chunk_new();
    if (first == 0) return 0;
    store->next = first;
    store->end = first + RECORD_BYTES;
  }
  uintptr_t records = store->next;
  store->next = records + bytes;
  return records;
}

static void records_give(track_store_t *store, uintptr_t records, unsigned order) {
  store_relaxed(track_at(records, 0), store->free[order]);
  store->free[order] = records;
}

/* --- slabs ------------------------------------------------------------------------------- */

static unsigned order_of(uint32_t blocks) {
  unsigned order = TRACK_ORDER_LEAST;
  while ((uint32_t)1 << order < blocks) order++;
  return order;
}

void track_choose(track_store_t *store, uint64_t *random, unit_t *slab) {
  uint32_t every = track_every;
  if (every == 0) return;
  const class_info_t *info = &class_info[load_relaxed(&slab->size_class)];
  if (info->size == HAK_GRANULE && every > 1) every *= 2;
  if (random_below(random, every) != 0) return;
  unsigned order = order_of(info->blocks);
  uintptr_t records = records_used(store, order);
  if (records == 0) records = records_new(store, order);
  if (records != 0) store_release(&slab->tracked, records | order);
}

uint32_t track_forget(track_store_t *store, unit_t *slab) {
  uintptr_t tracked = load_relaxed(&slab->tracked);
  uint32_t quiet = 0;
  if (tracked == 0) return 0;
  uint32_t blocks = class_info[load_relaxed(&slab->size_class)].blocks;
  for (uint32_t i = 0; i < blocks; i++) quiet += track_state(load_relaxed(track_at(tracked, i))) == TRACK_QUIET;
  store_release(&slab->tracked, 0);
  records_give(store, tracked & ~TRACK_ORDER_MASK, (unsigned)(tracked & TRACK_ORDER_MASK));
  return quiet;
}
