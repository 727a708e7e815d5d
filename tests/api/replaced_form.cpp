/* replaced_form.cpp - the program's own definition of one form, number FORM: an object of its own, so that any set of them can be
 * linked in or preloaded. */
#include "replaced.h"

#include <new>

/* A nothrow form must not throw. */
[[maybe_unused]] static void *quietly(form form, std::size_t size, std::size_t alignment) {
  try {
    return replaced_new(form, size, alignment);
  } catch (...) {
    return nullptr;
  }
}

#if FORM == 0
void *operator new(std::size_t size) { return replaced_new(NEW, size, 16); }
#elif FORM == 1
void *operator new[](std::size_t size) { return replaced_new(NEW_ARRAY, size, 16); }
#elif FORM == 2
void *operator new(std::size_t size, const std::nothrow_t &) noexcept { return quietly(NEW_NOTHROW, size, 16); }
#elif FORM == 3
void *operator new[](std::size_t size, const std::nothrow_t &) noexcept { return quietly(NEW_ARRAY_NOTHROW, size, 16); }
#elif FORM == 4
void *operator new(std::size_t size, std::align_val_t a) { return replaced_new(NEW_ALIGNED, size, std::size_t(a)); }
#elif FORM == 5
void *operator new[](std::size_t size, std::align_val_t a) { return replaced_new(NEW_ARRAY_ALIGNED, size, std::size_t(a)); }
#elif FORM == 6
void *operator new(std::size_t size, std::align_val_t a, const std::nothrow_t &) noexcept {
  return quietly(NEW_ALIGNED_NOTHROW, size, std::size_t(a));
}
#elif FORM == 7
void *operator new[](std::size_t size, std::align_val_t a, const std::nothrow_t &) noexcept {
  return quietly(NEW_ARRAY_ALIGNED_NOTHROW, size, std::size_t(a));
}
#elif FORM == 8
void operator delete(void *p) noexcept { replaced_delete(DELETE, p); }
#elif FORM == 9
void operator delete[](void *p) noexcept { replaced_delete(DELETE_ARRAY, p); }
#elif FORM == 10
void operator delete(void *p, std::size_t) noexcept { replaced_delete(DELETE_SIZED, p); }
#elif FORM == 11
void operator delete[](void *p, std::size_t) noexcept { replaced_delete(DELETE_ARRAY_SIZED, p); }
#elif FORM == 12
void operator delete(void *p, const std::nothrow_t &) noexcept { replaced_delete(DELETE_NOTHROW, p); }
#elif FORM == 13
void operator delete[](void *p, const std::nothrow_t &) noexcept { replaced_delete(DELETE_ARRAY_NOTHROW, p); }
#elif FORM == 14
void operator delete(void *p, std::align_val_t) noexcept { replaced_delete(DELETE_ALIGNED, p); }
#elif FORM == 15
void operator delete[](void *p, std::align_val_t) noexcept { replaced_delete(DELETE_ARRAY_ALIGNED, p); }
#elif FORM == 16
void operator delete(void *p, std::size_t, std::align_val_t) noexcept { replaced_delete(DELETE_SIZED_ALIGNED, p); }
#elif FORM == 17
void operator delete[](void *p, std::size_t, std::align_val_t) noexcept { replaced_delete(DELETE_ARRAY_SIZED_ALIGNED, p); }
#elif FORM == 18
void operator delete(void *p, std::align_val_t, const std::nothrow_t &) noexcept { replaced_delete(DELETE_ALIGNED_NOTHROW, p); }
#elif FORM == 19
void operator delete[](void *p, std::align_val_t, const std::nothrow_t &) noexcept { replaced_delete(DELETE_ARRAY_ALIGNED_NOTHROW, p); }
#endif
