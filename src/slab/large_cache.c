#include "slab/large_cache.h"

#include "kit/fault.h"
#include "space/span.h"

/* A word has the span's units in the upper half; in the lower whether large_cache_age has seen it, and the span's first unit plus 1. */
#define COLD ((uint64_t)1 << 31)
_Static_assert(HAK_REGION_MAX / HAK_UNIT < COLD, "a unit's number leaves room for the flag");

static uint64_t word_of(uint32_t unit, uint32_t units) { return (uint64_t)units << 32 | ((uint64_t)unit + 1); }
static uint32_t word_unit(uint64_t word) { return (uint32_t)(word & (COLD - 1)) - 1; }
static uint32_t word_units(uint64_t word) { return (uint32_t)(word >> 32); }

/* The same word may have gone and come again meanwhile: then it leads to the same span. */
static bool word_change(_Atomic uint64_t *at, uint64_t from, uint64_t to) {
  return atomic_compare_exchange_strong_explicit(at, &from, to, memory_order_acq_rel, memory_order_relaxed);
}

static void span_give(uint64_t word) {
  units_leave(word_unit(word), word_units(word));
  span_free(word_unit(word), word_units(word));
}

/* The span that was put last comes first, then mostly the one that was put before it. */
uint32_t large_cache_take(large_cache_t *cache, uint32_t units) {
  uint32_t row = units % LARGE_CACHE_ROWS, top = cache->top[row];
  for (unsigned i = 1; i <= LARGE_CACHE_WAYS; i++) {
    uint32_t way = (top - i) % LARGE_CACHE_WAYS;
    _Atomic uint64_t *at = &cache->cached_spans[row * LARGE_CACHE_WAYS + way];
    uint64_t word = load_relaxed(at);
    if (word_units(word) != units || !word_change(at, word, 0)) continue;
    cache->bound -= units;
    cache->top[row] = (uint8_t)way;
    return word_unit(word);
  }
  return SPAN_NONE;
}

/* Whether `units` more make no more than `most`. */
static bool has_room(large_cache_t *cache, uint32_t units, uint32_t most) {
  uint32_t released = load_relaxed(&cache->released);
  if (HAK_LIKELY(cache->bound + units <= most)) return true;
  if (cache->counted == released) return false;
  cache->counted = released;
  cache->bound = large_cache_units(cache);
  return cache->bound + units <= most;
}

uint32_t large_cache_put(large_cache_t *cache, unit_t *first, uint32_t most) {
  uint32_t units = load_relaxed(&first->units);
  if (!has_room(cache, units, most)) return 0;
  uint32_t row = units % LARGE_CACHE_ROWS, top = cache->top[row];
  uint32_t bound = cache->bound += units; /* first: a signal handler may take the span as soon as it is there */
  for (unsigned i = 0; i < LARGE_CACHE_WAYS; i++) {
    uint32_t way = (top + i) % LARGE_CACHE_WAYS;
    _Atomic uint64_t *at = &cache->cached_spans[row * LARGE_CACHE_WAYS + way];
    if (load_relaxed(at) != 0) continue;
    store_relaxed(&first->kind, (uint8_t)UNIT_CACHED);
    if (word_change(at, 0, word_of(unit_number(first), units))) {
      cache->top[row] = (uint8_t)(way + 1);
      return bound;
    }
    store_relaxed(&first->kind, (uint8_t)UNIT_LARGE); /* a signal handler has taken the room */
  }
  cache->bound -= units;
  return 0;
}

bool large_cache_flush(large_cache_t *cache) {
  bool any = false;
  for (unsigned i = 0; i < LARGE_CACHE_MOST; i++) {
    uint64_t word = load_relaxed(&cache->cached_spans[i]);
    if (word == 0 || !word_change(&cache->cached_spans[i], word, 0)) continue;
    span_give(word);
    any = true;
  }
  if (any) add_relaxed(&cache->released, 1);
  return any;
}

uint32_t large_cache_age(large_cache_t *cache) {
  uint32_t given = 0;
  for (unsigned i = 0; i < LARGE_CACHE_MOST; i++) {
    uint64_t word = load_relaxed(&cache->cached_spans[i]);
    if (word == 0 || !word_change(&cache->cached_spans[i], word, (word & COLD) != 0 ? 0 : word | COLD)) continue;
    if ((word & COLD) == 0) continue;
    span_give(word);
    given += word_units(word);
  }
  add_relaxed(&cache->released, 1);
  return given;
}

uint32_t large_cache_units(const large_cache_t *cache) {
  uint32_t units = 0;
  for (unsigned i = 0; i < LARGE_CACHE_MOST; i++) units += word_units(load_relaxed(&cache->cached_spans[i]));
  return units;
}

HAK_COLD void large_cache_forget(large_cache_t *cache) {
  for (unsigned i = 0; i < LARGE_CACHE_MOST; i++) store_relaxed(&cache->cached_spans[i], 0);
  cache->bound = 0;
}

HAK_AUDITED void large_cache_audit_alone(const large_cache_t *cache) {
  for (unsigned i = 0; i < LARGE_CACHE_MOST; i++) {
    uint64_t word = load_relaxed(&cache->cached_spans[i]);
    if (word == 0) continue;
    const unit_t *first = unit_at(word_unit(word));
    bool known = load_relaxed(&first->kind) == UNIT_CACHED && load_relaxed(&first->units) == word_units(word);
    AUDIT(known || load_relaxed(&cache->cached_spans[i]) != word, region_address(word_unit(word)),
          "what a thread caches is no span of that kind");
  }
}
