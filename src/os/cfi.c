#include "os/cfi.h"

#include "os/cursor.h"
#include "os/dwarf.h"

enum { NESTED_MOST = 3, STEPS_MOST = 1 << 16, RECORDS_MOST = 1 << 17 };

typedef struct cie {
  uintptr_t at; /* 0: not read */
  cursor_t program;
  uint64_t code_align;
  int64_t data_align;
  uint8_t encoding, ra;
  bool sized, signal; /* sized: each FDE holds the length of its own augmentation */
} cie_t;

typedef struct fde {
  uintptr_t start, bytes;
  cursor_t program;
} fde_t;

static cursor_t cursor_open(const module_t *m, uintptr_t at) {
  uintptr_t end = module_readable_end(m, at);
  if (end == 0) return (cursor_t){.bad = true};
  return (cursor_t){.at = (const uint8_t *)at, .end = (const uint8_t *)end};
}

static uint64_t read_form(cursor_t *c, uint8_t encoding) {
  switch (encoding & DW_EH_PE_format) {
    case DW_EH_PE_absptr:
    case DW_EH_PE_udata8:
    case DW_EH_PE_sdata8: return cursor_unsigned(c, 8);
    case DW_EH_PE_uleb128: return cursor_uleb(c);
    case DW_EH_PE_udata2: return cursor_unsigned(c, 2);
    case DW_EH_PE_udata4: return cursor_unsigned(c, 4);
    case DW_EH_PE_sleb128: return (uint64_t)cursor_sleb(c);
    case DW_EH_PE_sdata2: return (uint64_t)cursor_signed(c, 2);
    case DW_EH_PE_sdata4: return (uint64_t)cursor_signed(c, 4);
    default: c->bad = true; return 0;
  }
}

static uintptr_t read_pointer(const module_t *m, cursor_t *c, uint8_t encoding) {
  uintptr_t place = (uintptr_t)c->at, value = read_form(c, encoding);
  switch (encoding & DW_EH_PE_relative) {
    case 0: break;
    case DW_EH_PE_pcrel: value += place; break;
    case DW_EH_PE_datarel: value += m->header; break;
    default: c->bad = true;
  }
  if ((encoding & DW_EH_PE_indirect) == 0 || c->bad) return value;
  cursor_t other = cursor_open(m, value);
  value = cursor_unsigned(&other, 8);
  c->bad |= other.bad;
  return value;
}

/* --- CIE and FDE ------------------------------------------------------------------------- */

/* Returns a cursor over the next record, after its length field; it is bad at the end of the table. */
static cursor_t record_next(cursor_t *all) {
  uint64_t length = cursor_unsigned(all, 4);
  if (all->bad || length == 0 || length > (size_t)(all->end - all->at)) return (cursor_t){.bad = true};
  cursor_t record = {.at = all->at, .end = all->at + length};
  all->at = record.end;
  return record;
}

static cursor_t record_at(const module_t *m, uintptr_t at) {
  cursor_t all = cursor_open(m, at);
  return record_next(&all);
}

static bool read_augmentation(cursor_t *c, const uint8_t *letters, cie_t *cie) {
  if (*letters == 0) return true;
  if (*letters++ != 'z') return false;
  uint64_t length = cursor_uleb(c);
  const uint8_t *data = c->at;
  cie->sized = true;
  for (; *letters != 0; letters++) {
    if (*letters == 'R') cie->encoding = (uint8_t)cursor_unsigned(c, 1);
    else if (*letters == 'S') cie->signal = true;
    else if (*letters == 'L') (void)cursor_unsigned(c, 1);
    else if (*letters == 'P') (void)read_form(c, (uint8_t)cursor_unsigned(c, 1));
    else if (*letters != 'B' && *letters != 'G') return false; /* aarch64: how return addresses are signed and memory is tagged */
  }
  c->at = data;
  cursor_skip(c, length);
  return !c->bad;
}

static bool cie_read(const module_t *m, uintptr_t at, cie_t *cie) {
  if (cie->at == at) return true;
  cursor_t c = record_at(m, at);
  *cie = (cie_t){0};
  if (cursor_unsigned(&c, 4) != 0) return false; /* not a CIE */
  uint64_t version = cursor_unsigned(&c, 1);
  const uint8_t *letters = c.at;
  while (cursor_unsigned(&c, 1) != 0) continue;
  cie->code_align = cursor_uleb(&c);
  cie->data_align = cursor_sleb(&c);
  uint64_t ra = version == 1 ? cursor_unsigned(&c, 1) : cursor_uleb(&c);
  if (c.bad || (version != 1 && version != 3) || ra >= CFI_REGS || !read_augmentation(&c, letters, cie)) return false;
  cie->ra = (uint8_t)ra;
  cie->program = c;
  cie->at = at;
  return true;
}

static bool fde_read(const module_t *m, cursor_t c, cie_t *cie, fde_t *fde) {
  uintptr_t place = (uintptr_t)c.at;
  uint64_t back = cursor_unsigned(&c, 4);
  if (c.bad || back == 0 || !cie_read(m, place - back, cie)) return false;
  fde->start = read_pointer(m, &c, cie->encoding);
  fde->bytes = read_form(&c, cie->encoding);
  if (cie->sized) cursor_skip(&c, cursor_uleb(&c));
  fde->program = c;
  return !c.bad;
}

static bool fde_holds(const fde_t *fde, uintptr_t pc) { return pc - fde->start < fde->bytes; }

/* --- which FDE --------------------------------------------------------------------------- */

static bool frames_scan(const module_t *m, uintptr_t at, uintptr_t pc, cie_t *cie, fde_t *fde) {
  cursor_t all = cursor_open(m, at);
  for (unsigned i = 0; i < RECORDS_MOST; i++) {
    cursor_t record = record_next(&all);
    if (record.bad) return false;
    if (fde_read(m, record, cie, fde) && fde_holds(fde, pc)) return true;
  }
  return false;
}

static uintptr_t table_entry(const module_t *m, const uint8_t *table, unsigned bytes, uint64_t index) {
  cursor_t c = {table + index * bytes, table + (index + 1) * bytes, false};
  return m->header + (uintptr_t)cursor_signed(&c, bytes);
}

/* Binary search: the table has a pair for each FDE, sorted by the start of its code. */
static bool header_search(const module_t *m, uintptr_t pc, cie_t *cie, fde_t *fde) {
  cursor_t c = cursor_open(m, m->header);
  uint64_t version = cursor_unsigned(&c, 1);
  uint8_t frames_form = (uint8_t)cursor_unsigned(&c, 1), count_form = (uint8_t)cursor_unsigned(&c, 1);
  uint8_t form = (uint8_t)cursor_unsigned(&c, 1);
  uintptr_t frames = read_pointer(m, &c, frames_form);
  if (version != 1 || c.bad) return false;
  unsigned bytes = form == (DW_EH_PE_datarel | DW_EH_PE_sdata4) ? 4 : form == (DW_EH_PE_datarel | DW_EH_PE_sdata8) ? 8 : 0;
  if (bytes == 0 || count_form == DW_EH_PE_omit) return frames_scan(m, frames, pc, cie, fde);
  uint64_t low = 0, high = read_pointer(m, &c, count_form);
  if (c.bad || high > (size_t)(c.end - c.at) / (2 * bytes)) return false;
  while (low < high) { /* entries before low start at or below pc, entries from high on above it */
    uint64_t middle = low + (high - low) / 2;
    if (table_entry(m, c.at, bytes, 2 * middle) <= pc) low = middle + 1;
    else high = middle;
  }
  if (low == 0) return false;
  return fde_read(m, record_at(m, table_entry(m, c.at, bytes, 2 * low - 1)), cie, fde) && fde_holds(fde, pc);
}

/* --- the programs of tables -------------------------------------------------------------- */

typedef struct machine {
  cfi_row_t row, initial, kept[NESTED_MOST];
  uint32_t nested;
  uintptr_t first, next; /* the range that the row holds for so far; final once the program passes pc */
  uintptr_t pc;
  const module_t *module;
  const cie_t *cie;
  bool bad, done;
} machine_t;

static int32_t machine_narrow(machine_t *x, int64_t value) {
  if (value != (int32_t)value) x->bad = true;
  return (int32_t)value;
}

/* Ignores registers that are not needed, such as vector registers. */
static void row_set(machine_t *x, uint64_t reg, cfi_kind_t kind, int64_t value) {
  if (reg >= CFI_REGS) return;
  x->row.kind[reg] = (uint8_t)kind;
  x->row.value[reg] = machine_narrow(x, value);
}

static void row_set_cfa(machine_t *x, uint64_t reg, int64_t value) {
  if (reg >= CFI_REGS && reg != CFI_EXPRESSION_CFA) x->bad = true;
  x->row.cfa = (uint8_t)reg;
  x->row.cfa_value = machine_narrow(x, value);
}

static void row_restore(machine_t *x, uint64_t reg) {
  if (reg < CFI_REGS) row_set(x, reg, x->initial.kind[reg], x->initial.value[reg]);
}

static void machine_advance(machine_t *x, uintptr_t to) {
  if (to > x->pc) x->done = true, x->next = to;
  else x->first = to;
}

static int64_t machine_scaled(const machine_t *x, int64_t factor) { return (int64_t)((uint64_t)factor * (uint64_t)x->cie->data_align); }

/* Returns the place of an expression and skips it. */
static int64_t machine_expression(const machine_t *x, cursor_t *c) {
  int64_t place = (int64_t)((uintptr_t)c->at - x->module->start);
  cursor_skip(c, cursor_uleb(c));
  return place;
}

static void machine_nest(machine_t *x, bool in) {
  if (in ? x->nested == NESTED_MOST : x->nested == 0) x->bad = true;
  else if (in) x->kept[x->nested++] = x->row;
  else x->row = x->kept[--x->nested];
}

static void machine_run_rule(machine_t *x, cursor_t *c, uint64_t op) {
  uint64_t reg = cursor_uleb(c); /* the first operand of every such instruction */
  switch (op) {
    case DW_CFA_offset_extended: row_set(x, reg, CFI_OFFSET, machine_scaled(x, (int64_t)cursor_uleb(c))); break;
    case DW_CFA_restore_extended: row_restore(x, reg); break;
    case DW_CFA_undefined: row_set(x, reg, CFI_UNDEFINED, 0); break;
    case DW_CFA_same_value: row_set(x, reg, CFI_SAME, 0); break;
    case DW_CFA_register: row_set(x, reg, CFI_REGISTER, (int64_t)cursor_uleb(c)); break;
    case DW_CFA_def_cfa: row_set_cfa(x, reg, (int64_t)cursor_uleb(c)); break;
    case DW_CFA_def_cfa_register: row_set_cfa(x, reg, x->row.cfa_value); break;
    case DW_CFA_def_cfa_offset: x->row.cfa_value = machine_narrow(x, (int64_t)reg); break;
    case DW_CFA_expression: row_set(x, reg, CFI_EXPRESSION, machine_expression(x, c)); break;
    case DW_CFA_offset_extended_sf: row_set(x, reg, CFI_OFFSET, machine_scaled(x, cursor_sleb(c))); break;
    case DW_CFA_def_cfa_sf: row_set_cfa(x, reg, machine_scaled(x, cursor_sleb(c))); break;
    case DW_CFA_val_offset: row_set(x, reg, CFI_VALUE_OFFSET, machine_scaled(x, (int64_t)cursor_uleb(c))); break;
    case DW_CFA_val_offset_sf: row_set(x, reg, CFI_VALUE_OFFSET, machine_scaled(x, cursor_sleb(c))); break;
    case DW_CFA_val_expression: row_set(x, reg, CFI_VALUE_EXPRESSION, machine_expression(x, c)); break;
    case DW_CFA_GNU_args_size: break; /* the size of pushed arguments */
    case DW_CFA_GNU_negative_offset_extended: row_set(x, reg, CFI_OFFSET, -machine_scaled(x, (int64_t)cursor_uleb(c))); break;
    default: x->bad = true;
  }
}

static void machine_run_one(machine_t *x, cursor_t *c) {
  uint64_t op = cursor_unsigned(c, 1), low = op & 0x3f, code = x->cie->code_align;
  switch (op >> 6) {
    case DW_CFA_advance_loc >> 6: machine_advance(x, x->first + low * code); return;
    case DW_CFA_offset >> 6: row_set(x, low, CFI_OFFSET, machine_scaled(x, (int64_t)cursor_uleb(c))); return;
    case DW_CFA_restore >> 6: row_restore(x, low); return;
    default: break;
  }
  switch (op) {
    case DW_CFA_nop: break;
    case DW_CFA_set_loc: machine_advance(x, read_pointer(x->module, c, x->cie->encoding)); break;
    case DW_CFA_advance_loc1:
    case DW_CFA_advance_loc2:
    case DW_CFA_advance_loc4: machine_advance(x, x->first + cursor_unsigned(c, 1u << (op - DW_CFA_advance_loc1)) * code); break;
    case DW_CFA_remember_state: machine_nest(x, true); break;
    case DW_CFA_restore_state: machine_nest(x, false); break;
    case DW_CFA_def_cfa_expression: row_set_cfa(x, CFI_EXPRESSION_CFA, machine_expression(x, c)); break;
    case DW_CFA_def_cfa_offset_sf: x->row.cfa_value = machine_narrow(x, machine_scaled(x, cursor_sleb(c))); break;
    case DW_CFA_AARCH64_negate_ra_state_with_pc:
    case DW_CFA_AARCH64_negate_ra_state: break; /* return addresses are signed from here on, or no longer; it is always stripped */
    default: machine_run_rule(x, c, op);
  }
}

static bool machine_run(machine_t *x, cursor_t program) {
  unsigned steps = 0;
  while (program.at < program.end && !x->done) {
    machine_run_one(x, &program);
    if (program.bad || x->bad || ++steps == STEPS_MOST) return false;
  }
  return true;
}

bool cfi_find(const module_t *m, uintptr_t pc, cfi_rules_t *rules) {
  cie_t cie = {0};
  fde_t fde;
  if (m->header != 0 ? !header_search(m, pc, &cie, &fde) : m->frames == 0 || !frames_scan(m, m->frames, pc, &cie, &fde)) return false;
  machine_t x = {.first = fde.start, .next = fde.start + fde.bytes, .pc = pc, .module = m, .cie = &cie};
  row_set_cfa(&x, CFI_SP, 0);
  if (!machine_run(&x, cie.program)) return false;
  x.initial = x.row;
  if (!machine_run(&x, fde.program)) return false;
  *rules = (cfi_rules_t){.row = x.row, .ra = cie.ra, .signal = cie.signal, .first = x.first, .last = x.next - 1};
  return true;
}
