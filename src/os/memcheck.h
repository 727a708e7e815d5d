/* memcheck.h - tells Valgrind's memcheck what the program's blocks are.
 *
 * In a process that memcheck watches, front/memcheck.c asks for MEMCHECK_TAIL
 * bytes more than the program did.  Those nobody may touch; the last of them
 * hold the size that was asked for.  So memcheck knows each block by its exact
 * size, and the next block is never nearer than it is with memcheck's own malloc.
 *
 * Anywhere else, under Valgrind's other tools too, memcheck_on() is false.  It
 * is a constant, and all of this is nothing, without Valgrind's header at build
 * time, with HAKMEM_VALGRIND=OFF, and in the secure library, which looks into
 * free blocks itself. */
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
/* Asks, once. */
bool memcheck_ask(void);
HAK_INLINE bool memcheck_on(void) {
  return !HAK_SECURE && HAK_UNLIKELY(load_relaxed(&memcheck_state) != MEMCHECK_ABSENT) && memcheck_ask();
}
/* Whether any tool of Valgrind's runs the process. */
bool valgrind_on(void);

/* The rest is for where memcheck_on() is true; memcheck_open and memcheck_hide ask themselves. */

/* A new block of `usable` bytes, its tail included, of which the program asked for `size`. */
HAK_COLD void memcheck_alloc(void *block, size_t size, size_t usable, bool zero);
/* Before the block is free to anybody; for whatever the program calls one. */
HAK_COLD void memcheck_free(void *block);
/* What the program asked for. */
HAK_COLD size_t memcheck_size(const void *block, size_t usable);
/* The block has become of `size` and `usable` bytes, where it is; `old` is what it asked for before. */
HAK_COLD void memcheck_resize(void *block, size_t old, size_t size, size_t usable);

HAK_COLD void memcheck_make_open(void *start, size_t bytes);
HAK_COLD void memcheck_make_hidden(void *start, size_t bytes);
/* Lets the allocator itself use memory that blocks were in. */
HAK_INLINE void memcheck_open(void *start, size_t bytes) {
  if (memcheck_on()) memcheck_make_open(start, bytes);
}
/* Ends that: nobody may, but where a block is announced. */
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
