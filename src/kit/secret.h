/* secret.h - secret random numbers of the secure library; written at the start, then sealed against writes. */
#ifndef KIT_SECRET_H
#define KIT_SECRET_H

#include "base/bits.h"
#include "base/config.h"

struct secret {
  uint64_t first, second; /* canaries are made of these; 0 before the start */
  uint64_t order; /* heaps derive their random numbers from this: the kernel is asked only at start, since later it may refuse */
} HAK_SEALED; /* on the type, so that nothing else shares its pages */
extern struct secret secret;

/* Call before the first block is allocated. */
void secret_start(void);

#endif
