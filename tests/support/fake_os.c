#include "fake_os.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/config.h"

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

#define SPOILT_ERRNO EXDEV /* no call below sets it */

os_counts_t os_counts;
os_fork_t os_fork;

typedef struct placed {
  uintptr_t start, end;
} placed_t;
enum { PLACED_MOST = 4096 };

static struct {
  _Atomic uint64_t calls[FAKE_CALLS];
  _Atomic uint64_t counted, first, count, injected;
  _Atomic unsigned kinds;
  _Atomic uint64_t now_ms;
  os_map_result_t map_at_failure;
  uint64_t address_limit, physical_memory, random_seed;
  size_t page_size, map_limit;
  bool secure, alone;
  os_credentials_t credentials;
  void (*barrier)(void);
  bool confined; /* of the last thread that was requested */
  size_t resident, looked;
  fake_call_t during;
  void (*_Atomic run_during)(void *start);
  const char *_Atomic locked;
  _Atomic bool locked_go;
  _Atomic uint64_t made_huge, made_small;
  _Atomic uintptr_t last_huge; /* where huge pages were last requested */
  _Atomic uint64_t thread_ns, unit_price, huge_price;
  const char *file_path, *file_text;
  bool captures;
  size_t captured_size;
  char captured[16384];
  jmp_buf *abort_place;
  _Atomic uint64_t slept_us;
  void (*meanwhile)(void);
  uintptr_t arena, arena_end; /* 0: the kernel chooses */
  placed_t placed[PLACED_MOST]; /* what os_map_at has mapped outside the arena */
  unsigned placed_count;
} fake = {
    .now_ms = 1000000,
    .map_at_failure = OS_NOMEM,
    .address_limit = UINT64_MAX,
    .physical_memory = (uint64_t)8 << 30,
    .map_limit = 65530,
    .random_seed = 0x2000, /* leads away from the shadow memory of sanitizers */
};

/* --- settings ------------------------------------------------------------------------------ */

void fake_os_fail(unsigned kinds, uint64_t first, uint64_t count) {
  store_relaxed(&fake.kinds, 0);
  store_relaxed(&fake.counted, 0);
  store_relaxed(&fake.first, first);
  store_relaxed(&fake.count, count);
  store_release(&fake.kinds, kinds);
}

void fake_os_give_back_locked(bool go) { store_relaxed(&fake.locked_go, go); }
void fake_os_lock(const void *byte) { store_release(&fake.locked, (const char *)byte); }
void fake_os_fail_none(void) { fake_os_fail(0, 0, 0); }
void fake_os_fail_map_at_as(os_map_result_t result) { fake.map_at_failure = result; }
uint64_t fake_os_injected(void) { return load_relaxed(&fake.injected); }

uint64_t fake_os_calls(unsigned kinds) {
  uint64_t calls = 0;
  for (unsigned kind = 0; kind < FAKE_CALLS; kind++) {
    if ((kinds >> kind & 1) != 0) calls += load_relaxed(&fake.calls[kind]);
  }
  return calls;
}

void fake_os_during(fake_call_t call, void (*run)(void *start)) {
  fake.during = call;
  store_release(&fake.run_during, run);
}

void fake_os_set_time(uint64_t ms) { store_relaxed(&fake.now_ms, ms); }
void fake_os_pass_time(uint64_t ms) { add_relaxed(&fake.now_ms, ms); }
void fake_os_set_address_limit(uint64_t bytes) { fake.address_limit = bytes; }
void fake_os_set_physical_memory(uint64_t bytes) { fake.physical_memory = bytes; }
void fake_os_set_page_size(size_t bytes) { fake.page_size = bytes; }
void fake_os_set_map_limit(size_t mappings) { fake.map_limit = mappings; }
void fake_os_set_random_seed(uint64_t seed) { fake.random_seed = seed; }
void fake_os_set_secure(bool secure) { fake.secure = secure; }
void fake_os_set_alone(bool alone) { fake.alone = alone; }
void fake_os_set_credentials(bool filtered, bool privileged) { fake.credentials = (os_credentials_t){filtered, privileged}; }
bool fake_os_confined(void) { return fake.confined; }
void fake_os_set_resident(size_t pages) { fake.resident = pages; }
size_t fake_os_looked_at(void) { return fake.looked; }
void fake_os_set_prices(uint64_t unit, uint64_t huge) {
  store_relaxed(&fake.unit_price, unit);
  store_relaxed(&fake.huge_price, huge);
  add_relaxed(&fake.thread_ns, 1);
}
void fake_os_spend(uint64_t ns) { add_relaxed(&fake.thread_ns, ns); }
uint64_t fake_os_made(bool huge) { return load_relaxed(huge ? &fake.made_huge : &fake.made_small); }

void fake_os_set_file(const char *path, const char *text) {
  fake.file_path = path;
  fake.file_text = text;
}

void fake_os_capture(void) {
  fake.captures = true;
  fake.captured_size = 0;
  fake.captured[0] = '\0';
}

const char *fake_os_captured(void) { return fake.captured; }
void fake_os_catch_abort(jmp_buf *place) { fake.abort_place = place; }
void fake_os_set_arena(uintptr_t start) { fake.arena = fake.arena_end = start; }

void fake_os_drop_arena(void) {
  if (fake.arena_end > fake.arena) (void)munmap((void *)fake.arena, fake.arena_end - fake.arena);
  for (unsigned i = 0; i < fake.placed_count; i++) (void)munmap((void *)fake.placed[i].start, fake.placed[i].end - fake.placed[i].start);
  fake.placed_count = 0;
}

/* --- within each call ----------------------------------------------------------------------- */

static _Noreturn void fake_misused(const char *text) {
  static const char before[] = "fake_os: wrong call: ";
  if (write(2, before, sizeof before - 1) < 0 || write(2, text, strlen(text)) < 0 || write(2, "\n", 1) < 0) _exit(3);
  abort();
}

static void fake_check_range(const void *start, size_t bytes, const char *call) {
  size_t page = os_page_size();
  if ((uintptr_t)start % page != 0 || bytes % page != 0 || bytes == 0) fake_misused(call);
}

static int fake_enter(void) {
  int saved = errno;
  errno = SPOILT_ERRNO;
  return saved;
}

static bool fake_fails(fake_call_t kind) {
  add_relaxed(&fake.calls[kind], 1);
  if ((load_acquire(&fake.kinds) >> kind & 1) == 0) return false;
  uint64_t n = atomic_fetch_add(&fake.counted, 1) + 1;
  uint64_t first = load_relaxed(&fake.first);
  if (n < first || n - first >= load_relaxed(&fake.count)) return false;
  add_relaxed(&fake.injected, 1);
  return true;
}

static void fake_run_during(fake_call_t kind, void *start) {
  void (*run)(void *) = load_acquire(&fake.run_during);
  if (run != NULL && fake.during == kind) run(start);
}

/* Maps at the next place in the arena; a page stays free between two mappings. */
static void *fake_map_in_arena(size_t bytes, int protection, int flags) {
  void *place = (void *)bits_round_up(fake.arena_end, os_page_size());
  flags |= MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
  if (mmap(place, bytes, protection, flags, -1, 0) != place) return NULL;
  fake.arena_end = (uintptr_t)place + bytes + os_page_size();
  return place;
}

/* Maps anywhere, at a multiple of the page size that the test has chosen. */
static void *fake_map(size_t bytes, int protection, int flags) {
  if (fake.arena != 0) return fake_map_in_arena(bytes, protection, flags);
  size_t page = os_page_size(), own = (size_t)sysconf(_SC_PAGESIZE);
  size_t spare = page > own ? page - own : 0;
  char *start = mmap(NULL, bytes + spare, protection, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
  if (start == MAP_FAILED) return NULL;
  char *aligned = start + (bits_round_up((uintptr_t)start, page) - (uintptr_t)start);
  size_t before = (size_t)(aligned - start);
  if (before > 0) (void)munmap(start, before);
  if (spare > before) (void)munmap(aligned + bytes, spare - before);
  return aligned;
}

/* --- os.h: facts --------------------------------------------------------------------------- */

size_t os_page_size(void) { return fake.page_size != 0 ? fake.page_size : (size_t)sysconf(_SC_PAGESIZE); }
size_t os_map_limit(void) { return fake.map_limit; }
uint64_t os_physical_memory(void) { return fake.physical_memory; }
uintptr_t os_program(void) { return 0; }
bool os_is_privileged(void) { return fake.secure; }
bool os_has_shadow(void) { return false; } /* os_map_at refuses addresses of a shadow */
uint64_t os_random_seed(void) { return fake.random_seed; }
uint64_t os_random(void) { return fake.random_seed; }
uint64_t os_now_ms(void) { return load_relaxed(&fake.now_ms); }
uint64_t os_wall_ns(void) { return load_relaxed(&fake.now_ms) * 1000000; }
uint64_t os_process_id(void) { return (uint64_t)getpid(); }
uint64_t os_thread_ns(void) { return load_relaxed(&fake.thread_ns); }

uint64_t os_address_limit(void) {
  add_relaxed(&os_counts.other, 1);
  return fake.address_limit;
}

/* --- os.h: memory -------------------------------------------------------------------------- */

/* ThreadSanitizer has shadow only for low and high addresses, and ends a process that maps others. */
static bool fake_may_map(const void *start) {
#if defined(RACY_ATOMIC)
  return (uintptr_t)start < (uintptr_t)1 << 39 || (uintptr_t)start > (uintptr_t)0x7e8 << 36;
#else
  return start != NULL;
#endif
}

/* A range that grows counts as one. */
static void fake_note_placed(uintptr_t start, uintptr_t end) {
  for (unsigned i = 0; i < fake.placed_count; i++) {
    if (fake.placed[i].end != start) continue;
    fake.placed[i].end = end;
    return;
  }
  if (fake.placed_count == PLACED_MOST) fake_misused("more ranges than fake_os counts");
  fake.placed[fake.placed_count++] = (placed_t){start, end};
}

os_map_result_t os_map_at(void *start, size_t bytes) {
  int saved = fake_enter();
  fake_check_range(start, bytes, "os_map_at");
  add_relaxed(&os_counts.mmap, 1);
  fake_run_during(FAKE_MAP_AT, start);
  os_map_result_t result = OS_MAPPED;
  if (fake_fails(FAKE_MAP_AT)) {
    result = fake.map_at_failure;
  } else if (!fake_may_map(start)) {
    result = OS_TAKEN;
  } else {
    void *got = mmap(start, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    if (got == MAP_FAILED) {
      result = errno == EEXIST ? OS_TAKEN : OS_NOMEM;
    } else if (got != start) {
      (void)munmap(got, bytes);
      result = OS_TAKEN;
    } else if (fake.arena != 0) {
      fake_note_placed((uintptr_t)start, (uintptr_t)start + bytes);
    }
  }
  if (result == OS_MAPPED) fake_run_during(FAKE_MAPPED, start);
  errno = saved;
  return result;
}

bool os_is_mapped(void *start, size_t bytes) {
  int saved = fake_enter();
  fake_check_range(start, bytes, "os_is_mapped");
  bool mapped = madvise(start, bytes, MADV_NORMAL) == 0;
  errno = saved;
  return mapped;
}

void *os_map(size_t bytes) {
  int saved = fake_enter();
  fake_check_range(NULL, bytes, "os_map");
  add_relaxed(&os_counts.mmap, 1);
  void *start = fake_fails(FAKE_MAP) ? NULL : fake_map(bytes, PROT_READ | PROT_WRITE, 0);
  errno = saved;
  return start;
}

bool os_unmap(void *start, size_t bytes) {
  int saved = fake_enter();
  fake_check_range(start, bytes, "os_unmap");
  add_relaxed(&os_counts.munmap, 1);
  fake_run_during(FAKE_UNMAP, start);
  bool done = !fake_fails(FAKE_UNMAP) && munmap(start, bytes) == 0;
  errno = saved;
  return done;
}

bool os_purge(void *start, size_t bytes) {
  int saved = fake_enter();
  fake_check_range(start, bytes, "os_purge");
  add_relaxed(&os_counts.madvise, 1);
  fake_run_during(FAKE_PURGE, start);
  const char *locked = load_acquire(&fake.locked);
  bool fails = fake_fails(FAKE_PURGE) || ((char *)start <= locked && locked < (char *)start + bytes);
  bool done = !fails && madvise(start, bytes, MADV_DONTNEED) == 0;
  errno = saved;
  return done;
}

/* As before Linux 5.18, unless a test says otherwise. */
bool os_purge_locked(void *start, size_t bytes) {
  int saved = fake_enter();
  fake_check_range(start, bytes, "os_purge_locked");
  bool done = load_relaxed(&fake.locked_go) && madvise(start, bytes, MADV_DONTNEED) == 0;
  errno = saved;
  return done;
}

/* Has no effect that a program can see. */
bool os_populate(void *start, size_t bytes) {
  int saved = fake_enter();
  fake_check_range(start, bytes, "os_populate");
  add_relaxed(&os_counts.madvise, 1);
  fake_run_during(FAKE_POPULATE, start);
  bool done = !fake_fails(FAKE_POPULATE);
  if (load_relaxed(&fake.thread_ns) != 0) {
    bool huge = (uintptr_t)start == load_relaxed(&fake.last_huge);
    add_relaxed(&fake.thread_ns, huge ? load_relaxed(&fake.huge_price) : load_relaxed(&fake.unit_price) * bytes / HAK_UNIT);
  }
  errno = saved;
  return done;
}

void os_huge(void *start, size_t bytes, bool huge) {
  int saved = fake_enter();
  fake_check_range(start, bytes, "os_huge");
  add_relaxed(&os_counts.madvise, 1);
  add_relaxed(huge ? &fake.made_huge : &fake.made_small, bytes);
  store_relaxed(&fake.last_huge, huge ? (uintptr_t)start : 0);
  errno = saved;
}

/* Copies pages that are not zero; the others stay out of memory. */
static bool fake_move(char *from, char *to, size_t bytes) {
  size_t page = os_page_size();
  if (madvise(to, bytes, MADV_DONTNEED) != 0) return false;
  for (size_t at = 0; at < bytes; at += page) {
    if (from[at] != 0 || memcmp(from + at, from + at + 1, page - 1) != 0) memcpy(to + at, from + at, page);
  }
  return madvise(from, bytes, MADV_DONTNEED) == 0;
}

/* Moves by copying: a program sees no difference. */
bool os_move(void *from, void *to, size_t bytes) {
  int saved = fake_enter();
  fake_check_range(from, bytes, "os_move from");
  fake_check_range(to, bytes, "os_move to");
  if ((char *)from < (char *)to + bytes && (char *)to < (char *)from + bytes) fake_misused("os_move onto itself");
  add_relaxed(&os_counts.mremap, 1);
  fake_run_during(FAKE_MOVE, from);
  bool done = !fake_fails(FAKE_MOVE) && fake_move(from, to, bytes);
  errno = saved;
  return done;
}

bool os_renew(void *start, size_t bytes) {
  int saved = fake_enter();
  fake_check_range(start, bytes, "os_renew");
  add_relaxed(&os_counts.mmap, 1);
  bool done = !fake_fails(FAKE_RENEW) && madvise(start, bytes, MADV_DONTNEED) == 0;
  errno = saved;
  return done;
}

static bool fake_protect(void *start, size_t bytes, int protection, const char *call) {
  int saved = fake_enter();
  fake_check_range(start, bytes, call);
  add_relaxed(&os_counts.mprotect, 1);
  if (protection == PROT_NONE && madvise(start, bytes, MADV_DONTNEED) != 0) fake_misused(call);
  bool done = !fake_fails(FAKE_GUARD) && mprotect(start, bytes, protection) == 0;
  errno = saved;
  return done;
}

os_guard_t os_guard(void *start, size_t bytes, bool may_split) {
  if (!may_split) memset(start, 0, bytes);
  return may_split && fake_protect(start, bytes, PROT_NONE, "os_guard") ? OS_SPLIT : OS_OPEN;
}
bool os_guarded_stay(void) { return false; }
bool os_unguard(void *start, size_t bytes) {
  fake_run_during(FAKE_GUARD, start);
  return fake_protect(start, bytes, PROT_READ | PROT_WRITE, "os_unguard");
}

void os_dump(void *start, size_t bytes) { fake_check_range(start, bytes, "os_dump"); }

/* Data in the program's own pages stays writable: it need not fill whole pages. */
bool os_seal(const void *start, size_t bytes, bool sealed) {
  (void)start, (void)bytes, (void)sealed;
  return true;
}

size_t os_resident(void *start, size_t pages) {
  int saved = fake_enter();
  fake_check_range(start, pages * os_page_size(), "os_resident");
  add_relaxed(&os_counts.other, 1);
  if (pages > 256) pages = 256;
  fake.looked = pages;
  errno = saved;
  return fake.resident < pages ? fake.resident : pages;
}

/* --- os.h: the rest ------------------------------------------------------------------------ */

void os_yield(void) {
  int saved = fake_enter();
  sched_yield();
  errno = saved;
}

uint64_t fake_os_slept_us(void) { return load_relaxed(&fake.slept_us); }
void fake_os_set_meanwhile(void (*run)(void)) { fake.meanwhile = run; }

void os_sleep_us(unsigned microseconds) {
  add_relaxed(&fake.slept_us, microseconds);
  if (fake.meanwhile != NULL) fake.meanwhile();
  if (fake.alone) return;
  int saved = fake_enter();
  struct timespec pause = {.tv_sec = 0, .tv_nsec = (long)microseconds * 1000};
  (void)nanosleep(&pause, NULL);
  errno = saved;
}

void os_wait(_Atomic uint32_t *word, uint32_t value, uint64_t microseconds, bool shared) {
  (void)shared;
  if (load_acquire(word) == value) os_sleep_us((unsigned)microseconds);
}
void os_wake(_Atomic uint32_t *word, unsigned threads) { (void)word, (void)threads; }

bool os_thread_possible(void) { return true; }

/* Runs the thread immediately, to its end. */
bool os_thread_start(os_thread_t *thread, void (*run)(void), bool confined) {
  uint32_t none = 0;
  if (load_relaxed(&thread->held) != 0 || load_relaxed(&thread->unable)) return false;
  bool refused = fake_fails(FAKE_THREAD);
  store_relaxed(&thread->refused, refused);
  if (refused || !atomic_compare_exchange_strong(&thread->id, &none, 1)) return false;
  fake.confined = thread->confined = confined; /* set with the claim */
  os_prepare_t *prepare = load_acquire(&thread->prepare);
  thread->files = prepare != NULL && prepare();
  run();
  store_release(&thread->id, 0);
  return true;
}

bool os_thread_sleep_ms(os_thread_t *thread, uint64_t milliseconds) {
  add_relaxed(&fake.now_ms, milliseconds);
  return load_relaxed(&thread->held) == 0;
}

/* The thread does not run beside its caller: a holder is called by the thread itself, which ends when the call returns. */
void os_thread_hold(os_thread_t *thread) { add_relaxed(&thread->held, 1); }
void os_thread_release(os_thread_t *thread) { add_relaxed(&thread->held, (uint32_t)-1); }

void os_thread_forget(os_thread_t *thread) {
  store_relaxed(&thread->id, 0);
  store_relaxed(&thread->held, 0);
}

_Atomic uint32_t os_filters;
os_credentials_t os_credentials(void) { return fake.credentials; }
void os_credentials_note(void) {}
bool os_started_filtered(void) { return fake.credentials.filtered; }
bool os_is_guest(void) { return false; }
bool os_is_only_thread(void) { return true; }

void fake_os_set_barrier(void (*barrier)(void)) { fake.barrier = barrier; }

bool os_barrier(void) {
  void (*barrier)(void) = fake.barrier;
  if (barrier != NULL) barrier();
  return barrier != NULL;
}

static void fake_keep(const char *text, size_t bytes) {
  size_t room = sizeof fake.captured - 1 - fake.captured_size;
  if (bytes > room) bytes = room;
  memcpy(fake.captured + fake.captured_size, text, bytes);
  fake.captured_size += bytes;
  fake.captured[fake.captured_size] = '\0';
}

bool os_write(int fd, const char *text, size_t bytes) {
  int saved = fake_enter();
  bool fails = fake_fails(FAKE_WRITE);
  if (fd == 2 && fake.captures && !fails) {
    fake_keep(text, bytes);
    bytes = 0;
  }
  while (bytes > 0 && !fails) {
    ssize_t n = write(fd, text, bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    text += n;
    bytes -= (size_t)n;
  }
  errno = saved;
  return !fails && bytes == 0;
}

static long fake_read(int fd, char *buffer, size_t size) {
  size_t used = 0;
  ssize_t n = 1;
  while (used + 1 < size && n != 0) {
    n = read(fd, buffer + used, size - 1 - used);
    if (n < 0 && errno != EINTR) return -1;
    if (n > 0) used += (size_t)n;
  }
  buffer[used] = '\0';
  return (long)used;
}

long os_read_file(const char *path, char *buffer, size_t size) {
  int saved = fake_enter();
  long length = -1;
  if (fake_fails(FAKE_READ)) {
    buffer[0] = '\0';
  } else if (fake.file_path != NULL && strcmp(path, fake.file_path) == 0) {
    size_t n = strlen(fake.file_text);
    if (n > size - 1) n = size - 1;
    memcpy(buffer, fake.file_text, n);
    buffer[n] = '\0';
    length = (long)n;
  } else {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
      length = fake_read(fd, buffer, size);
      close(fd);
    }
  }
  errno = saved;
  return length;
}

/* The test decides what is a fork. */
static _Atomic uintptr_t fake_fork = 1; /* as os_fork.page in os_linux.c */
void os_fork_watch(void) {}
bool os_forked(void) { return load_acquire(&fake_fork) != 1; }
bool os_fork_is_claimed(void) { return load_acquire(&fake_fork) != 0; }
bool os_fork_is_claimed_by(uintptr_t thread) { return load_relaxed(&fake_fork) == thread; }
void os_fork_note(void) { store_relaxed(&fake_fork, 0); }
void os_fork_note_libc(void) {}
bool os_fork_was_by_libc(void) { return true; }
void os_fork_seen(uintptr_t thread) { (void)atomic_compare_exchange_strong(&fake_fork, &thread, (uintptr_t)1); }

bool os_fork_claim(uintptr_t thread) {
  for (;;) {
    uintptr_t state = load_acquire(&fake_fork);
    if (state == 1 || state == thread) return false;
    if (state == 0 && atomic_compare_exchange_strong(&fake_fork, &state, thread)) return true;
    os_yield();
  }
}

void os_abort(void) {
  if (fake.abort_place != NULL) longjmp(*fake.abort_place, 1);
  if (fake.captured_size > 0 && write(2, fake.captured, fake.captured_size) < 0) _exit(3);
  abort();
}

_Atomic uintptr_t os_aborting;
_Atomic uintptr_t os_own_thread;
_Atomic uint32_t os_end_pending;
void os_end(void) { os_abort(); }
