/* closed.h - code that dlclose has taken away.
 *
 * Another library may come to lie where it was.  So what is known of its addresses gets others, which no code can have, and its file is
 * listed there: a site goes on to tell whose it is, as long as its blocks live.  Where the same code comes back, so do its sites. */
#ifndef KIT_CLOSED_H
#define KIT_CLOSED_H

#include "base/atomics.h"
#include "base/bits.h"
#include "base/check.h"
#include "os/lock.h"
#include "os/module.h"

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

/* Where the part of code that has been loaded with this bias is. */
void code_place(code_t *code, uintptr_t bias, const ElfW(Phdr) *part);

/* Those that were taken away, at the addresses that their sites have now. */
extern void *_Atomic closed_codes; /* code_t[closed_count] */
extern _Atomic uint32_t closed_count;

/* Of who changes what the loader has, the list, or the addresses of sites; a fork's child starts with it free. */
extern lock_t loader_lock;

/* `code` was taken away: where its sites are from now on.  With the lock. */
uintptr_t closed_enter(const code_t *code);
/* The code that has the address, if it is of a module with a build id. */
HAK_CHECKED bool code_with(uintptr_t address, code_t *code);
/* `code` is there again: where its sites were meanwhile; 0: it was not taken away.  With the lock. */
uintptr_t closed_leave(const code_t *code);
/* NULL: there are not so many. */
const code_t *closed_at(uint32_t i);

#endif
