/* os.c - the contract of os/os.h, and the lock.
 *
 * Built twice: on os_linux.c and on tests/support/fake_os.c, so that the other unit
 * tests rest on the same behaviour that the allocator gets from Linux. */
#include "os/os.h"

#include <errno.h>
#include <fcntl.h>
#if __has_include(<linux/seccomp.h>)
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#define HAS_FILTERS
#endif
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/thread.h"
#include "os/line.h"
#include "os/lock.h"
#include "os/syscall.h"
#include "unit.h"

#define MARK 4242
#define KEEPS_ERRNO(...)   \
  do {                     \
    errno = MARK;          \
    __VA_ARGS__;           \
    CHECK_EQ(errno, MARK); \
  } while (0)

static const size_t some = 16; /* pages */

#if defined(HAS_FILTERS) && !defined(FAKE_OS)
static bool filter(struct sock_filter *program, size_t count) {
  struct sock_fprog whole = {(unsigned short)count, program};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &whole) == 0;
}
#endif

/* ---- facts ---- */

TEST(facts_are_plausible_and_keep_errno) {
  size_t page = 0;
  KEEPS_ERRNO(page = os_page_size());
  CHECK_EQ(page, sysconf(_SC_PAGESIZE));
  KEEPS_ERRNO(CHECK(os_physical_memory() > (uint64_t)16 << 20));
  KEEPS_ERRNO(CHECK(os_address_limit() > 0));
  KEEPS_ERRNO(CHECK(!os_is_privileged()));
  KEEPS_ERRNO(CHECK(os_random_seed() == os_random_seed()));
}

#if !defined(FAKE_OS)
/* libc makes its stack canary of the kernel's random bytes, so visible values derived from these bytes must not reveal them.  A change
 * of any bit changes about half of the value's bits, and the value shows none of the bytes. */
static void check_mixed(uint64_t (*value)(void)) {
  unsigned char *start = (unsigned char *)getauxval(AT_RANDOM);
  REQUIRE(start != NULL);
  uint64_t before = value(), words[2], changed = 0;
  memcpy(words, start, sizeof words);
  for (unsigned bit = 0; bit < 128; bit++) {
    start[bit / 8] = (unsigned char)(start[bit / 8] ^ 1 << bit % 8);
    uint64_t difference = value() ^ before;
    start[bit / 8] = (unsigned char)(start[bit / 8] ^ 1 << bit % 8);
    CHECK(bits_count64(difference) >= 8);
    changed += bits_count64(difference);
    for (unsigned n = 0; n < 2; n++) CHECK((before ^ bits_rotr(words[n], 1 + bit % 63)) >> 24 != 0);
  }
  CHECK(changed > 128 * 28 && changed < 128 * 36);
}

TEST(a_seed_tells_nothing_of_what_it_is_made_of) { check_mixed(os_random_seed); }

/* From here on the call fails with ENOSYS; if that cannot be arranged, the process ends. */
static void refuse(uint32_t call) {
#ifdef HAS_FILTERS
  struct sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  if (filter(program, sizeof program / sizeof program[0])) return;
#endif
  (void)call;
  _exit(1);
}

/* The first number of a process if the kernel gives none. */
static uint64_t first_random(void) {
  uint64_t value = 0;
  int ends[2], status = 0;
  pid_t child = pipe(ends) == 0 ? fork() : -1;
  if (child == 0) {
    refuse(SYS_getrandom);
    value = os_random();
    _exit(write(ends[1], &value, sizeof value) != sizeof value);
  }
  if (waitpid(child, &status, 0) != child || status != 0 || read(ends[0], &value, sizeof value) < 0)
    check_skip("no system call can be refused here");
  close(ends[0]), close(ends[1]);
  return value;
}

TEST(a_random_number_without_the_kernel_tells_as_little) { check_mixed(first_random); }
#endif

TEST(time_does_not_run_backwards) {
  uint64_t before = 0, after = 0;
  KEEPS_ERRNO(before = os_now_ms());
  KEEPS_ERRNO(os_sleep_us(1000));
  KEEPS_ERRNO(os_yield());
  after = os_now_ms();
  CHECK(after >= before && before > 0);
}

/* ---- memory ---- */

TEST(what_is_not_there_cannot_be_made_accessible) {
  size_t page = os_page_size();
  char *start = os_map(some * page);
  REQUIRE(start != NULL && os_unmap(start, some * page));
  KEEPS_ERRNO(CHECK(!os_unguard(start, some * page)));
}

TEST(absurd_sizes_are_refused) {
  size_t absurd = (size_t)1 << 60;
  KEEPS_ERRNO(CHECK(os_map(absurd) == NULL));
  KEEPS_ERRNO(CHECK(os_map_at((void *)((uintptr_t)1 << 36), absurd) != OS_MAPPED));
}

TEST(map_at_replaces_nothing) {
  size_t page = os_page_size();
  char *start = os_map(some * page);
  REQUIRE(start != NULL);
  memset(start, 5, some * page);
  KEEPS_ERRNO(CHECK_EQ(os_map_at(start, some * page), OS_TAKEN));
  CHECK(start[0] == 5);
  REQUIRE(os_unmap(start, some * page / 2));
  /* one page in the way is enough */
  KEEPS_ERRNO(CHECK_EQ(os_map_at(start, (some / 2 + 1) * page), OS_TAKEN));
  CHECK(start[some * page / 2] == 5);
  KEEPS_ERRNO(CHECK_EQ(os_map_at(start, some / 2 * page), OS_MAPPED));
  CHECK(unit_is_zero(start, some / 2 * page));
  start[0] = 1;
  CHECK(os_unmap(start, some * page));
}

#if !defined(FAKE_OS)
static char *_Atomic left;
static _Atomic bool at_place;

static void *leave_pages(void *unused) {
  size_t bytes = some * os_page_size();
  long start = syscall_6(SYS_mmap, 0, (long)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (syscall_failed(start)) return NULL;
  memset((char *)start, 7, bytes);
  (void)syscall_3(SYS_munmap, start, (long)bytes, 0);
  store_relaxed(&left, (char *)start);
  return unused;
}

/* libc unmaps the stacks of threads in a way that ThreadSanitizer does not see. What such a thread has written must not
 * count as a race with data that is mapped there later. */
static void take_what_was_left(char *(*map)(char *at, size_t bytes)) {
  size_t bytes = some * os_page_size();
  pthread_t thread;
  store_relaxed(&left, NULL);
  REQUIRE(pthread_create(&thread, NULL, leave_pages, NULL) == 0);
  while (load_relaxed(&left) == NULL) sched_yield(); /* relaxed, and no join: only the kernel orders the two threads */
  char *start = map(load_relaxed(&left), bytes);
  REQUIRE(start != NULL);
  for (size_t i = 0; i < bytes; i += sizeof(uintptr_t)) racy_store((uintptr_t *)(void *)(start + i), 1);
  if (start == load_relaxed(&left)) store_relaxed(&at_place, true);
  CHECK(os_unmap(start, bytes));
  REQUIRE(pthread_join(thread, NULL) == 0);
}

static char *map_anywhere(char *at, size_t bytes) {
  (void)at;
  return os_map(bytes);
}

static char *map_there(char *at, size_t bytes) { return os_map_at(at, bytes) == OS_MAPPED ? at : NULL; }

TEST(pages_have_no_past) {
  for (int i = 0; i < 10; i++) {
    take_what_was_left(map_anywhere);
    take_what_was_left(map_there);
  }
  CHECK(load_relaxed(&at_place));
}
#endif

static void check_purge(char *start) {
  size_t page = os_page_size();
  REQUIRE(start != NULL && unit_is_zero(start, some * page));
  for (int round = 0; round < 2; round++) {
    memset(start, 9, some * page);
    KEEPS_ERRNO(CHECK(os_purge(start + page, page)));
    CHECK(start[page - 1] == 9 && start[2 * page] == 9);
    CHECK(unit_is_zero(start + page, page));
  }
  CHECK(os_unmap(start, some * page));
}

TEST(purged_pages_read_as_zero) { check_purge(os_map(some * os_page_size())); }

/* Asks the kernel whether the byte is accessible, without a fault. */
static bool is_accessible(const char *byte) {
  int ends[2];
  if (pipe(ends) != 0) return false;
  bool accessible = write(ends[1], byte, 1) == 1;
  close(ends[0]), close(ends[1]);
  return accessible;
}

/* Guards of the light kind, and the kind for large ranges. */
static void check_guards(void) {
  size_t page = os_page_size();
  for (size_t pages = 2; pages * page <= (size_t)8 << 20; pages *= 8) {
    char *start = os_map((pages + 2) * page), *end = start + (pages + 2) * page;
    REQUIRE(start != NULL);
    memset(start, 9, (pages + 2) * page);
    for (int round = 0; round < 2; round++) {
      KEEPS_ERRNO(CHECK(os_guard(start + page, pages * page, true) != OS_OPEN));
      CHECK(!is_accessible(start + page) && !is_accessible(end - page - 1));
      CHECK(start[page - 1] == 9 && *(end - page) == 9);
      KEEPS_ERRNO(CHECK(os_unguard(start + page, pages * page)));
      REQUIRE(is_accessible(start + page) && is_accessible(end - page - 1));
      CHECK(unit_is_zero(start + page, pages * page));
      memset(start + page, 8, pages * page);
    }
    CHECK(os_unmap(start, (pages + 2) * page));
  }
}

TEST(guarded_pages_are_inaccessible_and_come_back_zero) { check_guards(); }

TEST(populating_and_huge_pages_change_no_content) {
  size_t page = os_page_size();
  char *start = os_map(some * page);
  REQUIRE(start != NULL);
  start[page] = 7;
  KEEPS_ERRNO(CHECK(os_populate(start, some * page)));
  KEEPS_ERRNO(os_huge(start, some * page, true));
  KEEPS_ERRNO(os_huge(start, some * page, false));
  CHECK(start[page] == 7);
  start[page] = 0;
  CHECK(unit_is_zero(start, some * page));
  CHECK(os_unmap(start, some * page));
}

/* Both ranges lie in one mapping, as in the region. */
TEST(moved_pages_take_their_content_along) {
  size_t page = os_page_size();
  char *start = os_map(3 * some * page);
  REQUIRE(start != NULL);
  char *from = start, *to = start + 2 * some * page;
  memset(start, 1, 3 * some * page);
  memset(from, 8, some * page);
  bool moved = false;
  KEEPS_ERRNO(moved = os_move(from, to, some * page));
  if (!moved) check_skip("the kernel moves no pages");
  CHECK(to[0] == 8 && memcmp(to, to + 1, some * page - 1) == 0);
  CHECK(unit_is_zero(from, some * page));
  CHECK(to[-1] == 1 && from[some * page] == 1);
  from[3] = 2; /* both ranges are mapped; the pages move back */
  CHECK(os_move(to, from, some * page));
  CHECK(from[3] == 8 && unit_is_zero(to, some * page));
  to[3] = 2; /* both ranges can still be used like other memory */
  CHECK(is_accessible(to) && os_purge(to, page) && os_purge(from, page));
  CHECK(to[3] == 0 && from[3] == 0);
  CHECK(os_unmap(start, 3 * some * page));
}

TEST(renewed_pages_read_as_zero) {
  size_t page = os_page_size();
  char *start = os_map(some * page);
  REQUIRE(start != NULL);
  memset(start, 9, some * page);
  KEEPS_ERRNO(CHECK(os_renew(start + page, 2 * page)));
  CHECK(start[page - 1] == 9 && start[3 * page] == 9);
  CHECK(unit_is_zero(start + page, 2 * page));
  start[page] = 1;
  CHECK(os_unmap(start, some * page));
}

static bool dies_at(char *at) {
  pid_t child = fork();
  if (child == 0) {
    signal(SIGSEGV, SIG_DFL);
    *(volatile char *)at = 1;
    _exit(0);
  }
  int status = 0;
  return waitpid(child, &status, 0) == child && status != 0;
}

/* Small ranges are guarded in another way than large ones, and may lie within large ones. */
TEST(guarded_pages_are_inaccessible_and_then_zero) {
  size_t page = os_page_size();
  const size_t sizes[] = {some * page, (size_t)4 << 20};
  for (int i = 0; i < 2; i++) {
    size_t bytes = sizes[i];
    char *start = os_map(bytes);
    REQUIRE(start != NULL);
    memset(start, 9, bytes);
    KEEPS_ERRNO(CHECK(os_guard(start + bytes / 2, page, true) != OS_OPEN));
    KEEPS_ERRNO(CHECK(os_guard(start + page, bytes / 2 - page, true) != OS_OPEN));
    KEEPS_ERRNO(CHECK(os_guard(start + bytes / 2 + page, bytes / 2 - 2 * page, true) != OS_OPEN));
    CHECK(dies_at(start + page) && dies_at(start + bytes / 2) && dies_at(start + bytes - page - 1));
    CHECK(start[page - 1] == 9 && start[bytes - page] == 9);
    KEEPS_ERRNO(CHECK(os_unguard(start + page, bytes - 2 * page)));
    CHECK(!dies_at(start + bytes / 2));
    CHECK(unit_is_zero(start + page, bytes - 2 * page));
    CHECK(os_unmap(start, bytes));
  }
}

#if !defined(FAKE_OS)
/* From here on such a call fails with `error`, or if that is 0, succeeds and does nothing. */
static void refuse_argument(long call, unsigned argument, uint32_t value, uint32_t error) {
#ifdef HAS_FILTERS
  struct sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)call, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)(offsetof(struct seccomp_data, args) + argument * sizeof(uint64_t))),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog filter = {sizeof program / sizeof program[0], program};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0) return;
#endif
  (void)call, (void)argument, (void)value, (void)error;
  check_skip("system calls cannot be filtered here");
}

/* From here on the kernel accepts this advice and does nothing, as an emulator may. */
static void pretend(uint32_t advice) { refuse_argument(SYS_madvise, 2, advice, 0); }

/* Whether the mapping of the address has this flag in /proc/self/smaps. */
static bool has_flag(const void *address, const char *flag) {
  FILE *file = fopen("/proc/self/smaps", "r");
  char line[512];
  bool here = false, has = false;
  while (file != NULL && fgets(line, sizeof line, file) != NULL) {
    unsigned long start, end;
    if (sscanf(line, "%lx-%lx ", &start, &end) == 2) here = (uintptr_t)address >= start && (uintptr_t)address < end;
    if (here && strncmp(line, "VmFlags:", 8) == 0) has = strstr(line, flag) != NULL;
  }
  if (file != NULL) fclose(file);
  return has;
}

/* Maps three times `bytes`; the first `bytes` are written and can be moved. */
static char *movable(size_t bytes) {
  char *start = os_map(3 * bytes);
  if (start == NULL) abort();
  if (!os_move(start, start + 2 * bytes, bytes)) check_skip("the kernel moves no pages");
  memset(start, 8, bytes);
  return start;
}

/* The kernel still knows moves. */
static void refuse_one_move(uint32_t error) {
  size_t page = os_page_size(), bytes = some * page;
  char *from = movable(bytes), *to = from + 2 * bytes;
  refuse_argument(SYS_mremap, 1, (uint32_t)bytes, error);
  KEEPS_ERRNO(CHECK(!os_move(from, to, bytes)));
  CHECK(from[0] == 8 && from[bytes - 1] == 8 && unit_is_zero(to, bytes));
  CHECK(os_move(from, to, bytes - page));
  CHECK(to[0] == 8 && unit_is_zero(from, bytes - page) && from[bytes - page] == 8);
}

TEST(a_move_that_is_refused_is_not_the_last) { refuse_one_move(ENOMEM); } /* too many mappings */
TEST(pages_that_cannot_be_moved_are_not_the_last) { refuse_one_move(EPERM); } /* sealed by the program */

TEST(where_no_page_can_be_moved_any_more_none_is_tried) {
  size_t bytes = some * os_page_size();
  char *from = movable(bytes), *to = from + 2 * bytes;
  refuse_argument(SYS_mremap, 3, 7 /* MREMAP_MAYMOVE, FIXED and DONTUNMAP, as every move has */, ENOSYS);
  CHECK(!os_move(from, to, bytes));
  uint64_t before = load_relaxed(&os_counts.mremap);
  CHECK(!os_move(from, to, bytes));
  CHECK_EQ(load_relaxed(&os_counts.mremap), before);
}

/* Some kernels move only some of them. */
TEST(several_mappings_are_not_moved) {
  size_t page = os_page_size(), bytes = some * page;
  char *from = movable(bytes), *to = from + 2 * bytes;
  REQUIRE(madvise(from + bytes / 2, page, MADV_DONTFORK) == 0);
  CHECK(!os_move(from, to, bytes));
  CHECK(from[0] == 8 && from[bytes - 1] == 8 && unit_is_zero(to, bytes));
  REQUIRE(madvise(from + bytes / 2, page, MADV_DOFORK) == 0);
  CHECK(os_move(from, to, bytes) && to[bytes - 1] == 8);
}

/* The kernel unmaps the target before it finds that the limit allows no new mapping. */
static void move_under(int kind) {
  size_t bytes = some * os_page_size();
  char *from = movable(bytes), *to = from + 2 * bytes;
  struct rlimit before, low;
  REQUIRE(getrlimit(kind, &before) == 0);
  low = before;
  low.rlim_cur = 1;
  REQUIRE(setrlimit(kind, &low) == 0);
  void *more = os_map(bytes);
  bool moved = os_move(from, to, bytes);
  REQUIRE(setrlimit(kind, &before) == 0);
  if (more != NULL) check_skip("there are no such limits here");
  CHECK(!moved && from[0] == 8 && from[bytes - 1] == 8 && unit_is_zero(to, bytes));
  CHECK(os_move(from, to, bytes) && to[bytes - 1] == 8);
}

TEST(nothing_moves_where_the_addresses_are_limited_below_what_is_mapped) { move_under(RLIMIT_AS); }
TEST(nothing_moves_where_the_data_is_limited_below_what_is_mapped) { move_under(RLIMIT_DATA); }

/* The kernel would remove the lock from the pages that stay. */
TEST(locked_pages_do_not_move) {
  size_t bytes = some * os_page_size();
  char *from = movable(bytes), *to = from + 2 * bytes;
  REQUIRE((int)syscall(SYS_mlock, from, bytes) == 0);
  CHECK(!os_move(from, to, bytes));
  CHECK(from[0] == 8 && has_flag(from, " lo"));
  REQUIRE((int)syscall(SYS_munlock, from, bytes) == 0);
  CHECK(os_move(from, to, bytes));
}

/* Some kernels unmap the old range before they find that there is no memory for the new mapping. */
TEST(what_a_failed_renewal_has_unmapped_is_mapped_again) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  check_skip("a sanitizer's runtime makes such calls itself");
#endif
  size_t page = os_page_size(), bytes = some * page;
  char *start = os_map(bytes);
  REQUIRE(start != NULL);
  memset(start, 1, bytes);
  refuse_argument(SYS_mmap, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, ENOMEM);
  KEEPS_ERRNO(CHECK(!os_renew(start, bytes)));
  CHECK(start[0] == 1 && start[bytes - 1] == 1);
  REQUIRE(munmap(start, bytes) == 0);
  KEEPS_ERRNO(CHECK(os_renew(start, bytes)));
  CHECK(unit_is_zero(start, bytes));
  memset(start, 1, bytes);
  CHECK(os_unmap(start, bytes));
}

TEST(what_is_renewed_is_kept_from_huge_pages) {
  if (access("/sys/kernel/mm/transparent_hugepage", F_OK) != 0) check_skip("the kernel has no huge pages");
  size_t bytes = (size_t)4 << 20, page = os_page_size();
  char *start = os_map(bytes);
  REQUIRE(start != NULL);
  os_huge(start, bytes, true);
  CHECK(has_flag(start, " hg"));
  CHECK(os_renew(start + page, page));
  CHECK(has_flag(start + page, " nh"));
  os_huge(start, bytes, false);
  CHECK(has_flag(start, " nh"));
  CHECK(os_unmap(start, bytes));
}
#endif

#if !defined(FAKE_OS)
TEST(resident_pages_are_those_that_were_written) {
  size_t page = os_page_size(), pages = 300;
  char *start = os_map(pages * page);
  REQUIRE(start != NULL);
  os_huge(start, pages * page, false);
  size_t resident = 99;
  KEEPS_ERRNO(resident = os_resident(start, pages));
  CHECK_EQ(resident, 0);
  start[0] = start[page] = start[7 * page] = 1;
  CHECK_EQ(os_resident(start, some), 3);
  CHECK_EQ(os_resident(start, 7), 2);
  memset(start, 1, pages * page);
  CHECK_EQ(os_resident(start, some), some);
  CHECK_EQ(os_resident(start, pages), 256);
  CHECK(os_purge(start, pages * page));
  CHECK_EQ(os_resident(start, pages), 0);
  CHECK(os_unmap(start, pages * page));
  CHECK_EQ(os_resident(start, some), 0);
}

/* The system call, since under sanitizers mlock does nothing. */
TEST(locked_pages_go_back_when_asked_for) {
  size_t page = os_page_size();
  char *start = os_map(some * page);
  REQUIRE(start != NULL && (int)syscall(SYS_mlock, start + page, 2 * page) == 0);
  memset(start, 1, some * page);
  if (os_purge(start, some * page)) check_skip("locked pages are given back here");
  bool done = false;
  KEEPS_ERRNO(done = os_purge_locked(start, some * page));
  if (!done) check_skip("before Linux 5.18");
  CHECK_EQ(os_resident(start, some), 0);
  for (size_t i = 0; i < some; i++) CHECK(start[i * page] == 0);
  CHECK(!os_purge(start, some * page)); /* still locked */
  CHECK(os_unmap(start, some * page));
}

TEST(populated_pages_are_resident) {
  size_t page = os_page_size();
  char *start = os_map(some * page);
  REQUIRE(start != NULL);
  os_huge(start, some * page, false);
  start[page] = 1;
  CHECK(os_populate(start, some * page));
  CHECK_EQ(os_resident(start, some), some);
  CHECK(start[page] == 1);
}

TEST(where_nothing_is_nothing_can_be_populated) {
  size_t page = os_page_size();
  char *start = os_map(some * page);
  REQUIRE(start != NULL && os_unmap(start, some * page));
  KEEPS_ERRNO(CHECK(!os_populate(start, some * page)));
  KEEPS_ERRNO(CHECK(!os_purge(start, some * page)));
}

#if !defined(FAKE_OS)

#define KILLED 0x80000000u
#define ERROR(number) (0x00050000u | (number))

/* From here on the call gets this answer. */
static void deny(uint32_t call, uint32_t answer) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  check_skip("a sanitizer's runtime makes such calls itself");
#endif
#ifdef HAS_FILTERS
  struct sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, answer),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog filter = {sizeof program / sizeof program[0], program};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0) return;
#endif
  (void)call, (void)answer;
  check_skip("system calls cannot be filtered here");
}

TEST(what_may_not_be_sealed_stays_as_it_is) {
  size_t page = os_page_size();
  char *start = os_map(page);
  REQUIRE(start != NULL);
  deny(SYS_mprotect, ERROR(EPERM));
  KEEPS_ERRNO(CHECK(!os_seal(start, page, true) && !os_seal(start, page, false)));
  start[0] = 1;
}

TEST(a_refused_unmap_fails_and_no_more) {
  char *start = os_map(os_page_size());
  REQUIRE(start != NULL);
  deny(SYS_munmap, ERROR(EPERM));
  KEEPS_ERRNO(CHECK(!os_unmap(start, os_page_size())));
  start[0] = 1;
}

/* Nor may the target be mapped again if that call is refused too. */
TEST(a_refused_move_fails_and_no_more) {
  size_t page = os_page_size();
  char *start = os_map(2 * page), *others = os_map(2 * page);
  REQUIRE(start != NULL && others != NULL);
  (void)!os_move(others, others + page, page); /* makes the trial move elsewhere */
  start[0] = 1;
  start[page] = 2;
  deny(SYS_mremap, ERROR(EPERM));
  deny(SYS_mmap, ERROR(EPERM));
  KEEPS_ERRNO(CHECK(!os_move(start, start + page, page)));
  CHECK(start[0] == 1 && start[page] == 2);
}

TEST(under_a_filter_of_its_own_no_file_is_read_and_nothing_is_looked_at) {
  NOT_COUNTED();
  char text[64];
  char *start = os_map(os_page_size());
  REQUIRE(start != NULL);
  start[0] = 1;
  CHECK(os_resident(start, 1) == 1 && os_read_file("/proc/self/statm", text, sizeof text) > 0);
  store_relaxed(&os_filters, 1);
  deny(SYS_openat, KILLED);
  deny(SYS_mincore, KILLED);
  CHECK(os_resident(start, 1) == 0 && os_read_file("/proc/self/statm", text, sizeof text) == -1);
}

TEST(the_limit_of_mappings_is_the_systems) {
  char text[64];
  if (os_read_file("/proc/sys/vm/max_map_count", text, sizeof text) <= 0) check_skip("the kernel does not tell");
  CHECK_EQ(os_map_limit(), atoll(text));
  store_relaxed(&os_filters, 1);
  CHECK_EQ(os_map_limit(), atoll(text)); /* from then on it is known */
}

TEST(where_it_cannot_be_read_it_is_linuxs_own) {
  store_relaxed(&os_filters, 1);
  CHECK_EQ(os_map_limit(), 65530);
}

#endif

enum { ADVICE_PURGE = 4, ADVICE_GUARD = 102, ADVICE_UNGUARD = 103 };

TEST(purges_that_are_ignored_are_made_up_for) {
  pretend(ADVICE_PURGE);
  check_purge(os_map(some * os_page_size()));
}

TEST(guards_that_are_ignored_are_made_up_for) {
  pretend(ADVICE_GUARD);
  pretend(ADVICE_UNGUARD);
  check_guards();
}

TEST(guards_are_made_of_what_is_there_where_purges_are_ignored_too) {
  pretend(ADVICE_PURGE);
  pretend(ADVICE_GUARD);
  pretend(ADVICE_UNGUARD);
  check_guards();
}

/* The kernel gives no memory back if the program has locked it, or if a filter refuses the call. */
static void check_kept(char *start, size_t bytes, bool locked, bool split) {
  size_t page = os_page_size();
  for (int round = 0; round < 2; round++) {
    memset(start, 9, bytes);
    if (locked && round == 0) REQUIRE((int)syscall(SYS_mlock, start + page, bytes - 2 * page) == 0);
    os_guard_t guard = OS_OPEN;
    KEEPS_ERRNO(guard = os_guard(start + page, bytes - 2 * page, split));
    CHECK_EQ(guard, split ? OS_SPLIT : OS_OPEN);
    CHECK(start[0] == 9 && start[bytes - page] == 9);
    CHECK_EQ(dies_at(start + page), split);
    KEEPS_ERRNO(CHECK(os_unguard(start + page, bytes - 2 * page)));
    CHECK(!dies_at(start + page));
    CHECK(unit_is_zero(start + page, bytes - 2 * page));
    if (locked) CHECK(has_flag(start + page, " lo"));
  }
}

static void check_all_kept(bool locked) {
  const size_t sizes[] = {some * os_page_size(), (size_t)4 << 20};
  for (int i = 0; i < 4; i++) check_kept(os_map(sizes[i / 2]), sizes[i / 2], locked, i % 2 == 0);
}

TEST(what_is_locked_is_zero_after_a_guard) { check_all_kept(true); }

TEST(what_is_locked_in_part_is_zero_after_a_guard) {
  size_t page = os_page_size();
  char *start = os_map(some * page);
  REQUIRE(start != NULL);
  memset(start, 9, some * page);
  REQUIRE((int)syscall(SYS_mlock, start + 3 * page, page) == 0);
  CHECK(os_guard(start, some * page, true) == OS_SPLIT && dies_at(start) && dies_at(start + 3 * page));
  CHECK(os_unguard(start, some * page));
  CHECK(unit_is_zero(start, some * page));
}

TEST(where_advice_is_refused_guarded_pages_are_zero) {
  refuse_argument(SYS_madvise, 2, ADVICE_PURGE, EPERM);
  refuse_argument(SYS_madvise, 2, ADVICE_GUARD, EPERM);
  refuse_argument(SYS_madvise, 2, ADVICE_UNGUARD, EPERM);
  check_all_kept(false);
}

TEST(a_guard_goes_though_advice_is_refused_by_then) {
  size_t page = os_page_size();
  char *start = os_map(some * page);
  REQUIRE(start != NULL);
  memset(start, 9, some * page);
  CHECK(os_guard(start, some * page, true) != OS_OPEN);
  refuse_argument(SYS_madvise, 2, ADVICE_PURGE, EPERM);
  refuse_argument(SYS_madvise, 2, ADVICE_GUARD, EPERM);
  refuse_argument(SYS_madvise, 2, ADVICE_UNGUARD, EPERM);
  CHECK(os_unguard(start, some * page));
  CHECK(!dies_at(start) && unit_is_zero(start, some * page));
}

/* One refusal concerns only that memory. */
TEST(guards_stay_light_beside_locked_memory) {
  size_t page = os_page_size();
  char *start = os_map(some * page), *locked = os_map(page);
  REQUIRE(start != NULL && locked != NULL && (int)syscall(SYS_mlock, locked, page) == 0);
  if (os_guard(start, page, false) != OS_LIGHT) check_skip("the kernel has no light guards");
  CHECK_EQ(os_guard(locked, page, true), OS_SPLIT);
  CHECK_EQ(os_guard(start + page, page, true), OS_LIGHT);
  CHECK(os_unguard(start, 2 * page) && os_unguard(locked, page));
  CHECK(!dies_at(start) && !dies_at(start + page) && !dies_at(locked));
}

TEST(the_number_of_mappings_is_the_kernels) {
  char text[32];
  long length = 0;
  size_t limit = 0;
  KEEPS_ERRNO(limit = os_map_limit());
  length = os_read_file("/proc/sys/vm/max_map_count", text, sizeof text);
  CHECK_EQ(limit, length > 0 ? strtoul(text, NULL, 10) : 65530);
}

TEST(nothing_moves_where_what_it_leaves_cannot_be_purged) {
  size_t page = os_page_size();
  pretend(ADVICE_PURGE);
  char *start = os_map(2 * page);
  REQUIRE(start != NULL);
  start[0] = 1;
  CHECK(!os_move(start, start + page, page));
  CHECK(start[0] == 1 && start[page] == 0);
}
#endif

#if !defined(FAKE_OS) && !defined(RACY_ATOMIC)
/* Loops until it is told to end; reports in each round the last number that it has read from the other thread. */
static _Atomic uint64_t told, heard;
static void *hear(void *unused) {
  uint64_t now;
  do {
    now = load_relaxed(&told);
    store_relaxed(&heard, now);
  } while (now != UINT64_MAX);
  return unused;
}

/* Processors that order memory strictly cannot show that the other thread has passed a barrier too. The test shows that the kernel accepts
 * the call and that the process continues. */
TEST(a_barrier_in_all_threads) {
  pthread_t thread;
  REQUIRE(pthread_create(&thread, NULL, hear, NULL) == 0);
  for (uint64_t i = 1; i < 1000; i++) {
    store_relaxed(&told, i);
    KEEPS_ERRNO(CHECK(os_barrier()));
    CHECK(load_relaxed(&heard) <= i);
  }
  store_relaxed(&told, UINT64_MAX);
  REQUIRE(pthread_join(thread, NULL) == 0);
  store_relaxed(&os_filters, 1);
  uint64_t calls = load_relaxed(&os_counts.other);
  CHECK(!os_barrier() && load_relaxed(&os_counts.other) == calls);
}
#endif

TEST(calls_are_counted_by_kind) {
  size_t page = os_page_size();
  char *other = os_map(page);
  REQUIRE(other != NULL && os_purge(other, page)); /* the trial purge is made elsewhere */
  uint64_t mmaps = os_counts.mmap, munmaps = os_counts.munmap;
  char *start = os_map(some * page);
  uint64_t madvises = os_counts.madvise;
  REQUIRE(start != NULL && os_purge(start, page));
  CHECK(os_map_at(start, page) == OS_TAKEN);
  CHECK(os_unmap(start, some * page) && os_unmap(other, page));
  CHECK_EQ(os_counts.mmap - mmaps, 2);
  CHECK_EQ(os_counts.madvise - madvises, 1);
  CHECK(os_counts.munmap - munmaps >= 2);
  size_t large = (size_t)4 << 20;
  start = os_map(large);
  uint64_t mprotects = os_counts.mprotect;
  REQUIRE(start != NULL && os_guard(start, large, true) == OS_SPLIT && os_unmap(start, large));
  CHECK_EQ(os_counts.mprotect - mprotects, 1);
}

/* ---- threads of our own ---- */

static os_thread_t helper;

TEST(sleeping_passes_time) {
  uint64_t before = os_now_ms();
  KEEPS_ERRNO(CHECK(os_thread_sleep_ms(&helper, 30)));
  CHECK(os_now_ms() - before >= 25); /* the clock is coarse */
}

static _Atomic int helper_runs;
static _Atomic bool helper_existed;

static void help(void) {
  store_relaxed(&helper_existed, os_thread_exists(&helper));
  CHECK(!os_thread_start(&helper, help, false)); /* one is running already */
  os_sleep_us(1000);
  add_relaxed(&helper_runs, 1);
}

static void wait_for_end(void) {
  for (int i = 0; i < 5000 && os_thread_exists(&helper); i++) os_sleep_us(1000);
}

TEST(a_thread_runs_ends_and_can_be_started_again) {
  for (int i = 1; i <= 3; i++) {
    bool started = false;
    KEEPS_ERRNO(started = os_thread_start(&helper, help, false));
    if (!started && i == 1) check_skip("no such threads under a sanitizer");
    CHECK(started);
    wait_for_end();
    CHECK(!os_thread_exists(&helper));
    CHECK_EQ(load_relaxed(&helper_runs), i);
    CHECK(load_relaxed(&helper_existed));
  }
}

TEST(a_thread_that_is_forgotten_can_be_started_anew) {
  store_relaxed(&helper.id, 4711); /* as a fork's child finds it */
  CHECK(os_thread_exists(&helper) && !os_thread_start(&helper, help, false));
  os_thread_forget(&helper);
  CHECK(!os_thread_exists(&helper));
  if (!os_thread_start(&helper, help, false)) check_skip("no such threads under a sanitizer");
  wait_for_end();
  CHECK_EQ(load_relaxed(&helper_runs), 1);
}

/* ---- files ---- */

TEST(writing_and_reading_whole_files) {
  char path[] = "/tmp/hak-unit-XXXXXX";
  int fd = mkstemp(path);
  REQUIRE(fd >= 0);
  KEEPS_ERRNO(CHECK(os_write(fd, "0123456789", 10)));
  close(fd);
  char buffer[32];
  long length = 0;
  KEEPS_ERRNO(length = os_read_file(path, buffer, sizeof buffer));
  CHECK_EQ(length, 10);
  CHECK(strcmp(buffer, "0123456789") == 0);
  memset(buffer, '#', sizeof buffer);
  KEEPS_ERRNO(length = os_read_file(path, buffer, 6));
  CHECK_EQ(length, 5);
  CHECK(memcmp(buffer, "01234\0#", 7) == 0);
  unlink(path);
  KEEPS_ERRNO(CHECK_EQ(os_read_file(path, buffer, sizeof buffer), -1));
  KEEPS_ERRNO(CHECK(os_read_file("/", buffer, sizeof buffer) == -1));
}

#if !defined(FAKE_OS)
/* A named pipe, in a folder of its own. */
static char pipe_folder[] = "/tmp/hak-unit-XXXXXX", pipe_path[sizeof pipe_folder + 2];

static void make_pipe(void) {
  REQUIRE(mkdtemp(pipe_folder) != NULL);
  snprintf(pipe_path, sizeof pipe_path, "%s/f", pipe_folder);
  REQUIRE(mkfifo(pipe_path, 0600) == 0);
}

static void remove_pipe(void) { CHECK(unlink(pipe_path) == 0 && rmdir(pipe_folder) == 0); }

TEST(a_pipe_that_nobody_writes_to_is_no_file) {
  char buffer[32];
  make_pipe();
  KEEPS_ERRNO(CHECK_EQ(os_read_file(pipe_path, buffer, sizeof buffer), -1));
  int writer_end = open(pipe_path, O_RDWR); /* the reader does not wait forever for a writer that writes nothing */
  KEEPS_ERRNO(CHECK_EQ(os_read_file(pipe_path, buffer, sizeof buffer), -1));
  close(writer_end);
  KEEPS_ERRNO(CHECK_EQ(os_read_file("/dev/null", buffer, sizeof buffer), 0));
  remove_pipe();
}

static void *write_late(void *unused) {
  int fd = open(pipe_path, O_WRONLY);
  os_sleep_us(50000);
  CHECK_EQ(write(fd, "01234", 5), 5);
  os_sleep_us(50000);
  CHECK_EQ(write(fd, "56789", 5), 5);
  close(fd);
  return unused;
}

TEST(a_pipe_is_read_to_its_end) {
  char buffer[32];
  pthread_t late;
  make_pipe();
  int reader_end = open(pipe_path, O_RDONLY | O_NONBLOCK); /* so that the writing end can be opened */
  REQUIRE(reader_end >= 0 && pthread_create(&late, NULL, write_late, NULL) == 0);
  os_sleep_us(20000);
  KEEPS_ERRNO(CHECK_EQ(os_read_file(pipe_path, buffer, sizeof buffer), 10));
  CHECK(strcmp(buffer, "0123456789") == 0);
  pthread_join(late, NULL);
  close(reader_end);
  remove_pipe();
}
#endif

TEST(writing_to_nowhere_fails) { KEEPS_ERRNO(CHECK(!os_write(-1, "text", 4))); }

enum { LONG_TEXT = 1 << 18, SIGNALS = 20 };
static char long_text[LONG_TEXT];
static pthread_t writer;

static void do_nothing(int number) { (void)number; }

/* Waits until the pipe is full, sends signals to the thread that waits to write, and then reads everything. */
static void *disturb_and_read(void *pipe_end) {
  static char text[LONG_TEXT + 1];
  size_t used = 0;
  for (int i = 0; i < SIGNALS; i++) {
    os_sleep_us(1000);
    pthread_kill(writer, SIGUSR1);
  }
  for (ssize_t n; (n = read(*(int *)pipe_end, text + used, sizeof text - used)) > 0;) used += (size_t)n;
  CHECK_EQ(used, LONG_TEXT);
  CHECK(memcmp(text, long_text, LONG_TEXT) == 0);
  return NULL;
}

TEST(writing_goes_on_after_a_signal) {
  struct sigaction action = {.sa_handler = do_nothing}; /* system calls are not restarted */
  pthread_t reader;
  int ends[2];
  for (size_t i = 0; i < LONG_TEXT; i++) long_text[i] = (char)(i % 251);
  writer = pthread_self();
  REQUIRE(sigaction(SIGUSR1, &action, NULL) == 0 && pipe(ends) == 0);
  REQUIRE(pthread_create(&reader, NULL, disturb_and_read, &ends[0]) == 0);
  KEEPS_ERRNO(CHECK(os_write(ends[1], long_text, LONG_TEXT)));
  close(ends[1]);
  pthread_join(reader, NULL);
}

#if !defined(FAKE_OS)
/* ---- the signals that a write sends ---- */

static volatile sig_atomic_t handled;
static void count_it(int number) { handled = handled + (number != 0); }

static bool waits(int number) {
  sigset_t pending;
  return sigpending(&pending) == 0 && sigismember(&pending, number) == 1;
}

static bool is_blocked(int number) {
  sigset_t mask;
  return pthread_sigmask(SIG_BLOCK, NULL, &mask) == 0 && sigismember(&mask, number) == 1;
}

static void block(int number) {
  sigset_t mask;
  sigemptyset(&mask);
  sigaddset(&mask, number);
  REQUIRE(pthread_sigmask(SIG_BLOCK, &mask, NULL) == 0);
}

/* A pipe that has no reader. */
static int broken_pipe(void) {
  int ends[2] = {-1, -1};
  CHECK(pipe(ends) == 0);
  close(ends[0]);
  return ends[1];
}

/* A file that may grow by 4 more bytes. */
static int limited_file(void) {
  char path[] = "/tmp/hak-unit-XXXXXX";
  struct rlimit limit = {4, RLIM_INFINITY};
  int fd = mkstemp(path);
  CHECK(fd >= 0 && unlink(path) == 0 && setrlimit(RLIMIT_FSIZE, &limit) == 0);
  return fd;
}

/* By default either signal ends the process. */
static void check_hushed(int fd, int number) {
  struct sigaction action = {.sa_handler = SIG_DFL};
  REQUIRE(sigaction(number, &action, NULL) == 0);
  KEEPS_ERRNO(CHECK(!os_write(fd, "0123456789", 10)));
  CHECK(!is_blocked(number) && !waits(number));
  action.sa_handler = count_it;
  REQUIRE(sigaction(number, &action, NULL) == 0);
  KEEPS_ERRNO(CHECK(!os_write(fd, "0123456789", 10)));
  CHECK_EQ(handled, 0);
  block(number);
  KEEPS_ERRNO(CHECK(!os_write(fd, "0123456789", 10)));
  CHECK(is_blocked(number) && !waits(number));
  /* The program's own signal stays pending. */
  REQUIRE(raise(number) == 0);
  KEEPS_ERRNO(CHECK(!os_write(fd, "0123456789", 10)));
  CHECK(is_blocked(number) && waits(number));
}

TEST(a_write_to_a_pipe_that_nobody_reads_fails_and_sends_nothing) { check_hushed(broken_pipe(), SIGPIPE); }

TEST(a_write_past_the_limit_of_sizes_fails_and_sends_nothing) {
  int fd = limited_file();
  check_hushed(fd, SIGXFSZ);
  CHECK_EQ(lseek(fd, 0, SEEK_END), 4);
}

TEST(a_process_whose_last_line_nobody_reads_ends_by_abort) {
  int fd = broken_pipe(), status = 0;
  pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    (void)signal(SIGPIPE, SIG_DFL);
    (void)dup2(fd, 2);
    line_write("the last one");
    os_abort();
  }
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

#if defined(HAS_FILTERS)
/* The filter may not know the other calls. */
TEST(under_a_filter_of_its_own_a_process_makes_no_call_for_a_write_but_that) {
  NOT_COUNTED();
  struct sigaction action = {.sa_handler = count_it};
  int fd = broken_pipe();
  REQUIRE(sigaction(SIGPIPE, &action, NULL) == 0);
  store_relaxed(&os_filters, 1);
  deny(SYS_rt_sigpending, KILLED);
  deny(SYS_rt_sigtimedwait, KILLED);
  deny(SYS_rt_sigprocmask, KILLED);
  CHECK(!os_write(fd, "0123456789", 10));
  CHECK_EQ(handled, 1);
}

TEST(a_signal_that_cannot_be_blocked_is_the_programs) {
  struct sigaction action = {.sa_handler = count_it};
  int fd = broken_pipe();
  REQUIRE(sigaction(SIGPIPE, &action, NULL) == 0);
  deny(SYS_rt_sigprocmask, ERROR(EPERM));
  KEEPS_ERRNO(CHECK(!os_write(fd, "0123456789", 10)));
  CHECK_EQ(handled, 1);
}
#endif
#endif

/* ---- the lock ---- */

static lock_t lock;

TEST(a_lock_has_one_holder) {
  CHECK(lock_try(&lock));
  CHECK_EQ(load_relaxed(&lock.holder), thread_self());
  CHECK(lock_is_mine(&lock));
  CHECK(!lock_try(&lock));
  lock_release(&lock);
  CHECK(!lock_is_mine(&lock));
  CHECK(lock_try(&lock));
  lock_release(&lock);
}

static long guarded;

static void *add_guarded(void *unused) {
  for (int i = 0; i < 20000; i++) {
    lock_acquire(&lock);
    guarded++;
    lock_release(&lock);
  }
  return unused;
}

TEST(a_lock_excludes) {
  pthread_t threads[4];
  for (int i = 0; i < 4; i++) REQUIRE(pthread_create(&threads[i], NULL, add_guarded, NULL) == 0);
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  CHECK_EQ(guarded, 4 * 20000);
}

static void *take_and_vanish(void *unused) {
  lock_acquire(&lock);
  return unused;
}

TEST(abandon_frees_what_others_held_and_keeps_what_is_ours) {
  pthread_t thread;
  REQUIRE(pthread_create(&thread, NULL, take_and_vanish, NULL) == 0);
  pthread_join(thread, NULL);
  CHECK(!lock_try(&lock) && !lock_is_mine(&lock));
  lock_abandon(&lock, true);
  CHECK(lock_try(&lock));
  lock_abandon(&lock, true);
  CHECK(!lock_try(&lock));
  lock_release(&lock);
}

/* A thread that is not inside the allocator holds no lock, although an earlier thread with the same number may have. */
TEST(abandon_frees_what_a_thread_with_our_number_has_left) {
  CHECK(lock_try(&lock));
  lock_abandon(&lock, false);
  CHECK(lock_try(&lock));
  lock_release(&lock);
}

enum { WAITERS = 4, TAKES = 2000 };
static unsigned taken, inside;

/* Now and then the lock is held so long that other threads go through every stage of waiting. */
static void *take_often(void *unused) {
  for (int i = 0; i < TAKES; i++) {
    lock_acquire(&lock);
    CHECK_EQ(inside++, 0);
    if (i % 200 == 0) os_sleep_us(8000);
    taken++;
    inside--;
    lock_release(&lock);
  }
  return unused;
}

static void check_waiting(void) {
  pthread_t waiters[WAITERS];
  for (int i = 0; i < WAITERS; i++) REQUIRE(pthread_create(&waiters[i], NULL, take_often, NULL) == 0);
  for (int i = 0; i < WAITERS; i++) pthread_join(waiters[i], NULL);
  CHECK_EQ(taken, WAITERS * TAKES);
}

TEST(who_waits_for_a_lock_gets_it) { check_waiting(); }

#if !defined(FAKE_OS)
TEST(who_waits_for_a_lock_asks_for_nothing_else) {
  deny(SYS_sched_yield, KILLED);
  deny(SYS_nanosleep, KILLED);
  deny(SYS_clock_nanosleep, KILLED);
  check_waiting();
}
#endif

#if !defined(FAKE_OS)
enum { SLEEPERS = 16 };

static void *count_switches(void *switches) {
  struct rusage before, after;
  getrusage(RUSAGE_THREAD, &before);
  lock_acquire(&lock);
  lock_release(&lock);
  getrusage(RUSAGE_THREAD, &after);
  *(long *)switches = after.ru_nvcsw - before.ru_nvcsw;
  return NULL;
}

/* Otherwise the holder could hardly run among a thousand waiters. */
TEST(threads_that_wait_long_for_a_lock_sleep) {
  pthread_t threads[SLEEPERS];
  long switches[SLEEPERS];
  uint64_t start = os_now_ms();
  REQUIRE(lock_try(&lock));
  for (int i = 0; i < SLEEPERS; i++) REQUIRE(pthread_create(&threads[i], NULL, count_switches, &switches[i]) == 0);
  os_sleep_us(100000);
  for (int i = 0; i < 5000 && load_relaxed(&lock.sleepers) != SLEEPERS; i++) os_sleep_us(1000);
  CHECK_EQ(load_relaxed(&lock.sleepers), SLEEPERS);
  lock_release(&lock);
  for (int i = 0; i < SLEEPERS; i++) pthread_join(threads[i], NULL);
  long most = 20 + (long)(os_now_ms() - start) / 5;
  for (int i = 0; i < SLEEPERS; i++) CHECK(switches[i] <= most);
  CHECK_EQ(load_relaxed(&lock.sleepers), 0);
}
#endif

/* The fork comes after the holder of the lock is left behind: a thread that waits for the lock goes on. */
TEST(a_child_takes_a_lock_that_was_left_behind) {
  pthread_t thread;
  os_fork_watch();
  REQUIRE(pthread_create(&thread, NULL, take_and_vanish, NULL) == 0);
  pthread_join(thread, NULL);
  os_fork_note();
  lock_acquire(&lock);
  CHECK(lock_is_mine(&lock));
}

/* ---- fork ---- */

static int fork_once_more(int depth) {
  pid_t child = fork();
  if (child == 0) {
    os_fork_note(); /* as a fork handler does */
    CHECK(os_forked());
    CHECK(!os_is_guest());
    CHECK(os_fork_claim(thread_self()) && !os_fork_claim(thread_self()) && os_forked());
    os_fork_seen(thread_self());
    CHECK(!os_forked() && !os_is_guest());
    if (depth > 0) CHECK_EQ(fork_once_more(depth - 1), 0);
    _exit(check_failures() != 0);
  }
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(!os_forked()); /* the parent notices nothing */
  return status;
}

static void *claim(void *claims) {
  if (os_fork_claim(thread_self())) {
    atomic_fetch_add((atomic_uint *)claims, 1);
    os_sleep_us(2000); /* the others wait */
    os_fork_seen(thread_self());
  }
  CHECK(!os_forked());
  return NULL;
}

TEST(one_of_the_threads_of_a_child_repairs_it) {
  atomic_uint claims = 0;
  pthread_t threads[4];
  os_fork_note();
  for (int i = 0; i < 4; i++) REQUIRE(pthread_create(&threads[i], NULL, claim, &claims) == 0);
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  CHECK_EQ(claims, 1);
}

TEST(a_fork_within_a_repair_wants_another) {
  os_fork_note();
  CHECK(os_fork_claim(thread_self()));
  os_fork_note(); /* in a handler that interrupts the repair */
  os_fork_seen(thread_self());
  CHECK(os_forked() && os_fork_claim(thread_self()));
  os_fork_seen(thread_self());
  CHECK(!os_forked());
}

#if !defined(FAKE_OS)
static struct {
  volatile bool is_one, is_one_under_filters, shares_memory;
} guest;

/* Its changes to itself do not affect this process, although it writes to the same memory. The same holds in a fork's child, as far as libc
 * allows a test. */
static void be_host(void) {
  pid_t child = vfork();
  if (child == 0) {
    guest.is_one = os_is_guest();
    store_relaxed(&os_filters, 1);
    guest.is_one_under_filters = os_is_guest();
    store_relaxed(&os_filters, 0);
    guest.shares_memory = true;
    _exit(0);
  }
  REQUIRE(waitpid(child, NULL, 0) == child);
  CHECK(!os_is_guest());
  if (!guest.shares_memory) check_skip("vfork is a fork here");
  CHECK(guest.is_one && !guest.is_one_under_filters);
}

TEST(a_child_that_shares_the_memory_is_a_guest) {
  os_fork_watch();
  be_host();
  pid_t child = fork();
  if (child == 0) {
    os_fork_note_libc();
    if (os_fork_claim(thread_self())) os_fork_seen(thread_self());
    CHECK(!os_is_guest());
    guest.is_one = false;
#if defined(__GLIBC__)
    be_host();
#endif
    _exit(check_failures() != 0);
  }
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
}

#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
static _Atomic uint32_t raw_ends;

static int raw_run(void *unused) {
  guest.is_one = os_is_guest();
  guest.shares_memory = true;
  return (int)(intptr_t)unused;
}

TEST(a_thread_that_libc_has_not_made_is_no_guest) {
  static _Alignas(64) char stack[16384];
  const int flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM | CLONE_PARENT_SETTID;
  guest.is_one = true;
  REQUIRE(clone(raw_run, stack + sizeof stack, flags, NULL, &raw_ends) >= 0);
  while (!guest.shares_memory) os_sleep_us(100);
  CHECK(!guest.is_one);
  while (syscall(SYS_tgkill, getpid(), load_relaxed(&raw_ends), 0) == 0) os_sleep_us(100);
}
#endif

/* If a fork runs no handlers, only the kernel reports it. */
TEST(a_raw_fork_is_noticed_without_a_handler) {
  os_fork_watch();
  CHECK(!os_forked());
  pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
  if (child == 0) _exit(os_forked() && !os_is_guest() ? 0 : 1);
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK_EQ(status, 0);
  CHECK(!os_forked());
}
#endif

TEST(each_child_is_told_that_it_was_forked) {
  CHECK(!os_forked());
  os_fork_watch();
  CHECK(!os_forked());
  CHECK_EQ(fork_once_more(2), 0);
}
