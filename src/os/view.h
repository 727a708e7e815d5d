/* view.h - the unwind tables of a module, in a mapping of its file that is ours.
 *
 * What is read of tables stays in the resident set, and the kernel maps 64 KiB around each page that it brings in: some MiB of a program
 * with many stacks.  Pages of the module itself may not be dropped, since somebody may have written to them; those of our mapping may.
 *
 * None for a module whose file is not the one at its path any more, whose tables are not where headers say, or of which the loader cannot
 * be asked; where addresses are limited; before Linux 5.14; and once the process has put itself under a filter.  Then a module's tables are
 * read in place.  A filter that is not known of may meet openat, mmap, madvise, munmap and close.
 * Takes no lock, keeps errno, and allocates nothing but the mapping.  Async-signal-safe. */
#ifndef OS_VIEW_H
#define OS_VIEW_H

#include "os/module.h"

typedef struct view {
  uintptr_t start, end; /* addresses of the module; equal: there is no view */
  const uint8_t *at;    /* where that content is to be read */
} view_t;

/* Before that there are none. */
void view_prepare(void);
/* The view of a module with a .eh_frame_hdr, made when it is first asked for; other threads may read it. */
view_t view_of(const module_t *module);
/* Has the pages of all views leave the resident set: they come back from the file when they are read again. */
void view_drop_all(void);

/* Where the content at an address of the module is read, up to *end; NULL: nothing of the module is readable there. */
const uint8_t *view_content(const view_t *view, const module_t *module, uintptr_t address, const uint8_t **end);
/* The module's address of content that is read there. */
HAK_INLINE uintptr_t view_address(const view_t *view, const uint8_t *content) {
  uintptr_t into = (uintptr_t)content - (uintptr_t)view->at;
  return into <= view->end - view->start ? view->start + into : (uintptr_t)content;
}

#endif
