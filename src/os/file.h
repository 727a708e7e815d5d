/* file.h - file access for a thread that libc does not know: without errno, and through descriptors that no other thread shares.
 *
 * Nothing here may be called in a process that has put itself under a filter. */
#ifndef OS_FILE_H
#define OS_FILE_H

#include "base/bits.h"

/* Gives the calling thread its own descriptor table, empty at first.  No other thread, child process or exec'd program can see or close
 * what it opens, and it keeps nothing open that the program closes.  False: the kernel is older than 5.9. */
HAK_CHECKED bool file_apart(void);

/* These return a descriptor, or -1 on failure. */
int file_open(const char *path);   /* for reading */
int file_mappings(void);          /* the mappings of this process, one per line */
int file_memory(const char *name); /* a memfd; /proc shows it as `name` */
/* Reads up to `bytes` bytes at offset `from`; returns how many, or -1.  If the kernel's files are read sequentially, no line is cut. */
long file_pread(int file, void *to, size_t bytes, uint64_t from);
/* Writes all bytes at offset `to`; false if it cannot. */
HAK_CHECKED bool file_pwrite(int file, const void *from, size_t bytes, uint64_t to);
void file_close(int file);

/* Maps a file that survives the process however it ends: `bytes` zero bytes, shared with the kernel, with disk space reserved.  One process
 * at a time holds the file, until it ends or executes another program.  The mapping is absent in a fork's child.  NULL: the file cannot be
 * opened, reserved or mapped, or another process holds it, which sets *taken. */
void *file_share(const char *path, size_t bytes, bool *taken);

/* Returns whether a process with that id exists, as far as the kernel reports it; a zombie counts. */
bool file_owner_is_there(uint64_t process);

/* Copies by way of a file from file_memory.  Returns false where a plain copy would have ended the process: the source cannot be read,
 * or the target maps a file that was truncated or a disk that is full. */
HAK_CHECKED bool file_copy(int memory, void *to, const void *from, size_t bytes);

#endif
