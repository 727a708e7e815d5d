/* closed.h - code that dlclose has taken away.
 *
 * Another library may come to lie where it was.  So what is known of its addresses gets others, which no code can have, and its file is
 * listed there: a site goes on to tell whose it is, as long as its blocks live. */
#ifndef KIT_CLOSED_H
#define KIT_CLOSED_H

#include "base/atomics.h"
#include "base/bits.h"
#include "base/check.h"

#define CLOSED_START ((uintptr_t)1 << 62) /* each has 2^40 addresses from there on */
#define CLOSED_SHIFT 40
#define CLOSED_MOST 128 /* of all further ones the code is said to be unknown */
#define CLOSED_ID 32
#define CLOSED_PATH 256 /* what is longer is cut */

/* A module's code: where it is, or was; with the same file at the same place in it the same module. */
typedef struct code {
  uintptr_t start, end;
  uint64_t offset; /* in its file */
  uint32_t id_bytes;
  uint8_t id[CLOSED_ID];
  char path[CLOSED_PATH];
} code_t;

/* Those that were taken away, at the addresses that their sites have now. */
extern void *_Atomic closed_codes; /* code_t[closed_count] */
extern _Atomic uint32_t closed_count;

/* `code` was taken away.  Not by two threads at once. */
void closed_enter(const code_t *code);
/* NULL: there are not so many. */
const code_t *closed_at(uint32_t i);

#endif
