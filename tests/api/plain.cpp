/* plain.cpp - hakmem.hpp where there are neither exceptions nor RTTI. */
#include <hakmem/hakmem.hpp>

#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <list>
#include <vector>

#if defined(__cpp_exceptions) || defined(__cpp_rtti)
#error "this is to be compiled without"
#endif

static void end(int) { std::_Exit(0); }

/* Ends well by SIGABRT alone: where C++ would throw the program ends. */
int main() {
  std::vector<int, hak::allocator<int>> numbers(100, 7);
  hak::heap cache{"cache"}, other{"other"};
  std::list<int, hak::heap_allocator<int>> links{cache};
  links.push_back(numbers[99]);
  std::pmr::vector<int> more(50, 7, cache.resource());
  if (cache.usage().blocks != 2 || links.front() != more[49]) return 1;
  if (*hak::get_memory_resource() != *hak::get_memory_resource()) return 2;
  if (*cache.resource() != *cache.resource() || *cache.resource() == *other.resource()) return 3;
  if (std::signal(SIGABRT, end) == SIG_ERR) return 4;
  (void)hak::allocator<char>().allocate(SIZE_MAX / 4);
  return 5;
}
