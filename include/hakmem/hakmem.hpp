/* hakmem.hpp - hakmem for C++17: an STL allocator and a std::pmr resource, and both for a named heap.
 *
 * The first two are stateless views of the heap behind hak_malloc, so memory
 * may be allocated by one object and deallocated by another, in any thread.
 * They honour every alignment, throw std::bad_alloc when memory is exhausted,
 * and pass the size on deallocation, which hakmem checks.  A program compiled
 * without exceptions aborts instead; without RTTI a resource equals only itself.
 *
 *   std::vector<float, hak::allocator<float>> samples;
 *   std::pmr::string name{"x", hak::get_memory_resource()};
 *
 *   hak::heap cache{"cache"};
 *   std::pmr::vector<int> numbers{cache.resource()};
 *   std::vector<int, hak::heap_allocator<int>> others{cache};
 *
 * Link with hakmem (shared or static). Since 0.1.
 */
#ifndef HAKMEM_HPP
#define HAKMEM_HPP

#include <hakmem/hakmem.h>
#include <hakmem/heap.h>

#include <cstddef>
#include <cstdlib>
#include <limits>
#include <memory_resource>
#include <new>
#include <type_traits>

namespace hak {

namespace detail {

/* Every block has at least this alignment. */
inline constexpr std::size_t natural_alignment = 16;

template <typename Exception>
[[noreturn]] inline void fail() {
#if defined(__cpp_exceptions)
  throw Exception();
#else
  std::abort();
#endif
}

/* Returns `other` if it is of the same class as `one`, otherwise null. */
template <typename Resource>
[[nodiscard]] inline const Resource *as_same(const Resource *one, const std::pmr::memory_resource &other) noexcept {
#if defined(__cpp_rtti)
  (void)one;
  return dynamic_cast<const Resource *>(&other);
#else
  return one == &other ? one : nullptr;
#endif
}

/* Throws std::bad_alloc; never returns null. */
[[nodiscard]] inline void *allocate(std::size_t size, std::size_t alignment) {
  void *block = alignment <= natural_alignment ? hak_malloc(size) : hak_aligned_alloc(alignment, size);
  if (block == nullptr) detail::fail<std::bad_alloc>();
  return block;
}

/* The same, from a named heap. */
[[nodiscard]] inline void *allocate(hak_heap_t *heap, std::size_t size, std::size_t alignment) {
  void *block = alignment <= natural_alignment ? hak_heap_malloc(heap, size) : hak_heap_aligned_alloc(heap, alignment, size);
  if (block == nullptr) detail::fail<std::bad_alloc>();
  return block;
}

inline void deallocate(void *block, std::size_t size, std::size_t alignment) noexcept {
  if (alignment <= natural_alignment) hak_free_sized(block, size);
  else hak_free_aligned_sized(block, alignment, size);
}

} // namespace detail

/* An allocator for the standard containers, for T of any alignment.
 * All allocators compare equal, for any T. */
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

  /* Returns room for `count` objects, a unique address even for 0.  Throws
   * std::bad_array_new_length when the size in bytes overflows, otherwise
   * std::bad_alloc when memory is exhausted. */
  [[nodiscard]] T *allocate(size_type count) {
    if (count > std::numeric_limits<size_type>::max() / sizeof(T)) detail::fail<std::bad_array_new_length>();
    return static_cast<T *>(detail::allocate(count * sizeof(T), alignof(T)));
  }

  /* `count` must be the value passed to allocate. */
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

/* A memory resource over hakmem's heap; any two are equal.  Throws std::bad_alloc
 * for an alignment that is not a power of two. */
class memory_resource final : public std::pmr::memory_resource {
private:
  void *do_allocate(std::size_t size, std::size_t alignment) override {
    if (alignment == 0 || (alignment & (alignment - 1)) != 0) detail::fail<std::bad_alloc>();
    return detail::allocate(size, alignment);
  }

  void do_deallocate(void *block, std::size_t size, std::size_t alignment) override { detail::deallocate(block, size, alignment); }

  bool do_is_equal(const std::pmr::memory_resource &other) const noexcept override { return detail::as_same(this, other) != nullptr; }
};

/* Returns the one resource of the process.  It is never destroyed, so that
 * static objects may use it in their destructors. */
[[nodiscard]] inline memory_resource *get_memory_resource() noexcept {
  alignas(memory_resource) static unsigned char storage[sizeof(memory_resource)];
  static memory_resource *const resource = ::new (static_cast<void *>(storage)) memory_resource;
  return resource;
}

/* ---- Named heaps: heap.h ---- since 0.1 */

/* A memory resource over a named heap; the heap must outlive all that is allocated from it.  Resources of the same heap are equal. */
class heap_resource final : public std::pmr::memory_resource {
public:
  explicit heap_resource(hak_heap_t *heap) noexcept : of(heap) {}
  [[nodiscard]] hak_heap_t *get() const noexcept { return of; }

private:
  void *do_allocate(std::size_t size, std::size_t alignment) override {
    if (alignment == 0 || (alignment & (alignment - 1)) != 0) detail::fail<std::bad_alloc>();
    return detail::allocate(of, size, alignment);
  }

  void do_deallocate(void *block, std::size_t size, std::size_t alignment) override { detail::deallocate(block, size, alignment); }

  bool do_is_equal(const std::pmr::memory_resource &other) const noexcept override {
    const auto *resource = detail::as_same(this, other);
    return resource != nullptr && resource->of == of;
  }

  hak_heap_t *of;
};

/* Owns a named heap and all its blocks.  The destructor frees the blocks without destroying the objects in them; containers that use the
 * heap must be destroyed before it, or never deallocate. */
class heap {
public:
  /* Throws std::bad_alloc. */
  explicit heap(const char *name = nullptr) : resource_(hak_heap_new(name)) {
    if (get() == nullptr) detail::fail<std::bad_alloc>();
  }
  heap(const heap &) = delete;
  heap &operator=(const heap &) = delete;
  ~heap() { hak_heap_free(get()); }

  [[nodiscard]] hak_heap_t *get() const noexcept { return resource_.get(); }
  [[nodiscard]] std::pmr::memory_resource *resource() noexcept { return &resource_; }
  [[nodiscard]] const char *name() const noexcept { return hak_heap_name(get()); }
  void set_limit(std::size_t bytes) noexcept { hak_heap_set_limit(get(), bytes); }
  std::size_t collect() noexcept { return hak_heap_collect(get()); }
  [[nodiscard]] hak_heap_usage_t usage() const noexcept {
    hak_heap_usage_t usage = {};
    usage.struct_size = sizeof usage;
    (void)hak_heap_usage_get(get(), &usage);
    return usage;
  }

private:
  heap_resource resource_;
};

/* While this object lives, malloc and operator new of the calling thread allocate from the heap; then from the previous one again.  Such
 * objects must end in the thread that made them, in reverse order, and before the heap.  If memory is exhausted, nothing changes. */
class default_heap {
public:
  explicit default_heap(const heap &to) noexcept : before(hak_heap_set_default(to.get())) {}
  default_heap(const default_heap &) = delete;
  default_heap &operator=(const default_heap &) = delete;
  ~default_heap() { hak_heap_set_default(before); }

private:
  hak_heap_t *before;
};

/* An allocator for the standard containers that allocates from a named heap.  Allocators of the same heap are equal. */
template <typename T>
class heap_allocator {
public:
  using value_type = T;
  using size_type = std::size_t;
  using difference_type = std::ptrdiff_t;
  using propagate_on_container_move_assignment = std::true_type;
  using propagate_on_container_swap = std::true_type;

  heap_allocator(const heap &from) noexcept : of(from.get()) {}
  template <typename Other>
  heap_allocator(const heap_allocator<Other> &other) noexcept : of(other.get()) {}
  [[nodiscard]] hak_heap_t *get() const noexcept { return of; }

  /* Like allocator::allocate. */
  [[nodiscard]] T *allocate(size_type count) {
    if (count > std::numeric_limits<size_type>::max() / sizeof(T)) detail::fail<std::bad_array_new_length>();
    return static_cast<T *>(detail::allocate(of, count * sizeof(T), alignof(T)));
  }
  void deallocate(T *objects, size_type count) noexcept { detail::deallocate(objects, count * sizeof(T), alignof(T)); }

private:
  hak_heap_t *of;
};

template <typename T, typename Other>
bool operator==(const heap_allocator<T> &one, const heap_allocator<Other> &other) noexcept {
  return one.get() == other.get();
}

template <typename T, typename Other>
bool operator!=(const heap_allocator<T> &one, const heap_allocator<Other> &other) noexcept {
  return !(one == other);
}

} // namespace hak

#endif
