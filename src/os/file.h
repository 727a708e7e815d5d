/* file.h - files for a thread that libc does not know: without errno, and by descriptors that nobody else has.
 *
 * Nothing here may be called in a process that has put itself under a filter. */
#ifndef OS_FILE_H
#define OS_FILE_H

#include "base/bits.h"

/* From here on the calling thread has descriptors of its own, none at first: what it opens no other thread, no child and no program that
 * the process becomes can see or close, and it keeps nothing open that the program closes. False: the kernel is older than 5.9. */
HAK_CHECKED bool file_apart(void);

/* All of these return -1 where it cannot be. */
int file_open(const char *path);   /* to be read */
int file_mappings(void);          /* those of this process, a line each */
int file_memory(const char *name); /* one in no folder; `name` is what /proc shows for it */
/* Bytes from a place on, as many as there are up to `bytes`. Of the kernel's files a line is not cut if they are read in turn. */
long file_pread(int file, void *to, size_t bytes, uint64_t from);
/* All of them to a place, or false. */
HAK_CHECKED bool file_pwrite(int file, const void *from, size_t bytes, uint64_t to);
void file_close(int file);

/* What a process leaves behind however it ends: a file of so many bytes, all 0, shared with the kernel; its room on the disk is reserved.
 * One process at a time has it: until that ends, or becomes another program. A fork's child does not have it mapped. NULL: the file cannot
 * be had, or *taken says that another process has it. */
void *file_share(const char *path, size_t bytes, bool *taken);

/* Whether there is a process of that number, as far as the kernel tells; one that has ended and was not yet waited for counts. */
bool file_owner_is_there(uint64_t process);

/* Copies by way of such a file without a name. False, where a plain copy would have been the process's end: the source cannot be read,
 * or the target is of a file that was cut, or of a disk that is full. */
HAK_CHECKED bool file_copy(int memory, void *to, const void *from, size_t bytes);

#endif
