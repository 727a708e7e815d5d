/* guarded.c - guarded memory if the kernel refuses to make it inaccessible, or accessible again. */
#include "slab/unit.h"
#include "slab/slots.h"

#include "fake_os.h"
#include "kit/options.h"
#include "os/trace.h"
#include "slab/slab.h"
#include "space.h"
#include "space/span.h"
#include "unit.h"

enum { SLOTS = 4, SIZE = 100 };

static void start_guards(void) {
  trace_prepare();
  CHECK(option_set(OPTION_guard_slots, SLOTS));
  REQUIRE(region_init(SMALL_REGION));
}

static void fail_guards(uint64_t count) { fake_os_fail(FAKE_ONLY(FAKE_GUARD), 1, count); }

/* A new guarded block: it is zero, and belongs to the program from the first to the last byte. */
static char *new_guarded(void) {
  char *block = slot_alloc(SIZE);
  if (block == NULL) return NULL;
  CHECK(unit_is_zero(block, SIZE) && region_is_live(block) && slot_start(block + SIZE - 1) == block);
  return memset(block, 0x5a, SIZE);
}

static void free_guarded(char *block) {
  CHECK(region_clear_live(block));
  slot_free(block, "free");
}

/* ---- slots ---- */

TEST(a_slot_that_stays_inaccessible_is_passed_over_and_tried_again) {
  char *blocks[SLOTS];
  start_guards();
  for (int i = 0; i < SLOTS; i++) REQUIRE((blocks[i] = new_guarded()) != NULL);
  CHECK(new_guarded() == NULL);
  for (int i = 0; i < SLOTS; i++) free_guarded(blocks[i]);
  uint64_t before = fake_os_injected();
  fail_guards(2);
  CHECK(new_guarded() == NULL && new_guarded() == NULL);
  CHECK_EQ(fake_os_injected() - before, 2);
  for (int i = 0; i < SLOTS; i++) REQUIRE((blocks[i] = new_guarded()) != NULL);
  CHECK(new_guarded() == NULL);
}

/* Each live slot adds two to the mappings of the process, whose number is limited. */
TEST(slots_leave_the_program_half_of_its_mappings) {
  char *blocks[2];
  fake_os_set_map_limit(8);
  start_guards();
  for (int round = 0; round < 3; round++) {
    for (int i = 0; i < 2; i++) REQUIRE((blocks[i] = new_guarded()) != NULL);
    CHECK(new_guarded() == NULL);
    for (int i = 0; i < 2; i++) free_guarded(blocks[i]);
  }
}

TEST(a_slot_that_stays_accessible_is_used_again) {
  char *blocks[SLOTS];
  start_guards();
  for (int round = 0; round < 3; round++) {
    for (int i = 0; i < SLOTS; i++) REQUIRE((blocks[i] = new_guarded()) != NULL);
    fail_guards(SLOTS);
    for (int i = 0; i < SLOTS; i++) free_guarded(blocks[i]);
    fake_os_fail_none();
  }
  CHECK_EQ(fake_os_injected(), 3 * SLOTS);
}

/* Counts the units that are neither free nor in a span that is in use. */
static uint32_t units_kept(void) {
  uint32_t kept = 0;
  for (uint32_t unit = 0; unit < load_relaxed(&region.units); unit++) {
    if (!unit_is_mapped(unit) || unit_is_free(unit)) continue;
    CHECK_EQ(load_relaxed(&unit_head(unit)->kind), UNIT_GUARD);
    kept++;
  }
  return kept;
}

TEST(slots_that_cannot_be_made_inaccessible_give_their_units_back) {
  start_guards();
  fail_guards(1);
  CHECK(new_guarded() == NULL);
  CHECK_EQ(units_kept(), 0);
  CHECK(new_guarded() == NULL); /* the allocator tries only once */
}

TEST(slots_that_cannot_be_made_accessible_again_keep_their_units) {
  start_guards();
  fail_guards(2);
  CHECK(new_guarded() == NULL);
  CHECK_EQ(fake_os_injected(), 2);
  CHECK_EQ(units_kept(), (uint32_t)(bits_round_up((2 * SLOTS + 1) * os_page_size(), HAK_UNIT) >> HAK_UNIT_SHIFT));
  CHECK(new_guarded() == NULL);
}

/* ---- spans ---- */

TEST(a_span_that_stays_inaccessible_is_not_handed_out) {
  bool zero;
  start_guards();
  uint32_t unit = span_alloc(3, 1, SPAN_SLAB, &zero);
  REQUIRE(unit != SPAN_NONE);
  units_guard(unit, 3);
  fail_guards(1);
  units_unguard(unit, 3);
  CHECK_EQ(fake_os_injected(), 1);
  CHECK_EQ(units_kept(), 3);
  for (int i = 0; i < 200; i++) {
    uint32_t other = span_alloc(1, 1, SPAN_SLAB, &zero);
    REQUIRE(other != SPAN_NONE && (other < unit || other >= unit + 3));
    memset(region_address(other), 1, HAK_UNIT);
  }
}

TEST(a_span_that_is_accessible_again_is_zero) {
  bool zero;
  start_guards();
  uint32_t unit = span_alloc(3, 1, SPAN_SLAB, &zero);
  REQUIRE(unit != SPAN_NONE);
  memset(region_address(unit), 0x5a, 3 * HAK_UNIT);
  units_guard(unit, 3);
  units_unguard(unit, 3);
  CHECK_EQ(units_kept(), 0);
  uint32_t again = span_alloc(3, 1, SPAN_SLAB, &zero);
  CHECK_EQ(again, unit);
  CHECK(unit_is_zero(region_address(again), 3 * HAK_UNIT));
}
