/* patterns.c PATTERN STEPS - the plainest loops around malloc, to count what one call costs.
 *
 *   pair    allocates and frees a block of 64 bytes
 *   zeroed  allocates and frees a zeroed block of 4 KiB
 *   growth  doubles a buffer from 16 bytes to 1 MiB, and frees it
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Writes to the block, as a program would; ends the process if there is no block. */
static void *use(void *block) {
  if (block == NULL) exit(1);
  *(volatile char *)block = 1;
  return block;
}

static void pair(void) { free(use(malloc(64))); }

static void zeroed(void) { free(use(calloc(1, 4096))); }

static void growth(void) {
  void *buffer = NULL;
  for (size_t size = 16; size <= 1 << 20; size *= 2) buffer = use(realloc(buffer, size));
  free(buffer);
}

int main(int argc, char **argv) {
  static const struct {
    const char *name;
    void (*step)(void);
  } patterns[] = {{"pair", pair}, {"zeroed", zeroed}, {"growth", growth}};
  for (size_t i = 0; argc == 3 && i < sizeof patterns / sizeof *patterns; i++)
    if (strcmp(argv[1], patterns[i].name) == 0) {
      for (unsigned long left = strtoul(argv[2], NULL, 10); left > 0; left--) patterns[i].step();
      return 0;
    }
  fprintf(stderr, "usage: %s pair|zeroed|growth STEPS\n", argv[0]);
  return 2;
}
