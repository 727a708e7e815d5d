/* names.h - the names under which the programs call the allocator; include it last.
 *
 * Usually they are the C library's.  A build with sanitizers leaves those to the
 * sanitizer and tests hakmem under hak_* alone: STRESS_HAK_NAMES.
 */
#ifndef STRESS_NAMES_H
#define STRESS_NAMES_H

#ifdef STRESS_HAK_NAMES
#define malloc hak_malloc
#define calloc hak_calloc
#define realloc hak_realloc
#define reallocarray hak_reallocarray
#define aligned_alloc hak_aligned_alloc
#define memalign hak_memalign
#define posix_memalign hak_posix_memalign
#define valloc hak_valloc
#define pvalloc hak_pvalloc
#define free hak_free
#define malloc_usable_size hak_malloc_usable_size
#endif

#endif
