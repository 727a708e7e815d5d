/* freed_late.c - a destructor frees the block that the program holds; the archive's destructor reports live blocks after it. */
#include <stdlib.h>
#include <string.h>

static void *held;

static __attribute__((destructor)) void let_go(void) { free(held); }

int main(void) {
  enum { BYTES = 8 << 20 };
  held = malloc(BYTES);
  if (held != NULL) memset(held, 1, BYTES);
  return held == NULL;
}
