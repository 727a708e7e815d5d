#include "common.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <unistd.h>

#include "front/boot.h"
#include "front/inspect.h"
#include "front/thread.h"
#include "kit/options.h"
#include "os/file.h"
#include "os/memcheck.h"

bool compat_is_served(void) {
  static _Atomic int known; /* 1: yes, 2: no */
  int answer = load_relaxed(&known);
  if (HAK_LIKELY(answer != 0)) return answer == 1;
  Dl_info of_malloc, own;
  bool served = dladdr((void *)(uintptr_t)hak_malloc, &of_malloc) != 0 && dladdr(&known, &own) != 0 && of_malloc.dli_fbase == own.dli_fbase;
  store_relaxed(&known, served ? 1 : 2);
  return served;
}

/* Done early, since dladdr waits for the loader's lock, which a thread holds while it runs a library's constructor. */
static __attribute__((constructor)) void look_early(void) { (void)compat_is_served(); }

/* If another library serves malloc, only live blocks can be recognized. */
compat_place_t compat_place(const void *p) {
  if (!compat_is_served()) return hak_is_live(p) ? COMPAT_LIVE : COMPAT_FOREIGN;
  static const compat_place_t places[] = {[BLOCK_LIVE] = COMPAT_LIVE,
                                          [BLOCK_FREED] = COMPAT_OTHER,
                                          [BLOCK_INTERIOR] = COMPAT_INTERIOR,
                                          [BLOCK_MISALIGNED] = COMPAT_OTHER,
                                          [BLOCK_FOREIGN] = COMPAT_FOREIGN};
  block_state_t state = block_inspect(p).state;
  if (state == BLOCK_MISALIGNED) {
    block_state_t below = block_inspect((const void *)((uintptr_t)p & ~(uintptr_t)(COMPAT_ALIGNED - 1))).state;
    return below == BLOCK_LIVE || below == BLOCK_INTERIOR ? COMPAT_INTERIOR : COMPAT_OTHER;
  }
  return places[state];
}

bool compat_option_is_given(const char *name) {
  if (compat_is_served()) {
    boot_options();
    option_t option = option_find(name, strlen(name));
    return option != OPTION_COUNT && option_is_given(option);
  }
  char variable[32] = "HAKMEM_";
  size_t at = strlen(variable);
  for (const char *c = name; *c != '\0' && at < sizeof variable - 1; c++) variable[at++] = (char)(*c >= 'a' && *c <= 'z' ? *c - 32 : *c);
  return secure_getenv(variable) != NULL;
}

void compat_option(const char *name, int64_t value) {
  if (compat_option_is_given(name)) return;
  int saved = errno;
  (void)hak_option_set(name, value); /* a value out of range leaves the default */
  errno = saved;
}

void *compat_clear_from(void *block, size_t from) {
  size_t size = hak_malloc_usable_size(block);
  if (size > from) memset((char *)block + from, 0, size - from);
  return block;
}

bool compat_is_aligned(const void *block, size_t alignment) { return ((uintptr_t)block & (alignment - 1)) == 0; }

/* hak_expand gives no memory back.  realloc does, and leaves large blocks in place; another library's realloc may move them. */
void *compat_resize(hak_heap_t *of, void *block, size_t size, size_t alignment) {
  if (!compat_is_aligned(block, alignment)) return NULL;
  size_t usable = hak_malloc_usable_size(block);
  if (size > usable && hak_heap_of(block) != of) return NULL;
  size_t good = hak_nallocx(size, __builtin_ctzl(alignment));
  if (good == 0 || usable <= good) return hak_expand(block, size) ? block : NULL;
  bool may_move = memcheck_on() || !compat_is_served();
  if (size <= HAK_SMALL_MAX || (alignment > COMPAT_ALIGNED && may_move)) return NULL;
  return hak_realloc(block, size);
}

bool compat_moves_for_zeros(size_t before, size_t size) { return size > HAK_SMALL_MAX && size / 2 > before; }

bool compat_shrink(void *block, size_t size) {
  if (size <= HAK_SMALL_MAX || !compat_is_served() || memcheck_on()) return false;
  size_t good = hak_nallocx(size, 0);
  return good != 0 && good < hak_malloc_usable_size(block) && hak_realloc(block, size) == block;
}

/* Not by setting another for a moment: then another thread could end the heap. */
hak_heap_t *compat_default(void) {
  if (compat_is_served()) return thread_heap != NULL ? (hak_heap_t *)(void *)thread_heap->default_heap : NULL;
  hak_heap_t *in_force = hak_heap_set_default(NULL);
  if (in_force != NULL) (void)hak_heap_set_default(in_force);
  return in_force;
}

void *compat_take(hak_heap_t *heap, size_t size, size_t alignment, bool zero) {
  void *block;
  if (alignment == 0 || (alignment & (alignment - 1)) != 0) {
    errno = EINVAL;
    return NULL;
  }
  bool pages = size > HAK_SMALL_MAX && alignment <= COMPAT_PAGES_ALIGNED; /* only calloc knows which ones are zero already */
  if (zero && (alignment <= COMPAT_ALIGNED || pages)) {
    block = heap != NULL ? hak_heap_calloc(heap, 1, size) : hak_calloc(1, size);
    if (block == NULL || compat_is_aligned(block, alignment)) return block != NULL ? compat_clear_from(block, size) : NULL;
    hak_free(block);
  }
  if (alignment > COMPAT_ALIGNED) block = heap != NULL ? hak_heap_aligned_alloc(heap, alignment, size) : hak_memalign(alignment, size);
  else block = heap != NULL ? hak_heap_malloc(heap, size) : hak_malloc(size);
  return block != NULL && zero ? compat_clear_from(block, 0) : block;
}

void *compat_take_automatic(size_t size, size_t alignment, bool zero) {
  hak_heap_t *before = hak_heap_set_default(NULL);
  void *block = compat_take(NULL, size, alignment, zero);
  if (before != NULL) (void)hak_heap_set_default(before);
  return block;
}

/* Functions of the C++ runtime, if there is one. */
typedef void (*new_handler_t)(void);
extern __attribute__((weak)) new_handler_t _ZSt15get_new_handlerv(void); /* std::get_new_handler() */
extern __attribute__((weak)) _Noreturn void _ZSt17__throw_bad_allocv(void);

void *cxx_catch(size_t size, size_t alignment, void *(*make)(size_t size, size_t alignment)); /* entry/cxx.c */

/* NULL if allocation fails and there is no handler. */
static void *new_or_ask(hak_heap_t *heap, bool automatic, size_t size, size_t alignment) {
  for (;;) {
    void *block = automatic ? compat_take_automatic(size, alignment, false) : compat_take(heap, size, alignment, false);
    if (block != NULL) return block;
    new_handler_t handler = _ZSt15get_new_handlerv != NULL ? _ZSt15get_new_handlerv() : NULL;
    if (handler == NULL) return NULL;
    handler();
  }
}

static void *new_or_ask_quietly(size_t size, size_t alignment) { return new_or_ask(NULL, false, size, alignment); }

void *compat_new_quiet(size_t size, size_t alignment) {
  if (_ZSt15get_new_handlerv == NULL) return new_or_ask_quietly(size, alignment);
  return cxx_catch(size, alignment, new_or_ask_quietly); /* a handler may throw */
}

static void *new_or_throw(void *block) {
  if (block != NULL) return block;
  if (_ZSt17__throw_bad_allocv == NULL) abort();
  _ZSt17__throw_bad_allocv();
}

void *compat_new(hak_heap_t *heap, size_t size, size_t alignment) { return new_or_throw(new_or_ask(heap, false, size, alignment)); }
void *compat_new_automatic(size_t size) { return new_or_throw(new_or_ask(NULL, true, size, 1)); }

/* Uses a file, since a pipe that nobody reads meanwhile would fill up, and no libc call that is a cancellation point. */
bool compat_capture(bool (*write)(int fd), compat_text_fn *out, void *to) {
  if (compat_is_served() && load_relaxed(&os_filters) != 0) return false; /* it may end the process for a file, which malloc never makes */
  int saved = errno;
  int fd = file_memory("report");
  if (fd < 0) return false;
  bool done = write(fd);
  char text[4096];
  uint64_t at = 0;
  for (long n; done && (n = file_pread(fd, text, sizeof text - 1, at)) > 0; at += (uint64_t)n) {
    text[n] = '\0';
    out(to, text);
  }
  file_close(fd);
  errno = saved;
  return done;
}
