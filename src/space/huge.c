#include "space/huge.h"

#include <string.h>

#include "os/os.h"
#include "kit/options.h"
#include "space/ledger.h"

/* The last superslab is partly used, and may be wholly resident: at most 1/32 of a heap this large. */
#define HUGE_HEAP_UNITS (32 * WORD_UNITS)
/* Large blocks that must have been dense in a row, and how often one superslab is made of small pages to learn anew. */
#define DENSE_ENOUGH 2
#define DENSE_MOST 8
#define PROBE_EVERY 16 /* superslabs */
#define SAMPLE_PAGES ((size_t)64)

static _Atomic uint32_t dense_score;
static _Atomic uint32_t large_count;

static _Atomic bool system_always; /* what the administrator has chosen */

void huge_start(void) {
  char text[64];
  if (option_get(OPTION_huge) != 2) return;
  long length = os_read_file("/sys/kernel/mm/transparent_hugepage/enabled", text, sizeof text);
  store_relaxed(&system_always, length > 8 && memcmp(text, "[always]", 8) == 0);
}

static bool is_on(void) {
  int64_t huge = option_get(OPTION_huge);
  return huge == 1 || (huge == 2 && load_relaxed(&system_always));
}

static void huge_begin(uint32_t s) {
  if (load_relaxed(&region.superslabs[s].mapped) != UINT32_MAX) return;
  if (atomic_exchange_explicit(&region.superslabs[s].huge, 1, memory_order_relaxed) != 0) return;
  os_huge(region_address(s * WORD_UNITS), HAK_SUPERSLAB, true);
}

void huge_end(uint32_t first, uint32_t end) {
  uint32_t lowest = end, highest = first;
  for (uint32_t s = first; s < end; s++) {
    _Atomic uint32_t *huge = &region.superslabs[s].huge;
    if (load_relaxed(huge) == 0 || atomic_exchange_explicit(huge, 0, memory_order_relaxed) == 0) continue;
    if (s < lowest) lowest = s;
    highest = s;
  }
  if (lowest == end) return;
  os_huge(region_address(lowest * WORD_UNITS), (size_t)(highest + 1 - lowest) << HAK_SUPERSLAB_SHIFT, false);
}

uint64_t huge_count(void) {
  uint64_t huge = 0;
  for (uint32_t s = region_superslabs(); s-- > 0;) huge += load_relaxed(&region.superslabs[s].huge);
  return huge;
}

void huge_slab_begin(uint32_t superslab) {
  uint64_t used = ledger_used_units();
  if (HAK_LIKELY(used < HUGE_HEAP_UNITS) || !is_on() || ledger_idle_units() > used / 16) return;
  huge_begin(superslab);
}

void huge_large_begin(uint32_t superslab) {
  if (!is_on() || load_relaxed(&dense_score) < DENSE_ENOUGH) return;
  if (atomic_fetch_add_explicit(&large_count, 1, memory_order_relaxed) % PROBE_EVERY == 0) return;
  huge_begin(superslab);
}

/* Of the superslab's upper half, up to SAMPLE_PAGES: of 64 KiB these would be two superslabs. */
static bool is_dense(uint32_t s) {
  size_t pages = HAK_SUPERSLAB / 2 / os_page_size();
  if (pages > SAMPLE_PAGES) pages = SAMPLE_PAGES;
  return os_resident(region_address(s * WORD_UNITS + WORD_UNITS / 2), pages) * 16 >= pages * 15;
}

void huge_learn(uint32_t start, uint32_t units) {
  uint32_t s = (start + WORD_UNITS - 1) / WORD_UNITS;
  if (!is_on() || (s + 1) * WORD_UNITS > start + units) return;
  superslab_t *superslab = &region.superslabs[s];
  /* Huge pages are resident as a whole; so is what others wrote, nothing if it was moved away. */
  if (load_relaxed(&superslab->huge) != 0 || load_relaxed(&superslab->moved) != 0 || load_relaxed(&superslab->dirty) == 0) return;
  uint32_t score = load_relaxed(&dense_score);
  if (!is_dense(s)) score = 0;
  else if (score < DENSE_MOST) score++;
  store_relaxed(&dense_score, score);
}
