/* descriptor.c - the tables by which a reader outside the process finds its way: `hakmem profile PID`, `hakmem inspect CORE`.
 *
 * An ELF note leads to hak_descriptor, so that it is found in a library and in a static program alike, stripped or not.  A core may lack
 * the note's page and the content of read-only files.  So everything here lies among the constants that the loader relocates, which a
 * core contains, and starts with a magic value that can be searched for.  Relocation makes these pages private to the process in any case.
 *
 * Everything has a name, and a reader goes by names alone: the tables of an older library are shorter, those of a newer one longer, and a
 * reader reports what it misses.  So a name keeps its meaning; if the meaning changes, so does the name.  `version` changes when the
 * format of the tables changes.
 *
 * Nothing in the process reads or writes the tables.  A reader may write to only two of the places that they list, event.until_ms and
 * request.wanted: the process reaches no memory through either value. */
#include "entry/entry.h"

#include "hakmem/hakmem.h"
#include "front/heaps.h"
#include "front/quarantine.h"
#include "front/watch.h"
#include "kit/closed.h"
#include "kit/event.h"
#include "kit/options.h"
#include "kit/request.h"
#include "kit/site.h"
#include "os/os.h"
#include "slab/remote.h"
#include "slab/sample.h"
#include "slab/track.h"
#include "space/purge.h"

/* --- how tables look ----------------------------------------------------------------------- */

#define NAME_BYTES 24
#define PUBLISHED(section_name) __attribute__((used, section(section_name)))

typedef struct named_value {
  char name[NAME_BYTES];
  uint64_t value;
} named_value_t;

typedef struct named_field {
  char name[NAME_BYTES]; /* "structure.field"; the structure's name alone gives its size */
  uint32_t offset, size;
} named_field_t;

typedef struct named_place {
  char name[NAME_BYTES];
  const volatile void *address;
} named_place_t;

/* An array with one element for every `units` units, as many as "region.units" requires. */
typedef struct named_zone {
  char name[NAME_BYTES];
  char pointer[NAME_BYTES]; /* the field of "region" that leads to it */
  uint32_t stride, units;
} named_zone_t;

typedef struct class_size {
  uint32_t size, units;
} class_size_t;

typedef struct table {
  const volatile void *rows;
  uint32_t stride, count;
} table_t;

typedef struct descriptor {
  char magic[16];
  const struct descriptor *self; /* its own address; wrong in a copy elsewhere */
  uint32_t version, bytes;
  table_t values, fields, places, zones, classes; /* rows of the structures above */
} descriptor_t;

#define TABLE(rows) {(rows), sizeof(rows)[0], sizeof(rows) / sizeof(rows)[0]}

/* --- constants ----------------------------------------------------------------------------- */

static const named_value_t values[] PUBLISHED(".data.rel.ro.names") = {
    {"library.major", HAK_VERSION_MAJOR},
    {"library.minor", HAK_VERSION_MINOR},
    {"library.patch", HAK_VERSION_PATCH},
    {"library.secure", HAK_SECURE},
    {"library.checks", HAK_CHECKS},
    {"granule.bytes", HAK_GRANULE},
    {"unit.bytes", HAK_UNIT},
    {"superslab.units", HAK_UNITS_PER_SUPERSLAB},
    {"kind.free", UNIT_FREE},
    {"kind.slab", UNIT_SLAB},
    {"kind.inside", UNIT_INSIDE},
    {"kind.large", UNIT_LARGE},
    {"kind.slots", UNIT_SLOTS},
    {"kind.meta", UNIT_META},
    {"kind.guard", UNIT_GUARD},
    {"kind.cached", UNIT_CACHED},
    {"class.zero", CLASS_ZERO},
    {"bits.group_words", 8}, /* in a bitmap: adjacent words of one unit, before those of the superslab's next unit */
    {"bits.group_bytes", REGION_BITS_GROUP},
    {"marks.group_bytes", 2 * REGION_BITS_GROUP},
    {"marks.seen", REGION_BITS_GROUP}, /* this many bytes after the marks */
    {"remote.others", REMOTE_OTHERS},
    {"entry.sampled", ENTRY_SAMPLED},
    {"entry.bar", ENTRY_BAR},
    {"sample.state_bits", SAMPLE_STATE_BITS},
    {"sample.none", SAMPLE_NONE},
    {"sample.free", SAMPLE_FREE},
    {"sample.live", SAMPLE_LIVE},
    {"sample.quiet", SAMPLE_QUIET},
    {"sample.clock_ms", 100},
    {"track.order_mask", TRACK_ORDER_MASK}, /* of unit.tracked: log2 of the records it has room for; the bits above: where they are */
    {"track.state_bits", TRACK_STATE_BITS}, /* the lowest bits of a record */
    {"track.live", TRACK_LIVE},
    {"track.quiet", TRACK_QUIET},
    {"track.site_shift", TRACK_SITE_SHIFT}, /* the site ends where the time begins */
    {"track.born_shift", TRACK_BORN_SHIFT},
    {"track.chunk_bytes", TRACK_CHUNK_BYTES},
    {"site.chunk", SITE_CHUNK},
    {"site.most", SITE_MOST},
    {"closed.most", CLOSED_MOST},
    {"event.object_bits", EVENT_OBJECT_BITS},
    {"event.mean_bytes", EVENT_BYTES},
    {"event.groups", WATCH_GROUPS},
    {"event.rows_most", EVENT_ROWS},
    {"heap.attached", HEAP_ATTACHED}, /* of heap.state */
    {"heap.word_bytes", 8}, /* the unit of heap.bin_at_class */
    {"quarantine.most", HAK_SECURE ? QUARANTINE_MOST : 0},
};

/* --- structures ---------------------------------------------------------------------------- */

#define STRUCTURE(name, type) {name, 0, sizeof(type)}
#define FIELD(name, type, member) {name, offsetof(type, member), sizeof((type *)NULL)->member}

static const named_field_t fields[] PUBLISHED(".data.rel.ro.names") = {
    FIELD("region.base", region_t, base),
    FIELD("region.units", region_t, units),
    FIELD("region.unit_records", region_t, unit_records),
    FIELD("region.free_bits", region_t, free_bits),
    FIELD("region.remote_bits", region_t, remote_bits),
    FIELD("region.marks", region_t, marks),
    FIELD("region.remotes", region_t, remotes),
    FIELD("region.samples", region_t, samples),
    FIELD("region.superslabs", region_t, superslabs),
    FIELD("region.rooms", region_t, rooms),
    FIELD("region.bins", region_t, bins),
    FIELD("region.live", region_t, live),
    STRUCTURE("unit", unit_t),
    FIELD("unit.kind", unit_t, kind),
    FIELD("unit.size_class", unit_t, size_class),
    FIELD("unit.free", unit_t, free),
    FIELD("unit.head", unit_t, head),
    FIELD("unit.units", unit_t, units),
    FIELD("unit.bytes", unit_t, bytes),
    FIELD("unit.holes", unit_t, holes),
    FIELD("unit.tracked", unit_t, tracked),
    STRUCTURE("remote", remote_t),
    FIELD("remote.freers", remote_t, freers),
    STRUCTURE("superslab", superslab_t),
    FIELD("superslab.free", superslab_t, free),
    FIELD("superslab.dirty", superslab_t, dirty),
    FIELD("superslab.cold", superslab_t, cold),
    STRUCTURE("sample", sample_t),
    FIELD("sample.state", sample_t, state),
    FIELD("sample.place", sample_t, place),
    FIELD("sample.chance", sample_t, chance),
    FIELD("sample.site", sample_t, site),
    FIELD("sample.tag", sample_t, tag),
    FIELD("sample.asked", sample_t, asked),
    FIELD("sample.born", sample_t, born),
    STRUCTURE("track", track_t),
    STRUCTURE("site", site_t),
    FIELD("site.address", site_t, address),
    FIELD("site.parent", site_t, parent),
    STRUCTURE("heap", heap_t),
    STRUCTURE("code", code_t),
    FIELD("code.start", code_t, start),
    FIELD("code.end", code_t, end),
    FIELD("code.offset", code_t, offset),
    FIELD("code.id_bytes", code_t, id_bytes),
    FIELD("code.id", code_t, id),
    FIELD("code.path", code_t, path),
    STRUCTURE("event", event_site_t),
    FIELD("event.events", event_site_t, events),
    FIELD("event.bytes", event_site_t, bytes),
    FIELD("event.objects", event_site_t, objects),
    STRUCTURE("event_row", event_row_t),
    FIELD("event_row.key", event_row_t, key), /* besides the fields of "event" */
    FIELD("heap.next", heap_t, next),
    FIELD("heap.has_bin", heap_t, has_bin),
    FIELD("heap.bin_at_class", heap_t, bin_at_class),
    FIELD("heap.last_tick_ms", heap_t, last_tick_ms),
    FIELD("heap.state", heap_t, state),
    FIELD("heap.watched", heap_t, watched),
    FIELD("heap.counted", heap_t, counts), /* blocks of each class, then the bytes of each */
    FIELD("heap.quarantine", heap_t, quarantine),
    FIELD("heap.named", heap_t, named.given),
    FIELD("heap.name", heap_t, named.name),
    FIELD("heap.tag", heap_t, named.tag),
    STRUCTURE("bin", bin_t),
    FIELD("bin.top", bin_t, top),
    FIELD("bin.capacity", bin_t, capacity),
    FIELD("bin.gone", bin_t, gone), /* how many of the lowest entries are no longer entries */
    STRUCTURE("quarantine", struct quarantine),
    FIELD("quarantine.blocks", struct quarantine, blocks),
    {"page_bytes", 0, sizeof os_page},
    {"sample.rate", 0, sizeof sample_rate},
    FIELD("options.decay_ms", option_values_t, number[OPTION_decay_ms]),
};

static const named_zone_t zones[] PUBLISHED(".data.rel.ro.names") = {
    {"units", "region.unit_records", sizeof(unit_t), 1},
    {"remotes", "region.remotes", sizeof(remote_t), 1},
    {"samples", "region.samples", sizeof(sample_t), 1},
    {"live", "region.live", REGION_LIVE_BYTES, 1},
    {"superslabs", "region.superslabs", sizeof(superslab_t), WORD_UNITS},
    {"rooms", "region.rooms", sizeof(room_t) / ROOM_GROUP, WORD_UNITS},
    {"bins", "region.bins", REGION_BIN_BYTES, 1},
    {"free_bits", "region.free_bits", REGION_MAPS_BYTES, WORD_UNITS},
    {"remote_bits", "region.remote_bits", REGION_MAPS_BYTES, WORD_UNITS},
    {"marks", "region.marks", REGION_MAPS_BYTES, WORD_UNITS},
};

#define CLASS_SIZE(size, units) {size, units}
#undef CLASS
#define CLASS CLASS_SIZE
static const class_size_t classes[] PUBLISHED(".data.rel.ro.names") = {CLASS_SIZES};
_Static_assert(sizeof classes / sizeof classes[0] == CLASS_COUNT, "every class is told");

/* --- the whole ----------------------------------------------------------------------------- */

static const named_place_t places[] PUBLISHED(".data.rel.ro.descriptor") = {
    {"region", &region},
    {"heaps", &heaps_newest},
    {"page_bytes", &os_page},
    {"sample.rate", &sample_rate},
    {"track.chunks", &track_chunks},
    {"site.chunks", site_chunks},
    {"site.count", &site_count},
    {"closed.codes", &closed_codes},
    {"closed.count", &closed_count},
    {"site.checked", &site_keys_checked},
    {"site.wrong", &site_keys_wrong},
    {"event.until_ms", &event_until_ms},
    {"event.chunks", event_chunks},
    {"event.rows", &event_rows},
    {"event.others", &watch_others}, /* blocks of each group, then the bytes of each */
    {"request.wanted", &request_wanted},
    {"request.done", &request_done},
    {"purge.last_step_ms", &purge_last_step_ms},
    {"options", &option_values},
};

/* Hidden whatever the build says: the note below holds its address as a link-time difference. */
extern const descriptor_t hak_descriptor __attribute__((visibility("hidden")));
const descriptor_t hak_descriptor PUBLISHED(".data.rel.ro.descriptor") = {
    .magic = {'h', 'a', 'k', 'm', 'e', 'm', '\x1d', '\xe5', '\xc2', '\x1b', '\x70', '\x0e', '\x88', '\x93', '\x5a', '\xf1'},
    .self = &hak_descriptor,
    .version = 1,
    .bytes = sizeof(descriptor_t),
    .values = TABLE(values),
    .fields = TABLE(fields),
    .places = TABLE(places),
    .zones = TABLE(zones),
    .classes = TABLE(classes),
};

/* The note has the name "hakmem", the type 0x68616b, and the descriptor's distance from there. */
__asm__(
    ".pushsection .note.hakmem, \"a\", %note\n"
    "  .balign 4\n"
    "  .long 7, 8, 0x68616b\n"
    "  .asciz \"hakmem\"\n"
    "  .balign 4\n"
    "  .quad hak_descriptor - .\n"
    "  .popsection");
