/* unwind.c - damaged unwind tables, and walks by them over a stack of any content.
 *
 * The input makes a module of one page, with mostly correct tables at its very end, and then changes some bytes.  The memory behind
 * the module and behind the stack is inaccessible and must not be read.  Every query ends and gives the same answer each time, and
 * a walk does not leave its bounds. */
#define module_prepare fuzz_module_prepare
#define module_add fuzz_module_add
#define module_find fuzz_module_find
#define module_has_text fuzz_module_has_text
#define module_readable_end fuzz_module_readable_end
#define module_build_id fuzz_module_build_id
#define module_is_ours fuzz_module_is_ours
#define module_place fuzz_module_place
#define module_of_copy fuzz_module_of_copy
#define module_hold fuzz_module_hold
#define module_let_go fuzz_module_let_go
#define module_close_begin fuzz_module_close_begin
#define module_close_end fuzz_module_close_end
#define module_after_fork fuzz_module_after_fork
#define cfi_find fuzz_cfi_find
#define unwind_prepare fuzz_unwind_prepare
#define unwind_here fuzz_unwind_here
#define unwind_forget fuzz_unwind_forget
#include "os/cfi.c"
#include "os/module.c"
#include "os/unwind.c"

#include <sys/mman.h>

#include "fuzz.h"

/* An address range that sanitizers leave to programs. */
#define MODULE ((uintptr_t)3 << 44)
#define STACK (MODULE + ((uintptr_t)1 << 30))

enum { PAGE = 4096, STACK_PAGES = 2, TABLES = 1024, TEXT = 512, TEXT_BYTES = 2048, FDES_MOST = 3, FRAMES_MOST = 40 };

typedef struct tables {
  uint8_t bytes[TABLES];
  size_t used;
} tables_t;

/* ---- making the module ---- */

static void put(tables_t *t, uint64_t value, unsigned bytes) {
  for (unsigned i = 0; i < bytes && t->used < TABLES; i++) t->bytes[t->used++] = (uint8_t)(value >> 8 * i);
}

static void put_from_input(tables_t *t, unsigned most) {
  for (unsigned n = input_below(most); n > 0; n--) put(t, input_byte(), 1);
}

static void set_length(tables_t *t, size_t record) {
  uint64_t length = t->used - record - 4;
  for (unsigned i = 0; i < 4; i++) t->bytes[record + i] = (uint8_t)(length >> 8 * i);
}

static void put_cie(tables_t *t, uint8_t form) {
  static const char *const letters[] = {"zR", "zRS", "zPLR", "zRB", ""};
  const char *augmentation = letters[input_below(5)];
  size_t record = t->used;
  put(t, 0, 8);
  put(t, input_below(2) != 0 ? 3 : 1, 1);
  for (const char *c = augmentation;; c++) {
    put(t, (uint8_t)*c, 1);
    if (*c == '\0') break;
  }
  put(t, 1, 1);
  put(t, 0x78, 1); /* -8 */
  put(t, CFI_RA, 1);
  if (augmentation[0] == 'z') put(t, augmentation[1] == 'P' ? 7 : 1, 1);
  if (augmentation[0] != 0 && augmentation[1] == 'P')
    put(t, 0x03, 5), put(t, 0x1b, 1); /* a personality of 4 bytes, and the encoding of the LSDA pointer */
  if (augmentation[0] == 'z') put(t, form, 1);
  put(t, 0x0c | CFI_SP << 8 | 8 << 16, 3);
  if (CFI_RA < 64 && input_below(8) != 0) put(t, 0x80 | CFI_RA | 1 << 8, 2);
  put_from_input(t, 24);
  set_length(t, record);
}

/* `place` is the address that the tables will have in memory. */
static void put_fde(tables_t *t, uintptr_t place, size_t cie, uint8_t form, unsigned number) {
  size_t record = t->used;
  uintptr_t start = MODULE + TEXT + number * (TEXT_BYTES / FDES_MOST);
  put(t, 0, 4);
  put(t, t->used - cie, 4);
  put(t, (form & DW_EH_PE_relative) == DW_EH_PE_pcrel ? start - (place + t->used) : start,
      (form & DW_EH_PE_format) == DW_EH_PE_sdata4 ? 4 : 8);
  put(t, TEXT_BYTES / FDES_MOST, (form & DW_EH_PE_format) == DW_EH_PE_sdata4 ? 4 : 8);
  put(t, 0, 1);
  put_from_input(t, 64);
  set_length(t, record);
}

static void put_header(uint8_t *header, uintptr_t frames, const uintptr_t *fdes, unsigned count) {
  tables_t t = {.used = 0};
  put(&t, 0x3b031b01, 4);
  put(&t, frames - (MODULE + TEXT + TEXT_BYTES + 4), 4);
  put(&t, count, 4);
  for (unsigned i = 0; i < count; i++) {
    put(&t, TEXT + i * (TEXT_BYTES / FDES_MOST) - (TEXT + TEXT_BYTES), 4);
    put(&t, fdes[i] - (MODULE + TEXT + TEXT_BYTES), 4);
  }
  memcpy(header, t.bytes, t.used);
}

/* Headers, text, the search table, and at the end .eh_frame. */
static void make_module(void) {
  static const uint8_t forms[] = {0x1b, 0x1c, 0x00};
  uint8_t *page = (uint8_t *)MODULE, form = forms[input_below(3)];
  unsigned fde_count = 1 + input_below(FDES_MOST);
  tables_t t = {.used = 0};
  uintptr_t fdes[FDES_MOST];
  uintptr_t frames = MODULE + PAGE - TABLES;
  put_cie(&t, form);
  for (unsigned i = 0; i < fde_count; i++) {
    fdes[i] = frames + t.used;
    put_fde(&t, frames, 0, form, i);
  }
  memcpy((void *)frames, t.bytes, TABLES);
  ElfW(Ehdr) elf = {.e_ident = ELFMAG, .e_phoff = sizeof elf, .e_phentsize = sizeof(ElfW(Phdr)), .e_phnum = 2};
  ElfW(Phdr) parts[] = {{.p_type = PT_LOAD, .p_flags = PF_R | PF_X, .p_filesz = PAGE, .p_memsz = PAGE},
                        {.p_type = PT_GNU_EH_FRAME, .p_vaddr = TEXT + TEXT_BYTES}};
  if (input_below(4) == 0) elf.e_phnum = 1; /* no search table, only .eh_frame */
  memcpy(page, &elf, sizeof elf);
  memcpy(page + sizeof elf, parts, sizeof parts);
  put_header(page + TEXT + TEXT_BYTES, frames, fdes, fde_count);
  for (unsigned n = input_below(8); n > 0; n--) {
    unsigned at = input_below(2) != 0 ? PAGE - TABLES + input_below((unsigned)t.used) : TEXT + TEXT_BYTES + input_below(64);
    page[at] = input_byte();
  }
  module_add(MODULE, MODULE + PAGE, frames);
}

static void *map(uintptr_t at, size_t bytes) {
  void *start = mmap((void *)at, bytes + PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
  FUZZ_CHECK(start == (void *)at && mprotect(start, bytes, PROT_READ | PROT_WRITE) == 0);
  return start;
}

/* ---- queries ---- */

static uintptr_t text_of_input(void) { return MODULE + TEXT + input_below(TEXT_BYTES + 16); }

static void ask(void) {
  module_t m;
  cfi_rules_t rules, again;
  uintptr_t pc = text_of_input();
  FUZZ_CHECK(module_find(pc, &m));
  memset(&rules, 0, sizeof rules), memset(&again, 0, sizeof again);
  bool found = cfi_find(&m, pc, &rules);
  FUZZ_CHECK(cfi_find(&m, pc, &again) == found);
  if (!found) return;
  FUZZ_CHECK(memcmp(&rules.row, &again.row, sizeof rules.row) == 0 && rules.signal == again.signal);
  FUZZ_CHECK(rules.row.cfa < CFI_REGS || rules.row.cfa == CFI_EXPRESSION_CFA);
}

/* Most words on the stack point to text or to the stack. */
static uint64_t word_of_input(void) {
  switch (input_below(6)) {
    case 0: return text_of_input();
    case 1: return STACK + 8 * input_below(STACK_PAGES * PAGE / 8 + 2);
    case 2: return input_byte();
    case 3: return input_number();
    default: return text_of_input();
  }
}

static void go(bool cached) {
  static void *frames[FRAMES_MOST + 1];
  uint64_t *stack = (uint64_t *)STACK;
  walk_t w = {.known = UINT32_MAX, .cached = cached, .exact = input_below(2) != 0, .pc = text_of_input()};
  step_t last;
  for (unsigned i = 0; i < 24; i++) stack[input_below(STACK_PAGES * PAGE / 8)] = word_of_input();
  for (unsigned reg = 0; reg < CFI_REGS; reg++) w.reg[reg] = STACK + 8 * input_below(64);
  w.reg[CFI_SP] = STACK + 8 * input_below(STACK_PAGES * PAGE / 8 + 2);
  for (unsigned n = input_below(4); n > 0; n--) w.reg[input_below(CFI_REGS)] = word_of_input();
  frames[FRAMES_MOST] = &w;
  uint32_t depth = walk(&w, frames, FRAMES_MOST, &last);
  FUZZ_CHECK(depth <= FRAMES_MOST && frames[FRAMES_MOST] == &w);
  for (uint32_t i = 0; i < depth; i++) FUZZ_CHECK((uintptr_t)frames[i] >= PAGE);
}

void fuzz_target(void) {
  (void)map(MODULE, PAGE);
  (void)map(STACK, STACK_PAGES * PAGE);
  make_module();
  for (unsigned i = 0; i < 64 && !input_ends(); i++) {
    ask();
    go(i % 2 != 0);
  }
}
