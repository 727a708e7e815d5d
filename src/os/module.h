/* module.h - the program and the libraries that a process is made of, as their own headers in memory tell.
 *
 * Which of them an address is in says the loader where it can do so without a lock, else a list that module_prepare has made.
 * That one may be out of date, so nothing of it is believed but where a module began: the headers are read each time. */
#ifndef OS_MODULE_H
#define OS_MODULE_H

#include <link.h>

#include "base/bits.h"

typedef struct module {
  uintptr_t start, end; /* 0: none */
  uintptr_t bias;       /* to be added to the file's addresses */
  const ElfW(Phdr) *parts;
  uint32_t count;
  uintptr_t header; /* .eh_frame_hdr; 0: none */
  uintptr_t frames; /* .eh_frame where no header leads to it; 0: none is known */
} module_t;

/* Makes the list, or adds what is new.  Not while another thread does; the loader's lock is taken, files may be read. */
void module_prepare(void);
void module_add(uintptr_t start, uintptr_t end, uintptr_t frames);

/* The rest takes no lock, calls nothing that does, and reads nothing that may not be readable. */

/* The module that has the address in its executable text. */
HAK_CHECKED bool module_find(uintptr_t text, module_t *module);
bool module_has_text(const module_t *module, uintptr_t address);
/* Whether the address is in this library's own text, as module_prepare has found it; false in an archive, which the program is around. */
bool module_is_ours(uintptr_t text);
/* Where the module begins that has the address, if it is still there: nothing of it is read. False: it is in none. */
HAK_CHECKED bool module_place(uintptr_t text, uintptr_t *start);
/* A module as a copy of its first bytes tells, so many at such a boundary: of use for its build id alone. */
#define MODULE_COPY 4096
#define MODULE_COPY_ALIGN 16
HAK_CHECKED bool module_of_copy(const void *page, module_t *module);
/* The bytes of its build id, and where they are; 0: it has none. */
size_t module_build_id(const module_t *module, const uint8_t **id);
/* For who looks at an address that nothing proves to be of code in use: from here to module_let_go no module goes away, as far as the
 * process closes them by our dlclose. False: one is just going, and nothing may be read.  A close waits a moment for who holds. */
HAK_CHECKED bool module_hold(void);
void module_let_go(void);
void module_close_begin(void);
void module_close_end(void);
void module_after_fork(void); /* who held, or closed, is gone */
/* Where the readable content that the address is in ends; 0: it is in none. */
uintptr_t module_readable_end(const module_t *module, uintptr_t address);

#endif
