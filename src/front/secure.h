/* secure.h - what the secure library does with the blocks of slabs.
 *
 * A live block ends in a canary that holds what was asked for, and what is left
 * over between the two is known: a byte written there is seen.  A block that is not live is all zero; freed,
 * it waits in its freer's quarantine until as many others of its class have
 * come after it, and then lies in a bin, which gives one of its uppermost at random.
 * Blocks of no bytes have neither canary nor zeroes.
 *
 * For the heap's own thread, as bins are. */
#ifndef FRONT_SECURE_H
#define FRONT_SECURE_H

#include "front/heap.h"

/* One block of the class, live; NULL when out of memory. Ends the process if it was written to meanwhile. */
HAK_CHECKED void *secure_alloc(heap_t *heap, unsigned size_class, size_t size);
/* The same for a size, not 0, from the bin alone: NULL if that is empty. */
HAK_CHECKED void *secure_pop(heap_t *heap, bin_t *bin, size_t size);
/* Ends the block's life; false if it had none. */
HAK_CHECKED bool secure_claim_live(const void *block);
/* One block of the class that was in no bin, live; any thread that alone has it. */
HAK_CHECKED void *secure_open(void *block, unsigned size_class, size_t size);
/* Clears a block that was live; false, and nothing done, if it was overflown. */
HAK_CHECKED bool secure_wipe(void *block, unsigned size_class);
/* Checks and clears a block that was live. */
void secure_clear(void *block, unsigned size_class, const char *function);
/* What was asked for, of a live block; ends the process for one that was overflown, if there is a function to name. */
HAK_CHECKED size_t secure_size(const void *block, unsigned size_class, const char *function);
/* Asks for another size in its place, of the same class. */
void secure_resize(void *block, unsigned size_class, size_t asked, const char *function);
/* At the process's end, if it has one thread: looks at what was never freed, and at what was freed and not used again. */
void secure_check(void);

#endif
