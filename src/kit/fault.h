/* fault.h - the one line that a wrong call ends with.
 *
 *   hakmem: <fault>: <function>(<pointer>): <detail>
 */
#ifndef KIT_FAULT_H
#define KIT_FAULT_H

#include <stddef.h>

#include "base/atomics.h"

/* `size_class` is the block size of the class, 0 where there is none, FAULT_LARGE for a span, FAULT_GUARDED for a guard slot. */
#define FAULT_LARGE ((size_t)-1)
#define FAULT_GUARDED ((size_t)-2)
void fault_line(const char *fault, const char *function, const void *pointer, const char *detail, size_t size_class);
/* The detail for a foreign pointer, where the process has done what brings such ones here; else NULL. */
extern const char *_Atomic fault_foreign;
/* The line, and the end. */
_Noreturn void fault_abort(const char *fault, const char *function, const void *pointer, const char *detail,
                           size_t size_class);

#endif
