/* family.h - what family.c defines, beside a hakmem that has only two of the names. */
#ifndef TESTS_API_FAMILY_H
#define TESTS_API_FAMILY_H

#include <stddef.h>

enum { FAMILY_MORE = 12345 };

void *mallocx(size_t size, int flags);
size_t nallocx(size_t size, int flags);
void sdallocx(void *block, size_t size, int flags);
extern unsigned family_frees;

#endif
