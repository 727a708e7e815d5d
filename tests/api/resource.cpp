/* resource.cpp - hakmem.hpp: the STL allocator and the memory resource. */
#include <hakmem/hakmem.hpp>

#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <list>
#include <map>
#include <memory>
#include <memory_resource>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "check.h"

int main(int argc, char **argv) { return check_main(argc, argv); }

namespace {

bool aligned(const void *block, std::size_t alignment) { return (reinterpret_cast<std::uintptr_t>(block) & (alignment - 1)) == 0; }

struct alignas(4096) page {
  char content[5000];
};

} // namespace

using traits = std::allocator_traits<hak::allocator<int>>;
static_assert(traits::is_always_equal::value && std::is_empty_v<hak::allocator<int>>);
static_assert(traits::propagate_on_container_move_assignment::value);
static_assert(std::is_same_v<traits::rebind_alloc<page>, hak::allocator<page>>);
static_assert(std::is_nothrow_default_constructible_v<hak::allocator<int>> &&
              std::is_convertible_v<hak::allocator<int>, hak::allocator<char>>);

TEST(allocator_serves_a_vector) {
  std::vector<int, hak::allocator<int>> numbers;
  for (int i = 0; i < 1000000; i++) numbers.push_back(i);
  bool right = true;
  for (int i = 0; i < 1000000; i++) right = right && numbers[std::size_t(i)] == i;
  CHECK(right);
  numbers.resize(10);
  numbers.shrink_to_fit();
  CHECK(hak_malloc_usable_size(numbers.data()) >= 40 && hak_malloc_usable_size(numbers.data()) < 100);
}

TEST(allocator_takes_its_memory_from_hakmem) {
  std::vector<char, hak::allocator<char>> bytes(1000);
  CHECK(hak_malloc_usable_size(bytes.data()) == hak_malloc_good_size(1000));
}

TEST(allocator_serves_node_containers) {
  using text = std::basic_string<char, std::char_traits<char>, hak::allocator<char>>;
  std::map<int, text, std::less<>, hak::allocator<std::pair<const int, text>>> map;
  std::list<text, hak::allocator<text>> list;
  for (int i = 0; i < 5000; i++) map.emplace(i, text(std::size_t(i % 200), 'x')), list.push_back(map[i]);
  for (int i = 0; i < 5000; i += 3) map.erase(i);
  CHECK(map.size() == 3333 && list.size() == 5000);
  for (auto &[key, value] : map) CHECK(value.size() == std::size_t(key % 200));
}

TEST(allocator_honours_wide_alignment) {
  hak::allocator<page> pages;
  for (std::size_t count = 0; count < 20; count++) {
    page *block = pages.allocate(count);
    CHECK(block && aligned(block, 4096));
    if (count) std::memset(block, 1, count * sizeof(page));
    pages.deallocate(block, count);
  }
  std::vector<page, hak::allocator<page>> vector(7);
  CHECK(aligned(&vector[3], 4096));
}

TEST(allocator_of_0_objects_is_a_block) {
  hak::allocator<long> longs;
  long *first = longs.allocate(0), *second = longs.allocate(0);
  CHECK(first && second && first != second);
  longs.deallocate(first, 0), longs.deallocate(second, 0);
}

TEST(allocator_overflow_is_bad_array_new_length) {
  hak::allocator<long> longs;
  int thrown = 0;
  for (std::size_t count : {SIZE_MAX, SIZE_MAX / 8 + 1, SIZE_MAX / 2}) {
    try {
      longs.deallocate(longs.allocate(count), count);
    } catch (const std::bad_array_new_length &) {
      thrown++;
    }
  }
  CHECK_EQ(thrown, 3);
}

TEST(allocator_out_of_memory_is_bad_alloc) {
  bool thrown = false;
  try {
    std::vector<char, hak::allocator<char>> bytes;
    bytes.reserve(std::size_t(PTRDIFF_MAX));
  } catch (const std::bad_array_new_length &) {
  } catch (const std::bad_alloc &) {
    thrown = true;
  }
  CHECK(thrown);
}

TEST(allocators_are_equal) {
  hak::allocator<int> ints;
  hak::allocator<std::string> strings(ints);
  CHECK(ints == strings);
  CHECK(!(ints != strings));
}

TEST(allocator_memory_may_be_freed_by_hak_free) {
  hak::allocator<int> ints;
  hak_free(ints.allocate(100));
  ints.deallocate(static_cast<int *>(hak_malloc(400)), 100);
}

TEST(allocator_moves_between_threads) {
  std::vector<int, hak::allocator<int>> numbers(100000, 7);
  std::thread([moved = std::move(numbers)]() mutable { moved.assign(10, 1), moved.shrink_to_fit(); }).join();
  auto shared = std::allocate_shared<page>(hak::allocator<page>());
  CHECK(aligned(shared.get(), 4096));
  std::thread([last = std::move(shared)]() mutable { last.reset(); }).join();
}

TEST(resource_is_one_and_equal_to_itself) {
  auto *resource = hak::get_memory_resource();
  hak::memory_resource another;
  CHECK(resource == hak::get_memory_resource());
  CHECK(*resource == another && another == *resource);
  CHECK(*resource != *std::pmr::new_delete_resource());
}

TEST(resource_takes_its_memory_from_hakmem) {
  std::pmr::memory_resource *resource = hak::get_memory_resource();
  void *block = resource->allocate(1000);
  CHECK(hak_malloc_usable_size(block) == hak_malloc_good_size(1000));
  resource->deallocate(block, 1000);
}

TEST(resource_honours_every_alignment) {
  std::pmr::memory_resource *resource = hak::get_memory_resource();
  for (std::size_t alignment = 1; alignment <= std::size_t(1) << 22; alignment *= 2)
    for (std::size_t size : std::initializer_list<std::size_t>{0, 1, 100, 5000, 300000}) {
      void *block = resource->allocate(size, alignment);
      CHECK(block && aligned(block, alignment) && aligned(block, 16));
      std::memset(block, 1, size);
      resource->deallocate(block, size, alignment);
    }
}

TEST(resource_failure_is_bad_alloc) {
  std::pmr::memory_resource *resource = hak::get_memory_resource();
  int thrown = 0;
  for (std::size_t size : {SIZE_MAX, std::size_t(PTRDIFF_MAX) + 1, std::size_t(1) << 60})
    for (std::size_t alignment : std::initializer_list<std::size_t>{8, 64}) {
      try {
        resource->deallocate(resource->allocate(size, alignment), size, alignment);
      } catch (const std::bad_alloc &) {
        thrown++;
      }
    }
  CHECK_EQ(thrown, 6);
}

TEST(resource_refuses_odd_alignments) {
  std::size_t volatile odd[] = {0, 3, 24};
  std::pmr::memory_resource *resource = hak::get_memory_resource();
  int thrown = 0;
  for (std::size_t alignment : odd) {
    try {
      resource->deallocate(resource->allocate(100, alignment), 100, alignment);
    } catch (const std::bad_alloc &) {
      thrown++;
    }
  }
  CHECK_EQ(thrown, 3);
}

TEST(resource_serves_pmr_containers) {
  std::pmr::unordered_map<std::pmr::string, std::pmr::vector<int>> map(hak::get_memory_resource());
  for (int i = 0; i < 3000; i++) map[std::pmr::string(std::to_string(i) + " is a number of some length")].resize(std::size_t(i % 100));
  CHECK(map.size() == 3000);
  CHECK(map.begin()->first.get_allocator().resource() == hak::get_memory_resource());
  map.clear();
}

TEST(resource_feeds_other_resources) {
  std::pmr::monotonic_buffer_resource buffer(hak::get_memory_resource());
  std::pmr::unsynchronized_pool_resource pool(hak::get_memory_resource());
  std::pmr::vector<int> first(&buffer), second(&pool);
  for (int i = 0; i < 100000; i++) first.push_back(i), second.push_back(i);
  CHECK(first == second);
}

TEST(resource_may_be_the_default) {
  std::pmr::set_default_resource(hak::get_memory_resource());
  std::pmr::string text(1000, 'x');
  CHECK(hak_malloc_usable_size(text.data()) >= 1001);
  std::pmr::set_default_resource(nullptr);
}

TEST(heap_is_a_resource_and_ends_with_its_blocks) {
  hak_heap_t *gone;
  {
    hak::heap cache{"cache"};
    gone = cache.get();
    CHECK(std::strcmp(cache.name(), "cache") == 0);
    std::pmr::vector<int> numbers{cache.resource()};
    for (int i = 0; i < 100000; i++) numbers.push_back(i);
    CHECK(hak_heap_of(numbers.data()) == cache.get() && cache.usage().live >= 400000);
    auto *page_of = cache.resource()->allocate(sizeof(page), alignof(page));
    CHECK(aligned(page_of, 4096) && hak_heap_of(page_of) == cache.get());
    hak::heap_resource same{cache.get()};
    hak::heap other{"other"};
    CHECK(same == *cache.resource() && *cache.resource() != *other.resource());
    CHECK(*cache.resource() != *hak::get_memory_resource());
    other.set_limit(1000);
    bool refused = false;
    try {
      (void)other.resource()->allocate(2000, 8);
    } catch (const std::bad_alloc &) {
      refused = true;
    }
    CHECK(refused && other.usage().refused == 1);
  }
  hak::heap next{"next"};
  CHECK(next.usage().blocks == 0 && gone != nullptr);
}

TEST(heap_allocator_serves_containers_of_its_heap) {
  hak::heap one{"one"}, two{"two"};
  using numbers = std::vector<int, hak::heap_allocator<int>>;
  numbers of_one(1000, 7, one), of_two(10, 8, two);
  CHECK(hak_heap_of(of_one.data()) == one.get() && hak_heap_of(of_two.data()) == two.get());
  CHECK(of_one.get_allocator() != of_two.get_allocator() && of_one.get_allocator() == hak::heap_allocator<char>(one));
  std::swap(of_one, of_two);
  CHECK(of_two.size() == 1000 && hak_heap_of(of_two.data()) == one.get());
  of_one = std::move(of_two);
  CHECK(of_one.size() == 1000 && hak_heap_of(of_one.data()) == one.get());
  std::map<int, int, std::less<>, hak::heap_allocator<std::pair<const int, int>>> map(one);
  for (int i = 0; i < 1000; i++) map[i] = i;
  CHECK(hak_heap_of(&*map.begin()) == nullptr && one.usage().blocks >= 1001);
}

TEST(heap_is_the_default_of_a_scope) {
  hak::heap one{"one"}, two{"two"};
  void *plain = hak_malloc(40), *inner, *outer;
  {
    hak::default_heap use{one};
    outer = hak_malloc(40);
    {
      hak::default_heap within{two};
      inner = hak_malloc(40);
    }
    void *again = hak_malloc(40);
    CHECK(hak_heap_of(outer) == one.get() && hak_heap_of(inner) == two.get() && hak_heap_of(again) == one.get());
  }
  CHECK(hak_heap_of(plain) == nullptr);
  void *after = hak_malloc(40);
  CHECK(hak_heap_of(after) == nullptr);
  hak_free(after);
  hak_free(plain);
}
