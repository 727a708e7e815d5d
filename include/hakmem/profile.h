/* profile.h - who holds the memory: samples of the heap's live blocks, by the stacks that they were allocated from.
 *
 * hakmem keeps a record of some blocks, chosen so that each byte of the heap has the same chance of being in one
 * (HAKMEM_SAMPLE_KB), unless HAKMEM_INSIGHT is 0.  What is allocated before the heap has 2 MiB has no stack, unless that is 2, or
 * HAKMEM_PROFILE or HAKMEM_TRACK is set.  The secure library keeps none.
 *
 * Every function here is thread-safe.  None is async-signal-safe unless it says so. */
#ifndef HAKMEM_PROFILE_H
#define HAKMEM_PROFILE_H

#include "hakmem/hakmem.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Writes a snapshot to a file descriptor: text that `hakmem profile` reads, of the format that docs/insight.md describes.  Nothing is
 * allocated and no other thread is stopped: a block that is allocated or freed meanwhile is in it or not.  Returns false when writing
 * fails. Since 0.1. */
HAK_API bool hak_profile_write(int fd);

/* Writes a profile of the heap to a file descriptor, as `go tool pprof` and services like it read one: pprof's protocol buffer, not
 * compressed.  It is what a server answers for /debug/pprof/heap; `hakmem profile` shows more.  The sample types are inuse_objects,
 * inuse_space, in bytes, and samples, a count; once the process was armed also alloc_objects and alloc_space, in bytes, which sum to what
 * was counted (hak_profile_arm).  Labels are bytes, of a block, and tag, a number, or the text "heap NAME" of what named heaps hold.
 * Objects and bytes sum to what is live: in each size class as hak_stats_class counts it, and in large blocks.  What no sample tells of
 * is "(not sampled)", and what has no stack "(unknown)".  With HAKMEM_INSIGHT=0 and in the secure library all is not sampled, and the
 * period 0.  Functions have no names, the build ids of their files lead to them.  Nothing is allocated and no other thread is stopped: a
 * block that is freed meanwhile has its share in "(not sampled)".  Takes 24 KiB of stack.  Returns false when writing fails.  Since 0.1. */
HAK_API bool hak_profile_pprof(int fd);

/* Counts what is allocated from now on, also of what is freed soon, for so many seconds; what is armed for longer, as by HAKMEM_EVENTS,
 * stays so.  0 ends either.  The counts, of all times together, are in snapshots, and alloc_objects and alloc_space of hak_profile_pprof:
 * exactly in each size class, in bytes asked for; where, by one allocation in 512 KiB on average, of which n have an error of
 * 1 / sqrt(n).  A block that realloc leaves where it is counts once, as it was allocated; other threads count from their next slow path
 * on.  Meanwhile a small allocation takes 173 instructions more (docs/insight.md).  A fork's child is not armed, though with
 * HAKMEM_EVENTS it is.  Also in the secure library.  Any thread.  Returns false under Valgrind's memcheck.  Since 0.1. */
HAK_API bool hak_profile_arm(uint32_t seconds);

/* What the calling thread allocates from now on has this number in profiles: a tenant's, a request's, a subsystem's.
 * 0, which threads begin with, is none.  Returns the number before.  Async-signal-safe. Since 0.1. */
HAK_API uint32_t hak_tag_set(uint32_t tag);

#ifdef __cplusplus
}
#endif
#endif
