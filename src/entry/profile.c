/* profile.c - snapshots of the heap: each live sampled block, the sites they lead to, and what puts them in proportion.
 *
 * A snapshot is lines of words, each line of the kind that its first word names.  Nothing is summed up here: docs/insight.md tells the
 * format, and what the command line makes of it. */
#include "entry/entry.h"

#include <errno.h>
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include "hakmem/profile.h"
#include "entry/writer.h"
#include "front/census.h"
#include "kit/site.h"
#include "os/line.h"
#include "os/module.h"
#include "os/os.h"
#include "slab/sample.h"

static void word_number(format_t *f, uint64_t value) {
  format_char(f, ' ');
  format_unsigned(f, value);
}

static void word_address(format_t *f, uintptr_t value) {
  format_char(f, ' ');
  format_hex(f, value);
}

static void line_number(writer_t *w, const char *kind, uint64_t value) {
  format_t *f = writer(w);
  format_text(f, kind);
  word_number(f, value);
  format_char(f, '\n');
}

/* --- what puts samples in proportion ------------------------------------------------------ */

static void write_classes(writer_t *w, const hak_class_stats_t *of_class) {
  for (unsigned c = 0; c < CLASS_COUNT; c++) {
    const hak_class_stats_t *s = &of_class[c];
    if (s->slabs == 0) continue;
    format_t *f = writer(w);
    format_text(f, "class");
    word_number(f, s->block_size);
    word_number(f, s->slab_size);
    word_number(f, s->slabs);
    word_number(f, s->live_blocks);
    word_number(f, s->cached_blocks);
    word_number(f, s->free_blocks);
    word_number(f, s->remote_blocks);
    format_char(f, '\n');
  }
}

/* Returns the bytes of all large blocks: the rest of what is live. */
static uint64_t large_bytes(const hak_stats_t *stats, const hak_class_stats_t *of_class) {
  uint64_t small = 0;
  for (unsigned c = 0; c < CLASS_COUNT; c++) small += of_class[c].live_blocks * of_class[c].block_size;
  return stats->live > small ? stats->live - small : 0;
}

static void write_census(writer_t *w) {
  hak_stats_t stats;
  hak_class_stats_t of_class[CLASS_COUNT];
  census_take(&stats, of_class);
  write_classes(w, of_class);
  format_t *f = writer(w);
  format_text(f, "large");
  word_number(f, stats.large_blocks);
  word_number(f, large_bytes(&stats, of_class));
  format_char(f, '\n');
}

/* --- samples ------------------------------------------------------------------------------ */

/* What a record says, if it says the same before and after; the state is SAMPLE_NONE if it does not. */
typedef struct reading {
  sample_state_t state;
  uint32_t place, chance, site, tag, asked, born;
} reading_t;

static reading_t sample_read(const sample_t *sample) {
  uint32_t before = load_acquire(&sample->state);
  reading_t r = {sample_state(sample),       load_acquire(&sample->place), load_acquire(&sample->chance), load_acquire(&sample->site),
                 load_acquire(&sample->tag), load_acquire(&sample->asked), load_acquire(&sample->born)};
  if (load_acquire(&sample->state) != before) r.state = SAMPLE_NONE;
  return r;
}

/* The bytes of the block, if it is one and live; else 0. */
static uint64_t sample_size(uint32_t unit, const reading_t *r) {
  const unit_t *head = unit_head(unit);
  const void *block = (char *)region_address(unit) + (size_t)r->place * HAK_GRANULE;
  uint8_t kind = load_acquire(&head->kind);
  if (kind == UNIT_LARGE) return load_relaxed(&head->bytes);
  unsigned c = load_relaxed(&head->size_class);
  if (kind != UNIT_SLAB || c >= CLASS_COUNT) return 0;
  bool live = r->state == SAMPLE_LIVE || (r->state == SAMPLE_QUIET && region_is_live(block));
  return live ? class_info[c].size : 0;
}

static void write_sample(writer_t *w, uint32_t unit) {
  reading_t r = sample_read(sample_of(unit));
  uint64_t size = r.state == SAMPLE_NONE ? 0 : sample_size(unit, &r);
  if (size == 0) return;
  format_t *f = writer(w);
  format_text(f, "sample");
  word_address(f, (uintptr_t)region_address(unit) + (size_t)r.place * HAK_GRANULE);
  word_number(f, size);
  word_number(f, r.asked);
  word_number(f, r.chance);
  word_number(f, r.site);
  word_number(f, r.tag);
  word_number(f, sample_clock() - r.born);
  word_number(f, r.state == SAMPLE_QUIET);
  word_number(f, load_relaxed(&unit_head(unit)->kind) == UNIT_LARGE);
  format_char(f, '\n');
}

static void write_samples(writer_t *w) {
  uint32_t units = sample_rate != 0 ? load_acquire(&region.units) : 0;
  for (uint32_t unit = 0; unit < units; unit++) {
    if (sample_state(sample_of(unit)) != SAMPLE_NONE) write_sample(w, unit);
  }
}

static void write_sites(writer_t *w) {
  site_figures_t known = site_figures();
  format_t *f = writer(w);
  format_text(f, "sites");
  word_number(f, known.sites);
  word_number(f, known.checked);
  word_number(f, known.wrong);
  format_char(f, '\n');
  for (uint32_t number = 1; number <= known.sites; number++) {
    const site_t *site = site_at(number);
    uintptr_t address = site == NULL ? 0 : racy_load(&site->address);
    if (address == 0) continue; /* not written yet, or given up for another */
    f = writer(w);
    format_text(f, "site");
    word_number(f, number);
    word_number(f, racy_load(&site->parent));
    word_address(f, address);
    format_char(f, '\n');
  }
}

/* --- mappings ----------------------------------------------------------------------------- */

static uintptr_t hex_word(const char *text) {
  uintptr_t value = 0;
  for (;; text++) {
    if (*text >= '0' && *text <= '9') value = value * 16 + (uintptr_t)(*text - '0');
    else if (*text >= 'a' && *text <= 'f') value = value * 16 + (uintptr_t)(*text - 'a' + 10);
    else return value;
  }
}

#define BUILD_ID_MOST 32

/* A line of /proc/self/maps, "start-end flags offset device inode path", that maps code. */
static void write_mapping(writer_t *w, const char *line) {
  static const char digits[] = "0123456789abcdef";
  const char *flags = line;
  while (*flags != ' ' && *flags != '\0') flags++;
  if (flags[0] != ' ' || flags[1] == '\0' || flags[2] == '\0' || flags[3] != 'x') return;
  format_t *f = writer(w);
  format_text(f, "mapping ");
  module_t module;
  const uint8_t *id = NULL;
  size_t bytes = module_find(hex_word(line), &module) ? module_build_id(&module, &id) : 0;
  if (bytes == 0 || bytes > BUILD_ID_MOST) {
    format_char(f, '-');
    bytes = 0;
  }
  for (size_t i = 0; i < bytes; i++) format_char(f, digits[id[i] >> 4]), format_char(f, digits[id[i] & 15]);
  format_char(f, ' ');
  format_text(f, line);
  format_char(f, '\n');
}

/* A filter of the program's own may end it for opening a file late. */
static void write_mappings(writer_t *w) {
  int fd = load_relaxed(&os_filters) != 0 ? -1 : open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;
  char block[1024], line[WRITER_ROOM - 100];
  size_t used = 0;
  for (ssize_t n; (n = read(fd, block, sizeof block)) > 0;) {
    for (ssize_t i = 0; i < n; i++) {
      if (block[i] == '\n') {
        line[used] = '\0';
        write_mapping(w, line);
        used = 0;
      } else if (used + 1 < sizeof line) {
        line[used++] = block[i];
      }
    }
  }
  close(fd);
}

/* --- the whole ---------------------------------------------------------------------------- */

HAK_COLD bool hak_profile_write(int fd) {
  writer_t w;
  int saved = errno;
  writer_open(&w, fd);
  line_number(&w, "hakmem-snapshot", 1);
  line_number(&w, "process", (uint64_t)getpid());
  struct timespec now = {0};
  (void)clock_gettime(CLOCK_REALTIME, &now);
  line_number(&w, "time", (uint64_t)now.tv_sec);
  line_number(&w, "sample_bytes", sample_rate);
  write_census(&w);
  write_samples(&w);
  write_sites(&w);
  write_mappings(&w);
  format_text(writer(&w), "end\n");
  bool good = writer_flush(&w);
  if (good) errno = saved;
  return good;
}

HAK_COLD void profile_at_exit(void) {
  const char *path = option_path(PATH_profile);
  if (path[0] == '\0') return;
  int fd = writer_file(path);
  if (fd < 0 || !hak_profile_write(fd)) line_write("cannot write the file that HAKMEM_PROFILE names");
  if (fd >= 0) close(fd);
}

uint32_t hak_tag_set(uint32_t tag) {
  uint32_t before = site_tag;
  site_tag = tag;
  return before;
}
