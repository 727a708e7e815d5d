/* config.h - the geometry of the heap and the words used for it.
 *
 * Glossary, one meaning each:
 *   block       what malloc hands out
 *   granule     16 bytes, the unit of alignment; one bit in the live map
 *   unit        64 KiB of block memory, the unit that spans are counted in
 *   span        a run of units in one use: a slab or a large block
 *   slab        a span cut into blocks of one size class, owned by one heap
 *   superslab   2 MiB of block memory, one huge page: 32 units
 *   region      the one range of addresses that all block memory comes from
 *   zone        an array of metadata beside the region, indexed like it
 *   bin         a heap's bounded stack of free blocks of one size class
 *   heap        the bins and slabs of one thread; outlives the thread
 *   owner       the heap a slab belongs to, and the thread it is attached to
 *   orphan      a heap whose thread has exited
 */
#ifndef BASE_CONFIG_H
#define BASE_CONFIG_H

#include <stddef.h>
#include <stdint.h>

/* 1: a free is checked against the live map before the block is taken back. */
#ifndef HAK_CHECKS
#define HAK_CHECKS 1
#endif
/* 1: the secure library, slower: canaries, quarantine, guard pages; docs/security.md tells what it adds. */
#ifndef HAK_SECURE
#define HAK_SECURE 0
#endif
/* 1: blocks are sampled, if insight is on.  The secure library knows no block by its live bit alone, and without live bits free would
 * not leave the fast path. */
#define HAK_SAMPLED (HAK_CHECKS && !HAK_SECURE)
/* 1: each thread's bytes are counted: base/counted.h. */
#ifndef HAK_COUNTED
#define HAK_COUNTED 0
#endif
/* 1: internal invariants are asserted. */
#ifndef HAK_DEBUG
#define HAK_DEBUG 0
#endif
/* 1: each layer's structures are audited at the end of every slow path, and the order of locks is checked. */
#ifndef HAK_AUDIT
#define HAK_AUDIT HAK_DEBUG
#endif
/* 1: the libc and C++ names are exported beside hak_*. */
#ifndef HAK_OVERRIDE
#define HAK_OVERRIDE 1
#endif
/* 1: for the archive, whose members are linked into programs. */
#ifndef HAK_ARCHIVE
#define HAK_ARCHIVE 0
#endif

/* The library alone is what surrounds the sources: they are linked into a shared one. */
#ifndef HAK_SHARED
#define HAK_SHARED 0
#endif

#define HAK_GRANULE_SHIFT 4
#define HAK_GRANULE ((size_t)1 << HAK_GRANULE_SHIFT)
#define HAK_UNIT_SHIFT 16
#define HAK_UNIT ((size_t)1 << HAK_UNIT_SHIFT)
#define HAK_SUPERSLAB_SHIFT 21
#define HAK_SUPERSLAB ((size_t)1 << HAK_SUPERSLAB_SHIFT)
#define HAK_UNITS_PER_SUPERSLAB 32u
#define HAK_UNIT_GRANULES_SHIFT (HAK_UNIT_SHIFT - HAK_GRANULE_SHIFT)

/* The region's size: four times physical memory, within these bounds. */
#define HAK_REGION_MIN ((uint64_t)64 << 30)
#define HAK_REGION_MAX ((uint64_t)4 << 40)

/* Blocks up to here come from slabs, larger ones are spans of their own.  In the secure library more of them are: what is freed of
 * these is inaccessible. */
#define HAK_SMALL_MAX ((size_t)(HAK_SECURE ? 32 : 64) << 10)
/* Up to here come so those that are zeroed or grown by realloc: what a program leaves of a fresh span takes no memory, and a span grows
 * where it is. */
#define HAK_SLAB_ALWAYS ((size_t)32 << 10)
/* Sizes up to here find their class by table, larger ones by bit scan. */
#define HAK_TABLE_MAX ((size_t)1024)

#define HAK_CACHE_LINE 64

/* For what the secure library keeps unwritable: whole pages, of any size that the processor knows. */
#if !HAK_SECURE
#define HAK_SEALED
#elif defined(__x86_64__)
#define HAK_SEALED __attribute__((aligned(4096)))
#else
#define HAK_SEALED __attribute__((aligned(65536)))
#endif

_Static_assert(HAK_CHECKS || !HAK_SECURE, "the secure library needs the live map");
_Static_assert(HAK_SLAB_ALWAYS <= HAK_SMALL_MAX, "a size that no slab has is a span's");
_Static_assert(HAK_SUPERSLAB / HAK_UNIT == HAK_UNITS_PER_SUPERSLAB, "a superslab's units fit one 32-bit word");

#endif
