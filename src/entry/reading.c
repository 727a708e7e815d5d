#include "entry/reading.h"

#include "base/format.h"
#include "kit/closed.h"
#include "os/file.h"
#include "os/module.h"
#include "os/os.h"
#include "os/probe.h"

/* --- samples ------------------------------------------------------------------------------ */

/* Reads the record; false if it changed meanwhile. */
static bool read_record(const sample_t *sample, reading_t *r) {
  uint32_t before = load_acquire(&sample->state), place = load_acquire(&sample->place);
  r->address = (uintptr_t)region_address(r->unit) + (uintptr_t)place * HAK_GRANULE;
  r->chance = load_acquire(&sample->chance);
  r->site = load_acquire(&sample->site);
  r->tag = load_acquire(&sample->tag);
  r->asked = load_acquire(&sample->asked);
  r->born = load_acquire(&sample->born);
  r->state = (sample_state_t)(before & (((uint32_t)1 << SAMPLE_STATE_BITS) - 1));
  return load_acquire(&sample->state) == before;
}

/* Reads the size and class of the record's block; false if there is no block, or it is not live. */
static bool read_block(reading_t *r) {
  const unit_t *head = unit_head(r->unit);
  uint8_t kind = load_acquire(&head->kind);
  unsigned c = load_relaxed(&head->size_class);
  r->size_class = kind == UNIT_LARGE ? CLASS_NONE : c;
  if (kind == UNIT_LARGE) return (r->size = load_relaxed(&head->bytes)) != 0;
  if (kind != UNIT_SLAB || c >= CLASS_COUNT) return false;
  r->size = class_info[c].size;
  return r->state == SAMPLE_LIVE || (r->state == SAMPLE_QUIET && region_is_live((const void *)r->address));
}

HAK_COLD bool reading_next(reading_t *r) {
  if (r->units == 0) r->units = sample_rate != 0 ? load_acquire(&region.units) : 0;
  else r->unit++;
  for (; r->unit < r->units; r->unit++) {
    const sample_t *sample = sample_of(r->unit);
    if (sample_state(sample) != SAMPLE_NONE && read_record(sample, r) && r->state != SAMPLE_NONE && read_block(r)) return true;
  }
  return false;
}

/* --- mappings ----------------------------------------------------------------------------- */

/* A filter of the program's own may end the process if a file is opened after it is set. */
HAK_COLD void mappings_open(mappings_t *m, char *page) {
  mappings_from(m, load_relaxed(&os_filters) != 0 ? -1 : file_mappings(), -1, page);
}

HAK_COLD void mappings_from(mappings_t *m, int file, int memory, char *page) {
  m->file = file;
  m->memory = memory;
  m->page = page;
  m->at = 0;
  m->closed = 0;
  m->used = m->filled = 0;
}

HAK_COLD void mappings_close(mappings_t *m) { file_close(m->file); }

static HAK_COLD bool fill_block(mappings_t *m) {
  long bytes = file_pread(m->file, m->block, sizeof m->block, m->at);
  m->used = 0;
  m->filled = bytes > 0 ? bytes : 0;
  m->at += (uint64_t)m->filled;
  return m->filled > 0;
}

static HAK_COLD bool next_line(mappings_t *m, char *line, size_t size) {
  size_t used = 0;
  while (m->used < m->filled || fill_block(m)) {
    char c = m->block[m->used++];
    line[used] = '\0';
    if (c == '\n') return true;
    if (used + 1 < size) line[used++] = c;
  }
  return false;
}

/* Advances the text past the number. */
static uint64_t take_hex(const char **text) {
  for (uint64_t value = 0;; (*text)++) {
    char c = **text;
    if (c >= '0' && c <= '9') value = value * 16 + (uint64_t)(c - '0');
    else if (c >= 'a' && c <= 'f') value = value * 16 + (uint64_t)(c - 'a' + 10);
    else return value;
  }
}

/* The rest of the text, from its next word. */
static const char *next_word(const char *text) {
  while (*text != ' ' && *text != '\0') text++;
  while (*text == ' ') text++;
  return text;
}

/* "start-end flags offset device inode path"; false if it maps no code. */
static bool line_parse(mapping_t *m) {
  const char *at = m->line;
  m->start = (uintptr_t)take_hex(&at);
  if (*at++ != '-') return false;
  m->end = (uintptr_t)take_hex(&at);
  const char *flags = next_word(at);
  if (flags[0] == '\0' || flags[1] == '\0' || flags[2] != 'x') return false;
  at = next_word(flags);
  m->offset = take_hex(&at);
  m->path = next_word(next_word(next_word(at)));
  return true;
}

/* A module may be unloaded meanwhile, so its headers are copied; if the kernel copies nothing, they are read in place. */
static bool find_module(const mappings_t *all, uintptr_t text, module_t *module) {
  uintptr_t start;
  if (!module_place(text, &start)) return false;
  bool copied =
      all->memory >= 0 ? file_copy(all->memory, all->page, (const void *)start, MODULE_COPY) : probe_copy(all->page, start, MODULE_COPY);
  if (copied) return module_of_copy(all->page, module);
  return all->memory < 0 && !probe_copy(all->page, (uintptr_t)&start, sizeof start) && module_find(text, module);
}

static HAK_COLD void write_build_id(mapping_t *m, const uint8_t *id, size_t bytes) {
  static const char digits[] = "0123456789abcdef";
  for (size_t i = 0; i < bytes; i++) {
    m->build_id[2 * i] = digits[id[i] >> 4];
    m->build_id[2 * i + 1] = digits[id[i] & 15];
  }
  m->build_id[2 * bytes] = '\0';
}

static HAK_COLD void read_build_id(const mappings_t *all, mapping_t *m) {
  module_t module;
  const uint8_t *id = NULL;
  size_t bytes = find_module(all, m->start, &module) ? module_build_id(&module, &id) : 0;
  write_build_id(m, id, bytes > BUILD_ID_MOST ? 0 : bytes);
}

_Static_assert(CLOSED_ID <= BUILD_ID_MOST, "an id fits");
static void put_hex(format_t *f, uint64_t value, char behind) {
  char text[24];
  format_t digits;
  format_init(&digits, text, sizeof text);
  format_hex(&digits, value);
  format_text(f, text + 2);
  format_char(f, behind);
}

/* In the form of the kernel's line for a file without a device. */
static HAK_COLD bool next_closed(mappings_t *all, mapping_t *m) {
  const code_t *code = closed_at(all->closed++);
  format_t f;
  if (code == NULL) return false;
  format_init(&f, m->line, sizeof m->line);
  put_hex(&f, code->start, '-');
  put_hex(&f, code->end, ' ');
  format_text(&f, "r-xp ");
  put_hex(&f, code->offset, ' ');
  format_text(&f, "00:00 0 ");
  format_text(&f, code->path);
  write_build_id(m, code->id, code->id_bytes);
  return line_parse(m);
}

HAK_COLD bool mappings_next(mappings_t *m, mapping_t *mapping) {
  while (next_line(m, mapping->line, sizeof mapping->line)) {
    if (!line_parse(mapping) || mapping->start >= CLOSED_START) continue; /* the kernel's own mappings, such as vsyscall, are above that */
    read_build_id(m, mapping);
    return true;
  }
  return next_closed(m, mapping);
}
