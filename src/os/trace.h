/* trace.h - where the calling thread is: the return addresses of its calls. */
#ifndef OS_TRACE_H
#define OS_TRACE_H

#include "base/bits.h"

#define TRACE_FRAMES 24

typedef struct trace {
  uint32_t thread; /* the kernel's number of it */
  uint32_t depth;  /* 0: not taken */
  void *frame[TRACE_FRAMES];
} trace_t;

/* At start, where traces may be wanted. It may lock and read files; again, it learns of modules that were loaded since. */
void trace_prepare(void);
bool trace_ready(void);
/* Once that is so. Takes no lock, and allocates nothing. Keeps errno. Async-signal-safe. */
void trace_take(trace_t *trace);
/* To standard error, a line for each frame: its file and the offset in it. Async-signal-safe. */
void trace_print(const char *what, const trace_t *trace);

#endif
