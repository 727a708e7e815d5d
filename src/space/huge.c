#include "space/huge.h"

#include <string.h>

#include "os/os.h"
#include "kit/options.h"
#include "kit/pressure.h"
#include "space/ledger.h"
#include "space/split.h"

/* The last superslab is only partly used, and may be wholly resident: that is at most 1/16 of a heap of this size. */
#define HUGE_HEAP_UNITS (16 * WORD_UNITS)
/* How many large blocks in a row must have been dense, the most that are counted, and how often a superslab gets small pages to learn
 * anew. */
#define DENSE_ENOUGH 2
#define DENSE_MOST 8
#define PROBE_EVERY 16 /* superslabs */
#define SAMPLE_PAGES ((size_t)64)
/* The most savings that the trials may lose again, in superslabs of small pages; and the pause after a loss beyond them, in losses. */
#define CREDIT_MOST 4
#define PAUSE_LOSSES 16
/* A page that costs less than this fraction of a superslab's small pages is itself a small one. */
#define SMALL_SHARE 16

static _Atomic uint32_t dense_score;
static _Atomic uint32_t superslab_count;

/* How huge pages are obtained. */
typedef enum way { WAY_NEVER, WAY_TRIED, WAY_ALWAYS } way_t;
static _Atomic uint32_t system_way; /* the administrator's choice */

void huge_start(void) {
  char text[64];
  if (option_get(OPTION_huge) != 2) return;
  if (os_read_file("/sys/kernel/mm/transparent_hugepage/enabled", text, sizeof text) <= 0) return;
  if (strstr(text, "[always]") != NULL) store_relaxed(&system_way, (uint32_t)WAY_ALWAYS);
  if (strstr(text, "[madvise]") != NULL) store_relaxed(&system_way, (uint32_t)WAY_TRIED);
}

static way_t way(void) {
  static const way_t of_option[] = {WAY_NEVER, WAY_ALWAYS};
  int64_t option = option_get(OPTION_huge);
  return option == 2 ? (way_t)load_relaxed(&system_way) : of_option[option];
}

/* --- what one costs --------------------------------------------------------------------- */

/* A huge page costs a third of its small pages, or a hundred times as much where a hypervisor has to find the memory; and which of the two
 * it is changes.  So each huge page is brought in immediately and timed, and paid from what those before it have saved. */
static _Atomic uint64_t small_price, huge_price; /* of a superslab, in ns, as last measured; 0 before */
static _Atomic int64_t balance;                  /* ns saved */
static _Atomic uint64_t paused_until;            /* os_now_ms */
static _Atomic uint64_t trials, losses;

huge_figures_t huge_figures(void) {
  return (huge_figures_t){load_relaxed(&trials), load_relaxed(&losses), load_relaxed(&huge_price), load_relaxed(&small_price)};
}

/* Times a unit whose pages are about to be needed.  The price is a mean, since memory that the hypervisor has to find is no rare case. */
static void small_time(uint32_t unit) {
  uint64_t start = os_thread_ns(), mean = load_relaxed(&small_price);
  if (start == 0 || !os_populate(region_address(unit), HAK_UNIT)) return;
  uint64_t price = (os_thread_ns() - start) * WORD_UNITS;
  store_relaxed(&small_price, mean == 0 ? price : (3 * mean + price) / 4);
}

static void balance_note(int64_t saved) {
  int64_t most = CREDIT_MOST * (int64_t)load_relaxed(&small_price), sum = load_relaxed(&balance) + saved;
  store_relaxed(&balance, sum < 0 ? 0 : sum > most ? most : sum);
  if (sum >= 0) return;
  store_relaxed(&paused_until, os_now_ms() + (uint64_t)-sum * PAUSE_LOSSES / 1000000);
  add_relaxed(&losses, 1);
}

/* False if the superslab is one of small pages after all.  The price shows that.  So would mincore, but a filter that the program has
 * installed without libc may end the process for that call. */
static bool huge_bring_in(uint32_t s) {
  char *address = region_address(s * WORD_UNITS);
  uint64_t start = os_thread_ns();
  os_huge(address, HAK_SUPERSLAB, true);
  bool there = os_populate(address, os_page_size());
  uint64_t price = os_thread_ns() - start;
  bool whole = there && price >= load_relaxed(&small_price) / SMALL_SHARE;
  add_relaxed(&trials, 1);
  store_relaxed(&huge_price, price);
  balance_note((whole ? (int64_t)load_relaxed(&small_price) : 0) - (int64_t)price);
  if (!whole) os_huge(address, HAK_SUPERSLAB, false);
  return whole;
}

/* --- superslabs that are huge ----------------------------------------------------------- */

static bool is_huge(uint32_t s) { return s < region_superslabs() && load_relaxed(&region.superslabs[s].huge) != 0; }

static bool is_huge_beside(uint32_t s) { return is_huge(s - 1) || is_huge(s + 1); }

/* Rows are counted as they come and go, by the thread that changes a flag and then reads the neighbours' flags: two threads at neighbouring
 * superslabs may count one row too many or too few.  Where a row is refused all are counted anew. */
static void rows_count(void) {
  uint32_t rows = 0, before = 0;
  for (uint32_t i = 0, count = region_superslabs(); i < count; i++) {
    uint32_t huge = load_relaxed(&region.superslabs[i].huge);
    rows += huge & ~before;
    before = huge;
  }
  split_set(SPLIT_HUGE, rows);
}

/* Huge superslabs in a row are one mapping: one without huge neighbours begins a row, one between two joins their rows. */
static bool row_begun(uint32_t s) {
  if (is_huge(s - 1) && is_huge(s + 1)) split_give(SPLIT_HUGE);
  if (is_huge_beside(s) || split_take(SPLIT_HUGE)) return true;
  rows_count();
  return split_take(SPLIT_HUGE);
}

static void row_ended(uint32_t s) {
  if (is_huge(s - 1) && is_huge(s + 1)) split_add(SPLIT_HUGE);
  if (!is_huge_beside(s)) split_give(SPLIT_HUGE);
}

static bool huge_unset(uint32_t s) {
  _Atomic uint32_t *huge = &region.superslabs[s].huge;
  if (load_relaxed(huge) == 0 || atomic_exchange_explicit(huge, 0, memory_order_relaxed) == 0) return false;
  row_ended(s);
  return true;
}

static void huge_begin(uint32_t s, bool tried) {
  superslab_t *superslab = &region.superslabs[s];
  if (load_relaxed(&superslab->mapped) != UINT32_MAX || pressure_now() != PRESSURE_NONE) return;
  if (tried && (load_relaxed(&small_price) == 0 || os_now_ms() < load_relaxed(&paused_until))) return;
  if (load_relaxed(&superslab->huge) != 0 || !row_begun(s)) return;
  if (atomic_exchange_explicit(&superslab->huge, 1, memory_order_relaxed) != 0) return;
  if (!tried) os_huge(region_address(s * WORD_UNITS), HAK_SUPERSLAB, true);
  else if (!huge_bring_in(s)) (void)huge_unset(s);
}

static bool is_probe(void) { return atomic_fetch_add_explicit(&superslab_count, 1, memory_order_relaxed) % PROBE_EVERY == 0; }

void huge_slab_begin(uint32_t unit) {
  uint64_t used = ledger_used_units();
  if (HAK_LIKELY(used < HUGE_HEAP_UNITS) || way() == WAY_NEVER || ledger_idle_units() > used / 16) return;
  bool tried = way() == WAY_TRIED;
  if (tried && HAK_SECURE) return; /* guards would split such a page immediately */
  if (tried && is_probe()) small_time(unit);
  else huge_begin(unit / WORD_UNITS, tried);
}

void huge_large_begin(uint32_t s) {
  if (way() == WAY_ALWAYS && load_relaxed(&dense_score) >= DENSE_ENOUGH && !is_probe()) huge_begin(s, false);
}

/* Of superslabs [first, end), ends those that are huge, and advises the kernel of [lowest, beyond) in any case. */
static void end_and_advise(uint32_t first, uint32_t end, uint32_t lowest, uint32_t beyond) {
  for (uint32_t s = first; s < end; s++) {
    if (!huge_unset(s)) continue;
    if (s < lowest) lowest = s;
    if (s >= beyond) beyond = s + 1;
  }
  if (lowest < beyond) os_huge(region_address(lowest * WORD_UNITS), (size_t)(beyond - lowest) << HAK_SUPERSLAB_SHIFT, false);
}

void huge_end(uint32_t first, uint32_t end) { end_and_advise(first, end, end, first); }

void huge_end_span(uint32_t start, uint32_t units) {
  uint32_t lowest = (start + WORD_UNITS - 1) / WORD_UNITS, beyond = (start + units) / WORD_UNITS;
  uint32_t first = start / WORD_UNITS, end = (start + units - 1) / WORD_UNITS + 1;
  if (lowest >= beyond) huge_end(first, end);
  else end_and_advise(first, end, lowest, beyond);
}

void huge_move(uint32_t from, uint32_t to) {
  (void)huge_unset(to);
  if (is_huge(from)) {
    if (is_huge(to - 1) && is_huge(to + 1)) split_give(SPLIT_HUGE);
    if (!is_huge_beside(to)) split_add(SPLIT_HUGE);
    store_relaxed(&region.superslabs[to].huge, 1);
  }
  huge_end(from, from + 1); /* what comes next may use little of it */
}

uint64_t huge_count(void) {
  uint64_t huge = 0;
  for (uint32_t s = region_superslabs(); s-- > 0;) huge += load_relaxed(&region.superslabs[s].huge);
  return huge;
}

/* --- which will be full ----------------------------------------------------------------- */

/* Checks up to SAMPLE_PAGES pages of the superslab's upper half: so many pages of 64 KiB would be two superslabs. */
static bool is_dense(uint32_t s) {
  size_t pages = HAK_SUPERSLAB / 2 / os_page_size();
  if (pages > SAMPLE_PAGES) pages = SAMPLE_PAGES;
  return os_resident(region_address(s * WORD_UNITS + WORD_UNITS / 2), pages) * 16 >= pages * 15;
}

void huge_learn(uint32_t start, uint32_t units) {
  uint32_t s = (start + WORD_UNITS - 1) / WORD_UNITS;
  if (way() != WAY_ALWAYS || (s + 1) * WORD_UNITS > start + units) return;
  superslab_t *superslab = &region.superslabs[s];
  /* A huge page is resident as a whole, and pages that were moved here were written by others; where pages were moved away nothing is
   * resident. */
  if (load_relaxed(&superslab->huge) != 0 || load_relaxed(&superslab->moved) != 0 || load_relaxed(&superslab->dirty) == 0) return;
  uint32_t score = load_relaxed(&dense_score);
  if (!is_dense(s)) score = 0;
  else if (score < DENSE_MOST) score++;
  store_relaxed(&dense_score, score);
}
