/* thread.h - the identity of the calling thread, without a function call. */
#ifndef BASE_THREAD_H
#define BASE_THREAD_H

#include "base/bits.h"

/* The thread pointer: never 0, unique among live threads, reused after one has ended. */
HAK_INLINE uintptr_t thread_self(void) {
#if defined(__x86_64__)
  uintptr_t tp;
  __asm__("movq %%fs:0, %0" : "=r"(tp)); /* the ABI keeps the pointer's own value there */
  return tp;
#else
  return (uintptr_t)__builtin_thread_pointer();
#endif
}

#endif
