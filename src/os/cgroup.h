/* cgroup.h - the memory limits of the process's control groups: what Docker, Kubernetes and systemd set.
 *
 * Of version 2 (memory.max, memory.high, memory.current), or of version 1 where that has the memory controller; at the places where
 * both are usually mounted.  Nothing is allocated, and nothing is kept open but by cgroup_open: each call reads files (os_read_file), so it
 * is refused once the process has put itself under a filter.  A file that is not there, or is no number, is a limit that is not there. */
#ifndef OS_CGROUP_H
#define OS_CGROUP_H

#include "base/bits.h"

#define CGROUP_NONE UINT64_MAX /* no limit, or not known */
/* Version 1 writes the largest number of whole pages for no limit: 2^63 less one page, of any size up to 64 KiB. */
#define CGROUP_NO_LIMIT_V1 ((UINT64_C(1) << 63) - ((uint64_t)64 << 10))
#define CGROUP_PATH 1024       /* longer paths are groups that are not seen */

typedef enum cgroup_version { CGROUP_ABSENT, CGROUP_V1, CGROUP_V2 } cgroup_version_t;
typedef enum cgroup_file {
  CGROUP_FILE_MAX,
  CGROUP_FILE_HIGH,
  CGROUP_FILE_CURRENT,
  CGROUP_FILE_STAT,
  CGROUP_FILE_PRESSURE,
  CGROUP_FILES
} cgroup_file_t;

/* Those of a group, open; -1: it is not there. */
typedef struct cgroup_open_files {
  int of[CGROUP_FILES];
} cgroup_open_files_t;

/* A group: that of the process, or one around it. */
typedef struct cgroup {
  cgroup_version_t version;
  cgroup_file_t by;    /* the file that the limit stands in */
  uint64_t limit, use; /* bytes; CGROUP_NONE */
  const cgroup_open_files_t *files; /* what it is read by, in the thread that has opened them; NULL: by its path */
  char path[CGROUP_PATH];
} cgroup_t;

/* Room for what a file says: for the caller to have, since malloc may be called on a small stack. */
typedef struct cgroup_text {
  char bytes[4096];
} cgroup_text_t;

/* Finds the group that has the least room below its limit, which is met first; without any limit that of the process. With `high` the
 * limit at which the kernel slows a group down counts as one.  False: there is no memory controller to be seen. */
HAK_CHECKED bool cgroup_find(cgroup_t *group, bool high, cgroup_text_t *room);
/* The same with what /proc/self/cgroup says, and the folders where version 1's controller of memory and version 2 are mounted. */
HAK_CHECKED bool cgroup_find_in(cgroup_t *group, const char *text, const char *mount_v1, const char *mount_v2, bool high);
/* Reads its limit and use anew; false if they cannot be read any more.  By open files it looks at both limits: nobody finds it anew. */
HAK_CHECKED bool cgroup_look(cgroup_t *group);
/* Opens what there is to read of it, for a thread with descriptors of its own (file_apart), which ends with them. */
void cgroup_open(const cgroup_t *group, cgroup_open_files_t *files);
/* What of its use the kernel gives up before it kills: the part of the page cache that was used once; 0 where it is not known.
 * Bytes. A dear file to read: the kernel sums over processors. */
uint64_t cgroup_reclaimable(const cgroup_t *group, cgroup_text_t *room);
/* So many us have processes of the group waited for memory so far; 0 where the kernel does not tell. */
uint64_t cgroup_stalled_us(const cgroup_t *group);
/* The path of such a file of the group; false if it is too long. */
HAK_CHECKED bool cgroup_path(const cgroup_t *group, cgroup_file_t file, char path[CGROUP_PATH]);
/* The file's name, a static text. */
const char *cgroup_file_name(cgroup_version_t version, cgroup_file_t file);

/* The number that a text begins with; CGROUP_NONE for none, for "max", and for what version 1 writes for none. */
uint64_t cgroup_number(const char *text);

#endif
