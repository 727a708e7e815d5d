/* operators.cpp - every form of operator new and operator delete, called
 * directly, and new-expressions, containers and thread_local objects. */
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <dlfcn.h>
#include <pthread.h>

#include "check.h"
#include "symbol.h"

int main(int argc, char **argv) { return check_main(argc, argv); }

namespace {

constexpr std::size_t sizes[] = {0,    1,    8,    15,   16,    17,    24,    64,    100,    200,    512,     1000,
                                 1024, 1025, 4096, 5000, 20000, 32768, 40000, 65536, 100000, 262144, 1000000, 3000000};
constexpr std::size_t impossible[] = {SIZE_MAX, SIZE_MAX - 16, SIZE_MAX - 4096, std::size_t(PTRDIFF_MAX) + 1, std::size_t(1) << 60};
constexpr int mark = 8191;

bool aligned(void *block, std::size_t alignment) { return (reinterpret_cast<std::uintptr_t>(block) & (alignment - 1)) == 0; }

/* One block for each size and form: allocated, aligned, written, freed. */
template <typename New, typename Delete>
void pair_works(New make, Delete destroy, std::size_t alignment = 16) {
  for (std::size_t size : sizes) {
    errno = mark;
    void *first = make(size), *second = make(size);
    CHECK_EQ(errno, mark);
    CHECK(first && second && first != second);
    CHECK(aligned(first, alignment) && aligned(second, alignment));
    std::memset(first, 1, size), std::memset(second, 2, size);
    CHECK(!size || (static_cast<char *>(first)[size - 1] == 1 && static_cast<char *>(second)[0] == 2));
    errno = mark;
    destroy(first, size), destroy(second, size);
    CHECK_EQ(errno, mark);
  }
}

template <typename New>
void throws_bad_alloc(New make) {
  for (std::size_t size : impossible) {
    bool thrown = false;
    try {
      void *block = make(size);
      CHECK(!block);
    } catch (const std::bad_alloc &error) {
      thrown = std::strstr(error.what(), "bad_alloc") != nullptr;
    }
    CHECK(thrown);
  }
}

template <typename New>
void returns_null(New make) {
  for (std::size_t size : impossible) CHECK(make(size) == nullptr);
}

int handler_calls;

void count_and_give_up() {
  handler_calls++;
  if (handler_calls == 3) std::set_new_handler(nullptr);
}

void throw_something() { throw std::runtime_error("handler"); }

template <typename New>
void calls_the_handler(New make, bool throws) {
  handler_calls = 0;
  std::set_new_handler(count_and_give_up);
  bool thrown = false;
  try {
    const volatile std::size_t size = SIZE_MAX / 2 + 100; /* hidden from the compiler */
    void *block = make(size);
    CHECK(!block);
  } catch (const std::bad_alloc &) {
    thrown = true;
  }
  CHECK_EQ(handler_calls, 3);
  CHECK_EQ(thrown, throws);
  CHECK(std::get_new_handler() == nullptr);
}

constexpr std::align_val_t align(std::size_t n) { return std::align_val_t(n); }

} // namespace

/* ---- Where they come from ---- */

TEST(operators_come_from_hakmem) {
  void *version = symbol_find("hak_version");
  if (!version && !std::getenv("TEST_EXPECTS_HAKMEM")) check_skip("the system's malloc runs");
  CHECK(version && symbol_same_object(version, symbol_find("_Znwm")));
}

/* ---- Each form with the delete that belongs to it ---- */

TEST(new_and_delete) {
  pair_works([](std::size_t n) { return ::operator new(n); }, [](void *p, std::size_t) { ::operator delete(p); });
}
TEST(new_and_sized_delete) {
  pair_works([](std::size_t n) { return ::operator new(n); }, [](void *p, std::size_t n) { ::operator delete(p, n); });
}
TEST(new_array_and_delete) {
  pair_works([](std::size_t n) { return ::operator new[](n); }, [](void *p, std::size_t) { ::operator delete[](p); });
}
TEST(new_array_and_sized_delete) {
  pair_works([](std::size_t n) { return ::operator new[](n); }, [](void *p, std::size_t n) { ::operator delete[](p, n); });
}
TEST(nothrow_new_and_delete) {
  pair_works([](std::size_t n) { return ::operator new(n, std::nothrow); }, [](void *p, std::size_t) { ::operator delete(p); });
}
TEST(nothrow_new_and_nothrow_delete) {
  pair_works([](std::size_t n) { return ::operator new(n, std::nothrow); },
             [](void *p, std::size_t) { ::operator delete(p, std::nothrow); });
}
TEST(nothrow_new_array_and_nothrow_delete) {
  pair_works([](std::size_t n) { return ::operator new[](n, std::nothrow); },
             [](void *p, std::size_t) { ::operator delete[](p, std::nothrow); });
}
TEST(aligned_new_and_delete) {
  for (std::size_t a = 1; a <= 1 << 21; a *= 2)
    pair_works([a](std::size_t n) { return ::operator new(n, align(a)); }, [a](void *p, std::size_t) { ::operator delete(p, align(a)); },
               a);
}
TEST(aligned_new_and_sized_delete) {
  for (std::size_t a = 1; a <= 1 << 21; a *= 2)
    pair_works([a](std::size_t n) { return ::operator new(n, align(a)); },
               [a](void *p, std::size_t n) { ::operator delete(p, n, align(a)); }, a);
}
TEST(aligned_new_array_and_delete) {
  for (std::size_t a = 1; a <= 1 << 21; a *= 2)
    pair_works([a](std::size_t n) { return ::operator new[](n, align(a)); },
               [a](void *p, std::size_t) { ::operator delete[](p, align(a)); }, a);
}
TEST(aligned_new_array_and_sized_delete) {
  for (std::size_t a = 1; a <= 1 << 21; a *= 2)
    pair_works([a](std::size_t n) { return ::operator new[](n, align(a)); },
               [a](void *p, std::size_t n) { ::operator delete[](p, n, align(a)); }, a);
}
TEST(aligned_nothrow_new_and_nothrow_delete) {
  for (std::size_t a = 1; a <= 1 << 21; a *= 2)
    pair_works([a](std::size_t n) { return ::operator new(n, align(a), std::nothrow); },
               [a](void *p, std::size_t) { ::operator delete(p, align(a), std::nothrow); }, a);
}
TEST(aligned_nothrow_new_array_and_nothrow_delete) {
  for (std::size_t a = 1; a <= 1 << 21; a *= 2)
    pair_works([a](std::size_t n) { return ::operator new[](n, align(a), std::nothrow); },
               [a](void *p, std::size_t) { ::operator delete[](p, align(a), std::nothrow); }, a);
}

/* ---- delete of null ---- */

TEST(delete_of_null_is_no_action) {
  void *null = nullptr;
  errno = mark;
  ::operator delete(null), ::operator delete[](null);
  ::operator delete(null, 10), ::operator delete[](null, 10);
  ::operator delete(null, std::nothrow), ::operator delete[](null, std::nothrow);
  ::operator delete(null, align(64)), ::operator delete[](null, align(64));
  ::operator delete(null, 10, align(64)), ::operator delete[](null, 10, align(64));
  ::operator delete(null, align(64), std::nothrow), ::operator delete[](null, align(64), std::nothrow);
  CHECK_EQ(errno, mark);
}

/* ---- Mixing with malloc and with the other forms, as glibc allows ---- */

TEST(mixing_new_and_free) {
  for (std::size_t size : sizes) {
    std::free(::operator new(size));
    std::free(::operator new[](size, std::nothrow));
    std::free(::operator new(size, align(256)));
    ::operator delete(std::malloc(size));
    ::operator delete[](::operator new(size));
    ::operator delete(::operator new[](size));
    void *moved = std::realloc(::operator new(size), size + 100);
    CHECK(moved);
    ::operator delete(moved);
  }
}

/* ---- Failure ---- */

TEST(new_throws_bad_alloc) {
  throws_bad_alloc([](std::size_t n) { return ::operator new(n); });
}
TEST(new_array_throws_bad_alloc) {
  throws_bad_alloc([](std::size_t n) { return ::operator new[](n); });
}
TEST(aligned_new_throws_bad_alloc) {
  throws_bad_alloc([](std::size_t n) { return ::operator new(n, align(64)); });
}
TEST(aligned_new_array_throws_bad_alloc) {
  throws_bad_alloc([](std::size_t n) { return ::operator new[](n, align(4096)); });
}
TEST(aligned_new_of_an_impossible_alignment_throws_bad_alloc) {
  bool thrown = false;
  const volatile std::size_t alignment = std::size_t(1) << 62; /* hidden from the compiler */
  try {
    void *block = ::operator new(100, align(alignment));
    CHECK(!block);
  } catch (const std::bad_alloc &) {
    thrown = true;
  }
  CHECK(thrown);
  CHECK(::operator new(100, align(alignment), std::nothrow) == nullptr);
}
TEST(nothrow_new_returns_null) {
  returns_null([](std::size_t n) { return ::operator new(n, std::nothrow); });
}
TEST(nothrow_new_array_returns_null) {
  returns_null([](std::size_t n) { return ::operator new[](n, std::nothrow); });
}
TEST(aligned_nothrow_new_returns_null) {
  returns_null([](std::size_t n) { return ::operator new(n, align(64), std::nothrow); });
}
TEST(aligned_nothrow_new_array_returns_null) {
  returns_null([](std::size_t n) { return ::operator new[](n, align(64), std::nothrow); });
}
TEST(new_works_after_failures) {
  for (int i = 0; i < 200; i++) {
    try {
      ::operator delete(::operator new(SIZE_MAX - std::size_t(i)));
      CHECK(false);
    } catch (const std::bad_alloc &) {
    }
    auto text = std::make_unique<std::string>(std::size_t(i), 'x');
    CHECK(text->size() == std::size_t(i));
  }
}

/* ---- The new handler ---- */

TEST(new_calls_the_handler) {
  calls_the_handler([](std::size_t n) { return ::operator new(n); }, true);
}
TEST(new_array_calls_the_handler) {
  calls_the_handler([](std::size_t n) { return ::operator new[](n); }, true);
}
TEST(aligned_new_calls_the_handler) {
  calls_the_handler([](std::size_t n) { return ::operator new(n, align(128)); }, true);
}
TEST(nothrow_new_calls_the_handler) {
  calls_the_handler([](std::size_t n) { return ::operator new(n, std::nothrow); }, false);
}
TEST(aligned_nothrow_new_calls_the_handler) {
  calls_the_handler([](std::size_t n) { return ::operator new[](n, align(128), std::nothrow); }, false);
}
TEST(handler_may_throw_through_new) {
  bool thrown = false;
  std::set_new_handler(throw_something);
  try {
    ::operator delete(::operator new(SIZE_MAX));
  } catch (const std::runtime_error &) {
    thrown = true;
  }
  CHECK(thrown);
}
TEST(handler_may_throw_in_nothrow_new) {
  std::set_new_handler(throw_something);
  const volatile std::size_t size = SIZE_MAX / 2;
  CHECK(::operator new(size, std::nothrow) == nullptr);
  CHECK(::operator new[](size, std::nothrow) == nullptr);
  CHECK(::operator new(size, align(64), std::nothrow) == nullptr);
  CHECK(::operator new[](size, align(64), std::nothrow) == nullptr);
  CHECK(!std::uncaught_exceptions() && !std::current_exception());
}

namespace {

void leave_thread() { pthread_exit(&handler_calls); }

void *allocate_quietly(void *unused) {
  const volatile std::size_t size = SIZE_MAX / 2;
  return ::operator new(size, std::nothrow) ? nullptr : unused;
}

} // namespace

/* The C++ library ends the process here. */
TEST(a_thread_may_end_in_nothrow_new) {
  if (!dlsym(RTLD_DEFAULT, "hak_version")) check_skip("the system's malloc runs");
  std::set_new_handler(leave_thread);
  pthread_t thread;
  void *result = nullptr;
  CHECK(pthread_create(&thread, nullptr, allocate_quietly, nullptr) == 0);
  CHECK(pthread_join(thread, &result) == 0);
  CHECK(result == &handler_calls);
}
TEST(malloc_does_not_call_the_handler) {
  handler_calls = 0;
  std::set_new_handler(count_and_give_up);
  void *(*volatile allocate)(std::size_t) = std::malloc;
  CHECK(!allocate(SIZE_MAX));
  CHECK_EQ(handler_calls, 0);
}

/* ---- The language's own uses ---- */

namespace {

struct alignas(512) wide {
  char content[700];
};

struct counted {
  static int live;
  int value[5];
  counted() { live++; }
  ~counted() { live--; }
};
int counted::live;

struct refuses {
  refuses() { throw std::runtime_error("constructor"); }
  char content[1000];
};

struct at_thread_end {
  std::vector<std::string> texts;
  ~at_thread_end() {
    for (int i = 0; i < 100; i++) texts.push_back(std::string(std::size_t(i) * 10, 'y'));
    CHECK(texts.size() == 200 && texts[199].size() == 990);
    texts.clear();
    texts.shrink_to_fit();
  }
};

thread_local at_thread_end first_local, second_local;

void fill_locals() {
  for (int i = 0; i < 100; i++) first_local.texts.push_back(std::string(std::size_t(i), 'x')), second_local.texts.push_back("short");
}

} // namespace

TEST(expressions_of_wide_types_are_aligned) {
  for (int i = 1; i < 20; i++) {
    auto *one = new wide;
    auto *array = new wide[std::size_t(i)];
    CHECK(aligned(one, 512) && aligned(array, 512));
    one->content[699] = array[i - 1].content[699] = 1;
    delete one;
    delete[] array;
  }
}

TEST(expressions_of_arrays_destroy_each_element) {
  for (std::size_t i = 0; i < 200; i++) {
    auto *array = new counted[i];
    CHECK_EQ(counted::live, i);
    delete[] array;
  }
  CHECK_EQ(counted::live, 0);
}

TEST(expressions_give_the_memory_back_when_a_constructor_throws) {
  std::size_t before = check_resident();
  for (int i = 0; i < 100000; i++) {
    try {
      delete new refuses;
      CHECK(false);
    } catch (const std::runtime_error &) {
    }
  }
  CHECK(check_resident() < before + (std::size_t(16) << 20));
}

TEST(containers_grow_and_shrink) {
  std::map<std::string, std::vector<int>> map;
  for (int i = 0; i < 2000; i++) map["a rather long key number " + std::to_string(i)].assign(std::size_t(i % 300), i);
  for (int i = 0; i < 2000; i += 2) map.erase("a rather long key number " + std::to_string(i));
  bool right = true;
  for (auto &[name, values] : map)
    for (int value : values) right = right && name == "a rather long key number " + std::to_string(value);
  CHECK(right && map.size() == 1000);
}

TEST(exceptions_cross_threads) {
  std::exception_ptr caught;
  std::thread([&] {
    try {
      throw std::runtime_error(std::string(1000, 'z'));
    } catch (...) {
      caught = std::current_exception();
    }
  }).join();
  try {
    std::rethrow_exception(caught);
  } catch (const std::runtime_error &error) {
    CHECK(std::strlen(error.what()) == 1000);
  }
}

TEST(thread_local_destructors_allocate) {
  for (int i = 0; i < 50; i++) std::thread(fill_locals).join();
}
