/* config.h - the geometry of the heap, and the terms used for it.
 *
 * Glossary; each word has one meaning.
 *
 * Memory, from the smallest to the largest:
 *   granule      16 bytes, the unit of alignment; one bit in the live map
 *   block        what malloc hands out
 *   hole         whole free pages inside a partly used slab, which can go back to the kernel: slab/hole.h
 *   guard slot   a page between inaccessible pages, for one small block at a time: slab/slots.h
 *   unit         64 KiB of block memory; spans are counted in units
 *   guard        inaccessible pages or units beside blocks, where an overflow faults
 *   span         a run of units with one use: a slab or a large block
 *   slab         a span cut into blocks of one size class, owned by one heap
 *   large block  a block with a span of its own
 *   superslab    2 MiB of block memory, one huge page: 32 units
 *   region       the single address range that all block memory comes from
 *   zone         an array of metadata beside the region, indexed like the region
 *   dirty        of a unit: written to since it was last known to be zero; otherwise it is fresh
 *   purge        to give free pages back to the kernel, by time (the decay) or before the heap grows: space/purge.h
 *   purge epoch  a count that changes when rare work may be due on slow paths: space/purge.h
 *
 * Threads and their heaps:
 *   bin          a heap's bounded stack of free blocks of one size class
 *   bar          a bit that another thread sets in a bin's entry; a pop that meets it waits for the heap's lock: front/drain.h
 *   heap         the bins and slabs of one thread; outlives the thread
 *   owner        the heap a slab belongs to, and the thread that heap is attached to
 *   orphan       a heap whose thread has exited
 *   parked       of a heap: its thread has ended with blocks still in the bins, for the next thread to use: front/handover.h
 *   large cache  freed large blocks whose spans a thread keeps for requests of the same length: slab/large_cache.h
 *   keeper       hakmem's own thread, which gives memory back while the program makes no calls: front/keeper.h
 *   entry        what a bin holds: a block's address, with one bit if the block is sampled, and one for a bar: slab/sample.h
 *   tick         a heap's rare upkeep, on a slow path: bins shrink, caches age, what is in them is noted: front/supply.h
 *   named heap   a heap that the program makes, which no thread has: front/named.h
 *   default heap the named heap that a thread's malloc takes from instead of its own heap: front/thread.h
 *   span hook    a function of a named heap, called for each span that blocks are taken from: front/named.h
 *   idle         of a thread: it makes no calls, so others do its work; of a unit: free, and may be resident: space/ledger.h
 *
 * Remote frees, by threads that do not own the block: slab/remote.h:
 *   marker       the first thread to free a block of a slab remotely, for as long as the slab lasts
 *   mark         a block's bit that the marker toggles as it frees the block, which waits while mark and owner's copy differ
 *   remote bit   a block's bit that every other remote freer sets; the block waits until the owner takes the bit
 *   lead         a slab that an owner adds so that its next collection of remote frees brings more blocks: slab/batch.c
 *
 * Profiles:
 *   sampled      of a block: chosen at random to have a record of who allocated it, and when: slab/sample.h
 *   tracked      of a slab: every block has such a record: slab/track.h
 *   quiet        of a sampled block: allocated so often that its record is left as it is for a while
 *   site         the stack that blocks are allocated from, by a number: kit/site.h
 *   armed        of the process: allocations are counted by site, and some become events: kit/event.h
 *   watched      of a heap: every small allocation misses, so that it is counted or guarded: front/watch.h
 *   pinned       of bytes of a page: free, but kept resident by a live block on the same page: slab/pinned.h
 */
#ifndef BASE_CONFIG_H
#define BASE_CONFIG_H

#include <stddef.h>
#include <stdint.h>

/* 1: free checks the live map before it takes a block back. */
#ifndef HAK_CHECKS
#define HAK_CHECKS 1
#endif
/* 1: the secure library, slower: canaries, quarantine, guard pages; docs/security.md describes them. */
#ifndef HAK_SECURE
#define HAK_SECURE 0
#endif
/* 1: blocks are sampled if insight is on.  Sampling needs the live bit: a sampled block has it clear, which takes its free off the fast
 * path.  In the secure library the live bit alone does not identify a block. */
#define HAK_SAMPLED (HAK_CHECKS && !HAK_SECURE)
/* 1: the bytes of each thread are counted: base/counted.h. */
#ifndef HAK_COUNTED
#define HAK_COUNTED 0
#endif
/* 1: internal invariants are asserted. */
#ifndef HAK_DEBUG
#define HAK_DEBUG 0
#endif
/* 1: the structures of each layer are audited at the end of every slow path, and the lock order is checked. */
#ifndef HAK_AUDIT
#define HAK_AUDIT HAK_DEBUG
#endif
/* 1: the names of libc and C++ are exported as well as hak_*. */
#ifndef HAK_OVERRIDE
#define HAK_OVERRIDE 1
#endif
/* 1: the build is for the archive, which is linked into programs. */
#ifndef HAK_ARCHIVE
#define HAK_ARCHIVE 0
#endif
/* 1: the build is for a library that defines mallocx and its kin itself: libjemalloc.so.2, in compat/. */
#ifndef HAK_FAMILY
#define HAK_FAMILY 0
#endif
/* 1: libc's realloc takes a block that it moves to the heap that malloc allocates from, as jemalloc's and mimalloc's do: for compat/.
 * 0: it leaves the block in its heap, as hak_realloc always does. */
#ifndef HAK_REALLOC_LEAVES
#define HAK_REALLOC_LEAVES 0
#endif
/* 1: the build is a shared library that holds nothing but hakmem. */
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

/* The size of the region: four times physical memory, within these bounds. */
#define HAK_REGION_MIN ((uint64_t)64 << 30)
#define HAK_REGION_MAX ((uint64_t)4 << 40)

/* Blocks up to this size come from slabs; larger ones are spans of their own.  The secure library makes more blocks spans, because freed
 * spans become inaccessible. */
#define HAK_SMALL_MAX ((size_t)(HAK_SECURE ? 32 : 64) << 10)
/* The same limit for blocks that are zeroed or grown by realloc.  It is lower, because the parts of a fresh span that a program never
 * touches take no memory, and because a span can grow in place. */
#define HAK_SMALL_MAX_ZEROED ((size_t)32 << 10)
/* Sizes up to this find their class by table, larger ones by bit scan. */
#define HAK_TABLE_MAX ((size_t)1024)

#define HAK_CACHE_LINE 64

/* For data that the secure library keeps unwritable: aligned to whole pages, of the largest size that the processor may use. */
#if !HAK_SECURE
#define HAK_SEALED
#elif defined(__x86_64__)
#define HAK_SEALED __attribute__((aligned(4096)))
#else
#define HAK_SEALED __attribute__((aligned(65536)))
#endif

_Static_assert(HAK_CHECKS || !HAK_SECURE, "the secure library needs the live map");
_Static_assert(HAK_SMALL_MAX_ZEROED <= HAK_SMALL_MAX, "a size that no slab has is a span's");
_Static_assert(HAK_SUPERSLAB / HAK_UNIT == HAK_UNITS_PER_SUPERSLAB, "a superslab's units fit one 32-bit word");

#endif
