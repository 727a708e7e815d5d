/* process.c - the events of a process's life: start, fork, exit. */
#include "entry/entry.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sys/mman.h>

#include "os/module.h"
#include "os/os.h"
#include "front/boot.h"
#include "front/inspect.h"
#include "front/keeper.h"
#include "front/secure.h"
#include "front/thread.h"

/* The fork handler takes no lock: it could wait for a thread that holds one of
 * stdio's locks inside an allocation.  The child repairs the state instead. */

/* A resolver of the executable's IFUNC symbols may allocate, before any constructor and before the main thread's variables have
 * values.  Our own resolver runs earlier, while this library is relocated. */
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

/* If a process contains two copies of this library, only the copy that has the program's blocks should take the file that reports them.
 * An allocation shows which it is.  The address of malloc does not: it may be a jump in the program, or in the archive. */
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

#pragma weak dlsym /* not in static programs */

/* Another library's function of the name may come before libc's; then that one is watched. */
static uintptr_t place_of(const char *name, uintptr_t here) {
  uintptr_t next = &dlsym != NULL ? (uintptr_t)dlsym(RTLD_NEXT, name) : 0;
  return next != 0 || HAK_SHARED ? next : here;
}

static void hooks_watch(void) {
  const uintptr_t functions[OS_HOOKABLE] = {place_of("madvise", (uintptr_t)madvise), place_of("munmap", (uintptr_t)munmap),
                                            place_of("mremap", (uintptr_t)mremap)};
  os_hooks_watch(functions);
}

static __attribute__((constructor)) void start(void) {
  hak_early(); /* keeps the symbol in use */
  hooks_watch();
  boot_finish();
  if (HAK_SECURE || option_get(OPTION_guard) != 0 || option_get(OPTION_crash_report) != 0) crash_watch();
  if (option_get(OPTION_stats) != 0) report_at_start();
  bool tells = option_path(PATH_blackbox)[0] != '\0' || option_get(OPTION_window) != 0;
  if (tells && is_bound_to()) blackbox_start();
  (void)pthread_atfork(thread_before_fork, thread_after_fork_here, thread_after_fork);
}

/* The shared library is never unloaded.  A library that contains the archive may be, and after its dlclose none of our code may run. */
#if HAK_ARCHIVE
static HAK_COLD void leave_library(void) {
  module_t module;
  if (module_find((uintptr_t)leave_library, &module) && module_has_text(&module, os_program())) return;
  crash_unwatch();
  bool held = keeper_hold(); /* for good */
  (void)held;
}
#endif

/* In an archive this runs after the program's own destructors, which may free: no priority is lower. */
static __attribute__((destructor(101))) void end(void) {
  os_end_if_pending();
  if (HAK_SECURE) secure_check();
  if (option_get(OPTION_stats) != 0 && os_may_write_files()) report_at_exit();
  if (option_path(PATH_profile)[0] != '\0' && os_may_write_files()) profile_at_exit();
#if defined(__GLIBC__) /* musl never unloads, and there a lock that a thread held at the fork stays held for good */
  thread_unwatch_exits();
#endif
#if HAK_ARCHIVE
  leave_library();
#endif
}
