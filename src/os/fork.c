/* fork.c - detects that this process was forked, by a page that the kernel wipes in a child. */
#include <sys/mman.h>
#include <sys/prctl.h>

#include "os/os.h"
#include "os/syscall.h"

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif
#ifndef PR_GET_TID_ADDRESS
#define PR_GET_TID_ADDRESS 40
#endif

/* First word of the page: FORK_SEEN in the process that set it up or was repaired, 0 in a child since forked, or the id of the
 * thread that repairs the child. */
#define FORK_SEEN ((uintptr_t)1)
/* Second word of the page: how the process was made. */
enum { BY_CLONE = 0, BY_EXEC, BY_LIBC };
#define FORK_MADE 1
static _Atomic uintptr_t fork_unwatched[] = {FORK_SEEN, BY_EXEC};
os_fork_t os_fork = {.page = fork_unwatched};

void os_fork_watch(void) {
  if (load_relaxed(&os_fork.page) != fork_unwatched) return; /* an earlier start failed after this */
  _Atomic uintptr_t *page = os_map(os_page_size());
  if (page == NULL) return;
  add_relaxed(&os_counts.madvise, 1);
  if (syscall_3(SYS_madvise, (long)page, (long)os_page_size(), MADV_WIPEONFORK) == 0) {
    store_relaxed(page, FORK_SEEN);
    store_relaxed(&page[FORK_MADE], BY_EXEC);
    store_release(&os_fork.page, page);
  } else {
    (void)os_unmap(page, os_page_size());
  }
}

bool os_forked(void) { return load_acquire(load_acquire(&os_fork.page)) != FORK_SEEN; }
bool os_fork_is_claimed(void) { return load_acquire(load_acquire(&os_fork.page)) != 0; }
void os_fork_note(void) { store_relaxed(load_acquire(&os_fork.page), 0); }

static uintptr_t made_by(void) { return load_relaxed(&load_acquire(&os_fork.page)[FORK_MADE]); }
void os_fork_note_libc(void) { store_relaxed(&load_acquire(&os_fork.page)[FORK_MADE], BY_LIBC); }
bool os_fork_was_by_libc(void) { return made_by() != BY_CLONE; }

/* libc registers a word of each of its threads that the kernel clears when the thread ends; glibc does so in a fork's child, too, musl
 * does not.  A thread without such a word is in a raw child, is a raw thread, or was made by vfork and the like.  Without a page that the
 * kernel wipes, raw children are not detected. */
static bool has_words(void) {
  if (load_acquire(&os_fork.page) == fork_unwatched) return false;
#if defined(__GLIBC__)
  return made_by() != BY_CLONE;
#else
  return made_by() == BY_EXEC;
#endif
}

bool os_is_guest(void) {
  void *word = NULL;
  if (load_relaxed(&os_filters) != 0 || !has_words()) return false;
  if (syscall_3(SYS_prctl, PR_GET_TID_ADDRESS, (long)&word, 0) != 0 || word != NULL) return false;
  return (long)os_process_id() == syscall_3(SYS_gettid, 0, 0, 0);
}

/* Fails if a signal handler interrupted the repair and forked: then this is a child of the child. */
void os_fork_seen(uintptr_t thread) {
  _Atomic uintptr_t *page = load_acquire(&os_fork.page);
  (void)atomic_compare_exchange_strong_explicit(page, &thread, FORK_SEEN, memory_order_release, memory_order_relaxed);
}

bool os_fork_is_claimed_by(uintptr_t thread) { return load_relaxed(load_acquire(&os_fork.page)) == thread; }

bool os_fork_claim(uintptr_t thread) {
  _Atomic uintptr_t *page = load_acquire(&os_fork.page);
  for (;;) {
    uintptr_t state = load_acquire(page);
    if (state == FORK_SEEN || state == thread) return false;
    if (state == 0 && atomic_compare_exchange_strong(page, &state, thread)) return true;
    os_yield();
  }
}
