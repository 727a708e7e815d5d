/* functions.c - the functions of gperftools' tcmalloc.h and of malloc_hook_c.h. */
#include "../common.h"

#include <malloc.h>

COMPAT(const char *, tc_version, (int *major, int *minor, const char **patch)) {
  if (major != NULL) *major = 2;
  if (minor != NULL) *minor = 10;
  if (patch != NULL) *patch = "";
  return "gperftools 2.10";
}

COMPAT(void *, tc_malloc, (size_t size)) { return hak_malloc(size); }
COMPAT(void *, tc_malloc_skip_new_handler, (size_t size)) { return hak_malloc(size); }
COMPAT(void, tc_free, (void *block)) { hak_free(block); }
COMPAT(void, tc_free_sized, (void *block, size_t size)) { hak_free_sized(block, size); }
COMPAT(void *, tc_realloc, (void *block, size_t size)) { return hak_realloc(block, size); }
COMPAT(void *, tc_calloc, (size_t count, size_t size)) { return hak_calloc(count, size); }
COMPAT(void, tc_cfree, (void *block)) { hak_free(block); }
COMPAT(void *, tc_memalign, (size_t alignment, size_t size)) { return hak_memalign(alignment, size); }
COMPAT(int, tc_posix_memalign, (void **result, size_t alignment, size_t size)) { return hak_posix_memalign(result, alignment, size); }
COMPAT(void *, tc_valloc, (size_t size)) { return hak_valloc(size); }
COMPAT(void *, tc_pvalloc, (size_t size)) { return hak_pvalloc(size); }
COMPAT(void, tc_malloc_stats, (void)) { hak_malloc_stats(); }
COMPAT(int, tc_mallopt, (int parameter, int value)) { return hak_mallopt(parameter, value); }
COMPAT(size_t, tc_malloc_size, (void *block)) { return hak_malloc_usable_size(block); }
COMPAT(size_t, malloc_size, (void *block)) { return hak_malloc_usable_size(block); }
COMPAT(size_t, tc_nallocx, (size_t size, int flags)) { return hak_nallocx(size, flags); }

/* A figure stops at the largest int. */
static int cut(size_t figure) { return figure < INT32_MAX ? (int)figure : INT32_MAX; }

COMPAT(struct mallinfo, tc_mallinfo, (void)) {
  hak_mallinfo_t info = hak_mallinfo2();
  return (struct mallinfo){
      .arena = cut(info.arena),
      .ordblks = cut(info.ordblks),
      .hblks = cut(info.hblks),
      .fsmblks = cut(info.fsmblks),
      .uordblks = cut(info.uordblks),
      .fordblks = cut(info.fordblks),
      .keepcost = cut(info.keepcost),
  };
}

/* Whether malloc is to call the new handler.  The mode is stored, but malloc never calls it. */
static int new_mode;
COMPAT(int, tc_query_new_mode, (void)) { return __atomic_load_n(&new_mode, __ATOMIC_RELAXED); }
COMPAT(int, tc_set_new_mode, (int mode)) { return __atomic_exchange_n(&new_mode, mode, __ATOMIC_RELAXED); }

/* --- new and delete: the tag and the alignment of a delete are ignored --------------------- */

typedef const void *nothrow_t;

COMPAT(void *, tc_new, (size_t size)) { return compat_new(NULL, size, 1); }
COMPAT(void *, tc_newarray, (size_t size)) { return compat_new(NULL, size, 1); }
COMPAT(void *, tc_new_nothrow, (size_t size, nothrow_t tag)) { return (void)tag, compat_new_quiet(size, 1); }
COMPAT(void *, tc_newarray_nothrow, (size_t size, nothrow_t tag)) { return (void)tag, compat_new_quiet(size, 1); }
COMPAT(void *, tc_new_aligned, (size_t size, size_t alignment)) { return compat_new(NULL, size, alignment); }
COMPAT(void *, tc_newarray_aligned, (size_t size, size_t alignment)) { return compat_new(NULL, size, alignment); }
COMPAT(void *, tc_new_aligned_nothrow, (size_t size, size_t alignment, nothrow_t tag)) {
  return (void)tag, compat_new_quiet(size, alignment);
}
COMPAT(void *, tc_newarray_aligned_nothrow, (size_t size, size_t alignment, nothrow_t tag)) {
  return (void)tag, compat_new_quiet(size, alignment);
}

COMPAT(void, tc_delete, (void *block)) { hak_free(block); }
COMPAT(void, tc_deletearray, (void *block)) { hak_free(block); }
COMPAT(void, tc_delete_sized, (void *block, size_t size)) { hak_free_sized(block, size); }
COMPAT(void, tc_deletearray_sized, (void *block, size_t size)) { hak_free_sized(block, size); }
COMPAT(void, tc_delete_nothrow, (void *block, nothrow_t tag)) { (void)tag, hak_free(block); }
COMPAT(void, tc_deletearray_nothrow, (void *block, nothrow_t tag)) { (void)tag, hak_free(block); }
COMPAT(void, tc_delete_aligned, (void *block, size_t alignment)) { (void)alignment, hak_free(block); }
COMPAT(void, tc_deletearray_aligned, (void *block, size_t alignment)) { (void)alignment, hak_free(block); }
COMPAT(void, tc_delete_sized_aligned, (void *block, size_t size, size_t alignment)) { hak_free_aligned_sized(block, alignment, size); }
COMPAT(void, tc_deletearray_sized_aligned, (void *block, size_t size, size_t alignment)) { hak_free_aligned_sized(block, alignment, size); }
COMPAT(void, tc_delete_aligned_nothrow, (void *block, size_t alignment, nothrow_t tag)) { (void)alignment, (void)tag, hak_free(block); }
COMPAT(void, tc_deletearray_aligned_nothrow, (void *block, size_t alignment, nothrow_t tag)) {
  (void)alignment, (void)tag, hak_free(block);
}

/* --- hooks: none is ever called, and the result of adding one says so ------------------------ */

typedef void (*hook_t)(void);
#define HOOK(kind)                                                                    \
  COMPAT(int, MallocHook_Add##kind##Hook, (hook_t hook)) { return (void)hook, 0; }    \
  COMPAT(int, MallocHook_Remove##kind##Hook, (hook_t hook)) { return (void)hook, 0; } \
  COMPAT(hook_t, MallocHook_Set##kind##Hook, (hook_t hook)) { return (void)hook, NULL; }
HOOK(New)
HOOK(Delete)
HOOK(PreMmap)
HOOK(Mmap)
HOOK(Munmap)
HOOK(Mremap)
HOOK(PreSbrk)
HOOK(Sbrk)

COMPAT(int, MallocHook_SetMmapReplacement, (hook_t hook)) { return (void)hook, 0; }
COMPAT(int, MallocHook_RemoveMmapReplacement, (hook_t hook)) { return (void)hook, 0; }
COMPAT(int, MallocHook_SetMunmapReplacement, (hook_t hook)) { return (void)hook, 0; }
COMPAT(int, MallocHook_RemoveMunmapReplacement, (hook_t hook)) { return (void)hook, 0; }

COMPAT(int, MallocHook_GetCallerStackTrace, (void **stack, int depth, int skip)) { return (void)stack, (void)depth, (void)skip, 0; }
