/* keeper.h - the thread that gives memory back in a process that has gone idle.
 *
 * It is started when much lies idle, or waits for threads that sleep, does
 * what is due by time while it is there, and ends when nothing is
 * left: a process at rest has no thread of ours.  Where the limit of a container is known it stays while much lies
 * idle, and looks at that.  libc does not know it: a process that it sees as
 * single-threaded keeps its cheap locks, and nothing of libc's is locked or allocated to start it.
 * Where something is to be watched (keeper_watch) it is there for good.
 *
 * It must never hold what the program has dropped.  Before a call of libc's that changes what the process holds it is ended
 * (keeper_hold); for a system call that we do not see it has no power to begin with, and ends when it finds out (os_thread_start). */
#ifndef FRONT_KEEPER_H
#define FRONT_KEEPER_H

#include "front/heap.h"
#include "os/os.h"

/* Starts it if it is wanted and not there. Call where no lock is held; `heap` is the thread's, or NULL. */
void keeper_call(const heap_t *heap);
uint32_t keeper_starts(void); /* so far */
/* From now on it is there whenever it may be, and looks every tenth of a second. `open` runs in each new one, before it is confined: it may
 * open files (os/file.h), and is false if there will be nothing to look at, then and later. A fork's children watch too, or do not. Before
 * the process has other threads. */
typedef void keeper_look_t(void);
void keeper_watch(os_prepare_t *open, keeper_look_t *look, bool children);
/* Where pressure.contained says that there is something to look at, a new keeper also calls `open` before it is confined, `apart` if it has
 * descriptors of its own already, and while that was true `look`, which returns after how many ms to call it again; 0: no more.  Once, at
 * start.  Not beside a filter that was there before the process, unless the black box was asked for or HAKMEM_KEEPER is 2. */
typedef bool keeper_open_t(bool apart);
typedef uint64_t keeper_next_t(void);
void keeper_mind(keeper_open_t *open, keeper_next_t *look);
/* 0, in a fork's child one more than in its parent. */
uint32_t keeper_generation(void);
/* Whether it sees to what is due by time. */
bool keeper_is_there(void);
/* None runs, and none can be started, from a hold that returns true until its release: the process changes its user, groups,
 * capabilities, namespaces or filters.  False in a fork's child that was not repaired yet, which has none; and in a signal
 * handler that has interrupted a slow path, where nobody may be waited for: there the keeper finds out by itself. */
HAK_CHECKED bool keeper_hold(void);
void keeper_release(void);
/* In a fork's child, which has no such thread; true if it was at work. */
bool keeper_after_fork(void);

#endif
