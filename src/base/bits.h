/* bits.h - compiler and bit-twiddling helpers without state. */
#ifndef BASE_BITS_H
#define BASE_BITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HAK_LIKELY(x) __builtin_expect(!!(x), 1)
/* Hides from the compiler how x was computed, so that it does not keep a common
 * subexpression in a register where an addressing mode is free. */
#define HAK_HIDE_VAR(x) __asm__("" : "+r"(x))
/* Puts x into the register for return values now; compilers would move it there only at the end. */
#if defined(__x86_64__)
#define HAK_RESULT(x) __asm__("" : "+a"(x))
#else
#define HAK_RESULT(x) ((void)0)
#endif
#define HAK_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define HAK_NOINLINE __attribute__((noinline))
/* Seldom run, like the functions that only it calls.  Compiled for size and placed by src/placement.ld in a mapping of its own that
 * most processes never fault in.  So no function that every process runs may be HAK_COLD. */
#define HAK_COLD __attribute__((noinline, cold))
#define HAK_INLINE static inline __attribute__((always_inline))
#define HAK_CHECKED __attribute__((warn_unused_result))
#define HAK_ALIGNED(n) __attribute__((aligned(n)))
/* For arrays that most processes touch little or not at all.  On pages of their own they do not spread the small variables over many
 * pages, since the linker places the most aligned objects first. */
#define HAK_APART HAK_ALIGNED(4096)
/* For names of libc or C++.  hakmem's own names are HAK_API, which a library that does not export them may redefine. */
#define HAK_EXPORT __attribute__((visibility("default")))
#if defined(__clang__)
#define HAK_ALIAS(target) __attribute__((alias(#target), visibility("default"), used))
#else
#define HAK_ALIAS(target) __attribute__((alias(#target), copy(target), visibility("default"), used))
#endif

HAK_INLINE unsigned bits_lowest32(uint32_t x) { return (unsigned)__builtin_ctz(x); }
HAK_INLINE unsigned bits_lowest64(uint64_t x) { return (unsigned)__builtin_ctzll(x); }
HAK_INLINE unsigned bits_highest64(uint64_t x) { return 63u - (unsigned)__builtin_clzll(x); }
/* Without a popcount instruction, compilers call a function that uses a table. */
HAK_INLINE unsigned bits_count64(uint64_t x) {
#if defined(__x86_64__) && !defined(__POPCNT__)
  x -= x >> 1 & UINT64_C(0x5555555555555555);
  x = (x & UINT64_C(0x3333333333333333)) + (x >> 2 & UINT64_C(0x3333333333333333));
  x = (x + (x >> 4)) & UINT64_C(0x0f0f0f0f0f0f0f0f);
  return (unsigned)((x * UINT64_C(0x0101010101010101)) >> 56);
#else
  return (unsigned)__builtin_popcountll(x);
#endif
}

HAK_INLINE unsigned bits_count32(uint32_t x) { return bits_count64(x); }

/* Returns n ones from bit `start` upward; n in 1..32, start + n <= 32. */
HAK_INLINE uint32_t bits_mask32(unsigned start, unsigned n) { return (uint32_t)((((uint64_t)1 << n) - 1) << start); }

/* Returns the mask of the bits [first, last] of a bitmap that lie in `word`; `word` must contain some of them. */
HAK_INLINE uint64_t bits_range64(uint32_t word, uint32_t first, uint32_t last) {
  uint64_t mask = UINT64_MAX;
  if (word == first / 64) mask &= UINT64_MAX << first % 64;
  if (word == last / 64) mask &= UINT64_MAX >> (63 - last % 64);
  return mask;
}

/* 2^64 divided by the golden ratio: its product with a number that varies in any bits varies in the highest (Fibonacci hashing). */
#define GOLDEN_RATIO_64 UINT64_C(0x9e3779b97f4a7c15)

HAK_INLINE bool bits_is_pow2(size_t x) { return x != 0 && (x & (x - 1)) == 0; }
HAK_INLINE size_t bits_round_up(size_t x, size_t pow2) { return (x + pow2 - 1) & ~(pow2 - 1); }
HAK_INLINE size_t bits_round_down(size_t x, size_t pow2) { return x & ~(pow2 - 1); }

/* Rotates right: if low bits that must be zero are not, the result is huge. */
HAK_INLINE uintptr_t bits_rotr(uintptr_t x, unsigned n) { return (x >> n) | (x << (sizeof x * 8 - n)); }

/* Adds to *word in one instruction: if its page is not present, that takes one page fault, for writing, not a read fault first. */
HAK_INLINE void bits_add64(uint64_t *word, uint64_t n) {
#if defined(__x86_64__)
  __asm__("addq %1, %0" : "+m"(*word) : "r"(n) : "cc");
#else
  *word += n;
#endif
}

/* Clears bit n % 64 of *word and returns whether it was set. */
HAK_INLINE bool bits_test_and_clear64(uint64_t *word, uint64_t n) {
#if defined(__x86_64__)
  bool was; /* one instruction, which compilers do not generate */
  __asm__("btrq %2, %0" : "+r"(*word), "=@ccc"(was) : "r"(n));
  return was;
#else
  uint64_t bit = (uint64_t)1 << (n & 63);
  bool was = (*word & bit) != 0;
  *word &= ~bit;
  return was;
#endif
}

/* Sets bit n % 64 of *word and returns whether it was set. */
HAK_INLINE bool bits_test_and_set64(uint64_t *word, uint64_t n) {
#if defined(__x86_64__)
  bool was;
  __asm__("btsq %2, %0" : "+r"(*word), "=@ccc"(was) : "r"(n)); /* as above */
  return was;
#else
  uint64_t bit = (uint64_t)1 << (n & 63);
  bool was = (*word & bit) != 0;
  *word |= bit;
  return was;
#endif
}

/* Sets bit n % 64 of *word. */
HAK_INLINE void bits_set64(uint64_t *word, uint64_t n) { (void)bits_test_and_set64(word, n); }

/* For a loop that waits for another processor. */
HAK_INLINE void cpu_pause(void) {
#if defined(__x86_64__)
  __asm__ volatile("pause");
#else
  __asm__ volatile("yield");
#endif
}

#endif
