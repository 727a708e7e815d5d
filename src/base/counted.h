/* counted.h - bytes that the calling thread has allocated and freed: jemalloc's thread.allocated, thread.deallocated and thread.peak.
 *
 * Only in a separate build, for libjemalloc.so.2 (compat/), since it adds instructions to each bin hit.  Sizes are usable sizes.  Blocks
 * that end with a destroyed heap do not count as freed. */
#ifndef BASE_COUNTED_H
#define BASE_COUNTED_H

#include "base/bits.h"
#include "base/config.h"

#if HAK_COUNTED
typedef struct counted {
  uint64_t taken, given; /* bytes */
  int64_t base, peak;    /* peak: the highest that taken less given has been above base */
} counted_t;
extern __thread counted_t counted_bytes __attribute__((tls_model("initial-exec")));
#define COUNTED_ADD(which, bytes) ((void)(counted_bytes.which += (bytes)))

HAK_INLINE int64_t counted_net(void) { return (int64_t)(counted_bytes.taken - counted_bytes.given); }

/* Not called on bin hits, so the peak may be too low by what the thread's bins hold. */
HAK_INLINE void counted_note_peak(void) {
  int64_t above = counted_net() - counted_bytes.base;
  if (above > counted_bytes.peak) counted_bytes.peak = above;
}
#else
HAK_INLINE void counted_note_peak(void) {}
#define COUNTED_ADD(which, bytes) ((void)(bytes))
#endif

HAK_INLINE void counted_take(size_t bytes) { COUNTED_ADD(taken, bytes); }
HAK_INLINE void counted_take_slow(size_t bytes) {
  counted_take(bytes);
  counted_note_peak();
}
HAK_INLINE void counted_give(size_t bytes) { COUNTED_ADD(given, bytes); }

#endif
