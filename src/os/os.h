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
extern _Atomic size_t os_page;       /* the same once it was asked for: for readers outside, as all that entry/descriptor.c lists */
uint64_t os_physical_memory(void);   /* bytes */
size_t os_map_limit(void);           /* mappings that a process may have; the first call reads it, and must be at start */
uint64_t os_address_limit(void);     /* RLIMIT_AS in bytes, UINT64_MAX when unlimited */
uintptr_t os_program(void);             /* an address in the program's own code */
bool os_is_privileged(void);             /* running with privileges its caller lacks */
bool os_has_shadow(void);            /* a sanitizer's runtime occupies the middle of the addresses */
uint64_t os_random_seed(void);       /* differs for each process, in which it is the same */
uint64_t os_random(void);            /* unpredictable */
uint64_t os_now_ms(void);            /* monotonic, coarse */
uint64_t os_thread_ns(void);         /* processor time of the calling thread, by a system call; 0 where that is not allowed */

/* Maps zero pages at just this address, replacing nothing. */
HAK_CHECKED os_map_result_t os_map_at(void *start, size_t bytes);
/* Whether all of it is mapped, by whomever. Emulators may say so of what is mapped in part. */
HAK_CHECKED bool os_is_mapped(void *start, size_t bytes);
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
/* Makes pages inaccessible and gives their memory back, unless they are locked.  They are zero afterwards in any case.
 * OS_LIGHT: by a guard in the page tables, which costs no mapping.  OS_SPLIT: by protection, which splits the mapping.  OS_OPEN: they
 * stay accessible, since the kernel has no light guards, and `may_split` forbids a split or the kernel has no mapping left. */
typedef enum os_guard { OS_OPEN, OS_LIGHT, OS_SPLIT } os_guard_t;
os_guard_t os_guard(void *start, size_t bytes, bool may_split);
/* Makes exactly such a range accessible again, or some pages of one that is no larger than a unit; they are zero then.  Pages that
 * were accessible stay as they are.  False: the kernel is out of mappings to split. */
bool os_unguard(void *start, size_t bytes);
/* Has core dumps hold the pages again, where the program has advised the kernel to leave them out. */
void os_dump(void *start, size_t bytes);
/* Makes whole pages of ours unwritable, or writable again; false if the kernel refuses. */
bool os_seal(const void *start, size_t bytes, bool sealed);
/* How many of the first pages are resident; looks at 256 at most. */
size_t os_resident(void *start, size_t pages);

/* Neither is a cancellation point.  A thread that waits yields first, which is short, and then sleeps. */
void os_yield(void);
void os_sleep_us(unsigned microseconds);

/* Waits while the word has the value, until woken or for so long at most; `shared`: the kernel wakes too. Wakes so many that wait. */
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
 * signal is delivered to it.  All but `prepare` and `stack` zero at first. */
typedef struct os_thread {
  _Atomic uint32_t id;   /* not 0 while it uses its stack; the kernel clears it */
  _Atomic uint32_t last; /* its number in the kernel, or that of the one before while the kernel may still know it */
  _Atomic uint32_t held; /* how many callers hold it back; it sleeps on this */
  _Atomic uint32_t ready; /* it has begun to work, or to end */
  /* Runs in it before it is confined; may be NULL. True: it has descriptors of its own, and may then read and write by these. */
  os_prepare_t *_Atomic prepare;
  _Atomic bool unable;    /* one could not confine itself */
  _Atomic bool refused;   /* the kernel had none when it was last asked for one */
  bool confined;
  bool files; /* `prepare` said so */
  long leader;                    /* its process, if confined, */
  os_capabilities_t capabilities; /* and what that held at the start */
  void (*run)(void);
  void *stack; /* of OS_THREAD_STACK bytes; if NULL at first it is mapped, which limits may forbid */
} os_thread_t;
bool os_thread_possible(void); /* false under a tool that must know every thread */
/* Runs `run` in a new thread; false if there is one already, if it is held, or if there can be none.  When this returns a confined
 * one holds no capability, and can ask the kernel for memory and for sleep alone, and for its files; one that cannot be confined
 * ends, and no other is started. */
HAK_CHECKED bool os_thread_start(os_thread_t *thread, void (*run)(void), bool confined);
HAK_INLINE bool os_thread_exists(os_thread_t *thread) { return load_relaxed(&thread->id) != 0; }
/* For the thread itself.  False: it must end, because it is held, or because it is confined and its process no longer has the user,
 * groups or capabilities that it had at the start. */
HAK_CHECKED bool os_thread_sleep_ms(os_thread_t *thread, uint64_t milliseconds);
/* Ends it, and waits until it is gone for the kernel too; each hold keeps a new one from being started until it is released. */
void os_thread_hold(os_thread_t *thread);
void os_thread_release(os_thread_t *thread);
/* In a fork's child, where no such thread runs. */
void os_thread_forget(os_thread_t *thread);

/* What the kernel says of the calling thread: whether a filter judges its system calls, and whether it could change its user, or
 * has.  Reads a file (os/standing.c); where that cannot be had for want of a descriptor or of /proc, what was true when it was last
 * read; else both count as true. */
typedef struct os_standing {
  bool filtered, privileged;
} os_standing_t;
os_standing_t os_standing(void);
/* Reads the file unless it was read before: to be called while it still can be. */
void os_standing_note(void);
/* Whether the process was under a filter when this was first asked; reads the file once. */
bool os_started_filtered(void);
/* Whether the process has no other thread, ours included, by the same file; false where it cannot be read. */
bool os_is_only_thread(void);
/* How often the process has put itself under a filter.  From then on only those calls are made that glibc's malloc may make at the
 * same moment; any other counts as refused, and is not tried. */
extern _Atomic uint32_t os_filters;

/* Whether the process has no other thread, as far as libc knows: it may say no where there is none, and threads of ours do not
 * count.  Nothing that another thread does can overlap with what the caller does next. */
HAK_INLINE bool os_single_threaded(void) {
  extern char __libc_single_threaded __attribute__((weak)); /* glibc from 2.32 on */
  return &__libc_single_threaded != NULL && __libc_single_threaded != 0;
}
/* Whether libc has ever made another: it may say no where there were some. */
HAK_INLINE bool os_multi_threaded(void) {
  extern char __libc_single_threaded __attribute__((weak));
  return &__libc_single_threaded != NULL && __libc_single_threaded == 0;
}

/* A full barrier in every thread of the process: when this returns, each has passed one since the call.  False, and no barrier, where the
 * kernel has none, and where a filter may not know the call.  From a thread under a filter of ours only after os_started_filtered. */
HAK_CHECKED bool os_barrier(void);

/* Whether this process was forked since os_fork_watch or os_fork_seen: known by a page
 * that the kernel wipes in a child, however it was made.  Where the kernel cannot,
 * os_fork_note, called by a fork handler, says so. */
void os_fork_watch(void);
bool os_forked(void);
void os_fork_note(void);
/* From a fork handler in the child; and whether one has run there, as in the first process.  A child of clone or of the system call alone
 * may end with its one thread: libc, which would end the process, is not asked. */
void os_fork_note_libc(void);
bool os_fork_was_by_libc(void);
/* Whether the caller is a process of its own in the memory of this one, as between vfork and exec: what it changes about itself is not
 * changed here.  By system calls, so false once the process is under a filter of its own; and where the kernel does not tell. */
bool os_is_guest(void);
/* True for one of the threads that find out at the same time, named by its number: it repairs the child, and then calls
 * os_fork_seen.  The others wait for that here, but for a signal handler in the repairing thread.  False where there is nothing to
 * repair, or no longer. */
HAK_CHECKED bool os_fork_claim(uintptr_t thread);
/* Whether one does or has. */
bool os_fork_is_claimed(void);
/* Whether it is under way, by this thread. */
bool os_fork_is_claimed_by(uintptr_t thread);
void os_fork_seen(uintptr_t thread);

/* Writes all of it, to standard error with fd 2; false on error.  A pipe that nobody reads and a limit of sizes are errors like any other:
 * no SIGPIPE and no SIGXFSZ comes of it, but once the process is under a filter of its own (os_filters). */
bool os_write(int fd, const char *text, size_t bytes);
/* Reads a whole small file into buffer, NUL-terminated; the length, or -1.  For who writes to a pipe it waits a second, if there is one. */
long os_read_file(const char *path, char *buffer, size_t size);
_Noreturn void os_abort(void);
/* The thread that is in it: should a handler make that wait for a lock of its own, the reason was said. */
extern _Atomic uintptr_t os_aborting;
/* The same past any handler of the program's. */
_Noreturn void os_end(void);

#endif
