/* family.c - a library with a heap of its own under the names of mallocx's family, as jemalloc is. */
#include "family.h"

#include <stdlib.h>

static _Alignas(16) char arena[1 << 16];
static size_t used;
unsigned family_frees;

void *mallocx(size_t size, int flags) {
  (void)flags;
  size_t bytes = (size + 15) / 16 * 16;
  if (bytes > sizeof arena - used) return NULL;
  used += bytes;
  return arena + used - bytes;
}

size_t nallocx(size_t size, int flags) { return size + FAMILY_MORE + (size_t)flags; }

void sdallocx(void *block, size_t size, int flags) {
  (void)size, (void)flags;
  if ((size_t)((char *)block - arena) >= used) abort();
  family_frees++;
}
