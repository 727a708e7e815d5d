/* identity.c - libc's calls by which a process changes its user and groups: as in change.c, but only in the shared libraries.
 *
 * libc applies such a change to all of its threads, so its own function must run.  A static program has no dlsym to find that, so
 * there libc's name stays, and our thread finds out by itself (os/thread.c). */
#include "entry/entry.h"

#if HAK_OVERRIDE

#include <errno.h>
#include <pthread.h>
#include <unistd.h>

#include "entry/change.h"

static int not_there(void) {
  errno = ENOSYS;
  return -1;
}

#define IDENTITY(name, parameters, arguments) CHANGE(name, int, parameters, arguments, not_there())

IDENTITY(setuid, (uid_t user), (user))
IDENTITY(setgid, (gid_t group), (group))
IDENTITY(seteuid, (uid_t user), (user))
IDENTITY(setegid, (gid_t group), (group))
IDENTITY(setreuid, (uid_t real, uid_t effective), (real, effective))
IDENTITY(setregid, (gid_t real, gid_t effective), (real, effective))
IDENTITY(setresuid, (uid_t real, uid_t effective, uid_t saved), (real, effective, saved))
IDENTITY(setresgid, (gid_t real, gid_t effective, gid_t saved), (real, effective, saved))
IDENTITY(setgroups, (size_t count, const gid_t *groups), (count, groups))

/* initgroups reads files, where a thread may be cancelled: the keeper would then be held for good. */
HAK_EXPORT int change_initgroups(const char *user, gid_t group) LIBC_NAME("initgroups");
HAK_COLD int change_initgroups(const char *user, gid_t group) {
  static void *_Atomic known;
  int (*next)(const char *, gid_t) = (int (*)(const char *, gid_t))change_next(&known, "initgroups");
  if (next == NULL) return not_there();
  int before;
  (void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
  bool held = change_begin();
  int result = next(user, group);
  change_end(held);
  (void)pthread_setcancelstate(before, &before);
  return result;
}

#endif
