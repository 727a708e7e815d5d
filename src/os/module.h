/* module.h - the program and the libraries of the process, as described by their own headers in memory.
 *
 * The module of an address comes from the loader if it can answer without a lock, else from a list that module_prepare made.  The list
 * may be out of date, so only the start of a module is taken from it: the headers are read again each time. */
#ifndef OS_MODULE_H
#define OS_MODULE_H

#include <link.h>

#include "base/bits.h"

typedef struct module {
  uintptr_t start, end; /* 0: none */
  uintptr_t bias;       /* added to the file's addresses */
  const ElfW(Phdr) *parts;
  uint32_t count;
  uintptr_t header; /* .eh_frame_hdr; 0: none */
  uintptr_t frames; /* .eh_frame, if no header points to it; 0: unknown */
} module_t;

/* Makes the list, or adds new modules.  One thread at a time; takes the loader's lock and may read files. */
void module_prepare(void);
void module_add(uintptr_t start, uintptr_t end, uintptr_t frames);

/* The rest takes no lock, calls nothing that does, and never reads memory that might be unreadable. */

/* Finds the module whose executable text contains the address. */
HAK_CHECKED bool module_find(uintptr_t text, module_t *module);
bool module_has_text(const module_t *module, uintptr_t address);
/* Returns whether the address is in this library's own text, as found by module_prepare; always false in an archive, whose text is part
 * of the program. */
bool module_is_ours(uintptr_t text);
/* Finds the start of the module that contains the address, without reading the module, which may be gone.  False: no module does. */
HAK_CHECKED bool module_place(uintptr_t text, uintptr_t *start);
/* Reads a module from a copy of its first MODULE_COPY bytes, aligned to MODULE_COPY_ALIGN; the result serves only for its build id. */
#define MODULE_COPY 4096
#define MODULE_COPY_ALIGN 16
HAK_CHECKED bool module_of_copy(const void *page, module_t *module);
/* Returns the length of the build id and sets *id to its bytes; 0: it has none. */
size_t module_build_id(const module_t *module, const uint8_t **id);
/* For a caller that reads an address not proved to be of code in use: from here to module_let_go no module goes away, as long as the
 * process closes modules by our dlclose.  False: one is being closed, and nothing may be read.  A close waits briefly for holders. */
HAK_CHECKED bool module_hold(void);
void module_let_go(void);
void module_close_begin(void);
void module_close_end(void);
void module_after_fork(void); /* in a child: threads that held or closed are gone */
/* Returns the end of the readable segment that contains the address; 0: no segment of the module does. */
uintptr_t module_readable_end(const module_t *module, uintptr_t address);

#endif
