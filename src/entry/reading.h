/* reading.h - what profiles are made of, as the process has it now: its live sampled blocks, and what is mapped as code.
 *
 * Nothing is locked or allocated.  A block that is allocated or freed meanwhile is among them or not. */
#ifndef ENTRY_READING_H
#define ENTRY_READING_H

#include <sys/types.h>

#include "hakmem/hakmem.h"
#include "os/module.h"
#include "slab/sample.h"

/* The bytes of all large blocks: what is live and in no class. */
uint64_t large_bytes(const hak_stats_t *stats, const hak_class_stats_t *of_class);

/* A live sampled block, by its record. */
typedef struct reading {
  uintptr_t address;
  uint64_t size;       /* bytes */
  unsigned size_class; /* CLASS_NONE: a large block */
  sample_state_t state;
  uint32_t chance, site, tag, asked, born; /* as in sample_t */
  uint32_t unit, units;                    /* where the next may be, and the end; 0 at first */
} reading_t;

/* The next one, all 0 before the first; false: that was all. */
HAK_CHECKED bool reading_next(reading_t *r);

/* A mapping of code: a line of /proc/self/maps, and the build id of the module that it is of; or code that was taken away, where its sites
 * are (kit/closed.h). */
#define MAPPING_LINE 412 /* what is longer is cut */
#define BUILD_ID_MOST 32
typedef struct mapping {
  char line[MAPPING_LINE];
  uintptr_t start, end;
  uint64_t offset;  /* in its file */
  const char *path; /* within the line; empty: none */
  char build_id[2 * BUILD_ID_MOST + 1]; /* hexadecimal; empty: it has none */
} mapping_t;

typedef struct mappings {
  int file; /* -1: they cannot be had */
  uint64_t at;
  uint32_t closed; /* what is next of these, after all others */
  long used, filled;
  char block[1024];
  int memory; /* that modules are copied by way of (file_copy), to `page`; -1: by the kernel at once (probe_copy) */
  char *page;
} mappings_t;

/* `page` is for copies of modules: MODULE_COPY bytes, at such a boundary. */
void mappings_open(mappings_t *m, char *page);
/* From a file that stays open. */
void mappings_from(mappings_t *m, int file, int memory, char *page);
/* By rising addresses; false: that was all. */
HAK_CHECKED bool mappings_next(mappings_t *m, mapping_t *mapping);
void mappings_close(mappings_t *m);

#endif
