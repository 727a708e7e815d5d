#include "os/memo.h"

#include "base/atomics.h"
#include "base/config.h"
#include "os/stack.h"

/* Places are words from the frame on, and one more: 16 bits each, so many in a word, and 0 behind the last. */
enum { PLACE_BITS = 16, PLACES = 64 / PLACE_BITS, PLACE_WORDS = UNWIND_READS / PLACES };

/* Of more than one writer perhaps: the sum is of all other words, so what was not written together is not believed. */
typedef struct memo {
  HAK_ALIGNED(HAK_CACHE_LINE) _Atomic uint64_t here;
  _Atomic uint64_t number, sum, places[PLACE_WORDS];
} memo_t;
_Static_assert(sizeof(memo_t) == HAK_CACHE_LINE, "a memo is one cache line");

#define MEMO_SHIFT 6
static HAK_APART memo_t memos[1 << MEMO_SHIFT];

static uint64_t mixed(uint64_t sum, uint64_t word) {
  uint64_t product = (sum ^ word) * UINT64_C(0x9e3779b97f4a7c15);
  return product ^ product >> 32;
}

static memo_t *memo_at(uintptr_t here) { return &memos[mixed(0, here) >> 8 & ((1 << MEMO_SHIFT) - 1)]; }

/* The sum goes on over the words at four places; false if one of them may not be readable: of `words`, all are. */
UNWATCHED static bool sum_of(uint64_t four, uintptr_t here, uintptr_t words, uint64_t *sum) {
  *sum = mixed(*sum, four);
  for (; four != 0; four >>= PLACE_BITS) {
    uintptr_t place = four & (((uint64_t)1 << PLACE_BITS) - 1);
    if (place > words) return false;
    *sum = mixed(*sum, ((const uint64_t *)here)[place - 1]);
  }
  return true;
}

bool memo_find(uintptr_t here, uint64_t *number) {
  const memo_t *memo = memo_at(here);
  if (load_relaxed(&memo->here) != here) return false;
  uintptr_t words = (stack_readable_end(here) - here) / sizeof(uint64_t);
  *number = load_relaxed(&memo->number);
  uint64_t sum = mixed(here, *number), four = 1;
  for (unsigned i = 0; i < PLACE_WORDS && four != 0; i++) {
    four = load_relaxed(&memo->places[i]);
    if (!sum_of(four, here, words, &sum)) return false;
  }
  return load_relaxed(&memo->sum) == sum;
}

void memo_keep(const unwind_reads_t *reads, uint64_t number) {
  uintptr_t here = reads->from, words = (stack_readable_end(here) - here) / sizeof(uint64_t);
  uint64_t places[PLACE_WORDS] = {0}, sum = mixed(here, number), four = 1;
  if (!reads->all || reads->count == 0) return;
  for (uint32_t i = 0; i < reads->count; i++) {
    uintptr_t place = (reads->place[i] - here) / sizeof(uint64_t) + 1;
    if (place >> PLACE_BITS != 0) return;
    places[i / PLACES] |= (uint64_t)place << i % PLACES * PLACE_BITS;
  }
  memo_t *memo = memo_at(here);
  for (unsigned i = 0; i < PLACE_WORDS && four != 0; i++) {
    four = places[i];
    if (!sum_of(four, here, words, &sum)) return;
    store_relaxed(&memo->places[i], four);
  }
  store_relaxed(&memo->here, here);
  store_relaxed(&memo->number, number);
  store_relaxed(&memo->sum, sum);
}

HAK_COLD void memo_forget(void) {
  for (unsigned i = 0; i < 1 << MEMO_SHIFT; i++) store_relaxed(&memos[i].here, (uint64_t)0);
}
