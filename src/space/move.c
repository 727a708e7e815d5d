#include "space/move.h"

#include "os/os.h"
#include "kit/options.h"
#include "space/huge.h"
#include "space/ledger.h"
#include "space/split.h"

#define NO_SUPERSLAB UINT32_MAX
#define LOOKED_AT 512 /* superslabs, in the search for an idle one: 1 GiB */

static _Atomic uint64_t moved_ever;

static bool superslab_move(uint32_t from, uint32_t to) {
  superslab_t *source = &region.superslabs[from], *target = &region.superslabs[to];
  if (option_get(OPTION_move) == 0) return false;
  bool splits = load_relaxed(&target->moved) == 0;
  if (splits && !split_take(SPLIT_MOVE)) return false;
  uint32_t before = atomic_exchange_explicit(&target->dirty, UINT32_MAX, memory_order_relaxed); /* first: for a fork's child */
  if (!os_move(region_address(from * WORD_UNITS), region_address(to * WORD_UNITS), HAK_SUPERSLAB)) {
    store_relaxed(&target->dirty, before);
    if (splits) split_give(SPLIT_MOVE);
    return false;
  }
  if (atomic_exchange_explicit(&target->moved, 1, memory_order_relaxed) != 0 && splits) split_give(SPLIT_MOVE);
  store_relaxed(&source->dirty, 0);
  huge_move(from, to);
  add_relaxed(&moved_ever, 1);
  return true;
}

void move_forget(uint32_t superslab) {
  if (atomic_exchange_explicit(&region.superslabs[superslab].moved, 0, memory_order_relaxed) != 0) split_give(SPLIT_MOVE);
}

uint64_t move_count(void) { return load_relaxed(&moved_ever); }

/* Claims a superslab that is idle as a whole, the highest, since spans are taken from the bottom.  A large heap is scanned in parts, one a
 * call. */
static uint32_t idle_claim(void) {
  static _Atomic uint32_t rest;
  uint32_t end = load_relaxed(&rest), count = region_superslabs();
  if (end == 0 || count <= LOOKED_AT) end = count;
  uint32_t start = end > LOOKED_AT ? end - LOOKED_AT : 0;
  store_relaxed(&rest, start);
  for (uint32_t s = end; s-- > start;) {
    superslab_t *superslab = &region.superslabs[s];
    uint32_t all = UINT32_MAX;
    if (load_relaxed(&superslab->free) != all || load_relaxed(&superslab->dirty) != all) continue;
    if (!atomic_compare_exchange_strong_explicit(&superslab->free, &all, 0, memory_order_acq_rel, memory_order_relaxed)) continue;
    store_relaxed(&rest, s);
    return s;
  }
  return NO_SUPERSLAB;
}

bool move_idle_to(uint32_t superslab) {
  if (ledger_idle_units() < WORD_UNITS || option_get(OPTION_move) == 0) return false;
  ledger_note_in_flight(true);
  uint32_t source = idle_claim();
  bool moved = false;
  if (source != NO_SUPERSLAB) {
    ledger_note_hidden(WORD_UNITS);
    moved = load_relaxed(&region.superslabs[source].dirty) == UINT32_MAX && superslab_move(source, superslab);
    ledger_release(source, UINT32_MAX);
    ledger_note_hidden(-(int64_t)WORD_UNITS);
  }
  ledger_note_in_flight(false);
  return moved;
}

uint32_t move_pages(uint32_t from, uint32_t to, uint32_t units) {
  if (from % WORD_UNITS != 0 || to % WORD_UNITS != 0) return 0;
  uint32_t moved = 0;
  while (moved + WORD_UNITS <= units && superslab_move((from + moved) / WORD_UNITS, (to + moved) / WORD_UNITS)) moved += WORD_UNITS;
  return moved;
}
