/* boot.h - the start of the allocator, in two steps.
 *
 * The first allocation may come before libc is ready to be asked for the
 * environment: it makes the region.  The constructor then reads what is left. */
#ifndef FRONT_BOOT_H
#define FRONT_BOOT_H

#include "base/bits.h"

/* Makes the region on the first call; false when there is no memory even for that. */
HAK_CHECKED bool boot(void);
/* From the library's constructor. */
void boot_finish(void);
/* Reads the options, once libc has the environment. */
void boot_options(void);

#endif
