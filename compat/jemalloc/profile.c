/* profile.c - the heap's profile in jemalloc's format, "heap_v2", for jeprof and other tools that read it.
 *
 * It is made from a snapshot's text (docs/insight.md) in two passes, since samples come before the sites that they name.  The samples are
 * scaled to all blocks here, so the period is written as 1, and readers scale nothing up.  Its memory is mapped, not allocated, so that
 * the profile does not include itself. */
#include "jemalloc.h"
#include "hakmem/profile.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define DEPTH_MOST 256

typedef struct site {
  uint64_t address, blocks, bytes;
  uint64_t parent; /* 0: none */
} site_t;

bool profile_on(void) {
  int64_t insight = 0;
  return hak_option_get("insight", &insight) && insight != 0;
}

void profile_name(char *name, size_t size, char letter) {
  static _Atomic unsigned number;
  unsigned n = atomic_fetch_add_explicit(&number, 1, memory_order_relaxed);
  (void)snprintf(name, size, "%s.%d.%u.%c%u.heap", conf.prof_prefix, (int)getpid(), n, letter, n);
}

/* --- the snapshot's text -------------------------------------------------------------------- */

typedef void line_fn(void *to, const char *line);

/* The text ends with a zero, since mapped memory beyond a file's end is zero. */
static void lines_each(const char *text, const char *kind, line_fn *each, void *to) {
  size_t length = strlen(kind);
  for (const char *line = text; line != NULL && *line != '\0'; line = strchr(line, '\n') != NULL ? strchr(line, '\n') + 1 : NULL) {
    if (strncmp(line, kind, length) == 0 && line[length] == ' ') each(to, line + length + 1);
  }
}

typedef struct sites {
  site_t *at;
  uint64_t count;
} sites_t;

static void site_count(void *to, const char *line) {
  sites_t *sites = to;
  uint64_t number = strtoull(line, NULL, 10);
  if (number >= sites->count) sites->count = number + 1;
}

static void site_take(void *to, const char *line) {
  sites_t *sites = to;
  char *end;
  site_t *site = &sites->at[strtoull(line, &end, 10)];
  site->parent = strtoull(end, &end, 10);
  site->address = strtoull(end, NULL, 16);
  if (site->parent >= sites->count) site->parent = 0;
}

/* address, bytes, bytes requested, chance in 1/2^32, site, ... */
static void sample_take(void *to, const char *line) {
  sites_t *sites = to;
  char *end;
  (void)strtoull(line, &end, 16);
  uint64_t bytes = strtoull(end, &end, 10);
  (void)strtoull(end, &end, 10);
  uint64_t chance = strtoull(end, &end, 10), number = strtoull(end, NULL, 10);
  if (number >= sites->count) number = 0; /* unknown */
  double blocks = chance == 0 ? 1 : 0x1p32 / (double)chance;
  sites->at[number].blocks += (uint64_t)(blocks + 0.5);
  sites->at[number].bytes += (uint64_t)(blocks * (double)bytes + 0.5);
}

/* --- the profile --------------------------------------------------------------------------- */

static void write_counts(FILE *file, uint64_t blocks, uint64_t bytes) {
  fprintf(file, "  t*: %" PRIu64 ": %" PRIu64 " [0: 0]\n", blocks, bytes);
}

static void write_stack(FILE *file, const sites_t *sites, uint64_t number) {
  fputs("@", file);
  unsigned depth = 0;
  for (uint64_t i = number; i != 0 && depth < DEPTH_MOST; i = sites->at[i].parent, depth++)
    fprintf(file, " 0x%" PRIx64, sites->at[i].address);
  fputs(depth == 0 ? " 0x0\n" : "\n", file);
}

static void write_mappings(FILE *file) {
  char text[4096];
  fputs("\nMAPPED_LIBRARIES:\n", file);
  int maps = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  for (ssize_t n; maps >= 0 && (n = read(maps, text, sizeof text)) > 0;) fwrite(text, 1, (size_t)n, file);
  if (maps >= 0) close(maps);
}

static bool write_profile(const char *path, const sites_t *sites) {
  FILE *file = fopen(path, "we");
  if (file == NULL) return false;
  uint64_t blocks = 0, bytes = 0;
  for (uint64_t i = 0; i < sites->count; i++) {
    blocks += sites->at[i].blocks;
    bytes += sites->at[i].bytes;
  }
  fputs("heap_v2/1\n", file);
  write_counts(file, blocks, bytes);
  for (uint64_t i = 0; i < sites->count; i++) {
    if (sites->at[i].blocks == 0) continue;
    write_stack(file, sites, i);
    write_counts(file, sites->at[i].blocks, sites->at[i].bytes);
  }
  write_mappings(file);
  bool written = ferror(file) == 0;
  return fclose(file) == 0 && written;
}

static bool dump_text(const char *path, const char *text) {
  sites_t sites = {NULL, 1};
  lines_each(text, "site", site_count, &sites);
  size_t size = sites.count * sizeof *sites.at;
  sites.at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (sites.at == MAP_FAILED) return false;
  lines_each(text, "site", site_take, &sites);
  lines_each(text, "sample", sample_take, &sites);
  bool done = write_profile(path, &sites);
  munmap(sites.at, size);
  return done;
}

bool profile_dump(const char *path) {
  int fd = memfd_create("profile", MFD_CLOEXEC);
  if (fd < 0) return false;
  bool done = false;
  off_t size = hak_profile_write(fd) ? lseek(fd, 0, SEEK_END) : -1;
  /* One byte more, so that the text ends with a zero. */
  char *text = size > 0 && ftruncate(fd, size + 1) == 0 ? mmap(NULL, (size_t)size + 1, PROT_READ, MAP_PRIVATE, fd, 0) : MAP_FAILED;
  if (text != MAP_FAILED) {
    done = dump_text(path, text);
    munmap(text, (size_t)size + 1);
  }
  close(fd);
  return done;
}
