#include "os/memo.h"

#include "base/atomics.h"
#include "base/config.h"
#include "os/stack.h"

/* A step.  Its lower bits hold the place of a word: its distance from the frame in words, plus one; 0 after the last step.  The upper bits
 * hold a checksum of that place and all that precedes it: the frame, the number, the words at earlier places.  So a word is read only after
 * the step with its place has been verified: while everything matches, a walk would read that word, too, and what a walk by tables reads
 * is in use.  Any other address may have gone with a fiber's stack, or come from another thread's write of the memo. */
enum { PLACE_BITS = 16 };
#define PLACE_MASK (((uint64_t)1 << PLACE_BITS) - 1)

typedef struct memo {
  HAK_ALIGNED(HAK_CACHE_LINE) _Atomic uint64_t here;
  _Atomic uint64_t number, steps[UNWIND_READS + 1];
} memo_t;
_Static_assert(sizeof(memo_t) == 3 * HAK_CACHE_LINE, "a memo is three cache lines");

#define MEMO_SHIFT 6
static HAK_APART memo_t memos[1 << MEMO_SHIFT];

static uint64_t mixed(uint64_t sum, uint64_t word) {
  uint64_t product = (sum ^ word) * GOLDEN_RATIO_64;
  return product ^ product >> 32;
}

static memo_t *memo_at(uintptr_t here) { return &memos[mixed(0, here) >> 8 & ((1 << MEMO_SHIFT) - 1)]; }

static uint64_t step_of(uint64_t sum, uint64_t place) { return (sum & ~PLACE_MASK) | place; }

UNWATCHED static uint64_t word_at(uintptr_t here, uint64_t place) { return ((const uint64_t *)here)[place - 1]; }

bool memo_find(uintptr_t here, uint64_t *number) {
  const memo_t *memo = memo_at(here);
  if (load_relaxed(&memo->here) != here) return false;
  *number = load_relaxed(&memo->number);
  uint64_t sum = mixed(here, *number);
  for (unsigned i = 0; i <= UNWIND_READS; i++) {
    uint64_t step = load_relaxed(&memo->steps[i]), place = step & PLACE_MASK;
    sum = mixed(sum, place);
    if (step_of(sum, place) != step) return false;
    if (place == 0) return true;
    sum = mixed(sum, word_at(here, place));
  }
  return false;
}

static uint64_t place_among(const unwind_reads_t *reads, uint32_t i) { return (reads->place[i] - reads->from) / sizeof(uint64_t) + 1; }

void memo_keep(const unwind_reads_t *reads, uint64_t number) {
  uintptr_t here = reads->from;
  uint64_t sum = mixed(here, number);
  memo_t *memo = memo_at(here);
  if (!reads->all || reads->count == 0) return;
  for (uint32_t i = 0; i < reads->count; i++) {
    if (place_among(reads, i) > PLACE_MASK) return;
  }
  store_relaxed(&memo->here, here);
  store_relaxed(&memo->number, number);
  for (unsigned i = 0; i <= reads->count; i++) {
    uint64_t place = i < reads->count ? place_among(reads, i) : 0;
    sum = mixed(sum, place);
    store_relaxed(&memo->steps[i], step_of(sum, place));
    if (place != 0) sum = mixed(sum, word_at(here, place));
  }
}

HAK_COLD void memo_forget(void) {
  for (unsigned i = 0; i < 1 << MEMO_SHIFT; i++) store_relaxed(&memos[i].here, (uint64_t)0);
}
