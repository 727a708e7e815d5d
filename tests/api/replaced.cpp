/* replaced.cpp - calls every form of operator new and operator delete, and prints which of the program's own forms each call
 * reached, how often, and how it ended.  Which forms those are is for who links or starts it: replaced.py, which compares what is
 * printed with what the C++ library alone makes of the same set. */
#include "replaced.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>

static int calls[FORMS];
// clang-format off: as the enum
static const char *const names[FORMS] = {
    "new", "new[]", "new nothrow", "new[] nothrow", "new aligned", "new[] aligned", "new aligned nothrow", "new[] aligned nothrow",
    "delete", "delete[]", "delete sized", "delete[] sized", "delete nothrow", "delete[] nothrow", "delete aligned",
    "delete[] aligned", "delete sized aligned", "delete[] sized aligned", "delete aligned nothrow", "delete[] aligned nothrow"};
// clang-format on

static const std::size_t impossible = PTRDIFF_MAX - 100;
static bool throws_other;

extern "C" void *replaced_new(form form, std::size_t size, std::size_t alignment) {
  calls[form]++;
  void *block = alignment <= 16 ? std::malloc(size) : std::aligned_alloc(alignment, size);
  if (!block && throws_other) throw 5;
  if (!block) throw std::bad_alloc();
  return block;
}

extern "C" void replaced_delete(form form, void *block) {
  calls[form]++;
  std::free(block);
}

static void *make(int form, std::size_t size) {
  const std::align_val_t wide{64};
  switch (form) {
    case NEW: return ::operator new(size);
    case NEW_ARRAY: return ::operator new[](size);
    case NEW_NOTHROW: return ::operator new(size, std::nothrow);
    case NEW_ARRAY_NOTHROW: return ::operator new[](size, std::nothrow);
    case NEW_ALIGNED: return ::operator new(size, wide);
    case NEW_ARRAY_ALIGNED: return ::operator new[](size, wide);
    case NEW_ALIGNED_NOTHROW: return ::operator new(size, wide, std::nothrow);
    default: return ::operator new[](size, wide, std::nothrow);
  }
}

static void destroy(int form, void *block, std::size_t size) {
  const std::align_val_t wide{64};
  switch (form) {
    case DELETE: return ::operator delete(block);
    case DELETE_ARRAY: return ::operator delete[](block);
    case DELETE_SIZED: return ::operator delete(block, size);
    case DELETE_ARRAY_SIZED: return ::operator delete[](block, size);
    case DELETE_NOTHROW: return ::operator delete(block, std::nothrow);
    case DELETE_ARRAY_NOTHROW: return ::operator delete[](block, std::nothrow);
    case DELETE_ALIGNED: return ::operator delete(block, wide);
    case DELETE_ARRAY_ALIGNED: return ::operator delete[](block, wide);
    case DELETE_SIZED_ALIGNED: return ::operator delete(block, size, wide);
    case DELETE_ARRAY_SIZED_ALIGNED: return ::operator delete[](block, size, wide);
    case DELETE_ALIGNED_NOTHROW: return ::operator delete(block, wide, std::nothrow);
    default: return ::operator delete[](block, wide, std::nothrow);
  }
}

static void print_calls(const char *what, const char *form, const char *end) {
  std::printf("%s %s:", what, form);
  for (int i = 0; i < FORMS; i++) {
    if (calls[i]) std::printf(" %d x %s,", calls[i], names[i]);
  }
  std::printf(" %s\n", end);
  std::memset(calls, 0, sizeof calls);
}

/* ---- Each new, given to each delete ---- */

static const std::size_t sizes[] = {0, 24, 1000, 5000, 40000, 300000};

static void pair_up(int maker, int destroyer) {
  for (std::size_t size : sizes) {
    char *block = static_cast<char *>(make(maker, size));
    if (!block) std::abort();
    std::memset(block, 1, size);
    if (maker >= NEW_ALIGNED && reinterpret_cast<std::uintptr_t>(block) % 64 != 0) std::abort();
    destroy(destroyer, block, size);
  }
  print_calls(names[maker], names[destroyer], "");
}

/* ---- Failures ---- */

static int handled;
static void give_up() {
  if (++handled == 3) std::set_new_handler(nullptr);
}
static void throw_number() {
  handled++;
  throw 7;
}
static const char *failing(int form, std::size_t size) {
  try {
    return make(form, size) ? "a block" : "null";
  } catch (const std::bad_alloc &) {
    return "bad_alloc";
  } catch (int number) {
    return number == 7 ? "the handler's" : "another";
  }
}

static void fail(const char *what, int form, std::new_handler handler) {
  handled = 0;
  std::set_new_handler(handler);
  const volatile std::size_t size = impossible;
  std::string end = failing(form, size);
  end += ", handler called " + std::to_string(handled);
  std::set_new_handler(nullptr);
  print_calls(what, names[form], end.c_str());
}

struct wide {
  alignas(64) char content[128];
};

/* What the compiler makes of expressions, and what the C++ library calls. */
static void use_expressions() {
  delete new int(3);
  delete[] new int[50];
  delete new wide;
  delete[] new wide[3];
  delete new (std::nothrow) wide;
  print_calls("expressions", "", "");
  std::string text(100, 'x');
  text += text;
  text.shrink_to_fit();
  text = std::string();
  print_calls("string", "", "");
}

int main() {
  for (int maker = NEW; maker < DELETE; maker++) {
    bool aligned = maker >= NEW_ALIGNED;
    for (int d = aligned ? DELETE_ALIGNED : DELETE; d < (aligned ? FORMS : DELETE_ALIGNED); d++) pair_up(maker, d);
  }
  for (int d = DELETE; d < FORMS; d++) {
    destroy(d, nullptr, 10);
    print_calls("of null", names[d], "");
  }
  for (int form = NEW; form < DELETE; form++) {
    fail("no handler", form, nullptr);
    fail("one that gives up", form, give_up);
    fail("one that throws", form, throw_number);
    throws_other = true;
    fail("no handler, another exception", form, nullptr);
    throws_other = false;
  }
  use_expressions();
}
