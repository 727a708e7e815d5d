/* syscall.h - system calls that leave errno alone.
 *
 * The allocator must preserve errno, and its maintenance thread has no errno,
 * since libc does not know that thread.  A result in [-4095, -1] is a negated
 * error number. */
#ifndef OS_SYSCALL_H
#define OS_SYSCALL_H

#include <sys/syscall.h>

#include "base/bits.h"

#if defined(__x86_64__)
HAK_INLINE long syscall_6(long number, long a, long b, long c, long d, long e, long f) {
  long result;
  register long r10 __asm__("r10") = d;
  register long r8 __asm__("r8") = e;
  register long r9 __asm__("r9") = f;
  __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "memory");
  return result;
}
#elif defined(__aarch64__)
HAK_INLINE long syscall_6(long number, long a, long b, long c, long d, long e, long f) {
  register long x8 __asm__("x8") = number;
  register long x0 __asm__("x0") = a;
  register long x1 __asm__("x1") = b;
  register long x2 __asm__("x2") = c;
  register long x3 __asm__("x3") = d;
  register long x4 __asm__("x4") = e;
  register long x5 __asm__("x5") = f;
  __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory", "cc");
  return x0;
}
#else
#error "no system calls for this processor"
#endif

enum { FUTEX_WAIT = 0, FUTEX_WAKE = 1, FUTEX_PRIVATE = 128 }; /* <linux/futex.h>, which not every libc has */

HAK_INLINE long syscall_3(long number, long a, long b, long c) { return syscall_6(number, a, b, c, 0, 0, 0); }
HAK_INLINE bool syscall_failed(long result) { return (unsigned long)result > -4096ul; }

#endif
