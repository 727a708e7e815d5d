/* shadow.h - a record of the blocks that a program holds, each filled with its own pattern, to check the allocator against.
 *
 * Blocks up to SHADOW_FULL are filled completely, larger ones at the start of each page and at their end. */
#ifndef TESTS_FUZZ_SHADOW_H
#define TESTS_FUZZ_SHADOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SHADOWS = 96, SHADOW_FULL = 65536 };

typedef struct shadow {
  unsigned char *block; /* NULL: none */
  size_t size;          /* as requested */
  size_t usable;
  uint32_t mark; /* determines its pattern */
} shadow_t;
extern shadow_t shadows[SHADOWS];

/* The first entry in use, searching cyclically from `from`; SHADOWS if none is. */
unsigned shadow_next(unsigned from);
size_t shadow_bytes(void);
/* The class of a small block. */
unsigned shadow_class(const shadow_t *s);
bool shadow_is_large(const shadow_t *s);
/* Enters a block that was just handed out: checks that it overlaps no other, and fills it. */
void shadow_enter(unsigned i, void *block, size_t size);
/* Checks that the content of the block is unchanged. */
void shadow_check(unsigned i);
void shadow_check_all(void);
/* Checks that the first `bytes` at `block` are what the entry was filled with. */
void shadow_check_moved(const shadow_t *before, const unsigned char *block, size_t bytes);
void shadow_check_zero(const unsigned char *block, size_t bytes);
/* Called before the block is freed: checks it, and forgets it. */
void *shadow_leave(unsigned i);
void shadow_forget(unsigned i);

/* Checks that the allocator's statistics and its map of live blocks agree with the shadow. */
void shadow_census(void);
/* Called when nothing is held and all threads have ended: checks that every unit is free again, except those of metadata and guard
 * slots. `refused`: the kernel may have refused to make some units accessible again. */
void shadow_nothing_is_lost(bool refused);

#endif
