/* entry.h - what the files of this layer share. */
#ifndef ENTRY_ENTRY_H
#define ENTRY_ENTRY_H

#include "hakmem/hakmem.h"
#include "base/config.h"
#include "kit/options.h"

/* Installs the signal handlers that crash_report and guard ask for, if either does. Called once, at start. */
void crash_watch(void);
void crash_unwatch(void); /* removes those that nobody has replaced since */
/* The report that HAKMEM_STATS asks for. */
void report_at_start(void); /* before the program can open a file that becomes descriptor 2 */
void report_at_exit(void);
struct mallinfo report_mallinfo(void); /* glibc's mallinfo, under a name that no program defines */
/* Starts what HAKMEM_BLACKBOX and HAKMEM_WINDOW ask for, if either is set. Called at start, once the options are known. */
void blackbox_start(void);
/* As report_at_exit, for HAKMEM_PROFILE. */
void profile_at_exit(void);

#endif
