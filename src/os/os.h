/* os.h - the kernel, as the allocator sees it.
 *
 * No function touches errno.  A failure that the caller can meet (no memory,
 * address taken) is a return value; any other errno is a broken promise of
 * ours and ends the process.  All are thread-safe.  tests/support/fake_os.c
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
} os_map_t;

size_t os_page_size(void);           /* bytes; constant for a process */
uint64_t os_physical_memory(void);   /* bytes */
size_t os_map_limit(void);           /* mappings that a process may have; read at the first call */
uint64_t os_address_limit(void);     /* RLIMIT_AS in bytes, UINT64_MAX when unlimited */
bool os_is_secure(void);             /* running with privileges its caller lacks */
bool os_has_shadow(void);            /* a sanitizer's runtime has the midst of the addresses for itself */
uint64_t os_random_seed(void);       /* differs for each process, in which it is the same */
uint64_t os_random(void);            /* unpredictable */
uint64_t os_now_ms(void);            /* monotonic, coarse */

/* Maps zero pages at just this address, replacing nothing. */
HAK_CHECKED os_map_t os_map_at(void *start, size_t bytes);
/* Maps zero pages anywhere; NULL when out of memory. */
HAK_CHECKED void *os_map(size_t bytes);
/* False only when the kernel is out of mappings to split. */
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
/* Makes whole pages of ours unwritable, or writable again. */
void os_seal(const void *start, size_t bytes, bool sealed);
/* How many of the first pages are resident; looks at 256 at most. */
size_t os_resident(void *start, size_t pages);

/* None of these is a cancellation point. */
void os_yield(void);
void os_sleep_us(unsigned microseconds);
void os_sleep_ms(uint64_t milliseconds);

/* A thread that libc does not know: it has no thread-local variables, and no
 * signal is delivered to it.  All zero at first. */
typedef struct os_thread {
  _Atomic uint32_t id; /* not 0 while it uses its stack; the kernel clears it */
  void *stack;
} os_thread_t;
/* Runs `run` in a new thread; false if there is one already, or cannot be. */
HAK_CHECKED bool os_thread_start(os_thread_t *thread, void (*run)(void));
HAK_INLINE bool os_thread_exists(os_thread_t *thread) { return atomic_seen(&thread->id) != 0; }
/* In a fork's child, where no such thread runs. */
void os_thread_forget(os_thread_t *thread);

/* Whether the process has no thread but this one, as libc knows: it may say no where it has none, and threads of ours
 * do not count.  What a thread that came first does after this cannot meet what a later one does. */
HAK_INLINE bool os_single_threaded(void) {
  extern char __libc_single_threaded __attribute__((weak)); /* glibc from 2.32 on */
  return &__libc_single_threaded != NULL && __libc_single_threaded != 0;
}

/* Whether this process was forked since os_fork_watch or os_fork_seen: told by a page
 * that the kernel wipes in a child, however it was made.  Where the kernel cannot,
 * os_fork_note, called by a fork handler, says so. */
void os_fork_watch(void);
bool os_forked(void);
void os_fork_note(void);
void os_fork_seen(void);

/* Writes all of it, to standard error with fd 2; false on error. */
bool os_write(int fd, const char *text, size_t bytes);
/* Reads a whole small file into buffer, NUL-terminated; the length, or -1. */
long os_read_file(const char *path, char *buffer, size_t size);
_Noreturn void os_abort(void);
/* The same past any handler of the program's. */
_Noreturn void os_end(void);

#endif
