/* callbacks.c - the functions that the compiler calls for each access, as the allocator is compiled with -fsanitize=thread.
 *
 * They replace ThreadSanitizer's runtime, which is not linked. */
#include <string.h>

#include "explore.h"
#include "weak.h"

#define HERE __builtin_return_address(0)

/* --- plain accesses ---------------------------------------------------------------------- */

static void plain(const volatile void *at, size_t bytes, bool writes, const void *place) {
  explore_interrupt(at);
  if (explore_is_watched(at)) weak_plain(at, bytes, writes, place);
}

#define PLAIN(bytes)                                                             \
  void __tsan_read##bytes(void *at) { plain(at, bytes, false, HERE); }           \
  void __tsan_write##bytes(void *at) { plain(at, bytes, true, HERE); }           \
  void __tsan_unaligned_read##bytes(void *at) { plain(at, bytes, false, HERE); } \
  void __tsan_unaligned_write##bytes(void *at) { plain(at, bytes, true, HERE); } \
  void __tsan_volatile_read##bytes(void *at) { plain(at, bytes, false, HERE); }  \
  void __tsan_volatile_write##bytes(void *at) { plain(at, bytes, true, HERE); }

#pragma GCC diagnostic ignored "-Wmissing-prototypes"
PLAIN(1)
PLAIN(2)
PLAIN(4)
PLAIN(8)
PLAIN(16)
void __tsan_read_range(void *at, size_t bytes) { plain(at, bytes, false, HERE); }
void __tsan_write_range(void *at, size_t bytes) { plain(at, bytes, true, HERE); }
void __tsan_init(void) {}
void __tsan_func_entry(void *from) { (void)from; }
void __tsan_func_exit(void) {}

void *explore_memset(void *at, int byte, size_t bytes) {
  plain(at, bytes, true, HERE);
  return memset(at, byte, bytes);
}

void *explore_memcpy(void *to, const void *from, size_t bytes) {
  plain(from, bytes, false, HERE);
  plain(to, bytes, true, HERE);
  return memcpy(to, from, bytes);
}

/* --- atomic accesses --------------------------------------------------------------------- */

static uint64_t change_set(uint64_t before, uint64_t operand) { return (void)before, operand; }
static uint64_t change_add(uint64_t before, uint64_t operand) { return before + operand; }
static uint64_t change_sub(uint64_t before, uint64_t operand) { return before - operand; }
static uint64_t change_and(uint64_t before, uint64_t operand) { return before & operand; }
static uint64_t change_or(uint64_t before, uint64_t operand) { return before | operand; }
static uint64_t change_xor(uint64_t before, uint64_t operand) { return before ^ operand; }
static uint64_t change_nand(uint64_t before, uint64_t operand) { return ~(before & operand); }

static uint64_t load(volatile void *at, unsigned bytes, int order, const void *place) {
  return explore_point(at, EXPLORE_READ, place) ? weak_load(at, bytes, order, place) : weak_memory_get(at, bytes);
}

static void store(volatile void *at, unsigned bytes, uint64_t value, int order, const void *place) {
  if (explore_point(at, EXPLORE_WRITE, place)) weak_store(at, bytes, value, order, place);
  else weak_memory_set(at, bytes, value);
}

static uint64_t change(volatile void *at, unsigned bytes, uint64_t (*how)(uint64_t, uint64_t), uint64_t operand, int order,
                       const void *place) {
  if (explore_point(at, EXPLORE_WRITE, place)) return weak_change(at, bytes, how, operand, order, place);
  uint64_t before = weak_memory_get(at, bytes);
  weak_memory_set(at, bytes, how(before, operand));
  return before;
}

/* The weak kind never fails spuriously: that would only repeat its loop. */
static bool compare_exchange(volatile void *at, unsigned bytes, uint64_t *expected, uint64_t value, int order, int failed,
                             const void *place) {
  if (explore_point(at, EXPLORE_CHANGE, place)) {
    bool done = weak_compare_exchange(at, bytes, expected, value, order, failed, place);
    if (done) explore_changed(at);
    return done;
  }
  uint64_t before = weak_memory_get(at, bytes);
  if (before == *expected) weak_memory_set(at, bytes, value);
  bool done = before == *expected;
  *expected = before;
  return done;
}

#define CHANGE(bits, name, how)                                                                       \
  uint##bits##_t __tsan_atomic##bits##_##name(volatile void *at, uint##bits##_t operand, int order) { \
    return (uint##bits##_t)change(at, bits / 8, how, operand, order, HERE);                           \
  }
#define COMPARE_EXCHANGE(bits, name)                                                                                           \
  int __tsan_atomic##bits##_##name(volatile void *at, uint##bits##_t *expected, uint##bits##_t value, int order, int failed) { \
    uint64_t read = *expected;                                                                                                 \
    bool done = compare_exchange(at, bits / 8, &read, value, order, failed, HERE);                                             \
    if (!done) *expected = (uint##bits##_t)read;                                                                               \
    return done;                                                                                                               \
  }
#define ATOMIC(bits)                                                                                                                     \
  uint##bits##_t __tsan_atomic##bits##_load(volatile void *at, int order) { return (uint##bits##_t)load(at, bits / 8, order, HERE); }    \
  void __tsan_atomic##bits##_store(volatile void *at, uint##bits##_t value, int order) { store(at, bits / 8, value, order, HERE); }      \
  CHANGE(bits, exchange, change_set)                                                                                                     \
  CHANGE(bits, fetch_add, change_add)                                                                                                    \
  CHANGE(bits, fetch_sub, change_sub)                                                                                                    \
  CHANGE(bits, fetch_and, change_and)                                                                                                    \
  CHANGE(bits, fetch_or, change_or)                                                                                                      \
  CHANGE(bits, fetch_xor, change_xor)                                                                                                    \
  CHANGE(bits, fetch_nand, change_nand)                                                                                                  \
  COMPARE_EXCHANGE(bits, compare_exchange_strong)                                                                                        \
  COMPARE_EXCHANGE(bits, compare_exchange_weak)                                                                                          \
  uint##bits##_t __tsan_atomic##bits##_compare_exchange_val(volatile void *at, uint##bits##_t expected, uint##bits##_t value, int order, \
                                                            int failed) {                                                                \
    uint64_t read = expected;                                                                                                            \
    (void)compare_exchange(at, bits / 8, &read, value, order, failed, HERE);                                                             \
    return (uint##bits##_t)read;                                                                                                         \
  }

ATOMIC(8)
ATOMIC(16)
ATOMIC(32)
ATOMIC(64)

void __tsan_atomic_thread_fence(int order) {
  if (explore_actor() >= 0) weak_fence(order);
}
void __tsan_atomic_signal_fence(int order) { (void)order; }
