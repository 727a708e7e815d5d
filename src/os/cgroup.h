/* cgroup.h - the memory limits of the process's control groups, as Docker, Kubernetes and systemd set them.
 *
 * Supports version 2 (memory.max, memory.high, memory.current), and version 1 if it has the memory controller, at their usual mount
 * points.  Allocates nothing, and only cgroup_open keeps files open: each call reads files (os_read_file), so it fails once the process
 * has put itself under a filter.  A file that is missing or holds no number counts as no limit. */
#ifndef OS_CGROUP_H
#define OS_CGROUP_H

#include "base/bits.h"

#define CGROUP_NONE UINT64_MAX /* no limit, or not known */
/* Version 1 reports "no limit" as the largest multiple of the page size, 2^63 less one page; pages are up to 64 KiB. */
#define CGROUP_NO_LIMIT_V1 ((UINT64_C(1) << 63) - ((uint64_t)64 << 10))
#define CGROUP_PATH 1024       /* groups with longer paths are ignored */

typedef enum cgroup_version { CGROUP_ABSENT, CGROUP_V1, CGROUP_V2 } cgroup_version_t;
typedef enum cgroup_file {
  CGROUP_FILE_MAX,
  CGROUP_FILE_HIGH,
  CGROUP_FILE_CURRENT,
  CGROUP_FILE_STAT,
  CGROUP_FILE_PRESSURE,
  CGROUP_FILES
} cgroup_file_t;

/* Open files of a group; -1: the file does not exist. */
typedef struct cgroup_open_files {
  int of[CGROUP_FILES];
} cgroup_open_files_t;

/* The group of the process, or one of its ancestors. */
typedef struct cgroup {
  cgroup_version_t version;
  cgroup_file_t by;    /* the file that holds the limit */
  uint64_t limit, use; /* bytes; CGROUP_NONE */
  const cgroup_open_files_t *files; /* open files to read it from, in the thread that opened them; NULL: read by path */
  char path[CGROUP_PATH];
} cgroup_t;

/* Buffer for the text of a file.  The caller provides it, since malloc may be called on a small stack. */
typedef struct cgroup_text {
  char bytes[4096];
} cgroup_text_t;

/* Finds the group with the least room below its limit, whose limit is met first; if there is no limit, the group of the process.  With
 * `high`, memory.high, at which the kernel slows a group down, counts as a limit.  False: no memory controller is visible. */
HAK_CHECKED bool cgroup_find(cgroup_t *group, bool high, cgroup_text_t *room);
/* The same, given the text of /proc/self/cgroup and the mount points of version 1's memory controller and of version 2. */
HAK_CHECKED bool cgroup_find_in(cgroup_t *group, const char *text, const char *mount_v1, const char *mount_v2, bool high);
/* Reads the group's limit and use again; false if they can no longer be read.  With open files it reads both limits, since then
 * nobody calls cgroup_find again. */
HAK_CHECKED bool cgroup_look(cgroup_t *group);
/* Opens the group's files for a thread that has its own descriptor table (file_apart); they close when the thread ends. */
void cgroup_open(const cgroup_t *group, cgroup_open_files_t *files);
/* Returns the bytes of the group's use that the kernel reclaims before it kills a process: page cache that was used once.  0 if
 * unknown.  The file is expensive to read: the kernel sums over processors. */
uint64_t cgroup_reclaimable(const cgroup_t *group, cgroup_text_t *room);
/* Returns how many microseconds processes of the group have waited for memory so far; 0 if the kernel does not report it. */
uint64_t cgroup_stalled_us(const cgroup_t *group);
/* Builds the path of the file in the group; false if it is too long. */
HAK_CHECKED bool cgroup_path(const cgroup_t *group, cgroup_file_t file, char path[CGROUP_PATH]);
/* The file's name, a static string. */
const char *cgroup_file_name(cgroup_version_t version, cgroup_file_t file);

/* The number at the start of the text; CGROUP_NONE if there is none, for "max", and for version 1's value for no limit. */
uint64_t cgroup_number(const char *text);

#endif
