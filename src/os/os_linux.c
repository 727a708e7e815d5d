/* os_linux.c - os.h for Linux. */
#include "os/os.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <time.h>
#include <unistd.h>

#include "base/format.h"
#include "base/thread.h"
#include "os/syscall.h"

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000 /* older kernels take the address as a hint, so os_map_at checks the result */
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_DONTNEED_LOCKED /* Linux 5.18 */
#define MADV_DONTNEED_LOCKED 24
#endif
#ifndef MADV_COLD
#define MADV_COLD 20
#endif
#ifndef MADV_GUARD_INSTALL /* Linux 6.13: guard pages that split no mapping */
#define MADV_GUARD_INSTALL 102
#define MADV_GUARD_REMOVE 103
#endif
#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif

os_counts_t os_counts;

_Atomic uint32_t os_filters;
static _Atomic bool files_limited;

#define FILE_LEAST ((uint64_t)16 << 20) /* more than a report takes */

void os_filter_begin(void) {
  uint64_t limit[2]; /* now, and at most */
  bool known = load_relaxed(&os_filters) == 0 && syscall_6(SYS_prlimit64, 0, RLIMIT_FSIZE, 0, (long)limit, 0, 0) == 0;
  if (known && limit[0] < FILE_LEAST) store_relaxed(&files_limited, true);
  add_relaxed(&os_filters, 1);
}

bool os_may_write_files(void) { return !load_relaxed(&files_limited) || load_relaxed(&os_filters) == 0; }

/* For an error that cannot happen unless our own bookkeeping is wrong. */
static _Noreturn void os_broken(const char *call) {
  (void)os_write(2, "hakmem: unexpected error from ", 30);
  size_t n = 0;
  while (call[n] != '\0') n++;
  (void)os_write(2, call, n);
  (void)os_write(2, "\n", 1);
  os_abort();
}

_Atomic size_t os_page;

size_t os_page_size(void) {
  size_t bytes = load_relaxed(&os_page);
  if (bytes == 0) {
    bytes = (size_t)getauxval(AT_PAGESZ);
    store_relaxed(&os_page, bytes);
  }
  return bytes;
}

uint64_t os_physical_memory(void) {
  struct sysinfo all; /* not sysconf: some versions read a file, and all lie in pages of libc that small programs do not otherwise use */
  add_relaxed(&os_counts.other, 1);
  return syscall_3(SYS_sysinfo, (long)&all, 0, 0) == 0 ? (uint64_t)all.totalram * all.mem_unit : 0;
}

uint64_t os_address_limit(void) {
  struct rlimit limit;
  add_relaxed(&os_counts.other, 1);
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return UINT64_MAX;
  return limit.rlim_cur;
}

bool os_has_shadow(void) {
  extern void __tsan_init(void) __attribute__((weak));
  extern void __msan_init(void) __attribute__((weak));
  return __tsan_init != NULL || __msan_init != NULL;
}

size_t os_map_limit(void) {
  static _Atomic size_t known;
  size_t limit = load_relaxed(&known);
  if (HAK_LIKELY(limit != 0)) return limit;
  char text[32];
  if (os_read_file("/proc/sys/vm/max_map_count", text, sizeof text) > 0) limit = (size_t)decimal_read(text);
  if (limit == 0) limit = 65530; /* the kernel's default */
  store_relaxed(&known, limit);
  return limit;
}

uintptr_t os_program(void) { return getauxval(AT_ENTRY); } /* if the loader is run as the command, it stores the program's entry there */
bool os_is_privileged(void) { return getauxval(AT_SECURE) != 0; }

/* SipHash-2-4 of one word, keyed with the 16 random bytes that the kernel gives each process.  libc derives its stack canary and pointer
 * guard from the same bytes, so our visible values must reveal nothing about them. */
static void sip_round(uint64_t v[4]) {
  v[0] += v[1], v[1] = bits_rotr(v[1], 51) ^ v[0], v[0] = bits_rotr(v[0], 32);
  v[2] += v[3], v[3] = bits_rotr(v[3], 48) ^ v[2];
  v[0] += v[3], v[3] = bits_rotr(v[3], 43) ^ v[0];
  v[2] += v[1], v[1] = bits_rotr(v[1], 47) ^ v[2], v[2] = bits_rotr(v[2], 32);
}

static uint64_t start_hash(uint64_t word) {
  uint64_t key[2];
  const void *start = (const void *)getauxval(AT_RANDOM); /* any alignment */
  if (start != NULL) {
    memcpy(key, start, sizeof key);
  } else {
    key[0] = (uint64_t)(uintptr_t)&os_counts, key[1] = os_now_ms();
  }
  uint64_t v[4] = {key[0] ^ UINT64_C(0x736f6d6570736575), key[1] ^ UINT64_C(0x646f72616e646f6d), key[0] ^ UINT64_C(0x6c7967656e657261),
                   key[1] ^ UINT64_C(0x7465646279746573)};
  const uint64_t blocks[2] = {word, (uint64_t)sizeof word << 56};
  for (unsigned i = 0; i < 2; i++) {
    v[3] ^= blocks[i];
    sip_round(v), sip_round(v);
    v[0] ^= blocks[i];
  }
  v[2] ^= 0xff;
  for (unsigned i = 0; i < 4; i++) sip_round(v);
  return v[0] ^ v[1] ^ v[2] ^ v[3];
}

uint64_t os_random_seed(void) { return start_hash(0); }

uint64_t os_random(void) {
  uint64_t value;
  if (syscall_3(SYS_getrandom, (long)&value, sizeof value, 1 /* GRND_NONBLOCK */) == (long)sizeof value) return value;
  static _Atomic uint64_t calls; /* for when the kernel has not gathered enough entropy yet */
  return start_hash(atomic_fetch_add(&calls, 1) + 1);
}

uint64_t os_process_id(void) { return (uint64_t)syscall_3(SYS_getpid, 0, 0, 0); }

uint64_t os_thread_ns(void) {
  struct timespec now;
  if (load_relaxed(&os_filters) != 0) return 0;
  add_relaxed(&os_counts.other, 1);
  if (syscall_3(SYS_clock_gettime, CLOCK_THREAD_CPUTIME_ID, (long)&now, 0) != 0) return 0;
  return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

#define PLAIN_FLAGS (MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE)

#if defined(RACY_ATOMIC)
/* libc unmaps thread stacks unseen by ThreadSanitizer, which would report the stacks' old writes as races with later mappings at the
 * same address.  Its own mmap makes it forget them; it would take the mapping itself for a write, so writes are ignored meanwhile. */
extern void AnnotateIgnoreWritesBegin(const char *file, int line);
extern void AnnotateIgnoreWritesEnd(const char *file, int line);

static long mmap_call(void *start, size_t bytes, int protection, int flags) {
  int before = errno;
  AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
  void *got = mmap(start, bytes, protection, flags, -1, 0);
  AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
  long result = got == MAP_FAILED ? -errno : (long)got;
  errno = before;
  return result;
}
#else
static long mmap_call(void *start, size_t bytes, int protection, int flags) {
  return syscall_6(SYS_mmap, (long)start, (long)bytes, protection, flags, -1, 0);
}
#endif

static long os_mmap(void *start, size_t bytes, int protection, int flags) {
  add_relaxed(&os_counts.mmap, 1);
  return mmap_call(start, bytes, protection, flags);
}

static bool os_madvise(void *start, size_t bytes, int advice) {
  add_relaxed(&os_counts.madvise, 1);
  return syscall_3(SYS_madvise, (long)start, (long)bytes, advice) == 0;
}

/* An emulator of another processor may accept a call without doing its work, and pages that count as zero would not be zero.
 * Calls known to have this problem are tried once on separate pages before their first use. */
typedef enum verdict { UNTRIED, WORKS, FAILS } verdict_t;

static bool os_tried(_Atomic uint32_t *verdict, bool (*works)(char *page, size_t bytes)) {
  uint32_t known = load_relaxed(verdict);
  if (HAK_UNLIKELY(known == UNTRIED)) {
    size_t bytes = os_page_size();
    char *pages = os_map(2 * bytes);
    if (pages == NULL) return true; /* undecided: out of memory is no reason to lose a way to give memory back */
    *pages = 1;
    known = works(pages, bytes) ? WORKS : FAILS;
    (void)os_unmap(pages, 2 * bytes);
    store_relaxed(verdict, known);
  }
  return known == WORKS;
}

os_map_result_t os_map_at(void *start, size_t bytes) {
  long got = os_mmap(start, bytes, PROT_READ | PROT_WRITE, PLAIN_FLAGS | MAP_FIXED_NOREPLACE);
  if (syscall_failed(got)) return got == -EEXIST ? OS_TAKEN : OS_NOMEM;
  if (got != (long)start) {
    (void)os_unmap((void *)got, bytes);
    return OS_TAKEN;
  }
  return OS_MAPPED;
}

void *os_map(size_t bytes) {
  long start = os_mmap(NULL, bytes, PROT_READ | PROT_WRITE, PLAIN_FLAGS);
  return syscall_failed(start) ? NULL : (void *)start;
}

/* Returns 0, or -ENOMEM if a part is not mapped.  Uses advice without effect, since a filter may kill the process for mincore. */
static long mapped_error(void *start, size_t bytes) { return syscall_3(SYS_madvise, (long)start, (long)bytes, MADV_NORMAL); }

bool os_is_mapped(void *start, size_t bytes) { return mapped_error(start, bytes) == 0; }

bool os_unmap(void *start, size_t bytes) {
  add_relaxed(&os_counts.munmap, 1);
  return syscall_3(SYS_munmap, (long)start, (long)bytes, 0) == 0;
}

/* A refusal, as for locked memory, is a correct answer. */
static bool purge_works(char *page, size_t bytes) { return !os_madvise(page, bytes, MADV_DONTNEED) || racy_load(page) == 0; }

bool os_purge(void *start, size_t bytes) {
  static _Atomic uint32_t verdict;
  if (os_is_hooked()) return false;
  return os_tried(&verdict, purge_works) ? os_madvise(start, bytes, MADV_DONTNEED) : os_renew(start, bytes);
}

static bool purge_locked_works(char *page, size_t bytes) { return os_madvise(page, bytes, MADV_DONTNEED_LOCKED) && racy_load(page) == 0; }

HAK_COLD bool os_purge_locked(void *start, size_t bytes) {
  static _Atomic uint32_t verdict;
  if (os_is_hooked() || load_relaxed(&os_filters) != 0 || !os_tried(&verdict, purge_locked_works)) return false;
  return os_madvise(start, bytes, MADV_DONTNEED_LOCKED);
}

bool os_populate(void *start, size_t bytes) { return os_madvise(start, bytes, MADV_POPULATE_WRITE); }

/* Ignores EINVAL, the answer of a kernel without huge pages. */
void os_huge(void *start, size_t bytes, bool huge) { (void)os_madvise(start, bytes, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE); }

/* Returns 0 or the negated error number. */
static long os_mremap(void *from, void *to, size_t bytes) {
  add_relaxed(&os_counts.mremap, 1);
  long flags = MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP;
  long got = syscall_6(SYS_mremap, (long)from, (long)bytes, (long)bytes, flags, (long)to, 0);
  return got == (long)to ? 0 : got;
}

/* The memory left at `from` must behave like any other memory. */
static bool move_works(char *page, size_t bytes) {
  if (os_mremap(page, page + bytes, bytes) != 0) return false;
  racy_store(page, 1);
  return purge_works(page, bytes);
}

/* Whether pages of our own can still be moved. */
static HAK_COLD bool still_moves(void) {
  _Atomic uint32_t verdict = 0;
  return os_tried(&verdict, move_works);
}

/* Returns whether the limits of the process, which may have been lowered below what it has mapped, leave room for another page. */
static bool may_map(void) {
  size_t bytes = os_page_size();
  void *page = os_map(bytes);
  return page != NULL && os_unmap(page, bytes);
}

/* Since 6.17 the kernel moves several mappings one by one and may stop between two of them.  To find out whether the range is one mapping,
 * this asks for growth in place up to an address in another mapping, this stack or this library: the kernel refuses that in any case,
 * with EFAULT, before any other check, if the range is more than one mapping. */
static bool is_one_mapping(void *start, size_t bytes) {
  static char ours;
  char here;
  uintptr_t last = (uintptr_t)start + bytes, beyond = (uintptr_t)&here > last ? (uintptr_t)&here : (uintptr_t)&ours;
  if (beyond < last) return false; /* no such address is known */
  size_t length = bits_round_up(beyond - (uintptr_t)start + 1, os_page_size());
  return syscall_6(SYS_mremap, (long)start, (long)bytes, (long)length, 0, 0, 0) != -EFAULT;
}

/* After a failure: the kernel may have unmapped the range before it failed.  Returns whether it had; then the range is mapped again. */
static bool is_remapped(void *start, size_t bytes) {
  if (mapped_error(start, bytes) != -ENOMEM) return false;
  os_map_result_t result = os_map_at(start, bytes);
  if (result == OS_NOMEM) os_broken("mmap");
  return result == OS_MAPPED; /* else a part of it is mapped, and was before */
}

bool os_move(void *from, void *to, size_t bytes) {
  static _Atomic bool unable;
  static _Atomic uint32_t verdict;
  if (load_relaxed(&unable) || os_is_hooked() || !os_tried(&verdict, move_works)) return false;
  /* The kernel unmaps the target before it checks the limit; then nothing could be mapped in its place. */
  if (!may_map() || !is_one_mapping(from, bytes)) return false;
  /* The lock of locked pages would move along instead of staying with `from`.  The kernel refuses this advice for locked pages; one page
   * stands for the whole mapping. */
  if (!os_madvise(from, os_page_size(), MADV_COLD)) return false;
  long error = os_mremap(from, to, bytes);
  if (error == 0) return true;
  /* A filter may have been installed; or the program has sealed these pages (mseal).  Other errors, such as too many mappings, concern
   * only this move. */
  bool refused = error == -EPERM || error == -ENOSYS || error == -EACCES || error == -EINVAL;
  if (refused && !still_moves()) store_relaxed(&unable, true);
  if (is_remapped(to, bytes)) os_huge(to, bytes, false);
  return false;
}

bool os_renew(void *start, size_t bytes) {
  if (os_is_hooked()) return false;
  long got = os_mmap(start, bytes, PROT_READ | PROT_WRITE, PLAIN_FLAGS | MAP_FIXED);
  if (syscall_failed(got) && !is_remapped(start, bytes)) return false;
  os_huge(start, bytes, false);
  return true;
}

HAK_COLD void os_dump(void *start, size_t bytes) { (void)syscall_3(SYS_madvise, (long)start, (long)bytes, MADV_DODUMP); }

static bool os_mprotect(const void *start, size_t bytes, int protection) {
  add_relaxed(&os_counts.mprotect, 1);
  return syscall_3(SYS_mprotect, (long)start, (long)bytes, protection) == 0;
}

/* Whether any guard was made by protection, and whether any was made of the light kind. */
static _Atomic bool guards_protect, guards_light;

/* Light guards need a page table entry per page, so they are not used for larger ranges. */
#define GUARD_LIGHT ((size_t)2 << 20)

/* A light guard must discard the content of its page. */
static bool guard_works(char *page, size_t bytes) {
  return os_madvise(page, bytes, MADV_GUARD_INSTALL) && os_madvise(page, bytes, MADV_GUARD_REMOVE) && racy_load(page) == 0;
}

static bool guard_lightly(void *start, size_t bytes) {
  static _Atomic uint32_t verdict;
  if (bytes > GUARD_LIGHT || os_is_hooked() || !os_tried(&verdict, guard_works)) return false;
  if (os_madvise(start, bytes, MADV_GUARD_INSTALL)) {
    if (HAK_UNLIKELY(!load_relaxed(&guards_light))) store_relaxed(&guards_light, true);
    return true;
  }
  (void)os_madvise(start, bytes, MADV_GUARD_REMOVE); /* pages that are not locked may have become guards */
  return false;
}

/* The kernel does not discard locked pages.  They are cleared instead: a new mapping would lose the program's lock, and after
 * MADV_DONTNEED_LOCKED there would be page faults, which a program that locks memory does not want. */
static _Atomic bool pages_stayed;

static void pages_clear(void *start, size_t bytes) {
  if (os_purge(start, bytes)) return;
  store_relaxed(&pages_stayed, true);
  memset(start, 0, bytes);
}

bool os_guarded_stay(void) { return load_relaxed(&pages_stayed); }

HAK_COLD os_guard_t os_guard(void *start, size_t bytes, bool may_split) {
  if (guard_lightly(start, bytes)) return OS_LIGHT;
  pages_clear(start, bytes);
  if (!may_split) return OS_OPEN;
  store_relaxed(&guards_protect, true);
  return os_mprotect(start, bytes, PROT_NONE) ? OS_SPLIT : OS_OPEN;
}

/* A range that was protected may contain light guards, so both kinds are removed, unless one of them cannot be there. */
HAK_COLD bool os_unguard(void *start, size_t bytes) {
  bool removed = os_madvise(start, bytes, MADV_GUARD_REMOVE);
  if (!removed && load_relaxed(&guards_light)) return os_renew(start, bytes); /* a filter was installed later */
  if (removed && bytes <= GUARD_LIGHT && !load_relaxed(&guards_protect)) return true;
  return os_mprotect(start, bytes, PROT_READ | PROT_WRITE);
}

HAK_COLD bool os_seal(const void *start, size_t bytes, bool sealed) {
  return os_mprotect(start, bytes, sealed ? PROT_READ : PROT_READ | PROT_WRITE);
}

HAK_COLD size_t os_resident(void *start, size_t pages) {
  unsigned char vector[256];
  if (load_relaxed(&os_filters) != 0) return 0;
  if (pages > sizeof vector) pages = sizeof vector;
  add_relaxed(&os_counts.other, 1);
  if (syscall_3(SYS_mincore, (long)start, (long)(pages * os_page_size()), (long)vector) != 0) return 0;
  size_t resident = 0;
  for (size_t i = 0; i < pages; i++) resident += vector[i] & 1;
  return resident;
}

/* futex is the only call with which glibc's malloc waits, so a filter made for glibc's malloc allows no other. */
void os_wait(_Atomic uint32_t *word, uint32_t value, uint64_t microseconds, bool shared) {
  struct timespec limit = {.tv_sec = (time_t)(microseconds / 1000000), .tv_nsec = (long)(microseconds % 1000000) * 1000};
  (void)syscall_6(SYS_futex, (long)word, FUTEX_WAIT | (shared ? 0 : FUTEX_PRIVATE), value, (long)&limit, 0, 0);
}

void os_wake(_Atomic uint32_t *word, unsigned threads) {
  (void)syscall_3(SYS_futex, (long)word, FUTEX_WAKE | FUTEX_PRIVATE, (long)threads);
}

/* The thread waited for is mostly done in a few instructions, unless it has lost the processor. */
void os_yield(void) {
  for (int i = 0; i < 32; i++) cpu_pause();
  os_sleep_us(1);
}

void os_sleep_us(unsigned microseconds) {
  static _Atomic uint32_t nobodys;
  os_wait(&nobodys, 0, microseconds, false);
}

#define SIGNAL_BIT(number) ((uint64_t)1 << ((number) - 1))

/* Suppresses the signals that the kernel sends to a thread when a write fails: a write that the program did not make must not end it or
 * run its handlers. */
typedef struct hush {
  uint64_t before, pending; /* the thread's mask, and which of its signals were already pending */
  bool on;
} hush_t;

/* Under a filter installed after the start, only write itself is called, and signals come as for any write of the program.  A filter
 * that was there from the start is assumed to allow what libc's abort calls; otherwise containers would gain nothing.  The call that
 * consumes a signal is made only if one was sent, so that a filter which ends the process for that call ends only a process that the signal
 * would have ended; the call that reads pending signals is made only if the program has blocked one of these two. */
static hush_t hush_begin(void) {
  hush_t hush = {.on = load_relaxed(&os_filters) == 0};
  uint64_t both = SIGNAL_BIT(SIGPIPE) | SIGNAL_BIT(SIGXFSZ), *before = &hush.before;
  if (hush.on) hush.on = syscall_6(SYS_rt_sigprocmask, SIG_BLOCK, (long)&both, (long)before, sizeof both, 0, 0) == 0;
  /* A signal that is not blocked cannot be pending. */
  if (hush.on && (*before & both) != 0) (void)syscall_3(SYS_rt_sigpending, (long)&hush.pending, sizeof both, 0);
  return hush;
}

static void hush_end(const hush_t *hush, long result) {
  static const struct timespec at_once;
  uint64_t sent = result == -EPIPE ? SIGNAL_BIT(SIGPIPE) : result == -EFBIG ? SIGNAL_BIT(SIGXFSZ) : 0;
  if (!hush->on) return;
  sent &= ~hush->pending;
  if (sent != 0) (void)syscall_6(SYS_rt_sigtimedwait, (long)&sent, 0, (long)&at_once, sizeof sent, 0, 0);
  (void)syscall_6(SYS_rt_sigprocmask, SIG_SETMASK, (long)&hush->before, 0, sizeof hush->before, 0, 0);
}

bool os_write(int fd, const char *text, size_t bytes) {
  hush_t hush = hush_begin();
  long n = 0;
  while (bytes > 0) {
    n = syscall_3(SYS_write, fd, (long)text, (long)bytes);
    if (n == -EINTR) continue;
    if (n <= 0) break;
    text += n;
    bytes -= (size_t)n;
  }
  hush_end(&hush, n);
  return bytes == 0;
}

/* The writer of a pipe may be slow, or never come. */
#define READ_PATIENCE 1000
#define READ_WAIT_US 1000

long os_read_file(const char *path, char *buffer, size_t size) {
  if (load_relaxed(&os_filters) != 0) return -1;
  long fd = syscall_6(SYS_openat, AT_FDCWD, (long)path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0, 0, 0);
  if (syscall_failed(fd)) return -1;
  size_t used = 0;
  long n = 1;
  for (unsigned waits = 0; used + 1 < size && n != 0;) {
    n = syscall_3(SYS_read, fd, (long)(buffer + used), (long)(size - 1 - used));
    if (n == -EAGAIN && waits++ < READ_PATIENCE) os_sleep_us(READ_WAIT_US);
    else if (n < 0 && n != -EINTR) break;
    if (n > 0) used += (size_t)n;
  }
  buffer[used] = '\0';
  bool nobodys = used == 0 && n == 0 && syscall_3(SYS_lseek, fd, 0, SEEK_CUR) == -ESPIPE; /* a pipe without a writer */
  (void)syscall_3(SYS_close, fd, 0, 0);
  return nobodys || (n < 0 && n != -EINTR) ? -1 : (long)used;
}
