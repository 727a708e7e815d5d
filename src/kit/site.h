/* site.h - sites: the stacks that blocks are allocated from, each with a number.
 *
 * A site is a node of a tree: the address that its innermost call returns to, and the site that this call was made from.  Nodes are never
 * removed, and only the address of a node changes, if its module is moved (site_move): so anyone can read nodes at any time, also from
 * outside the process.
 *
 * For a new site the whole stack is walked.  Otherwise the innermost few calls and the depth of the stack give the number that they had
 * last.  A walk of the whole stack checks that it is right: at first soon, then after twice as many times, at last one time in 32. */
#ifndef KIT_SITE_H
#define KIT_SITE_H

#include "base/bits.h"

typedef struct site {
  uintptr_t address; /* return address of the call */
  uint32_t parent;   /* the site that made the call; SITE_NONE if the stack ends or is unknown there */
  uint32_t next;     /* next site with the same hash */
} site_t;

/* The tree, also for external readers: chunks of sites by number, and the count of numbers, including SITE_NONE. */
#define SITE_CHUNK_SHIFT 8 /* a page of 4 KiB: if address space is limited, a chunk of 64 KiB may cost the last large block */
#define SITE_CHUNK ((uint32_t)1 << SITE_CHUNK_SHIFT)
extern void *_Atomic site_chunks[];
extern _Atomic uint32_t site_count;
extern _Atomic uint64_t site_keys_checked, site_keys_wrong;

#define SITE_NONE 0u
#define SITE_FRAMES 64   /* frames of a site; only the innermost ones count */
#define SITE_MOST 262144 /* the tree takes at most 4 MiB; further stacks are identified only by their outermost calls */

/* Call once the loader can be asked; before that all sites are SITE_NONE. */
void site_start(void);
/* Returns the site of the calling thread, without calls inside this library where these can be identified.  Waits for no lock, preserves
 * errno, may map memory.  Async-signal-safe. */
uint32_t site_here(void);
/* NULL for SITE_NONE and for numbers of no site. */
const site_t *site_at(uint32_t number);

/* Returns whether any site is at an address in [start, end). */
bool site_knows(uintptr_t start, uintptr_t end);
/* Moves the sites in [start, end) to `to` and beyond; `to` must have the same offset in a page as `start`.  Other sites may be entered
 * concurrently. */
void site_move(uintptr_t start, uintptr_t end, uintptr_t to);
/* Drops all that was cached about addresses, because modules have gone. */
void site_forget(void);

/* The tag of the allocations of the thread: hak_tag_set. */
extern __thread uint32_t site_tag __attribute__((tls_model("initial-exec")));

typedef struct site_figures {
  uint64_t sites;   /* their number */
  uint64_t checked; /* how often a cached number was given out or checked, up to the last check of each */
  uint64_t wrong;   /* of these, how often it was given out since the last check at most, where a check found that it was wrong */
} site_figures_t;
site_figures_t site_figures(void);

#endif
