/* pressure.c - how near a limit is, and what that changes: arithmetic alone; and the files of control groups as texts. */
#include "kit/pressure.h"

#include "base/config.h"
#include "os/cgroup.h"
#include "unit.h"

enum { MIB = 1 << 20 };

TEST(levels_follow_what_is_left) {
  const uint64_t limit = (uint64_t)1024 * MIB;
  CHECK_EQ(pressure_of(0, 0), PRESSURE_FAR);
  CHECK_EQ(pressure_of(limit, 0), PRESSURE_FAR);
  CHECK_EQ(pressure_of((uint64_t)767 * MIB, limit), PRESSURE_FAR);
  CHECK_EQ(pressure_of((uint64_t)768 * MIB, limit), PRESSURE_NEAR);
  CHECK_EQ(pressure_of((uint64_t)896 * MIB, limit), PRESSURE_HIGH);
  CHECK_EQ(pressure_of((uint64_t)960 * MIB, limit), PRESSURE_URGENT);
  CHECK_EQ(pressure_of(2 * limit, limit), PRESSURE_URGENT);
}

TEST(a_large_limit_is_far_while_much_is_left) {
  const uint64_t limit = (uint64_t)64 << 30;
  CHECK_EQ(pressure_of(limit - ((uint64_t)3 << 30), limit), PRESSURE_FAR);
  CHECK_EQ(pressure_of(limit - PRESSURE_ROOM, limit), PRESSURE_NEAR);
  CHECK_EQ(pressure_of(limit - PRESSURE_ROOM / 4, limit), PRESSURE_URGENT);
}

TEST(the_next_look_comes_before_the_limit) {
  const uint64_t limit = (uint64_t)256 * MIB;
  for (uint64_t use = 0; use < limit; use += MIB) {
    uint64_t step = pressure_step(use, limit) << HAK_UNIT_SHIFT;
    CHECK(step >= 2 * MIB && step <= limit / 16);
    CHECK(step == 2 * MIB || step <= (limit - use) / 4);
  }
}

TEST(what_others_use_is_not_the_heaps) {
  CHECK_EQ(pressure_cap_of((uint64_t)100 * MIB, (uint64_t)60 * MIB, 40 * 16), 80 * 16); /* others have 20 */
  CHECK_EQ(pressure_cap_of((uint64_t)100 * MIB, (uint64_t)10 * MIB, 40 * 16), 100 * 16); /* not written to yet */
  CHECK_EQ(pressure_cap_of((uint64_t)10 * MIB, (uint64_t)60 * MIB, 40 * 16), 0);
}

TEST(amounts_are_bytes_or_percent) {
  CHECK_EQ(pressure_amount(0, 1000), UINT64_MAX);
  CHECK_EQ(pressure_amount(5, 0), 5);
  CHECK_EQ(pressure_amount(-80, 1000), 800);
  CHECK_EQ(pressure_amount(-80, 0), UINT64_MAX);
}

TEST(decay_shortens_with_the_level) {
  static const int64_t wanted[] = {1000, 250, 62, 15};
  for (pressure_level_t level = PRESSURE_FAR; level <= PRESSURE_URGENT; level++) {
    pressure_set(level, PRESSURE_MAX, 1, 2);
    CHECK_EQ(pressure_decay(1000), wanted[level]);
    CHECK_EQ(pressure_decay(-1), -1);
    CHECK_EQ(pressure_decay(0), 0);
    CHECK_EQ(pressure_decay(1), 1);
  }
}

TEST(what_is_given_back_is_counted_near_a_limit) {
  pressure_note_given(100);
  CHECK_EQ(load_relaxed(&pressure.given), 0);
  pressure_set(PRESSURE_HIGH, PRESSURE_MAX, 910, 1000);
  pressure_note_given(100);
  pressure_set(PRESSURE_NEAR, PRESSURE_MAX, 800, 1000);
  pressure_note_given(20);
  CHECK_EQ(load_relaxed(&pressure.given), 120);
  CHECK_EQ(load_relaxed(&pressure.given_percent), 91);
}

TEST(numbers_of_the_kernel) {
  CHECK_EQ(cgroup_number("max\n"), CGROUP_NONE);
  CHECK_EQ(cgroup_number(""), CGROUP_NONE);
  CHECK_EQ(cgroup_number("4096\n"), 4096);
  CHECK_EQ(cgroup_number("9223372036854771712\n"), CGROUP_NONE);
  CHECK_EQ(cgroup_number("99999999999999999999999\n"), CGROUP_NONE);
}
