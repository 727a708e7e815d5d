/* profile.h - who holds the memory: samples of the heap's live blocks, by the stacks that they were allocated from.
 *
 * hakmem keeps a record of some blocks, chosen so that each byte of the heap has the same chance of being in one
 * (HAKMEM_SAMPLE_KB), where HAKMEM_INSIGHT is 1.  The secure library keeps none.
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
 * fails. Since 0.2. */
HAK_API bool hak_profile_write(int fd);

/* What the calling thread allocates from now on has this number in profiles: a tenant's, a request's, a subsystem's.
 * 0, which threads begin with, is none.  Returns the number before.  Async-signal-safe. Since 0.2. */
HAK_API uint32_t hak_tag_set(uint32_t tag);

#ifdef __cplusplus
}
#endif
#endif
