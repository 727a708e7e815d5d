/* os_thread.c - the thread that libc does not know, on Linux itself. */
#include <dirent.h>
#include <errno.h>
#include <grp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/thread.h"
#include "os/file.h"
#include "os/line.h"
#include "os/lock.h"
#include "os/os.h"
#include "os/syscall.h"
#include "unit.h"

/* A sanitizer's runtime must know every thread, so under sanitizers none is started. */
#if defined(__SANITIZE_ADDRESS__) || defined(RACY_ATOMIC)
#define SANITIZED true
#else
#define SANITIZED false
#endif

static os_thread_t thread;
static _Atomic uint32_t runs, go_on;
static _Atomic long its_id, its_process;

static void count_run(void) { add_relaxed(&runs, 1); }

static void wait_to_go_on(void) {
  store_relaxed(&its_id, syscall_3(SYS_gettid, 0, 0, 0));
  store_relaxed(&its_process, syscall_3(SYS_getpid, 0, 0, 0));
  add_relaxed(&runs, 1);
  while (load_relaxed(&go_on) == 0) os_sleep_us(1000);
}

static void require_threads(void) {
  if (SANITIZED) check_skip("no thread is started under a sanitizer");
}

static void wait_for_end(void) {
  for (int i = 0; os_thread_exists(&thread) && i < 5000; i++) os_sleep_us(1000);
  CHECK(!os_thread_exists(&thread));
}

static void wait_for_runs(uint32_t wanted) {
  for (int i = 0; load_relaxed(&runs) < wanted && i < 5000; i++) os_sleep_us(1000);
  CHECK_EQ(load_relaxed(&runs), wanted);
}

/* The threads of this process, as the kernel counts them. */
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
  CHECK_EQ(load_relaxed(&runs), 1);
}

TEST(it_is_a_thread_of_this_process_while_it_runs) {
  require_threads();
  int before = tasks(); /* an emulator has threads of its own */
  REQUIRE(os_thread_start(&thread, wait_to_go_on, false));
  wait_for_runs(1);
  CHECK(os_thread_exists(&thread));
  CHECK_EQ(tasks(), before + 1);
  CHECK_EQ(load_relaxed(&its_process), getpid());
  CHECK(load_relaxed(&its_id) != getpid());
  store_relaxed(&go_on, 1);
  wait_for_end();
  for (int i = 0; tasks() != before && i < 1000; i++) os_sleep_us(1000); /* it leaves its stack before it is gone */
  CHECK_EQ(tasks(), before);
}

TEST(there_is_one_at_a_time) {
  require_threads();
  REQUIRE(os_thread_start(&thread, wait_to_go_on, false));
  wait_for_runs(1);
  for (int i = 0; i < 10; i++) CHECK(!os_thread_start(&thread, count_run, false));
  store_relaxed(&go_on, 1);
  wait_for_end();
  CHECK_EQ(load_relaxed(&runs), 1);
}

TEST(it_can_be_started_as_often_as_it_has_ended) {
  require_threads();
  uint64_t maps = 0;
  for (uint32_t i = 1; i <= 200; i++) {
    REQUIRE(os_thread_start(&thread, count_run, false));
    wait_for_end();
    CHECK_EQ(load_relaxed(&runs), i);
    if (i == 1) maps = load_relaxed(&os_counts.mmap);
  }
  CHECK_EQ(load_relaxed(&os_counts.mmap), maps); /* one stack serves all */
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
  CHECK(!started && !os_thread_exists(&thread) && load_relaxed(&thread.refused));
  os_thread_hold(&thread);
  CHECK(!os_thread_start(&thread, count_run, false) && !load_relaxed(&thread.refused)); /* the kernel was not called */
  os_thread_release(&thread);
  CHECK(os_thread_start(&thread, count_run, false) && !load_relaxed(&thread.refused));
  wait_for_end();
  CHECK_EQ(load_relaxed(&runs), 1);
}

/* ---- signals ---- */

static _Atomic long handled_by;

static void note_handler(int number) {
  (void)number;
  store_relaxed(&handled_by, syscall_3(SYS_gettid, 0, 0, 0));
}

/* If a signal is blocked here and sent to the process, it stays pending: the other thread does not take it. */
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
  CHECK_EQ(load_relaxed(&handled_by), 0);
  sigprocmask(SIG_SETMASK, &before, NULL);
  CHECK_EQ(load_relaxed(&handled_by), getpid());
  store_relaxed(&go_on, 1);
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

/* ---- held ---- */

static void sleep_until_held(void) {
  add_relaxed(&runs, 1);
  while (os_thread_sleep_ms(&thread, 60000)) continue;
}

/* Checked immediately, 300 times: the kernel no longer knows the thread, and not only is its stack free. */
TEST(what_is_held_is_gone) {
  require_threads();
  int before = tasks();
  for (int i = 0; i < 300; i++) {
    REQUIRE(os_thread_start(&thread, sleep_until_held, i % 2 == 0));
    if (i % 3 == 0) wait_for_runs((uint32_t)i + 1);
    os_thread_hold(&thread);
    CHECK(!os_thread_exists(&thread));
    CHECK_EQ(tasks(), before);
    CHECK(!os_thread_start(&thread, count_run, false));
    os_thread_release(&thread);
  }
}

/* Later the kernel gives its number to another thread, which may be one of this process. */
TEST(its_number_may_be_another_threads) {
  require_threads();
  REQUIRE(os_thread_start(&thread, count_run, true));
  wait_for_end();
  store_relaxed(&thread.last, (uint32_t)syscall_3(SYS_gettid, 0, 0, 0));
  store_relaxed(&thread.ended_ms, os_now_ms() - 2000);
  os_thread_hold(&thread);
  os_thread_release(&thread);
  CHECK_EQ(load_relaxed(&thread.last), 0);
  store_relaxed(&thread.last, (uint32_t)syscall_3(SYS_gettid, 0, 0, 0));
  CHECK(os_thread_start(&thread, count_run, true));
  wait_for_end();
  CHECK(os_now_ms() - load_relaxed(&thread.ended_ms) < 10000);
}

static void find_a_fault(void) {
  line_write("of the thread's");
  os_abort();
}

/* The child's standard error goes to `end`; it starts the thread, and is ended by `come_by`. */
static _Noreturn void run_with_a_fault(int end, bool confined, void (*come_by)(void)) {
  dup2(end, 2);
  if (!os_thread_start(&thread, find_a_fault, confined)) _exit(3);
  while (os_thread_exists(&thread) || load_relaxed(&os_end_pending) == 0) os_sleep_us(1000);
  come_by();
  _exit(4);
}

static int status_with_a_fault(bool confined, void (*come_by)(void), char *text, size_t size) {
  int ends[2], status = 0;
  if (pipe(ends) != 0) return -1;
  pid_t child = fork();
  if (child == 0) {
    os_thread_forget(&thread);
    run_with_a_fault(ends[1], confined, come_by);
  }
  close(ends[1]);
  ssize_t length = read(ends[0], text, size - 1);
  text[length > 0 ? length : 0] = '\0';
  close(ends[0]);
  return waitpid(child, &status, 0) == child ? status : -1;
}

static void wait_for_its_lock(void) {
  static lock_t lock = {.holder = 1};
  lock_acquire(&lock);
}

TEST(its_fault_ends_the_process_with_its_line) {
  require_threads();
  for (int i = 0; i < 4; i++) {
    char text[100];
    int status = status_with_a_fault(i % 2 == 0, i < 2 ? os_end_finish : wait_for_its_lock, text, sizeof text);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    CHECK(strcmp(text, "hakmem: of the thread's\n") == 0);
  }
}

TEST(holds_add_up) {
  require_threads();
  os_thread_hold(&thread);
  os_thread_hold(&thread);
  os_thread_release(&thread);
  CHECK(!os_thread_start(&thread, count_run, false));
  os_thread_release(&thread);
  CHECK(os_thread_start(&thread, count_run, false));
  wait_for_end();
}

static _Atomic bool holders_stop, is_running;
static _Atomic uint32_t holds;

static void run_until_held(void) {
  store_relaxed(&is_running, true);
  sleep_until_held();
  store_relaxed(&is_running, false);
}

static void *hold_often(void *unused) {
  while (!load_relaxed(&holders_stop)) {
    os_thread_hold(&thread);
    if (load_relaxed(&is_running)) check_fail(__FILE__, __LINE__, "it runs while it is held");
    add_relaxed(&holds, 1);
    os_thread_release(&thread);
  }
  return unused;
}

TEST(holders_and_starters_meet) {
  require_threads();
  pthread_t holders[2];
  for (int i = 0; i < 2; i++) REQUIRE(pthread_create(&holders[i], NULL, hold_often, NULL) == 0);
  uint32_t started = 0;
  for (uint32_t i = 0; i < 1000 || started < 20; i++) started += os_thread_start(&thread, run_until_held, i % 2 == 0);
  store_relaxed(&holders_stop, true);
  for (int i = 0; i < 2; i++) pthread_join(holders[i], NULL);
  os_thread_hold(&thread);
  CHECK(!os_thread_exists(&thread) && load_relaxed(&holds) > 20);
}

/* ---- confined ---- */

static _Atomic long refused[9], permitted[6];
static char status_file[8192];

static void try_all(void) {
  size_t page = os_page_size();
  static uint64_t limit[2];
  long memory = syscall_6(SYS_mmap, 0, (long)page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  long results[] = {syscall_6(SYS_openat, -100, (long)"/dev/null", 0, 0, 0, 0),
                    syscall_6(SYS_mmap, 0, (long)page, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
                    syscall_6(SYS_mmap, 0, (long)page, PROT_READ | PROT_WRITE, MAP_PRIVATE, 1, 0),
                    syscall_3(SYS_mprotect, memory, (long)page, PROT_READ | PROT_EXEC),
                    syscall_6(SYS_prlimit64, 0, RLIMIT_NOFILE, (long)limit, 0, 0, 0),
                    syscall_3(SYS_setuid, 0, 0, 0),
                    syscall_3(SYS_kill, 0, 0, 0),
                    syscall_6(SYS_ptrace, 0, 0, 0, 0, 0, 0),
                    syscall_6(SYS_pread64, 0, (long)limit, 1, 0, 0, 0)};
  for (int i = 0; i < 9; i++) store_relaxed(&refused[i], results[i]);
  store_relaxed(&permitted[0], syscall_failed(memory));
  store_relaxed(&permitted[1], syscall_3(SYS_madvise, memory, (long)page, MADV_DONTNEED));
  store_relaxed(&permitted[2], syscall_3(SYS_mprotect, memory, (long)page, PROT_NONE));
  store_relaxed(&permitted[3], syscall_3(SYS_mprotect, memory, (long)page, PROT_READ | PROT_WRITE));
  store_relaxed(&permitted[4], syscall_3(SYS_munmap, memory, (long)page, 0));
  uint64_t now[2]; /* without a vDSO, libc calls the kernel, and writes errno if that fails */
  store_relaxed(&permitted[5], syscall_3(SYS_clock_gettime, CLOCK_MONOTONIC, (long)now, 0));
  add_relaxed(&runs, 1);
  while (os_thread_sleep_ms(&thread, 60000)) continue;
}

TEST(a_confined_one_can_ask_for_memory_and_the_time_alone) {
  require_threads();
  REQUIRE(os_thread_start(&thread, try_all, true));
  wait_for_runs(1);
  for (int i = 0; i < 9; i++) CHECK_EQ(load_relaxed(&refused[i]), -EPERM);
  for (int i = 0; i < 6; i++) CHECK_EQ(load_relaxed(&permitted[i]), 0);
  os_thread_hold(&thread);
}

/* Its own files only: descriptors of the program are not valid in it, and its descriptors are not valid in the program. */
static int its_file = -1;
static _Atomic long its_results[4];

static bool open_files(void) {
  if (!file_apart()) return false;
  its_file = file_memory("test");
  return its_file >= 0;
}

static void try_files(void) {
  char text[4] = "ok";
  store_relaxed(&its_results[0], file_copy(its_file, text, "file", 4) && memcmp(text, "file", 4) == 0);
  store_relaxed(&its_results[1], file_copy(its_file, NULL, text, 4) || file_copy(its_file, text, NULL, 4));
  store_relaxed(&its_results[2], syscall_6(SYS_pread64, its_file + 1, (long)text, 1, 0, 0, 0));
  store_relaxed(&its_results[3], syscall_6(SYS_openat, -100, (long)"/dev/null", 0, 0, 0, 0));
  add_relaxed(&runs, 1);
}

TEST(a_confined_one_may_have_files_of_its_own) {
  require_threads();
  store_relaxed(&thread.prepare, open_files);
  REQUIRE(os_thread_start(&thread, try_files, true));
  if (its_file < 0) check_skip("needs Linux 5.9");
  wait_for_runs(1);
  wait_for_end();
  CHECK_EQ(load_relaxed(&its_results[0]), 1);
  CHECK_EQ(load_relaxed(&its_results[1]), 0);
  CHECK_EQ(load_relaxed(&its_results[2]), -EBADF);
  CHECK_EQ(load_relaxed(&its_results[3]), -EPERM);
}

/* A signal handler may fork just before its thread starts one: the repair that follows forgets the new thread. */
TEST(a_child_that_is_not_repaired_starts_none) {
  require_threads();
  os_fork_note();
  CHECK(!os_thread_start(&thread, count_run, false));
  CHECK(!os_thread_exists(&thread));
  REQUIRE(os_fork_claim(thread_self()));
  CHECK(!os_thread_start(&thread, count_run, false));
  os_thread_forget(&thread);
  os_fork_seen(thread_self());
  CHECK_EQ(load_relaxed(&runs), 0);
  CHECK(os_thread_start(&thread, count_run, false));
  wait_for_runs(1);
  wait_for_end();
}

/* This holds from the first moment at which its starter knows it. */
TEST(a_confined_one_has_no_power) {
  require_threads();
  char path[64], own[64];
  for (int i = 0; i < 50; i++) {
    REQUIRE(os_thread_start(&thread, sleep_until_held, true));
    snprintf(path, sizeof path, "/proc/self/task/%u/status", load_relaxed(&thread.last));
    REQUIRE(os_read_file(path, status_file, sizeof status_file) > 0);
    CHECK(strstr(status_file, "CapEff:\t0000000000000000") != NULL && strstr(status_file, "NoNewPrivs:\t1") != NULL);
    CHECK(strstr(status_file, "Seccomp:\t2") != NULL);
    snprintf(own, sizeof own, "CapPrm:\t%08x%08x", thread.capabilities.of[1].permitted, thread.capabilities.of[0].permitted);
    CHECK(strstr(status_file, own) != NULL); /* otherwise a process that may not trace this process could trace the thread */
    os_thread_hold(&thread);
    os_thread_release(&thread);
  }
}

/* In a process of its own, through a system call that libc does not see. */
static bool ends_after(long number, long a, long b, long c) {
  pid_t pid = fork();
  if (pid == 0) {
    if (!os_thread_start(&thread, sleep_until_held, true)) _exit(2);
    os_sleep_us(20000);
    if (!os_thread_exists(&thread) || syscall_3(number, a, b, c) != 0) _exit(3);
    for (int i = 0; os_thread_exists(&thread) && i < 1000; i++) os_sleep_us(1000);
    _exit(os_thread_exists(&thread) ? 4 : 0);
  }
  int result = 0;
  CHECK_EQ(waitpid(pid, &result, 0), pid);
  return result == 0;
}

TEST(a_confined_one_ends_when_its_process_has_changed) {
  require_threads();
  static const struct {
    uint32_t version;
    int32_t id;
  } self = {0x20080522, 0};
  static const uint32_t none[6];
  if (geteuid() != 0) check_skip("needs root");
  CHECK(ends_after(SYS_setuid, 65534, 0, 0));
  CHECK(ends_after(SYS_setgid, 65534, 0, 0));
  CHECK(ends_after(SYS_setresuid, -1, 65534, -1));
  CHECK(ends_after(SYS_setresgid, -1, 65534, -1));
  CHECK(ends_after(SYS_setresuid, 65534, -1, -1));
  CHECK(ends_after(SYS_setresuid, -1, -1, 65534));
  CHECK(ends_after(SYS_capset, (long)&self, (long)none, 0));
}

/* If the kernel has no filters, none is started, and the kernel is not asked again until the process has changed. */
TEST(what_cannot_be_confined_is_not_started) {
  require_threads();
  struct {
    uint16_t code;
    uint8_t if_true, if_false;
    uint32_t value;
  } steps[] = {{0x20, 0, 0, 0}, {0x15, 0, 1, SYS_prctl}, {0x06, 0, 0, 0x00050000 | EINVAL}, {0x06, 0, 0, 0x7fff0000}};
  struct {
    uint16_t count;
    void *steps;
  } filter = {4, steps};
  REQUIRE(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, 2, &filter, 0, 0) == 0);
  CHECK(!os_thread_start(&thread, count_run, true));
  CHECK(load_relaxed(&thread.unable));
  wait_for_end();
  CHECK(!os_thread_start(&thread, count_run, true) && load_relaxed(&runs) == 0);
  CHECK(!os_thread_start(&thread, count_run, false));
  os_thread_hold(&thread);
  os_thread_release(&thread);
  CHECK(os_thread_start(&thread, count_run, false));
  wait_for_end();
}

/* ---- what the kernel reports about the caller ---- */

TEST(the_credentials_are_what_the_kernel_says) {
  os_credentials_t credentials = os_credentials();
  CHECK(geteuid() != 0 || credentials.privileged);
  struct {
    uint16_t code;
    uint8_t if_true, if_false;
    uint32_t value;
  } steps[] = {{0x06, 0, 0, 0x7fff0000}};
  struct {
    uint16_t count;
    void *steps;
  } filter = {1, steps};
  bool filtered = credentials.filtered; /* in a container there may be one */
  REQUIRE(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, 2, &filter, 0, 0) == 0);
  CHECK(os_credentials().filtered);
  if (geteuid() == 0 && !filtered) {
    REQUIRE(setresgid(65534, 65534, 65534) == 0 && setresuid(65534, 65534, 65534) == 0);
    CHECK(!os_credentials().privileged);
  }
  store_relaxed(&os_filters, 1);
  credentials = os_credentials();
  CHECK(credentials.filtered && credentials.privileged);
}

static struct rlimit descriptors;

static void without_descriptors(void) {
  REQUIRE(getrlimit(RLIMIT_NOFILE, &descriptors) == 0);
  REQUIRE(setrlimit(RLIMIT_NOFILE, &(struct rlimit){0, descriptors.rlim_max}) == 0);
}

static void with_descriptors(void) { REQUIRE(setrlimit(RLIMIT_NOFILE, &descriptors) == 0); }

static bool has_credentials(os_credentials_t expected) {
  os_credentials_t credentials = os_credentials();
  return credentials.filtered == expected.filtered && credentials.privileged == expected.privileged;
}

TEST(a_moment_without_descriptors_settles_nothing) {
  without_descriptors();
  os_credentials_note();
  CHECK(has_credentials((os_credentials_t){true, true}) && os_started_filtered());
  with_descriptors();
  CHECK_EQ(os_started_filtered(), os_credentials().filtered);
}

TEST(without_descriptors_the_credentials_are_what_was_noted) {
  os_credentials_note();
  without_descriptors();
  os_credentials_t credentials = os_credentials();
  bool filtered = os_started_filtered();
  with_descriptors();
  CHECK(has_credentials(credentials));
  CHECK_EQ(filtered, credentials.filtered);
}

TEST(in_a_root_without_proc_the_credentials_are_what_was_noted) {
  char root[] = "/tmp/hakmem-root-XXXXXX";
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  check_skip("the runtime needs /proc at the end");
#endif
  if (geteuid() != 0) check_skip("needs root");
  os_credentials_t credentials = os_credentials();
  REQUIRE(mkdtemp(root) != NULL && chdir(root) == 0 && rmdir(root) == 0 && chroot(".") == 0);
  CHECK(has_credentials(credentials));
  CHECK_EQ(os_started_filtered(), credentials.filtered);
}

/* In a mount namespace, with a file of the test in place of the kernel's file. */
TEST(a_line_that_is_missing_is_no_other) {
  static const struct {
    const char *text;
    os_credentials_t credentials;
    bool is_only_thread;
  } cases[] = {
      {"CapPrm:\t0\nSeccomp:\t0\n", {false, true}, false},
      {"Uid:\t1\t1\t1\t1\nGid:\t2\t2\t2\t2\nThreads:\t1\nSeccomp:\t0\n", {true, true}, true},
      {"Uid:\t1\t1\t1\t1\nGid:\t2\t2\t2\t2\nThreads:\t2\nCapPrm:\t0\nSeccomp:\t\n", {true, true}, false},
      {"Uid:\t1\t1\t1\t1\nGid:\t2\t2\t2\t2\nThreads:\t1\nCapPrm:\t0\nSeccomp:\t0\n", {false, false}, true},
  };
  char file[] = "/tmp/hakmem-status-XXXXXX", place[64];
  if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0) check_skip("needs root");
  snprintf(place, sizeof place, "/proc/self/task/%ld/status", syscall_3(SYS_gettid, 0, 0, 0));
  int fd = mkstemp(file);
  REQUIRE(fd >= 0);
  bool mounted = mount(file, place, NULL, MS_BIND, NULL) == 0;
  REQUIRE(unlink(file) == 0);
  if (!mounted) check_skip("nothing may be mounted there");
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    size_t length = strlen(cases[i].text);
    REQUIRE(ftruncate(fd, 0) == 0 && pwrite(fd, cases[i].text, length, 0) == (ssize_t)length);
    CHECK(has_credentials(cases[i].credentials));
    CHECK_EQ(os_is_only_thread(), cases[i].is_only_thread);
  }
}

/* The groups stand on a line before those that are looked for. */
TEST(many_groups_hide_nothing) {
  static gid_t groups[400];
  if (geteuid() != 0) check_skip("needs root");
  os_credentials_t credentials = os_credentials();
  for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++) {
    groups[i] = (gid_t)(1000 + i);
    REQUIRE(setgroups(i + 1, groups) == 0);
    CHECK(has_credentials(credentials));
  }
}

static void *wait_to_end(void *ends) {
  while (!atomic_load((atomic_bool *)ends)) usleep(100);
  return NULL;
}

TEST(whether_there_is_another_thread_is_what_the_kernel_says) {
  static atomic_bool ends;
  pthread_t other;
#if defined(__SANITIZE_THREAD__)
  check_skip("its runtime has a thread of its own");
#endif
  CHECK(os_is_only_thread());
  REQUIRE(pthread_create(&other, NULL, wait_to_end, &ends) == 0);
  CHECK(!os_is_only_thread());
  atomic_store(&ends, true);
  REQUIRE(pthread_join(other, NULL) == 0);
  store_relaxed(&os_filters, 1);
  CHECK(!os_is_only_thread()); /* no file is read */
}

TEST(one_of_several_users_is_a_privilege) {
  if (geteuid() != 0) check_skip("needs root");
#if defined(__SANITIZE_ADDRESS__)
  check_skip("who has changed its user cannot be looked through for leaks at its end");
#endif
  REQUIRE(setresuid(65534, 65534, 65533) == 0);
  CHECK(os_credentials().privileged);
}

/* ---- its end and a fork's child ---- */

/* It is not a child that a program can wait for, and its end sends no signal. */
TEST(its_end_is_nobodys_business) {
  require_threads();
  struct sigaction action = {.sa_handler = note_handler};
  REQUIRE(sigaction(SIGCHLD, &action, NULL) == 0);
  REQUIRE(os_thread_start(&thread, count_run, false));
  errno = 0;
  CHECK(waitpid(-1, NULL, __WALL) == -1 && errno == ECHILD);
  wait_for_end();
  os_sleep_us(20000);
  CHECK_EQ(load_relaxed(&handled_by), 0);
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
    _exit(there && started && load_relaxed(&runs) == 2 && check_failures() == 0 ? 0 : 1);
  }
  int status = 0;
  CHECK(waitpid(pid, &status, 0) == pid && status == 0);
  CHECK(os_thread_exists(&thread));
  store_relaxed(&go_on, 1);
  wait_for_end();
}

TEST(under_a_sanitizer_there_is_none) {
  if (!SANITIZED) check_skip("no sanitizer");
  CHECK(!os_thread_start(&thread, count_run, false));
  CHECK(!os_thread_exists(&thread));
  CHECK_EQ(load_relaxed(&runs), 0);
}
