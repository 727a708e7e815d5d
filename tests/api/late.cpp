/* late.cpp - a library in C++ that a program in C opens: its runtime is in its own scope alone, and an operator new that
 * fails must behave as ever.  One bit for each thing that went wrong. */
#include <cstddef>
#include <cstdint>
#include <new>

static int handled;

static void give_up() {
  if (++handled == 2) std::set_new_handler(nullptr);
}
static void throw_number() { throw 5; }

template <typename Make>
static bool throws_bad_alloc(Make make) {
  try {
    return make() == nullptr && false;
  } catch (const std::bad_alloc &) {
    return true;
  }
}

static bool throws_the_handlers(std::size_t size) {
  try {
    void *volatile block = ::operator new(size);
    return block == nullptr && false;
  } catch (int number) {
    return number == 5;
  }
}

extern "C" int late() {
  const volatile std::size_t size = PTRDIFF_MAX - 100;
  const volatile std::size_t wide = 64;
  int wrong = 0;
  if (!throws_bad_alloc([&] { return ::operator new(size); })) wrong |= 1;
  if (!throws_bad_alloc([&] { return ::operator new[](size, std::align_val_t(wide)); })) wrong |= 2;
  if (::operator new(size, std::nothrow)) wrong |= 4;
  std::set_new_handler(give_up);
  if (::operator new[](size, std::nothrow) || handled != 2) wrong |= 8;
  std::set_new_handler(throw_number);
  if (::operator new(size, std::align_val_t(wide), std::nothrow)) wrong |= 16;
  if (!throws_the_handlers(size)) wrong |= 32;
  std::set_new_handler(nullptr);
  char *block = new char[100];
  delete[] block;
  return wrong;
}
