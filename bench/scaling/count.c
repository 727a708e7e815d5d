/* count.c - counts what processors pay each other for, in place of ThreadSanitizer's runtime.
 *
 * The library is compiled with -fsanitize=thread, which calls one of the functions below for each access to memory and each atomic
 * operation, and is linked with this file.  Counted are
 *   calls          of the library by others
 *   operations     atomic read-modify-writes, of which a compare-and-exchange that fails is one too
 *   writes         to a line of the cache that another thread was the last to write, atomic or plain
 * in all and for each place in the code, and written to the file COUNT_FILE at exit.  Threads give up their processor often and at
 * random, so that they meet in the midst of things though there are few processors. */
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define INITIAL_EXEC __attribute__((tls_model("initial-exec")))

enum { LINE_SHIFT = 6, LINES = 1 << 20, SITES = 1 << 14, YIELD_CALLS = 8, YIELD_OPERATIONS = 16 };

typedef struct line {
  uint64_t number;
  uint32_t writer;
} line_t;
typedef struct site {
  uintptr_t place;
  uint64_t operations, writes;
} site_t;

static line_t lines[LINES];
static site_t sites[SITES];
static uint64_t calls;
static uint32_t threads;
static __thread uint32_t INITIAL_EXEC own_number;
static __thread uint64_t INITIAL_EXEC own_random;

extern char __ehdr_start __attribute__((visibility("hidden"))), etext __attribute__((visibility("hidden")));

static uint32_t self(void) {
  if (own_number == 0) own_random = own_number = __atomic_add_fetch(&threads, 1, __ATOMIC_RELAXED);
  return own_number;
}

static void yield_sometimes(unsigned one_in) {
  (void)self();
  own_random = own_random * 6364136223846793005u + 1442695040888963407u;
  if ((own_random >> 33) % one_in != 0) return;
  long result;
#if defined(__x86_64__)
  __asm__ volatile("syscall" : "=a"(result) : "a"(SYS_sched_yield) : "rcx", "r11", "memory");
#else
  result = 0;
#endif
  (void)result;
}

static site_t *site_of(void *place) {
  uintptr_t offset = (uintptr_t)place - (uintptr_t)&__ehdr_start;
  for (uint64_t at = offset * 0x9e3779b97f4a7c15u >> 50;; at = (at + 1) % SITES) {
    uintptr_t there = __atomic_load_n(&sites[at].place, __ATOMIC_RELAXED);
    if (there == 0) {
      uintptr_t none = 0;
      if (__atomic_compare_exchange_n(&sites[at].place, &none, offset, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) return &sites[at];
      there = none;
    }
    if (there == offset) return &sites[at];
  }
}

/* Two threads that write at once may both count, or neither: the counts are of hundreds of thousands. */
static void note_write(const volatile void *address, void *place) {
  uint64_t number = (uintptr_t)address >> LINE_SHIFT;
  line_t *line = &lines[(number * 0x9e3779b97f4a7c15u >> 40) % LINES];
  uint32_t mine = self(), writer = __atomic_load_n(&line->writer, __ATOMIC_RELAXED);
  bool known = __atomic_load_n(&line->number, __ATOMIC_RELAXED) == number;
  if (known && writer == mine) return;
  __atomic_store_n(&line->number, number, __ATOMIC_RELAXED);
  __atomic_store_n(&line->writer, mine, __ATOMIC_RELAXED);
  if (known) __atomic_fetch_add(&site_of(place)->writes, 1, __ATOMIC_RELAXED);
}

static void note_operation(const volatile void *address, void *place) {
  __atomic_fetch_add(&site_of(place)->operations, 1, __ATOMIC_RELAXED);
  note_write(address, place);
  yield_sometimes(YIELD_OPERATIONS);
}

static __attribute__((destructor)) void report(void) {
  const char *path = getenv("COUNT_FILE");
  int fd = path == NULL ? -1 : open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) return;
  (void)dprintf(fd, "calls %llu threads %u\n", (unsigned long long)calls, threads);
  for (unsigned i = 0; i < SITES; i++)
    if (sites[i].place != 0)
      (void)dprintf(fd, "%#lx %llu %llu\n", (unsigned long)sites[i].place, (unsigned long long)sites[i].operations,
                    (unsigned long long)sites[i].writes);
  close(fd);
}

/* ---- What the compiler calls ---- */

#define HERE __builtin_return_address(0)

EXPORT void __tsan_init(void) {}
EXPORT void __tsan_func_exit(void) {}
EXPORT void __tsan_func_entry(void *from) {
  if ((char *)from >= &__ehdr_start && (char *)from < &etext) return;
  __atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED);
  yield_sometimes(YIELD_CALLS);
}

#define ACCESS(bytes) \
  EXPORT void __tsan_read##bytes(void *address) { (void)address; } \
  EXPORT void __tsan_unaligned_read##bytes(void *address) { (void)address; } \
  EXPORT void __tsan_volatile_read##bytes(void *address) { (void)address; } \
  EXPORT void __tsan_write##bytes(void *address) { note_write(address, HERE); } \
  EXPORT void __tsan_unaligned_write##bytes(void *address) { note_write(address, HERE); } \
  EXPORT void __tsan_volatile_write##bytes(void *address) { note_write(address, HERE); }
ACCESS(1)
ACCESS(2)
ACCESS(4)
ACCESS(8)
ACCESS(16)
EXPORT void __tsan_read_range(void *address, unsigned long bytes) { (void)address, (void)bytes; }
EXPORT void __tsan_write_range(void *address, unsigned long bytes) {
  for (unsigned long at = 0; at < bytes; at += 1u << LINE_SHIFT) note_write((char *)address + at, HERE);
}

#define CHANGE(bits, type, name) \
  EXPORT type __tsan_atomic##bits##_##name(volatile type *word, type value, int order) { \
    (void)order; \
    note_operation(word, HERE); \
    return __atomic_##name(word, value, __ATOMIC_SEQ_CST); \
  }
#define COMPARE(bits, type, kind) \
  EXPORT int __tsan_atomic##bits##_compare_exchange_##kind(volatile type *word, type *expected, type value, int order, int failed) { \
    (void)order, (void)failed; \
    note_operation(word, HERE); \
    return __atomic_compare_exchange_n(word, expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); \
  }
#define ATOMIC(bits, type) \
  EXPORT type __tsan_atomic##bits##_load(const volatile type *word, int order) { \
    (void)order; \
    return __atomic_load_n(word, __ATOMIC_SEQ_CST); \
  } \
  EXPORT void __tsan_atomic##bits##_store(volatile type *word, type value, int order) { \
    (void)order; \
    note_write(word, HERE); \
    __atomic_store_n(word, value, __ATOMIC_SEQ_CST); \
  } \
  EXPORT type __tsan_atomic##bits##_exchange(volatile type *word, type value, int order) { \
    (void)order; \
    note_operation(word, HERE); \
    return __atomic_exchange_n(word, value, __ATOMIC_SEQ_CST); \
  } \
  CHANGE(bits, type, fetch_add) \
  CHANGE(bits, type, fetch_sub) \
  CHANGE(bits, type, fetch_and) \
  CHANGE(bits, type, fetch_or) \
  CHANGE(bits, type, fetch_xor) \
  COMPARE(bits, type, strong) \
  COMPARE(bits, type, weak) \
  EXPORT type __tsan_atomic##bits##_compare_exchange_val(volatile type *word, type expected, type value, int order, int failed) { \
    (void)order, (void)failed; \
    note_operation(word, HERE); \
    (void)__atomic_compare_exchange_n(word, &expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); \
    return expected; \
  }
ATOMIC(8, uint8_t)
ATOMIC(16, uint16_t)
ATOMIC(32, uint32_t)
ATOMIC(64, uint64_t)
EXPORT void __tsan_atomic_thread_fence(int order) { (void)order; __atomic_thread_fence(__ATOMIC_SEQ_CST); }
EXPORT void __tsan_atomic_signal_fence(int order) { (void)order; }
