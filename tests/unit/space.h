/* space.h - what the tests of the space and of the layers above it look at. */
#ifndef TESTS_UNIT_SPACE_H
#define TESTS_UNIT_SPACE_H

#include "fake_os.h"
#include "space/region.h"

/* Enough for any test, and soon exhausted. */
#define SMALL_REGION ((uint64_t)1 << 30)

static inline bool unit_is_mapped(uint32_t unit) {
  return (load_relaxed(&region.superslabs[unit / HAK_UNITS_PER_SUPERSLAB].mapped) >> unit % HAK_UNITS_PER_SUPERSLAB & 1) != 0;
}

static inline bool unit_is_free(uint32_t unit) {
  return (load_relaxed(&region.superslabs[unit / HAK_UNITS_PER_SUPERSLAB].free) >> unit % HAK_UNITS_PER_SUPERSLAB & 1) != 0;
}

/* Usable units, a count. */
static inline uint32_t units_mapped(void) {
  uint32_t units = 0;
  for (uint32_t unit = 0; unit < load_relaxed(&region.units); unit++) units += unit_is_mapped(unit);
  return units;
}

/* As who has just found nothing. */
static inline bool grow(uint32_t units) { return region_grow(load_relaxed(&region.units), units); }

#endif
