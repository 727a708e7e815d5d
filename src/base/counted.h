/* counted.h - bytes that the calling thread has had, and has given back: jemalloc's thread.allocated and thread.deallocated.
 *
 * In a build of its own, for libjemalloc.so.2 (compat/), since it takes instructions of each hit.  Sizes are usable ones.  What goes with a
 * destroyed heap nobody has given back. */
#ifndef BASE_COUNTED_H
#define BASE_COUNTED_H

#include "base/bits.h"
#include "base/config.h"

#if HAK_COUNTED
typedef struct counted {
  uint64_t taken, given; /* bytes */
} counted_t;
extern __thread counted_t counted_bytes __attribute__((tls_model("initial-exec")));
#define COUNTED_ADD(which, bytes) ((void)(counted_bytes.which += (bytes)))
#else
#define COUNTED_ADD(which, bytes) ((void)(bytes))
#endif

HAK_INLINE void counted_take(size_t bytes) { COUNTED_ADD(taken, bytes); }
HAK_INLINE void counted_give(size_t bytes) { COUNTED_ADD(given, bytes); }

#endif
