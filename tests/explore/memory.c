/* memory.c - saves and restores the state that each execution starts from, and replaces the kernel's memory calls.
 *
 * What an execution can change lies in the program's own variables, in one
 * arena that serves mappings at any address, and in mappings at addresses
 * that the program chooses.  All three are read-only at first: the first
 * write to a page is a fault, whose handler saves the page and makes it
 * writable.  To restore the state, only the few pages are copied that any
 * execution has ever written to.  The explorer's own state lies in mappings
 * outside of all three. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "explore.h"
#include "weak.h"
#include "os/os.h"

#define ARENA_BYTES ((size_t)3 << 30)
#define ARENA_START ((char *)0x100000000000) /* always the same: the allocator's random numbers depend on its addresses */
#define ARENA_ALIGN ((size_t)2 << 20)
#define PAGE ((size_t)4096)
#define PAGES_MOST 16384
#define PLACES_MOST 256

typedef struct places {
  unsigned count;
  struct {
    char *start, *end;
  } at[PLACES_MOST];
} places_t;

typedef struct memory {
  char *arena;
  places_t placed; /* mapped by any execution so far; they stay mapped */
  bool kept;
  unsigned pages;
  char *page[PAGES_MOST];
  char *content; /* PAGES_MOST pages */
} memory_t;

/* The linker's symbols: the program's variables lie between them. */
extern char __data_start[], _end[];

static memory_t *m;
static size_t arena_used;
static places_t placed; /* mapped by this execution */
static unsigned refused;

static void *map(void *at, size_t bytes, int protection) {
  int fixed = at != NULL ? MAP_FIXED_NOREPLACE : 0;
  void *start = mmap(at, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | fixed, -1, 0);
  if (start == MAP_FAILED || (fixed != 0 && start != at)) abort();
  return start;
}

/* --- pages ------------------------------------------------------------------------------- */

static char *page_of(char *address) { return address - (uintptr_t)address % PAGE; }

/* The first page of variables may begin with data that the dynamic linker writes to. */
static char *page_start(unsigned i) { return m->page[i] == page_of(__data_start) ? __data_start : m->page[i]; }

static void page_copy(unsigned i, bool back) {
  char *start = page_start(i), *copy = m->content + i * PAGE + (start - m->page[i]);
  if (back) memcpy(start, copy, (size_t)(m->page[i] + PAGE - start));
  else memcpy(copy, start, (size_t)(m->page[i] + PAGE - start));
}

/* Returns whether one place contains the whole range; with `some`, whether any place overlaps it. */
static bool is_placed(const places_t *places, const char *start, const char *end, bool some) {
  for (unsigned i = 0; i < places->count; i++) {
    const char *first = places->at[i].start, *last = places->at[i].end;
    if (some ? start < last && end > first : start >= first && end <= last) return true;
  }
  return false;
}

static bool place_add(places_t *places, char *start, char *end) {
  if (places->count == PLACES_MOST) return false;
  places->at[places->count].start = start;
  places->at[places->count++].end = end;
  return true;
}

static bool page_track(char *address) {
  char *page = page_of(address);
  bool is_ours = (page >= m->arena && page < m->arena + ARENA_BYTES) || (page >= page_of(__data_start) && page < _end);
  if ((!is_ours && !is_placed(&m->placed, page, page + PAGE, false)) || m->pages == PAGES_MOST) return false;
  if (mprotect(page, PAGE, PROT_READ | PROT_WRITE) != 0) return false;
  m->page[m->pages] = page;
  m->pages++;
  if (m->kept) page_copy(m->pages - 1, false);
  return true;
}

static void on_fault(int signal, siginfo_t *info, void *context) {
  (void)context;
  if (signal == SIGSEGV && page_track(info->si_addr)) return;
  explore_crashed(signal, info->si_addr);
}

void memory_start(void) {
  memory_t *made = map(NULL, sizeof *made, PROT_READ | PROT_WRITE);
  made->arena = map(ARENA_START, ARENA_BYTES, PROT_READ);
  made->content = map(NULL, PAGES_MOST * PAGE, PROT_READ | PROT_WRITE);
  m = made;
  static const int signals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGABRT};
  struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_NODEFER};
  for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++) (void)sigaction(signals[i], &action, NULL);
}

void memory_keep(void) {
  m->kept = true;
  for (unsigned i = 0; i < m->pages; i++) page_copy(i, false);
  char *start = page_of(__data_start);
  if (mprotect(start, bits_round_up((size_t)(_end - start), PAGE), PROT_READ) != 0) abort();
}

void memory_restore(void) {
  for (unsigned i = 0; i < m->pages; i++) page_copy(i, true);
}

void memory_refuse(unsigned count) { refused = count; }

/* --- instead of what fake_os.c does ------------------------------------------------------ */

static void *arena_take(size_t bytes) {
  size_t start = bits_round_up(arena_used, ARENA_ALIGN);
  if (bytes > ARENA_BYTES - start) return NULL;
  arena_used = start + bytes;
  return m->arena + start;
}

void *__wrap_os_map(size_t bytes);
void *__wrap_os_map(size_t bytes) { return arena_take(bytes); }

/* If an earlier execution mapped the range, memory_restore has zeroed it. */
os_map_result_t __wrap_os_map_at(void *start, size_t bytes);
os_map_result_t __wrap_os_map_at(void *start, size_t bytes) {
  char *end = (char *)start + bytes;
  if (refused > 0) return refused--, OS_NOMEM;
  if (is_placed(&placed, start, end, true)) return OS_TAKEN;
  if (!is_placed(&m->placed, start, end, false)) {
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
    if (mmap(start, bytes, PROT_READ, flags, -1, 0) != start || !place_add(&m->placed, start, end)) abort();
  }
  return place_add(&placed, start, end) ? OS_MAPPED : OS_NOMEM;
}

bool __wrap_os_unmap(void *start, size_t bytes);
bool __wrap_os_unmap(void *start, size_t bytes) { return (void)start, (void)bytes, true; }

/* Does nothing: the contents of blocks do not matter here. */
bool __wrap_os_purge(void *start, size_t bytes);
bool __wrap_os_purge(void *start, size_t bytes) { return (void)start, (void)bytes, true; }

/* Nor does what lies between blocks. */
os_guard_t __wrap_os_guard(void *start, size_t bytes, bool may_split);
os_guard_t __wrap_os_guard(void *start, size_t bytes, bool may_split) { return (void)start, (void)bytes, (void)may_split, OS_LIGHT; }

bool __wrap_os_unguard(void *start, size_t bytes);
bool __wrap_os_unguard(void *start, size_t bytes) { return (void)start, (void)bytes, true; }

void __wrap_os_yield(void);
void __wrap_os_yield(void) { explore_wait(); }

void __wrap_os_sleep_us(unsigned microseconds);
void __wrap_os_sleep_us(unsigned microseconds) {
  (void)microseconds;
  explore_wait();
}

void __wrap_os_wait(_Atomic uint32_t *word, uint32_t value, uint64_t microseconds, bool shared);
void __wrap_os_wait(_Atomic uint32_t *word, uint32_t value, uint64_t microseconds, bool shared) {
  (void)word, (void)value, (void)microseconds, (void)shared;
  explore_wait();
}

static int barriers;

void memory_meet_barriers(void) { explore_meet(&barriers); }

bool __wrap_os_barrier(void);
bool __wrap_os_barrier(void) {
  if (explore_actor() < 0) return true;
  (void)explore_point(&barriers, EXPLORE_CHANGE, __builtin_return_address(0));
  weak_barrier();
  return true;
}

_Noreturn void __wrap_os_abort(void);
_Noreturn void __wrap_os_end(void);
_Noreturn void __wrap_os_abort(void) { explore_died(); }
void __wrap_os_end(void) { explore_died(); }
