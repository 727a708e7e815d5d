/* fault.h - the line that is written when a wrong call ends the process.
 *
 *   hakmem: <fault>: <function>(<pointer>): <detail>
 */
#ifndef KIT_FAULT_H
#define KIT_FAULT_H

#include <stddef.h>

#include "base/atomics.h"
#include "base/bits.h"
#include "os/os.h"

/* `size_class` is the block size of the class, 0 if there is none, FAULT_LARGE for a span, FAULT_GUARDED for a guard slot. */
#define FAULT_LARGE ((size_t)-1)
#define FAULT_GUARDED ((size_t)-2)
void fault_line(const char *fault, const char *function, const void *pointer, const char *detail, size_t size_class);
/* The detail for a foreign pointer, if the process has done something that can explain such pointers; else NULL. */
extern const char *_Atomic fault_foreign;
/* Writes the line and ends the process. */
_Noreturn void fault_abort(const char *fault, const char *function, const void *pointer, const char *detail, size_t size_class);

/* For audits: ends the process if the condition does not hold.  `what` describes the broken state; `at` is the block, unit or record.
 * In a fork's child that is not repaired yet, conditions need not hold. */
#define AUDIT(condition, at, what)                                                                             \
  do {                                                                                                         \
    if (HAK_UNLIKELY(!(condition)) && !os_forked()) fault_abort("broken invariant", "audit", (at), (what), 0); \
  } while (0)

#endif
