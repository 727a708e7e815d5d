/* plugin.c - the code in the library of unload.c, beside the archive of hakmem. */
#include <string.h>

#include "hakmem/hakmem.h"

void plugin_use(void);

/* Afterwards much is free, and waits for the keeper. */
void plugin_use(void) {
  enum { BLOCKS = 64 };
  void *blocks[BLOCKS];
  for (int i = 0; i < BLOCKS; i++) {
    blocks[i] = hak_malloc((size_t)1 << 20);
    if (blocks[i] != NULL) memset(blocks[i], 1, (size_t)1 << 20);
  }
  for (int i = 0; i < BLOCKS; i++) hak_free(blocks[i]);
}
