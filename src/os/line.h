/* line.h - a line of ours on standard error, "hakmem: ...": without stdio, without allocation, async-signal-safe. */
#ifndef OS_LINE_H
#define OS_LINE_H

#include "base/format.h"

typedef struct line {
  format_t format;
  char text[400];
} line_t;

/* Begins the line; the caller adds to it. */
format_t *line_begin(line_t *line);
/* Ends it, and writes it in one call. */
void line_end(line_t *line);
/* The whole of one. */
void line_write(const char *text);

#endif
