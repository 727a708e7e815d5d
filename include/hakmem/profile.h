/* profile.h - who holds the memory: samples of the heap's live blocks, by the stacks that they were allocated from.
 *
 * Unless HAKMEM_INSIGHT is 0, hakmem samples blocks: it keeps a record of some, chosen so that each byte of the heap has the same chance of
 * being in a sampled block (HAKMEM_SAMPLE_KB).  Blocks allocated before the heap has 2 MiB have no stack, unless HAKMEM_INSIGHT is 2 or
 * HAKMEM_PROFILE or HAKMEM_TRACK is set.  The secure library keeps no samples.
 *
 * Every function here is thread-safe.  None is async-signal-safe unless its comment says so. */
#ifndef HAKMEM_PROFILE_H
#define HAKMEM_PROFILE_H

#include "hakmem/hakmem.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Writes a snapshot to a file descriptor: text that `hakmem profile` reads, in the format that docs/insight.md describes.  Allocates
 * nothing and stops no other thread: a block that is allocated or freed meanwhile may or may not be included.  Returns false when writing
 * fails; errno stays as it was.  Since 0.1. */
HAK_API bool hak_profile_write(int fd);

/* Writes a profile of the heap to a file descriptor in the format of `go tool pprof` and similar services: pprof's protocol buffer,
 * uncompressed.  A server can send it as its answer to /debug/pprof/heap; `hakmem profile` shows more.  The sample types are inuse_objects;
 * inuse_space, in bytes; and samples, a count; once the process has been armed also alloc_objects and alloc_space, in bytes, which sum to
 * what was counted (hak_profile_arm).  The labels are bytes, the size of a block, and tag: a number, or the text "heap NAME" for what named
 * heaps hold.  Objects and bytes sum to what is live: in each size class as hak_stats_class counts it, and in large blocks.  The part that
 * no sample covers is "(not sampled)", and samples without a stack are "(unknown)".  With HAKMEM_INSIGHT=0 and in the secure library
 * everything is "(not sampled)" and the period is 0.  Functions have no names; a symbolizer finds them by the build ids of their files.
 * Allocates nothing and stops no other thread: a block that is freed meanwhile counts in "(not sampled)".  Takes 24 KiB of stack.  Returns
 * false when writing fails; errno stays as it was.  Since 0.1. */
HAK_API bool hak_profile_pprof(int fd);

/* Arms the process: counts all allocations from now on for the given number of seconds, including blocks that are freed soon.  A process
 * that is already armed for longer, as by HAKMEM_EVENTS, stays so.  0 ends any counting.  The counts, accumulated over all armed periods,
 * are in snapshots and in alloc_objects and alloc_space of hak_profile_pprof.  For each size class they are exact, in requested bytes, but
 * a small block of aligned_alloc or its kin counts its class's bytes; by call site they are estimated from one allocation per
 * 512 KiB on average, and n such samples have an error of 1 / sqrt(n).  A block that realloc leaves in place counts once, with its first
 * size; other threads start counting at their next slow path.  While armed, a small allocation takes 173 more instructions
 * (docs/insight.md).  A fork's child is not armed, except with HAKMEM_EVENTS.  Works in the secure library, too, and from any thread.
 * Returns false under Valgrind's memcheck.  Since 0.1. */
HAK_API bool hak_profile_arm(uint32_t seconds);

/* Marks what the calling thread allocates from now on with this number in profiles: for example that of a tenant, a request or a
 * subsystem; it is to be below 2^31, since larger ones stand for named heaps.  0, the initial value of a thread, is no tag.  Returns the
 * previous tag.  Async-signal-safe. Since 0.1. */
HAK_API uint32_t hak_tag_set(uint32_t tag);

#ifdef __cplusplus
}
#endif
#endif
