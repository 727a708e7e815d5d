/* bare.cpp - a static program that uses next to nothing of the C++ library: what a failing operator new throws must be linked in for
 * its own sake. */
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>

int main(int argc, char **) {
  try {
    if (argc > 0) throw 1;
  } catch (int) {
  }
  const volatile std::size_t size = SIZE_MAX / 4;
  try {
    std::puts(static_cast<char *>(::operator new(size)));
  } catch (const std::exception &error) {
    return std::strcmp(error.what(), "std::bad_alloc") != 0;
  }
  return 1;
}
