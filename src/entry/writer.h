/* writer.h - buffered text to a file descriptor or to memory, without stdio and without allocation. A writer belongs to one thread. */
#ifndef ENTRY_WRITER_H
#define ENTRY_WRITER_H

#include <stdbool.h>

#include "base/format.h"

typedef struct writer {
  int fd; /* the target, or the file that file_copy copies through */
  bool good;
  char *to;    /* NULL: write to the file, */
  bool placed; /* at the place `at` if this is set */
  uint64_t at;
  size_t room;
  uint32_t sum; /* CRC-32 of what was written; 0 after writer_open */
  format_t out;
  char text[2048];
} writer_t;

#define WRITER_ROOM 512 /* no single piece is longer */

void writer_open(writer_t *w, int fd);
/* Writes into memory that may be gone, through a file without a name; running out of room is an error. */
void writer_into(writer_t *w, int memory, char *to, size_t room);
/* Writes at a place in a file, by file_pwrite; running out of room is an error. */
void writer_at(writer_t *w, int fd, uint64_t at, size_t room);
/* False if anything could not be written. */
bool writer_flush(writer_t *w);
/* Returns where to put the next piece; flushes if the buffer may not hold it. */
format_t *writer(writer_t *w);

/* Write a word of a line, after a space; and a line of two words. */
void word_number(format_t *f, uint64_t value);
void word_address(format_t *f, uintptr_t value);
void line_number(writer_t *w, const char *kind, uint64_t value);

/* Makes a path from an option's value; %p stands for the process's number. */
#define PATH_ROOM 320
void writer_path(char path[PATH_ROOM], const char *pattern);
/* Opens that file for writing; -1 on error. */
int writer_file(const char *pattern);

#endif
