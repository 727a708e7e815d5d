/* fault.h - the one line that a wrong call ends with.
 *
 *   hakmem: <fault>: <function>(<pointer>): <detail>
 */
#ifndef KIT_FAULT_H
#define KIT_FAULT_H

#include <stddef.h>

/* `size_class` is the block size of the class, 0 where there is none, FAULT_LARGE for a span. */
#define FAULT_LARGE ((size_t)-1)
_Noreturn void fault_abort(const char *fault, const char *function, const void *pointer, const char *detail,
                           size_t size_class);

#endif
