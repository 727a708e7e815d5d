/* line.h - writes a line "hakmem: ..." to standard error: without stdio, without allocation, async-signal-safe. */
#ifndef OS_LINE_H
#define OS_LINE_H

#include "base/format.h"

typedef struct line {
  format_t format;
  char text[400];
} line_t;

/* Begins a line; the caller appends to it. */
format_t *line_begin(line_t *line);
/* Ends the line and writes it with one call.  The thread of os_thread_start, which may not write, leaves it for os_end_finish. */
void line_end(line_t *line);
/* The same, but that thread writes it too: before it is confined. */
void line_end_at_once(line_t *line);
/* Writes a whole line. */
void line_write(const char *text);

#endif
