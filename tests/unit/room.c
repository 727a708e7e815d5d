/* room.c - the index of superslabs with free units, checked against a scan of all superslabs. */
#include "space/room.h"

#include "unit.h"

enum { SUPERSLABS = 5 * ROOM_GROUP + 7, ROUNDS = 4000 };

static room_t rooms[SUPERSLABS / ROOM_GROUP + 1];
static superslab_t superslabs[SUPERSLABS];

static bool has_row(uint32_t free, unsigned units) {
  for (unsigned at = 0, row = 0; at < WORD_UNITS; at++) {
    row = (free >> at & 1) != 0 ? row + 1 : 0;
    if (row == units) return true;
  }
  return false;
}

static uint32_t next_by_looking(uint32_t from, uint32_t end, unsigned level) {
  while (from < end && !has_row(load_relaxed(&superslabs[from].free), 1u << level)) from++;
  return from;
}

static void give(uint32_t s, uint32_t mask) { room_note(rooms, s, atomic_fetch_or(&superslabs[s].free, mask) | mask); }
static void take(uint32_t s, uint32_t mask) { atomic_fetch_and(&superslabs[s].free, ~mask); }

static void forget_all(void) {
  memset(rooms, 0, sizeof rooms);
  memset(superslabs, 0, sizeof superslabs);
}

static bool is_kept(uint32_t s, unsigned level) {
  return (load_relaxed(&rooms[s / ROOM_GROUP].may_have[level]) >> s % ROOM_GROUP & 1) != 0;
}

TEST(a_search_finds_what_a_look_at_each_superslab_finds) {
  uint64_t seed = unit_seed();
  forget_all();
  for (unsigned round = 0; round < ROUNDS; round++) {
    uint32_t s = unit_below(&seed, SUPERSLABS), length = 1 + unit_below(&seed, WORD_UNITS);
    uint32_t mask = bits_mask32(unit_below(&seed, WORD_UNITS - length + 1), length);
    if (unit_below(&seed, 3) == 0) give(s, mask);
    else take(s, mask);
    uint32_t from = unit_below(&seed, SUPERSLABS + 1), end = from + unit_below(&seed, SUPERSLABS - from + 1);
    unsigned level = unit_below(&seed, ROOM_LEVELS);
    CHECK_EQ(room_next(rooms, superslabs, from, end, level), next_by_looking(from, end, level));
  }
}

TEST(units_side_by_side_are_noted_as_one_row) {
  forget_all();
  give(100, 0x0f);
  CHECK_EQ(room_next(rooms, superslabs, 0, SUPERSLABS, 3), SUPERSLABS);
  give(100, 0xf0);
  CHECK_EQ(room_next(rooms, superslabs, 0, SUPERSLABS, 3), 100);
  CHECK_EQ(room_next(rooms, superslabs, 101, SUPERSLABS, 3), SUPERSLABS);
  CHECK_EQ(room_next(rooms, superslabs, 0, 100, 3), 100); /* no match: the end of the search */
  CHECK_EQ(room_next(rooms, superslabs, 0, SUPERSLABS, 4), SUPERSLABS);
  give(100, UINT32_MAX);
  CHECK_EQ(room_next(rooms, superslabs, 0, SUPERSLABS, ROOM_LEVELS - 1), 100);
}

/* The search removes the note, so the next search does not check there. */
TEST(a_search_drops_what_is_no_longer_so) {
  forget_all();
  give(100, 0xff);
  take(100, 0xf0);
  CHECK(is_kept(100, 3)); /* taking is not noted */
  CHECK_EQ(room_next(rooms, superslabs, 0, SUPERSLABS, 3), SUPERSLABS);
  CHECK(!is_kept(100, 3) && is_kept(100, 2));
  CHECK_EQ(room_next(rooms, superslabs, 0, SUPERSLABS, 2), 100);
  give(100, 0xf0);
  CHECK(is_kept(100, 3));
}

#if HAK_AUDIT
TEST(an_audit_sees_what_was_not_noted) {
  forget_all();
  give(100, 0xff);
  CHECK(room_has_noted(rooms, 100, 0xff));
  CHECK(!room_has_noted(rooms, 100, 0xffff)); /* sixteen in a row were not noted */
}
#endif
