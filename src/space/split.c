#include "space/split.h"

#include "base/atomics.h"
#include "os/os.h"

#define MAPPINGS_OF_ONE 2

static _Atomic uint32_t split_counts[SPLIT_KINDS];

/* Threads that take one at the same moment may exceed the limit by their number. */
bool split_take(split_t kind) {
  size_t most = os_map_limit() / 2 / MAPPINGS_OF_ONE, guards = load_relaxed(&split_counts[SPLIT_GUARD]);
  size_t others = load_relaxed(&split_counts[SPLIT_MOVE]) + load_relaxed(&split_counts[SPLIT_HUGE]);
  if (guards + others >= most) return false;
  if (kind != SPLIT_GUARD && others >= most / 2) return false; /* these only save time: they leave at least half to guards */
  split_add(kind);
  return true;
}

void split_add(split_t kind) { add_relaxed(&split_counts[kind], 1); }

/* Not below 0, where one was miscounted (huge.c). */
void split_give(split_t kind) {
  uint32_t count = load_relaxed(&split_counts[kind]);
  while (count > 0 &&
         !atomic_compare_exchange_weak_explicit(&split_counts[kind], &count, count - 1, memory_order_relaxed, memory_order_relaxed)) {
  }
}

void split_set(split_t kind, uint32_t count) { store_relaxed(&split_counts[kind], count); }
