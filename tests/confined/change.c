/* change.c - what a process changes about itself while it has hakmem's thread: no thread keeps privileges that were dropped.
 *
 * Each check makes the thread start, makes one call, and checks every thread that the kernel lists.  The variant says what to
 * expect:
 *   names   hakmem has the libc names: after the call there is no other thread
 *   static  hakmem has those names that a static program can forward; the others are like raw calls
 *   none    there is never such a thread: the system's malloc, or the secure library
 * After a raw call the thread may hold only privileges that it cannot use, and it ends within a second if it can see the change.
 *
 * Without root, the process becomes root of a user namespace with one user, and the checks that need two users are skipped. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

#ifndef SYS_landlock_restrict_self
#define SYS_landlock_restrict_self 446
#endif
#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x80
#endif

enum { IDLE_BYTES = 8 << 20, IDLE_BLOCK = 16 << 10, NOBODY = 65534, THREADS_MOST = 16, ROUNDS = 10 };

static bool expects_thread, names_covered;
static bool is_root; /* real root, for whom there are other users */
static unsigned other; /* a user and group to change to */

static long raw(long number, long a, long b, long c) {
#if defined(__x86_64__)
  long result;
  register long r10 __asm__("r10") = 0, r8 __asm__("r8") = 0;
  __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8) : "rcx", "r11", "memory");
  return result;
#else
  register long x8 __asm__("x8") = number, x0 __asm__("x0") = a, x1 __asm__("x1") = b, x2 __asm__("x2") = c, x3 __asm__("x3") = 0,
                   x4 __asm__("x4") = 0;
  __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4) : "memory");
  return x0;
#endif
}

/* ---- The threads of this process, listed without an allocation ---- */

static unsigned threads(int ids[THREADS_MOST]) {
  char text[2048];
  unsigned count = 0;
  int fd = open("/proc/self/task", O_RDONLY | O_DIRECTORY);
  for (long n; (n = raw(SYS_getdents64, fd, (long)text, sizeof text)) > 0;) {
    for (long at = 0; at < n; at += *(unsigned short *)(void *)(text + at + 16)) {
      int id = atoi(text + at + 19);
      if (id != 0 && count < THREADS_MOST) ids[count++] = id;
    }
  }
  close(fd);
  return count;
}

static unsigned thread_count(void) {
  int ids[THREADS_MOST];
  return threads(ids);
}

/* Reads the line with this name from the thread's status into `line`, which is empty if the thread has ended. */
static const char *status_line(int id, const char *name, char line[256]) {
  char path[64], text[8192];
  snprintf(path, sizeof path, "/proc/self/task/%d/status", id);
  line[0] = '\0';
  int fd = open(path, O_RDONLY);
  ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
  if (fd >= 0) close(fd);
  if (n <= 0) return line;
  text[n] = '\0';
  const char *at = strstr(text, name);
  if (at != NULL) snprintf(line, 256, "%.*s", (int)strcspn(at, "\n"), at);
  return line;
}

static void check_same(int id, const char *name) {
  char own[256], its[256];
  status_line(getpid(), name, own);
  if (status_line(id, name, its)[0] != '\0' && strcmp(own, its) != 0) check_fail(__FILE__, __LINE__, "thread has %s, process %s", its, own);
}

static void check_has(int id, const char *name, const char *value) {
  char its[256];
  status_line(id, name, its);
  if (its[0] != '\0' && strstr(its, value) == NULL) check_fail(__FILE__, __LINE__, "thread has %s, not %s", its, value);
}

/* Checks that no other thread has any privileges. */
static void check_confined(void) {
  int ids[THREADS_MOST];
  for (unsigned n = threads(ids); n-- > 0;) {
    if (ids[n] == getpid()) continue;
    check_has(ids[n], "CapEff:", "0000000000000000");
    check_has(ids[n], "NoNewPrivs:", "\t1");
    check_has(ids[n], "Seccomp:", "\t2");
  }
}

/* Checks also that the other threads have the same users, groups and capabilities as the process. */
static void check_alike(void) {
  static const char *const names[] = {"Uid:", "Gid:", "Groups:", "CapInh:", "CapPrm:", "CapBnd:", "CapAmb:"};
  int ids[THREADS_MOST];
  check_confined();
  for (unsigned n = threads(ids); n-- > 0;)
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) check_same(ids[n], names[i]);
}

static void sleep_ms(long ms) { (void)nanosleep(&(struct timespec){0, ms * 1000000}, NULL); }

/* Frees enough to give the thread work, in blocks that no library keeps for long. */
static void idle(size_t bytes) {
  void **first = NULL;
  for (size_t at = 0; at < bytes; at += IDLE_BLOCK) {
    void **block = malloc(IDLE_BLOCK);
    if (block == NULL) break;
    memset(block, 1, IDLE_BLOCK);
    *block = first;
    first = block;
  }
  for (void **next; first != NULL; first = next) {
    next = *first;
    free(first);
  }
}

/* ---- One call ---- */

typedef enum reach { BY_NAME, PAST_LIBC_SEEN, PAST_LIBC } reach_t;
/* For calls that a static program cannot forward to libc. */
#define BY_LIBC (names_covered ? BY_NAME : PAST_LIBC_SEEN)
#define BY_LIBC_UNSEEN (names_covered ? BY_NAME : PAST_LIBC)

static void one_call(reach_t reach, long (*call)(void)) {
  idle(IDLE_BYTES);
  CHECK_EQ(thread_count(), expects_thread ? 2 : 1);
  errno = 0;
  long result = call();
  bool missing = result < 0 && (errno == ENOSYS || errno == EOPNOTSUPP || result == -ENOSYS || result == -EOPNOTSUPP);
  if (result < 0 && !missing) check_fail(__FILE__, __LINE__, "the call returned %ld", result);
  if (reach == BY_NAME) CHECK_EQ(thread_count(), 1);
  check_confined();
  if (reach == PAST_LIBC_SEEN)
    for (int ms = 0; ms < 1000 && thread_count() > 1; ms += 10) sleep_ms(10);
  if (reach != PAST_LIBC) CHECK_EQ(thread_count(), 1);
  idle(IDLE_BYTES);
  if (reach != PAST_LIBC) check_alike();
  else check_confined();
}

#define CALL(id, reach, expression)                    \
  static long call_##id(void) { return (expression); } \
  TEST(id) { one_call((reach), call_##id); }
/* A call that needs a second user: skipped without root. */
#define CALL_OF_ROOT(id, reach, expression)            \
  static long call_##id(void) { return (expression); } \
  TEST(id) {                                           \
    if (!is_root) check_skip("needs root");            \
    one_call((reach), call_##id);                      \
  }

typedef struct capability_header {
  uint32_t version;
  int id;
} capability_header_t;
static capability_header_t self = {0x20080522, 0};
static const uint32_t no_capabilities[6];
int capset(capability_header_t *header, const void *sets); /* <sys/capability.h> is not everywhere */

/* A filter that permits every call. */
static struct {
  uint16_t code;
  uint8_t if_true, if_false;
  uint32_t value;
} permit[] = {{0x06, 0, 0, 0x7fff0000}};
static struct {
  uint16_t count;
  void *steps;
} filter = {1, permit};

static gid_t groups[1];

CALL(name_setuid, BY_LIBC, setuid(other))
CALL(name_setgid, BY_LIBC, setgid(other))
CALL(name_seteuid, BY_LIBC, seteuid(other))
CALL(name_setegid, BY_LIBC, setegid(other))
CALL(name_setreuid, BY_LIBC, setreuid(other, other))
CALL(name_setregid, BY_LIBC, setregid(other, other))
CALL(name_setresuid, BY_LIBC, setresuid(other, other, other))
CALL(name_setresgid, BY_LIBC, setresgid(other, other, other))
CALL(name_setfsuid, BY_NAME, setfsuid(other))
CALL(name_setfsgid, BY_NAME, setfsgid(other))
CALL(name_capset, BY_NAME, capset(&self, no_capabilities))
CALL(name_prctl_no_new_privs, BY_NAME, prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
CALL(name_prctl_securebits, BY_NAME, prctl(PR_SET_SECUREBITS, 1, 0, 0, 0))
CALL(name_prctl_keepcaps, BY_NAME, prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0))
CALL(name_prctl_bounding, BY_NAME, prctl(PR_CAPBSET_DROP, 0, 0, 0, 0))
CALL(name_prctl_ambient, BY_NAME, prctl(47 /* PR_CAP_AMBIENT */, 4 /* clear all */, 0, 0, 0))
CALL(name_prctl_seccomp, BY_NAME, prctl(PR_SET_SECCOMP, 2, &filter, 0, 0))
CALL(name_chroot, BY_NAME, chroot("/"))
CALL(name_unshare, BY_NAME, unshare(CLONE_FS | CLONE_FILES))
CALL(name_setns, BY_NAME, setns(open("/proc/self/ns/uts", O_RDONLY), CLONE_NEWUTS))
CALL(number_setuid, BY_NAME, syscall(SYS_setuid, other))
CALL(number_setgid, BY_NAME, syscall(SYS_setgid, other))
CALL(number_setreuid, BY_NAME, syscall(SYS_setreuid, other, other))
CALL(number_setregid, BY_NAME, syscall(SYS_setregid, other, other))
CALL(number_setresuid, BY_NAME, syscall(SYS_setresuid, other, other, other))
CALL(number_setresgid, BY_NAME, syscall(SYS_setresgid, other, other, other))
CALL(number_setfsuid, BY_NAME, syscall(SYS_setfsuid, other))
CALL(number_setfsgid, BY_NAME, syscall(SYS_setfsgid, other))
CALL(number_capset, BY_NAME, syscall(SYS_capset, &self, no_capabilities))
CALL(number_prctl, BY_NAME, syscall(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
CALL(number_seccomp, BY_NAME, syscall(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) + syscall(SYS_seccomp, 1, 0, &filter))
CALL(number_chroot, BY_NAME, syscall(SYS_chroot, "/"))
CALL(number_unshare, BY_NAME, syscall(SYS_unshare, CLONE_FS))
CALL(number_setns, BY_NAME, syscall(SYS_setns, open("/proc/self/ns/uts", O_RDONLY), CLONE_NEWUTS))
CALL(number_landlock, BY_NAME, syscall(SYS_landlock_restrict_self, -1, 0) < 0 && errno != EBADF ? -1 : 0)
CALL_OF_ROOT(name_setgroups, BY_LIBC_UNSEEN, setgroups(1, groups))
CALL_OF_ROOT(name_initgroups, BY_LIBC_UNSEEN, initgroups("nobody", other))
CALL_OF_ROOT(number_setgroups, BY_NAME, syscall(SYS_setgroups, 1, groups))
CALL_OF_ROOT(raw_setuid, PAST_LIBC_SEEN, raw(SYS_setuid, other, 0, 0))
CALL_OF_ROOT(raw_setgid, PAST_LIBC_SEEN, raw(SYS_setgid, other, 0, 0))
CALL_OF_ROOT(raw_setreuid, PAST_LIBC_SEEN, raw(SYS_setreuid, -1, other, 0))
CALL_OF_ROOT(raw_setregid, PAST_LIBC_SEEN, raw(SYS_setregid, -1, other, 0))
CALL_OF_ROOT(raw_setresuid, PAST_LIBC_SEEN, raw(SYS_setresuid, other, other, other))
CALL_OF_ROOT(raw_setresgid, PAST_LIBC_SEEN, raw(SYS_setresgid, other, other, other))
CALL_OF_ROOT(raw_setgroups, PAST_LIBC, raw(SYS_setgroups, 1, (long)groups, 0))
CALL(raw_capset, PAST_LIBC_SEEN, raw(SYS_capset, (long)&self, (long)no_capabilities, 0))
CALL(raw_prctl_bounding, PAST_LIBC, raw(SYS_prctl, PR_CAPBSET_DROP, 0, 0))
CALL(raw_prctl_no_new_privs, PAST_LIBC, raw(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0))
CALL(raw_seccomp, PAST_LIBC, raw(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0) + raw(SYS_prctl, PR_SET_SECCOMP, 2, (long)&filter))

/* ---- Filters ---- */

TEST(no_thread_is_started_under_a_filter_of_the_programs_own) {
  REQUIRE(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, 2, &filter, 0, 0) == 0);
  idle(IDLE_BYTES);
  CHECK_EQ(thread_count(), 1);
}

TEST(a_filter_that_was_refused_changes_nothing) {
  CHECK(prctl(PR_SET_SECCOMP, 2, NULL, 0, 0) < 0);
  CHECK(syscall(SYS_seccomp, 1, 0, NULL) < 0);
  CHECK(syscall(SYS_seccomp, 2 /* SECCOMP_GET_ACTION_AVAIL */, 0, &(uint32_t){0x7fff0000}) <= 0);
  idle(IDLE_BYTES);
  CHECK_EQ(thread_count(), expects_thread ? 2 : 1);
}

TEST(no_thread_is_started_under_a_filter_that_was_there_before) {
  REQUIRE(raw(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0) == 0 && raw(SYS_prctl, PR_SET_SECCOMP, 2, (long)&filter) == 0);
  idle(IDLE_BYTES);
  CHECK_EQ(thread_count(), 1);
}

/* With the flag that puts all threads under the filter, which the kernel grants only if this is possible for each of them. */
TEST(a_filter_for_all_threads_is_granted) {
  idle(IDLE_BYTES);
  REQUIRE(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
  CHECK_EQ(syscall(SYS_seccomp, 1, 1 /* SECCOMP_FILTER_FLAG_TSYNC */, &filter), 0);
}

/* The child shares this process's memory, but its filter applies only to its own calls. */
TEST(a_filter_of_a_vfork_child_is_not_the_processs) {
  idle(IDLE_BYTES);
  pid_t child = vfork();
  if (child == 0) {
    bool filtered = prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, 2, &filter, 0, 0) == 0;
    _exit(filtered ? 0 : 1);
  }
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  idle(IDLE_BYTES);
  CHECK_EQ(thread_count(), expects_thread ? 2 : 1);
}

static struct {
  atomic_bool has_filter, ends;
} another;

static void *filter_itself(void *unused) {
  CHECK(raw(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0) == 0 && raw(SYS_prctl, PR_SET_SECCOMP, 2, (long)&filter) == 0);
  atomic_store(&another.has_filter, true);
  while (!atomic_load(&another.ends)) sleep_ms(1);
  return unused;
}

/* The kernel reports this by a positive number, which is no error. */
TEST(a_filter_that_a_thread_cannot_have_changes_nothing) {
  pthread_t thread;
  REQUIRE(pthread_create(&thread, NULL, filter_itself, NULL) == 0);
  while (!atomic_load(&another.has_filter)) sleep_ms(1);
  REQUIRE(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
  CHECK(syscall(SYS_seccomp, 1, 1 /* SECCOMP_FILTER_FLAG_TSYNC */, &filter) > 0);
  idle(IDLE_BYTES);
  CHECK_EQ(thread_count(), expects_thread ? 3 : 2);
  atomic_store(&another.ends, true);
  REQUIRE(pthread_join(thread, NULL) == 0);
}

/* ---- No way to the kernel's files ---- */

static void idle_without_descriptors(void) {
  struct rlimit before;
  REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0 && setrlimit(RLIMIT_NOFILE, &(struct rlimit){0, before.rlim_max}) == 0);
  idle(IDLE_BYTES);
  REQUIRE(setrlimit(RLIMIT_NOFILE, &before) == 0);
}

TEST(a_moment_without_descriptors_is_not_for_good) {
  idle_without_descriptors();
  for (int tries = 0; tries < 100 && expects_thread && thread_count() == 1; tries++) {
    sleep_ms(100);
    idle(IDLE_BYTES);
  }
  CHECK_EQ(thread_count(), expects_thread ? 2 : 1);
}

TEST(a_large_heap_knows_already_what_descriptors_are_needed_for) {
  for (int i = 0; i < 64; i++) memset(malloc(500000), 1, 500000); /* with no idle memory */
  idle_without_descriptors();
  CHECK_EQ(thread_count(), expects_thread ? 2 : 1);
}

TEST(a_new_root_needs_no_proc) {
  char root[] = "/tmp/hakmem-root-XXXXXX";
  if (!is_root) check_skip("needs root");
  int outside = open("/", O_RDONLY | O_DIRECTORY);
  REQUIRE(outside >= 0 && mkdtemp(root) != NULL && chdir(root) == 0 && rmdir(root) == 0);
  REQUIRE(chroot(".") == 0 && chdir("/") == 0);
  idle(IDLE_BYTES);
  REQUIRE(fchdir(outside) == 0 && raw(SYS_chroot, (long)".", 0, 0) == 0); /* to see the threads */
  CHECK_EQ(thread_count(), expects_thread ? 2 : 1);
}

/* ---- Calls reach libc unchanged ---- */

TEST(errno_is_libcs) {
  errno = 0;
  CHECK(chroot("/nowhere/at/all") == -1 && errno == ENOENT);
  errno = 0;
  CHECK(unshare(-1) == -1 && errno == EINVAL);
  errno = 0;
  CHECK(setns(-1, 0) == -1 && errno == EBADF);
  errno = 0;
  CHECK(setgroups((size_t)1 << 20, groups) == -1 && (errno == EINVAL || errno == EPERM));
  errno = 0;
  CHECK(capset(NULL, NULL) == -1 && errno == EFAULT);
  errno = 0;
  CHECK(prctl(-1, 0, 0, 0, 0) == -1 && errno == EINVAL);
  errno = 0;
  CHECK(syscall(-1) == -1 && errno == ENOSYS);
  errno = 4711;
  CHECK(prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) >= 0 && syscall(SYS_getpid) == getpid() && errno == 4711);
  CHECK(setuid(getuid()) == 0 && prctl(PR_SET_KEEPCAPS, 0, 0, 0, 0) == 0 && errno == 4711);
}

TEST(all_arguments_arrive) {
  char *page = (char *)syscall(SYS_mmap, NULL, 65536, 3, 0x22 /* private, anonymous */, -1, 0);
  REQUIRE(page != (char *)-1);
  page[0] = 1;
  int fd = (int)syscall(SYS_memfd_create, "six", 0);
  CHECK(ftruncate(fd, 131072) == 0 && pwrite(fd, "x", 1, 65536) == 1);
  char *sixth = (char *)syscall(SYS_mmap, NULL, 65536, 1, 2 /* private */, fd, 65536L);
  CHECK(sixth != (char *)-1 && sixth[0] == 'x');
  char name[16] = "", want[16] = "hakmem-test";
  CHECK(prctl(PR_SET_NAME, want) == 0 && prctl(PR_GET_NAME, name) == 0 && strcmp(name, want) == 0);
}

/* ---- Namespaces: repeatedly, each time with a thread of ours ---- */

static int one_try(int (*call)(int kind), int kind, int rounds) {
  for (int i = 0; i < rounds; i++) {
    idle(IDLE_BYTES);
    bool beside = thread_count() == 2;
    if (call(kind) != 0) return errno;
    if (beside != expects_thread) return 255;
  }
  return 0;
}

/* Those that the thread would prevent are tried most often. */
static int children_for(int kind) {
  bool in_the_way = kind == CLONE_NEWUSER || kind == CLONE_VM || kind == CLONE_SIGHAND || kind == CLONE_NEWNS;
  return getenv("CHANGE_BRIEFLY") != NULL ? 3 : in_the_way ? 100 : 10;
}

static void tries(int rounds, int (*call)(int kind), int kind) {
  int refused = 0, alone = 0, error = 0, children = children_for(kind);
  for (int i = 0; i < children; i++) {
    pid_t child = fork();
    if (child == 0) _exit(one_try(call, kind, rounds));
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status)) refused++;
    else if (WEXITSTATUS(status) == 255) alone++;
    else if (WEXITSTATUS(status) != 0) refused++, error = WEXITSTATUS(status);
  }
  if (refused != 0) check_fail(__FILE__, __LINE__, "%d of %d were refused, with errno %d", refused, children, error);
  CHECK_EQ(alone, 0); /* a try without the thread would prove nothing */
}

static int enter(int kind) {
  static const struct {
    int kind;
    const char *path;
  } own[] = {{CLONE_NEWNS, "/proc/self/ns/mnt"},  {CLONE_NEWUTS, "/proc/self/ns/uts"},       {CLONE_NEWIPC, "/proc/self/ns/ipc"},
             {CLONE_NEWNET, "/proc/self/ns/net"}, {CLONE_NEWCGROUP, "/proc/self/ns/cgroup"}, {CLONE_NEWTIME, "/proc/self/ns/time"}};
  for (size_t i = 0; i < sizeof own / sizeof own[0]; i++)
    if (own[i].kind == kind) return setns(open(own[i].path, O_RDONLY), kind);
  errno = EDOM;
  return -1;
}

/* Some kinds cannot be unshared twice. */
#define UNSHARE(id, rounds, kind) \
  TEST(unshare_##id) { tries((rounds), unshare, (kind)); }
#define ENTER(id, kind) \
  TEST(enter_##id) { tries(ROUNDS, enter, (kind)); }
UNSHARE(user, 1, CLONE_NEWUSER)
UNSHARE(memory, ROUNDS, CLONE_VM)
UNSHARE(handlers, ROUNDS, CLONE_SIGHAND)
UNSHARE(threads, ROUNDS, CLONE_THREAD)
UNSHARE(folders, ROUNDS, CLONE_FS)
UNSHARE(files, ROUNDS, CLONE_FILES)
UNSHARE(semaphores, ROUNDS, CLONE_SYSVSEM)
UNSHARE(mounts, 1, CLONE_NEWNS)
UNSHARE(names, ROUNDS, CLONE_NEWUTS)
UNSHARE(messages, 1, CLONE_NEWIPC)
UNSHARE(network, 1, CLONE_NEWNET)
UNSHARE(processes, 1, CLONE_NEWPID)
UNSHARE(groups, ROUNDS, CLONE_NEWCGROUP)
UNSHARE(time, 1, CLONE_NEWTIME)
ENTER(mounts, CLONE_NEWNS)
ENTER(names, CLONE_NEWUTS)
ENTER(messages, CLONE_NEWIPC)
ENTER(network, CLONE_NEWNET)
ENTER(groups, CLONE_NEWCGROUP)
ENTER(time, CLONE_NEWTIME)

/* ---- */

static void write_file(const char *path, const char *text) {
  int fd = open(path, O_WRONLY);
  if (fd < 0 || write(fd, text, strlen(text)) < 0) check_skip("needs root, or a user namespace");
  close(fd);
}

/* Becomes root of a user namespace that has no other user. */
static void become_root(void) {
  char map[64];
  unsigned user = geteuid(), group = getegid();
  if (unshare(CLONE_NEWUSER) != 0) check_skip("needs root, or a user namespace");
  write_file("/proc/self/setgroups", "deny");
  snprintf(map, sizeof map, "0 %u 1", user);
  write_file("/proc/self/uid_map", map);
  snprintf(map, sizeof map, "0 %u 1", group);
  write_file("/proc/self/gid_map", map);
}

void check_setup(const char *variant) {
  expects_thread = strcmp(variant, "none") != 0;
  names_covered = strcmp(variant, "static") != 0;
  is_root = geteuid() == 0;
  if (!is_root) become_root();
  other = is_root ? NOBODY : 0;
  groups[0] = other;
}

int main(int argc, char **argv) { return check_main(argc, argv); }
