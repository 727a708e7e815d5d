/* stack.h - how much of the calling thread's stack can be read without asking the kernel each time.
 *
 * The first thread's stack is one mapping, readable from the stack pointer up to what the kernel put there at the program's start.  The
 * stack of any other thread lies below its thread pointer, both with glibc and with musl; the kernel is asked once, page by page, whether
 * everything in between can be read, and the result is kept in a thread-local variable.  Any other stack, of a fiber or for signals, may
 * go away while the thread lives, so nothing is kept about it: between it and the thread pointer lies an unreadable page, the guard of the
 * thread's own stack, unless the program made that stack without a guard.
 *
 * Takes no lock, preserves errno; async-signal-safe. */
#ifndef OS_STACK_H
#define OS_STACK_H

#include "base/bits.h"

/* For a function that reads stack words which a sanitizer may attribute to another object or thread.  Empty with gcc without a sanitizer,
 * since compilers do not inline a function with these attributes. */
#if defined(__SANITIZE_ADDRESS__) || defined(RACY_ATOMIC) || defined(__clang__)
#define UNWATCHED __attribute__((no_sanitize("address"), no_sanitize("thread")))
#else
#define UNWATCHED
#endif

/* Call once, when libc is ready; before that nothing is known about the first thread. */
void stack_prepare(void);
/* Returns the end of the readable memory that begins with the page of sp, which is in use.  If a thread has no guard below its stack and a
 * fiber's stack there is gone, the answer holds only for the memory in use. */
uintptr_t stack_readable_end(uintptr_t sp);
/* Returns whether sp is on the first thread's stack, where the answer holds for all of the range. */
bool stack_is_first(uintptr_t sp);

#endif
