/* space.c - spans of units, against a model, while the kernel fails.
 *
 * The model knows which units are in which span, and the word written to each.  After each operation every usable unit is free or
 * in a span, never both, and the counts are right.  A span reported as zero is zero; units in use keep their content, and are moved
 * as a whole or not at all.  A request for a span may fail only after a failure of the kernel, or if there is no room. */
#include <string.h>

#include "fake_os.h"
#include "fuzz.h"
#include "kit/options.h"
#include "space/huge.h"
#include "space/ledger.h"
#include "space/move.h"
#include "space/purge.h"
#include "space/span.h"

enum { UNITS = 16384, SPANS = 48, WORD = HAK_UNITS_PER_SUPERSLAB };

typedef struct span {
  uint32_t start, units; /* 0 units: none */
} span_t;

static span_t spans[SPANS];
static uint8_t owner[UNITS];  /* number of the span + 1, or 0 */
static uint64_t mark[UNITS];  /* first word of a unit in use */
static uint64_t marks;
static bool crowded; /* there is a foreign mapping in the region's way */

static bool is_mapped(uint32_t unit) { return (load_relaxed(&region.superslabs[unit / WORD].mapped) >> unit % WORD & 1) != 0; }
static bool is_free(uint32_t unit) { return (load_relaxed(&region.superslabs[unit / WORD].free) >> unit % WORD & 1) != 0; }
static uint64_t *word_at(uint32_t unit) { return region_address(unit); }

/* --- judgement --------------------------------------------------------------------------- */

static void check_unit(uint32_t unit) {
  bool used = owner[unit] != 0;
  if (is_mapped(unit) ? is_free(unit) == used : used || is_free(unit)) {
    fuzz_fail(__FILE__, __LINE__, "unit %u is %s", unit,
              used              ? "free, or not mapped, while in use"
              : is_mapped(unit) ? "lost"
                                : "free and not mapped");
  }
  if (used) FUZZ_EQ(*word_at(unit), mark[unit]);
}

static void check_all(void) {
  uint64_t used = 0, mapped = 0;
  uint32_t units = load_relaxed(&region.units);
  for (uint32_t unit = 0; unit < units; unit++) {
    check_unit(unit);
    used += owner[unit] != 0;
    mapped += is_mapped(unit);
  }
  ledger_census_t census = ledger_census();
  FUZZ_EQ(census.used_units, used);
  FUZZ_EQ(census.free_units, mapped - used);
  FUZZ_EQ(ledger_used_units(), used);
  FUZZ_EQ(ledger_idle_units(), census.dirty_free_units);
  FUZZ_CHECK(!ledger_in_flight());
}

/* The region steps over foreign mappings and may so leave the model's range: then the run ends. */
static bool is_outgrown(void) { return load_relaxed(&region.units) > UNITS; }

/* --- spans ------------------------------------------------------------------------------- */

static void units_enter(unsigned i, uint32_t start, uint32_t units) {
  FUZZ_CHECK((uint64_t)start + units <= load_relaxed(&region.units) && !is_outgrown());
  for (uint32_t unit = start; unit < start + units; unit++) {
    FUZZ_EQ(owner[unit], 0);
    owner[unit] = (uint8_t)(i + 1);
    *word_at(unit) = mark[unit] = ++marks;
  }
}

static void take(unsigned i, uint32_t units, uint64_t align, span_use_t use) {
  bool zero = false;
  uint64_t injected = fake_os_injected(), room = UNITS - load_relaxed(&region.units);
  uint32_t start = span_alloc(units, align, use, &zero);
  if (start == SPAN_NONE) {
    FUZZ_CHECK(fake_os_injected() != injected || crowded || units + align - 1 > room);
    return;
  }
  FUZZ_EQ(((region.base >> HAK_UNIT_SHIFT) + start) % align, 0);
  if (is_outgrown()) return;
  for (uint32_t unit = start; zero && unit < start + units; unit++) FUZZ_EQ(*word_at(unit), 0);
  units_enter(i, start, units);
  spans[i] = (span_t){start, units};
}

static void units_leave(uint32_t start, uint32_t units) {
  for (uint32_t unit = start; unit < start + units; unit++) {
    FUZZ_EQ(*word_at(unit), mark[unit]);
    owner[unit] = 0;
  }
}

static void give(unsigned i) {
  span_t s = spans[i];
  units_leave(s.start, s.units);
  spans[i].units = 0;
  span_free(s.start, s.units);
}

static uint32_t input_units(void) {
  unsigned byte = input_byte();
  return byte < 128 ? 1 + byte % 8 : byte < 224 ? 1 + byte % 64 : 1 + (byte % 32) * 8;
}

/* --- operations -------------------------------------------------------------------------- */

static void op_take(void) {
  unsigned i = input_below(SPANS), align = input_byte();
  uint32_t units = input_units();
  if (spans[i].units != 0) give(i);
  take(i, units, align < 128 ? 1 : (uint64_t)1 << align % 9, (span_use_t)(align >> 4 & 3) % 3);
}

static unsigned input_span(void) {
  unsigned from = input_below(SPANS);
  for (unsigned n = 0; n < SPANS; n++) {
    if (spans[(from + n) % SPANS].units != 0) return (from + n) % SPANS;
  }
  return SPANS;
}

static void op_give(void) {
  unsigned i = input_span();
  if (i < SPANS) give(i);
}

/* Frees only the first or the last units of a span. */
static void op_give_part(void) {
  unsigned i = input_span(), n = input_byte();
  if (i == SPANS || spans[i].units < 2) return;
  span_t *s = &spans[i];
  uint32_t units = 1 + n % (s->units - 1), start = (n & 1) != 0 ? s->start : s->start + s->units - units;
  units_leave(start, units);
  if (start == s->start) s->start += units;
  s->units -= units;
  span_free(start, units);
}

static void op_claim(void) {
  unsigned i = input_span();
  uint32_t units = input_units();
  if (i == SPANS) return;
  span_t *s = &spans[i];
  if (!span_claim(s->start + s->units, units) || is_outgrown()) return;
  units_enter(i, s->start + s->units, units);
  s->units += units;
}

static void op_purge(void) {
  unsigned how = input_below(4);
  uint64_t before = purge_bytes();
  if (how == 0) (void)purge_all();
  else if (how != 1) (void)purge_due();
  else if (!purge_step(purge_last_step(), NULL)) FUZZ_EQ(purge_bytes(), before);
}

static void op_purge_span(void) {
  unsigned i = input_span();
  if (i == SPANS) return;
  span_t s = spans[i];
  bool purged = purge_span(s.start, s.units);
  for (uint32_t unit = s.start; purged && unit < s.start + s.units; unit++) {
    FUZZ_EQ(*word_at(unit), 0);
    *word_at(unit) = mark[unit];
  }
}

static void op_move(void) {
  unsigned from = input_span(), to = input_span();
  if (from == SPANS || from == to) return;
  uint32_t least = spans[from].units < spans[to].units ? spans[from].units : spans[to].units;
  uint32_t moved = move_pages(spans[from].start, spans[to].start, least);
  FUZZ_CHECK(moved <= least && moved % WORD == 0);
  for (uint32_t n = 0; n < moved; n++) {
    uint32_t source = spans[from].start + n, target = spans[to].start + n;
    FUZZ_EQ(*word_at(target), mark[source]);
    *word_at(target) = mark[target];
    mark[source] = 0;
  }
  if (moved > 0) give(from); /* as the caller in the library does: nothing may be written there any more */
}

static void op_learn(void) {
  unsigned i = input_span();
  fake_os_set_resident(input_below(4) * 32);
  if (i < SPANS) huge_learn(spans[i].start, spans[i].units);
}

/* If the region cannot hold a span, the span cannot be allocated. */
static void op_may_hold(void) {
  uint32_t units = (uint32_t)input_byte() << input_below(10), before = load_relaxed(&region.units);
  uint64_t align = (uint64_t)1 << input_below(32), injected = fake_os_injected();
  bool zero, may = region_may_hold(units + 1, align);
  FUZZ_EQ(load_relaxed(&region.units), before);
  if (!may && fake_os_injected() == injected) FUZZ_EQ(span_alloc(units + 1, align, SPAN_PLAIN, &zero), SPAN_NONE);
}

static void op_neighbour(void) {
  uint32_t unit = load_relaxed(&region.units) + input_byte();
  if (unit >= UNITS || os_map_at(region_address(unit), os_page_size()) != OS_MAPPED) return;
  crowded = true;
}

static void op_time(void) { fake_os_pass_time((uint64_t)input_byte() * 4); }

static void op_option(void) {
  static const struct {
    option_t option;
    int64_t values[4];
  } options[] = {
      {OPTION_decay_ms, {0, -1, 100, 1000}},
      {OPTION_idle_percent, {0, 12, 50, 1000000}},
      {OPTION_huge, {0, 1, 2, 1}},
      {OPTION_move, {0, 1, 1, 1}},
  };
  unsigned n = input_below(4), value = input_below(4);
  FUZZ_CHECK(option_set(options[n].option, options[n].values[value]));
}

static void op_failures(void) {
  static const unsigned kinds[] = {FAKE_ANY, FAKE_TAKING, FAKE_ONLY(FAKE_PURGE), FAKE_ONLY(FAKE_MOVE) | FAKE_ONLY(FAKE_RENEW)};
  unsigned which = input_below(6), first = 1 + input_below(8), count = input_below(8);
  fake_os_fail_map_at_as(which == 5 ? OS_TAKEN : OS_NOMEM);
  if (which == 4) fake_os_fail_none();
  else fake_os_fail(which == 5 ? FAKE_ONLY(FAKE_MAP_AT) : kinds[which], first, count == 7 ? UINT64_MAX : count);
}

static uint32_t used_in_model(uint32_t unit) {
  const span_t *s = owner[unit] != 0 ? &spans[owner[unit] - 1] : NULL;
  return s != NULL && s->start == unit ? s->units : 0;
}

/* As in a fork's child, after threads that are gone have held spans. */
static void op_recover(void) {
  for (unsigned n = input_below(4); n > 0; n--) {
    bool zero;
    uint32_t start = span_alloc(input_units(), 1, SPAN_PLAIN, &zero);
    if (start != SPAN_NONE) *word_at(start) = ++marks;
  }
  region_after_fork(false);
  span_recover(used_in_model);
}

/* --- a run ------------------------------------------------------------------------------- */

static void (*const ops[])(void) = {
    op_take, op_take,       op_take,  op_take, op_give,     op_give,      op_give_part, op_claim,  op_purge,    op_purge,
    op_move, op_purge_span, op_learn, op_time, op_may_hold, op_neighbour, op_time,      op_option, op_failures, op_recover,
};
enum { OPS = sizeof ops / sizeof ops[0] };

static bool start(void) {
  unsigned byte = input_byte();
  if ((byte & 1) != 0) fake_os_set_address_limit((uint64_t)1 << 40);
  if ((byte & 6) == 6) fake_os_set_page_size(65536);
  if ((byte & 8) != 0) fake_os_fail(FAKE_ANY, 1 + (byte >> 4), 1);
  if (region_init((uint64_t)1 << 30)) return true;
  fake_os_fail_none();
  return region_init((uint64_t)1 << 30);
}

void fuzz_target(void) {
  FUZZ_CHECK(start());
  while (!input_ends()) {
    ops[input_byte() % OPS]();
    if (is_outgrown()) return;
    check_all();
  }
  fake_os_fail_none();
  for (unsigned i = 0; i < SPANS; i++) {
    if (spans[i].units != 0) give(i);
  }
  check_all();
  (void)purge_all();
  FUZZ_EQ(ledger_census().dirty_free_units, 0);
  check_all();
}
