/* pinned.h - the part of a snapshot that shows which blocks keep pages in use: docs/insight.md. */
#ifndef ENTRY_PINNED_H
#define ENTRY_PINNED_H

#include "entry/writer.h"

void pinned_write(writer_t *w);

#endif
