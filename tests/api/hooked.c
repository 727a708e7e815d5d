/* hooked.c - libraries that register memory with a network card patch libc's madvise, as this program does: then no memory is given back. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "check.h"

enum { LARGE = 8, LARGE_BYTES = 8 << 20, SMALL = 20000, SMALL_BYTES = 1000, SLACK = 8 << 20, PATCH_BYTES = 20 };
static void *large[LARGE], *small[SMALL];
static unsigned char plain[PATCH_BYTES];

int main(int argc, char **argv) { return check_main(argc, argv); }

static int hook(void *start, size_t bytes, int advice) { return (int)syscall(SYS_madvise, start, bytes, advice); }

/* libc's own, as such libraries look it up: where the program is not position-independent, its name leads to a jump in the program. */
static char *patched(void) { return dlsym(RTLD_NEXT, "madvise"); }
int (*const taken)(void *, size_t, int) = madvise; /* for that */

static void code_write(const void *code) {
  char *at = patched(), *page = (char *)((uintptr_t)at & ~((uintptr_t)sysconf(_SC_PAGESIZE) - 1));
  size_t bytes = (size_t)(at - page) + PATCH_BYTES;
  if (mprotect(page, bytes, PROT_READ | PROT_WRITE | PROT_EXEC) != 0) check_skip("code cannot be written here");
  memcpy(at, code, PATCH_BYTES);
  __builtin___clear_cache(at, at + PATCH_BYTES);
  if (mprotect(page, bytes, PROT_READ | PROT_EXEC) != 0) check_skip("code cannot be written here");
}

static void patch(void) {
  uintptr_t to = (uintptr_t)hook;
  unsigned char code[PATCH_BYTES];
  memcpy(plain, patched(), PATCH_BYTES);
  memcpy(code, plain, PATCH_BYTES);
#if defined(__x86_64__)
  memcpy(code, "\x49\xbb", 2);
  memcpy(code + 2, &to, 8);
  memcpy(code + 10, "\x41\xff\xe3", 3);
#elif defined(__aarch64__)
  const uint32_t steps[] = {0xd280000f | (uint32_t)(to & 0xffff) << 5, 0xf2a0000f | (uint32_t)(to >> 16 & 0xffff) << 5,
                            0xf2c0000f | (uint32_t)(to >> 32 & 0xffff) << 5, 0xf2e0000f | (uint32_t)(to >> 48) << 5, 0xd61f01e0};
  memcpy(code, steps, sizeof steps);
#else
  check_skip("no code for this processor");
#endif
  code_write(code);
}

static size_t resident(void) {
  unsigned long all = 0, pages = 0;
  FILE *file = fopen("/proc/self/statm", "r");
  if (file == NULL || fscanf(file, "%lu %lu", &all, &pages) != 2) check_skip("no /proc");
  (void)fclose(file);
  return pages * (size_t)sysconf(_SC_PAGESIZE);
}

/* By name: musl itself has no such function. */
static void trim(void) {
  int (*call)(size_t) = (int (*)(size_t))dlsym(RTLD_DEFAULT, "malloc_trim");
  if (call == NULL) check_skip("no malloc_trim");
  (void)call(0);
}

static void fill_and_free(void) {
  for (int i = 0; i < LARGE; i++) large[i] = memset(malloc(LARGE_BYTES), 1, LARGE_BYTES);
  for (int i = 0; i < SMALL; i++) small[i] = memset(malloc(SMALL_BYTES), 1, SMALL_BYTES);
  for (int i = 0; i < LARGE; i++) free(large[i]);
  for (int i = 0; i < SMALL; i++) free(small[i]);
}

TEST(nothing_is_given_back_while_another_library_has_hooked_madvise) {
  size_t before = resident();
  patch();
  fill_and_free();
  trim();
  size_t held = resident() - before;
  code_write(plain);
  CHECK(held + SLACK > (size_t)LARGE * LARGE_BYTES);
  trim();
  CHECK(resident() < before + SLACK);
}
