/* replaced.h - the twenty forms of operator new and operator delete, by number, for replaced.cpp. */
#ifndef REPLACED_H
#define REPLACED_H

#include <cstddef>

// clang-format off: a line is a group
enum form {
  NEW, NEW_ARRAY, NEW_NOTHROW, NEW_ARRAY_NOTHROW,
  NEW_ALIGNED, NEW_ARRAY_ALIGNED, NEW_ALIGNED_NOTHROW, NEW_ARRAY_ALIGNED_NOTHROW,
  DELETE, DELETE_ARRAY, DELETE_SIZED, DELETE_ARRAY_SIZED, DELETE_NOTHROW, DELETE_ARRAY_NOTHROW,
  DELETE_ALIGNED, DELETE_ARRAY_ALIGNED, DELETE_SIZED_ALIGNED, DELETE_ARRAY_SIZED_ALIGNED,
  DELETE_ALIGNED_NOTHROW, DELETE_ARRAY_ALIGNED_NOTHROW,
  FORMS
};
// clang-format on

/* What a replaced form does: counts, and takes from malloc or gives to free. In the program. */
extern "C" void *replaced_new(form form, std::size_t size, std::size_t alignment);
extern "C" void replaced_delete(form form, void *block);

#endif
