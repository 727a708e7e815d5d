/* memcheck.h - tells Valgrind's memcheck about the program's blocks.
 *
 * In a process that memcheck watches, front/memcheck.c requests MEMCHECK_TAIL
 * bytes more than the program did.  This tail is inaccessible; its last bytes
 * hold the size that the program requested.  So memcheck knows the exact size of
 * each block, and the next block is never nearer than with memcheck's own malloc.
 *
 * In any other process, also under Valgrind's other tools, memcheck_on() is
 * false.  It is constant false and everything here compiles to nothing without
 * Valgrind's header at build time, with HAKMEM_VALGRIND=OFF, and in the secure
 * library, which itself reads free blocks. */
#ifndef OS_MEMCHECK_H
#define OS_MEMCHECK_H

#include "base/atomics.h"
#include "base/bits.h"
#include "base/config.h"

#if !defined(HAK_VALGRIND) && defined(__has_include)
#if __has_include(<valgrind/memcheck.h>)
#define HAK_VALGRIND 1
#endif
#endif
#ifndef HAK_VALGRIND
#define HAK_VALGRIND 0
#endif

#define MEMCHECK_TAIL ((size_t)16)

#if HAK_VALGRIND

enum { MEMCHECK_UNKNOWN, MEMCHECK_ABSENT, MEMCHECK_WATCHES };
extern _Atomic uint32_t memcheck_state;
/* Asks Valgrind the first time, then returns the known answer. */
bool memcheck_ask(void);
HAK_INLINE bool memcheck_on(void) {
  return !HAK_SECURE && HAK_UNLIKELY(load_relaxed(&memcheck_state) != MEMCHECK_ABSENT) && memcheck_ask();
}
/* Returns whether the process runs under any Valgrind tool. */
bool valgrind_on(void);

/* Call the rest only if memcheck_on() is true; memcheck_open and memcheck_hide check that themselves. */

/* Announces a new block of `usable` bytes including its tail; the program requested `size`. */
HAK_COLD void memcheck_alloc(void *block, size_t size, size_t usable, bool zero);
/* Announces a free, before anyone can reuse the block.  Takes whatever pointer the program passed. */
HAK_COLD void memcheck_free(void *block);
/* Returns the size that the program requested. */
HAK_COLD size_t memcheck_size(const void *block, size_t usable);
/* The block was resized in place to `size` and `usable` bytes; `old` is the size requested before. */
HAK_COLD void memcheck_resize(void *block, size_t old, size_t size, size_t usable);

HAK_COLD void memcheck_make_open(void *start, size_t bytes);
HAK_COLD void memcheck_make_hidden(void *start, size_t bytes);
/* Lets the allocator itself access memory that held blocks. */
HAK_INLINE void memcheck_open(void *start, size_t bytes) {
  if (memcheck_on()) memcheck_make_open(start, bytes);
}
/* Ends that: the memory is inaccessible until a block in it is announced. */
HAK_INLINE void memcheck_hide(void *start, size_t bytes) {
  if (memcheck_on()) memcheck_make_hidden(start, bytes);
}

#else

HAK_INLINE bool memcheck_on(void) { return false; }
HAK_INLINE bool valgrind_on(void) { return false; }
HAK_INLINE void memcheck_alloc(void *block, size_t size, size_t usable, bool zero) { (void)block, (void)size, (void)usable, (void)zero; }
HAK_INLINE void memcheck_free(void *block) { (void)block; }
HAK_INLINE size_t memcheck_size(const void *block, size_t usable) { return (void)block, usable; }
HAK_INLINE void memcheck_resize(void *block, size_t old, size_t size, size_t usable) { (void)block, (void)old, (void)size, (void)usable; }
HAK_INLINE void memcheck_open(void *start, size_t bytes) { (void)start, (void)bytes; }
HAK_INLINE void memcheck_hide(void *start, size_t bytes) { (void)start, (void)bytes; }

#endif

#endif
