/* pressure.c - the callback of hak_on_pressure reports that the container's limit is near (HAK_PRESSURE_NEAR) before it is urgent.
 *
 * In files: a folder with the files of a control group, which the check writes, is mounted over the system's. The mount is in the
 * process's own namespace, for which the process may first have to become root of a user namespace.
 * Idle: the same, while the process makes no calls (HAKMEM_DECAY_MS=-1).
 * In a group: container.py has put the process into a real group with the limit GROUP_LIMIT, and the process fills it. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <hakmem/hakmem.h>
#include <hakmem/pressure.h>

#include "check.h"
#include "filter.h"

enum { MIB = 1 << 20, HEAP = 16, CACHE = 32, MOST = 4096 };
#define LIMIT ((uint64_t)1024 * MIB)
/* How much more use may be reported than the files say: the heap's growth since they were read. */
#define GROWTH ((uint64_t)4 * MIB)

/* ---- What the callback gets ---- */

static struct {
  unsigned calls;
  hak_pressure_t last;
  uint64_t ms[2]; /* the times of the last two calls, the newer last */
} told;
static void *cache[CACHE]; /* blocks of 1 MiB, which the program could do without */

static uint64_t now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static size_t callback(const hak_pressure_t *pressure, void *argument) {
  size_t freed = 0;
  CHECK(argument == &told);
  CHECK_EQ(pressure->struct_size, sizeof *pressure);
  told.calls++;
  told.last = *pressure;
  told.ms[0] = told.ms[1];
  told.ms[1] = now_ms();
  for (int i = 0; i < CACHE; i++) {
    freed += cache[i] != NULL ? MIB : 0;
    free(cache[i]);
    cache[i] = NULL;
  }
  return freed;
}

static void *touched(size_t size) {
  void *block = malloc(size);
  if (block != NULL) memset(block, 1, size);
  return block;
}

static void cache_fill(void) {
  for (int i = 0; i < CACHE; i++) cache[i] = touched(MIB);
}

static hak_stats_t stats_now(void) {
  hak_stats_t stats = {.struct_size = sizeof stats};
  CHECK(hak_stats_get(&stats));
  return stats;
}

/* Makes calls that only cause the limits to be checked when it is time: each large block takes a slow path, and the small one gives
 * the thread a heap, which keeps the time of the next check. */
static void pass_time(void) {
  void *small = touched(100);
  for (int i = 0; i < 8; i++) free(touched(MIB / 8));
  free(small);
  usleep(1000);
}

/* ---- The files of a group ---- */

static char folder[] = "/tmp/hakmem-pressure-XXXXXX";
static const char *kind; /* "" or "memory/": where in the folder the files are */
static const char *const *names; /* of the files of the limit and the use, and of the line of inactive files */
static const char *const names_v1[] = {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"};
static const char *const names_v2[] = {"memory.max", "memory.current", "inactive_file"};

/* Writes a file in place, since the keeper has it open, and in one write of a constant length with numbers of a constant width, so that
 * a reader never sees it half written. */
__attribute__((format(printf, 2, 3))) static void file_write(const char *name, const char *format, ...) {
  char path[200], text[200];
  va_list list;
  va_start(list, format);
  int length = vsnprintf(text, sizeof text, format, list);
  va_end(list);
  memset(text + length, '\n', sizeof text - (size_t)length);
  snprintf(path, sizeof path, "%s/%s%s", folder, kind, name);
  int file = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  CHECK(file >= 0 && write(file, text, sizeof text) == sizeof text && close(file) == 0);
}

static uint64_t part(unsigned permille) { return LIMIT / 1000 * permille; }

static void use_set(uint64_t used, uint64_t files) {
  file_write("memory.stat", "cache 0\n%s %020llu\n", names[2], (unsigned long long)files);
  file_write(names[1], "%020llu\n", (unsigned long long)used);
}

static void stalls_set(uint64_t microseconds) {
  file_write("memory.pressure", "some avg10=0.00 avg60=0.00 avg300=0.00 total=%020llu\nfull total=0\n", (unsigned long long)microseconds);
}

static void folder_remove(void) {
  for (int i = 0; i < 2; i++) {
    char path[200];
    snprintf(path, sizeof path, "%s/%s%s", folder, kind, names[i]);
    unlink(path);
  }
  char path[200];
  for (const char *const *name = (const char *const[]){"memory.stat", "memory.pressure", NULL}; *name != NULL; name++) {
    snprintf(path, sizeof path, "%s/%s%s", folder, kind, *name);
    unlink(path);
  }
  snprintf(path, sizeof path, "%s/%s", folder, kind);
  rmdir(path);
  rmdir(folder);
}

/* Whether /proc/self/cgroup puts the process in a group of that version; hakmem then searches its path below the mount. */
static bool has_version(const char *line) {
  char text[4096];
  int file = open("/proc/self/cgroup", O_RDONLY | O_CLOEXEC);
  ssize_t length = file >= 0 ? read(file, text, sizeof text - 1) : -1;
  if (file >= 0) close(file);
  if (length <= 0) return false;
  text[length] = '\0';
  return strstr(text, line) != NULL;
}

static void mount_files(void) {
  bool root = geteuid() == 0;
  if (unshare(root ? CLONE_NEWNS : CLONE_NEWUSER | CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
      mount(folder, "/sys/fs/cgroup", NULL, MS_BIND, NULL) != 0) {
    folder_remove();
    check_skip("no folder can be mounted in the place of the system's control groups here");
  }
}

static void files_begin(bool version_1) {
  kind = version_1 ? "memory/" : "";
  names = version_1 ? names_v1 : names_v2;
  if (!has_version(version_1 ? ":memory:/" : "0::/")) check_skip("the kernel tells of no such group");
  if (mkdtemp(folder) == NULL) check_skip("no folder can be made in /tmp");
  char path[200];
  snprintf(path, sizeof path, "%s/%s", folder, kind);
  if (version_1) CHECK_EQ(mkdir(path, 0700), 0);
  file_write(names[0], "%llu\n", (unsigned long long)LIMIT);
  use_set(part(500), 0);
  if (!version_1) stalls_set(1);
  mount_files();
  hak_on_pressure(callback, &told);
}

/* Makes a heap that is big enough to check limits, and that keeps its size. */
static void heap_make(void) {
  static void *heap;
  heap = touched(HEAP * MIB);
  CHECK(heap != NULL);
  cache_fill();
  while (stats_now().limit != LIMIT) pass_time();
  CHECK_EQ(stats_now().limit_level, 0);
}

static void is_told(uint32_t level, uint64_t used) {
  unsigned before = told.calls;
  while (told.calls == before) pass_time();
  CHECK_EQ(told.last.level, level);
  CHECK_EQ(told.last.limit, LIMIT);
  CHECK_EQ(told.last.wanted, 0);
  CHECK(told.last.used >= used && told.last.used <= used + GROWTH);
}

/* hakmem checks the limits, and does not call the callback. */
static void is_not_told(unsigned level) {
  unsigned before = told.calls;
  while (stats_now().limit_level != level) pass_time();
  for (uint64_t looks = stats_now().limit_looks; stats_now().limit_looks < looks + 1;) pass_time();
  CHECK_EQ(told.calls, before);
}

static void told_as_it_becomes_scarce(void) {
  heap_make();
  use_set(part(800), 0);
  is_not_told(1); /* a quarter is left: hakmem gives back more, the program need not */
  hak_stats_t before = stats_now();
  use_set(part(900), 0);
  is_told(HAK_PRESSURE_NEAR, part(900));
  CHECK(stats_now().purged >= before.purged + (uint64_t)CACHE * MIB); /* what the callback has freed */
  is_told(HAK_PRESSURE_NEAR, part(900)); /* again, but not immediately */
  CHECK(told.ms[1] - told.ms[0] >= 900);
  use_set(part(950), 0);
  is_told(HAK_PRESSURE_URGENT, part(950));
  use_set(part(950), part(50)); /* inactive file pages do not count as use */
  is_told(HAK_PRESSURE_NEAR, part(900));
  use_set(part(500), 0);
  is_not_told(0);
}

TEST(pressure_near_in_files_of_version_1) {
  files_begin(true);
  told_as_it_becomes_scarce();
  folder_remove();
}

TEST(pressure_near_in_files_of_version_2) {
  files_begin(false);
  told_as_it_becomes_scarce();
  use_set(part(800), 0);
  is_not_told(1);
  /* A group that waits for memory more than a tenth of the time is nearer to its limit than the figures say. */
  uint64_t stalled = 1000000;
  for (unsigned before = told.calls; told.calls == before; pass_time()) {
    stalls_set(stalled += 2000);
  }
  CHECK_EQ(told.last.level, HAK_PRESSURE_NEAR);
  CHECK(told.last.used < part(875));
  folder_remove();
}

/* ---- A heap that grows faster than the files may be read ---- */

/* The program is called when one more such growth would bring it near the limit, as at the next check it may be urgent.  The block is not
 * written to; the files already count it, in case they are read after all. */
static void grown_fast(bool version_1) {
  const uint64_t use = (uint64_t)770 * MIB, growth = (uint64_t)65 * MIB;
  files_begin(version_1);
  heap_make();
  use_set(use, 0);
  for (uint64_t looks = stats_now().limit_looks; stats_now().limit_looks < looks + 2;) pass_time();
  CHECK_EQ(told.calls, 0);
  use_set(use + growth, 0);
  void *block = malloc(growth); /* a check is due, but too early to read the files */
  CHECK_EQ(told.calls, 1);
  CHECK_EQ(told.last.level, HAK_PRESSURE_NEAR);
  CHECK(told.last.used + GROWTH >= use + 2 * growth && told.last.used <= use + 2 * growth + GROWTH);
  free(block);
  folder_remove();
}

TEST(pressure_fast_growth_in_files_of_version_1) { grown_fast(true); }
TEST(pressure_fast_growth_in_files_of_version_2) { grown_fast(false); }

/* ---- The option container is switched off ---- */

static void switched_off(bool version_1) {
  if (!hak_option_set("container", 1)) check_skip("its options are sealed");
  files_begin(version_1);
  heap_make();
  use_set(part(800), 0);
  is_not_told(1);
  use_set(part(950), 0);
  is_told(HAK_PRESSURE_URGENT, part(950));
  CHECK(hak_option_set("limit_hard", -10)); /* percent, already in use: no more memory can be had */
  while (touched((size_t)HEAP * MIB) != NULL) {
  }
  unsigned calls = told.calls;
  CHECK(hak_option_set("container", 0));
  hak_stats_t stats = stats_now(); /* with no call between that could check the limits */
  CHECK_EQ(stats.limit_level, 0);
  CHECK_EQ(stats.limit, 0);
  CHECK_EQ(stats.limit_use, 0);
  void *block = touched((size_t)HEAP * MIB); /* a percentage of no limit is no limit */
  CHECK(block != NULL);
  free(block);
  for (uint64_t until = now_ms() + 300; now_ms() < until;) pass_time();
  CHECK_EQ(stats_now().limit_looks, stats.limit_looks);
  CHECK_EQ(stats_now().limit_level, 0);
  CHECK_EQ(told.calls, calls);
  CHECK(hak_option_set("limit_hard", 0));
  CHECK(hak_option_set("container", 1));
  is_told(HAK_PRESSURE_URGENT, part(950));
  CHECK(stats_now().limit_looks > stats.limit_looks);
  folder_remove();
}

TEST(pressure_off_in_files_of_version_1) { switched_off(true); }
TEST(pressure_off_in_files_of_version_2) { switched_off(false); }

/* A limit that the program has set in bytes still holds, and nothing of the container's limit does. */
TEST(pressure_off_in_files_leaves_a_limit_in_bytes) {
  if (!hak_option_set("limit_soft", MIB)) check_skip("its options are sealed");
  files_begin(false);
  void *heap = touched(HEAP * MIB);
  while (stats_now().limit_looks == 0 || stats_now().limit != MIB) pass_time();
  CHECK(hak_option_set("container", 0));
  CHECK_EQ(stats_now().limit, MIB);
  CHECK_EQ(stats_now().limit_level, 3);
  CHECK(hak_option_set("limit_soft", -10)); /* it would be exceeded, if there were a limit */
  CHECK_EQ(stats_now().limit_level, 0);
  for (int i = 0; i < 100; i++) pass_time();
  CHECK_EQ(stats_now().limit_level, 0);
  free(heap);
  folder_remove();
}

TEST(pressure_off_in_files_forgets_who_waited) {
  if (!hak_option_set("container", 1)) check_skip("its options are sealed");
  files_begin(false);
  heap_make();
  for (uint64_t stalled = 1000000; stats_now().limit_level != 1; pass_time()) stalls_set(stalled += 2000);
  CHECK(hak_option_set("container", 0));
  for (int i = 0; i < 300; i++) pass_time();
  CHECK_EQ(stats_now().limit_level, 0);
  folder_remove();
}

/* ---- A percentage of the limit when the kernel's files are read no more ---- */

/* The heap grows only by the room that the last reading left. */
TEST(pressure_percent_in_files_hold_under_a_filter) {
  if (!hak_option_set("limit_hard", -60)) check_skip("its options are sealed");
  files_begin(false);
  hak_on_pressure(NULL, NULL);
  heap_make();
  for (uint64_t looks = stats_now().limit_looks; stats_now().limit_looks < looks + 2;) pass_time();
  static filter_t filter;
  filter_answer(&filter, FILTER_ALLOWED);
  CHECK(filter_install(&filter, false) == NULL);
  uint64_t room = LIMIT / 10, got = 0; /* six tenths, of which five are used */
  while (got <= 2 * room && malloc(MIB) != NULL) got += MIB;
  CHECK(got >= room - 2 * GROWTH && got <= room + 2 * GROWTH);
  folder_remove();
}

/* ---- A process that makes no calls ---- */

enum { IDLE = 64 };

static size_t resident_pages(void *block) {
  static unsigned char pages[IDLE * MIB / 4096];
  size_t count = 0, size = (size_t)sysconf(_SC_PAGESIZE);
  CHECK_EQ(mincore(block, (size_t)IDLE * MIB, pages), 0);
  for (size_t i = 0; i < (size_t)IDLE * MIB / size; i++) count += pages[i] & 1;
  return count;
}

/* The number of entries of a folder of /proc. */
static unsigned entries(const char *path) {
  char text[4096];
  unsigned count = 0;
  int file = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  CHECK(file >= 0);
  for (long bytes; (bytes = syscall(SYS_getdents64, file, text, sizeof text)) > 0;) {
    for (long at = 0; at < bytes; at += *(unsigned short *)(void *)(text + at + 16)) count++;
  }
  close(file);
  return count;
}

/* Begins far from the limit, with a large freed block that stays resident. */
static void *idle_begin(bool version_1) {
  if (getenv("HAKMEM_DECAY_MS") == NULL) check_skip("confined.pressure_idle runs it");
  files_begin(version_1);
  unsigned files = entries("/proc/self/fd"), threads = entries("/proc/self/task");
  heap_make();
  void *block = touched((size_t)IDLE * MIB);
  free(block);
  CHECK(entries("/proc/self/task") > threads); /* the keeper runs, */
  CHECK_EQ(entries("/proc/self/fd"), files); /* and the files it has open are not among the program's */
  for (uint64_t looks = stats_now().limit_looks; stats_now().limit_looks < looks + 2;) usleep(1000);
  CHECK_EQ(stats_now().limit_level, 0);
  CHECK_EQ(resident_pages(block), (size_t)IDLE * MIB / (size_t)sysconf(_SC_PAGESIZE));
  return block;
}

/* Waits until the block has gone back, except what the heap may have reused of it. */
static void is_given_back(void *block) {
  const size_t pages = (size_t)IDLE * MIB / (size_t)sysconf(_SC_PAGESIZE);
  while (resident_pages(block) > pages / 64) usleep(1000);
  while (entries("/proc/self/task") > 3) usleep(1000); /* counts "." and ".."; the keeper ends, since nothing is left to give back */
  hak_stats_t stats = stats_now();
  CHECK_EQ(stats.limit_level, 3);
  CHECK(stats.limit_given >= (uint64_t)(IDLE - 1) * MIB);
}

static void idle_gives_back(bool version_1) {
  void *block = idle_begin(version_1);
  for (int file = 3; file < 256; file++) close(file); /* as a daemon does when it starts; the numbers are then reused */
  for (int i = 0; i < 16; i++) CHECK(open("/dev/null", O_RDONLY) >= 0);
  unsigned calls = told.calls;
  use_set(part(950), 0);
  is_given_back(block);
  CHECK_EQ(told.calls, calls); /* only a thread of the program calls the callback */
  pass_time();
  CHECK(told.calls > calls && told.last.level == HAK_PRESSURE_URGENT);
  folder_remove();
}

TEST(pressure_idle_in_version_1) { idle_gives_back(true); }
TEST(pressure_idle_in_version_2) { idle_gives_back(false); }

/* The keeper notices this even far from a limit. */
TEST(pressure_idle_sees_who_waits_for_memory) {
  idle_begin(false);
  for (uint64_t stalled = 1000000; stats_now().limit_level == 0; usleep(1000)) stalls_set(stalled += 2000);
  CHECK_EQ(stats_now().limit_level, 1);
  while (stats_now().limit_level != 0) usleep(1000); /* the waiting is over */
  folder_remove();
}

/* A child gets its own keeper once it has made calls. */
TEST(pressure_idle_in_a_child) {
  void *block = idle_begin(false);
  uint64_t starts = stats_now().keeper_starts;
  int ready[2];
  char byte = 0;
  CHECK_EQ(pipe(ready), 0);
  pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (stats_now().keeper_starts == starts) pass_time();
    CHECK_EQ(write(ready[1], &byte, 1), 1);
    is_given_back(block);
    _exit(0);
  }
  CHECK(child > 0 && read(ready[0], &byte, 1) == 1);
  use_set(part(950), 0);
  is_given_back(block);
  int status;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  folder_remove();
}

/* ---- A real group ---- */

/* Slowly, because a heap that grows by an eighth of the limit before the files may be read again skips to the next level. */
static void *touched_slowly(void) {
  usleep(5000);
  return touched(MIB);
}

TEST(pressure_near_in_a_group) {
  const char *text = getenv("GROUP_LIMIT");
  if (text == NULL) check_skip("container.py runs it, in a group");
  uint64_t limit = strtoull(text, NULL, 10);
  bool stalls = access("/sys/fs/cgroup/memory", F_OK) != 0; /* version 2: a group that waits for memory may be called a level earlier */
  static void *blocks[MOST];
  int count = 0;
  hak_on_pressure(callback, &told);
  cache_fill();
  while (told.calls == 0 && count < MOST) blocks[count++] = touched_slowly();
  CHECK_EQ(told.last.level, HAK_PRESSURE_NEAR);
  CHECK_EQ(told.last.limit, limit);
  CHECK(told.last.used >= limit / 8 * (stalls ? 6 : 7) && told.last.used < limit / 16 * 15);
  CHECK(stats_now().limit_use <= told.last.used);
  int first = count; /* the freed cache has made room: the heap can grow by that and more */
  while (told.last.level == HAK_PRESSURE_NEAR && count < MOST) blocks[count++] = touched_slowly();
  CHECK_EQ(told.last.level, HAK_PRESSURE_URGENT);
  CHECK(told.last.used >= limit / 16 * (stalls ? 14 : 15));
  CHECK(count - first >= CACHE / 2);
  while (count > 0) free(blocks[--count]);
}

int main(int argc, char **argv) { return check_main(argc, argv); }
