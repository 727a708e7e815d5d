/* dontfork.h - pages that a fork's child lacks.
 *
 * A program may advise the kernel to leave pages of its blocks out of its children (MADV_DONTFORK), as libraries do for memory that devices
 * write to.  In a child they are not mapped.  A block that has such holes stays as it is while it is live, but a span that is handed
 * out, guarded or cleared must be mapped.  (Blocks of slabs are handed out with their holes: docs/troubleshooting.md.)
 *
 * The repair of a child asks the kernel once whether all of the heap is mapped.  If not, the process and its children count as lacking
 * pages: there each span that is handed out is checked, and what is missing is mapped.  Other processes make no call for this. */
#ifndef SPACE_DONTFORK_H
#define SPACE_DONTFORK_H

#include "os/os.h"
#include "space/region.h"

/* Whether pages of blocks may be missing. */
HAK_INLINE bool dontfork_seen(void) { return HAK_UNLIKELY(load_relaxed(&os_fork.pages_missing)); }

/* In a fork's child, before anything is handed out there. */
void dontfork_after_fork(void);
/* The same where glibc's malloc would make no system call.  In a process under a filter of its own, it only takes for granted that pages
 * are missing, until dontfork_after_fork. */
void dontfork_expect(void);

/* Any bytes of the region: the pages on which they lie.  dontfork_is_mapped: whether all are mapped.  dontfork_map maps those that are not,
 * which are then zero; the others keep their content.  False: the kernel refuses. */
HAK_CHECKED bool dontfork_is_mapped(const void *start, size_t bytes);
HAK_CHECKED bool dontfork_map(void *start, size_t bytes);

#endif
