/* check.h - a small test harness: named checks, each in a fresh process.
 *
 * A test program is a list of TEST bodies and a main that calls check_main.
 * The parent runs every check in a new process of the same program, so a
 * crash, a hang or an abort fails that check only, and each check starts with
 * an unused allocator.  Failures are printed without allocating, because
 * the allocator is under test.
 *
 *   prog [-c context] [-v variant] [-t seconds] [-l] [filter]   run the checks whose names contain `filter`
 *   prog -x name [-c context] [-v variant]                      run one in this process, for a debugger
 *   prog -i [-c context] [-v variant] name...                   run these in this process, one after another
 */
#ifndef TESTS_SUPPORT_CHECK_H
#define TESTS_SUPPORT_CHECK_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct check {
  const char *name;
  void (*run)(void);
  struct check *next;
} check_t;

void check_add(check_t *check);

/* Returns the exit status: 0 if all checks passed and at least one ran. */
int check_main(int argc, char **argv);

/* Called in each check's process before the check, in the main thread; by
 * default it does nothing.  `variant` is the argument of -v, or "". */
void check_setup(const char *variant);

/* The context of the running check: "alone", "beside" (another thread
 * allocates meanwhile) or "worker" (the check runs in a second thread). */
const char *check_context(void);

/* Reports one failure; at most five are printed for each check. */
void check_fail(const char *file, int line, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* The number of failures so far, for programs that use CHECK without check_main. */
int check_failures(void);
/* Ends the check's process as skipped. */
void check_skip(const char *reason) __attribute__((noreturn));
/* For what cannot hold in a build for gcov: its code is not optimised, and the counters use memory, files and stack. */
#ifdef TEST_COVERAGE
#define NOT_COUNTED() check_skip("gcov counts")
#else
#define NOT_COUNTED() ((void)0)
#endif

/* Resident bytes of this process, read without allocating. */
size_t check_resident(void);

/* An empty file without a name, open for reading and writing until exec; -1 if none can be made. */
int check_file(void);

/* Runs `argv` with stderr into `errors` (text, terminated, at most `room`
 * bytes; NULL: without stderr), and with stdout into `output`, if that is not NULL.  Returns wait's status,
 * or -1.  The program gets SIGALRM after `seconds`. */
int check_spawn(char *const argv[], char *const envp[], unsigned seconds, char *errors, char *output, size_t room);
/* The path of this program, for check_spawn. */
const char *check_self(void);

/* The reason why the port of this build leaves the check out (tests/ports), or NULL. */
const char *check_left_out(const char *name);

#ifdef __cplusplus
}
#endif

#define TEST(id)                                                                         \
  static void id(void);                                                                  \
  static check_t check_of_##id = {#id, id, NULL};                                        \
  __attribute__((constructor)) static void add_##id(void) { check_add(&check_of_##id); } \
  static void id(void)

#define CHECK(condition) ((condition) ? (void)0 : check_fail(__FILE__, __LINE__, "%s", #condition))

/* Compares integers, or pointers cast to integers, and shows both. */
#define CHECK_EQ(got, want)                                                                                   \
  do {                                                                                                        \
    long long got_ = (long long)(got), want_ = (long long)(want);                                             \
    if (got_ != want_) check_fail(__FILE__, __LINE__, "%s is %lld, not %s = %lld", #got, got_, #want, want_); \
  } while (0)

/* Like CHECK, but ends the check if the condition fails, since the rest depends on it. */
#define REQUIRE(condition)                              \
  do {                                                  \
    if (!(condition)) {                                 \
      check_fail(__FILE__, __LINE__, "%s", #condition); \
      return;                                           \
    }                                                   \
  } while (0)

#endif
