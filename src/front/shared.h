/* shared.h - slabs that all threads share, for threads that take little.
 *
 * Where there are many threads, each gets its first blocks of a class from here: a thread that takes little then needs neither
 * slabs nor bins, and the blocks of many such threads lie side by side. */
#ifndef FRONT_SHARED_H
#define FRONT_SHARED_H

#include "front/heap.h"

/* Takes one block from a shared slab. Returns NULL if there are few threads, if the thread has had enough (*taken counts), or if it would
 * have to wait. */
HAK_CHECKED void *heap_take_shared(unsigned size_class, uint8_t *taken, bool has_heap);

#endif
