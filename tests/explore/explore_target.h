/* explore_target.h - included before everything else when the allocator is compiled for the explorer.
 *
 * The compiler's instrumentation reports the accesses (callbacks.c). The sources are unchanged. */
#ifndef EXPLORE_TARGET_H
#define EXPLORE_TARGET_H

#include <string.h>

#include "explore.h"

/* The explorer does not run under memcheck. */
#define HAK_VALGRIND 0

/* Replaces base/thread.h: to the allocator, each actor is a thread. */
#define BASE_THREAD_H
static inline uintptr_t thread_self(void) { return explore_self; }

/* To libc the process has one thread; to the allocator it has several. */
#define __libc_single_threaded explore_single_threaded

/* Accesses inside libc are not instrumented. */
void *explore_memset(void *at, int byte, size_t bytes);
void *explore_memcpy(void *to, const void *from, size_t bytes);
#define memset explore_memset
#define memcpy explore_memcpy

#endif
