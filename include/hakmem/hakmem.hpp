/* hakmem.hpp - hakmem for C++17: an STL allocator and a std::pmr resource.
 *
 * Both are stateless views of the one heap that hak_malloc serves, so memory
 * may be allocated by one object and given back by another, in any thread.
 * They honour every alignment, throw std::bad_alloc when memory is out, and
 * pass the size back on deallocation, which hakmem checks.
 *
 *   std::vector<float, hak::allocator<float>> samples;
 *   std::pmr::string name{"x", hak::get_memory_resource()};
 *
 * Link with hakmem (shared or static). Since 0.1.
 */
#ifndef HAKMEM_HPP
#define HAKMEM_HPP

#include <hakmem/hakmem.h>

#include <cstddef>
#include <limits>
#include <memory_resource>
#include <new>
#include <type_traits>

namespace hak {

namespace detail {

/* hakmem gives this alignment to every block, without being asked. */
inline constexpr std::size_t natural_alignment = 16;

/* Throws std::bad_alloc; never returns null. */
[[nodiscard]] inline void *allocate(std::size_t size, std::size_t alignment) {
  void *block = alignment <= natural_alignment ? hak_malloc(size) : hak_aligned_alloc(alignment, size);
  if (block == nullptr) throw std::bad_alloc();
  return block;
}

inline void deallocate(void *block, std::size_t size, std::size_t alignment) noexcept {
  if (alignment <= natural_alignment) hak_free_sized(block, size);
  else hak_free_aligned_sized(block, alignment, size);
}

} // namespace detail

/* An allocator for the standard containers, for T of any alignment.
 * All objects of all its types are equal. */
template <typename T>
class allocator {
public:
  using value_type = T;
  using size_type = std::size_t;
  using difference_type = std::ptrdiff_t;
  using propagate_on_container_move_assignment = std::true_type;
  using is_always_equal = std::true_type;

  constexpr allocator() noexcept = default;
  template <typename Other>
  constexpr allocator(const allocator<Other> &) noexcept {}

  /* Room for `count` objects, at least one address even for 0.  Throws
   * std::bad_array_new_length when the bytes cannot be counted, else
   * std::bad_alloc when there are none. */
  [[nodiscard]] T *allocate(size_type count) {
    if (count > std::numeric_limits<size_type>::max() / sizeof(T)) throw std::bad_array_new_length();
    return static_cast<T *>(detail::allocate(count * sizeof(T), alignof(T)));
  }

  /* `count` is what allocate was given. */
  void deallocate(T *objects, size_type count) noexcept { detail::deallocate(objects, count * sizeof(T), alignof(T)); }
};

template <typename T, typename Other>
constexpr bool operator==(const allocator<T> &, const allocator<Other> &) noexcept {
  return true;
}

template <typename T, typename Other>
constexpr bool operator!=(const allocator<T> &, const allocator<Other> &) noexcept {
  return false;
}

/* A memory resource over hakmem's heap; any two are equal.  An alignment that
 * is no power of two is std::bad_alloc. */
class memory_resource final : public std::pmr::memory_resource {
private:
  void *do_allocate(std::size_t size, std::size_t alignment) override {
    if (alignment == 0 || (alignment & (alignment - 1)) != 0) throw std::bad_alloc();
    return detail::allocate(size, alignment);
  }

  void do_deallocate(void *block, std::size_t size, std::size_t alignment) override { detail::deallocate(block, size, alignment); }

  bool do_is_equal(const std::pmr::memory_resource &other) const noexcept override {
    return this == &other || dynamic_cast<const memory_resource *>(&other) != nullptr;
  }
};

/* The one resource of the process.  It is never destroyed, so that static
 * objects may use it to their end. */
[[nodiscard]] inline memory_resource *get_memory_resource() noexcept {
  alignas(memory_resource) static unsigned char storage[sizeof(memory_resource)];
  static memory_resource *const resource = ::new (static_cast<void *>(storage)) memory_resource;
  return resource;
}

} // namespace hak

#endif
