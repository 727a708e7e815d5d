/* tables.c - reads every FDE of ELF files with the unwinder's reader, at each address where the rules change.
 *
 *   tables FILE...      prints a line for each file: its number of FDEs and of rows
 *   tables -p FILE      prints the rows: first and last address in the file, the CFA, and each register whose value is not kept
 *
 * A file for another processor, or without unwind tables, is skipped. */
#include "os/cfi.c"
#include "os/module.c"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#if defined(__x86_64__)
enum { MACHINE = EM_X86_64 };
#else
enum { MACHINE = EM_AARCH64 };
#endif

static bool printing;
static unsigned long fdes, rows, failures;

typedef struct image {
  uintptr_t start;
  size_t bytes;
} image_t;

static bool place_part(uintptr_t bias, int file, const ElfW(Phdr) *part) {
  size_t slip = part->p_offset % 4096;
  int protection = (part->p_flags & PF_R) != 0 ? PROT_READ : PROT_NONE;
  if (part->p_filesz == 0) return true;
  return mmap((void *)(bias + part->p_vaddr - slip), part->p_filesz + slip, protection, MAP_PRIVATE | MAP_FIXED, file,
              (off_t)(part->p_offset - slip)) != MAP_FAILED;
}

/* Maps the file as the loader would lay it out; nothing in it is changed or run. */
static bool image_open(const char *path, image_t *image) {
  ElfW(Ehdr) elf;
  ElfW(Phdr) parts[64];
  struct stat facts;
  uintptr_t low = UINTPTR_MAX, high = 0;
  bool header = false, good = false;
  int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  if (fstat(file, &facts) != 0 || !S_ISREG(facts.st_mode) || pread(file, &elf, sizeof elf, 0) != sizeof elf) goto out;
  if (memcmp(elf.e_ident, ELFMAG, SELFMAG) != 0 || elf.e_ident[EI_CLASS] != ELFCLASS64 || elf.e_machine != MACHINE) goto out;
  if (elf.e_phnum > 64 || (elf.e_type != ET_DYN && elf.e_type != ET_EXEC)) goto out;
  ssize_t length = (ssize_t)(elf.e_phnum * sizeof *parts);
  if (pread(file, parts, (size_t)length, (off_t)elf.e_phoff) != length) goto out;
  for (unsigned i = 0; i < elf.e_phnum; i++) {
    header |= parts[i].p_type == PT_GNU_EH_FRAME;
    if (parts[i].p_type != PT_LOAD) continue;
    if (parts[i].p_vaddr < low) low = bits_round_down(parts[i].p_vaddr, 4096);
    if (parts[i].p_vaddr + parts[i].p_memsz > high) high = parts[i].p_vaddr + parts[i].p_memsz;
    if (parts[i].p_offset + parts[i].p_filesz > (uint64_t)facts.st_size) header = false, high = low; /* only debug information */
  }
  if (!header || high <= low) goto out;
  image->bytes = bits_round_up(high - low, 4096);
  void *start = mmap(NULL, image->bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (start == MAP_FAILED) goto out;
  image->start = (uintptr_t)start;
  good = true;
  for (unsigned i = 0; i < elf.e_phnum; i++) {
    if (parts[i].p_type == PT_LOAD) good = good && place_part(image->start - low, file, &parts[i]);
  }
out:
  close(file);
  return good;
}

static void print_row(const module_t *m, const cfi_rules_t *rules) {
  static const char letters[] = {[CFI_OFFSET] = 'c', [CFI_VALUE_OFFSET] = 'v'};
  const cfi_row_t *row = &rules->row;
  printf("%lx %lx", (unsigned long)(rules->first - m->bias), (unsigned long)(rules->last - m->bias));
  if (row->cfa == CFI_EXPRESSION_CFA) printf(" exp");
  else printf(" %u%+d", row->cfa, row->cfa_value);
  for (unsigned reg = 0; reg < CFI_REGS; reg++) {
    int kind = row->kind[reg];
    if (kind == CFI_SAME) continue;
    if (kind == CFI_EXPRESSION || kind == CFI_VALUE_EXPRESSION) printf(" %u=%s", reg, kind == CFI_EXPRESSION ? "exp" : "vexp");
    else if (kind == CFI_UNDEFINED) printf(" %u=u", reg);
    else if (kind == CFI_REGISTER) printf(" %u=r%d", reg, row->value[reg]);
    else printf(" %u=%c%+d", reg, letters[kind], row->value[reg]);
  }
  printf("\n");
}

/* Reads the rows of the FDE whose code is from `start` to `next`, where the code of the next FDE starts. */
static void read_fde(const module_t *m, uintptr_t start, uintptr_t next) {
  cfi_rules_t rules;
  cie_t cie = {0};
  fde_t fde;
  if (start == m->bias) return; /* the linker has dropped the function */
  if (!header_search(m, start, &cie, &fde)) {
    if (next == start) return; /* several FDEs of no length may start here */
    failures++;
    fprintf(stderr, "no FDE for %#lx\n", (unsigned long)(start - m->bias));
    return;
  }
  fdes++;
  for (uintptr_t pc = start; pc < next && fde_holds(&fde, pc); pc = rules.last + 1) {
    if (!cfi_find(m, pc, &rules) || rules.first > pc || rules.last < pc) {
      failures++;
      if (failures < 5) fprintf(stderr, "no rules for %#lx\n", (unsigned long)(pc - m->bias));
      return;
    }
    rows++;
    if (printing) print_row(m, &rules);
  }
}

static bool read_file(const char *path) {
  image_t image;
  module_t m;
  if (!image_open(path, &image)) return false;
  fdes = rows = failures = 0;
  if (module_read(&m, image.start, image.start + image.bytes) && m.header != 0) {
    cursor_t c = cursor_open(&m, m.header);
    cursor_skip(&c, 1);
    uint8_t frames = (uint8_t)cursor_unsigned(&c, 1), count = (uint8_t)cursor_unsigned(&c, 1), form = (uint8_t)cursor_unsigned(&c, 1);
    (void)read_pointer(&m, &c, frames);
    uint64_t entries = count == DW_EH_PE_omit ? 0 : read_pointer(&m, &c, count);
    if (form == (DW_EH_PE_datarel | DW_EH_PE_sdata4)) {
      for (uint64_t i = 0; i < entries; i++) {
        uintptr_t next = i + 1 < entries ? table_entry(&m, c.at, 4, 2 * i + 2) : UINTPTR_MAX;
        read_fde(&m, table_entry(&m, c.at, 4, 2 * i), next);
      }
    }
  }
  munmap((void *)image.start, image.bytes);
  if (!printing || failures > 0) fprintf(printing ? stderr : stdout, "%s: %lu FDEs, %lu rows, %lu failures\n", path, fdes, rows, failures);
  return failures == 0;
}

int main(int argc, char **argv) {
  int wrong = 0;
  printing = argc > 1 && strcmp(argv[1], "-p") == 0;
  for (int i = 1 + printing; i < argc; i++) {
    failures = 0;
    (void)read_file(argv[i]);
    wrong += failures > 0;
  }
  return wrong > 0;
}
