/* pprof.c - the heap's profile as pprof's protocol buffer, written by the process itself.
 *
 * The blocks of each size class are counted; the samples only determine how the count is divided among sites.  So there are two passes
 * over the samples: the first sums up what they stand for, the second writes each with its share.  Shares are differences of rounded
 * running sums, so that they sum to the count.  A block that is freed between the passes leaves its share to "(not sampled)"; one that
 * is allocated between them takes its share from those that follow.  Whatever changes, no share is negative, and the sums hold.
 *
 * The fields of a message may come in any order, and a text's number is the count of texts before it.  So everything is written as soon
 * as it is known, and little is kept.  The numbers of functions, mappings and locations rise from 1 without a gap, since some readers
 * use them as indexes.
 *
 * What was allocated while the process was armed is divided in the same way, among the events of each group (front/watch.h). */
#include "entry/entry.h"

#include <errno.h>
#include <string.h>

#include "hakmem/profile.h"
#include "entry/reading.h"
#include "entry/writer.h"
#include "front/census.h"
#include "front/named.h"
#include "front/watch.h"
#include "kit/site.h"
#include "os/os.h"

/* --- messages ------------------------------------------------------------------------------ */

/* Field numbers, by message: pprof's profile.proto. */
enum { PROFILE_TYPE = 1, PROFILE_SAMPLE, PROFILE_MAPPING, PROFILE_LOCATION, PROFILE_FUNCTION, PROFILE_TEXT, PROFILE_TIME = 9 };
enum { PROFILE_PERIOD_TYPE = 11, PROFILE_PERIOD, PROFILE_DEFAULT_TYPE = 14 };
enum { TYPE_KIND = 1, TYPE_UNIT };
enum { SAMPLE_LOCATION = 1, SAMPLE_VALUE, SAMPLE_LABEL };
enum { LABEL_KEY = 1, LABEL_TEXT, LABEL_NUMBER, LABEL_UNIT };
enum { MAPPING_ID = 1, MAPPING_START, MAPPING_END, MAPPING_OFFSET, MAPPING_FILE, MAPPING_BUILD_ID };
enum { LOCATION_ID = 1, LOCATION_MAPPING, LOCATION_ADDRESS, LOCATION_CALL };
enum { CALL_FUNCTION = 1 };
enum { FUNCTION_ID = 1, FUNCTION_NAME, FUNCTION_SYMBOL };
enum { WIRE_NUMBER = 0, WIRE_BYTES = 2, WIRE_BITS = 3 };

/* A message that is a field of another, or a text.  It is built here first, because its length precedes it. */
typedef struct message {
  format_t out;
  char text[WRITER_ROOM - 8];
} message_t;
/* Calls, five values and two labels, with their field numbers. */
_Static_assert(SITE_FRAMES * 5 + 5 * 11 + 2 * 20 < sizeof((message_t *)NULL)->text, "no message is longer");

static format_t *message(message_t *m) {
  format_init(&m->out, m->text, sizeof m->text);
  return &m->out;
}

static void put_varint(format_t *f, uint64_t value) {
  for (; value >= 0x80; value >>= 7) format_char(f, (char)(value | 0x80));
  format_char(f, (char)value);
}

static void put_number(format_t *f, unsigned field, uint64_t value) {
  put_varint(f, field << WIRE_BITS | WIRE_NUMBER);
  put_varint(f, value);
}

static void put_bytes(format_t *f, unsigned field, const format_t *content) {
  put_varint(f, field << WIRE_BITS | WIRE_BYTES);
  put_varint(f, content->used);
  for (size_t i = 0; i < content->used; i++) format_char(f, content->text[i]);
}

/* --- texts --------------------------------------------------------------------------------- */

enum {
  TEXT_NONE,
  TEXT_OBJECTS,
  TEXT_COUNT,
  TEXT_SPACE,
  TEXT_BYTES,
  TEXT_SAMPLES,
  TEXT_ALLOC_OBJECTS,
  TEXT_ALLOC_SPACE,
  TEXT_PERIOD,
  TEXT_TAG,
  TEXT_UNKNOWN,
  TEXT_NOT_SAMPLED,
  TEXTS
};
static const char texts[TEXTS][16] = {
    [TEXT_OBJECTS] = "inuse_objects",
    [TEXT_COUNT] = "count",
    [TEXT_SPACE] = "inuse_space",
    [TEXT_BYTES] = "bytes",
    [TEXT_SAMPLES] = "samples",
    [TEXT_ALLOC_OBJECTS] = "alloc_objects",
    [TEXT_ALLOC_SPACE] = "alloc_space",
    [TEXT_PERIOD] = "space",
    [TEXT_TAG] = "tag",
    [TEXT_UNKNOWN] = "(unknown)",
    [TEXT_NOT_SAMPLED] = "(not sampled)",
};

/* The least and the greatest second byte of a UTF-8 character, which are special after some lead bytes. */
static unsigned second_least(unsigned lead) { return lead == 0xe0 ? 0xa0 : (lead == 0xf0 ? 0x90 : 0x80); }
static unsigned second_most(unsigned lead) { return lead == 0xed ? 0x9f : (lead == 0xf4 ? 0x8f : 0xbf); }

/* The length of the text's first character; 0 if that is not well-formed UTF-8. */
static size_t utf8_length(const unsigned char *text) {
  unsigned lead = text[0];
  if (lead < 0x80) return 1;
  if (lead < 0xc2 || lead > 0xf4 || text[1] < second_least(lead) || text[1] > second_most(lead)) return 0;
  size_t length = lead < 0xe0 ? 2 : (lead < 0xf0 ? 3 : 4);
  for (size_t i = 2; i < length; i++) {
    if ((text[i] & 0xc0) != 0x80) return 0;
  }
  return length;
}

/* File names may hold any bytes, but readers reject a profile if one text is not well-formed UTF-8. */
static void put_text(format_t *f, const char *text) {
  while (*text != '\0') {
    size_t length = utf8_length((const unsigned char *)text);
    for (size_t i = 0; i < length; i++) format_char(f, text[i]);
    if (length == 0) format_char(f, '?');
    text += length != 0 ? length : 1;
  }
}

/* --- shares -------------------------------------------------------------------------------- */

/* A whole number to be divided in proportion to weights with a known sum. */
typedef struct shares {
  uint64_t total, given;
  uint64_t weight, passed; /* the sum of all; of those that have their share */
} shares_t;

static uint64_t shares_take(shares_t *s, uint64_t weight) {
  s->passed = weight < s->weight - s->passed ? s->passed + weight : s->weight;
  if (s->weight == 0) return 0;
  /* Neither operation decreases as `passed` grows.  Past 2^52, which allocated bytes may reach, the result may exceed the total. */
  uint64_t upto = (uint64_t)((double)s->total * ((double)s->passed / (double)s->weight) + 0.5);
  if (upto > s->total || s->passed == s->weight) upto = s->total;
  uint64_t share = upto - s->given;
  s->given = upto;
  return share;
}

/* Blocks that are counted together: those of one class, large blocks that are always sampled, or the other large blocks. */
typedef struct group {
  uint64_t size; /* of each block; 0: sizes differ, and bytes are divided separately */
  shares_t objects, bytes;
} group_t;
enum { LARGE_CERTAIN = CLASS_COUNT, LARGE_REST, GROUPS };

static unsigned group_of(const reading_t *r) {
  if (r->size_class != CLASS_NONE) return r->size_class;
  return r->chance == 0 ? LARGE_CERTAIN : LARGE_REST;
}

/* How many blocks a sampled one stands for, in 1/2^16. */
#define WEIGHT_SHIFT 16
static uint64_t weight_of(const reading_t *r) {
  return r->chance == 0 ? (uint64_t)1 << WEIGHT_SHIFT : ((uint64_t)1 << (32 + WEIGHT_SHIFT)) / r->chance;
}

static HAK_COLD void weigh_samples(group_t *groups) {
  reading_t r = {0};
  while (reading_next(&r)) {
    group_t *g = &groups[group_of(&r)];
    g->objects.weight += weight_of(&r);
    g->bytes.weight += r.size * weight_of(&r);
  }
}

/* The large blocks that are always sampled are known exactly; the samples of the others share the rest. */
static HAK_COLD void count_large(group_t *groups, uint64_t objects, uint64_t bytes) {
  group_t *certain = &groups[LARGE_CERTAIN], *rest = &groups[LARGE_REST];
  certain->objects.total = certain->objects.weight >> WEIGHT_SHIFT;
  certain->bytes.total = certain->bytes.weight >> WEIGHT_SHIFT;
  if (certain->objects.total > objects) certain->objects.total = objects; /* some were allocated after the count */
  if (certain->bytes.total > bytes) certain->bytes.total = bytes;
  rest->objects.total = objects - certain->objects.total;
  rest->bytes.total = bytes - certain->bytes.total;
}

static HAK_COLD void count_groups(group_t *groups) {
  hak_stats_t stats;
  hak_class_stats_t of_class[CLASS_COUNT];
  census_take(&stats, of_class);
  weigh_samples(groups);
  for (unsigned c = 0; c < CLASS_COUNT; c++) {
    groups[c].size = of_class[c].block_size;
    groups[c].objects.total = of_class[c].live_blocks;
  }
  count_large(groups, stats.large_blocks, large_bytes(&stats, of_class));
}

/* --- the parts of a profile ------------------------------------------------------------------ */

/* Locations: two that only have names, then all sites by number. */
enum { NAMED_UNKNOWN = 1, NAMED_NOT_SAMPLED, LOCATION_SITES };

#define MAPPINGS_MOST 512 /* addresses beyond these have no mapping */
#define NAMES_KEPT 64     /* of heaps; if there are more, some are written again */

typedef struct pprof {
  writer_t out;
  bool counted;             /* something was allocated while the process was armed: samples have two more values */
  uint32_t texts, mappings; /* how many were written */
  struct {
    uintptr_t start, end;
  } mapped[MAPPINGS_MOST];
  struct {
    uint32_t tag, text;
  } names[NAMES_KEPT];  /* by the tag's last bits */
} pprof_t;

/* Returns the text's number. */
static HAK_COLD uint32_t pprof_text(pprof_t *p, const char *text) {
  message_t m;
  put_text(message(&m), text);
  put_bytes(writer(&p->out), PROFILE_TEXT, &m.out);
  return p->texts++;
}

static HAK_COLD void pprof_type(pprof_t *p, unsigned field, unsigned kind, unsigned unit) {
  message_t m;
  format_t *f = message(&m);
  put_number(f, TYPE_KIND, kind);
  put_number(f, TYPE_UNIT, unit);
  put_bytes(writer(&p->out), field, f);
}

static HAK_COLD void pprof_head(pprof_t *p) {
  for (unsigned i = 0; i < TEXTS; i++) (void)pprof_text(p, texts[i]);
  pprof_type(p, PROFILE_TYPE, TEXT_OBJECTS, TEXT_COUNT);
  pprof_type(p, PROFILE_TYPE, TEXT_SPACE, TEXT_BYTES);
  pprof_type(p, PROFILE_TYPE, TEXT_SAMPLES, TEXT_COUNT);
  if (p->counted) pprof_type(p, PROFILE_TYPE, TEXT_ALLOC_OBJECTS, TEXT_COUNT);
  if (p->counted) pprof_type(p, PROFILE_TYPE, TEXT_ALLOC_SPACE, TEXT_BYTES);
  pprof_type(p, PROFILE_PERIOD_TYPE, TEXT_PERIOD, TEXT_BYTES);
  format_t *f = writer(&p->out);
  put_number(f, PROFILE_PERIOD, sample_rate);
  put_number(f, PROFILE_DEFAULT_TYPE, TEXT_SPACE);
  put_number(f, PROFILE_TIME, os_wall_ns());
}

typedef struct columns {
  uint64_t objects, bytes, samples;
  uint64_t alloc_objects, alloc_bytes;
} columns_t;

static void put_values(const pprof_t *p, format_t *f, columns_t v) {
  put_number(f, SAMPLE_VALUE, v.objects);
  put_number(f, SAMPLE_VALUE, v.bytes);
  put_number(f, SAMPLE_VALUE, v.samples);
  if (p->counted) put_number(f, SAMPLE_VALUE, v.alloc_objects);
  if (p->counted) put_number(f, SAMPLE_VALUE, v.alloc_bytes);
}

static void put_stack(format_t *f, uint32_t number) {
  const site_t *site = site_at(number);
  if (site == NULL) put_number(f, SAMPLE_LOCATION, NAMED_UNKNOWN);
  for (unsigned depth = 0; site != NULL && depth < SITE_FRAMES; depth++) {
    put_number(f, SAMPLE_LOCATION, LOCATION_SITES - 1 + number);
    number = racy_load(&site->parent);
    site = site_at(number);
  }
}

/* `field` is LABEL_NUMBER or LABEL_TEXT. */
static void put_label(format_t *f, unsigned key, unsigned field, uint64_t value, unsigned unit) {
  message_t m;
  format_t *label = message(&m);
  put_number(label, LABEL_KEY, key);
  put_number(label, field, value);
  put_number(label, LABEL_UNIT, unit);
  put_bytes(f, SAMPLE_LABEL, label);
}

static HAK_COLD uint32_t pprof_heap_text(pprof_t *p, const char *name) {
  char text[sizeof "heap " + HEAP_NAME];
  format_t f;
  format_init(&f, text, sizeof text);
  format_text(&f, "heap ");
  format_text(&f, name[0] != '\0' ? name : "(no name)");
  return pprof_text(p, text);
}

/* The number of the text that names the heap that the block is from; TEXT_NONE if it is from none.  The block leads to its heap: a walk
 * over all heaps for each sample would be quadratic. */
static HAK_COLD uint32_t pprof_heap(pprof_t *p, const reading_t *r) {
  if ((r->tag & NAMED_TAG) == 0) return TEXT_NONE;
  unsigned slot = r->tag % NAMES_KEPT;
  if (p->names[slot].tag == r->tag) return p->names[slot].text;
  char name[HEAP_NAME];
  if (!census_name(unit_head(r->unit), r->tag, name)) return TEXT_NONE;
  p->names[slot].tag = r->tag;
  p->names[slot].text = pprof_heap_text(p, name);
  return p->names[slot].text;
}

static HAK_COLD void pprof_sample(pprof_t *p, group_t *g, const reading_t *r) {
  uint32_t heap = pprof_heap(p, r);
  uint64_t objects = shares_take(&g->objects, weight_of(r)), bytes = shares_take(&g->bytes, r->size * weight_of(r));
  message_t m;
  format_t *f = message(&m);
  put_stack(f, r->site);
  put_values(p, f, (columns_t){.objects = objects, .bytes = g->size != 0 ? objects * g->size : bytes, .samples = 1});
  put_label(f, TEXT_BYTES, LABEL_NUMBER, r->size, TEXT_BYTES);
  if (heap != TEXT_NONE) put_label(f, TEXT_TAG, LABEL_TEXT, heap, TEXT_NONE);
  else if (r->tag != 0) put_label(f, TEXT_TAG, LABEL_NUMBER, r->tag, TEXT_NONE);
  put_bytes(writer(&p->out), PROFILE_SAMPLE, f);
}

static HAK_COLD void pprof_not_sampled(pprof_t *p, columns_t v) {
  message_t m;
  format_t *f = message(&m);
  put_number(f, SAMPLE_LOCATION, NAMED_NOT_SAMPLED);
  put_values(p, f, v);
  put_bytes(writer(&p->out), PROFILE_SAMPLE, f);
}

/* What no sample took of the counts. */
static HAK_COLD void pprof_rest(pprof_t *p, const group_t *groups) {
  columns_t v = {0};
  for (unsigned i = 0; i < GROUPS; i++) {
    const group_t *g = &groups[i];
    uint64_t left = g->objects.total - g->objects.given;
    v.objects += left;
    v.bytes += g->size != 0 ? left * g->size : g->bytes.total - g->bytes.given;
  }
  if (v.objects != 0 || v.bytes != 0) pprof_not_sampled(p, v);
}

static HAK_COLD void pprof_samples(pprof_t *p) {
  group_t groups[GROUPS] = {{0}};
  reading_t r = {0};
  count_groups(groups);
  while (reading_next(&r)) pprof_sample(p, &groups[group_of(&r)], &r);
  pprof_rest(p, groups);
}

/* --- what was allocated while the process was armed ------------------------------------------ */

static HAK_COLD bool was_armed(void) {
  for (unsigned group = 0; group < WATCH_GROUPS; group++) {
    if (watch_counted(group).blocks != 0) return true;
  }
  return false;
}

/* The next row with events, at *number or after; NULL at the end. */
static const event_row_t *next_row(uint32_t *number) {
  for (const event_row_t *row; (row = event_row_at(*number)) != NULL;) {
    ++*number;
    if (load_relaxed(&row->key) != 0 && load_relaxed(&row->sums.events) != 0) return row;
  }
  return NULL;
}

static unsigned group_of_row(const event_row_t *row) { return (uint32_t)load_relaxed(&row->key) - 1; }
static uint64_t objects_of_row(const event_row_t *row) { return load_relaxed(&row->sums.objects) >> EVENT_OBJECT_BITS; }

/* Reads the counts before the rows.  Rows only grow, so the second pass divides the whole count of each group that has a row. */
static HAK_COLD void count_allocated(group_t *groups) {
  for (unsigned i = 0; i < WATCH_GROUPS; i++) {
    watch_sum_t sum = watch_counted(i);
    groups[i].objects.total = sum.blocks;
    groups[i].bytes.total = sum.bytes;
  }
  const event_row_t *row;
  for (uint32_t number = 0; (row = next_row(&number)) != NULL;) {
    group_t *g = &groups[group_of_row(row)];
    g->objects.weight += objects_of_row(row);
    g->bytes.weight += load_relaxed(&row->sums.bytes);
  }
}

static HAK_COLD void pprof_row(pprof_t *p, group_t *g, const event_row_t *row) {
  columns_t v = {.alloc_objects = shares_take(&g->objects, objects_of_row(row)),
                 .alloc_bytes = shares_take(&g->bytes, load_relaxed(&row->sums.bytes))};
  if (v.alloc_objects == 0 && v.alloc_bytes == 0) return;
  message_t m;
  format_t *f = message(&m);
  put_stack(f, (uint32_t)(load_relaxed(&row->key) >> 32));
  put_values(p, f, v);
  put_bytes(writer(&p->out), PROFILE_SAMPLE, f);
}

static HAK_COLD void pprof_allocated(pprof_t *p) {
  group_t groups[WATCH_GROUPS] = {{0}};
  const event_row_t *row;
  columns_t rest = {0};
  count_allocated(groups);
  for (uint32_t number = 0; (row = next_row(&number)) != NULL;) pprof_row(p, &groups[group_of_row(row)], row);
  for (unsigned i = 0; i < WATCH_GROUPS; i++) {
    rest.alloc_objects += groups[i].objects.total - groups[i].objects.given;
    rest.alloc_bytes += groups[i].bytes.total - groups[i].bytes.given;
  }
  if (rest.alloc_objects != 0 || rest.alloc_bytes != 0) pprof_not_sampled(p, rest);
}

/* --- places ---------------------------------------------------------------------------------- */

/* A location without an address, named as a function. */
static HAK_COLD void pprof_named(pprof_t *p, unsigned number, unsigned text) {
  message_t m, inner;
  format_t *f = message(&m), *call = message(&inner);
  put_number(f, FUNCTION_ID, number);
  put_number(f, FUNCTION_NAME, text);
  put_number(f, FUNCTION_SYMBOL, text);
  put_bytes(writer(&p->out), PROFILE_FUNCTION, f);
  put_number(call, CALL_FUNCTION, number);
  f = message(&m);
  put_number(f, LOCATION_ID, number);
  put_bytes(f, LOCATION_CALL, call);
  put_bytes(writer(&p->out), PROFILE_LOCATION, f);
}

static HAK_COLD void pprof_mapping(pprof_t *p, const mapping_t *mapping) {
  uint32_t path = pprof_text(p, mapping->path), id = mapping->build_id[0] != '\0' ? pprof_text(p, mapping->build_id) : TEXT_NONE;
  p->mapped[p->mappings].start = mapping->start;
  p->mapped[p->mappings].end = mapping->end;
  message_t m;
  format_t *f = message(&m);
  put_number(f, MAPPING_ID, ++p->mappings);
  put_number(f, MAPPING_START, mapping->start);
  put_number(f, MAPPING_END, mapping->end);
  put_number(f, MAPPING_OFFSET, mapping->offset);
  put_number(f, MAPPING_FILE, path);
  put_number(f, MAPPING_BUILD_ID, id);
  put_bytes(writer(&p->out), PROFILE_MAPPING, f);
}

/* Leaves out code without a file: it has no names, and there may be much of it. */
static HAK_COLD void pprof_mappings(pprof_t *p) {
  mappings_t all;
  mapping_t mapping;
  HAK_ALIGNED(MODULE_COPY_ALIGN) char page[MODULE_COPY];
  mappings_open(&all, page);
  while (p->mappings < MAPPINGS_MOST && mappings_next(&all, &mapping)) {
    if (mapping.path[0] != '\0') pprof_mapping(p, &mapping);
  }
  mappings_close(&all);
}

/* The number of the mapping that contains the address; 0 if none does. */
static uint32_t mapping_of(const pprof_t *p, uintptr_t address) {
  uint32_t from = 0, end = p->mappings; /* the mapping is in this range, if anywhere */
  while (end - from > 1) {
    uint32_t middle = from + (end - from) / 2;
    if (p->mapped[middle].start <= address) from = middle;
    else end = middle;
  }
  return from < end && address >= p->mapped[from].start && address < p->mapped[from].end ? from + 1 : 0;
}

static HAK_COLD void pprof_sites(pprof_t *p) {
  uint64_t sites = site_figures().sites;
  for (uint32_t number = 1; number <= sites; number++) {
    const site_t *site = site_at(number);
    uintptr_t address = site != NULL ? racy_load(&site->address) : 0;
    if (address != 0) address--; /* the call may be the last instruction of its function */
    message_t m;
    format_t *f = message(&m);
    put_number(f, LOCATION_ID, LOCATION_SITES - 1 + number);
    put_number(f, LOCATION_MAPPING, mapping_of(p, address));
    put_number(f, LOCATION_ADDRESS, address);
    put_bytes(writer(&p->out), PROFILE_LOCATION, f);
  }
}

HAK_COLD bool hak_profile_pprof(int fd) {
  pprof_t p;
  int saved = errno;
  writer_open(&p.out, fd);
  p.texts = p.mappings = 0;
  for (unsigned i = 0; i < NAMES_KEPT; i++) p.names[i].tag = 0;
  p.counted = was_armed();
  pprof_head(&p);
  pprof_samples(&p);
  if (p.counted) pprof_allocated(&p);
  pprof_named(&p, NAMED_UNKNOWN, TEXT_UNKNOWN);
  pprof_named(&p, NAMED_NOT_SAMPLED, TEXT_NOT_SAMPLED);
  pprof_mappings(&p);
  pprof_sites(&p);
  bool good = writer_flush(&p.out);
  if (good) errno = saved;
  return good;
}
