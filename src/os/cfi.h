/* cfi.h - what the unwind tables of a module (.eh_frame) say of an address: how to get from a frame to its caller's.
 *
 * Reads nothing but the module's own content, in a time that is bounded by its size; what does not make sense is no answer. */
#ifndef OS_CFI_H
#define OS_CFI_H

#include "os/module.h"

/* The registers by their numbers in the tables.  CFI_RA: where the address is that a call returns to. */
#if defined(__x86_64__)
enum { CFI_FP = 6, CFI_SP = 7, CFI_RA = 16, CFI_REGS = 17 };
#else
enum { CFI_FP = 29, CFI_RA = 30, CFI_SP = 31, CFI_REGS = 32 };
#endif
#define CFI_EXPRESSION_CFA 255 /* in the place of a register */

typedef enum cfi_kind {
  CFI_SAME,
  CFI_UNDEFINED,
  CFI_OFFSET,           /* saved at CFA + value */
  CFI_VALUE_OFFSET,     /* is CFA + value */
  CFI_REGISTER,         /* is in that register */
  CFI_EXPRESSION,       /* saved where the expression at module.start + value tells */
  CFI_VALUE_EXPRESSION, /* is what it tells */
} cfi_kind_t;

typedef struct cfi_row {
  int32_t value[CFI_REGS];
  uint8_t kind[CFI_REGS];
  uint8_t cfa; /* the register that cfa_value is to be added to; or cfa_value is an expression */
  int32_t cfa_value;
} cfi_row_t;

typedef struct cfi_rules {
  cfi_row_t row;
  uint8_t ra;            /* the register whose rule leads to the return address, CFI_RA but for odd code */
  bool signal;           /* the caller was interrupted: it has made no call */
  uintptr_t first, last; /* the addresses that these rules hold for, as far as is known */
} cfi_rules_t;

HAK_CHECKED bool cfi_find(const module_t *module, uintptr_t pc, cfi_rules_t *rules);

#endif
