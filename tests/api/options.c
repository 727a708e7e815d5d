/* options.c - the environment and the configuration file, seen from outside:
 * each check starts this program again and reads what it prints. */
#include "api.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

extern char **environ;

static char errors[65536], output[65536];

/* Runs check `name` of this program with settings added to the environment. */
static int run_with(const char *name, const char *first, const char *second) {
  static char *variables[1024];
  int count = 0;
  ONLY(FAMILY_HAK);
  NEED(hak.version);
  for (char **each = environ; *each && count < 1000; each++) variables[count++] = *each;
  if (first) variables[count++] = (char *)(uintptr_t)first;
  if (second) variables[count++] = (char *)(uintptr_t)second;
  variables[count] = NULL;
  char *const argv[] = {(char *)(uintptr_t)check_self(), (char *)(uintptr_t)"-v", (char *)(uintptr_t)"hak",
                        (char *)(uintptr_t)"-x",         (char *)(uintptr_t)name, NULL};
  int status = check_spawn(argv, variables, 20, errors, output, sizeof errors);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  return status;
}

static int lines(const char *text) {
  int count = 0;
  for (; *text; text++) count += *text == '\n';
  return count;
}

/* In a program that is linked to the archive, these calls come before any allocation, such as that of dlsym. */
extern bool hak_option_get(const char *name, int64_t *value) __attribute__((weak));
extern bool hak_option_set(const char *name, int64_t value) __attribute__((weak));
static int64_t asked_early;
static bool set_early;
static bool is_early(const char *what) {
  const char *wanted = getenv("OPTIONS_EARLY");
  return wanted != NULL && strcmp(wanted, what) == 0;
}
static bool cleared;
__attribute__((constructor(101))) static void clear_early(void) {
  if (!is_early("cleared")) return;
  cleared = true;
  clearenv();
}
__attribute__((constructor)) static void ask_early(void) {
  if (hak_option_get == NULL || hak_option_set == NULL) return;
  if (is_early("get")) CHECK(hak_option_get("decay_ms", &asked_early));
  if (is_early("set")) set_early = hak_option_set("decay_ms", 5);
}
TEST(early_option) {
  int64_t late;
  ONLY(FAMILY_HAK);
  NEED(hak.option_get);
  if (getenv("OPTIONS_EARLY") == NULL && !cleared) check_skip("for what_is_set_early_stays");
  if (hak_option_get == NULL) return; /* preloaded: the program does not have these functions */
  if (cleared) { /* what is set later is not read */
    CHECK_EQ(setenv("HAKMEM_DECAY_MS", "77", 1), 0);
    CHECK(hak.option_get("decay_ms", &late));
    CHECK(late != 77);
    return;
  }
  if (is_early("get")) CHECK_EQ(asked_early, 66);
  CHECK(hak.option_get("decay_ms", &late));
  CHECK_EQ(late, set_early ? 5 : 66); /* the options of the secure library are sealed */
}
TEST(what_is_set_early_stays) {
  run_with("early_option", "HAKMEM_DECAY_MS=66", "OPTIONS_EARLY=get");
  run_with("early_option", "HAKMEM_DECAY_MS=66", "OPTIONS_EARLY=set");
  run_with("early_option", "HAKMEM_DECAY_MS=66", "OPTIONS_EARLY=cleared");
}

TEST(environment_without_settings_is_silent) {
  run_with("malloc_of_0_is_unique", NULL, NULL);
  CHECK(strcmp(errors, "") == 0);
}

TEST(environment_unknown_name_is_one_line) {
  run_with("malloc_of_0_is_unique", "HAKMEM_NO_SUCH_OPTION=1", NULL);
  CHECK_EQ(lines(errors), 1);
  CHECK(strncmp(errors, "hakmem: ", 8) == 0 && strcasestr(errors, "no_such_option"));
}

TEST(environment_bad_value_is_one_line) {
  static const char *const settings[] = {"HAKMEM_STATS=nonsense", "HAKMEM_STATS=1x", "HAKMEM_STATS=99999999999999999999999",
                                         "HAKMEM_STATS=-5", "HAKMEM_STATS= 1 1"};
  for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) {
    run_with("malloc_of_0_is_unique", settings[i], NULL);
    CHECK_EQ(lines(errors), 1);
    CHECK(strncmp(errors, "hakmem: ", 8) == 0 && strcasestr(errors, "stats"));
  }
}

TEST(environment_stats_are_printed_at_exit) {
  run_with("malloc_of_0_is_unique", "HAKMEM_STATS=1", NULL);
  CHECK(lines(errors) > 5 && strstr(errors, "live"));
}

TEST(environment_stats_file_is_replaced) {
  ONLY(FAMILY_HAK);
  char path[] = "/tmp/hak-api-XXXXXX", setting[64];
  static char report[1 << 20];
  int file = mkstemp(path);
  REQUIRE(file >= 0);
  memset(report, 'x', sizeof report);
  CHECK(write(file, report, sizeof report) == sizeof report); /* longer than any report */
  snprintf(setting, sizeof setting, "HAKMEM_STATS_FILE=%s", path);
  run_with("malloc_of_0_is_unique", "HAKMEM_STATS=1", setting);
  CHECK(strcmp(errors, "") == 0);
  ssize_t length = pread(file, report, sizeof report, 0);
  CHECK(length > 200 && length < (ssize_t)sizeof report && report[0] == '{' && memcmp(report + length - 2, "}\n", 2) == 0);
  close(file);
  unlink(path);
}

TEST(environment_stats_file_that_is_full_is_one_line) {
  run_with("malloc_of_0_is_unique", "HAKMEM_STATS=1", "HAKMEM_STATS_FILE=/dev/full");
  CHECK(strcmp(errors, "hakmem: cannot write the file that HAKMEM_STATS_FILE names\n") == 0);
}

/* A pipe without a partner causes one line, and the process does not wait for one. */
TEST(environment_pipes_that_nobody_has_are_one_line) {
  static const struct {
    const char *name, *said;
  } files[] = {{"HAKMEM_STATS_FILE", "hakmem: cannot write the file that HAKMEM_STATS_FILE names\n"},
               {"HAKMEM_PROFILE", "hakmem: cannot write the file that HAKMEM_PROFILE names\n"},
               {"HAKMEM_CONF", "hakmem: cannot read HAKMEM_CONF"}};
  ONLY(FAMILY_HAK);
  char folder[] = "/tmp/hak-api-XXXXXX", path[64], setting[128];
  REQUIRE(mkdtemp(folder) != NULL);
  snprintf(path, sizeof path, "%s/pipe", folder);
  REQUIRE(mkfifo(path, 0600) == 0);
  for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
    snprintf(setting, sizeof setting, "%s=%s", files[i].name, path);
    run_with("malloc_of_0_is_unique", i == 0 ? "HAKMEM_STATS=1" : NULL, setting);
    CHECK(lines(errors) == 1 && strncmp(errors, files[i].said, strlen(files[i].said)) == 0);
  }
  unlink(path);
  rmdir(folder);
}

static struct {
  int end;
  size_t length;
  char text[1 << 20];
} slow;

/* Starts to read only after the pipe is full. */
static void *read_slowly(void *unused) {
  usleep(300000);
  for (ssize_t n; (n = read(slow.end, slow.text + slow.length, sizeof slow.text - slow.length)) > 0;) slow.length += (size_t)n;
  return unused;
}

/* As /dev/stderr does if it is a pipe. */
TEST(environment_stats_go_to_a_pipe_by_its_descriptor) {
  ONLY(FAMILY_HAK);
  int ends[2];
  char setting[64];
  pthread_t reader;
  REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
  (void)fcntl(ends[1], F_SETPIPE_SZ, 4096);
  slow.end = ends[0];
  REQUIRE(pthread_create(&reader, NULL, read_slowly, NULL) == 0);
  snprintf(setting, sizeof setting, "HAKMEM_STATS_FILE=/proc/%d/fd/%d", (int)getpid(), ends[1]);
  run_with("malloc_of_0_is_unique", "HAKMEM_STATS=1", setting);
  CHECK(strcmp(errors, "") == 0);
  CHECK((fcntl(ends[1], F_GETFL) & O_NONBLOCK) == 0);
  close(ends[1]);
  pthread_join(reader, NULL);
  close(ends[0]);
  CHECK(slow.length > 4096 && slow.text[0] == '{' && memcmp(slow.text + slow.length - 2, "}\n", 2) == 0);
}

/* As in a program without a standard error whose first file therefore has descriptor 2. */
TEST(environment_stats_are_not_written_to_a_file_of_the_program) {
  ONLY(FAMILY_HAK);
  NEED(hak.version);
  char path[] = "/tmp/hak-api-XXXXXX";
  int file = mkstemp(path);
  REQUIRE(file >= 0);
  char *const argv[] = {(char *)(uintptr_t)check_self(),
                        (char *)(uintptr_t)"-v",
                        (char *)(uintptr_t)"hak",
                        (char *)(uintptr_t)"-x",
                        (char *)(uintptr_t)"leaves_a_file_open",
                        NULL};
  setenv("HAKMEM_STATS", "1", 1);
  setenv("TEST_FILE", path, 1);
  int status = check_spawn(argv, environ, 20, NULL, output, sizeof output);
  unsetenv("TEST_FILE");
  unsetenv("HAKMEM_STATS");
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  char text[8] = "";
  CHECK_EQ(pread(file, text, sizeof text - 1, 0), 4);
  CHECK(strcmp(text, "mine") == 0);
  close(file);
  unlink(path);
}

TEST(leaves_a_file_open) {
  const char *path = getenv("TEST_FILE");
  if (!path) check_skip("only for the check above");
  CHECK_EQ(open(path, O_WRONLY), 2);
  CHECK_EQ(write(2, "mine", 4), 4);
}

TEST(environment_long_values_do_no_harm) {
  static char setting[20000] = "HAKMEM_STATS=";
  memset(setting + 13, '1', sizeof setting - 14);
  run_with("malloc_of_0_is_unique", setting, NULL);
  CHECK_EQ(lines(errors), 1);
  static char name[20000] = "HAKMEM_";
  memset(name + 7, 'A', sizeof name - 10);
  name[sizeof name - 10] = '=';
  run_with("malloc_of_0_is_unique", name, NULL);
  CHECK_EQ(lines(errors), 1);
}

/* A configuration file that exists as long as this process. */
static const char *write_file(const char *content) {
  static char setting[64];
  int fd = check_file();
  CHECK(write(fd, content, strlen(content)) == (ssize_t)strlen(content));
  snprintf(setting, sizeof setting, "HAKMEM_CONF=/proc/%d/fd/%d", (int)getpid(), fd);
  return setting;
}

TEST(file_sets_options) {
  run_with("malloc_of_0_is_unique", write_file("STATS=1\n"), NULL);
  CHECK(lines(errors) > 5 && strstr(errors, "live"));
}

TEST(file_is_overruled_by_the_environment) {
  run_with("malloc_of_0_is_unique", write_file("STATS=1\n"), "HAKMEM_STATS=0");
  CHECK(strcmp(errors, "") == 0);
}

TEST(file_with_bad_lines_is_a_line_each) {
  run_with("malloc_of_0_is_unique", write_file("# a comment\n\nNO_SUCH=1\nSTATS=maybe\n"), NULL);
  CHECK_EQ(lines(errors), 2);
  CHECK(strcasestr(errors, "no_such") && strcasestr(errors, "stats"));
}

TEST(file_that_is_missing_is_one_line) {
  run_with("malloc_of_0_is_unique", "HAKMEM_CONF=/nonexistent/hakmem.conf", NULL);
  CHECK_EQ(lines(errors), 1);
  CHECK(strstr(errors, "/nonexistent/hakmem.conf"));
}
