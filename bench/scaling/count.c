/* count.c - counts what processors cost each other, instead of ThreadSanitizer's runtime.
 *
 * The library is compiled with -fsanitize=thread, which calls one of the functions below for each access to memory and each atomic
 * operation, and is linked with this file.  It counts
 *   calls          of the library from outside
 *   operations     atomic read-modify-writes, including failed compare-and-exchanges
 *   writes         atomic or plain, to a cache line that another thread was the last to write
 *   reads          of a cache line that another thread has written since this one read or wrote it
 * in all and for each place in the code, and writes the counts to the file COUNT_FILE at exit.
 *
 * Threads yield their processor often and at random, so that they interleave anywhere although there are few processors: while a
 * thread that has yielded holds a lock, each of the others makes about as many calls as it would make in parallel.
 *
 * Caches are assumed to be large: a line is forgotten only if another line needs its entry, and then counts as never seen. */
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define INITIAL_EXEC __attribute__((tls_model("initial-exec")))

enum {
  LINE_SHIFT = 6,
  LINES = 1 << 20,
  SITES = 1 << 14,
  THREADS = 512, /* threads with separate entries */
  ENTRIES = 2048,
  YIELD_CALLS = 8,
  YIELD_OPERATIONS = 16
};

typedef struct line {
  uint64_t number;
  uint32_t writer, version;
} line_t;
/* What a thread has last seen of a line. */
typedef struct entry {
  uint64_t number;
  uint32_t version, thread;
} entry_t;
typedef struct site {
  uintptr_t place;
  uint64_t operations, writes, reads;
} site_t;

static line_t lines[LINES];
static entry_t entries[THREADS][ENTRIES];
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

/* Without libc, which would set errno: the keeper has no errno. */
static void processor_yield(void) {
#if defined(__x86_64__)
  long result = SYS_sched_yield;
  __asm__ volatile("syscall" : "+a"(result) : : "rcx", "r11", "memory");
#elif defined(__aarch64__)
  register long number __asm__("x8") = SYS_sched_yield;
  register long result __asm__("x0");
  __asm__ volatile("svc 0" : "=r"(result) : "r"(number) : "memory");
#endif
}

static void yield_sometimes(unsigned one_in) {
  (void)self();
  own_random = own_random * 6364136223846793005u + 1442695040888963407u;
  if ((own_random >> 33) % one_in == 0) processor_yield();
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

static uint64_t scattered(uint64_t number) { return number * 0x9e3779b97f4a7c15u >> 40; }

/* If two threads write to a line at the same moment, both may be counted, or neither; with hundreds of thousands this does not matter. */
static void note_write(const volatile void *address, void *place) {
  uint64_t number = (uintptr_t)address >> LINE_SHIFT;
  line_t *line = &lines[scattered(number) % LINES];
  uint32_t mine = self(), version = __atomic_load_n(&line->version, __ATOMIC_RELAXED) + 1;
  bool known = __atomic_load_n(&line->number, __ATOMIC_RELAXED) == number;
  bool others = __atomic_load_n(&line->writer, __ATOMIC_RELAXED) != mine;
  __atomic_store_n(&line->version, version, __ATOMIC_RELAXED);
  entries[mine % THREADS][scattered(number) % ENTRIES] = (entry_t){number, version, mine};
  if (known && !others) return;
  __atomic_store_n(&line->number, number, __ATOMIC_RELAXED);
  __atomic_store_n(&line->writer, mine, __ATOMIC_RELAXED);
  if (known) __atomic_fetch_add(&site_of(place)->writes, 1, __ATOMIC_RELAXED);
}

static void note_read(const volatile void *address, void *place) {
  uint64_t number = (uintptr_t)address >> LINE_SHIFT;
  const line_t *line = &lines[scattered(number) % LINES];
  if (__atomic_load_n(&line->number, __ATOMIC_RELAXED) != number) return; /* no thread has written to it */
  uint32_t mine = self(), version = __atomic_load_n(&line->version, __ATOMIC_RELAXED);
  if (__atomic_load_n(&line->writer, __ATOMIC_RELAXED) == mine) return;
  entry_t *entry = &entries[mine % THREADS][scattered(number) % ENTRIES];
  bool seen = entry->number == number && entry->thread == mine;
  if (seen && entry->version == version) return;
  *entry = (entry_t){number, version, mine};
  if (seen) __atomic_fetch_add(&site_of(place)->reads, 1, __ATOMIC_RELAXED);
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
      (void)dprintf(fd, "%#lx %llu %llu %llu\n", (unsigned long)sites[i].place, (unsigned long long)sites[i].operations,
                    (unsigned long long)sites[i].writes, (unsigned long long)sites[i].reads);
  close(fd);
}

/* ---- The functions that the compiler calls ---- */

#define HERE __builtin_return_address(0)

EXPORT void __tsan_init(void) {}
EXPORT void __tsan_func_exit(void) {}
EXPORT void __tsan_func_entry(void *from) {
  if ((char *)from >= &__ehdr_start && (char *)from < &etext) return;
  __atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED);
  yield_sometimes(YIELD_CALLS);
}

#define ACCESS(bytes)                                                                     \
  EXPORT void __tsan_read##bytes(void *address) { note_read(address, HERE); }             \
  EXPORT void __tsan_unaligned_read##bytes(void *address) { note_read(address, HERE); }   \
  EXPORT void __tsan_volatile_read##bytes(void *address) { note_read(address, HERE); }    \
  EXPORT void __tsan_write##bytes(void *address) { note_write(address, HERE); }           \
  EXPORT void __tsan_unaligned_write##bytes(void *address) { note_write(address, HERE); } \
  EXPORT void __tsan_volatile_write##bytes(void *address) { note_write(address, HERE); }
ACCESS(1)
ACCESS(2)
ACCESS(4)
ACCESS(8)
ACCESS(16)
EXPORT void __tsan_read_range(void *address, unsigned long bytes) {
  for (unsigned long at = 0; at < bytes; at += 1u << LINE_SHIFT) note_read((char *)address + at, HERE);
}
EXPORT void __tsan_write_range(void *address, unsigned long bytes) {
  for (unsigned long at = 0; at < bytes; at += 1u << LINE_SHIFT) note_write((char *)address + at, HERE);
}

#define CHANGE(bits, type, name)                                                         \
  EXPORT type __tsan_atomic##bits##_##name(volatile type *word, type value, int order) { \
    (void)order;                                                                         \
    note_operation(word, HERE);                                                          \
    return __atomic_##name(word, value, __ATOMIC_SEQ_CST);                               \
  }
#define COMPARE(bits, type, kind)                                                                                                    \
  EXPORT int __tsan_atomic##bits##_compare_exchange_##kind(volatile type *word, type *expected, type value, int order, int failed) { \
    (void)order, (void)failed;                                                                                                       \
    note_operation(word, HERE);                                                                                                      \
    return __atomic_compare_exchange_n(word, expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                            \
  }
#define ATOMIC(bits, type)                                                                                                        \
  EXPORT type __tsan_atomic##bits##_load(const volatile type *word, int order) {                                                  \
    (void)order;                                                                                                                  \
    note_read(word, HERE);                                                                                                        \
    return __atomic_load_n(word, __ATOMIC_SEQ_CST);                                                                               \
  }                                                                                                                               \
  EXPORT void __tsan_atomic##bits##_store(volatile type *word, type value, int order) {                                           \
    (void)order;                                                                                                                  \
    note_write(word, HERE);                                                                                                       \
    __atomic_store_n(word, value, __ATOMIC_SEQ_CST);                                                                              \
  }                                                                                                                               \
  EXPORT type __tsan_atomic##bits##_exchange(volatile type *word, type value, int order) {                                        \
    (void)order;                                                                                                                  \
    note_operation(word, HERE);                                                                                                   \
    return __atomic_exchange_n(word, value, __ATOMIC_SEQ_CST);                                                                    \
  }                                                                                                                               \
  CHANGE(bits, type, fetch_add)                                                                                                   \
  CHANGE(bits, type, fetch_sub)                                                                                                   \
  CHANGE(bits, type, fetch_and)                                                                                                   \
  CHANGE(bits, type, fetch_or)                                                                                                    \
  CHANGE(bits, type, fetch_xor)                                                                                                   \
  COMPARE(bits, type, strong)                                                                                                     \
  COMPARE(bits, type, weak)                                                                                                       \
  EXPORT type __tsan_atomic##bits##_compare_exchange_val(volatile type *word, type expected, type value, int order, int failed) { \
    (void)order, (void)failed;                                                                                                    \
    note_operation(word, HERE);                                                                                                   \
    (void)__atomic_compare_exchange_n(word, &expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                         \
    return expected;                                                                                                              \
  }
ATOMIC(8, uint8_t)
ATOMIC(16, uint16_t)
ATOMIC(32, uint32_t)
ATOMIC(64, uint64_t)
EXPORT void __tsan_atomic_thread_fence(int order) {
  (void)order;
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
EXPORT void __tsan_atomic_signal_fence(int order) { (void)order; }
