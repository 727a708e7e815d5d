/* keeper.h - the thread that gives memory back in a process that has gone idle.
 *
 * The keeper is started when much memory lies idle or waits for idle threads.
 * It does what is due by time, and ends when nothing is left to do: a process at rest
 * has no thread of ours.  Where the limit of a container is known, it stays while much
 * lies idle, and checks that limit.  libc does not know the keeper: a process that libc sees as
 * single-threaded keeps its cheap locks, and starting the keeper locks and allocates nothing of libc's.
 * Where something is to be watched (keeper_watch) the keeper stays for good.
 *
 * The keeper must never hold a privilege that the program has dropped.  Before a libc call that changes the privileges of the process,
 * the keeper is ended (keeper_hold).  We do not see a direct system call: so the keeper has no privilege to begin with, and ends when
 * it finds out about the change (os_thread_start). */
#ifndef FRONT_KEEPER_H
#define FRONT_KEEPER_H

#include "front/heap.h"
#include "os/os.h"

/* Starts the keeper if it is wanted and not there. The caller holds no lock; `heap` is the thread's, or NULL. */
void keeper_call(const heap_t *heap);
uint32_t keeper_starts(void); /* how many were started */
/* From now on the keeper is there whenever it may be, and calls `look` every tenth of a second. `open` runs in each new keeper before it is
 * confined: it may open files (os/file.h), and returns false if there will be nothing to look at, then or later. `children` says whether a
 * fork's children watch too. To be called before the process has other threads. */
typedef void keeper_look_t(void);
void keeper_watch(os_prepare_t *open, keeper_look_t *look, bool children);
/* If pressure.contained says that there is a limit to check, a new keeper also calls `open` before it is confined; `apart` says that it has
 * its own descriptors already. If `open` returns true, the keeper calls `look`, which returns after how many ms to call it again, or 0 for
 * never. To be called once, at start. Not done under a filter that was there before the process, unless the black box was requested or
 * HAKMEM_KEEPER is 2. */
typedef bool keeper_open_t(bool apart);
typedef uint64_t keeper_next_t(void);
void keeper_watch_limits(keeper_open_t *open, keeper_next_t *look);
/* 0 at first; in a fork's child one more than in its parent. */
uint32_t keeper_generation(void);
/* Whether a keeper is there and does what is due by time. */
bool keeper_is_there(void);
/* For a change of the process's user, groups, capabilities, namespaces or filters. If this returns true, no keeper runs, and none can be
 * started, until keeper_release. Returns false in a fork's child that was not repaired yet, which has no keeper; and in a signal handler
 * that has interrupted a slow path, which must not wait: then the keeper finds the change out by itself. */
HAK_CHECKED bool keeper_hold(void);
void keeper_release(void);
/* In a fork's child, which has no keeper: forgets the parent's, and returns true if that was at work. */
bool keeper_after_fork(void);

#endif
