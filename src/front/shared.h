/* shared.h - slabs that all threads take from, for those that take little.
 *
 * Where there are many threads, each gets its first blocks of a class from here: a thread that takes little then has neither
 * slabs nor bins, and what many of them take lies side by side. */
#ifndef FRONT_SHARED_H
#define FRONT_SHARED_H

#include "front/heap.h"

/* One block of slabs that all threads share. NULL: there are few threads, the thread has had enough (*taken counts), or
 * it would have to wait. */
HAK_CHECKED void *heap_take_shared(unsigned size_class, uint8_t *taken, bool has_heap);

#endif
