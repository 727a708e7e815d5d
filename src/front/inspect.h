/* inspect.h - classifies a pointer: exact for any address, without a system call. */
#ifndef FRONT_INSPECT_H
#define FRONT_INSPECT_H

#include "base/format.h"
#include "slab/unit.h"

typedef enum block_state {
  BLOCK_LIVE,
  BLOCK_FREED,      /* the start of a block that is not live, or memory in no span */
  BLOCK_INTERIOR,   /* inside a block, or in a slab's tail */
  BLOCK_MISALIGNED, /* in the region, but not aligned to a granule */
  BLOCK_FOREIGN     /* not in the region, or in a part of it that was never used */
} block_state_t;

typedef struct block_info {
  block_state_t state;
  unit_t *span; /* the record of the span's first unit; NULL if there is no span */
  size_t size;  /* usable bytes */
} block_info_t;

/* Does not touch the memory at p, so that any thread may ask about any address. `size` is all that the block has room for. */
block_info_t block_locate(const void *p);
/* The same for the thread that holds the block: in the secure library `size` is the requested size, which is read from the block. */
block_info_t block_inspect(const void *p);
/* The class to pass to fault_abort. */
size_t block_fault_class(const block_info_t *info);
/* Ends the process because `function` was called with the wrong pointer p, which `info` describes. */
_Noreturn void block_fault(const block_info_t *info, const void *p, const char *function);
/* The same for a free of a live block with a wrong size. */
_Noreturn void block_fault_size(const block_info_t *info, const void *p, const char *function, const char *detail);
/* Writes in words what lies at an address. Async-signal-safe. */
void block_describe(format_t *f, const void *p);

#endif
