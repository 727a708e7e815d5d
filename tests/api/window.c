/* window.c - HAKMEM_WINDOW: a process reports what holds its memory in a file without a name, which no descriptor of the program leads to.
 *
 * Each check uses its own process, which has the option; processes with other settings are further runs of this program. */
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "leak.h"

enum { MOST_BYTES = 1 << 20, MIB = 1 << 20, PATIENCE_MS = 60000, QUIET_US = 500000, NUMBERS = 256 };

/* ---- the reader ---- */

static char path[300];

/* Searches among the descriptors of one thread; returns how many it has. */
static int look_in(const char *folder, bool *found) {
  DIR *files = opendir(folder);
  if (files == NULL) return 0;
  int count = 0;
  for (struct dirent *each; (each = readdir(files)) != NULL;) {
    char link[64] = "", name[300];
    snprintf(name, sizeof name, "%s/%.20s", folder, each->d_name);
    if (each->d_name[0] == '.' || readlink(name, link, sizeof link - 1) < 0) continue;
    count++;
    if (strncmp(link, "/memfd:hakmem-window ", 21) != 0) continue;
    *found = true;
    memcpy(path, name, sizeof path);
  }
  closedir(files);
  return count;
}

/* Whether any thread of the process has it. */
static bool is_there(pid_t process) {
  char folder[64], name[128];
  bool found = false;
  snprintf(folder, sizeof folder, "/proc/%d/task", (int)process);
  DIR *tasks = opendir(folder);
  if (tasks == NULL) return false;
  for (struct dirent *each; !found && (each = readdir(tasks)) != NULL;) {
    snprintf(name, sizeof name, "%s/%.20s/fd", folder, each->d_name);
    if (each->d_name[0] != '.') (void)look_in(name, &found);
  }
  closedir(tasks);
  return found;
}

static struct {
  char bytes[MOST_BYTES + 1];
  int process, newest;
  unsigned long ask_at, resident;
  char why[16];
} seen;

/* Returns false if there is no entry yet. */
static bool read_file(const char *name) {
  int fd = open(name, O_RDONLY | O_CLOEXEC), head_bytes, slots, slot_bytes;
  memset(&seen, 0, sizeof seen);
  seen.newest = -1;
  if (fd < 0) return false;
  ssize_t got = pread(fd, seen.bytes, MOST_BYTES, 0);
  close(fd);
  if (got <= 0 || sscanf(seen.bytes, "hakmem-blackbox 1\nprocess %d\nhead_bytes %d\nslots %d\nslot_bytes %d\nask_at %lu\n", &seen.process,
                         &head_bytes, &slots, &slot_bytes, &seen.ask_at) < 4)
    return false;
  for (int i = 0; i < slots; i++) {
    unsigned long resident;
    int number;
    char why[16];
    const char *slot = seen.bytes + head_bytes + (size_t)i * (size_t)slot_bytes;
    if (sscanf(slot, "entry %d %*u %*u %*u %lu %*u %*u %15s", &number, &resident, why) != 3 || number <= seen.newest) continue;
    seen.newest = number;
    seen.resident = resident;
    memcpy(seen.why, why, sizeof why);
  }
  return seen.newest >= 0;
}

static bool wait_for_window(pid_t process) {
  for (int ms = 0; ms < PATIENCE_MS; ms += 20) {
    if (is_there(process) && read_file(path) && seen.process == process) return true;
    usleep(20000);
  }
  check_fail(__FILE__, __LINE__, "no window of process %d", (int)process);
  return false;
}
#define WAIT_FOR(process) REQUIRE(wait_for_window(process))

/* Returns true once there is an entry that was not there before. */
static bool ask(pid_t process) {
  static uint64_t number = 1;
  if (!wait_for_window(process)) return false;
  int before = seen.newest, fd = open(path, O_RDWR | O_CLOEXEC);
  number++;
  bool asked = fd >= 0 && pwrite(fd, &number, sizeof number, (off_t)seen.ask_at) == (ssize_t)sizeof number;
  close(fd);
  for (int ms = 0; asked && ms < PATIENCE_MS; ms += 10) {
    if (read_file(path) && seen.newest > before) return true;
    usleep(10000);
  }
  return false;
}

/* ---- what a library that is preloaded may replace, and do with its thread-local variables, which the keeper does not have ---- */

static _Atomic unsigned by_keeper;
static pthread_t the_only_thread;

/* Without a system call: the keeper may make few. */
static void note_caller(void) { by_keeper += the_only_thread != 0 && pthread_self() != the_only_thread; }

int clock_gettime(clockid_t clock, struct timespec *now) {
  note_caller();
  return (int)syscall(SYS_clock_gettime, clock, now);
}

pid_t getpid(void) {
  note_caller();
  return (pid_t)syscall(SYS_getpid);
}

/* ---- checks ---- */

TEST(it_answers_while_the_program_rests) {
  REQUIRE(ask(getpid()));
  leak((size_t)20 * MIB);
  REQUIRE(ask(getpid()));
  CHECK(seen.resident > (unsigned long)20 * MIB);
  CHECK(seen.ask_at >= 8);
}

TEST(it_calls_nothing_that_another_library_may_have_replaced) {
  leak((size_t)5 * MIB);
  CHECK(ask(getpid()));
  CHECK_EQ(by_keeper, 0);
}

TEST(who_asks_once_is_answered_once) {
  WAIT_FOR(getpid());
  usleep(QUIET_US); /* it has grown by a page or two */
  REQUIRE(ask(getpid()));
  CHECK(strcmp(seen.why, "asked") == 0);
  int answer = seen.newest;
  usleep(QUIET_US);
  REQUIRE(read_file(path));
  CHECK_EQ(seen.newest, answer);
}

/* Daemons do so; afterwards their own files may have all of these numbers. */
TEST(closing_everything_leaves_it_and_nothing_is_written_to_other_files) {
  char name[] = "/tmp/hakmem-window-XXXXXX";
  int errors = dup(2), file = mkstemp(name);
  struct stat facts;
  REQUIRE(errors >= 0 && file >= 0 && unlink(name) == 0);
  REQUIRE(dup2(errors, NUMBERS) >= 0 && dup2(file, NUMBERS + 1) >= 0);
  WAIT_FOR(getpid());
  for (int fd = 0; fd < NUMBERS; fd++) close(fd);
  for (int fd = 0; fd < NUMBERS; fd++) {
    if (dup2(NUMBERS + 1, fd) < 0) _exit(1);
  }
  leak((size_t)5 * MIB);
  bool answered = ask(getpid());
  int stated = fstat(NUMBERS + 1, &facts);
  dup2(NUMBERS, 2);
  CHECK(answered);
  CHECK(stated == 0 && facts.st_size == 0);
}

TEST(a_child_has_its_own) {
  int to_child[2], from_child[2];
  char letter = 'x';
  REQUIRE(pipe(to_child) == 0 && pipe(from_child) == 0);
  WAIT_FOR(getpid());
  pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    leak((size_t)5 * MIB); /* until then it has made no call */
    if (write(from_child[1], &letter, 1) == 1 && read(to_child[0], &letter, 1) == 1) _exit(0);
    _exit(1);
  }
  REQUIRE(read(from_child[0], &letter, 1) == 1);
  CHECK(ask(child) && seen.process == child);
  REQUIRE(ask(getpid())); /* a reader that finds the window of another process waits in vain */
  int own = seen.newest;
  CHECK(ask(child));
  REQUIRE(wait_for_window(getpid()));
  CHECK_EQ(seen.newest, own);
  CHECK_EQ(write(to_child[1], &letter, 1), 1);
  CHECK_EQ(waitpid(child, NULL, 0), child);
}

/* When the user, groups, capabilities or filters change, the earlier keeper has ended, and its descriptors with it. */
TEST(there_is_a_new_one_when_the_process_has_changed) {
  REQUIRE(ask(getpid()));
  REQUIRE(prctl(PR_SET_KEEPCAPS, 0, 0, 0, 0) == 0);
  leak((size_t)100 * BLOCK);
  WAIT_FOR(getpid());
  CHECK(seen.newest == 0 && strcmp(seen.why, "start") == 0);
  CHECK(ask(getpid()));
}

/* The limit also applies to a file in the kernel's memory. */
TEST(a_limit_for_files_is_no_end) {
  NOT_COUNTED();
  struct rlimit limit = {1000, 1000};
  WAIT_FOR(getpid());
  REQUIRE(setrlimit(RLIMIT_FSIZE, &limit) == 0);
  int before = seen.newest;
  leak((size_t)20 * MIB);
  usleep(QUIET_US);
  REQUIRE(read_file(path)); /* the entries are lost */
  CHECK_EQ(seen.newest, before);
  leak((size_t)1 * MIB);
}

/* Only the reader loses by it: the keeper goes on writing. */
TEST(a_reader_that_cuts_it_ends_nothing) {
  struct stat facts;
  WAIT_FOR(getpid());
  CHECK(truncate(path, 0) == 0);
  leak((size_t)20 * MIB);
  usleep(QUIET_US);
  leak((size_t)1 * MIB);
  facts.st_size = 0;
  for (int ms = 0; facts.st_size == 0 && ms < PATIENCE_MS; ms += 20) {
    usleep(20000);
    REQUIRE(stat(path, &facts) == 0);
  }
  CHECK(facts.st_size > 0);
}

/* ---- other settings and processes ---- */

static pid_t run_self(const char *mode, const char *window, const char *box) {
  pid_t child = fork();
  if (child == 0) {
    if (window == NULL) unsetenv("HAKMEM_WINDOW");
    else setenv("HAKMEM_WINDOW", window, 1);
    if (box != NULL) setenv("HAKMEM_BLACKBOX", box, 1);
    for (int fd = 3; fd < NUMBERS; fd++) close(fd);
    execl(check_self(), check_self(), "subject", mode, (char *)NULL);
    _exit(127);
  }
  int status = -1;
  CHECK_EQ(waitpid(child, &status, 0), child);
  CHECK_EQ(status, 0);
  return child;
}

static void have_none(void) {
  leak((size_t)20 * MIB);
  usleep(QUIET_US);
  CHECK(!is_there(getpid()));
}

/* Programs may rely on descriptor 3 being the first free one. */
static void have_no_number(void) {
  bool found = false;
  WAIT_FOR(getpid());
  CHECK_EQ(look_in("/proc/self/fd", &found), 4); /* the standard ones and that of the folder */
  CHECK(!found);
  CHECK_EQ(open("/dev/null", O_RDONLY), 3);
}

TEST(no_descriptor_of_the_program_is_its) { run_self("number", "1", NULL); }

/* A program that is executed by one that has a window does not inherit it. */
TEST(by_default_there_is_none) {
  WAIT_FOR(getpid());
  run_self("none", NULL, NULL);
  run_self("none", "0", NULL);
}

/* Entries that readers request must not displace earlier ones from the file, which is for the time after the process has ended. */
static void have_both(void) {
  const char *file = getenv("HAKMEM_BLACKBOX");
  WAIT_FOR(getpid());
  usleep(QUIET_US);
  REQUIRE(read_file(file));
  int entries = seen.newest;
  for (int i = 0; i < 6; i++) CHECK(ask(getpid()));
  REQUIRE(read_file(file));
  CHECK_EQ(seen.newest, entries);
  CHECK_EQ(seen.ask_at, 0);
  pid_t child = fork();
  if (child == 0) {
    leak((size_t)5 * MIB);
    _exit(ask(getpid()) ? 0 : 1);
  }
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  REQUIRE(read_file(file));
  CHECK_EQ(seen.process, getpid());
  CHECK_EQ(seen.newest, entries);
  CHECK_EQ(by_keeper, 0);
}

TEST(a_black_box_keeps_its_entries_beside_it) {
  char file[] = "/tmp/hakmem-window-XXXXXX";
  int fd = mkstemp(file);
  REQUIRE(fd >= 0);
  close(fd);
  run_self("both", "1", file);
  run_self("none", "0", file);
  unlink(file);
}

/* As workers of a daemon whose first process has ended. Once they have a window, a file is created beside the box. */
static void leave_workers(void) {
  char name[64];
  pid_t self = getpid();
  WAIT_FOR(self);
  if (fork() != 0) return;
  while (getppid() == self) usleep(1000);
  usleep(QUIET_US); /* the kernel closes its files in the background */
  if (fork() == 0) {
    leak((size_t)5 * MIB);
    snprintf(name, sizeof name, "%.50s.done", getenv("HAKMEM_BLACKBOX"));
    if (ask(getpid())) close(open(name, O_CREAT | O_WRONLY, 0600));
  }
  _exit(0);
}

TEST(workers_leave_the_black_box_of_one_that_is_gone) {
  char file[] = "/tmp/hakmem-window-XXXXXX", done[sizeof file + 5];
  int fd = mkstemp(file), ms = 0;
  REQUIRE(fd >= 0);
  close(fd);
  snprintf(done, sizeof done, "%s.done", file);
  pid_t first = run_self("daemon", "1", file);
  while (access(done, F_OK) != 0 && ms++ < PATIENCE_MS) usleep(1000);
  CHECK(unlink(done) == 0);
  CHECK(read_file(file));
  CHECK_EQ(seen.process, first);
  unlink(file);
}

int main(int argc, char **argv) {
  the_only_thread = pthread_self();
  if (argc == 3 && strcmp(argv[1], "subject") == 0) {
    if (strcmp(argv[2], "both") == 0) have_both();
    else if (strcmp(argv[2], "number") == 0) have_no_number();
    else if (strcmp(argv[2], "daemon") == 0) leave_workers();
    else have_none();
    return check_failures() != 0;
  }
  setenv("HAKMEM_WINDOW", "1", 1); /* each check's process has it from its start */
  return check_main(argc, argv);
}
