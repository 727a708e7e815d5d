/* quarantine.h - where freed blocks of the secure library wait before they are used again.
 *
 * A heap has a ring for each class: a block that is put in takes the place of the one that has waited longest.  They are cleared,
 * not live, and may be of any heap's slabs.  For the heap's own thread, as bins are; a drain (front/drain.h) marks what it wants. */
#ifndef FRONT_QUARANTINE_H
#define FRONT_QUARANTINE_H

#include "front/heap.h"

#define QUARANTINE_MOST 64

/* A ring for each class; what it has no block for is NULL. */
struct quarantine {
  uint64_t random;
  struct {
    uint8_t at, length, seen;
  } rings[CLASS_COUNT];
  bool is_seen; /* with the heap's lock: where the rings are was looked at since blocks were marked */
  void *blocks[CLASS_COUNT][QUARANTINE_MOST];
};

/* Bytes that a heap needs for it, cleared, and what makes them its quarantine. */
size_t quarantine_bytes(void);
void quarantine_init(heap_t *heap, void *memory);
/* Puts a cleared block into quarantine; returns the one whose time is over, or NULL. */
HAK_CHECKED void *quarantine_put(heap_t *heap, void *block, unsigned size_class);
/* The same until none is left: returns NULL then. */
HAK_CHECKED void *quarantine_take(heap_t *heap);
/* Blocks in quarantine; of another thread's heap a guess. */
uint32_t quarantine_waiting(const heap_t *heap, unsigned size_class);
/* The next block that waits, of the ring's places from *place on; NULL at the end. Of another thread's heap a guess. */
void *quarantine_next(const heap_t *heap, unsigned size_class, uint32_t *place);
/* By another thread, with the heap's lock, with a barrier in all threads after each of the first two.  The place that a ring was seen to be
 * at may be in its thread's hands: what is marked elsewhere is nobody's but who takes its mark off. */
bool quarantine_mark(heap_t *heap); /* false: there is nothing */
void quarantine_see(heap_t *heap);
HAK_CHECKED void *quarantine_take_marked(heap_t *heap, unsigned *size_class, uint32_t *place); /* from there on; NULL: no more */
/* A number at random below `count`, which is not 0, and below `most`. */
uint32_t quarantine_choose(heap_t *heap, uint32_t count, uint32_t most);

/* The blocks that wait; with the heap's lock, or its thread. */
HAK_AUDITS(void quarantine_audit(const heap_t *heap);)

#endif
