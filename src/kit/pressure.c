#include "kit/pressure.h"

#include "base/config.h"

#define STEP_LEAST ((uint64_t)2 << 20)

/* Slow paths read the first words; words that change often follow them. */
pressure_t pressure HAK_ALIGNED(HAK_CACHE_LINE) = {.look_at = PRESSURE_FIRST_UNITS};

/* Under a large limit, much is left even at three quarters, so the levels are also bounded by the absolute amount left. */
pressure_level_t pressure_of(uint64_t use, uint64_t limit) {
  if (limit == 0) return PRESSURE_NONE;
  uint64_t room = use < limit ? limit - use : 0, low = limit / 4 < PRESSURE_ROOM ? limit / 4 : PRESSURE_ROOM;
  if (room > low) return PRESSURE_NONE;
  if (room > low / 2) return PRESSURE_LOW;
  return room > low / 4 ? PRESSURE_NEAR : PRESSURE_URGENT;
}

uint64_t pressure_step(uint64_t use, uint64_t limit) {
  uint64_t step = use < limit ? (limit - use) / 4 : 0;
  if (step > limit / 16) step = limit / 16;
  if (step < STEP_LEAST) step = STEP_LEAST;
  return step >> HAK_UNIT_SHIFT;
}

uint64_t pressure_cap_of(uint64_t limit, uint64_t use, uint64_t heap_units) {
  uint64_t heap = heap_units << HAK_UNIT_SHIFT, others = use > heap ? use - heap : 0;
  return (limit > others ? limit - others : 0) >> HAK_UNIT_SHIFT;
}

uint64_t pressure_amount(int64_t option, uint64_t limit) {
  if (option > 0) return (uint64_t)option;
  if (option == 0 || limit == 0) return UINT64_MAX;
  return limit / 100 * (uint64_t)-option;
}

void pressure_set(pressure_level_t level, pressure_source_t source, uint64_t use, uint64_t limit) {
  store_relaxed(&pressure.source, (uint32_t)source);
  store_relaxed(&pressure.use, limit != 0 ? use : 0); /* no use without a limit */
  store_relaxed(&pressure.limit, limit);
  if (load_relaxed(&pressure.level) != (uint32_t)level) store_relaxed(&pressure.level, (uint32_t)level);
}

void pressure_note_given(uint64_t bytes) {
  if (HAK_LIKELY(bytes == 0 || pressure_now() == PRESSURE_NONE)) return;
  uint32_t percent = (uint32_t)pressure_percent(load_relaxed(&pressure.use), load_relaxed(&pressure.limit));
  add_relaxed(&pressure.given, bytes);
  if (percent <= load_relaxed(&pressure.given_percent)) return;
  store_relaxed(&pressure.given_percent, percent);
  store_relaxed(&pressure.given_source, load_relaxed(&pressure.source));
}

const char *pressure_use_name(pressure_source_t source) {
  switch (source) {
    case PRESSURE_MAX:
    case PRESSURE_HIGH_MARK: return "memory.current";
    case PRESSURE_V1: return "memory.usage_in_bytes";
    case PRESSURE_SOFT: return "the heap";
    default: return "nothing";
  }
}

const char *pressure_limit_name(pressure_source_t source) {
  switch (source) {
    case PRESSURE_MAX: return "memory.max";
    case PRESSURE_HIGH_MARK: return "memory.high";
    case PRESSURE_V1: return "memory.limit_in_bytes";
    case PRESSURE_SOFT: return "HAKMEM_LIMIT_SOFT";
    default: return "no limit";
  }
}

uint64_t pressure_percent(uint64_t use, uint64_t limit) { return limit < 100 ? 0 : use / (limit / 100); }

HAK_COLD void pressure_after_fork(uintptr_t thread) {
  if (load_relaxed(&pressure.callback_thread) != thread) store_relaxed(&pressure.callback_thread, (uintptr_t)0);
  store_relaxed(&pressure.forked, true);
  store_relaxed(&pressure.contained, false);
  store_relaxed(&pressure.look_at, PRESSURE_FIRST_UNITS);
}
