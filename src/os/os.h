/* os.h - the kernel, as the allocator sees it.
 *
 * No function touches errno.  A failure is a return value: any call may be
 * refused, by a filter of the program's or its administrator's, and what could
 * not be done is done without.  All are thread-safe.  tests/support/fake_os.c
 * implements the same contract with failures on demand. */
#ifndef OS_OS_H
#define OS_OS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/atomics.h"
#include "base/bits.h"

/* System calls made so far, by kind. Source of the sys_* statistics. */
typedef struct os_counts {
  _Atomic uint64_t mmap, munmap, mprotect, madvise, mremap, other;
} os_counts_t;
extern os_counts_t os_counts;

typedef enum os_map {
  OS_MAPPED,
  OS_TAKEN, /* something else lives at that address */
  OS_NOMEM  /* memory, address space or mappings are exhausted */
} os_map_result_t;

size_t os_page_size(void);           /* bytes; constant for a process */
uint64_t os_physical_memory(void);   /* bytes */
size_t os_map_limit(void);           /* mappings that a process may have; read by the first call, which is to be at start */
uint64_t os_address_limit(void);     /* RLIMIT_AS in bytes, UINT64_MAX when unlimited */
bool os_is_privileged(void);             /* running with privileges its caller lacks */
bool os_has_shadow(void);            /* a sanitizer's runtime has the midst of the addresses for itself */
uint64_t os_random_seed(void);       /* differs for each process, in which it is the same */
uint64_t os_random(void);            /* unpredictable */
uint64_t os_now_ms(void);            /* monotonic, coarse */

/* Maps zero pages at just this address, replacing nothing. */
HAK_CHECKED os_map_result_t os_map_at(void *start, size_t bytes);
/* Maps zero pages anywhere; NULL when out of memory. */
HAK_CHECKED void *os_map(size_t bytes);
/* False when the kernel is out of mappings to split, or refuses. */
bool os_unmap(void *start, size_t bytes);
/* Gives the pages back; they read as zero afterwards. False: they may keep their content,
 * as where the program has locked its memory. */
bool os_purge(void *start, size_t bytes);
/* Brings in every page, as if written to; false if some are missing. */
bool os_populate(void *start, size_t bytes);
/* Lets the kernel back the range with huge pages, or keeps it from that. */
void os_huge(void *start, size_t bytes, bool huge);
/* Moves the pages themselves; `from` reads as zero afterwards, what was at `to` is gone. Both
 * are mapped; `from` is nothing that was moved in pieces. False, always for locked pages: nothing has changed. */
HAK_CHECKED bool os_move(void *from, void *to, size_t bytes);
/* The same as os_purge for what os_move has filled: makes one mapping with its neighbours of it again. */
bool os_renew(void *start, size_t bytes);
/* Makes accessible pages inaccessible and gives their memory back, unless they are locked.  They are zero afterwards in any
 * case, OS_OPEN too: light guards cannot be had, and the others split mappings, which `may_split` forbids or the kernel
 * has no more of. */
typedef enum os_guard { OS_OPEN, OS_LIGHT, OS_SPLIT } os_guard_t;
os_guard_t os_guard(void *start, size_t bytes, bool may_split);
/* Makes just such a range, or some pages of one of up to a unit, accessible again, then zero.  What was accessible stays as it
 * is.  False: the kernel is out of mappings to split. */
bool os_unguard(void *start, size_t bytes);
/* Makes whole pages of ours unwritable, or writable again; false if the kernel refuses. */
bool os_seal(const void *start, size_t bytes, bool sealed);
/* How many of the first pages are resident; looks at 256 at most. */
size_t os_resident(void *start, size_t pages);

/* None of these is a cancellation point.  Who waits calls os_yield, which is short and lets others run, or os_sleep_us. */
void os_yield(void);
void os_sleep_us(unsigned microseconds);

/* Waits while the word has the value, until woken or for so long at most; for one `shared` with the kernel too. Wakes who waits. */
void os_wait(_Atomic uint32_t *word, uint32_t value, uint64_t microseconds, bool shared);
void os_wake(_Atomic uint32_t *word);

typedef struct os_capabilities {
  struct {
    uint32_t effective, permitted, inheritable;
  } of[2]; /* as the kernel tells them */
} os_capabilities_t;

/* A thread that libc does not know: it has no thread-local variables, and no
 * signal is delivered to it.  All zero at first. */
typedef struct os_thread {
  _Atomic uint32_t id;   /* not 0 while it uses its stack; the kernel clears it */
  _Atomic uint32_t last; /* what the kernel calls it, or called the one before, while it may still know that */
  _Atomic uint32_t held; /* how many want none to run; it sleeps on this */
  _Atomic uint32_t ready; /* it has begun to work, or to end */
  _Atomic bool unable;    /* one could not confine itself */
  bool confined;
  long leader;                    /* its process, if confined, */
  os_capabilities_t capabilities; /* and what that held at the start */
  void (*run)(void);
  void *stack;
} os_thread_t;
bool os_thread_possible(void); /* not where a tool must know every thread */
/* Runs `run` in a new thread; false if there is one already, or cannot be, or is held.  A confined one holds no capability
 * and can ask the kernel for nothing but memory and to wait when this returns; if it cannot be made so it ends, and no other is
 * started. */
HAK_CHECKED bool os_thread_start(os_thread_t *thread, void (*run)(void), bool confined);
HAK_INLINE bool os_thread_exists(os_thread_t *thread) { return load_relaxed(&thread->id) != 0; }
/* For the thread itself.  False: it is to end, since it is held, or confined and the user, groups or capabilities of its
 * process are not those that it started with. */
HAK_CHECKED bool os_thread_sleep_ms(os_thread_t *thread, uint64_t milliseconds);
/* Ends it, and waits until the kernel knows no such thread any more; none can be started until as many releases. */
void os_thread_hold(os_thread_t *thread);
void os_thread_release(os_thread_t *thread);
/* In a fork's child, where no such thread runs. */
void os_thread_forget(os_thread_t *thread);

/* What the kernel says of the calling thread: whether somebody's filter judges its system calls, and whether it could change
 * its user or has changed it.  Reads a file; where that cannot be, both are taken for true. */
typedef struct os_standing {
  bool filtered, privileged;
} os_standing_t;
os_standing_t os_standing(void);
/* Whether the process has no thread but this one, ours counted, as the kernel says in the same file; false where it cannot be read. */
bool os_is_only_thread(void);
/* How often the process has put itself under a filter.  Then no call is made but those that glibc's malloc may make at that
 * time as well: what another one would tell is as if the kernel had refused it. */
extern _Atomic uint32_t os_filters;

/* Whether the process has no thread but this one, as libc knows: it may say no where it has none, and threads of ours
 * do not count.  What a thread that came first does after this cannot meet what a later one does. */
HAK_INLINE bool os_single_threaded(void) {
  extern char __libc_single_threaded __attribute__((weak)); /* glibc from 2.32 on */
  return &__libc_single_threaded != NULL && __libc_single_threaded != 0;
}
/* Whether libc knows that there were others: it may say no where there were. */
HAK_INLINE bool os_multi_threaded(void) {
  extern char __libc_single_threaded __attribute__((weak));
  return &__libc_single_threaded != NULL && __libc_single_threaded == 0;
}

/* Whether this process was forked since os_fork_watch or os_fork_seen: known by a page
 * that the kernel wipes in a child, however it was made.  Where the kernel cannot,
 * os_fork_note, called by a fork handler, says so. */
void os_fork_watch(void);
bool os_forked(void);
void os_fork_note(void);
/* One of the threads that find out at once, by its number, is to repair the child, and then calls os_fork_seen: true. The others wait
 * for it, but for a signal handler in the same thread. False where there is nothing to repair, or no more. */
HAK_CHECKED bool os_fork_claim(uintptr_t thread);
void os_fork_seen(uintptr_t thread);

/* Writes all of it, to standard error with fd 2; false on error. */
bool os_write(int fd, const char *text, size_t bytes);
/* Reads a whole small file into buffer, NUL-terminated; the length, or -1. */
long os_read_file(const char *path, char *buffer, size_t size);
_Noreturn void os_abort(void);
/* The thread that is in it: should a handler make that wait for a lock of its own, the reason was said. */
extern _Atomic uintptr_t os_aborting;
/* The same past any handler of the program's. */
_Noreturn void os_end(void);

#endif
