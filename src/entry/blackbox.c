/* blackbox.c - two optional reports of what holds the memory: the black box, a file that remains after the process has ended, however it
 * ended; and the window, a file without a name, for readers that may not trace the running process.
 *
 * The keeper alone writes them, so that no thread of the program waits for a disk; docs/insight.md describes the format. The black box is
 * mapped, so that it stays in reach when the process gives up the right to open it. The kernel copies into it (file_copy), so that a
 * truncated file or a full disk is an error and does not end the process. An entry is a snapshot. Its head is written last, with the
 * snapshot's checksum: an entry that is torn or half overwritten has a wrong checksum, and the entries before it are intact.
 *
 * The window is one of the keeper's own descriptors (file_apart): the program can neither see nor close it and loses no number to it; no
 * child and no program that the process becomes inherits it; and it ends with the keeper. So it is written
 * through its descriptor, which nobody can change. A reader may also write to it: a change of one word asks for a new entry. The keeper
 * only compares that word.
 *
 * If the samples do not fit, they are thinned: a sample stays with the chance that it would have had if fewer bytes had been sampled from
 * the start. So the estimates stay unbiased, and their stated errors grow. A hash of the address decides, alike in each entry. */
#include "entry/entry.h"

#include <string.h>

#include "base/format.h"
#include "entry/profile.h"
#include "front/keeper.h"
#include "front/thread.h"
#include "kit/random.h"
#include "os/cgroup.h"
#include "os/file.h"
#include "os/line.h"
#include "os/os.h"
#include "os/probe.h"

#define HEAD_BYTES 256 /* at the start of the file, and of each entry */
#define SLOTS 4
#define WINDOW_SLOTS 2                         /* one is read while the other is written */
#define ASK_AT (HEAD_BYTES - sizeof(uint64_t)) /* in the window: the word that readers change to request an entry */
#define SLOT_BYTES ((size_t)255 << 10)
#define BOX_BYTES ((size_t)1 << 20)
_Static_assert(HEAD_BYTES + SLOTS * SLOT_BYTES <= BOX_BYTES, "all entries have room");
#define ENTRY_TEXT (SLOT_BYTES - HEAD_BYTES)
#define MAPPINGS_ROOM (SLOT_BYTES / 8 * 7) /* the names of heaps leave this much for what follows, */
#define SITES_ROOM (SLOT_BYTES / 4 * 3)    /* and mappings leave this much for samples and sites */
#define THINNED_MOST_SHIFT 16

/* When an entry is due. */
#define EVERY_MS 10000
#define GROWTH_LEAST ((uint64_t)1 << 20)
#define GONE_MOST_MS 1000 /* the longest wait, at the program's start, for the file of a process that is gone */
static const uint8_t levels[] = {80, 90, 95}; /* percent of the group's limit */
enum { LEVELS = sizeof levels };

/* Where entries go. */
typedef struct shelf {
  bool there;
  char *mapped;   /* the file; NULL for the window */
  uint32_t count; /* entries so far */
  /* As of the last entry. */
  uint64_t ms, resident;
  unsigned level;
} shelf_t;

/* Only the keeper uses it. It is kept apart from what slow paths read. */
static HAK_APART struct {
  uint32_t generation; /* of the process that all this belongs to */
  uint64_t process;
  bool tried;     /* to take the file */
  char *page;     /* for copies of modules; after it a bit for each site of an entry */
  unsigned shift; /* how much the last entry was thinned */
  shelf_t disk, window;
  uint64_t asked; /* the window's word when last read */
  /* Descriptors of this keeper. */
  int statm, current, limit, maps, memory, window_file;
} box;

#define SITE_WORDS (SITE_MOST / 64)
static uint64_t *site_bits(void) { return (uint64_t *)(void *)(box.page + PROBE_PAGE); }

/* --- what there is to see ------------------------------------------------------------------ */

typedef struct look {
  uint64_t ms, resident, group, limit; /* 0: not known, or no limit */
} look_t;

/* The number after the `skip`th space of the text; 0 if there is none, as in "max". */
static uint64_t number_in(const char *text, unsigned skip) {
  for (; skip > 0 && *text != '\0'; text++) skip -= *text == ' ';
  return decimal_read(text);
}

static uint64_t read_number(int file, unsigned skip) {
  char text[128];
  long bytes = file_pread(file, text, sizeof text - 1, 0);
  text[bytes > 0 ? bytes : 0] = '\0';
  return number_in(text, skip);
}

static look_t look_around(void) {
  uint64_t limit = read_number(box.limit, 0);
  if (limit >= CGROUP_NO_LIMIT_V1) limit = 0;
  return (look_t){os_now_ms(), read_number(box.statm, 1) * os_page_size(), read_number(box.current, 0), limit};
}

static unsigned level_of(const look_t *l) {
  unsigned level = 0;
  while (l->limit != 0 && level < LEVELS && l->group / 100 >= l->limit / 10000 * levels[level]) level++;
  return level;
}

static bool is_asked(void) {
  uint64_t word = 0;
  if (file_pread(box.window_file, &word, sizeof word, ASK_AT) != (long)sizeof word || word == box.asked) return false;
  box.asked = word;
  return true;
}

/* NULL if no entry is due. */
static const char *why_now(const shelf_t *to, const look_t *l) {
  if (to->count == 0) return "start";
  if (level_of(l) > to->level) return "limit";
  if (to->mapped == NULL && is_asked()) return "asked";
  if (l->ms - to->ms >= EVERY_MS) return "time";
  return l->resident > to->resident + to->resident / 20 && l->resident > to->resident + GROWTH_LEAST ? "growth" : NULL;
}

/* --- an entry ------------------------------------------------------------------------------ */

static void write_figures(writer_t *w, const look_t *l, const hak_stats_t *stats) {
  if (l->resident != 0) line_number(w, "resident", l->resident);
  if (l->group != 0) line_number(w, "group", l->group);
  if (l->limit != 0) line_number(w, "group_limit", l->limit);
  line_number(w, "free_spans", stats->purge_pending);
  line_number(w, "own", stats->metadata);
}

static void note_sites(uint32_t number) {
  for (const site_t *site; (site = site_at(number)) != NULL; number = racy_load(&site->parent)) {
    uint64_t *word = &site_bits()[number / 64], bit = (uint64_t)1 << number % 64;
    if ((*word & bit) != 0) return;
    *word |= bit;
  }
}

/* Returns whether the sample stays if one byte in `bytes` is sampled, and sets its chance to what it would then have been. */
static bool sample_stays(reading_t *r, uint64_t bytes) {
  uint64_t weight = r->chance == 0 ? r->size : (r->size << 22) / r->chance << 10;
  if (weight >= bytes) return true;
  uint64_t coin = random_mix(r->address) >> 32;
  if (coin >= (weight << 22) / (bytes >> 10)) return false;
  r->chance = (uint32_t)((r->size << 22) / (bytes >> 10));
  return r->chance != 0;
}

static void write_samples_thinned(writer_t *w, unsigned shift) {
  uint64_t bytes = sample_rate << shift;
  reading_t r = {0};
  memset(site_bits(), 0, SITE_WORDS * sizeof(uint64_t));
  line_number(w, "sample_bytes", bytes);
  if (shift != 0) line_number(w, "thinned", sample_rate);
  while (w->good && reading_next(&r)) {
    if (shift != 0 && !sample_stays(&r, bytes)) continue;
    profile_sample(w, &r);
    note_sites(r.site);
  }
  uint64_t sites = profile_sites(w).sites;
  for (uint32_t word = 0; word <= sites / 64 && w->good; word++) {
    for (uint64_t rest = site_bits()[word]; rest != 0; rest &= rest - 1) profile_site(w, word * 64 + (uint32_t)bits_lowest64(rest));
  }
}

static void write_body(writer_t *w, const look_t *l) {
  hak_stats_t stats;
  mappings_t all;
  profile_begin(w, box.process);
  profile_census(w, &stats);
  write_figures(w, l, &stats);
  profile_heaps(w, MAPPINGS_ROOM);
  mappings_from(&all, box.maps, box.memory, box.page);
  profile_mappings(w, &all, SITES_ROOM);
}

/* False if the entry cannot be written even when thinned the most. */
static bool write_thinned(writer_t *w) {
  const writer_t begun = *w;
  for (box.shift -= box.shift > 0; box.shift <= THINNED_MOST_SHIFT; box.shift++) {
    *w = begun;
    write_samples_thinned(w, box.shift);
    if (profile_end(w)) return true;
  }
  box.shift = 0;
  return false;
}

static void shelf_writer(writer_t *w, const shelf_t *to, size_t at, size_t room) {
  if (to->mapped != NULL) writer_into(w, box.memory, to->mapped + at, room);
  else writer_at(w, box.window_file, at, room);
}

static void write_head(writer_t *w, const shelf_t *to, size_t slot, const look_t *l, const char *why) {
  const uint32_t sum = w->sum;
  const size_t bytes = ENTRY_TEXT - w->room;
  shelf_writer(w, to, slot, HEAD_BYTES);
  format_t *f = writer(w);
  format_text(f, "entry");
  word_number(f, to->count);
  word_number(f, bytes);
  word_number(f, sum);
  word_number(f, os_wall_ns() / 1000000);
  word_number(f, l->resident);
  word_number(f, l->group);
  word_number(f, l->limit);
  format_char(f, ' ');
  format_text(f, why);
  format_char(f, '\n');
  (void)writer_flush(w);
}

static void shelf_look(shelf_t *to, const look_t *l) {
  writer_t w;
  const char *why = to->there ? why_now(to, l) : NULL;
  if (why == NULL) return;
  size_t slot = HEAD_BYTES + to->count % (to->mapped != NULL ? SLOTS : WINDOW_SLOTS) * SLOT_BYTES;
  shelf_writer(&w, to, slot + HEAD_BYTES, ENTRY_TEXT);
  write_body(&w, l);
  if (write_thinned(&w)) write_head(&w, to, slot, l, why);
  to->count++;
  to->ms = l->ms;
  to->resident = l->resident;
  to->level = level_of(l);
}

/* Each shelf has its own schedule: requests to the window must not push earlier entries out of the file. */
static void box_look(void) {
  look_t l = look_around();
  shelf_look(&box.disk, &l);
  shelf_look(&box.window, &l);
}

/* --- opening ------------------------------------------------------------------------------- */

/* In the keeper, which may still write to standard error. */
static void complain(const char *option, const char *why) {
  line_t line;
  format_t *f = line_begin(&line);
  format_text(f, option);
  format_text(f, why);
  line_end_at_once(&line);
}

static void say_whose(const shelf_t *to) {
  writer_t w;
  shelf_writer(&w, to, 0, ASK_AT);
  line_number(&w, "hakmem-blackbox", 1);
  line_number(&w, "process", box.process);
  line_number(&w, "head_bytes", HEAD_BYTES);
  line_number(&w, "slots", to->mapped != NULL ? SLOTS : WINDOW_SLOTS);
  line_number(&w, "slot_bytes", SLOT_BYTES);
  if (to->mapped == NULL) line_number(&w, "ask_at", ASK_AT);
  (void)writer_flush(&w);
}

/* Returns whether the file's owner has ended. The file of a killed process becomes free a little later: the kernel releases files in the
 * background. */
static bool owner_is_gone(const char *path) {
  static const char before[] = "\nprocess ";
  char text[128];
  int file = file_open(path);
  long bytes = file_pread(file, text, sizeof text - 1, 0);
  file_close(file);
  text[bytes > 0 ? bytes : 0] = '\0';
  const char *number = strstr(text, before);
  return number != NULL && !file_owner_is_there(number_in(number + sizeof before - 1, 0));
}

/* If another process has the file, such as the shell that runs this command, it stays that process's. */
static void file_take(void) {
  char path[PATH_ROOM];
  bool taken = false;
  writer_path(path, option_path(PATH_blackbox));
  box.disk.mapped = file_share(path, BOX_BYTES, &taken);
  for (uint32_t ms = 0; taken && ms < GONE_MOST_MS && owner_is_gone(path); ms++) {
    os_sleep_us(1000);
    box.disk.mapped = file_share(path, BOX_BYTES, &taken);
  }
  if (box.disk.mapped == NULL && !taken) complain("HAKMEM_BLACKBOX", ": the file cannot be written");
  box.disk.there = box.disk.mapped != NULL;
}

static bool names_process(const char *path) {
  for (; *path != '\0'; path++) {
    if (path[0] == '%' && path[1] == 'p') return true;
  }
  return false;
}

/* False if there is nothing to write to. */
static bool shelves_take(void) {
  const char *path = option_path(PATH_blackbox);
  box.process = os_process_id();
  if (box.page == NULL) box.page = os_map(PROBE_PAGE + SITE_WORDS * sizeof(uint64_t));
  if (box.page == NULL) return false;
  if (!box.tried && path[0] != '\0' && (box.generation == 0 || names_process(path))) file_take();
  box.tried = true;
  box.window = (shelf_t){.there = option_get(OPTION_window) != 0}; /* the previous keeper's window ended with it */
  return box.disk.there || box.window.there;
}

/* Opens the files of the process's group, or of the group around it whose limit is met first. */
static void group_open(void) {
  cgroup_t group;
  cgroup_text_t text;
  char path[CGROUP_PATH];
  box.current = box.limit = -1;
  if (!cgroup_find(&group, false, &text) || !cgroup_path(&group, CGROUP_FILE_MAX, path)) return;
  box.limit = file_open(path);
  if (cgroup_path(&group, CGROUP_FILE_CURRENT, path)) box.current = file_open(path);
}

/* Runs in a new keeper, before it is confined. */
static bool box_open(void) {
  if (box.generation != keeper_generation()) { /* the parent's file is not mapped here */
    char *page = box.page;
    memset(&box, 0, sizeof box);
    box.generation = keeper_generation();
    box.page = page;
  }
  bool opened = shelves_take();
  if (opened && !file_apart()) {
    complain(box.disk.there ? "HAKMEM_BLACKBOX" : "HAKMEM_WINDOW", ": needs Linux 5.9");
    opened = false;
  }
  if (!opened) {
    keeper_watch(NULL, NULL, false);
    return false;
  }
  box.statm = file_open("/proc/thread-self/statm");
  box.maps = file_mappings();
  box.memory = file_memory("hakmem");
  box.window_file = box.window.there ? file_memory("hakmem-window") : -1;
  group_open();
  box.asked = 0;
  if (box.disk.there && box.disk.count == 0) say_whose(&box.disk);
  box.window.there = box.window_file >= 0;
  if (box.window.there) say_whose(&box.window);
  return true;
}

HAK_COLD void blackbox_start(void) {
  if (HAK_SECURE || option_get(OPTION_keeper) == 0 || !os_thread_possible()) return;
  keeper_watch(box_open, box_look, option_get(OPTION_window) != 0 || names_process(option_path(PATH_blackbox)));
  thread_enter();
  thread_leave_with_upkeep();
}
