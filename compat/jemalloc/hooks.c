/* hooks.c - extent hooks: functions that jemalloc calls for the memory of an arena.
 *
 * RocksDB and folly set an `alloc` hook that calls the previous one and advises the kernel about the memory that this returns, for
 * example to leave it out of core dumps.  Here that hook is called for each span that the arena's blocks come from, and must return
 * the memory that the previous hook offers: hooks that supply memory of their own are refused.  No other hook is called. */
#include "jemalloc.h"

#include <errno.h>
#include <stdatomic.h>
#include <unistd.h>

/* jemalloc's extent_hooks_t. */
typedef struct hooks hooks_t;
struct hooks {
  void *(*alloc)(hooks_t *, void *at, size_t size, size_t alignment, bool *zero, bool *commit, unsigned arena);
  bool (*dalloc)(hooks_t *, void *, size_t size, bool committed, unsigned arena);
  void (*destroy)(hooks_t *, void *, size_t size, bool committed, unsigned arena);
  bool (*change[4])(hooks_t *, void *, size_t size, size_t offset, size_t length, unsigned arena); /* commit, decommit, two of purge */
  bool (*split)(hooks_t *, void *, size_t size, size_t first, size_t second, bool committed, unsigned arena);
  bool (*merge)(hooks_t *, void *, size_t, void *, size_t, bool committed, unsigned arena);
};

/* --- the hooks that an arena has at first: true means "not done" --- */

/* The memory for which a hook is being called. */
typedef struct offered {
  void *start;
  size_t bytes;
} offered_t;
static __thread offered_t offered __attribute__((tls_model("initial-exec")));

static void *first_alloc(hooks_t *hooks, void *at, size_t size, size_t alignment, bool *zero, bool *commit, unsigned arena) {
  (void)hooks, (void)zero, (void)arena;
  bool fits = size <= offered.bytes && (at == NULL || at == offered.start) && compat_is_aligned(offered.start, alignment);
  if (fits) *commit = true;
  return fits ? offered.start : NULL;
}
static bool first_dalloc(hooks_t *hooks, void *p, size_t size, bool committed, unsigned arena) {
  (void)hooks, (void)p, (void)size, (void)committed, (void)arena;
  return true;
}
static void first_destroy(hooks_t *hooks, void *p, size_t size, bool committed, unsigned arena) {
  (void)hooks, (void)p, (void)size, (void)committed, (void)arena;
}
static bool first_change(hooks_t *hooks, void *p, size_t size, size_t offset, size_t length, unsigned arena) {
  (void)hooks, (void)p, (void)size, (void)offset, (void)length, (void)arena;
  return true;
}
static bool first_split(hooks_t *hooks, void *p, size_t size, size_t first, size_t second, bool committed, unsigned arena) {
  (void)hooks, (void)p, (void)size, (void)first, (void)second, (void)committed, (void)arena;
  return true;
}
static bool first_merge(hooks_t *hooks, void *a, size_t a_size, void *b, size_t b_size, bool committed, unsigned arena) {
  (void)hooks, (void)a, (void)a_size, (void)b, (void)b_size, (void)committed, (void)arena;
  return true;
}
static hooks_t first_hooks = {first_alloc, first_dalloc, first_destroy, {first_change, first_change, first_change, first_change},
                              first_split, first_merge};

/* --- the hooks of each arena --- */

static hooks_t *_Atomic hooks_of[ARENAS_MOST]; /* NULL: first_hooks */

/* Returns whether the hook returned the memory that it was offered.  The hook may allocate, and so be called for other memory meanwhile. */
static bool offer(hooks_t *hooks, unsigned arena, void *start, size_t bytes) {
  bool zero = false, commit = true;
  int saved = errno;
  offered_t around = offered;
  offered = (offered_t){start, bytes};
  void *got = hooks->alloc(hooks, NULL, bytes, (size_t)sysconf(_SC_PAGESIZE), &zero, &commit, arena);
  offered = around;
  if (got != start && got != NULL && hooks->dalloc != NULL) (void)hooks->dalloc(hooks, got, bytes, commit, arena);
  errno = saved;
  return got == start;
}

static void span_notified(void *heap, void *start, size_t bytes) {
  unsigned arena = arena_number(heap);
  hooks_t *hooks = atomic_load_explicit(&hooks_of[arena], memory_order_acquire);
  if (hooks != NULL) (void)offer(hooks, arena, start, bytes);
}

/* --- setting them --- */

static __thread struct {
  hooks_t *hooks;
  unsigned arena;
  bool fits;
} tried __attribute__((tls_model("initial-exec")));

static void span_tried(void *heap, void *start, size_t bytes) {
  (void)heap;
  tried.fits = offer(tried.hooks, tried.arena, start, bytes);
}

/* Tries the hooks on a span of a temporary heap: they must accept the memory that they are offered. */
static int hooks_try(unsigned arena, hooks_t *hooks) {
  hak_heap_t *heap = hak_heap_new("hooks");
  if (heap == NULL) return EAGAIN;
  tried.hooks = hooks, tried.arena = arena, tried.fits = false;
  int error = EFAULT;
  if (heap_set_span_hook(heap, span_tried)) error = hak_heap_malloc(heap, 100) == NULL ? EAGAIN : tried.fits ? 0 : EFAULT;
  hak_heap_free(heap);
  return error;
}

int hooks_read(const ctl_at_t *at, uint64_t *value) {
  hak_heap_t *heap;
  if (!arena_heap(at->index[1], &heap)) return ENOENT;
  hooks_t *hooks = atomic_load_explicit(&hooks_of[at->index[1]], memory_order_acquire);
  *value = (uintptr_t)(hooks != NULL ? hooks : &first_hooks);
  return 0;
}

int hooks_write(const ctl_at_t *at, uint64_t value) {
  hooks_t *hooks = (hooks_t *)(uintptr_t)value;
  hak_heap_t *heap;
  if (!arena_heap(at->index[1], &heap)) return ENOENT;
  unsigned arena = (unsigned)at->index[1];
  if (arena == ARENA_AUTOMATIC || hooks == NULL || hooks->alloc == NULL) return EFAULT;
  int error = hooks_try(arena, hooks);
  if (error != 0) return error;
  /* The hooks are set first: each span is reported only once, even if there are no hooks yet. */
  atomic_store_explicit(&hooks_of[arena], hooks, memory_order_release);
  return heap_set_span_hook(heap, span_notified) ? 0 : EFAULT;
}

void hooks_forget(unsigned arena) { atomic_store_explicit(&hooks_of[arena], NULL, memory_order_release); }
