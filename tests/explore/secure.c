/* secure.c - the scenarios of the secure library, where every change of live bits is one locked step.
 *
 * Its judge looks at live bits alone: what waits in quarantines is in none of the places that judge.c knows. */
#include <unistd.h>

#include "explore.h"
#include "product.h"
#include "space/region.h"
#include "target.h"

/* Of so many that one word of the live map covers them. */
#define TINY ((size_t)8)
enum { BLOCKS = 4 };

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

/* Out of the freer's quarantine, to the owner. */
static void give_0_at_last(void) {
  give(0);
  target_trim();
}
static void give_1(void) { give(1); }
static void collect(void) { target_trim(); }
static void take_another(void) { (void)target_take(TINY); }

static void judge_live(void) {
  for (unsigned i = 0; i < BLOCKS; i++) {
    if (region_is_live(a[i]) == given[i]) explore_fail("block %u is %s", i, given[i] ? "live and was freed" : "held and not live");
  }
}

const scenario_t scenarios[] = {
    {"collect_and_free", four_tiny, {collect, give_0_at_last, give_1}, judge_live, NULL, 2, 3},
    {"take_and_free", four_tiny, {take_another, give_0_at_last, give_1}, judge_live, NULL, 2, 3},
};
const size_t scenario_count = sizeof scenarios / sizeof scenarios[0];

size_t product_count(void) { return 0; }
const scenario_t *product_cell(size_t i) { return (void)i, NULL; }
