/* counted.h - bytes that the calling thread has had, and has given back: jemalloc's thread.allocated and thread.deallocated.
 *
 * In a build of its own, for libjemalloc.so.2 (compat/): a hit of malloc or free has two instructions more there.  Sizes are usable
 * ones.  What goes with a destroyed heap nobody has given back. */
#ifndef BASE_COUNTED_H
#define BASE_COUNTED_H

#include "base/bits.h"
#include "base/config.h"

typedef struct counted {
  uint64_t taken, given; /* bytes */
} counted_t;

#if HAK_COUNTED
extern __thread counted_t counted_bytes __attribute__((tls_model("initial-exec")));
#endif

HAK_INLINE void counted_take(size_t bytes) {
#if HAK_COUNTED
  counted_bytes.taken += bytes;
#else
  (void)bytes;
#endif
}

HAK_INLINE void counted_give(size_t bytes) {
#if HAK_COUNTED
  counted_bytes.given += bytes;
#else
  (void)bytes;
#endif
}

#endif
