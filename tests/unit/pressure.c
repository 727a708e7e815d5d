/* pressure.c - how near a limit is and what that changes, as arithmetic only; and the files of control groups, as texts. */
#include "kit/pressure.h"

#include "base/config.h"
#include "os/cgroup.h"
#include "os/file.h"
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "unit.h"

enum { MIB = 1 << 20 };

TEST(levels_follow_what_is_left) {
  const uint64_t limit = (uint64_t)1024 * MIB;
  CHECK_EQ(pressure_of(0, 0), PRESSURE_NONE);
  CHECK_EQ(pressure_of(limit, 0), PRESSURE_NONE);
  CHECK_EQ(pressure_of((uint64_t)767 * MIB, limit), PRESSURE_NONE);
  CHECK_EQ(pressure_of((uint64_t)768 * MIB, limit), PRESSURE_LOW);
  CHECK_EQ(pressure_of((uint64_t)896 * MIB, limit), PRESSURE_NEAR);
  CHECK_EQ(pressure_of((uint64_t)960 * MIB, limit), PRESSURE_URGENT);
  CHECK_EQ(pressure_of(2 * limit, limit), PRESSURE_URGENT);
}

TEST(a_large_limit_is_far_while_much_is_left) {
  const uint64_t limit = (uint64_t)64 << 30;
  CHECK_EQ(pressure_of(limit - ((uint64_t)3 << 30), limit), PRESSURE_NONE);
  CHECK_EQ(pressure_of(limit - PRESSURE_ROOM, limit), PRESSURE_LOW);
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
  CHECK_EQ(pressure_cap_of((uint64_t)100 * MIB, (uint64_t)60 * MIB, 40 * 16), 80 * 16); /* others use 20 */
  CHECK_EQ(pressure_cap_of((uint64_t)100 * MIB, (uint64_t)10 * MIB, 40 * 16), 100 * 16); /* the heap's memory is not written to yet */
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
  for (pressure_level_t level = PRESSURE_NONE; level <= PRESSURE_URGENT; level++) {
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
  pressure_set(PRESSURE_NEAR, PRESSURE_MAX, 910, 1000);
  pressure_note_given(100);
  pressure_set(PRESSURE_LOW, PRESSURE_MAX, 800, 1000);
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

/* ---- a folder in place of the mounted groups ---- */

static char root[] = "/tmp/hakmem-groups-XXXXXX";

static void group_file(const char *group, const char *name, const char *text) {
  char path[256];
  snprintf(path, sizeof path, "%s%s", root, group);
  (void)mkdir(path, 0700);
  snprintf(path, sizeof path, "%s%s/%s", root, group, name);
  FILE *file = fopen(path, "w");
  REQUIRE(file);
  fputs(text, file);
  fclose(file);
}

static void group_of_v2(const char *group, const char *max, const char *high, const char *current) {
  group_file(group, "memory.max", max);
  if (high != NULL) group_file(group, "memory.high", high);
  group_file(group, "memory.current", current);
}

static cgroup_text_t room;

static void root_make(void) { REQUIRE(mkdtemp(root)); }

static void root_remove(void) {
  char command[64];
  snprintf(command, sizeof command, "rm -r %s", root);
  CHECK_EQ(system(command), 0);
}

static bool find(cgroup_t *group, const char *text, bool high) { return cgroup_find_in(group, text, "/nowhere", root, high); }

static bool ends_in(const cgroup_t *group, const char *end) {
  size_t length = strlen(group->path), part = strlen(end);
  return length >= part && strcmp(group->path + length - part, end) == 0;
}

TEST(of_a_group_and_those_around_it_the_tightest_counts) {
  cgroup_t group;
  root_make();
  group_of_v2("/pod", "1000000\n", "max\n", "900000\n");
  group_of_v2("/pod/box", "500000\n", "max\n", "100000\n");
  CHECK(find(&group, "0::/pod/box\n", true));
  CHECK_EQ(group.version, CGROUP_V2);
  CHECK_EQ(group.limit, 1000000);
  CHECK_EQ(group.use, 900000);
  CHECK(ends_in(&group, "/pod"));
  group_of_v2("/pod", "max\n", "max\n", "900000\n");
  CHECK(find(&group, "0::/pod/box\n", true));
  CHECK_EQ(group.limit, 500000);
  CHECK(ends_in(&group, "/pod/box"));
  group_of_v2("/pod/box", "max\n", "max\n", "100000\n");
  CHECK(find(&group, "0::/pod/box\n", true)); /* a limit may be set later */
  CHECK_EQ(group.limit, CGROUP_NONE);
  CHECK(ends_in(&group, "/pod/box"));
  root_remove();
}

TEST(the_mount_itself_is_a_container_s_group) {
  cgroup_t group;
  root_make();
  group_of_v2("", "500000\n", NULL, "100000\n");
  CHECK(find(&group, "0::/\n", true));
  CHECK_EQ(group.limit, 500000);
  CHECK(find(&group, "0::/of/the/host\n", true)); /* without a cgroup namespace */
  CHECK_EQ(group.limit, 500000);
  root_remove();
}

TEST(the_high_mark_is_a_limit_where_it_is_asked_for) {
  cgroup_t group;
  root_make();
  group_of_v2("/box", "500000\n", "400000\n", "100000\n");
  CHECK(find(&group, "0::/box\n", true));
  CHECK_EQ(group.limit, 400000);
  CHECK_EQ(group.by, CGROUP_FILE_HIGH);
  CHECK(find(&group, "0::/box\n", false));
  CHECK_EQ(group.limit, 500000);
  CHECK_EQ(group.by, CGROUP_FILE_MAX);
  root_remove();
}

TEST(version_1_has_its_names) {
  cgroup_t group;
  root_make();
  group_file("/box", "memory.limit_in_bytes", "500000\n");
  group_file("/box", "memory.usage_in_bytes", "100000\n");
  group_file("/box", "memory.stat", "inactive_file 1\ntotal_inactive_file 70000\n");
  CHECK(cgroup_find_in(&group, "4:cpu,memory:/box\n3:pids:/other\n0::/\n", root, "/nowhere", true));
  CHECK_EQ(group.version, CGROUP_V1);
  CHECK_EQ(group.limit, 500000);
  CHECK_EQ(group.use, 100000);
  CHECK_EQ(cgroup_reclaimable(&group, &room), 70000);
  CHECK(!cgroup_find_in(&group, "4:memory_not:/box\n", root, "/nowhere", true));
  root_remove();
}

TEST(what_is_read_again_and_what_the_kernel_would_give_up) {
  cgroup_t group;
  char path[CGROUP_PATH];
  root_make();
  group_of_v2("/box", "500000\n", "max\n", "100000\n");
  CHECK(find(&group, "0::/box\n", true));
  CHECK_EQ(cgroup_reclaimable(&group, &room), 0);
  CHECK_EQ(cgroup_stalled_us(&group), 0);
  group_file("/box", "memory.stat", "anon 5\nfile 90000\ninactive_file 60000\nactive_file 30000\n");
  group_file("/box", "memory.pressure", "some avg10=0.00 avg60=0.00 avg300=0.00 total=1234\nfull avg10=0.00 total=5\n");
  CHECK_EQ(cgroup_reclaimable(&group, &room), 60000);
  CHECK_EQ(cgroup_stalled_us(&group), 1234);
  group_of_v2("/box", "600000\n", "max\n", "200000\n");
  CHECK(cgroup_look(&group));
  CHECK_EQ(group.limit, 600000);
  CHECK_EQ(group.use, 200000);
  CHECK(cgroup_path(&group, CGROUP_FILE_MAX, path));
  CHECK_EQ(access(path, R_OK), 0);
  /* The same through open files, which are read again each time. */
  cgroup_open_files_t files;
  cgroup_open(&group, &files);
  cgroup_t other = {.version = group.version, .files = &files};
  CHECK(cgroup_look(&other));
  CHECK_EQ(other.limit, 600000);
  CHECK_EQ(other.use, 200000);
  CHECK_EQ(cgroup_reclaimable(&other, &room), 60000);
  CHECK_EQ(cgroup_stalled_us(&other), 1234);
  group_of_v2("/box", "600000\n", "500000\n", "300000\n");
  CHECK(cgroup_look(&other));
  CHECK_EQ(other.limit, 500000); /* a limit that was set in the meantime */
  CHECK_EQ(other.by, CGROUP_FILE_HIGH);
  CHECK_EQ(other.use, 300000);
  for (int i = 0; i < CGROUP_FILES; i++) file_close(files.of[i]);
  CHECK(!cgroup_look(&other));
  root_remove();
  CHECK(!cgroup_look(&group)); /* the group is gone */
  CHECK(!find(&group, "0::/box\n", true));
}

TEST(a_child_looks_for_itself) {
  store_relaxed(&pressure.look_at, UINT64_MAX); /* the thread that checks and the thread that reports are not in the child */
  store_relaxed(&pressure.callback_thread, (uintptr_t)7);
  store_relaxed(&pressure.contained, true);
  pressure_after_fork(8);
  CHECK_EQ(load_relaxed(&pressure.look_at), PRESSURE_FIRST_UNITS);
  CHECK_EQ(load_relaxed(&pressure.callback_thread), 0);
  CHECK(load_relaxed(&pressure.forked));
  CHECK(!load_relaxed(&pressure.contained));
  store_relaxed(&pressure.callback_thread, (uintptr_t)8); /* the reporting thread forks inside the callback */
  pressure_after_fork(8);
  CHECK_EQ(load_relaxed(&pressure.callback_thread), 8);
}
