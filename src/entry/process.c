/* process.c - the events of a process's life: start, fork, exit. */
#include "entry/entry.h"

#include <dlfcn.h>
#include <pthread.h>

#include "os/module.h"
#include "os/os.h"
#include "front/boot.h"
#include "front/inspect.h"
#include "front/keeper.h"
#include "front/secure.h"
#include "front/thread.h"

/* No lock is taken before a fork: a handler that did would wait for threads
 * that hold stdio's locks inside an allocation.  The child repairs instead. */

/* A resolver of the executable's IFUNC symbols may allocate, before any constructor and before the main thread's variables have
 * values.  Resolvers of ours run before it, with the relocations of this library. */
#if HAK_OVERRIDE && !HAK_ARCHIVE && defined(__GLIBC__)
static void started_early(void) {}
static __attribute__((used)) void (*start_early(void))(void) {
  thread_start_early();
  return started_early;
}
void hak_early(void) __attribute__((ifunc("start_early"), visibility("hidden"))); /* clang exports a static one */
#else
static void hak_early(void) {}
#endif

/* Of two copies in a process one has the program's blocks; the other should not take the one file that there is to tell of them.  A block
 * tells: the address of malloc may be the program's, which has a jump there, or has the archive. */
#if HAK_SHARED
static HAK_COLD bool is_bound_to(void) {
  void *(*its_malloc)(size_t) = (void *(*)(size_t))(uintptr_t)dlsym(RTLD_DEFAULT, HAK_OVERRIDE ? "malloc" : "hak_malloc");
  void (*its_free)(void *) = (void (*)(void *))(uintptr_t)dlsym(RTLD_DEFAULT, HAK_OVERRIDE ? "free" : "hak_free");
  void *block = its_malloc != NULL && its_free != NULL ? its_malloc(1) : NULL;
  bool ours = block == NULL || block_locate(block).state == BLOCK_LIVE;
  if (block != NULL) its_free(block);
  return ours;
}
#else
static bool is_bound_to(void) { return true; }
#endif

static __attribute__((constructor)) void start(void) {
  hak_early(); /* the symbol is used */
  boot_finish();
  if (HAK_SECURE || option_get(OPTION_guard) != 0 || option_get(OPTION_crash_report) != 0) crash_watch();
  if (option_get(OPTION_stats) != 0) report_at_start();
  bool tells = option_path(PATH_blackbox)[0] != '\0' || option_get(OPTION_window) != 0;
  if (tells && is_bound_to()) blackbox_start();
  (void)pthread_atfork(thread_before_fork, thread_after_fork_here, thread_after_fork);
}

/* The shared library stays.  A library with the archive in it does not: once dlclose has taken its code away nothing may run there. */
#if HAK_ARCHIVE
static HAK_COLD void leave_library(void) {
  module_t module;
  if (module_find((uintptr_t)leave_library, &module) && module_has_text(&module, os_program())) return;
  crash_unwatch();
  bool held = keeper_hold(); /* for good */
  (void)held;
}
#endif

/* In an archive after the program's own, which may free.  No priority is less. */
static __attribute__((destructor(101))) void end(void) {
  if (HAK_SECURE) secure_check();
  if (option_get(OPTION_stats) != 0) report_at_exit();
  if (option_path(PATH_profile)[0] != '\0') profile_at_exit();
#if defined(__GLIBC__) /* musl unloads nothing; and a lock that a thread held as this process was forked is held for good there */
  thread_unwatch_exits();
#endif
#if HAK_ARCHIVE
  leave_library();
#endif
}
