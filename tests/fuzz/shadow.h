/* shadow.h - what a program holds: every block, filled with a pattern of its own, against what the allocator says.
 *
 * Blocks up to SHADOW_FULL are filled as a whole, larger ones at the start of each page and at their end. */
#ifndef TESTS_FUZZ_SHADOW_H
#define TESTS_FUZZ_SHADOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SHADOWS = 96, SHADOW_FULL = 65536 };

typedef struct shadow {
  unsigned char *block; /* NULL: none */
  size_t size;          /* asked for */
  size_t usable;
  uint32_t mark; /* of its pattern */
} shadow_t;
extern shadow_t shadows[SHADOWS];

/* A number whose entry is in use, from `from` on around; SHADOWS if none is. */
unsigned shadow_next(unsigned from);
size_t shadow_bytes(void);
/* The class of a small one. */
unsigned shadow_class(const shadow_t *s);
bool shadow_is_large(const shadow_t *s);
/* A block that was just handed out: is it the program's alone? Fills it. */
void shadow_enter(unsigned i, void *block, size_t size);
/* Its content is as it was left. */
void shadow_check(unsigned i);
void shadow_check_all(void);
/* The first `bytes` at `block` are what the entry was filled with. */
void shadow_check_moved(const shadow_t *before, const unsigned char *block, size_t bytes);
void shadow_check_zero(const unsigned char *block, size_t bytes);
/* Before it is freed: checks it, and forgets it. */
void *shadow_leave(unsigned i);
void shadow_forget(unsigned i);

/* The allocator's own account, and its map of live blocks, agree. */
void shadow_census(void);
/* Nothing is held; all threads have ended: every unit is free again, but for heaps and guard slots. `refused`: the kernel may
 * have refused to make some accessible. */
void shadow_nothing_is_lost(bool refused);

#endif
