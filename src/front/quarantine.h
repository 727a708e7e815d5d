/* quarantine.h - where freed blocks of the secure library wait before they are used again.
 *
 * A heap has a ring for each class: a block that is put in takes the place of the one that has waited longest.  Blocks in quarantine are
 * cleared and not live, and may be from any heap's slabs.  As with bins, only the heap's thread touches the rings, except that a drain
 * (front/drain.h) marks blocks and takes them. */
#ifndef FRONT_QUARANTINE_H
#define FRONT_QUARANTINE_H

#include "front/heap.h"

#define QUARANTINE_MOST 64

/* A ring for each class; a place without a block is NULL. */
struct quarantine {
  uint64_t random;
  struct {
    uint8_t at, length, seen;
  } rings[CLASS_COUNT];
  bool is_seen; /* with the heap's lock: the rings' positions were read since blocks were marked */
  void *blocks[CLASS_COUNT][QUARANTINE_MOST];
};

/* The bytes that a heap needs for its quarantine, zeroed; and the call that makes them its quarantine. */
size_t quarantine_bytes(void);
void quarantine_init(heap_t *heap, void *memory);
/* Puts a cleared block into quarantine; returns the block that leaves it, or NULL. */
HAK_CHECKED void *quarantine_put(heap_t *heap, void *block, unsigned size_class);
/* Takes a block out; returns NULL when none is left. */
HAK_CHECKED void *quarantine_take(heap_t *heap);
/* How many blocks are in quarantine; an estimate for another thread's heap. */
uint32_t quarantine_waiting(const heap_t *heap, unsigned size_class);
/* The next block in the ring's places from *place on; NULL at the end. An estimate for another thread's heap. */
void *quarantine_next(const heap_t *heap, unsigned size_class, uint32_t *place);
/* For another thread, with the heap's lock, with a barrier in all threads after each of the first two. The block at the place where a ring
 * was seen may be in its thread's hands; a block that is marked anywhere else belongs to whoever removes the mark. */
bool quarantine_mark(heap_t *heap); /* false: there is none */
void quarantine_see(heap_t *heap);
HAK_CHECKED void *quarantine_take_marked(heap_t *heap, unsigned *size_class, uint32_t *place); /* from *place on; NULL at the end */
/* A random number below `count`, which is not 0, and below `most`. */
uint32_t quarantine_choose(heap_t *heap, uint32_t count, uint32_t most);

/* Checks the blocks that wait. By the heap's thread, or with its lock. */
HAK_AUDITS(void quarantine_audit(const heap_t *heap);)

#endif
