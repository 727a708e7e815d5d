/* cxx.c - the C++ allocation operators, under their names in the C++ ABI.
 *
 * Written in C so that the library needs no C++ runtime: the runtime's functions
 * are weak, and a program without it cannot call these. */
#include "entry/entry.h"

#include "front/block.h"
#include "os/os.h"

#if HAK_OVERRIDE

typedef void (*new_handler_t)(void);
extern new_handler_t _ZSt15get_new_handlerv(void) __attribute__((weak)); /* std::get_new_handler() */
extern void *__cxa_allocate_exception(size_t size) __attribute__((weak));
extern void __cxa_throw(void *exception, void *type, void (*destroy)(void *)) __attribute__((weak, noreturn));
extern char _ZTISt9bad_alloc __attribute__((weak));    /* its type information */
extern void *_ZTVSt9bad_alloc[] __attribute__((weak)); /* its virtual table */
extern void _ZNSt9bad_allocD1Ev(void *) __attribute__((weak));

static _Noreturn void throw_bad_alloc(void) {
  if (__cxa_throw == NULL || __cxa_allocate_exception == NULL) os_abort();
  void **exception = __cxa_allocate_exception(sizeof(void *));
  exception[0] = &_ZTVSt9bad_alloc[2]; /* past the offset to top and the type information */
  __cxa_throw(exception, &_ZTISt9bad_alloc, _ZNSt9bad_allocD1Ev);
}

/* Asks the new_handler to make room, again and again, as the standard wants.
 * Limit: a handler that throws from a nothrow operator is not turned into NULL. */
static HAK_COLD void *new_failed(size_t align, size_t size, bool throws) {
  for (;;) {
    new_handler_t handler = _ZSt15get_new_handlerv != NULL ? _ZSt15get_new_handlerv() : NULL;
    if (handler == NULL) {
      if (throws) throw_bad_alloc();
      return NULL;
    }
    handler();
    void *block = block_alloc_aligned(align, size);
    if (block != NULL) return block;
  }
}

HAK_INLINE void *new_block(size_t size, bool throws) {
  void *block = block_alloc(size);
  return HAK_LIKELY(block != NULL) ? block : new_failed(1, size, throws);
}

HAK_INLINE void *new_aligned(size_t size, size_t align, bool throws) {
  void *block = bits_is_pow2(align) ? block_alloc_aligned(align, size) : NULL;
  return HAK_LIKELY(block != NULL) ? block : new_failed(bits_is_pow2(align) ? align : 1, size, throws);
}

/* Declared where they are defined: no C header names them. */
#define OPERATOR(type, name, ...)   \
  HAK_API type name(__VA_ARGS__);   \
  type name(__VA_ARGS__)

OPERATOR(void *, _Znwm, size_t size) { return new_block(size, true); }
OPERATOR(void *, _Znam, size_t size) { return new_block(size, true); }
OPERATOR(void *, _ZnwmRKSt9nothrow_t, size_t size, const void *tag) { return (void)tag, new_block(size, false); }
OPERATOR(void *, _ZnamRKSt9nothrow_t, size_t size, const void *tag) { return (void)tag, new_block(size, false); }
OPERATOR(void *, _ZnwmSt11align_val_t, size_t size, size_t align) { return new_aligned(size, align, true); }
OPERATOR(void *, _ZnamSt11align_val_t, size_t size, size_t align) { return new_aligned(size, align, true); }
OPERATOR(void *, _ZnwmSt11align_val_tRKSt9nothrow_t, size_t size, size_t align, const void *tag) {
  return (void)tag, new_aligned(size, align, false);
}
OPERATOR(void *, _ZnamSt11align_val_tRKSt9nothrow_t, size_t size, size_t align, const void *tag) {
  return (void)tag, new_aligned(size, align, false);
}

OPERATOR(void, _ZdlPv, void *block) { block_free(block, 0, "operator delete"); }
OPERATOR(void, _ZdaPv, void *block) { block_free(block, 0, "operator delete[]"); }
OPERATOR(void, _ZdlPvm, void *block, size_t size) { block_free(block, size, "operator delete"); }
OPERATOR(void, _ZdaPvm, void *block, size_t size) { block_free(block, size, "operator delete[]"); }
OPERATOR(void, _ZdlPvRKSt9nothrow_t, void *block, const void *tag) {
  (void)tag;
  block_free(block, 0, "operator delete");
}
OPERATOR(void, _ZdaPvRKSt9nothrow_t, void *block, const void *tag) {
  (void)tag;
  block_free(block, 0, "operator delete[]");
}
OPERATOR(void, _ZdlPvSt11align_val_t, void *block, size_t align) {
  (void)align;
  block_free(block, 0, "operator delete");
}
OPERATOR(void, _ZdaPvSt11align_val_t, void *block, size_t align) {
  (void)align;
  block_free(block, 0, "operator delete[]");
}
OPERATOR(void, _ZdlPvmSt11align_val_t, void *block, size_t size, size_t align) {
  (void)align;
  block_free(block, size, "operator delete");
}
OPERATOR(void, _ZdaPvmSt11align_val_t, void *block, size_t size, size_t align) {
  (void)align;
  block_free(block, size, "operator delete[]");
}
OPERATOR(void, _ZdlPvSt11align_val_tRKSt9nothrow_t, void *block, size_t align, const void *tag) {
  (void)align, (void)tag;
  block_free(block, 0, "operator delete");
}
OPERATOR(void, _ZdaPvSt11align_val_tRKSt9nothrow_t, void *block, size_t align, const void *tag) {
  (void)align, (void)tag;
  block_free(block, 0, "operator delete[]");
}

#endif
