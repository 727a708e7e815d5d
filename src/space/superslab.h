/* superslab.h - the words of a superslab: a bit for each of its units.
 *
 * Every change of a word is one atomic operation.  A thread that clears bits in `free` has claimed those units: nobody else touches them,
 * or their bits in `dirty`, before they are set again. */
#ifndef SPACE_SUPERSLAB_H
#define SPACE_SUPERSLAB_H

#include "base/atomics.h"
#include "base/bits.h"
#include "base/config.h"

#define WORD_UNITS HAK_UNITS_PER_SUPERSLAB

typedef struct superslab {
  _Atomic uint32_t free;   /* usable and in no span */
  _Atomic uint32_t mapped; /* usable at all: in a span, free, or being purged */
  _Atomic uint32_t dirty;  /* written since they were last known to be zero */
  _Atomic uint32_t cold;   /* were free and dirty at the last step of the decay */
  _Atomic uint32_t huge;   /* 1: the kernel may back the superslab with a huge page: huge.h */
  _Atomic uint32_t moved;  /* 1: it is a mapping of its own: move.h */
  _Atomic uint32_t grown;  /* given back because the heap grew, and not written since: purge.h */
  _Atomic uint32_t refused; /* the kernel would not take them: it is not asked again until they were used, or for a while: purge.c */
} superslab_t;

/* The words that hold units [at, end), lowest first. */
typedef struct word_walk {
  uint32_t at, end;
} word_walk_t;

/* The next superslab and the mask of its units in the walk; false at the end. */
HAK_INLINE bool word_next(word_walk_t *walk, uint32_t *superslab, uint32_t *mask) {
  if (walk->at >= walk->end) return false;
  uint32_t first = walk->at % WORD_UNITS;
  uint32_t n = WORD_UNITS - first;
  if (n > walk->end - walk->at) n = walk->end - walk->at;
  *superslab = walk->at / WORD_UNITS;
  *mask = bits_mask32(first, n);
  walk->at += n;
  return true;
}

#endif
