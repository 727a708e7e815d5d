/* secure.c - the scenarios of the secure library, where every change of a live bit is an atomic read-modify-write.
 *
 * They are judged by live bits only: blocks that wait in quarantines are in none of the places that judge.c knows. */
#include <unistd.h>

#include "explore.h"
#include "product.h"
#include "space/region.h"
#include "target.h"

/* So small that one word of the live map covers several blocks. */
#define TINY ((size_t)8)
/* A ring of the quarantine holds four of these. */
#define BIG ((size_t)8000)
enum { BLOCKS = 4, USED = 5, WAITING = 6, JUDGED = 80 };

static void *a[BLOCKS];
static bool given[BLOCKS];

static void four_tiny(void) {
  static char *settings[] = {"HAKMEM_DECAY_MS=-1", "HAKMEM_REGION_MB=1024", "HAKMEM_KEEPER=0", NULL};
  environ = settings;
  target_ignore_figures();
  target_run_as(0);
  for (unsigned i = 0; i < BLOCKS; i++) a[i] = target_take(TINY);
}

static void give(unsigned i) {
  given[i] = true;
  target_give(a[i]);
}

/* Frees the block and flushes the freer's quarantine, so that the block goes to its owner. */
static void give_0_at_last(void) {
  give(0);
  target_trim();
}
static void give_1(void) { give(1); }
static void collect(void) { target_trim(); }
static void take_another(void) { (void)target_take(TINY); }

/* --- what another thread takes ------------------------------------------------------------------ */

static size_t size;
static void *used[USED], *waiting[WAITING];

/* Some blocks in the thread's bin, and some in its quarantine. */
static void cached(size_t bytes, unsigned wait) {
  four_tiny();
  size = bytes;
  for (unsigned i = 0; i < BLOCKS && bytes != TINY; i++) a[i] = target_take(bytes);
  for (unsigned i = 0; i < wait; i++) waiting[i] = target_take(bytes);
  for (unsigned i = 0; i < wait; i++) target_give(waiting[i]);
  memory_meet_barriers();
}
static void some_cached(void) { cached(TINY, 2); }
static void big_cached(void) { cached(BIG, WAITING); }

static void take_some(void) {
  for (unsigned i = 0; i < USED; i++) used[i] = target_take(size);
}
static void give_two(void) { give(0), give(1); }
static void give_two_and_take(void) { give_two(), used[0] = target_take(size), used[1] = target_take(size); }
static void trim_twice(void) { target_trim_others(), target_trim_others(); }

/* No block is in two places: malloc returns no block that is held, and none twice. */
static void judge_distinct(void) {
  void *taken[JUDGED + BLOCKS + USED];
  unsigned count = 0;
  for (unsigned i = 0; i < BLOCKS; i++) {
    if (!given[i]) taken[count++] = a[i];
  }
  for (unsigned i = 0; i < USED; i++) {
    if (used[i] != NULL) taken[count++] = used[i];
  }
  for (unsigned i = 0; i < JUDGED; i++) {
    target_run_as(i % 2);
    taken[count++] = target_take(size);
  }
  for (unsigned i = 0; i < count; i++) {
    for (unsigned k = 0; k < i; k++) {
      if (taken[i] == taken[k]) explore_fail("%p is given out twice", taken[i]);
    }
  }
}

static void judge_live(void) {
  for (unsigned i = 0; i < BLOCKS; i++) {
    if (region_is_live(a[i]) == given[i]) explore_fail("block %u is %s", i, given[i] ? "live and was freed" : "held and not live");
  }
}

const scenario_t scenarios[] = {
    {"collect_and_free", four_tiny, {collect, give_0_at_last, give_1}, judge_live, NULL, 2, 3},
    {"drained", some_cached, {take_some, target_trim_others}, judge_distinct, NULL, 2, 3},
    {"drained_twice", some_cached, {take_some, trim_twice}, judge_distinct, NULL, 1, 2},
    {"drained_quarantine", big_cached, {give_two, target_trim_others}, judge_distinct, NULL, 2, 3},
    {"drained_in_turn", big_cached, {give_two_and_take, target_trim_others}, judge_distinct, NULL, 2, 3},
    {"take_and_free", four_tiny, {take_another, give_0_at_last, give_1}, judge_live, NULL, 2, 3},
};
const size_t scenario_count = sizeof scenarios / sizeof scenarios[0];

size_t product_count(void) { return 0; }
const scenario_t *product_cell(size_t i) { return (void)i, NULL; }
