#include "os/unwind.h"

#include "base/atomics.h"
#include "os/cfi.h"
#include "os/cursor.h"
#include "os/dwarf.h"
#include "os/probe.h"
#include "os/stack.h"

typedef enum step { STEP_DONE, STEP_END, STEP_STUCK } step_t; /* END: the start of the thread */

typedef struct walk {
  uint64_t reg[CFI_REGS];
  uint32_t known; /* a bit for each register */
  uint64_t pc;
  bool exact;  /* pc is the next instruction, not where a call returns to */
  bool cached;        /* use rules of earlier walks */
  bool thinned, lost; /* those rules left registers out; one of these was needed */
  bool asked, refused; /* probe_works was asked; it returned false */
  bool held, guessed;  /* module_hold is in effect; a frame pointer was followed, not a table */
  uint64_t low, high;  /* the range of the stack proved readable */
  uint64_t read;       /* address of the last word read */
  module_t module;     /* the last one found */
  unwind_reads_t *reads; /* or NULL */
} walk_t;

#define BIT(reg) ((uint32_t)1 << (reg))

/* aarch64: a return address is first in a register, and a leaf function may need no stack; if saved, it lies beside the frame
 * pointer.  x86-64: the call itself stores it right below the CFA. */
enum { LEAF_KEEPS_RA = CFI_RA < CFI_SP };
/* Interrupted code may just have popped its registers; their values are still below the stack pointer, in the red zone that signals on
 * x86-64 leave alone, and tables may refer to them there. */
enum { RED_ZONE = LEAF_KEEPS_RA ? 0 : 128 };

/* --- the registers at the start of a walk ------------------------------------------------ */

/* Captures the registers that calls preserve, and the current pc. */
#if defined(__x86_64__)
enum { START_KNOWN = BIT(3) | BIT(CFI_FP) | BIT(CFI_SP) | BIT(12) | BIT(13) | BIT(14) | BIT(15) };
HAK_INLINE void walk_start(walk_t *w) {
  __asm__ volatile(
      "movq %%rbx, 24(%1)\n movq %%rbp, 48(%1)\n movq %%rsp, 56(%1)\n"
      "movq %%r12, 96(%1)\n movq %%r13, 104(%1)\n movq %%r14, 112(%1)\n movq %%r15, 120(%1)\n"
      "leaq 1f(%%rip), %0\n1:"
      : "=&r"(w->pc)
      : "r"(w->reg)
      : "memory");
}
HAK_INLINE uint64_t stripped(uint64_t address) { return address; }
#else
enum { START_KNOWN = (BIT(CFI_RA) - BIT(19)) | BIT(CFI_RA) | BIT(CFI_SP) };
HAK_INLINE void walk_start(walk_t *w) {
  uint64_t sp;
  __asm__ volatile(
      "stp x19, x20, [%2, #152]\n stp x21, x22, [%2, #168]\n stp x23, x24, [%2, #184]\n stp x25, x26, [%2, #200]\n"
      "stp x27, x28, [%2, #216]\n stp x29, x30, [%2, #232]\n mov %1, sp\n adr %0, 1f\n1:"
      : "=&r"(w->pc), "=&r"(sp)
      : "r"(w->reg)
      : "memory");
  w->reg[CFI_SP] = sp;
}
/* Strips the signature that a processor may put into a return address; a no-op on processors without signatures. */
HAK_INLINE uint64_t stripped(uint64_t address) {
  register uint64_t x30 __asm__("x30") = address;
  __asm__("hint #7" : "+r"(x30)); /* xpaclri */
  return x30;
}
#endif

/* --- the stack --------------------------------------------------------------------------- */

static bool prove(walk_t *w, uint64_t address) {
  uint64_t page = address & ~(uint64_t)(PROBE_PAGE - 1);
  if (!w->asked) w->asked = true, w->refused = !probe_works();
  if (w->refused || !probe_readable(page)) return false;
  if (page != w->high) w->low = page;
  w->high = page + PROBE_PAGE;
  return true;
}

UNWATCHED static bool read_word(walk_t *w, uint64_t address, uint64_t *value) {
  if (address % 8 != 0 || address < w->reg[CFI_SP] - (w->exact ? RED_ZONE : 0)) return false;
  if ((address < w->low || address >= w->high) && !prove(w, address)) return false;
  *value = *(const uint64_t *)address;
  w->read = address;
  return true;
}

static bool read_register(walk_t *w, uint64_t reg, uint64_t *value) {
  bool known = reg < CFI_REGS && (w->known & BIT(reg)) != 0;
  if (!known) w->lost |= w->thinned;
  else *value = w->reg[reg];
  return known;
}

/* Moves on to the caller's frame. */
static step_t enter(walk_t *w, uint64_t pc, uint64_t sp) {
  bool up = sp > w->reg[CFI_SP] || (w->exact && LEAF_KEEPS_RA && sp == w->reg[CFI_SP]);
  w->pc = stripped(pc);
  w->exact = false;
  if (w->pc < PROBE_PAGE) return STEP_END;
  if (!up || sp % 8 != 0) return STEP_STUCK;
  w->reg[CFI_SP] = sp;
  return STEP_DONE;
}

/* --- expressions ------------------------------------------------------------------------- */

enum { VALUES_MOST = 8 };
typedef struct values {
  uint64_t value[VALUES_MOST + 1];
  uint32_t depth;
} values_t;

static bool values_push(values_t *s, uint64_t value) {
  if (s->depth == VALUES_MOST) return false;
  s->value[s->depth++] = value;
  return true;
}

static bool values_compute(values_t *s, uint64_t op) {
  if (s->depth < 2) return false;
  uint64_t b = s->value[--s->depth], *a = &s->value[s->depth - 1];
  switch (op) {
    case DW_OP_and: *a &= b; return true;
    case DW_OP_minus: *a -= b; return true;
    case DW_OP_mul: *a *= b; return true;
    case DW_OP_or: *a |= b; return true;
    case DW_OP_plus: *a += b; return true;
    case DW_OP_shl: *a = b < 64 ? *a << b : 0; return true;
    case DW_OP_shr: *a = b < 64 ? *a >> b : 0; return true;
    case DW_OP_xor: *a ^= b; return true;
    case DW_OP_eq: *a = *a == b; return true;
    case DW_OP_ge: *a = (int64_t)*a >= (int64_t)b; return true;
    case DW_OP_gt: *a = (int64_t)*a > (int64_t)b; return true;
    case DW_OP_le: *a = (int64_t)*a <= (int64_t)b; return true;
    case DW_OP_lt: *a = (int64_t)*a < (int64_t)b; return true;
    case DW_OP_ne: *a = *a != b; return true;
    default: return false;
  }
}

static bool evaluate_one(walk_t *w, values_t *s, cursor_t *c) {
  uint64_t op = cursor_unsigned(c, 1), value;
  if (op >= DW_OP_lit0 && op <= DW_OP_lit31) return values_push(s, op - DW_OP_lit0);
  if ((op >= DW_OP_breg0 && op <= DW_OP_breg31) || op == DW_OP_bregx) {
    uint64_t reg = op == DW_OP_bregx ? cursor_uleb(c) : op - DW_OP_breg0;
    return read_register(w, reg, &value) && values_push(s, value + (uint64_t)cursor_sleb(c));
  }
  switch (op) {
    case DW_OP_deref: return s->depth > 0 && read_word(w, s->value[s->depth - 1], &s->value[s->depth - 1]);
    case DW_OP_const1u:
    case DW_OP_const2u:
    case DW_OP_const4u:
    case DW_OP_const8u: return values_push(s, cursor_unsigned(c, 1u << (op - DW_OP_const1u) / 2));
    case DW_OP_const1s:
    case DW_OP_const2s:
    case DW_OP_const4s:
    case DW_OP_const8s: return values_push(s, (uint64_t)cursor_signed(c, 1u << (op - DW_OP_const1s) / 2));
    case DW_OP_constu: return values_push(s, cursor_uleb(c));
    case DW_OP_consts: return values_push(s, (uint64_t)cursor_sleb(c));
    case DW_OP_dup: return s->depth > 0 && values_push(s, s->value[s->depth - 1]);
    case DW_OP_drop: return s->depth > 0 && s->depth-- > 0;
    case DW_OP_plus_uconst: value = cursor_uleb(c); return s->depth > 0 && (s->value[s->depth - 1] += value, true);
    case DW_OP_nop: return true;
    default: return values_compute(s, op);
  }
}

/* Starts with `cfa` on the stack, unless NULL.  No operation jumps backward, so evaluation is bounded. */
static HAK_COLD bool evaluate(walk_t *w, int32_t place, const uint64_t *cfa, uint64_t *value) {
  uintptr_t at = w->module.start + (uintptr_t)(intptr_t)place, end = module_readable_end(&w->module, at);
  if (end == 0) return false;
  cursor_t c = {(const uint8_t *)at, (const uint8_t *)end, false};
  uint64_t length = cursor_uleb(&c);
  if (c.bad || length > (size_t)(c.end - c.at)) return false;
  c.end = c.at + length;
  values_t s = {.depth = 0};
  if (cfa != NULL) (void)values_push(&s, *cfa);
  while (c.at < c.end) {
    if (!evaluate_one(w, &s, &c) || c.bad) return false;
  }
  if (s.depth > 0) *value = s.value[s.depth - 1];
  return s.depth > 0;
}

/* --- what rules say ---------------------------------------------------------------------- */

/* Finds the caller's value of a register.  False: it is not known. */
static bool recover(walk_t *w, const cfi_row_t *row, unsigned reg, uint64_t cfa, uint64_t *value) {
  uint64_t place = cfa + (uint64_t)(int64_t)row->value[reg];
  switch (row->kind[reg]) {
    case CFI_SAME: return read_register(w, reg, value);
    case CFI_OFFSET: return read_word(w, place, value);
    case CFI_VALUE_OFFSET: return *value = place, true;
    case CFI_REGISTER: return read_register(w, (uint64_t)row->value[reg], value);
    case CFI_EXPRESSION: return evaluate(w, row->value[reg], &cfa, &place) && read_word(w, place, value);
    case CFI_VALUE_EXPRESSION: return evaluate(w, row->value[reg], &cfa, value);
    default: return false;
  }
}

/* If sp is not known, the frame pointer leads to the two saved words, provided that they are adjacent as in a chain of frames. */
static step_t follow(walk_t *w, const cfi_rules_t *rules) {
  const cfi_row_t *row = &rules->row;
  uint64_t value[CFI_REGS], cfa, base;
  uint32_t known = 0;
  if (row->kind[rules->ra] == CFI_UNDEFINED) return STEP_END;
  if (row->cfa == CFI_EXPRESSION_CFA) {
    if (!evaluate(w, row->cfa_value, NULL, &cfa)) return STEP_STUCK;
  } else if (read_register(w, row->cfa, &base)) {
    cfa = base + (uint64_t)(int64_t)row->cfa_value;
  } else if (row->cfa == CFI_SP && row->kind[CFI_FP] == CFI_OFFSET && row->value[CFI_FP] + 8 == row->value[CFI_RA]) {
    cfa = w->reg[CFI_FP] - (uint64_t)(int64_t)row->value[CFI_FP];
  } else {
    return STEP_STUCK;
  }
  for (unsigned reg = 0; reg < CFI_REGS; reg++) {
    if (row->kind[reg] == CFI_SAME) known |= w->known & BIT(reg), value[reg] = w->reg[reg];
    else if (recover(w, row, reg, cfa, &value[reg])) known |= BIT(reg);
  }
  /* A function that was calling has saved its return address; only an interrupted leaf may still have it in the register. */
  bool kept = row->kind[rules->ra] == CFI_SAME;
  if ((known & BIT(rules->ra)) == 0 || (kept && !(w->exact && LEAF_KEEPS_RA))) return STEP_STUCK;
  if (row->kind[CFI_SP] != CFI_SAME && (known & BIT(CFI_SP)) == 0) return STEP_STUCK;
  step_t step = enter(w, value[rules->ra], row->kind[CFI_SP] == CFI_SAME ? cfa : value[CFI_SP]);
  value[CFI_SP] = w->reg[CFI_SP];
  for (unsigned reg = 0; reg < CFI_REGS; reg++) w->reg[reg] = value[reg];
  w->known = (known & ~BIT(CFI_RA)) | BIT(CFI_SP);
  w->exact = rules->signal;
  return step;
}

/* --- rules of earlier walks, by pc ------------------------------------------------------- */

/* Only for frames where the CFA is a register plus an offset, the frame pointer is unchanged or saved, and the return address is at its
 * usual place.  The two words of an entry are not written in one step, so each of them identifies the pc that the rule is for. */
typedef struct cache_entry {
  _Atomic uint64_t pc, rule; /* the rule's low half is a hash of the pc */
} cache_entry_t;
enum { CACHE_FIRST = 8, CACHE_SHIFT = 12, CACHE_ANEW = 256 };
/* The cache starts with one page and doubles whenever more than an eighth of its entries were replaced: among 15 addresses in 256 places
 * two collide with a chance of one third, and if both occur in every walk, no such walk is ever fully cached. */
static HAK_APART cache_entry_t rule_cache[1 << CACHE_SHIFT];
static _Atomic uint32_t cache_shift = CACHE_FIRST, cache_replaced;
static _Atomic uint32_t cache_walks;

/* A rule: whether the CFA is relative to the frame pointer, its offset in words (0: the thread began here), how many words below the CFA
 * the frame pointer is saved (0: it is not saved), and whether other registers are saved, too. */
enum { RULE_FP = 1, RULE_CFA = 1, RULE_CFA_BITS = 15, RULE_SAVED = 16, RULE_SAVED_BITS = 14, RULE_OTHERS = 30 };
/* The rule for code that has no tables and is not a signal return: no real CFA is 0 words from a frame pointer. */
enum { RULE_NONE = RULE_FP };

static uint64_t cache_hash(uint64_t pc) { return pc * GOLDEN_RATIO_64; }
static cache_entry_t *cache_at(uint64_t hash) { return &rule_cache[hash >> (64 - load_relaxed(&cache_shift))]; }

static void cache_grow(void) {
  uint32_t shift = load_relaxed(&cache_shift), replaced = load_relaxed(&cache_replaced) + 1;
  bool grows = shift < CACHE_SHIFT && replaced > (uint32_t)1 << shift >> 3;
  store_relaxed(&cache_replaced, grows ? 0 : replaced);
  if (grows) store_relaxed(&cache_shift, shift + 1); /* entries that are now at the wrong place are no longer found */
}

HAK_INLINE bool cache_get(uint64_t pc, uint32_t *rule) {
  uint64_t hash = cache_hash(pc);
  const cache_entry_t *entry = cache_at(hash);
  uint64_t found = load_relaxed(&entry->rule);
  *rule = (uint32_t)(found >> 32);
  return load_relaxed(&entry->pc) == pc && (uint32_t)found == (uint32_t)(hash >> 20);
}

static void cache_put(uint64_t pc, uint32_t rule) {
  uint64_t hash = cache_hash(pc), before;
  cache_entry_t *entry = cache_at(hash);
  before = load_relaxed(&entry->pc);
  if (before != 0 && before != pc) cache_grow();
  store_relaxed(&entry->pc, pc);
  store_relaxed(&entry->rule, (uint64_t)rule << 32 | (uint32_t)(hash >> 20));
}

static void cache_drop(uint64_t pc) {
  cache_entry_t *entry = cache_at(cache_hash(pc));
  if (load_relaxed(&entry->pc) == pc) store_relaxed(&entry->pc, 0);
}

/* Converts bytes below the CFA into words; false unless they are whole words and fit the bits. */
static bool words(int32_t below, unsigned bits, uint32_t *count) {
  *count = (uint32_t)below / 8;
  return below > 0 && below % 8 == 0 && *count < (uint32_t)1 << bits;
}

static bool rule_of(const cfi_rules_t *rules, uint32_t *rule) {
  const cfi_row_t *row = &rules->row;
  uint32_t offset, saved = 0, others = 0;
  bool ends = row->kind[rules->ra] == CFI_UNDEFINED;
  *rule = 0;
  if (ends || rules->signal || rules->ra != CFI_RA) return ends;
  if ((row->cfa != CFI_SP && row->cfa != CFI_FP) || !words(row->cfa_value, RULE_CFA_BITS, &offset)) return false;
  if (row->kind[CFI_FP] == CFI_OFFSET ? !words(-row->value[CFI_FP], RULE_SAVED_BITS, &saved) : row->kind[CFI_FP] != CFI_SAME) return false;
  int32_t place = LEAF_KEEPS_RA ? row->value[CFI_FP] + 8 : -8;
  if (row->kind[CFI_RA] != CFI_OFFSET || row->value[CFI_RA] != place || row->kind[CFI_SP] != CFI_SAME) return false;
  for (unsigned reg = 0; reg < CFI_REGS; reg++) {
    if (reg != CFI_FP && reg != CFI_RA && row->kind[reg] != CFI_SAME) others = 1;
  }
  *rule = (row->cfa == CFI_FP ? RULE_FP : 0) | offset << RULE_CFA | saved << RULE_SAVED | others << RULE_OTHERS;
  return true;
}

static uint32_t rule_part(uint32_t rule, unsigned shift, unsigned bits) { return rule >> shift & (((uint32_t)1 << bits) - 1); }

static void reads_note(unwind_reads_t *reads, uint64_t place) {
  if (place < reads->from) return;
  if (reads->count < UNWIND_READS) reads->place[reads->count++] = place;
  else reads->all = false;
}

/* Follows cached rules as far as they go, and stops at the first frame that needs more. */
UNWATCHED static step_t follow_cached(walk_t *w, void **frames, uint32_t *depth, uint32_t most) {
  const uint32_t needed = BIT(CFI_SP) | BIT(CFI_FP);
  uint64_t at = w->exact ? w->pc : w->pc - 1, sp = w->reg[CFI_SP], fp = w->reg[CFI_FP], fp_from = 0, unused;
  uint32_t rule, rules = 0;
  if ((w->known & needed) != needed) return STEP_DONE;
  while (*depth < most && cache_get(at, &rule)) {
    if (rule <= RULE_NONE) {
      if (rule == 0) return STEP_END;
      break;
    }
    uint64_t cfa = ((rule & RULE_FP) != 0 ? fp : sp) + 8 * (uint64_t)rule_part(rule, RULE_CFA, RULE_CFA_BITS);
    uint64_t saved = 8 * (uint64_t)rule_part(rule, RULE_SAVED, RULE_SAVED_BITS);
    uint64_t place = LEAF_KEEPS_RA ? cfa - saved + 8 : cfa - 8, fp_place = saved != 0 ? cfa - saved : place;
    if (cfa <= sp || cfa % 8 != 0 || fp_place < sp) break;
    if (fp_place < w->low || place >= w->high) {
      if (!read_word(w, fp_place, &unused) || !read_word(w, place, &unused)) break;
    }
    uint64_t next = stripped(*(const uint64_t *)place);
    if (next < PROBE_PAGE) break;
    if (w->reads != NULL) {
      if ((rule & RULE_FP) != 0 && fp_from != 0) reads_note(w->reads, fp_from);
      reads_note(w->reads, place);
    }
    if (saved != 0) fp = *(const uint64_t *)fp_place, fp_from = fp_place;
    w->read = place;
    frames[(*depth)++] = (void *)next;
    w->pc = next, at = next - 1;
    w->reg[CFI_SP] = sp = cfa;
    w->exact = false;
    rules |= rule;
  }
  w->reg[CFI_FP] = fp;
  if ((rules >> RULE_OTHERS & 1) != 0) {
    w->known = needed;
    w->thinned = true;
  }
  return STEP_DONE;
}

/* --- without tables ---------------------------------------------------------------------- */

/* Returns whether pc is at the code of libc or the kernel that a signal handler returns to; there the kernel has saved the registers. */
HAK_COLD UNWATCHED static bool at_signal_return(const walk_t *w) {
  const uint8_t *code = (const uint8_t *)w->pc;
#if defined(__x86_64__)
  static const uint8_t want[] = {0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05};
#else
  static const uint8_t want[] = {0x68, 0x11, 0x80, 0xd2, 0x01, 0, 0, 0xd4};
#endif
  uintptr_t last = w->pc + sizeof want - 1;
  if (last >= module_readable_end(&w->module, w->pc)) {
    if (!probe_readable(w->pc) || ((w->pc ^ last) >= PROBE_PAGE && !probe_readable(last))) return false;
  }
  for (unsigned i = 0; i < sizeof want; i++) {
    if (code[i] != want[i]) return false;
  }
  return true;
}

static step_t follow_signal(walk_t *w) {
#if defined(__x86_64__)
  static const uint8_t order[] = {8, 9, 10, 11, 12, 13, 14, 15, 5, 4, CFI_FP, 3, 1, 0, 2, CFI_SP, CFI_RA};
  enum { FIRST = 40 }; /* in struct ucontext */
#else
  static const uint8_t order[] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15,
                                  16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, CFI_SP};
  enum { FIRST = 128 + 176 + 8 }; /* behind struct siginfo */
#endif
  uint64_t at = w->reg[CFI_SP] + FIRST, value[CFI_REGS], pc;
  for (unsigned i = 0; i < sizeof order; i++, at += 8) {
    if (!read_word(w, at, &value[order[i]])) return STEP_STUCK;
  }
  pc = value[CFI_RA];
#if defined(__aarch64__)
  if (!read_word(w, at, &pc)) return STEP_STUCK;
#endif
  for (unsigned reg = 0; reg < CFI_REGS; reg++) w->reg[reg] = value[reg];
  w->known = (uint32_t)(((uint64_t)1 << CFI_REGS) - 1);
  w->pc = pc;
  w->exact = true;
  return pc < PROBE_PAGE ? STEP_END : STEP_DONE;
}

/* Stack that tables lead to is in use.  A frame pointer may skip past it: from then on stack is probed again, whatever was proved before,
 * except the page that the tables have just led to. */
static void guess(walk_t *w) {
  if (!w->guessed && !stack_is_first(w->reg[CFI_SP])) {
    w->low = w->read & ~(uint64_t)(PROBE_PAGE - 1);
    w->high = w->low + PROBE_PAGE;
  }
  w->guessed = true;
}

/* Requires that both words lie up the stack and that the return address is in known code.  The caller's frame pointer may be anything. */
static step_t follow_frame_pointer(walk_t *w) {
  uint64_t fp = w->reg[CFI_FP], next, pc;
  if ((w->known & BIT(CFI_FP)) == 0) return STEP_STUCK;
  if (fp == 0) return w->exact ? STEP_STUCK : STEP_END;
  guess(w);
  if (fp % 16 != 0 || !read_word(w, fp, &next) || !read_word(w, fp + 8, &pc)) return STEP_STUCK;
  pc = stripped(pc);
  if (!w->held && !(w->held = module_hold())) return STEP_STUCK; /* the words may be left from an earlier call */
  if (pc != 0 && !(module_has_text(&w->module, pc - 1) || module_find(pc - 1, &w->module))) return STEP_STUCK;
  w->reg[CFI_FP] = next;
  w->known = BIT(CFI_FP) | (LEAF_KEEPS_RA ? 0 : BIT(CFI_SP)); /* aarch64: the place of the two words in the frame is not known */
  return enter(w, pc, fp + 16);
}

/* --- the walk ---------------------------------------------------------------------------- */

static step_t step(walk_t *w) {
  if (w->reads != NULL) w->reads->all = false;
  uint64_t at = w->exact ? w->pc : w->pc - 1;
  uint32_t rule;
  if (!w->cached) cache_drop(at); /* the code that is there now may not fit a rule */
  else if (cache_get(at, &rule) && rule == RULE_NONE) return follow_frame_pointer(w);
  cfi_rules_t rules;
  bool found = module_has_text(&w->module, at) || module_find(at, &w->module);
  found = found && cfi_find(&w->module, at, &rules);
  if ((!found || rules.signal) && at_signal_return(w)) return follow_signal(w);
  if (!found) {
    if (!w->exact) cache_put(at, RULE_NONE); /* not for an exact pc: it may also be the pc - 1 of a frame at a signal's return */
    return follow_frame_pointer(w);
  }
  if (rule_of(&rules, &rule)) cache_put(at, rule);
  return follow(w, &rules);
}

static uint32_t walk(walk_t *w, void **frames, uint32_t most, step_t *last) {
  uint32_t depth = 0;
  *last = STEP_DONE;
  while (depth < most) {
    if (w->cached && (*last = follow_cached(w, frames, &depth, most)) == STEP_END) break;
    if (depth == most || (*last = step(w)) != STEP_DONE) break;
    frames[depth++] = (void *)w->pc;
  }
  if (w->held) module_let_go();
  return depth;
}

HAK_NOINLINE uint32_t unwind_here(void **frames, uint32_t most, bool *whole, unwind_reads_t *reads) {
  step_t last;
  walk_t start = {.known = START_KNOWN, .exact = true, .reads = reads}, w;
  if (reads != NULL) reads->count = 0, reads->all = true;
  walk_start(&start);
  start.reg[CFI_FP] = (uintptr_t)__builtin_frame_address(0); /* this call makes the register a frame pointer */
  start.low = start.reg[CFI_SP] & ~(uint64_t)(PROBE_PAGE - 1);
  start.high = stack_readable_end(start.reg[CFI_SP]);
  /* Cached rules become stale if a module goes and another takes its place, so one walk in CACHE_ANEW does not use them. */
  start.cached = (atomic_fetch_add_explicit(&cache_walks, 1, memory_order_relaxed) + 1) % CACHE_ANEW != 0;
  w = start;
  uint32_t depth = walk(&w, frames, most, &last);
  if (w.lost && last == STEP_STUCK) {
    w = start;
    w.cached = false;
    depth = walk(&w, frames, most, &last);
  }
  if (whole != NULL) *whole = last == STEP_END;
  return depth;
}

void unwind_forget(void) {
  for (uint32_t i = 0; i < (uint32_t)1 << load_relaxed(&cache_shift); i++) store_relaxed(&rule_cache[i].pc, 0);
}

void unwind_prepare(void) {
  stack_prepare();
  module_prepare();
}
