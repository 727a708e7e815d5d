/* emulated.c - a small program that allocates and frees blocks of several sizes. */
#include <stdlib.h>
#include <string.h>

int main(void) {
  for (size_t size = 16; size <= 65536; size *= 2) {
    char *volatile block = malloc(size);
    if (block == NULL) return 1;
    memset(block, 1, size);
    free(block);
  }
  return 0;
}
