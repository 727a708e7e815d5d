/* freed_late.c - frees in a destructor of its own what it holds; the archive's tells what is live after it. */
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
