/* closed.h - code that dlclose has unmapped.
 *
 * Another library may later be mapped at the same addresses.  So the sites of closed code move to addresses that no code can have, and its
 * file is listed under these: as long as blocks of a site live, the site still identifies its code.  If the same code is loaded again, its
 * sites move back. */
#ifndef KIT_CLOSED_H
#define KIT_CLOSED_H

#include "base/atomics.h"
#include "base/bits.h"
#include "base/check.h"
#include "os/lock.h"
#include "os/module.h"

#define CLOSED_START ((uintptr_t)1 << 62) /* each closed module has 2^40 addresses, from here on */
#define CLOSED_SHIFT 40
#define CLOSED_MOST 128 /* the code of all further modules is reported as unknown */
#define CLOSED_ID 32
#define CLOSED_PATH 256 /* longer paths are cut */

/* A module's code, and where it is or was.  Two of the same file and offset are the same module. */
typedef struct code {
  uintptr_t start, end;
  uint64_t offset; /* in its file */
  uint32_t id_bytes;
  uint8_t id[CLOSED_ID];
  char path[CLOSED_PATH];
} code_t;

/* Sets the addresses and the offset of a part of code loaded with this bias. */
void code_place(code_t *code, uintptr_t bias, const ElfW(Phdr) *part);

/* The closed modules, at the addresses that their sites have now. */
extern void *_Atomic closed_codes; /* code_t[closed_count] */
extern _Atomic uint32_t closed_count;

/* Held while the loader's modules, the list of closed modules, or the addresses of sites change; free at the start of a fork's child. */
extern lock_t loader_lock;

/* `code` was closed: returns where its sites are from now on.  The caller holds the lock. */
uintptr_t closed_enter(const code_t *code);
/* Finds the code that contains the address; false unless its module has a build id. */
HAK_CHECKED bool code_with(uintptr_t address, code_t *code);
/* `code` is loaded again: returns where its sites were in the meantime; 0: it was not closed.  The caller holds the lock. */
uintptr_t closed_leave(const code_t *code);
/* Returns entry i; NULL past the last one. */
const code_t *closed_at(uint32_t i);

#endif
