/* boot.h - the start of the allocator, in two steps.
 *
 * The first allocation may come before libc has set up the environment: it makes the region.
 * The library's constructor later reads the options, if they were not read yet, and starts the rest. */
#ifndef FRONT_BOOT_H
#define FRONT_BOOT_H

#include "base/bits.h"

/* Makes the region on the first call. Returns false if there is no memory even for that, or if this call interrupts the one that makes
 * it. */
HAK_CHECKED bool boot(void);
/* From the library's constructor. */
void boot_finish(void);
/* Reads the options once, if libc has the environment by then. */
void boot_options(void);

#endif
