/* leak.h - a process that grows, for those that look at it. */
#ifndef TESTS_API_LEAK_H
#define TESTS_API_LEAK_H

#include <stdlib.h>
#include <string.h>

enum { BLOCK = 1000 };

static void *kept; /* each block leads to the one before */

static void leak(size_t bytes) {
  for (size_t done = 0; done < bytes; done += BLOCK) {
    void **block = malloc(BLOCK);
    if (block == NULL) abort();
    memset(block, 1, BLOCK);
    *block = kept;
    kept = block;
  }
}

#endif
