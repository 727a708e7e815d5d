/* profile.c - snapshots of the heap: each live sampled block, its site, and the counts that scale the samples.
 *
 * A snapshot consists of lines of words; the first word names the kind of line.  Nothing is summed up here.  docs/insight.md describes
 * the format, and what the command line makes of it. */
#include "entry/entry.h"

#include <errno.h>
#include <unistd.h>

#include "hakmem/profile.h"
#include "entry/pinned.h"
#include "entry/reading.h"
#include "entry/profile.h"
#include "front/census.h"
#include "front/thread.h"
#include "front/watch.h"
#include "kit/site.h"
#include "os/line.h"
#include "os/memcheck.h"
#include "os/os.h"
#include "slab/sample.h"

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

HAK_COLD void profile_census(writer_t *w, hak_stats_t *stats) {
  hak_class_stats_t of_class[CLASS_COUNT];
  census_take(stats, of_class);
  write_classes(w, of_class);
  format_t *f = writer(w);
  format_text(f, "large");
  word_number(f, stats->large_blocks);
  word_number(f, large_bytes(stats, of_class));
  format_char(f, '\n');
}

/* --- samples ------------------------------------------------------------------------------ */

HAK_COLD void profile_sample(writer_t *w, const reading_t *r) {
  format_t *f = writer(w);
  format_text(f, "sample");
  word_address(f, r->address);
  word_number(f, r->size);
  word_number(f, r->asked);
  word_number(f, r->chance);
  word_number(f, r->site);
  word_number(f, r->tag);
  word_number(f, sample_clock() - r->born);
  word_number(f, r->state == SAMPLE_QUIET);
  word_number(f, r->size_class == CLASS_NONE);
  format_char(f, '\n');
}

HAK_COLD void profile_heaps(writer_t *w, size_t room) {
  census_named_t h;
  const heap_t *at = NULL;
  while (w->room >= room && census_next_named(&at, &h)) {
    format_t *f = writer(w);
    format_text(f, "heap");
    word_number(f, h.tag);
    format_char(f, ' ');
    format_text(f, h.name[0] != '\0' ? h.name : "-");
    format_char(f, '\n');
  }
}

static void write_samples(writer_t *w) {
  reading_t r = {0};
  while (reading_next(&r)) profile_sample(w, &r);
}

HAK_COLD site_figures_t profile_sites(writer_t *w) {
  site_figures_t known = site_figures();
  format_t *f = writer(w);
  format_text(f, "sites");
  word_number(f, known.sites);
  word_number(f, known.checked);
  word_number(f, known.wrong);
  format_char(f, '\n');
  return known;
}

HAK_COLD void profile_site(writer_t *w, uint32_t number) {
  const site_t *site = site_at(number);
  uintptr_t address = site == NULL ? 0 : racy_load(&site->address);
  if (address == 0) return; /* not written yet, or abandoned for another */
  format_t *f = writer(w);
  format_text(f, "site");
  word_number(f, number);
  word_number(f, racy_load(&site->parent));
  word_address(f, address);
  format_char(f, '\n');
}

static void write_sites(writer_t *w) {
  site_figures_t known = profile_sites(w);
  for (uint32_t number = 1; number <= known.sites; number++) profile_site(w, number);
}

/* --- events ------------------------------------------------------------------------------- */

/* These counts are exact; the events show how they divide among sites. */
static void write_counted(writer_t *w) {
  for (unsigned group = 0; group < WATCH_GROUPS; group++) {
    watch_sum_t sum = watch_counted(group);
    if (sum.blocks == 0) continue;
    format_t *f = writer(w);
    format_text(f, "allocated");
    word_number(f, group);
    word_number(f, group < CLASS_ZERO ? class_info[group].size : 0);
    word_number(f, sum.blocks);
    word_number(f, sum.bytes);
    format_char(f, '\n');
  }
}

static void write_rows(writer_t *w) {
  const event_row_t *row;
  for (uint32_t number = 0; (row = event_row_at(number)) != NULL; number++) {
    uint64_t key = load_relaxed(&row->key), events = load_relaxed(&row->sums.events);
    if (key == 0 || events == 0) continue;
    format_t *f = writer(w);
    format_text(f, "event_of");
    word_number(f, key >> 32);
    word_number(f, (uint32_t)key - 1);
    word_number(f, events);
    word_number(f, load_relaxed(&row->sums.objects) >> EVENT_OBJECT_BITS);
    word_number(f, load_relaxed(&row->sums.bytes));
    format_char(f, '\n');
  }
}

static void write_events(writer_t *w) {
  for (uint32_t site = SITE_NONE; site < SITE_MOST; site++) {
    const event_site_t *sums = event_of(site);
    uint64_t events = sums == NULL ? 0 : load_relaxed(&sums->events);
    if (sums == NULL) site |= SITE_CHUNK - 1;
    if (events == 0) continue;
    format_t *f = writer(w);
    format_text(f, "event");
    word_number(f, site);
    word_number(f, events);
    word_number(f, load_relaxed(&sums->objects) >> EVENT_OBJECT_BITS);
    word_number(f, load_relaxed(&sums->bytes));
    format_char(f, '\n');
  }
}

HAK_COLD bool hak_profile_arm(uint32_t seconds) {
  if (memcheck_on()) return false;
  site_start();
  thread_enter(); /* first: the repair in a fork's child disarms what its parent had armed */
  if (seconds == 0) store_relaxed(&event_until_ms, 0);
  else event_arm(os_now_ms() + (uint64_t)seconds * 1000);
  if (seconds != 0) watch_heaps(); /* each thread ends that itself */
  thread_leave();
  return true;
}

/* --- mappings ----------------------------------------------------------------------------- */

_Static_assert(2 * BUILD_ID_MOST + MAPPING_LINE + sizeof "mapping  \n" <= WRITER_ROOM, "no line is longer");
HAK_COLD void profile_mappings(writer_t *w, mappings_t *all, size_t room) {
  mapping_t m;
  while (w->room >= room && mappings_next(all, &m)) {
    format_t *f = writer(w);
    format_text(f, "mapping ");
    format_text(f, m.build_id[0] != '\0' ? m.build_id : "-");
    format_char(f, ' ');
    format_text(f, m.line);
    format_char(f, '\n');
  }
}

/* --- the whole ---------------------------------------------------------------------------- */

HAK_COLD void profile_begin(writer_t *w, uint64_t process) {
  line_number(w, "hakmem-snapshot", 1);
  line_number(w, "process", process);
  line_number(w, "time", os_wall_ns() / 1000000000);
  format_t *f = writer(w);
  format_text(f, "program");
  word_address(f, os_program());
  format_char(f, '\n');
}

HAK_COLD bool profile_end(writer_t *w) {
  format_text(writer(w), "end\n");
  return writer_flush(w);
}

HAK_COLD bool hak_profile_write(int fd) {
  writer_t w;
  mappings_t all;
  hak_stats_t stats;
  HAK_ALIGNED(MODULE_COPY_ALIGN) char page[MODULE_COPY];
  int saved = errno;
  writer_open(&w, fd);
  profile_begin(&w, os_process_id());
  line_number(&w, "sample_bytes", sample_rate);
  profile_census(&w, &stats);
  profile_heaps(&w, 0);
  write_samples(&w);
  pinned_write(&w);
  write_counted(&w);
  write_events(&w);
  write_rows(&w);
  write_sites(&w);
  mappings_open(&all, page);
  profile_mappings(&w, &all, 0);
  mappings_close(&all);
  bool good = profile_end(&w);
  if (good) errno = saved;
  return good;
}

HAK_COLD void profile_at_exit(void) {
  const char *path = option_path(PATH_profile);
  int fd = writer_file(path);
  if (fd < 0 || !hak_profile_write(fd)) line_write("cannot write the file that HAKMEM_PROFILE names");
  if (fd >= 0) close(fd);
}

HAK_COLD uint32_t hak_tag_set(uint32_t tag) {
  uint32_t before = site_tag;
  site_tag = tag;
  return before;
}
