/* product.c - remote frees: each geometry, with each fate of the owner, each next use of the units, and each set of freers.
 *
 * In every cell a slab S has two blocks left, in its first and its last unit, and the slab may end when they are freed.  Its
 * units are the tightest fit for what is taken next. */
#include "product.h"

#include <stdio.h>

#include "judge.h"
#include "program.h"
#include "target.h"

typedef enum geometry { NARROW, WIDE, GEOMETRIES } geometry_t; /* slabs of one unit, of four */
typedef enum ender { BUSY, IDLE, EXITING, GONE, ADOPTED, ENDERS } ender_t;
typedef enum next { SAME, OTHER, LARGE, LEFT, NEXTS } next_t;
typedef enum freer { BY_OWNER, BY_ONE, BY_TWO, BY_OTHERS, BY_HELPER, FREERS } freer_t;

static const char *const geometry_names[] = {"narrow", "wide"};
static const char *const ender_names[] = {"busy", "idle", "exiting", "gone", "adopted"};
static const char *const next_names[] = {"same", "other", "large", "free"};
static const char *const freer_names[] = {"owner", "one", "two", "others", "helper"};

/* Block sizes, eight of which fill a slab; large blocks of as many units as a slab; then two classes that have no slab yet. */
static const size_t block_bytes[] = {8192, 32768};
static const size_t large_bytes[] = {60000, 250000};
#define OTHER_BYTES ((size_t)64)
#define TAKER_BYTES ((size_t)16)
enum { BLOCKS = 8, LAST = BLOCKS - 1 };

static struct {
  geometry_t geometry;
  ender_t ender;
  next_t next;
  freer_t freer;
  unsigned taker; /* the identity of the actor that takes what comes next, if any does */
  char name[64];
  scenario_t scenario;
} cell;

static void *b[2 * BLOCKS]; /* the blocks of S, then those of another slab, which stays */

static size_t size(void) { return block_bytes[cell.geometry]; }

static uint32_t slab_of(const void *block) { return unit_number(unit_head((uint32_t)region_unit(block))); }

/* --- the actors ------------------------------------------------------------------------------ */

static void give_first(void) { give(b[0]); }
static void give_last(void) { give(b[LAST]); }
static void give_both(void) { give_first(), give_last(); }
/* Two freers queue two slabs. */
static void give_last_and_another(void) { give_last(), give(b[BLOCKS]); }

/* Takes what is left of the class and one block more, for which the allocator must collect what others have freed. */
static void run_out(void) {
  void *taken[BLOCKS - 1];
  for (unsigned i = 0; i < BLOCKS - 1; i++) taken[i] = take(size());
  for (unsigned i = 0; i < BLOCKS - 1; i++) give(taken[i]);
}

static void owner(void) {
  if (cell.ender == ADOPTED) (void)take(size());
  if (cell.freer == BY_OWNER) give_first();
  switch (cell.ender) {
    case BUSY: run_out(), target_trim(); break;
    case IDLE: give(take(size())); break;
    case EXITING: target_end_thread(); break;
    default: target_trim(); break;
  }
}

static void take_next(void) {
  const size_t bytes[] = {[SAME] = size(), [OTHER] = OTHER_BYTES, [LARGE] = large_bytes[cell.geometry]};
  (void)take(bytes[cell.next]);
}

/* --- the state before ------------------------------------------------------------------------ */

static void prepare(void) {
  start();
  target_run_as(0);
  for (unsigned i = 0; i < 2 * BLOCKS; i++) b[i] = take(size());
  for (unsigned i = 1; i < LAST; i++) give(b[i]);
  /* A busy owner has only the rest of S in its bin.  The other owners have emptied their bins, so that S can end. */
  if (cell.ender != BUSY) {
    for (unsigned i = BLOCKS + 2; i < 2 * BLOCKS; i++) give(b[i]);
    target_trim();
  }
  if (cell.freer == BY_OTHERS) target_marked_by(slab_of(b[0]), OUTSIDER);
  if (cell.ender == IDLE) target_nearly_idle(&target_heap_of(0)->owner, 1);
  if (cell.next != LEFT && cell.next != SAME) { /* a taker of the same class has no heap yet, and may get the owner's */
    target_run_as(cell.taker);
    give(take(TAKER_BYTES));
    target_run_as(0);
  }
  if (cell.ender == GONE || cell.ender == ADOPTED) target_end_thread();
}

/* --- the cells ------------------------------------------------------------------------------- */

/* An owner that is gone frees nothing. */
static bool exists(size_t number) { return number / FREERS / NEXTS % ENDERS != GONE || number % FREERS != BY_OWNER; }

static void plan(void) {
  cell.scenario = (scenario_t){.name = cell.name, .prepare = prepare, .judge = judge_end, .quick = 1, .soak = 2};
  void (**actors)(void) = cell.scenario.actors;
  unsigned n = 0;
  if (cell.ender != GONE) actors[n++] = owner;
  if (cell.freer == BY_OWNER) actors[n++] = give_last;
  if (cell.freer == BY_ONE || cell.freer == BY_HELPER) actors[n++] = give_both;
  if (cell.freer == BY_TWO || cell.freer == BY_OTHERS) actors[n++] = give_first, actors[n++] = give_last_and_another;
  if (cell.freer == BY_HELPER) actors[n++] = target_trim_others;
  cell.taker = n;
  if (cell.next != LEFT) actors[n++] = take_next;
}

const scenario_t *product_cell(size_t i) {
  size_t number = 0;
  while (!exists(number) || i-- > 0) number++;
  cell.freer = (freer_t)(number % FREERS);
  cell.next = (next_t)(number / FREERS % NEXTS);
  cell.ender = (ender_t)(number / FREERS / NEXTS % ENDERS);
  cell.geometry = (geometry_t)(number / FREERS / NEXTS / ENDERS);
  snprintf(cell.name, sizeof cell.name, "%s.%s.%s.%s", geometry_names[cell.geometry], ender_names[cell.ender], next_names[cell.next],
           freer_names[cell.freer]);
  plan();
  return &cell.scenario;
}

size_t product_count(void) {
  size_t count = 0;
  for (size_t number = 0; number < (size_t)GEOMETRIES * ENDERS * NEXTS * FREERS; number++) count += exists(number);
  return count;
}
