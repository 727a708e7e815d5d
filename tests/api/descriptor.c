/* descriptor.c - the descriptor for readers outside the process: found by the ELF note; its names alone suffice to describe a block. */
#include "api.h"

#include <link.h>

#define NOTE_TYPE 0x68616b
enum { NAME_BYTES = 24 };

typedef struct table {
  const char *rows;
  uint32_t stride, count;
} table_t;

typedef struct descriptor {
  char magic[16];
  const struct descriptor *self;
  uint32_t version, bytes;
  table_t values, fields, places, zones, classes;
} descriptor_t;

/* ---- the note ---- */

static unsigned notes_found;
static const descriptor_t *found;

static void see_note(const char *name, uint32_t name_bytes, uint32_t bytes, uint32_t type, const char *content) {
  int64_t distance;
  if (name_bytes != sizeof "hakmem" || memcmp(name, "hakmem", sizeof "hakmem") != 0) return;
  CHECK(bytes == sizeof distance && type == NOTE_TYPE);
  memcpy(&distance, content, sizeof distance);
  notes_found++;
  found = (const descriptor_t *)(const void *)(content + distance);
}

static int see_module(struct dl_phdr_info *info, size_t size, void *unused) {
  (void)size, (void)unused;
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const ElfW(Phdr) *part = &info->dlpi_phdr[i];
    const char *at = (const char *)(info->dlpi_addr + part->p_vaddr), *end = at + part->p_memsz;
    size_t align = part->p_align == 8 ? 8 : 4;
    while (part->p_type == PT_NOTE && at + sizeof(ElfW(Nhdr)) <= end) {
      ElfW(Nhdr) note;
      memcpy(&note, at, sizeof note);
      const char *name = at + sizeof note, *content = name + (note.n_namesz + align - 1) / align * align;
      see_note(name, note.n_namesz, note.n_descsz, note.n_type, content);
      at = content + (note.n_descsz + align - 1) / align * align;
    }
  }
  return 0;
}

/* ---- names ---- */

static const char *row_of(const table_t *table, const char *name) {
  for (uint32_t i = 0; i < table->count; i++) {
    const char *row = table->rows + (size_t)i * table->stride;
    if (strncmp(row, name, NAME_BYTES) == 0) return row;
  }
  check_fail(__FILE__, __LINE__, "%s is not among the names", name);
  abort();
}

static uint64_t value(const char *name) {
  uint64_t number;
  memcpy(&number, row_of(&found->values, name) + NAME_BYTES, sizeof number);
  return number;
}

static const char *place(const char *name) {
  const char *address;
  memcpy(&address, row_of(&found->places, name) + NAME_BYTES, sizeof address);
  return address;
}

static uint32_t half(const table_t *table, const char *name, size_t offset) {
  uint32_t number;
  memcpy(&number, row_of(table, name) + offset, sizeof number);
  return number;
}

/* The structure that begins at `start`: the value of its field of this name. */
static uint64_t field(const char *start, const char *name) {
  uint64_t number = 0;
  uint32_t bytes = half(&found->fields, name, NAME_BYTES + 4);
  if (bytes > sizeof number) check_fail(__FILE__, __LINE__, "%s is no number", name), abort();
  memcpy(&number, start + half(&found->fields, name, NAME_BYTES), bytes);
  return number;
}

static const char *unit_of(const void *block) {
  const char *region = place("region");
  char pointer[NAME_BYTES + 1] = "";
  memcpy(pointer, row_of(&found->zones, "units") + NAME_BYTES, NAME_BYTES);
  uint64_t unit = ((uintptr_t)block - field(region, "region.base")) / value("unit.bytes");
  if (unit >= field(region, "region.units")) check_fail(__FILE__, __LINE__, "%p is in no unit", block), abort();
  return (const char *)(uintptr_t)field(region, pointer) + unit * half(&found->zones, "units", sizeof pointer - 1 + NAME_BYTES);
}

/* ---- checks ---- */

static void find_descriptor(void) {
  (void)dl_iterate_phdr(see_module, NULL);
  REQUIRE(notes_found == 1);
  REQUIRE(memcmp(found->magic, "hakmem\x1d\xe5\xc2\x1b\x70\x0e\x88\x93\x5a\xf1", 16) == 0);
  REQUIRE(found->self == found && found->version == 1 && found->bytes == sizeof *found);
}

TEST(a_note_leads_to_what_readers_need) {
  find_descriptor();
  CHECK_EQ(value("library.secure"), is_secure());
  CHECK_EQ(field(place("page_bytes"), "page_bytes"), (uint64_t)sysconf(_SC_PAGESIZE));
  CHECK_EQ(field(place("options"), "options.decay_ms"), 1000);
}

TEST(names_alone_tell_what_a_block_is) {
  find_descriptor();
  char *small = api.malloc(1000), *large = api.malloc(3 << 20);
  REQUIRE(small != NULL && large != NULL);
  const char *slab = unit_of(small), *span = unit_of(large);
  CHECK_EQ(field(slab, "unit.kind"), value("kind.slab"));
  uint64_t size_class = field(slab, "unit.size_class");
  REQUIRE(size_class < found->classes.count);
  uint32_t block_size;
  memcpy(&block_size, found->classes.rows + size_class * found->classes.stride, sizeof block_size);
  CHECK_EQ(block_size, 1024);
  CHECK_EQ(field(span, "unit.kind"), value("kind.large"));
  CHECK(field(span, "unit.bytes") >= 3 << 20);
  CHECK_EQ(field(unit_of(large + (1 << 20)), "unit.kind"), value("kind.inside"));
  api.free(large);
  CHECK(field(span, "unit.kind") != value("kind.large"));
  api.free(small);
}
