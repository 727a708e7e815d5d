/* os_thread.c - the thread that libc does not know, on Linux itself. */
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "os/os.h"
#include "os/syscall.h"
#include "unit.h"

/* A sanitizer's runtime must know every thread, so there none is started. */
#if defined(__SANITIZE_ADDRESS__) || defined(HOT_ATOMIC)
#define SANITIZED true
#else
#define SANITIZED false
#endif

static os_thread_t thread;
static _Atomic uint32_t runs, go_on;
static _Atomic long its_id, its_process;

static void count_run(void) { atomic_count(&runs, 1); }

static void wait_to_go_on(void) {
  atomic_set(&its_id, syscall_3(SYS_gettid, 0, 0, 0));
  atomic_set(&its_process, syscall_3(SYS_getpid, 0, 0, 0));
  atomic_count(&runs, 1);
  while (atomic_seen(&go_on) == 0) os_sleep_us(1000);
}

static void require_threads(void) {
  if (SANITIZED) check_skip("no thread is started under a sanitizer");
}

static void wait_for_end(void) {
  for (int i = 0; os_thread_exists(&thread) && i < 5000; i++) os_sleep_us(1000);
  CHECK(!os_thread_exists(&thread));
}

static void wait_for_runs(uint32_t wanted) {
  for (int i = 0; atomic_seen(&runs) < wanted && i < 5000; i++) os_sleep_us(1000);
  CHECK_EQ(atomic_seen(&runs), wanted);
}

/* Threads of this process, as the kernel counts them. */
static int tasks(void) {
  DIR *folder = opendir("/proc/self/task");
  if (folder == NULL) return -1;
  int count = 0;
  for (struct dirent *entry; (entry = readdir(folder)) != NULL;) count += entry->d_name[0] != '.';
  closedir(folder);
  return count;
}

TEST(it_runs_and_ends) {
  require_threads();
  CHECK(!os_thread_exists(&thread));
  errno = 4242;
  CHECK(os_thread_start(&thread, count_run, false));
  CHECK_EQ(errno, 4242);
  wait_for_end();
  CHECK_EQ(atomic_seen(&runs), 1);
}

TEST(it_is_a_thread_of_this_process_while_it_runs) {
  require_threads();
  int before = tasks(); /* an emulator has threads of its own */
  REQUIRE(os_thread_start(&thread, wait_to_go_on, false));
  wait_for_runs(1);
  CHECK(os_thread_exists(&thread));
  CHECK_EQ(tasks(), before + 1);
  CHECK_EQ(atomic_seen(&its_process), getpid());
  CHECK(atomic_seen(&its_id) != getpid());
  atomic_set(&go_on, 1);
  wait_for_end();
  for (int i = 0; tasks() != before && i < 1000; i++) os_sleep_us(1000); /* it has left its stack before it is gone */
  CHECK_EQ(tasks(), before);
}

TEST(there_is_one_at_a_time) {
  require_threads();
  REQUIRE(os_thread_start(&thread, wait_to_go_on, false));
  wait_for_runs(1);
  for (int i = 0; i < 10; i++) CHECK(!os_thread_start(&thread, count_run, false));
  atomic_set(&go_on, 1);
  wait_for_end();
  CHECK_EQ(atomic_seen(&runs), 1);
}

TEST(it_can_be_started_as_often_as_it_has_ended) {
  require_threads();
  uint64_t maps = 0;
  for (uint32_t i = 1; i <= 200; i++) {
    REQUIRE(os_thread_start(&thread, count_run, false));
    wait_for_end();
    CHECK_EQ(atomic_seen(&runs), i);
    if (i == 1) maps = atomic_seen(&os_counts.mmap);
  }
  CHECK_EQ(atomic_seen(&os_counts.mmap), maps); /* on one stack */
}

TEST(what_could_not_be_started_can_be_later) {
  require_threads();
  struct rlimit before, none;
  REQUIRE(getrlimit(RLIMIT_AS, &before) == 0);
  none = before;
  none.rlim_cur = 1; /* no memory for its stack */
  REQUIRE(setrlimit(RLIMIT_AS, &none) == 0);
  bool started = os_thread_start(&thread, count_run, false);
  REQUIRE(setrlimit(RLIMIT_AS, &before) == 0);
  CHECK(!started && !os_thread_exists(&thread));
  CHECK(os_thread_start(&thread, count_run, false));
  wait_for_end();
  CHECK_EQ(atomic_seen(&runs), 1);
}

/* ---- signals ---- */

static _Atomic long handled_by;

static void note_handler(int number) {
  (void)number;
  atomic_set(&handled_by, syscall_3(SYS_gettid, 0, 0, 0));
}

/* Blocked here and sent to the process, a signal waits: the other thread does not take it. */
TEST(no_signal_is_delivered_to_it) {
  require_threads();
  struct sigaction action = {.sa_handler = note_handler};
  sigset_t usr, before;
  sigemptyset(&usr);
  sigaddset(&usr, SIGUSR1);
  REQUIRE(sigaction(SIGUSR1, &action, NULL) == 0);
  REQUIRE(os_thread_start(&thread, wait_to_go_on, false));
  wait_for_runs(1);
  sigprocmask(SIG_BLOCK, &usr, &before);
  kill(getpid(), SIGUSR1);
  os_sleep_us(50000);
  CHECK_EQ(atomic_seen(&handled_by), 0);
  sigprocmask(SIG_SETMASK, &before, NULL);
  CHECK_EQ(atomic_seen(&handled_by), getpid());
  atomic_set(&go_on, 1);
  wait_for_end();
}

TEST(the_starters_mask_is_as_before) {
  require_threads();
  sigset_t some, before, after;
  sigemptyset(&some);
  sigaddset(&some, SIGUSR2);
  sigprocmask(SIG_SETMASK, &some, NULL);
  sigprocmask(SIG_SETMASK, NULL, &before);
  REQUIRE(os_thread_start(&thread, count_run, false));
  sigprocmask(SIG_SETMASK, NULL, &after);
  for (int number = 1; number < 32; number++) CHECK_EQ(sigismember(&after, number), sigismember(&before, number));
  wait_for_end();
}

/* ---- its end and a fork's child ---- */

/* It is no child that a program waits for, and its end sends no signal. */
TEST(its_end_is_nobodys_business) {
  require_threads();
  struct sigaction action = {.sa_handler = note_handler};
  REQUIRE(sigaction(SIGCHLD, &action, NULL) == 0);
  REQUIRE(os_thread_start(&thread, count_run, false));
  errno = 0;
  CHECK(waitpid(-1, NULL, __WALL) == -1 && errno == ECHILD);
  wait_for_end();
  os_sleep_us(20000);
  CHECK_EQ(atomic_seen(&handled_by), 0);
}

TEST(a_process_ends_though_it_runs) {
  require_threads();
  pid_t pid = fork();
  if (pid == 0) {
    bool started = os_thread_start(&thread, wait_to_go_on, false);
    exit(started ? 5 : 6);
  }
  int status = 0;
  alarm(30);
  CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 5);
}

TEST(a_child_that_forgets_can_start_its_own) {
  require_threads();
  REQUIRE(os_thread_start(&thread, wait_to_go_on, false));
  wait_for_runs(1);
  pid_t pid = fork();
  if (pid == 0) {
    bool there = os_thread_exists(&thread);
    os_thread_forget(&thread);
    bool started = !os_thread_exists(&thread) && os_thread_start(&thread, count_run, false);
    wait_for_end();
    _exit(there && started && atomic_seen(&runs) == 2 && check_failures() == 0 ? 0 : 1);
  }
  int status = 0;
  CHECK(waitpid(pid, &status, 0) == pid && status == 0);
  CHECK(os_thread_exists(&thread));
  atomic_set(&go_on, 1);
  wait_for_end();
}

TEST(under_a_sanitizer_there_is_none) {
  if (!SANITIZED) check_skip("no sanitizer");
  CHECK(!os_thread_start(&thread, count_run, false));
  CHECK(!os_thread_exists(&thread));
  CHECK_EQ(atomic_seen(&runs), 0);
}
