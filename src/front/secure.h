/* secure.h - what the secure library does with the blocks of slabs.
 *
 * A live block ends in a canary that records the requested size.  The bytes between
 * the two have known values, so that a write there is detected.  A block that is not
 * live is all zero.  A freed block waits in its freer's quarantine until as many others of
 * its class have come after it; then it lies in a bin, which hands out one of its uppermost at random.
 * Blocks of no bytes have neither canary nor zeroes.
 *
 * For the heap's own thread, as bins are. */
#ifndef FRONT_SECURE_H
#define FRONT_SECURE_H

#include "front/heap.h"

/* Takes a block of the class and makes it live; NULL when out of memory. Ends the process if the block was written to while it was free. */
HAK_CHECKED void *secure_alloc(heap_t *heap, unsigned size_class, size_t size);
/* The same for a size that is not 0, from this bin alone; NULL if it is empty. */
HAK_CHECKED void *secure_pop(heap_t *heap, bin_t *bin, size_t size);
/* Makes a live block not live; returns false if it was not live. */
HAK_CHECKED bool secure_claim_live(const void *block);
/* Makes a block live that was in no bin; by any thread that alone holds it. */
HAK_CHECKED void *secure_open(void *block, unsigned size_class, size_t size);
/* Clears a block that was live. Returns false, and does nothing, if bytes behind it were overwritten. Pages that a fork's child lacks are
 * mapped. */
HAK_CHECKED bool secure_wipe(void *block, unsigned size_class);
/* The same, but overwritten bytes end the process. */
void secure_clear(void *block, unsigned size_class, const char *function);
/* The requested size of a live block. If bytes behind the block were overwritten, ends the process, unless `function` is NULL. */
HAK_CHECKED size_t secure_size(const void *block, unsigned size_class, const char *function);
/* False in a fork's child that lacks the page which records the requested size of a live block. */
HAK_CHECKED bool secure_knows_size(const void *block, unsigned size_class);
/* Changes the requested size of a live block in place, within its class. */
void secure_resize(void *block, unsigned size_class, size_t asked, const char *function);
/* At the process's end, if it has one thread: checks blocks that were never freed, and blocks that were freed and not used again. */
void secure_check(void);

#endif
