/* common.h - what the libraries that replace other allocators share. */
#ifndef COMPAT_COMMON_H
#define COMPAT_COMMON_H

#include "hakmem/hakmem.h"
#include "hakmem/heap.h"

/* Defines a function that programs find under its own name.  They have its declaration from the other allocator's header. */
#define COMPAT(type, name, parameters) \
  HAK_API type name parameters;        \
  type name parameters

/* Every block has this alignment. */
#define COMPAT_ALIGNED ((size_t)16)
/* A large block has this one, except in the secure library and under memcheck. */
#define COMPAT_PAGES_ALIGNED ((size_t)65536)
#define COMPAT_DECAY_MOST 86400000 /* ms, the most that hakmem accepts; longer times are cut to it */

/* Whether this library's malloc serves the process.  It does not if another library that contains hakmem comes first, such as a preloaded
 * one: then the whole public interface is that library's, and this one's internals must not be used. */
bool compat_is_served(void);

/* What an address points to; a block that is not live is COMPAT_OTHER. */
typedef enum compat_place { COMPAT_FOREIGN, COMPAT_OTHER, COMPAT_INTERIOR, COMPAT_LIVE } compat_place_t;
compat_place_t compat_place(const void *p);

/* Whether an option is set by the environment, as HAKMEM_NAME, or by the file that HAKMEM_CONF names.  If another hakmem serves the
 * process, only the environment is checked. */
bool compat_option_is_given(const char *name);
/* Sets an option that may change at run time, unless compat_option_is_given. */
void compat_option(const char *name, int64_t value);

/* The heap that the calling thread's malloc allocates from; NULL: its own. */
hak_heap_t *compat_default(void);

/* Allocates from the heap, or as malloc does if it is NULL; NULL with EINVAL unless the alignment is a power of two.  With `zero` the whole
 * usable size is zero. */
HAK_MUST_USE void *compat_take(hak_heap_t *heap, size_t size, size_t alignment, bool zero);
/* Allocates from the thread's own heap, even if its default is another one. */
HAK_MUST_USE void *compat_take_automatic(size_t size, size_t alignment, bool zero);
/* Clears the usable size beyond the first `from` bytes; returns the block. */
void *compat_clear_from(void *block, size_t from);
bool compat_is_aligned(const void *block, size_t alignment);
/* Resizes the block in place if that wastes no memory; NULL, with the block unchanged, if the caller must move it.  A block of another heap
 * than `of` does not grow in place: it would end with that heap. */
HAK_MUST_USE void *compat_resize(hak_heap_t *of, void *block, size_t size, size_t alignment);
/* Whether a block that grows to `size` by zeros had better move: a new block's pages are zero, but those behind a block are written. */
bool compat_moves_for_zeros(size_t before, size_t size);
/* Gives back what a large block has beyond `size`, without moving it; false if there is nothing to give back, or the block might move. */
bool compat_shrink(void *block, size_t size);

/* As operator new: calls the program's new handler until there is room, or throws std::bad_alloc. `heap` is as for compat_take. This never
 * calls operator new, since programs may define that with the functions that call this. */
void *compat_new(hak_heap_t *heap, size_t size, size_t alignment);
/* The same, from the thread's own heap, as compat_take_automatic. */
void *compat_new_automatic(size_t size);
/* The same as compat_new, but returns NULL. */
void *compat_new_quiet(size_t size, size_t alignment);

typedef void compat_text_fn(void *to, const char *text);
/* Passes what `write` writes to a descriptor on to `out`, a few KiB of text at a time.  Allocates nothing.  False if there is no
 * memory for a file without a name, or the program has a filter of system calls. */
bool compat_capture(bool (*write)(int fd), compat_text_fn *out, void *to);

#endif
