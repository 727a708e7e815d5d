/* entry.h - what the files of this layer share. */
#ifndef ENTRY_ENTRY_H
#define ENTRY_ENTRY_H

#include "hakmem/hakmem.h"
#include "base/config.h"
#include "kit/options.h"

/* Installs the handlers that crash_report and guard ask for. Once, at start. */
void crash_watch(void);
/* What HAKMEM_STATS asks for at exit. */
void report_at_exit(void);
/* What HAKMEM_PROFILE asks for at exit. */
void profile_at_exit(void);

#endif
