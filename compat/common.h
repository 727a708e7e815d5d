/* common.h - what the libraries in other allocators' places share. */
#ifndef COMPAT_COMMON_H
#define COMPAT_COMMON_H

#include "hakmem/hakmem.h"
#include "hakmem/heap.h"

/* A function that programs find under its own name.  Its declaration is in the header that the program was compiled with. */
#define COMPAT(type, name, parameters) \
  HAK_API type name parameters;        \
  type name parameters

/* Blocks have this alignment without being asked. */
#define COMPAT_ALIGNED ((size_t)16)
#define COMPAT_DECAY_MOST 86400000 /* ms, hakmem's; a longer time is as good as this one */

/* Whether malloc is this library's.  It is not where another library with hakmem in it comes first, as one that is preloaded does: all
 * of the public interface is then that one's, and what is inside of this one is not to be looked at. */
bool compat_is_served(void);

/* What an address is; a block that is not live is COMPAT_OTHER. */
typedef enum compat_place { COMPAT_FOREIGN, COMPAT_OTHER, COMPAT_INTERIOR, COMPAT_LIVE } compat_place_t;
compat_place_t compat_place(const void *p);

/* Whether the environment, as HAKMEM_NAME, or the file that HAKMEM_CONF names sets an option; of another hakmem, which serves the process,
 * the environment alone is asked. */
bool compat_option_is_given(const char *name);
/* Sets an option that may change at run time, unless that is so. */
void compat_option(const char *name, int64_t value);

/* From the heap, or as malloc does where there is none.  With `zero` all that may be used is zero. */
HAK_MUST_USE void *compat_take(hak_heap_t *heap, size_t size, size_t alignment, bool zero);
/* From malloc's own, also where the thread's default is another heap. */
HAK_MUST_USE void *compat_take_automatic(size_t size, size_t alignment, bool zero);
/* Makes zero what may be used behind the first bytes; returns the block. */
void *compat_clear_from(void *block, size_t from);
bool compat_is_aligned(const void *block, size_t alignment);
/* Resizes where it is, if no memory is wasted by it; NULL, with the block as it was, if the caller is to move it. */
HAK_MUST_USE void *compat_resize(void *block, size_t size, size_t alignment);
/* Gives back what a large block has beyond `size`, without moving it; false if there is nothing, or where it might move. */
bool compat_shrink(void *block, size_t size);

/* As operator new: asks the program's new handler to make room, again and again, then throws std::bad_alloc. `heap` as for compat_take.
 * Never by way of operator new: programs define that by the functions that call this. */
void *compat_new(hak_heap_t *heap, size_t size, size_t alignment);
/* The same from the thread's own heap, as compat_take_automatic. */
void *compat_new_automatic(size_t size);
/* The same as compat_new, but returns NULL. */
void *compat_new_quiet(size_t size, size_t alignment);

typedef void compat_text_fn(void *to, const char *text);
/* Gives what `write` writes to a descriptor to `out`, a few KiB of text at a time.  Nothing is allocated.  False if there is no
 * memory for a file without a name, or the program has a filter of system calls. */
bool compat_capture(bool (*write)(int fd), compat_text_fn *out, void *to);

#endif
