/* stack.h - how much of the calling thread's stack can be read without asking the kernel each time.
 *
 * The first thread's stack is one mapping, from where the thread is up to what the kernel put there at the program's start.  Any
 * other thread's lies below its thread pointer, with glibc and with musl; that all in between can be read is asked once, page by
 * page, and kept in a variable of the thread.  A stack that is neither, of a fiber or for signals, may go away while the thread
 * lives, so nothing is kept of it: from it to the thread pointer there is a page that cannot be read, the guard of the thread's own
 * stack, unless the program has made that without one.
 *
 * Takes no lock, keeps errno; async-signal-safe. */
#ifndef OS_STACK_H
#define OS_STACK_H

#include "base/bits.h"

/* Of a function that reads the stack, of which a sanitizer may take a word for somebody else's.  Nothing elsewhere, since compilers do not
 * inline such a function. */
#if defined(__SANITIZE_ADDRESS__) || defined(RACY_ATOMIC) || defined(__clang__)
#define UNWATCHED __attribute__((no_sanitize("address"), no_sanitize("thread")))
#else
#define UNWATCHED
#endif

/* Once, when libc can be asked; before that nothing is known of the first thread. */
void stack_prepare(void);
/* From the page that sp is on, which is in use, up to where can be read.  A thread without a guard below its stack may have had a fiber's
 * there that is gone: then this holds for what is in use alone. */
uintptr_t stack_readable_end(uintptr_t sp);
/* Whether it is on the first thread's stack, where it holds for all. */
bool stack_is_first(uintptr_t sp);

#endif
