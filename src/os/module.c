#include "os/module.h"

#include <fcntl.h>
#include <string.h>

#include "base/atomics.h"
#include "base/config.h"
#include "os/os.h"
#include "os/probe.h"
#include "os/syscall.h"

typedef struct known {
  _Atomic uintptr_t start, end, frames;
} known_t;

enum { KNOWN_MOST = 2 * 4096 / sizeof(known_t) };
static HAK_APART known_t known_list[KNOWN_MOST]; /* only grows; of entries for the same place, the last is the newest */
static _Atomic uint32_t known_count;

/* --- a module's headers ------------------------------------------------------------------ */

static bool part_has(const ElfW(Phdr) *part, uintptr_t bias, uintptr_t bytes, uintptr_t address) {
  return address - (bias + part->p_vaddr) < bytes;
}

bool module_has_text(const module_t *m, uintptr_t address) {
  for (uint32_t i = 0; i < m->count; i++) {
    const ElfW(Phdr) *part = &m->parts[i];
    if (part->p_type == PT_LOAD && (part->p_flags & PF_X) != 0 && part_has(part, m->bias, part->p_filesz, address)) return address < m->end;
  }
  return false;
}

uintptr_t module_readable_end(const module_t *m, uintptr_t address) {
  if (address < m->start || address >= m->end) return 0;
  for (uint32_t i = 0; i < m->count; i++) {
    const ElfW(Phdr) *part = &m->parts[i];
    if (part->p_type != PT_LOAD || (part->p_flags & PF_R) == 0 || !part_has(part, m->bias, part->p_filesz, address)) continue;
    uintptr_t end = m->bias + part->p_vaddr + part->p_filesz;
    return end < m->end ? end : m->end;
  }
  return 0;
}

HAK_COLD size_t module_build_id(const module_t *m, const uint8_t **id) {
  for (uint32_t i = 0; i < m->count; i++) {
    if (m->parts[i].p_type != PT_NOTE) continue;
    uintptr_t at = m->bias + m->parts[i].p_vaddr, end = module_readable_end(m, at);
    if (end > at + m->parts[i].p_filesz) end = at + m->parts[i].p_filesz;
    while (end >= at + sizeof(ElfW(Nhdr))) {
      const ElfW(Nhdr) *note = (const void *)at;
      const uint8_t *name = (const uint8_t *)(note + 1);
      size_t skipped = bits_round_up(note->n_namesz, 4), bytes = bits_round_up(note->n_descsz, 4);
      if (skipped > end - at - sizeof *note || bytes > end - at - sizeof *note - skipped) break;
      *id = name + skipped;
      if (note->n_type == NT_GNU_BUILD_ID && note->n_namesz == 4 && memcmp(name, "GNU", 4) == 0) return note->n_descsz;
      at += sizeof *note + skipped + bytes;
    }
  }
  return 0;
}

/* Reads the headers, which must lie in the first page; the caller makes sure that this page is readable. */
static bool module_read_at(module_t *m, uintptr_t start, uintptr_t end) {
  const ElfW(Ehdr) *elf = (const void *)start;
  if (start % MODULE_COPY_ALIGN != 0 || end - start < sizeof *elf) return false;
  if (memcmp(elf->e_ident, ELFMAG, SELFMAG) != 0) return false;
  if (elf->e_phentsize != sizeof *m->parts || elf->e_phoff % 8 != 0 || elf->e_phoff > PROBE_PAGE) return false;
  if (elf->e_phnum > (PROBE_PAGE - elf->e_phoff) / sizeof *m->parts) return false;
  *m = (module_t){.start = start, .end = end, .count = elf->e_phnum};
  m->parts = (const void *)(start + elf->e_phoff);
  bool placed = false;
  uintptr_t header = 0;
  for (uint32_t i = 0; i < m->count; i++) {
    const ElfW(Phdr) *part = &m->parts[i];
    if (part->p_type == PT_LOAD && part->p_offset == 0 && !placed) m->bias = start - part->p_vaddr, placed = true;
    if (part->p_type == PT_GNU_EH_FRAME) header = part->p_vaddr;
  }
  if (header != 0) m->header = m->bias + header;
  return placed;
}

static bool module_read(module_t *m, uintptr_t start, uintptr_t end) { return start % PROBE_PAGE == 0 && module_read_at(m, start, end); }

/* --- finding modules --------------------------------------------------------------------- */

#if defined(DLFO_STRUCT_HAS_EH_DBASE) /* glibc since 2.35; looked up by name, so that older versions work, too */
static __typeof(_dl_find_object) *_Atomic loader_asks;
extern __typeof(dlsym) dlsym __attribute__((weak)); /* a statically linked program may lack it */

static bool loader_answers(void) { return load_relaxed(&loader_asks) != NULL; }
static void loader_prepare(void) {
  if (dlsym != NULL) store_release(&loader_asks, (__typeof(_dl_find_object) *)(uintptr_t)dlsym(RTLD_DEFAULT, "_dl_find_object"));
}

static bool loader_place(uintptr_t address, uintptr_t *start, uintptr_t *end) {
  struct dl_find_object found;
  __typeof(_dl_find_object) *ask = load_acquire(&loader_asks);
  if (ask == NULL || ask((void *)address, &found) != 0) return false;
  *start = (uintptr_t)found.dlfo_map_start;
  *end = (uintptr_t)found.dlfo_map_end;
  return true;
}
#else
static bool loader_answers(void) { return false; }
static void loader_prepare(void) {}
static bool loader_place(uintptr_t address, uintptr_t *start, uintptr_t *end) { return (void)address, (void)start, (void)end, false; }
#endif

static bool loader_find(uintptr_t address, module_t *m) {
  uintptr_t start, end;
  return loader_place(address, &start, &end) && module_read(m, start, end);
}

/* Only glibc unmaps libraries, and never the program, which comes first in a complete list. */
#if defined(__GLIBC__)
static bool may_be_gone(uint32_t number) { return number != 0 || loader_answers(); }
#else
static bool may_be_gone(uint32_t number) { return (void)number, false; }
#endif

static bool known_find(uintptr_t address, module_t *m) {
  for (uint32_t i = load_acquire(&known_count); i-- > 0;) {
    const known_t *k = &known_list[i];
    uintptr_t start = load_relaxed(&k->start), end = load_relaxed(&k->end);
    if (address < start || address >= end || (may_be_gone(i) && !probe_readable(start))) continue;
    if (module_read(m, start, end) && module_has_text(m, address)) return true;
  }
  return false;
}

bool module_find(uintptr_t text, module_t *m) {
  bool found = (loader_find(text, m) && module_has_text(m, text)) || known_find(text, m);
  if (!found || m->header != 0) return found;
  for (uint32_t i = load_acquire(&known_count); i-- > 0 && m->frames == 0;) {
    if (load_relaxed(&known_list[i].start) == m->start) m->frames = load_relaxed(&known_list[i].frames);
  }
  return true;
}

HAK_COLD bool module_place(uintptr_t text, uintptr_t *start) {
  uintptr_t end;
  if (loader_place(text, start, &end)) return true;
  for (uint32_t i = load_acquire(&known_count); i-- > 0;) {
    *start = load_relaxed(&known_list[i].start);
    if (text >= *start && text < load_relaxed(&known_list[i].end)) return true;
  }
  return false;
}

/* --- modules that are closed -------------------------------------------------------------- */

/* A holder increments its count, then checks for closers; a closer increments its count, then checks for holders.  So at least one of the
 * two sees the other. */
static _Atomic uint32_t holding, closing;
enum { CLOSE_WAITS = 100, CLOSE_WAIT_US = 100 };

/* Never below 0: a fork's child has reset the count. */
static void count_down(_Atomic uint32_t *count) {
  uint32_t now = load_relaxed(count);
  while (now > 0 && !atomic_compare_exchange_weak(count, &now, now - 1)) continue;
}

bool module_hold(void) {
  (void)atomic_fetch_add(&holding, 1);
  if (atomic_load(&closing) == 0) return true;
  module_let_go();
  return false;
}

void module_let_go(void) { count_down(&holding); }

HAK_COLD void module_close_begin(void) {
  (void)atomic_fetch_add(&closing, 1);
  for (unsigned i = 0; i < CLOSE_WAITS && atomic_load(&holding) != 0; i++) os_sleep_us(CLOSE_WAIT_US);
}

HAK_COLD void module_close_end(void) { count_down(&closing); }

HAK_COLD void module_after_fork(void) {
  store_relaxed(&holding, 0);
  store_relaxed(&closing, 0);
}

HAK_COLD bool module_of_copy(const void *page, module_t *module) {
  return module_read_at(module, (uintptr_t)page, (uintptr_t)page + MODULE_COPY);
}

HAK_COLD void module_add(uintptr_t start, uintptr_t end, uintptr_t frames) {
  uint32_t count = load_relaxed(&known_count);
  for (uint32_t i = 0; i < count; i++) {
    const known_t *k = &known_list[i];
    if (load_relaxed(&k->start) == start && load_relaxed(&k->end) == end && load_relaxed(&k->frames) == frames) return;
  }
  if (count == KNOWN_MOST) return;
  store_relaxed(&known_list[count].start, start);
  store_relaxed(&known_list[count].end, end);
  store_relaxed(&known_list[count].frames, frames);
  store_release(&known_count, count + 1);
}

/* --- the tables of modules without .eh_frame_hdr, which linkers leave out of static programs ----------------------------- */

static bool file_read(long file, void *to, size_t bytes, uint64_t offset) {
  return syscall_6(SYS_pread64, file, (long)to, (long)bytes, (long)offset, 0, 0) == (long)bytes;
}

/* Returns the file's address of its section .eh_frame; 0 if it has none or is not the module's file. */
static uintptr_t file_frames(long file, const void *module) {
  ElfW(Ehdr) elf;
  ElfW(Shdr) names, section;
  char name[sizeof ".eh_frame"];
  if (!file_read(file, &elf, sizeof elf, 0) || memcmp(&elf, module, sizeof elf) != 0 || elf.e_shentsize != sizeof section) return 0;
  if (!file_read(file, &names, sizeof names, elf.e_shoff + (uint64_t)elf.e_shstrndx * sizeof names)) return 0;
  for (uint32_t i = 0; i < elf.e_shnum; i++) {
    if (!file_read(file, &section, sizeof section, elf.e_shoff + i * sizeof section)) return 0;
    if ((section.sh_flags & SHF_ALLOC) == 0 || !file_read(file, name, sizeof name, names.sh_offset + section.sh_name)) continue;
    if (memcmp(name, ".eh_frame", sizeof name) == 0) return section.sh_addr;
  }
  return 0;
}

static uintptr_t named_frames(const char *path, uintptr_t start) {
  long file = syscall_6(SYS_openat, AT_FDCWD, (long)path, O_RDONLY | O_CLOEXEC, 0, 0, 0);
  if (syscall_failed(file)) return 0;
  uintptr_t frames = file_frames(file, (const void *)start);
  (void)syscall_3(SYS_close, file, 0, 0);
  return frames;
}

static int module_note(struct dl_phdr_info *info, size_t size, void *first) {
  (void)size;
  uintptr_t start = UINTPTR_MAX, end = 0, frames = 0;
  bool header = false;
  for (uint32_t i = 0; i < info->dlpi_phnum; i++) {
    const ElfW(Phdr) *part = &info->dlpi_phdr[i];
    uintptr_t from = info->dlpi_addr + part->p_vaddr, to = from + part->p_memsz;
    header |= part->p_type == PT_GNU_EH_FRAME;
    if (part->p_type != PT_LOAD) continue;
    if (from < start) start = from;
    if (to > end) end = to;
  }
  if (end == 0) return 0;
  start = bits_round_down(start, PROBE_PAGE);
  if (!header) frames = named_frames(*(bool *)first ? "/proc/self/exe" : info->dlpi_name, start);
  if (frames != 0 || !loader_answers()) module_add(start, end, frames != 0 ? info->dlpi_addr + frames : 0);
  *(bool *)first = false;
  return 0;
}

/* Empty in an archive, whose text is part of the program. */
static uintptr_t ours_start, ours_end;
bool module_is_ours(uintptr_t text) { return text >= ours_start && text < ours_end; }

void module_prepare(void) {
  loader_prepare();
  bool first = true; /* the program itself, for which libc may report any name */
  (void)dl_iterate_phdr(module_note, &first);
  module_t ours;
  if (HAK_SHARED && module_find((uintptr_t)module_is_ours, &ours)) ours_start = ours.start, ours_end = ours.end;
}
