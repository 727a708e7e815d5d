/* secret.h - random numbers of the secure library that nobody may read or change; written at the start, then sealed. */
#ifndef KIT_SECRET_H
#define KIT_SECRET_H

#include "base/bits.h"
#include "base/config.h"

struct secret {
  uint64_t first, second; /* of which canaries are made; 0 before the start */
  uint64_t order; /* of which heaps make their random numbers: the kernel is asked at start alone, later it may refuse */
} HAK_SEALED; /* the type, so that nothing else lies on its pages */
extern struct secret secret;

/* Before the first block. */
void secret_start(void);

#endif
