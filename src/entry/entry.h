/* entry.h - what the files of this layer share. */
#ifndef ENTRY_ENTRY_H
#define ENTRY_ENTRY_H

#include "hakmem/hakmem.h"
#include "base/config.h"
#include "kit/options.h"

/* Installs the handlers that crash_report and guard ask for. Once, at start, where one of them does. */
void crash_watch(void);
void crash_unwatch(void); /* where nobody has taken over since */
/* What HAKMEM_STATS asks for at exit, if it does. */
void report_at_start(void); /* before the program can open what it takes descriptor 2 for */
void report_at_exit(void);
struct mallinfo report_mallinfo(void); /* glibc's mallinfo, by a name that no program has */
/* What HAKMEM_BLACKBOX and HAKMEM_WINDOW ask for, if one does: at start, once options are known. */
void blackbox_start(void);
/* The same as report_at_exit for HAKMEM_PROFILE. */
void profile_at_exit(void);

#endif
