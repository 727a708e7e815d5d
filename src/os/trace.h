/* trace.h - backtraces: the return addresses of the calling thread. */
#ifndef OS_TRACE_H
#define OS_TRACE_H

#include "base/bits.h"

#define TRACE_FRAMES 24

typedef struct trace {
  uint32_t thread; /* its thread id in the kernel */
  uint32_t depth;  /* 0: no trace was taken */
  void *frame[TRACE_FRAMES];
} trace_t;

/* Call at start if traces may be needed.  May take locks and read files; a further call adds modules loaded since. */
void trace_prepare(void);
bool trace_ready(void);
/* Takes a trace; call only when trace_ready().  Takes no lock, allocates nothing, preserves errno.  Async-signal-safe. */
void trace_take(trace_t *trace);
/* Writes a line for each frame to standard error: its file and the offset in it.  Async-signal-safe. */
void trace_print(const char *what, const trace_t *trace);

#endif
