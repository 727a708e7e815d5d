/* inspect.h - what a pointer is: exact for any address, without a system call. */
#ifndef FRONT_INSPECT_H
#define FRONT_INSPECT_H

#include "base/format.h"
#include "slab/unit.h"

typedef enum block_state {
  BLOCK_LIVE,
  BLOCK_FREED,      /* the start of a block that is not live, or memory in no span */
  BLOCK_INTERIOR,   /* inside a block, or in a slab's tail */
  BLOCK_MISALIGNED, /* in the region, not on a granule */
  BLOCK_FOREIGN     /* not in the region, or in no part of it that was ever used */
} block_state_t;

typedef struct block_info {
  block_state_t state;
  unit_t *span; /* its first unit's record, NULL if there is none */
  size_t size;  /* usable bytes */
} block_info_t;

/* Without touching what it points to, so that any thread may ask about any address; `size` is all that the block has room for. */
block_info_t block_locate(const void *p);
/* For the thread that has the block: the secure library reads there what was asked for. */
block_info_t block_inspect(const void *p);
/* For fault_abort. */
size_t block_fault_class(const block_info_t *info);
/* Ends the process for a call of `function` with p, which is what `info` says. */
_Noreturn void block_fault(const block_info_t *info, const void *p, const char *function);
/* The same for a free of a live block with a size that it has not. */
_Noreturn void block_fault_size(const block_info_t *info, const void *p, const char *function, const char *detail);
/* What lies at an address, in words. Async-signal-safe. */
void block_describe(format_t *f, const void *p);

#endif
