/* census.h - the statistics of the heap, from a walk over slab records and bins.
 * The walk takes no lock: while other threads run, each figure is right for some moment of the walk. */
#ifndef FRONT_CENSUS_H
#define FRONT_CENSUS_H

#include "hakmem/hakmem.h"
#include "front/heap.h"

/* Fills all but the [os] figures; struct_size becomes that of a whole hak_stats_t. `of_class`, if not NULL, has hak_stats_t.classes
 * entries. */
void census_take(hak_stats_t *stats, hak_class_stats_t *of_class);
/* The bytes of all large blocks: what is live and not in a size class. */
uint64_t large_bytes(const hak_stats_t *stats, const hak_class_stats_t *of_class);
/* The heap with this number, counted from 0, newest first. Returns false if there are not that many. */
bool census_heap(uint32_t number, hak_heap_stats_t *stats);
/* Walks over the same heaps: the one after *at, which is NULL before the first. Returns false at the end. */
bool census_next_heap(const heap_t **at, hak_heap_stats_t *stats);

/* What can be read of a named heap without its lock. Blocks that were freed and are not collected yet count as live. */
typedef struct census_named {
  char name[HEAP_NAME];
  uint32_t tag;
  uint64_t limit, live, peak, slab_bytes, large_bytes, large_blocks, allocs, refused;
} census_named_t;
/* The next named heap after *at, newest first; *at is NULL before the first. Returns false at the end. */
bool census_next_named(const heap_t **at, census_named_t *named);
/* The name of the named heap with this tag, if a live block of the span is from it; false if it is not. */
bool census_name(const unit_t *span, uint32_t tag, char name[HEAP_NAME]);

#endif
