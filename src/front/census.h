/* census.h - what the heap holds, by a walk over slab records and bins.
 * Takes no lock: under way, each figure is right for some moment of the walk. */
#ifndef FRONT_CENSUS_H
#define FRONT_CENSUS_H

#include "hakmem/hakmem.h"
#include "front/heap.h"

/* Fills all but the [os] figures and struct_size; `of_class`, if not NULL, has hak_stats_t.classes entries. */
void census_take(hak_stats_t *stats, hak_class_stats_t *of_class);
/* One heap, by its number from 0, newest first; false if there are not so many. */
bool census_heap(uint32_t number, hak_heap_stats_t *stats);
/* All of them in turn: the one after *at, which is NULL before the first; false at the end. */
bool census_next_heap(const heap_t **at, hak_heap_stats_t *stats);

/* Of a named heap what can be read without its lock; blocks that were freed and are not brought in are live. */
typedef struct census_named {
  char name[HEAP_NAME];
  uint32_t tag;
  uint64_t limit, live, peak, slab_bytes, large_bytes, large_blocks, allocs, refused;
} census_named_t;
/* The next named heap after *at, newest first, which is NULL before the first; false at the end. */
bool census_next_named(const heap_t **at, census_named_t *named);

#endif
