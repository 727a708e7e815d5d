/* change.c - libc's calls by which a thread or process changes what it holds: capabilities, namespaces, filters.
 *
 * Our thread, which libc does not know, would keep what it held, so it is ended first (front/keeper.h).  Each name then calls the
 * next definition, libc's or another library's.  A static program has no dlsym to find that, so there the name makes the system
 * call, which is all that libc's function does.  In the archive this is an object of its own, and its names are weak: a program
 * may define such a name itself. */
#include "entry/entry.h"

#if HAK_OVERRIDE

#include <dlfcn.h>
#include <errno.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "os/os.h"
#include "os/syscall.h"
#include "front/keeper.h"
#include "entry/change.h"

#ifndef PR_CAP_AMBIENT
#define PR_CAP_AMBIENT 47
#endif
#ifndef SYS_landlock_restrict_self
#define SYS_landlock_restrict_self 446
#endif

#pragma weak dlsym /* not in static programs */

/* Takes no lock; two threads at the same time both look the name up. */
HAK_COLD void *change_next(void *_Atomic *known, const char *name) {
  void *next = load_acquire(known);
  if (HAK_UNLIKELY(next == NULL) && &dlsym != NULL) {
    next = dlsym(RTLD_NEXT, name);
    store_release(known, next);
  }
  return next;
}

static long with_errno(long result) {
  if (!syscall_failed(result)) return result;
  errno = (int)-result;
  return -1;
}

bool change_begin(void) {
  os_credentials_note(); /* a new root may have no /proc */
  return keeper_hold();
}

void change_end(bool held) {
  if (held) keeper_release();
}

#define RAW(number, a, b, c) with_errno(syscall_3((number), (long)(a), (long)(b), (long)(c)))

CHANGE(chroot, int, (const char *path), (path), (int)RAW(SYS_chroot, path, 0, 0))
CHANGE(unshare, int, (int flags), (flags), (int)RAW(SYS_unshare, flags, 0, 0))
CHANGE(setns, int, (int fd, int kind), (fd, kind), (int)RAW(SYS_setns, fd, kind, 0))
CHANGE(capset, int, (void *whose, const void *sets), (whose, sets), (int)RAW(SYS_capset, whose, sets, 0))
/* These always return the previous id, which may look like an error number. */
CHANGE(setfsuid, int, (uid_t user), (user), (int)syscall_3(SYS_setfsuid, (long)user, 0, 0))
CHANGE(setfsgid, int, (gid_t group), (group), (int)syscall_3(SYS_setfsgid, (long)group, 0, 0))

/* --- calls of many kinds ------------------------------------------------------------------ */

typedef enum change { CHANGE_NONE, CHANGE_SOME, CHANGE_FILTER } change_t;

static change_t change_of_prctl(long option) {
  switch (option) {
    case PR_SET_SECCOMP: return CHANGE_FILTER;
    case PR_SET_NO_NEW_PRIVS:
    case PR_SET_SECUREBITS:
    case PR_SET_KEEPCAPS:
    case PR_CAPBSET_DROP:
    case PR_CAP_AMBIENT: return CHANGE_SOME;
    default: return CHANGE_NONE;
  }
}

static change_t change_of_syscall(long number, long a) {
  switch (number) {
    case SYS_prctl: return change_of_prctl(a);
    case SYS_seccomp: return a <= 1 ? CHANGE_FILTER : CHANGE_NONE; /* the other operations only query */
    case SYS_setuid:
    case SYS_setgid:
    case SYS_setreuid:
    case SYS_setregid:
    case SYS_setresuid:
    case SYS_setresgid:
    case SYS_setgroups:
    case SYS_setfsuid:
    case SYS_setfsgid:
    case SYS_capset:
    case SYS_chroot:
    case SYS_pivot_root:
    case SYS_unshare:
    case SYS_setns:
    case SYS_landlock_restrict_self: return CHANGE_SOME;
    default: return CHANGE_NONE;
  }
}

/* Their arguments are words of any type, so both are declared as a caller passes them: six in a register each, and the last one
 * where a seventh argument goes. */
HAK_EXPORT CHANGE_WEAK int change_prctl(int option, long b, long c, long d, long e) LIBC_NAME("prctl");
HAK_EXPORT CHANGE_WEAK long change_syscall(long number, long a, long b, long c, long d, long e, long f) LIBC_NAME("syscall");

static int next_prctl(int option, long b, long c, long d, long e) {
  static void *_Atomic known;
  int (*next)(int, ...) = (int (*)(int, ...))change_next(&known, "prctl");
  return next != NULL ? next(option, b, c, d, e) : (int)with_errno(syscall_6(SYS_prctl, option, b, c, d, e, 0));
}

static long next_syscall(long number, long a, long b, long c, long d, long e, long f) {
  static void *_Atomic known;
  long (*next)(long, ...) = (long (*)(long, ...))change_next(&known, "syscall");
  return next != NULL ? next(number, a, b, c, d, e, f) : with_errno(syscall_6(number, a, b, c, d, e, f));
}

/* Counts the filter before it exists, since after that no call may be made that it may forbid.  A guest's filter is not this process's. */
static bool filter_begin(change_t change) {
  if (change != CHANGE_FILTER || os_is_guest()) return false;
  os_filter_begin();
  return true;
}

static void filter_end(bool counted, bool refused) {
  if (counted && refused) add_relaxed(&os_filters, (uint32_t)-1);
}

/* If one thread cannot take a filter for all threads, the call returns that thread's number, unless it was to return a descriptor. */
static bool is_refused(long number, long flags, long result) {
  enum { FOR_ALL_THREADS = 1, BY_DESCRIPTOR = 8 };
  return result < 0 || (number == SYS_seccomp && result > 0 && (flags & (FOR_ALL_THREADS | BY_DESCRIPTOR)) == FOR_ALL_THREADS);
}

HAK_COLD int change_prctl(int option, long b, long c, long d, long e) {
  change_t change = change_of_prctl(option);
  if (change == CHANGE_NONE) return next_prctl(option, b, c, d, e);
  bool held = change_begin(), counted = filter_begin(change);
  int result = next_prctl(option, b, c, d, e);
  filter_end(counted, result < 0);
  change_end(held);
  return result;
}

static HAK_NOINLINE long changing_syscall(change_t change, long number, long a, long b, long c, long d, long e, long f) {
  bool held = change_begin(), counted = filter_begin(change);
  long result = next_syscall(number, a, b, c, d, e, f);
  filter_end(counted, is_refused(number, b, result));
  change_end(held);
  return result;
}

HAK_COLD long change_syscall(long number, long a, long b, long c, long d, long e, long f) {
  change_t change = change_of_syscall(number, a);
  if (HAK_UNLIKELY(number == SYS_exit)) change_end(keeper_hold()); /* if this is the last thread, ours must not outlive it */
  if (HAK_UNLIKELY(change != CHANGE_NONE)) return changing_syscall(change, number, a, b, c, d, e, f);
  return next_syscall(number, a, b, c, d, e, f);
}

#endif
