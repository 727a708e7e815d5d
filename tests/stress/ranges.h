/* ranges.h - the set of address ranges that live blocks occupy, with exact overlap detection.
 *
 * Every start is a multiple of 16 (checked), so two blocks share a byte exactly
 * when they share a granule of 16 bytes.  A table over 64 KiB chunks holds, for
 * each chunk, either "inside one big block" or the number of blocks that lie
 * partly in it, plus a bit for each granule.  A block of 64 MiB thus costs a
 * thousand words, and a small one two.
 *
 * Any thread may call both functions at any time: every word changes by one
 * atomic operation, and of two blocks that overlap the later one to enter
 * always sees the earlier one's mark.  Memory comes from mmap, never from
 * malloc; it grows with the address space seen and is not given back.
 *
 * Enter a block after malloc has returned it, and remove it before free: while
 * it is in the set the program owns it, so any overlap is the allocator's fault.
 */
#ifndef STRESS_RANGES_H
#define STRESS_RANGES_H

#include <stdbool.h>
#include <stddef.h>

/* Enters [start, start + size); size 0 counts as one granule.  False if any of it is in the set already. */
bool ranges_enter(const void *start, size_t size);
/* Removes what was entered with the same arguments.  False if some of it was not in the set. */
bool ranges_remove(const void *start, size_t size);

#endif
