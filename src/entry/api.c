/* api.c - the allocation functions: hak_* and, as aliases of them, the names of libc.
 *
 * This file holds only what the names differ in: which arguments are refused with which errno, and what NULL and 0 mean.
 *   malloc(0), realloc(NULL, 0)   a block of no bytes, with an address of its own
 *   realloc(p, 0)                 frees and returns NULL, as glibc does
 *   an alignment                  a power of two, else EINVAL; posix_memalign wants at least a pointer's and leaves errno alone
 *   count * size                  ENOMEM if it overflows, before anything else is checked
 * Each function passes on the name that the program called, for the message after which a wrong call ends the process. */
#include "entry/entry.h"

#include <errno.h>
#include <string.h>

#include "base/counted.h"
#include "os/os.h"
#include "kit/fault.h"
#include "space/purge.h"
#include "slab/hole.h"
#include "slab/large.h"
#include "front/block.h"
#include "front/boot.h"
#include "front/inspect.h"
#include "front/limits.h"
#include "front/named.h"
#include "front/resize.h"
#include "front/supply.h"

#if HAK_COUNTED
__thread counted_t counted_bytes;
#endif

static void *fail(int error) {
  errno = error;
  return NULL;
}

const char *hak_version(void) {
#define TEXT(x) #x
#define TEXT_OF(x) TEXT(x)
  return TEXT_OF(HAK_VERSION_MAJOR) "." TEXT_OF(HAK_VERSION_MINOR) "." TEXT_OF(HAK_VERSION_PATCH);
}

void *hak_malloc(size_t size) { return block_alloc(size); }

void hak_free(void *block) { block_free(block, 0, "free"); }

void hak_cfree(void *block) { block_free(block, 0, "cfree"); }

void *hak_calloc(size_t count, size_t size) {
  size_t bytes;
  if (__builtin_mul_overflow(count, size, &bytes)) return fail(ENOMEM);
  return block_alloc_zeroed(bytes);
}

HAK_INLINE void *realloc_by(void *(*move)(void *block, size_t size), void *block, size_t size) {
  if (block == NULL) return block_alloc(size);
  if (size == 0) {
    block_free(block, 0, "realloc");
    return NULL;
  }
  return move(block, size);
}

void *hak_realloc(void *block, size_t size) { return realloc_by(block_realloc, block, size); }

void *hak_reallocarray(void *block, size_t count, size_t size) {
  size_t bytes;
  if (__builtin_mul_overflow(count, size, &bytes)) return fail(ENOMEM);
  return hak_realloc(block, bytes);
}

/* The compiler would remove a plain memset before free as a dead store. */
static void clear(void *start, size_t bytes) {
  memset(start, 0, bytes);
  __asm__ volatile("" : : "r"(start) : "memory");
}

/* Always moves the block, so that the old content is cleared before anybody else can get it. */
HAK_COLD void *hak_recallocarray(void *block, size_t old_count, size_t count, size_t size) {
  size_t bytes, old_bytes;
  if (block == NULL) return hak_calloc(count, size);
  if (__builtin_mul_overflow(count, size, &bytes)) return fail(ENOMEM);
  size_t usable = block_require(block, "recallocarray");
  if (__builtin_mul_overflow(old_count, size, &old_bytes) || old_bytes > usable) return fail(EINVAL);
  if (bytes == 0) {
    clear(block, old_bytes);
    block_free(block, 0, "recallocarray");
    return NULL;
  }
  heap_t *heap = named_of(unit_head((uint32_t)region_unit(block)));
  void *moved = heap != NULL ? alloc_from(heap, bytes, 1, SPAN_ZEROED, "recallocarray") : block_alloc_own_zeroed(bytes);
  if (moved == NULL) return NULL;
  memcpy(moved, block, bytes < old_bytes ? bytes : old_bytes);
  clear(block, old_bytes);
  block_free(block, 0, "recallocarray");
  return moved;
}

void *hak_reallocf(void *block, size_t size) {
  void *moved = hak_realloc(block, size);
  if (moved == NULL && block != NULL && size != 0) block_free(block, 0, "reallocf");
  return moved;
}

void *hak_memalign(size_t alignment, size_t size) {
  if (!bits_is_pow2(alignment)) return fail(EINVAL);
  return block_alloc_aligned(alignment, size);
}

void *hak_aligned_alloc(size_t alignment, size_t size) { return hak_memalign(alignment, size); }

int hak_posix_memalign(void **result, size_t alignment, size_t size) {
  if (!bits_is_pow2(alignment) || alignment < sizeof(void *)) return EINVAL;
  int saved = errno;
  void *block = block_alloc_aligned(alignment, size);
  errno = saved;
  if (block == NULL) return ENOMEM;
  *result = block;
  return 0;
}

void *hak_valloc(size_t size) { return block_alloc_aligned(os_page_size(), size); }

HAK_COLD void *hak_pvalloc(size_t size) {
  size_t page = os_page_size();
  if (size > PTRDIFF_MAX) return fail(ENOMEM);
  return block_alloc_aligned(page, size == 0 ? page : bits_round_up(size, page));
}

size_t hak_malloc_usable_size(const void *block) { return block == NULL ? 0 : block_usable_size(block); }

bool hak_is_live(const void *address) { return address != NULL && block_locate(address).state == BLOCK_LIVE; }

/* The size that a program may rely on before it has the block. A small block may get a guard slot, which has only the bytes requested. */
static size_t promised_size(size_t size, size_t align) {
  size_t good = block_good_size(size, align);
  return option_get(OPTION_guard) != 0 && size < good && good <= HAK_SMALL_MAX ? size : good;
}

size_t hak_malloc_good_size(size_t size) { return promised_size(size, 1); }

void hak_free_sized(void *block, size_t size) { block_free(block, size, "free_sized"); }

/* The alignment checks nothing that the size does not: a block of any size may have any alignment. */
void hak_free_aligned_sized(void *block, size_t alignment, size_t size) {
  (void)alignment;
  block_free(block, size, "free_aligned_sized");
}

static size_t flags_alignment(int flags) { return (size_t)1 << (flags & 63); }

size_t hak_nallocx(size_t size, int flags) { return promised_size(size, flags_alignment(flags)); }

void hak_sdallocx(void *block, size_t size, int flags) {
  (void)flags;
  block_free(block, size, "sdallocx");
}

/* Requests the whole size of the class, since the secure library lets a program use only what it requested. */
HAK_COLD hak_sized_t hak_alloc_at_least(size_t size) {
  size_t good = block_good_size(size, 1);
  void *block = block_alloc(good > 0 ? good : size);
  return (hak_sized_t){block, block != NULL ? good : 0};
}

bool hak_expand(void *block, size_t size) { return block_expand(block, size); }

size_t hak_malloc_batch(size_t size, size_t count, void **blocks) { return block_alloc_batch(size, count, blocks); }

void hak_free_batch(void **blocks, size_t count) {
  for (size_t i = 0; i < count; i++) block_free(blocks[i], 0, "hak_free_batch");
}

HAK_COLD size_t hak_collect(bool force) {
  if (region.base == 0) return 0;
  thread_enter();
  size_t purged = heap_collect(thread_heap, force);
  thread_leave();
  return purged;
}

HAK_COLD bool hak_option_get(const char *name, int64_t *value) {
  boot_options();
  option_t option = option_find(name, strlen(name));
  if (option == OPTION_COUNT) {
    errno = EINVAL;
    return false;
  }
  *value = option_get(option);
  return true;
}

HAK_COLD bool hak_option_set(const char *name, int64_t value) {
  boot_options();
  option_t option = option_find(name, strlen(name));
  if (option == OPTION_COUNT || !option_info[option].at_run_time || !option_set(option, value)) {
    errno = EINVAL;
    return false;
  }
  if (option == OPTION_limit_soft || option == OPTION_limit_hard || option == OPTION_container) limits_changed();
  return true;
}

#if HAK_OVERRIDE

void *malloc(size_t size) HAK_ALIAS(hak_malloc);
void free(void *block) HAK_ALIAS(hak_free);
void cfree(void *block) HAK_ALIAS(hak_cfree);
void *calloc(size_t count, size_t size) HAK_ALIAS(hak_calloc);
#if HAK_REALLOC_LEAVES
HAK_EXPORT void *realloc(void *block, size_t size);
void *realloc(void *block, size_t size) { return realloc_by(block_realloc_to_default, block, size); }
void *__libc_realloc(void *block, size_t size) HAK_ALIAS(realloc);
#else
void *realloc(void *block, size_t size) HAK_ALIAS(hak_realloc);
void *__libc_realloc(void *block, size_t size) HAK_ALIAS(hak_realloc);
#endif
void *aligned_alloc(size_t alignment, size_t size) HAK_ALIAS(hak_aligned_alloc);
void *memalign(size_t alignment, size_t size) HAK_ALIAS(hak_memalign);
int posix_memalign(void **result, size_t alignment, size_t size) HAK_ALIAS(hak_posix_memalign);
void *valloc(size_t size) HAK_ALIAS(hak_valloc);
void *pvalloc(size_t size) HAK_ALIAS(hak_pvalloc);
size_t malloc_usable_size(void *block) HAK_ALIAS(hak_malloc_usable_size);
size_t malloc_good_size(size_t size) HAK_ALIAS(hak_malloc_good_size);
void free_sized(void *block, size_t size) HAK_ALIAS(hak_free_sized);
void free_aligned_sized(void *block, size_t alignment, size_t size) HAK_ALIAS(hak_free_aligned_sized);

/* Names that older programs and glibc's own helpers call. */
void *__libc_malloc(size_t size) HAK_ALIAS(hak_malloc);
void __libc_free(void *block) HAK_ALIAS(hak_free);
void __libc_cfree(void *block) HAK_ALIAS(hak_cfree);
void *__libc_calloc(size_t count, size_t size) HAK_ALIAS(hak_calloc);
void *__libc_memalign(size_t alignment, size_t size) HAK_ALIAS(hak_memalign);
void *__libc_valloc(size_t size) HAK_ALIAS(hak_valloc);
void *__libc_pvalloc(size_t size) HAK_ALIAS(hak_pvalloc);
int __posix_memalign(void **result, size_t alignment, size_t size) HAK_ALIAS(hak_posix_memalign);

#endif
