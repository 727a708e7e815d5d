/* symbol.h - functions of the process by their names, in programs that are linked dynamically and in those that are not. */
#ifndef TESTS_SUPPORT_SYMBOL_H
#define TESTS_SUPPORT_SYMBOL_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The address of a global function: what the dynamic linker finds, else one of the program's own, exported or not. NULL where
 * there is none. Allocates nothing of its own. */
void *symbol_find(const char *name);
/* True where both lie in the same shared library, or both in the program. */
bool symbol_same_object(void *one, void *other);

#ifdef __cplusplus
}
#endif

#endif
