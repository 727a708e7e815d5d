#include "space/split.h"

#include "base/atomics.h"
#include "os/os.h"

#define MAPPINGS_OF_ONE 2

static _Atomic uint32_t split_counts[SPLIT_KINDS];

/* Moves save time alone: they leave guards a quarter of all mappings at least. */
static size_t most(split_t kind) { return os_map_limit() / (kind == SPLIT_MOVE ? 4 : 2) / MAPPINGS_OF_ONE; }

/* Threads that take one at the same moment may exceed it by their number. */
bool split_take(split_t kind) {
  size_t all = 0;
  for (unsigned k = 0; k < SPLIT_KINDS; k++) all += load_relaxed(&split_counts[k]);
  if (all >= most(SPLIT_GUARD) || load_relaxed(&split_counts[kind]) >= most(kind)) return false;
  add_relaxed(&split_counts[kind], 1);
  return true;
}

void split_give(split_t kind) { add_relaxed(&split_counts[kind], (uint32_t)-1); }
