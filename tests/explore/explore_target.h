/* explore_target.h - included before all else where the allocator is compiled for the explorer.
 *
 * The accesses themselves are reported by the compiler, see callbacks.c. The sources are as they are in the library. */
#ifndef EXPLORE_TARGET_H
#define EXPLORE_TARGET_H

#include <string.h>

#include "explore.h"

/* memcheck is not there. */
#define HAK_VALGRIND 0

/* In place of base/thread.h: actors are threads of their own to the allocator. */
#define BASE_THREAD_H
static inline uintptr_t thread_self(void) { return explore_self; }

/* Nor is a process of several actors one with a single thread. */
#define __libc_single_threaded explore_single_threaded

/* libc's accesses are not reported. */
void *explore_memset(void *at, int byte, size_t bytes);
void *explore_memcpy(void *to, const void *from, size_t bytes);
#define memset explore_memset
#define memcpy explore_memcpy

#endif
