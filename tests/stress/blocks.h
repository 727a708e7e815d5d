/* blocks.h - a live block as the shadow model knows it: its range, its alignment, its content.
 *
 * The whole usable size is written, not only what was asked for: content.h.
 *
 * How much is written and checked:
 * - blocks up to 32 KiB, 1 in 16 of those up to 1 MiB and 1 in 64 of all: every byte;
 * - others: 64 bytes at each edge, the words beside the first, the last and 6 other page boundaries, and 4 words
 *   elsewhere, at places that follow from the id;
 * - zeroed blocks: every byte asked for.
 */
#ifndef STRESS_BLOCKS_H
#define STRESS_BLOCKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct block {
  unsigned char *start; /* NULL: no block */
  size_t size;          /* as asked for */
  size_t usable;        /* as malloc_usable_size says */
  size_t alignment;     /* as asked for, 16 at least */
  uint64_t id;          /* the content; never used twice in a run */
  bool resized;         /* expanded in place: `size` may be none that free_sized takes */
} block_t;

/* A new block enters the model: checks alignment, usable size and overlap, then fills it. */
void block_enter(block_t *block, void *start, size_t size, size_t alignment, uint64_t id);
/* Checks the content, and takes the block's range out of the model; the caller then gives it to the allocator. */
void block_leave(const block_t *block);
/* The range of a block that the allocator did not take after all is entered again. */
void block_return(const block_t *block);
/* Checks the content up to `length`, at `start`, which may be the block's new place. */
void block_check(const block_t *block, const unsigned char *start, size_t length, const char *when);
/* Checks that [from, to) of the bytes at `start` are zero. */
void bytes_check_zero(const unsigned char *start, size_t from, size_t to, const char *call);

#endif
