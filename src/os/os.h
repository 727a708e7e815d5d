/* os.h - the kernel, as the allocator sees it.
 *
 * No function touches errno.  A failure is a return value: a filter of the
 * program or its administrator may refuse any call, and callers do without what
 * could not be done.  All functions are thread-safe.  tests/support/fake_os.c
 * implements the same contract with failures on demand. */
#ifndef OS_OS_H
#define OS_OS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/atomics.h"
#include "base/bits.h"
#include "base/thread.h"

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
extern _Atomic size_t os_page;       /* the same, once it was requested: for external readers, like all that entry/descriptor.c lists */
uint64_t os_physical_memory(void);   /* bytes */
size_t os_map_limit(void);           /* how many mappings a process may have; the first call reads it and must be made at start */
uint64_t os_address_limit(void);     /* RLIMIT_AS in bytes, UINT64_MAX when unlimited */
uintptr_t os_program(void);             /* an address in the program's own code */
bool os_is_privileged(void);             /* the process has privileges that its caller lacks */
bool os_has_shadow(void);            /* a sanitizer's runtime occupies the middle of the address space */
uint64_t os_random_seed(void);       /* constant within a process, different between processes */
uint64_t os_random(void);            /* unpredictable */
uint64_t os_now_ms(void);            /* monotonic, coarse */
uint64_t os_wall_ns(void);           /* since the beginning of 1970 */
uint64_t os_process_id(void);        /* by a system call: a library that is preloaded may have put its own getpid before libc's */
uint64_t os_thread_ns(void);         /* processor time of the calling thread, by a system call; 0 where that is not allowed */

/* Maps zero pages at exactly this address, without replacing a mapping. */
HAK_CHECKED os_map_result_t os_map_at(void *start, size_t bytes);
/* Returns whether the whole range is mapped, by anyone.  Emulators may also return true if only a part is. */
HAK_CHECKED bool os_is_mapped(void *start, size_t bytes);
/* Maps zero pages anywhere; NULL when out of memory. */
HAK_CHECKED void *os_map(size_t bytes);
/* False if the kernel is out of mappings for a split, or refuses. */
bool os_unmap(void *start, size_t bytes);
/* Gives the pages back; they read as zero afterwards.  False: they may keep their content,
 * for example because the program has locked its memory. */
bool os_purge(void *start, size_t bytes);
/* The same of locked pages too, which stay locked: the next access brings each back in by a page fault, so only for who asks for it.
 * False before Linux 5.18, and where the process is under a filter of its own. */
bool os_purge_locked(void *start, size_t bytes);
/* Whether another library has hooked libc's functions that give memory back.  Then os_purge, os_move and os_renew do nothing and return
 * false, and os_guard keeps the pages.  Nothing is known before os_hooks_watch, which is called at start with the places of libc's
 * madvise, munmap and mremap, 0 for one that is not known. */
HAK_CHECKED bool os_is_hooked(void);
#define OS_HOOKABLE 3
void os_hooks_watch(const uintptr_t *functions);
/* Brings in every page as if it were written to; false if some are missing. */
bool os_populate(void *start, size_t bytes);
/* Allows or forbids the kernel to back the range with huge pages. */
void os_huge(void *start, size_t bytes, bool huge);
/* Moves the pages from `from` to `to`; `from` reads as zero afterwards, and the old content of `to` is lost.  Both
 * must be mapped, and `from` must not have been moved in pieces.  False, as always for locked pages: `from` is unchanged. */
HAK_CHECKED bool os_move(void *from, void *to, size_t bytes);
/* Like os_purge, for a range that os_move has filled: makes it one mapping with its neighbours again. */
bool os_renew(void *start, size_t bytes);
/* Makes pages inaccessible and gives their memory back, unless they are locked.  They are zero afterwards in any case.  Returns how:
 * OS_LIGHT: by a guard in the page tables, which costs no mapping.  OS_SPLIT: by protection, which splits the mapping.  OS_OPEN: they
 * stay accessible, because there are no light guards, and either `may_split` is false or the kernel has no mapping left. */
typedef enum os_guard { OS_OPEN, OS_LIGHT, OS_SPLIT } os_guard_t;
os_guard_t os_guard(void *start, size_t bytes, bool may_split);
/* Whether some pages that were to be made inaccessible could not be given back so far, because they are locked. */
bool os_guarded_stay(void);
/* Makes exactly a range passed to os_guard accessible again, or some pages of one that is at most a unit; they are then zero.  Pages
 * that were accessible keep their content.  False: the kernel is out of mappings for a split. */
bool os_unguard(void *start, size_t bytes);
/* Includes the pages in core dumps again, if the program has advised the kernel to leave them out. */
void os_dump(void *start, size_t bytes);
/* Makes whole pages of our data unwritable, or writable again; false if the kernel refuses. */
bool os_seal(const void *start, size_t bytes, bool sealed);
/* Returns how many of the first `pages` pages are resident; checks at most 256. */
size_t os_resident(void *start, size_t pages);

/* Neither is a cancellation point.  A waiting thread first yields, which is short, and then sleeps. */
void os_yield(void);
void os_sleep_us(unsigned microseconds);

/* os_wait sleeps while the word has the value, until it is woken or the time is over; `shared`: also woken by the kernel.  os_wake wakes
 * at most `threads` waiting threads. */
void os_wait(_Atomic uint32_t *word, uint32_t value, uint64_t microseconds, bool shared);
void os_wake(_Atomic uint32_t *word, unsigned threads);

typedef struct os_capabilities {
  struct {
    uint32_t effective, permitted, inheritable;
  } of[2]; /* in the kernel's layout */
} os_capabilities_t;

typedef bool os_prepare_t(void);

#define OS_THREAD_STACK ((size_t)64 << 10)
/* A thread that libc does not know: it has no thread-local variables, and no
 * signal is delivered to it.  All members but `prepare` and `stack` are zero at first. */
typedef struct os_thread {
  _Atomic uint32_t id;   /* not 0 while the thread uses its stack; the kernel clears it */
  _Atomic uint32_t last; /* its thread id, or the id of the previous one while the kernel may still know it */
  _Atomic uint64_t ended_ms; /* about when it ended, as os_now_ms; when it began, until it has */
  _Atomic uint32_t held; /* number of callers that hold it back; it sleeps on this word */
  _Atomic uint32_t ready; /* it has begun to work, or is about to end */
  /* Runs in the thread before it is confined; may be NULL.  True: it has its own descriptors and may read and write through them. */
  os_prepare_t *_Atomic prepare;
  _Atomic bool unable;    /* a thread could not confine itself */
  _Atomic bool refused;   /* the kernel refused the last request for a thread */
  bool confined;
  bool files; /* `prepare` returned true */
  long leader;                    /* id of its process, if confined */
  os_capabilities_t capabilities; /* capabilities of that process at the start */
  void (*run)(void);
  void *stack; /* of OS_THREAD_STACK bytes; if NULL at first, it is mapped, which limits may prevent */
} os_thread_t;
/* Whether the caller is such a thread: its thread pointer. There is one at a time. */
extern _Atomic uintptr_t os_own_thread;
HAK_INLINE bool os_thread_is_ours(void) { return thread_self() == load_relaxed(&os_own_thread); }
bool os_thread_possible(void); /* false under tools that must know every thread */
/* Runs `run` in a new thread; false if it runs already, if it is held, or if a thread is impossible.  When this returns, a confined
 * thread has no effective capability, and can ask the kernel for little more than memory, sleep and its files; one that cannot be confined
 * ends, and no other is started. */
HAK_CHECKED bool os_thread_start(os_thread_t *thread, void (*run)(void), bool confined);
HAK_INLINE bool os_thread_exists(os_thread_t *thread) { return load_relaxed(&thread->id) != 0; }
/* Called by the thread itself.  False: the thread must end, because it is held, or because it is confined and its process no longer has
 * the user, groups or capabilities that it had at the start. */
HAK_CHECKED bool os_thread_sleep_ms(os_thread_t *thread, uint64_t milliseconds);
/* Ends the thread and waits until it is gone for the kernel, too, a second at most.  No thread can be started until each hold is
 * released. */
void os_thread_hold(os_thread_t *thread);
void os_thread_release(os_thread_t *thread);
/* In a fork's child, where no such thread runs. */
void os_thread_forget(os_thread_t *thread);

/* What the kernel reports about the calling thread: whether a filter checks its system calls, and whether the thread can change its user
 * or has done so.  Reads a file (os/credentials.c).  If there is no descriptor or no /proc for that, the last known values hold; if there
 * are none, or on any other failure, both are true. */
typedef struct os_credentials {
  bool filtered, privileged;
} os_credentials_t;
os_credentials_t os_credentials(void);
/* Reads the file unless it was read before; call it while that is still possible. */
void os_credentials_note(void);
/* Returns whether the process was under a filter at the first call, which reads the file. */
bool os_started_filtered(void);
/* Returns whether the process has no other thread, including threads of ours, by the same file; false if it cannot be read. */
bool os_is_only_thread(void);
/* How many times the process has put itself under a filter.  After the first, only calls are made that glibc's malloc might make at the
 * same point; any other counts as refused and is not tried. */
extern _Atomic uint32_t os_filters;
/* Counts a filter that the process is about to install. */
void os_filter_begin(void);
/* False once the process is under a filter and had a limit of file sizes before: a write beyond it raises SIGXFSZ, which can no longer be
 * suppressed. */
bool os_may_write_files(void);

/* Returns whether the process has no other thread, as far as libc knows; it may return false without another thread, and threads of ours
 * do not count.  If true, nothing that another thread does can overlap with what the caller does next. */
HAK_INLINE bool os_single_threaded(void) {
  extern char __libc_single_threaded __attribute__((weak)); /* glibc from 2.32 on */
  return &__libc_single_threaded != NULL && __libc_single_threaded != 0;
}
/* Returns whether libc has ever made another thread; may be false although it has. */
HAK_INLINE bool os_multi_threaded(void) {
  extern char __libc_single_threaded __attribute__((weak));
  return &__libc_single_threaded != NULL && __libc_single_threaded == 0;
}

/* A full barrier in every thread of the process: when this returns true, each thread has passed one since the call.  False, without a
 * barrier, if the kernel has none, or if a filter might not know the call.  A thread under a filter of ours may call this only after
 * os_started_filtered. */
HAK_CHECKED bool os_barrier(void);

/* os_forked returns whether this process was forked since os_fork_watch or os_fork_seen:
 * the kernel wipes a page in a child, however the child was made.  On kernels that
 * cannot, os_fork_note, called by a fork handler, marks the child. */
typedef struct os_fork {
  HAK_ALIGNED(16) _Atomic uintptr_t *_Atomic page;
  _Atomic bool pages_missing; /* space/dontfork.h's: it is read where the page is, so it lies on the same cache line */
} os_fork_t;
extern os_fork_t os_fork;
void os_fork_watch(void);
bool os_forked(void);
void os_fork_note(void);
/* os_fork_note_libc is called by a fork handler in the child; os_fork_was_by_libc returns whether that has happened, and true in a process
 * that was not forked.  A child of clone or of the raw system call may exit by its one thread alone, past libc, and a thread of ours
 * would keep it alive. */
void os_fork_note_libc(void);
bool os_fork_was_by_libc(void);
/* Returns whether the caller is a separate process in the memory of this one, as between vfork and exec: what it changes about itself does
 * not change this process.  Needs system calls, so it returns false once the process has put itself under a filter, and if the kernel does
 * not report it. */
bool os_is_guest(void);
/* Claims the repair of a fork's child for the calling thread, whose number is `thread`.  True for one of the threads that detect the fork:
 * it repairs the child and then calls os_fork_seen.  The others wait here until then, except a signal handler in the repairing thread.
 * False: there is nothing to repair, or no longer, or this thread is already repairing. */
HAK_CHECKED bool os_fork_claim(uintptr_t thread);
/* Returns whether a thread repairs the child or has done so. */
bool os_fork_is_claimed(void);
/* Returns whether this thread is repairing the child. */
bool os_fork_is_claimed_by(uintptr_t thread);
void os_fork_seen(uintptr_t thread);

/* Writes all bytes to the descriptor, 2 for standard error; false on error.  A pipe that nobody reads and a file size limit are errors like
 * any other and raise no SIGPIPE or SIGXFSZ, except once the process has put itself under a filter (os_filters). */
bool os_write(int fd, const char *text, size_t bytes);
/* Reads a whole small file into buffer, NUL-terminated; returns the length, or -1.  For a pipe it waits up to a second for the writer, if
 * there is one. */
long os_read_file(const char *path, char *buffer, size_t size);
_Noreturn void os_abort(void);
/* The thread that is in os_abort: if a signal handler makes it wait for its own lock, the reason for the end was already written. */
extern _Atomic uintptr_t os_aborting;
/* Like os_abort, without running a handler of the program. */
_Noreturn void os_end(void);
/* In the thread of os_thread_start both end only that thread, and leave it to the next thread here to write the line that it has left, and
 * to end the process. */
extern _Atomic uint32_t os_end_pending; /* 1: until then */
void os_end_finish(void);
HAK_INLINE void os_end_if_pending(void) {
  if (HAK_UNLIKELY(load_relaxed(&os_end_pending) == 1)) os_end_finish();
}

#endif
