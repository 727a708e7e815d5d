/* writer.h - buffered text to a file descriptor or to memory, without stdio and without allocation. One thread a writer. */
#ifndef ENTRY_WRITER_H
#define ENTRY_WRITER_H

#include <stdbool.h>

#include "base/format.h"

typedef struct writer {
  int fd; /* that it goes to, or by way of, as file_copy has it */
  bool good;
  char *to;    /* NULL: to the file, */
  bool placed; /* and there to `at` */
  uint64_t at;
  size_t room;
  uint32_t sum; /* CRC-32 of what is there */
  format_t out;
  char text[2048];
} writer_t;

#define WRITER_ROOM 512 /* no single piece is longer */

void writer_open(writer_t *w, int fd);
/* Into memory that may be gone, by way of a file without a name; what does not fit is an error. */
void writer_into(writer_t *w, int memory, char *to, size_t room);
/* To a place of a file, by file_pwrite; what does not fit is an error. */
void writer_at(writer_t *w, int fd, uint64_t at, size_t room);
/* False if anything could not be written. */
bool writer_flush(writer_t *w);
/* For the next piece. */
format_t *writer(writer_t *w);

/* A word of a line, after a space; and a line of two words. */
void word_number(format_t *f, uint64_t value);
void word_address(format_t *f, uintptr_t value);
void line_number(writer_t *w, const char *kind, uint64_t value);

/* The name of the file that an option names, %p being the process's number. */
#define PATH_ROOM 320
void writer_path(char path[PATH_ROOM], const char *pattern);
/* Opens it; -1 if that cannot be. */
int writer_file(const char *pattern);

#endif
