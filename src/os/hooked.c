/* hooked.c - detects a library that has hooked the libc functions which give memory back.
 *
 * UCX, Open MPI and libfabric keep ranges of memory registered with a network card, and patch the code of libc's madvise, munmap and mremap
 * to learn which ranges have lost their pages.  hakmem makes system calls of its own, from its own thread as well, where such a library's
 * code cannot run.  So while libc's functions are patched, no page that a block may lie on is given back or moved. */
#include <stdint.h>
#include <string.h>

#include "os/os.h"

/* Whether the code begins with a jump to an address far away. */
static bool is_patched(uintptr_t function) {
#if defined(__x86_64__)
  const unsigned char *code = (const unsigned char *)function;
  if (memcmp(code, "\xf3\x0f\x1e\xfa", 4) == 0) code += 4; /* endbr64 */
  bool by_register = code[0] == 0x49 && code[1] == 0xbb; /* mov $, %r11 */
  return by_register || code[0] == 0xe9 || (code[0] == 0xff && code[1] == 0x25);
#elif defined(__aarch64__)
  enum { SVC = 0xd4000001, BR = 0xd61f0000, REGISTER = 0x3e0, STEPS = 6 };
  const uint32_t *code = (const uint32_t *)function;
  for (int i = 0; i < STEPS && code[i] != SVC; i++) {
    if ((code[i] & ~(uint32_t)REGISTER) == BR) return true;
  }
  return false;
#else
  return (void)function, false;
#endif
}

/* libc's own functions: the names lead to a jump in a program that takes their address and is not position-independent. */
static uintptr_t hookable[OS_HOOKABLE];

void os_hooks_watch(const uintptr_t *functions) { memcpy(hookable, functions, sizeof hookable); }

bool os_is_hooked(void) {
  for (size_t i = 0; i < OS_HOOKABLE; i++) {
    if (hookable[i] != 0 && is_patched(hookable[i])) return true;
  }
  return false;
}
