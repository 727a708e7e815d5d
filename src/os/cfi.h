/* cfi.h - reads the unwind tables of a module (.eh_frame): for an address, how to get from its frame to the caller's frame.
 *
 * Reads only the module's own content, in time bounded by the size of the module.  Malformed tables give no answer. */
#ifndef OS_CFI_H
#define OS_CFI_H

#include "os/module.h"

/* Register numbers as the tables use them.  CFI_RA: the column of the return address. */
#if defined(__x86_64__)
enum { CFI_FP = 6, CFI_SP = 7, CFI_RA = 16, CFI_REGS = 17 };
#else
enum { CFI_FP = 29, CFI_RA = 30, CFI_SP = 31, CFI_REGS = 32 };
#endif
#define CFI_EXPRESSION_CFA 255 /* in place of a register number */

typedef enum cfi_kind {
  CFI_SAME,
  CFI_UNDEFINED,
  CFI_OFFSET,           /* saved at CFA + value */
  CFI_VALUE_OFFSET,     /* is CFA + value */
  CFI_REGISTER,         /* is in that register */
  CFI_EXPRESSION,       /* saved at the address that the expression at module.start + value computes */
  CFI_VALUE_EXPRESSION, /* is the value that the expression computes */
} cfi_kind_t;

typedef struct cfi_row {
  int32_t value[CFI_REGS];
  uint8_t kind[CFI_REGS];
  uint8_t cfa; /* the register that cfa_value is added to; or CFI_EXPRESSION_CFA: cfa_value is the place of an expression */
  int32_t cfa_value;
} cfi_row_t;

typedef struct cfi_rules {
  cfi_row_t row;
  uint8_t ra;            /* the register whose rule gives the return address; CFI_RA except in unusual code */
  bool signal;           /* the caller was interrupted by a signal: it made no call */
  uintptr_t first, last; /* addresses that these rules are known to hold for */
} cfi_rules_t;

/* Finds the rules for pc; false if the module has none that can be read. */
HAK_CHECKED bool cfi_find(const module_t *module, uintptr_t pc, cfi_rules_t *rules);

#endif
