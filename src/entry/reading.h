/* reading.h - what profiles are made from: the process's live sampled blocks, and its mappings of code.
 *
 * Nothing is locked or allocated.  A block that is allocated or freed meanwhile may be included or not. */
#ifndef ENTRY_READING_H
#define ENTRY_READING_H

#include <sys/types.h>

#include "hakmem/hakmem.h"
#include "os/module.h"
#include "slab/sample.h"

/* A live sampled block, as its record describes it. */
typedef struct reading {
  uintptr_t address;
  uint64_t size;       /* bytes */
  unsigned size_class; /* CLASS_NONE: a large block */
  sample_state_t state;
  uint32_t chance, site, tag, asked, born; /* as in sample_t */
  uint32_t unit, units;                    /* the position of the iteration and its end; 0 at first */
} reading_t;

/* Reads the next block into *r, which is all 0 before the first; false at the end. */
HAK_CHECKED bool reading_next(reading_t *r);

/* A mapping of code: a line of /proc/self/maps, and the build id of its module; or unloaded code, at the addresses that its sites have now
 * (kit/closed.h). */
#define MAPPING_LINE 412 /* longer lines are cut */
#define BUILD_ID_MOST 32
typedef struct mapping {
  char line[MAPPING_LINE];
  uintptr_t start, end;
  uint64_t offset;  /* in its file */
  const char *path; /* within the line; empty if there is none */
  char build_id[2 * BUILD_ID_MOST + 1]; /* hexadecimal; empty if there is none */
} mapping_t;

typedef struct mappings {
  int file; /* -1: the mappings cannot be read */
  uint64_t at;
  uint32_t closed; /* the next unloaded code; it comes after all mappings */
  long used, filled;
  char block[1024];
  int memory; /* the file through which modules are copied to `page` (file_copy); -1: directly (probe_copy) */
  char *page;
} mappings_t;

/* `page` is for copies of modules: MODULE_COPY bytes, aligned to MODULE_COPY_ALIGN. */
void mappings_open(mappings_t *m, char *page);
/* The same, from a file that the caller keeps open. */
void mappings_from(mappings_t *m, int file, int memory, char *page);
/* In order of address; false at the end. */
HAK_CHECKED bool mappings_next(mappings_t *m, mapping_t *mapping);
void mappings_close(mappings_t *m);

#endif
