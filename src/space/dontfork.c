#include "space/dontfork.h"

static _Atomic bool expected; /* nobody has looked yet */

/* A filter may refuse the call by which mapped pages are known: then nothing counts as missing. */
static HAK_COLD bool can_tell(void) {
  uintptr_t page = os_page_size();
  return os_is_mapped((void *)((uintptr_t)region.superslabs & ~(page - 1)), page);
}

/* Whether all units that the region has are mapped; one call for each row of them. */
static HAK_COLD bool all_is_mapped(void) {
  uint32_t units = load_relaxed(&region.units), start = 0;
  for (uint32_t unit = 0; unit <= units;) {
    uint32_t mapped = unit < units ? load_relaxed(&region.superslabs[unit / WORD_UNITS].mapped) : 0;
    if ((mapped >> unit % WORD_UNITS & 1) != 0) {
      unit += mapped == UINT32_MAX && unit % WORD_UNITS == 0 ? WORD_UNITS : 1;
      continue;
    }
    if (unit > start && !os_is_mapped(region_address(start), (unit - start) * HAK_UNIT)) return false;
    start = ++unit;
  }
  return true;
}

/* A child of a process that lacks pages is one, too: in the secure library a page that was mapped again has lost its canaries. */
HAK_COLD void dontfork_after_fork(void) {
  if (region.base == 0 || (dontfork_seen() && !load_relaxed(&expected))) return;
  store_relaxed(&os_fork.pages_missing, !all_is_mapped() && can_tell());
  store_relaxed(&expected, false);
}

HAK_COLD void dontfork_expect(void) {
  if (load_relaxed(&os_filters) == 0) {
    dontfork_after_fork();
  } else if (region.base != 0 && !dontfork_seen()) {
    store_relaxed(&expected, true);
    store_relaxed(&os_fork.pages_missing, true);
  }
}

/* Widens the range to whole pages. */
static char *pages_of(const void *start, size_t *bytes) {
  uintptr_t page = os_page_size(), from = (uintptr_t)start & ~(page - 1);
  *bytes = bits_round_up((uintptr_t)start + *bytes, page) - from;
  return (char *)from;
}

HAK_COLD bool dontfork_is_mapped(const void *start, size_t bytes) {
  char *from = pages_of(start, &bytes);
  return os_is_mapped(from, bytes) || !can_tell();
}

/* A mapping is made only where nothing is mapped, so a part with both is halved. */
static HAK_COLD bool pages_mend(char *from, size_t bytes) {
  if (os_is_mapped(from, bytes)) return true;
  os_map_result_t result = os_map_at(from, bytes);
  if (result == OS_MAPPED) os_huge(from, bytes, false); /* as what lies around it */
  if (result != OS_TAKEN) return result == OS_MAPPED;
  size_t page = os_page_size(), half = bytes / page / 2 * page;
  if (half == 0) return os_is_mapped(from, bytes); /* another thread was faster */
  return pages_mend(from, half) && pages_mend(from + half, bytes - half);
}

HAK_COLD bool dontfork_map(void *start, size_t bytes) {
  char *from = pages_of(start, &bytes);
  return os_is_mapped(from, bytes) || !can_tell() || pages_mend(from, bytes);
}
