/* symbol.h - finds functions of the process by name, in dynamically and statically linked programs. */
#ifndef TESTS_SUPPORT_SYMBOL_H
#define TESTS_SUPPORT_SYMBOL_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The address of a global function: what the dynamic linker finds, otherwise one of the program's own, exported or not. NULL if there
 * is none. Makes no allocations of its own. */
void *symbol_find(const char *name);
/* Returns true if both lie in the same shared library, or both in the program. */
bool symbol_same_object(void *one, void *other);

#ifdef __cplusplus
}
#endif

#endif
