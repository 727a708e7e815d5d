/* fork.c - detects that this process was forked, by a page that the kernel wipes in a child. */
#include <sys/mman.h>

#include "os/os.h"
#include "os/syscall.h"

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif

/* First word of the page: FORK_SEEN in the process that set it up or was repaired, 0 in a child since forked, or the id of the
 * thread that repairs the child. */
#define FORK_SEEN ((uintptr_t)1)
/* Second word of the page: how the process was made. */
enum { BY_CLONE = 0, BY_EXEC, BY_LIBC };
#define FORK_MADE 1
/* Third word: the process that the memory belongs to; 0 in a child of a raw fork, until it is repaired. */
#define FORK_PROCESS 2
static _Atomic uintptr_t fork_unwatched[] = {FORK_SEEN, BY_EXEC, 0};
static _Atomic uintptr_t *_Atomic fork_page = fork_unwatched;

static uintptr_t own_process(void) { return (uintptr_t)syscall_3(SYS_getpid, 0, 0, 0); }

void os_fork_watch(void) {
  if (load_relaxed(&fork_page) != fork_unwatched) return; /* an earlier start failed after this */
  _Atomic uintptr_t *page = os_map(os_page_size());
  if (page == NULL) return;
  add_relaxed(&os_counts.madvise, 1);
  if (syscall_3(SYS_madvise, (long)page, (long)os_page_size(), MADV_WIPEONFORK) == 0) {
    store_relaxed(page, FORK_SEEN);
    store_relaxed(&page[FORK_MADE], BY_EXEC);
    store_relaxed(&page[FORK_PROCESS], own_process());
    store_release(&fork_page, page);
  } else {
    (void)os_unmap(page, os_page_size());
  }
}

bool os_forked(void) { return load_acquire(load_acquire(&fork_page)) != FORK_SEEN; }
bool os_fork_is_claimed(void) { return load_acquire(load_acquire(&fork_page)) != 0; }
void os_fork_note(void) {
  _Atomic uintptr_t *page = load_acquire(&fork_page);
  store_relaxed(&page[FORK_PROCESS], own_process());
  store_relaxed(page, 0);
}

static uintptr_t made_by(void) { return load_relaxed(&load_acquire(&fork_page)[FORK_MADE]); }
void os_fork_note_libc(void) { store_relaxed(&load_acquire(&fork_page)[FORK_MADE], BY_LIBC); }
bool os_fork_was_by_libc(void) { return made_by() != BY_CLONE; }

/* Without a page that the kernel wipes, a forked child cannot be told from a guest. */
bool os_is_guest(void) {
  _Atomic uintptr_t *page = load_acquire(&fork_page);
  if (load_relaxed(&os_filters) != 0 || page == fork_unwatched || load_acquire(page) != FORK_SEEN) return false;
  return load_relaxed(&page[FORK_PROCESS]) != own_process();
}

/* Fails if a signal handler interrupted the repair and forked: then this is a child of the child. */
void os_fork_seen(uintptr_t thread) {
  _Atomic uintptr_t *process = &load_acquire(&fork_page)[FORK_PROCESS];
  if (load_relaxed(process) == 0) store_relaxed(process, own_process());
  (void)atomic_compare_exchange_strong_explicit(load_acquire(&fork_page), &thread, FORK_SEEN, memory_order_release, memory_order_relaxed);
}

bool os_fork_is_claimed_by(uintptr_t thread) { return load_relaxed(load_acquire(&fork_page)) == thread; }

bool os_fork_claim(uintptr_t thread) {
  _Atomic uintptr_t *page = load_acquire(&fork_page);
  for (;;) {
    uintptr_t state = load_acquire(page);
    if (state == FORK_SEEN || state == thread) return false;
    if (state == 0 && atomic_compare_exchange_strong(page, &state, thread)) return true;
    os_yield();
  }
}
