/* fault.h - the one line that a wrong call ends with.
 *
 *   hakmem: <fault>: <function>(<pointer>): <detail>
 */
#ifndef KIT_FAULT_H
#define KIT_FAULT_H

#include <stddef.h>

#include "base/atomics.h"
#include "base/bits.h"
#include "os/os.h"

/* `size_class` is the block size of the class, 0 where there is none, FAULT_LARGE for a span, FAULT_GUARDED for a guard slot. */
#define FAULT_LARGE ((size_t)-1)
#define FAULT_GUARDED ((size_t)-2)
void fault_line(const char *fault, const char *function, const void *pointer, const char *detail, size_t size_class);
/* The detail for a foreign pointer, where the process has done what brings such ones here; else NULL. */
extern const char *_Atomic fault_foreign;
/* The line, and the end. */
_Noreturn void fault_abort(const char *fault, const char *function, const void *pointer, const char *detail, size_t size_class);

/* An audit's: what must hold, and in words what does not if it does not hold; `at` is the block, unit or record that it is about.
 * In a fork's child that was not repaired yet, nothing must. */
#define AUDIT(condition, at, what)                                                                             \
  do {                                                                                                         \
    if (HAK_UNLIKELY(!(condition)) && !os_forked()) fault_abort("broken invariant", "audit", (at), (what), 0); \
  } while (0)

#endif
