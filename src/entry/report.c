/* report.c - statistics and options as text, JSON and the structures of libc.
 *
 * A process that is out of memory may ask for a report, so reports neither allocate nor use stdio; only malloc_info does, since its
 * caller passes a FILE.  Text and JSON show the same figures from one table: a new figure takes one line there. */
#include "entry/entry.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>
#if HAK_OVERRIDE && defined(__GLIBC__)
#include <malloc.h>
#endif

#include "base/format.h"
#include "os/file.h"
#include "os/line.h"
#include "kit/pressure.h"
#include "os/os.h"
#include "slab/class.h"
#include "entry/writer.h"
#include "front/census.h"

static HAK_COLD void write_json_number(writer_t *w, const char *name, uint64_t value, bool last) {
  format_t *f = writer(w);
  format_text(f, "\"");
  format_text(f, name);
  format_text(f, "\": ");
  format_unsigned(f, value);
  format_text(f, last ? "" : ", ");
}

/* --- figures ----------------------------------------------------------------------------- */

/* Uses no libc call that is a cancellation point, since callers hold locks. */
static uint64_t mappings_now(void) {
  uint64_t lines = 0, at = 0;
  char block[1024];
  int file = file_mappings();
  for (long n; (n = file_pread(file, block, sizeof block, at)) > 0; at += (uint64_t)n)
    for (long i = 0; i < n; i++) lines += block[i] == '\n';
  file_close(file);
  return lines;
}

/* Adds the resident set and the number of mappings, from /proc.  A filter of the program's own may end the process if another file is
 * opened: under one, the mappings stay 0. */
static void stats_add_os(hak_stats_t *stats) {
  char text[256];
  bool there = os_read_file("/proc/thread-self/statm", text, sizeof text) > 0; /* the first thread may have ended */
  if (there || os_read_file("/proc/self/statm", text, sizeof text) > 0) {
    const char *at = strchr(text, ' ');
    stats->resident = decimal_read(at != NULL ? at + 1 : "") * os_page_size();
  }
  if (load_relaxed(&os_filters) != 0) return;
  stats->mappings = mappings_now();
}

static HAK_COLD void stats_fill(hak_stats_t *stats, hak_class_stats_t *of_class) {
  int saved = errno;
  census_take(stats, of_class);
  stats_add_os(stats);
  errno = saved;
}

/* The sizes that a caller may state for its hak_stats_t, of any version; a larger one is taken for an uninitialized word. */
#define STATS_LEAST (offsetof(hak_stats_t, requested) + sizeof(uint64_t))
#define STATS_MOST 4096
_Static_assert(sizeof(hak_stats_t) % sizeof(uint64_t) == 0 && sizeof(hak_stats_t) <= STATS_MOST, "a size that callers may say");

HAK_COLD bool hak_stats_get(hak_stats_t *stats) {
  size_t size = stats->struct_size;
  if (size < STATS_LEAST || size > STATS_MOST || size % sizeof(uint64_t) != 0) {
    errno = EINVAL;
    return false;
  }
  hak_stats_t known;
  stats_fill(&known, NULL);
  size_t filled = size < sizeof known ? size : sizeof known;
  known.struct_size = (uint32_t)filled;
  memcpy(stats, &known, filled);
  memset((char *)stats + filled, 0, size - filled);
  return true;
}

HAK_COLD bool hak_stats_class(uint32_t size_class, hak_class_stats_t *stats) {
  if (size_class >= CLASS_COUNT) {
    errno = EINVAL;
    return false;
  }
  hak_stats_t all;
  hak_class_stats_t of_class[CLASS_COUNT];
  census_take(&all, of_class);
  *stats = of_class[size_class];
  return true;
}

HAK_COLD bool hak_stats_heap(uint32_t heap, hak_heap_stats_t *stats) {
  if (census_heap(heap, stats)) return true;
  errno = EINVAL;
  return false;
}

/* Every figure of hak_stats_t, for both reports. Each has one pointer only, since a pointer is a relocation when the process starts. */
static const struct {
  const char *name; /* followed, after its terminating 0, by the text */
  uint16_t offset;
  bool bytes;
} figures[] = {
#define FIGURE(field, bytes, text) {#field "\0" text, offsetof(hak_stats_t, field), bytes}
    FIGURE(requested, true, "requested (estimate)"),
    FIGURE(live, true, "live blocks"),
    FIGURE(cached, true, "cached in bins"),
    FIGURE(remote, true, "freed by others, not collected"),
    FIGURE(slab_free, true, "free in slabs"),
    FIGURE(span_free, true, "free units, between spans"),
    FIGURE(committed, true, "= block memory in all"),
    FIGURE(purge_pending, true, "of it waiting to be purged"),
    FIGURE(metadata, true, "metadata"),
    FIGURE(reserved, true, "addresses mapped"),
    FIGURE(resident, true, "resident set of the process"),
    FIGURE(superslabs, false, "superslabs: 2 MiB of block memory each"),
    FIGURE(slabs, false, "slabs: blocks of one size class side by side"),
    FIGURE(large_blocks, false, "large blocks"),
    FIGURE(mappings, false, "mappings of the process"),
    FIGURE(heaps, false, "heaps: one for each thread that allocates, and named ones"),
    FIGURE(heaps_orphaned, false, "of them orphans: of threads that have ended"),
    FIGURE(bin_hits, false, "bin hits"),
    FIGURE(refills, false, "refills"),
    FIGURE(refill_blocks, false, "blocks brought"),
    FIGURE(flushes, false, "flushes"),
    FIGURE(flush_blocks, false, "blocks given back"),
    FIGURE(remote_frees, false, "remote frees"),
    FIGURE(large_allocs, false, "large allocations"),
    FIGURE(large_frees, false, "large frees"),
    FIGURE(bins_grown, false, "bins made larger"),
    FIGURE(bins_shrunk, false, "bins made smaller"),
    FIGURE(purged, true, "free units given back"),
    FIGURE(holes_purged, true, "holes given back: free pages in slabs"),
    FIGURE(purged_again, true, "given back as the heap grew, and needed again"),
    FIGURE(populated, true, "slabs brought in by one call"),
    FIGURE(lead_slabs, false, "slabs taken for HAKMEM_LEAD"),
    FIGURE(superslabs_moved, false, "superslabs whose pages moved"),
    FIGURE(superslabs_huge, false, "superslabs that may be huge"),
    FIGURE(huge_trials, false, "huge pages timed"),
    FIGURE(huge_losses, false, "huge pages that were too slow"),
    FIGURE(huge_price_ns, false, "ns for 2 MiB as a huge page"),
    FIGURE(small_price_ns, false, "ns for 2 MiB as small pages"),
    FIGURE(guards_left_out, false, "guards left out"),
    FIGURE(keeper_starts, false, "starts of the keeper, which gives memory back"),
    FIGURE(sys_mmap, false, "mmap calls"),
    FIGURE(sys_munmap, false, "munmap calls"),
    FIGURE(sys_mprotect, false, "mprotect calls"),
    FIGURE(sys_madvise, false, "madvise calls"),
    FIGURE(sys_mremap, false, "mremap calls"),
    FIGURE(sys_other, false, "other calls"),
    FIGURE(limit, true, "the nearest memory limit"),
    FIGURE(limit_use, true, "used of that limit"),
    FIGURE(limit_level, false, "how near it is, 0 (not near) to 3 (urgent)"),
    FIGURE(limit_given, true, "given back near a limit"),
    FIGURE(limit_percent, false, "percent of the limit, the most in use then"),
    FIGURE(limit_looks, false, "checks of limits"),
    FIGURE(limit_refused, false, "refusals for HAKMEM_LIMIT_HARD"),
#undef FIGURE
};
#define FIGURE_COUNT (sizeof figures / sizeof figures[0])

static uint64_t figure_of(const hak_stats_t *stats, size_t i) {
  uint64_t value;
  memcpy(&value, (const char *)stats + figures[i].offset, sizeof value);
  return value;
}

/* --- text and JSON ----------------------------------------------------------------------- */

static void format_padded(format_t *f, uint64_t value, unsigned width) {
  unsigned digits = 1;
  for (uint64_t rest = value; rest >= 10; rest /= 10) digits++;
  for (; digits < width; digits++) format_char(f, ' ');
  format_unsigned(f, value);
}

static void format_row(format_t *f, const uint64_t *columns, size_t count) {
  for (size_t i = 0; i < count; i++) format_padded(f, columns[i], i == 0 ? 8 : 11);
  format_char(f, '\n');
}

/* "memory.current was 91 % of memory.max".  Memory allocated since the last reading counts, so it may exceed what the kernel allows. */
static HAK_COLD void write_reason(format_t *f) {
  pressure_source_t source = (pressure_source_t)load_relaxed(&pressure.given_source);
  uint32_t percent = load_relaxed(&pressure.given_percent);
  format_text(f, pressure_use_name(source));
  format_text(f, percent > 100 ? " would have been " : " was ");
  format_unsigned(f, percent);
  format_text(f, " % of ");
  format_text(f, pressure_limit_name(source));
}

static HAK_COLD void text_limits(writer_t *w, const hak_stats_t *stats) {
  if (stats->limit_given == 0) return;
  format_t *f = writer(w);
  format_text(f, "gave back ");
  format_unsigned(f, stats->limit_given >> 20);
  format_text(f, " MiB: ");
  write_reason(f);
  format_char(f, '\n');
}

static HAK_COLD void text_classes(writer_t *w, const hak_class_stats_t *of_class) {
  format_text(writer(w), "   class      slabs       live     cached       free     remote    refills    flushes\n");
  for (unsigned c = 0; c < CLASS_COUNT; c++) {
    const hak_class_stats_t *s = &of_class[c];
    if (s->slabs == 0 && s->refills == 0) continue;
    const uint64_t columns[] = {s->block_size,  s->slabs,         s->live_blocks, s->cached_blocks,
                                s->free_blocks, s->remote_blocks, s->refills,     s->flushes};
    format_row(writer(w), columns, sizeof columns / sizeof columns[0]);
  }
}

static HAK_COLD void text_heaps(writer_t *w) {
  hak_heap_stats_t h;
  const heap_t *at = NULL;
  format_text(writer(w), "    heap     orphan      slabs   slab KiB cached KiB     remote    refills    flushes\n");
  for (uint32_t i = 0; census_next_heap(&at, &h); i++) {
    const uint64_t columns[] = {i, h.orphaned, h.slabs, h.slab_bytes / 1024, h.cached / 1024, h.remote_frees, h.refills, h.flushes};
    format_row(writer(w), columns, sizeof columns / sizeof columns[0]);
  }
}

static HAK_COLD void text_named(writer_t *w) {
  census_named_t h;
  const heap_t *at = NULL;
  for (bool first = true; census_next_named(&at, &h); first = false) {
    if (first) format_text(writer(w), "live KiB   peak KiB  limit KiB   slab KiB  large KiB     allocs    refused  named heap\n");
    const uint64_t columns[] = {h.live / 1024,        h.peak / 1024, h.limit / 1024, h.slab_bytes / 1024,
                                h.large_bytes / 1024, h.allocs,      h.refused};
    format_t *f = writer(w);
    for (size_t i = 0; i < sizeof columns / sizeof columns[0]; i++) format_padded(f, columns[i], i == 0 ? 8 : 11);
    format_text(f, "  ");
    format_text(f, h.name);
    format_char(f, '\n');
  }
}

HAK_COLD bool hak_stats_text(int fd) {
  hak_stats_t stats;
  hak_class_stats_t of_class[CLASS_COUNT];
  stats_fill(&stats, of_class);
  writer_t w;
  writer_open(&w, fd);
  format_text(writer(&w), "hakmem statistics (bytes in KiB)\n");
  for (size_t i = 0; i < FIGURE_COUNT; i++) {
    format_t *f = writer(&w);
    uint64_t value = figure_of(&stats, i);
    format_padded(f, figures[i].bytes ? (value + 1023) / 1024 : value, 12);
    format_text(f, figures[i].bytes ? " KiB  " : "      ");
    format_text(f, figures[i].name + strlen(figures[i].name) + 1);
    format_char(f, '\n');
  }
  text_limits(&w, &stats);
  text_classes(&w, of_class);
  text_heaps(&w);
  text_named(&w);
  return writer_flush(&w);
}

static HAK_COLD void json_classes(writer_t *w, const hak_class_stats_t *of_class) {
  format_text(writer(w), "\"class_stats\": [");
  for (unsigned c = 0; c < CLASS_COUNT; c++) {
    const hak_class_stats_t *s = &of_class[c];
    format_text(writer(w), c == 0 ? "\n  {" : ",\n  {");
    write_json_number(w, "block_size", s->block_size, false);
    write_json_number(w, "slab_size", s->slab_size, false);
    write_json_number(w, "slabs", s->slabs, false);
    write_json_number(w, "live_blocks", s->live_blocks, false);
    write_json_number(w, "cached_blocks", s->cached_blocks, false);
    write_json_number(w, "free_blocks", s->free_blocks, false);
    write_json_number(w, "remote_blocks", s->remote_blocks, false);
    write_json_number(w, "refills", s->refills, false);
    write_json_number(w, "flushes", s->flushes, true);
    format_text(writer(w), "}");
  }
  format_text(writer(w), "]");
}

static HAK_COLD void json_heaps(writer_t *w) {
  hak_heap_stats_t h;
  const heap_t *at = NULL;
  format_text(writer(w), ",\n\"heap_stats\": [");
  for (uint32_t i = 0; census_next_heap(&at, &h); i++) {
    format_text(writer(w), i == 0 ? "\n  {" : ",\n  {");
    write_json_number(w, "orphaned", h.orphaned, false);
    write_json_number(w, "slabs", h.slabs, false);
    write_json_number(w, "slab_bytes", h.slab_bytes, false);
    write_json_number(w, "cached", h.cached, false);
    write_json_number(w, "refills", h.refills, false);
    write_json_number(w, "refill_blocks", h.refill_blocks, false);
    write_json_number(w, "flushes", h.flushes, false);
    write_json_number(w, "flush_blocks", h.flush_blocks, false);
    write_json_number(w, "remote_frees", h.remote_frees, true);
    format_text(writer(w), "}");
  }
  format_text(writer(w), "]");
}

static HAK_COLD void json_named(writer_t *w) {
  census_named_t h;
  const heap_t *at = NULL;
  format_text(writer(w), ",\n\"named_heaps\": [");
  for (bool first = true; census_next_named(&at, &h); first = false) {
    format_text(writer(w), first ? "\n  {\"name\": \"" : ",\n  {\"name\": \"");
    format_text(writer(w), h.name);
    format_text(writer(w), "\", ");
    write_json_number(w, "limit", h.limit, false);
    write_json_number(w, "live", h.live, false);
    write_json_number(w, "peak", h.peak, false);
    write_json_number(w, "slab_bytes", h.slab_bytes, false);
    write_json_number(w, "large_bytes", h.large_bytes, false);
    write_json_number(w, "large_blocks", h.large_blocks, false);
    write_json_number(w, "allocs", h.allocs, false);
    write_json_number(w, "refused", h.refused, true);
    format_text(writer(w), "}");
  }
  format_text(writer(w), "]");
}

HAK_COLD bool hak_stats_json(int fd) {
  hak_stats_t stats;
  hak_class_stats_t of_class[CLASS_COUNT];
  stats_fill(&stats, of_class);
  writer_t w;
  writer_open(&w, fd);
  format_text(writer(&w), "{\"version\": \"");
  format_text(writer(&w), hak_version());
  format_text(writer(&w), "\", ");
  write_json_number(&w, "pid", os_process_id(), false);
  write_json_number(&w, "classes", CLASS_COUNT, false);
  for (size_t i = 0; i < FIGURE_COUNT; i++) write_json_number(&w, figures[i].name, figure_of(&stats, i), false);
  format_text(writer(&w), "\"limit_reason\": \"");
  if (stats.limit_given != 0) write_reason(writer(&w));
  format_text(writer(&w), "\", ");
  json_classes(&w, of_class);
  json_heaps(&w);
  json_named(&w);
  format_text(writer(&w), "}\n");
  return writer_flush(&w);
}

static HAK_COLD void json_option(writer_t *w, const option_info_t *info, bool path, bool first) {
  format_t *f = writer(w);
  format_text(f, first ? "[\n {\"name\": \"" : ",\n {\"name\": \"");
  format_text(f, info->name);
  const char *type = path ? "path" : info->min == 0 && info->max == 1 ? "switch" : "number";
  format_text(f, "\", \"type\": \"");
  format_text(f, type);
  format_text(f, "\"");
  if (!path) {
    format_text(f, ", \"default\": ");
    format_signed(f, info->fallback);
    format_text(f, ", \"min\": ");
    format_signed(f, info->min);
    format_text(f, ", \"max\": ");
    format_signed(f, info->max);
  } else {
    format_text(f, ", \"default\": \"\", \"min\": null, \"max\": null");
  }
  bool changes = info->at_run_time && !HAK_SECURE; /* the secure library seals its options */
  format_text(f, changes ? ", \"runtime\": true, \"help\": \"" : ", \"runtime\": false, \"help\": \"");
  format_text(writer(w), option_help(info));
  format_text(writer(w), "\"}");
}

HAK_COLD bool hak_options_json(int fd) {
  writer_t w;
  writer_open(&w, fd);
  for (unsigned i = 0; i < OPTION_COUNT; i++) json_option(&w, &option_info[i], false, i == 0);
  for (unsigned i = 0; i < PATH_COUNT; i++) json_option(&w, &option_path_info[i], true, false);
  format_text(writer(&w), "]\n");
  return writer_flush(&w);
}

/* --- at exit ----------------------------------------------------------------------------- */

static bool no_standard_error;
HAK_COLD void report_at_start(void) { no_standard_error = fcntl(2, F_GETFD) < 0; }

HAK_COLD void report_at_exit(void) {
  const char *path = option_path(PATH_stats_file);
  bool to_file = path[0] != '\0', json = to_file || option_get(OPTION_stats_json) != 0;
  int fd = to_file ? writer_file(path) : no_standard_error ? -1 : 2;
  bool good = fd >= 0 && (json ? hak_stats_json(fd) : hak_stats_text(fd));
  if (to_file && !good) line_write("cannot write the file that HAKMEM_STATS_FILE names");
  if (to_file && fd >= 0) close(fd);
}

/* --- libc's names ------------------------------------------------------------------------ */

/* glibc keeps `pad` bytes at the top of its heap; here no heap has a top. */
HAK_COLD int hak_malloc_trim(size_t pad) {
  (void)pad;
  return hak_collect(true) > 0;
}

HAK_COLD void hak_malloc_stats(void) { (void)hak_stats_text(2); }

/* glibc's parameters run from M_ARENA_MAX, -8, to M_TRIM_THRESHOLD, -1, and M_MXFAST, 1.  All are hints for its own arenas.  They are
 * accepted, since programs take a refusal for an error, and have no effect. */
HAK_COLD int hak_mallopt(int parameter, int value) { return (void)value, (parameter >= -8 && parameter <= -1) || parameter == 1; }

static void xml_number(format_t *f, const char *before, uint64_t value, const char *after) {
  format_text(f, before);
  format_unsigned(f, value);
  format_text(f, after);
}

/* As glibc's: what the system has given to heaps does not include the blocks that are mapped alone, which are a part of the whole. */
HAK_COLD int hak_malloc_info(int options, FILE *stream) {
  if (options != 0) {
    errno = EINVAL;
    return EINVAL;
  }
  hak_stats_t stats;
  hak_class_stats_t of_class[CLASS_COUNT];
  stats_fill(&stats, of_class);
  uint64_t mapped = large_bytes(&stats, of_class), of_heaps = stats.committed > mapped ? stats.committed - mapped : 0;
  char line[WRITER_ROOM];
  format_t f;
  fputs("<malloc version=\"1\">\n<heap nr=\"0\">\n<sizes>\n", stream);
  for (unsigned c = 0; c < CLASS_ZERO; c++) {
    uint64_t count = of_class[c].free_blocks + of_class[c].cached_blocks + of_class[c].remote_blocks;
    if (count == 0) continue;
    format_init(&f, line, sizeof line);
    xml_number(&f, "<size from=\"", c == 0 ? 1 : of_class[c - 1].block_size + 1, "\"");
    xml_number(&f, " to=\"", of_class[c].block_size, "\"");
    xml_number(&f, " total=\"", count * of_class[c].block_size, "\"");
    xml_number(&f, " count=\"", count, "\"/>\n");
    fputs(line, stream);
  }
  format_init(&f, line, sizeof line);
  xml_number(&f, "</sizes>\n<total type=\"fast\" count=\"0\" size=\"", stats.cached, "\"/>\n");
  xml_number(&f, "<total type=\"rest\" count=\"0\" size=\"", stats.slab_free + stats.remote + stats.span_free, "\"/>\n");
  xml_number(&f, "<system type=\"current\" size=\"", of_heaps, "\"/>\n</heap>\n");
  xml_number(&f, "<total type=\"mmap\" count=\"", stats.large_blocks, "\"");
  xml_number(&f, " size=\"", mapped, "\"/>\n");
  xml_number(&f, "<system type=\"current\" size=\"", of_heaps, "\"/>\n</malloc>\n");
  return fputs(line, stream) < 0 ? -1 : 0;
}

HAK_COLD hak_mallinfo_t hak_mallinfo2(void) {
  hak_stats_t stats;
  census_take(&stats, NULL);
  return (hak_mallinfo_t){
      .arena = stats.committed,
      .ordblks = stats.slabs,
      .hblks = stats.large_blocks,
      .usmblks = 0,
      .fsmblks = stats.cached,
      .uordblks = stats.live,
      .fordblks = stats.committed > stats.live ? stats.committed - stats.live : 0,
      .keepcost = stats.purge_pending,
  };
}

#if HAK_OVERRIDE

int malloc_trim(size_t pad) HAK_ALIAS(hak_malloc_trim);
int malloc_info(int options, FILE *stream) HAK_ALIAS(hak_malloc_info);
void malloc_stats(void) HAK_ALIAS(hak_malloc_stats);
int mallopt(int parameter, int value) HAK_ALIAS(hak_mallopt);

#if defined(__GLIBC__)
/* The fields of mallinfo are ints: a larger figure stops at INT_MAX, where glibc's wraps around. */
static int to_int(size_t value) { return value > INT32_MAX ? INT32_MAX : (int)value; }

HAK_COLD struct mallinfo report_mallinfo(void) {
  hak_mallinfo_t info = hak_mallinfo2();
  return (struct mallinfo){
      .arena = to_int(info.arena),
      .ordblks = to_int(info.ordblks),
      .hblks = to_int(info.hblks),
      .fsmblks = to_int(info.fsmblks),
      .uordblks = to_int(info.uordblks),
      .fordblks = to_int(info.fordblks),
      .keepcost = to_int(info.keepcost),
  };
}

struct mallinfo mallinfo(void) HAK_ALIAS(report_mallinfo);
#if __GLIBC_PREREQ(2, 33)
_Static_assert(sizeof(struct mallinfo2) == sizeof(hak_mallinfo_t), "hak_mallinfo_t is laid out as mallinfo2");
HAK_COLD HAK_EXPORT struct mallinfo2 mallinfo2(void) {
  hak_mallinfo_t info = hak_mallinfo2();
  struct mallinfo2 result;
  memcpy(&result, &info, sizeof result);
  return result;
}
#endif
#endif
#endif
