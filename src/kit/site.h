/* site.h - sites: the stacks that blocks are allocated from, each with a number.
 *
 * A site is a node of a tree: the address that its innermost call returns to, and the site that this call was made from.  Nodes are never
 * removed, and of one its address alone changes, with the module that it is in (site_move): so anyone can read them at any time, also from
 * outside of the process.
 *
 * The whole stack is walked for a site that is new.  Else the innermost few calls and the depth of the stack lead to the number that
 * they had last; a walk of the whole, one time in 32, tells whether that was right. */
#ifndef KIT_SITE_H
#define KIT_SITE_H

#include "base/bits.h"

typedef struct site {
  uintptr_t address; /* that the call returns to */
  uint32_t parent;   /* the site of the call; SITE_NONE where the stack ends, or more is not known */
  uint32_t next;     /* of those with the same hash */
} site_t;

/* The tree, for who reads it from outside: chunks of sites by number, and how many numbers there are, with SITE_NONE's. */
#define SITE_CHUNK_SHIFT 8 /* a page of 4 KiB: where addresses are limited, 64 KiB may be the last large block's */
#define SITE_CHUNK ((uint32_t)1 << SITE_CHUNK_SHIFT)
extern void *_Atomic site_chunks[];
extern _Atomic uint32_t site_count;
extern _Atomic uint64_t site_keys_checked, site_keys_wrong;

#define SITE_NONE 0u
#define SITE_FRAMES 64   /* the innermost ones count */
#define SITE_MOST 262144 /* further stacks are known by their outermost calls alone: 4 MiB */

/* When the loader can be asked; before that all sites are SITE_NONE. */
void site_start(void);
/* Where the calling thread is, outside of this library as far as that can be told. Waits for no lock, keeps errno, may map memory.
 * Async-signal-safe. */
uint32_t site_here(void);
/* NULL for SITE_NONE and for what is none. */
const site_t *site_at(uint32_t number);

/* Whether any site is at one of the addresses. */
bool site_knows(uintptr_t start, uintptr_t end);
/* The sites there are at `to` and behind it from now on, which is as far from a page's start.  Beside others that are entered. */
void site_move(uintptr_t start, uintptr_t end, uintptr_t to);
/* What was learnt of addresses is learnt anew, since modules have gone. */
void site_forget(void);

/* What the thread wants its allocations to be known by; hak_tag_set. */
extern __thread uint32_t site_tag __attribute__((tls_model("initial-exec")));

typedef struct site_figures {
  uint64_t sites, checked, wrong; /* how many there are; how often a number was looked at again, and was another site's */
} site_figures_t;
site_figures_t site_figures(void);

#endif
