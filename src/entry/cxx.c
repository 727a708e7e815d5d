/* cxx.c - the C++ allocation operators, under their names in the C++ ABI.
 *
 * A program may define some of them itself, and the others then call the program's, as the standard says ([new.delete]):
 *
 *   new(n, nothrow)     new(n)              delete(p, n)  delete(p, nothrow)      delete(p)
 *   new[](n)            new(n)              delete[](p)                           delete(p)
 *   new[](n, nothrow)   new[](n)            delete[](p, n)  delete[](p, nothrow)  delete[](p)
 *
 * and likewise among the forms with an alignment.  So each form is a function of ours, `own`, with a weak name.  The name resolves
 * to the program's function if there is one: the linker decides in a static program, otherwise the loader.  If all names that
 * other forms call are ours, each form does its work itself, and delete checks the size.  `region.gated_limit` says so, at no cost
 * to a delete that hits and one comparison for a new.  Until the constructor sets it, and if it never does, each call compares the
 * names.
 *
 * Written in C so that the library needs no C++ compiler and no C++ runtime.  In the archive this is a member of its own, so that
 * only programs that use an operator link it, and those have the runtime. */
#include "entry/entry.h"

#if HAK_OVERRIDE

#pragma GCC visibility push(hidden) /* so that a separate member reaches our variables as the single translation unit does */
#include "os/os.h"
#include "front/block.h"
#include "front/boot.h"
#pragma GCC visibility pop

#include <dlfcn.h>
#include <unwind.h>

/* --- the C++ runtime --------------------------------------------------------------------- */

#if HAK_ARCHIVE
#define RUNTIME
#define RUNTIME_LINKED true
#else
#define RUNTIME __attribute__((weak))
#define RUNTIME_LINKED (__cxa_throw != NULL)
#endif

typedef void (*new_handler_t)(void);
extern RUNTIME new_handler_t _ZSt15get_new_handlerv(void); /* std::get_new_handler() */
extern RUNTIME void *__cxa_allocate_exception(size_t size);
extern RUNTIME _Noreturn void __cxa_throw(void *exception, void *type, void (*destroy)(void *));
extern RUNTIME void *__cxa_begin_catch(void *exception);
extern RUNTIME void __cxa_end_catch(void);
extern RUNTIME char _ZTISt9bad_alloc;    /* its type information */
extern RUNTIME void *_ZTVSt9bad_alloc[]; /* its virtual table */
extern RUNTIME void _ZNSt9bad_allocD1Ev(void *);
#pragma weak _Unwind_SetGR
#pragma weak _Unwind_SetIP

static _Noreturn void throw_bad_alloc(void) {
  void **exception = __cxa_allocate_exception(sizeof(void *));
  exception[0] = &_ZTVSt9bad_alloc[2]; /* past the offset to top and the type information */
  __cxa_throw(exception, &_ZTISt9bad_alloc, _ZNSt9bad_allocD1Ev);
}

typedef void *(*new_t)(size_t size, size_t align);

/* Returns make(size, align), or NULL if that throws.  C has no catch, so this frame has a personality of its own, which stops every
 * exception.  A thread that ends unwinds without the search for handlers, and passes through. */
#pragma GCC visibility push(hidden)
void *cxx_catch(size_t size, size_t align, new_t make);
extern char cxx_landing[];
_Unwind_Reason_Code cxx_personality(int version, _Unwind_Action actions, uint64_t kind, struct _Unwind_Exception *thrown,
                                    struct _Unwind_Context *context) __attribute__((used));
void cxx_drop(void *thrown) __attribute__((used));
#pragma GCC visibility pop

_Unwind_Reason_Code cxx_personality(int version, _Unwind_Action actions, uint64_t kind, struct _Unwind_Exception *thrown,
                                    struct _Unwind_Context *context) {
  (void)version, (void)kind;
  if ((actions & _UA_SEARCH_PHASE) != 0) return _URC_HANDLER_FOUND;
  if ((actions & _UA_HANDLER_FRAME) == 0) return _URC_CONTINUE_UNWIND;
  _Unwind_SetGR(context, 0, (uintptr_t)thrown); /* the register of the first argument or of the result */
  _Unwind_SetIP(context, (uintptr_t)cxx_landing);
  return _URC_INSTALL_CONTEXT;
}

void cxx_drop(void *thrown) {
  (void)__cxa_begin_catch(thrown);
  __cxa_end_catch();
}

#define CATCH_BEGIN                                   \
  ".pushsection .text.cxx_catch, \"ax\", %progbits\n" \
  ".globl cxx_catch, cxx_landing\n"                   \
  ".hidden cxx_catch, cxx_landing\n"                  \
  ".type cxx_catch, %function\n"                      \
  ".balign 16\n"                                      \
  "cxx_catch:\n"                                      \
  ".cfi_startproc\n"                                  \
  ".cfi_personality 0x1b, cxx_personality\n"
#define CATCH_END ".cfi_endproc\n.size cxx_catch, . - cxx_catch\n.popsection\n"
#if defined(__x86_64__)
__asm__(CATCH_BEGIN
        "  subq $8, %rsp\n"
        ".cfi_adjust_cfa_offset 8\n"
        "  call *%rdx\n"
        "1: addq $8, %rsp\n"
        ".cfi_remember_state\n"
        ".cfi_adjust_cfa_offset -8\n"
        "  ret\n"
        "cxx_landing:\n"
        ".cfi_restore_state\n"
        "  endbr64\n"
        "  movq %rax, %rdi\n"
        "  call cxx_drop\n"
        "  xorl %eax, %eax\n"
        "  jmp 1b\n" CATCH_END);
#elif defined(__aarch64__)
__asm__(CATCH_BEGIN
        "  stp x29, x30, [sp, #-16]!\n"
        ".cfi_def_cfa_offset 16\n"
        ".cfi_offset x29, -16\n"
        ".cfi_offset x30, -8\n"
        "  mov x29, sp\n"
        "  blr x2\n"
        "1: ldp x29, x30, [sp], #16\n"
        ".cfi_remember_state\n"
        ".cfi_restore x29\n"
        ".cfi_restore x30\n"
        ".cfi_def_cfa_offset 0\n"
        "  ret\n"
        "cxx_landing:\n"
        ".cfi_restore_state\n"
        "  hint #36\n" /* bti j */
        "  bl cxx_drop\n"
        "  mov x0, #0\n"
        "  b 1b\n" CATCH_END);
#endif

static void *quietly(size_t size, size_t align, new_t make) { return RUNTIME_LINKED ? cxx_catch(size, align, make) : make(size, align); }

/* A C program may have opened C++ libraries, whose runtime our weak references are not bound to.  The runtime's own operators then
 * do the work; they allocate with our malloc.  NULL if no runtime is loaded. */
static void *runtime_form(const char *name) {
  static const char *const runtimes[] = {"libstdc++.so.6", "libc++abi.so.1", "libc++.so.1"};
  for (size_t i = 0; i < sizeof runtimes / sizeof runtimes[0]; i++) {
    void *library = dlopen(runtimes[i], RTLD_LAZY | RTLD_NOLOAD);
    void *form = library != NULL ? dlsym(library, name) : NULL;
    if (form != NULL) return form;
  }
  return NULL;
}

/* --- out of memory ----------------------------------------------------------------------- */

/* Calls the new_handler to make room and retries until that succeeds, as the standard demands.  NULL if there is no handler. */
static void *new_retry(size_t size, size_t align) {
  for (;;) {
    new_handler_t handler = _ZSt15get_new_handlerv();
    if (handler == NULL) return NULL;
    handler();
    void *block = block_alloc_aligned(align, size);
    if (block != NULL) return block;
  }
}

static HAK_COLD void *new_failed(size_t size, size_t align) {
  if (!RUNTIME_LINKED) {
    new_t make = (new_t)runtime_form("_ZnwmSt11align_val_t");
    if (make == NULL) os_abort();
    return make(size, align);
  }
  void *block = bits_is_pow2(align) ? new_retry(size, align) : NULL;
  if (block == NULL) throw_bad_alloc();
  return block;
}

static HAK_COLD void *new_failed_quietly(size_t size, size_t align) {
  if (!RUNTIME_LINKED) {
    typedef void *(*new_quiet_t)(size_t size, size_t align, const void *tag);
    new_quiet_t make = (new_quiet_t)runtime_form("_ZnwmSt11align_val_tRKSt9nothrow_t");
    return make != NULL ? make(size, align, "") : NULL;
  }
  return bits_is_pow2(align) ? cxx_catch(size, align, new_retry) : NULL;
}

/* --- what the forms do ------------------------------------------------------------------- */

HAK_INLINE void *new_block(size_t size) {
  void *block = block_alloc(size);
  return HAK_LIKELY(block != NULL) ? block : new_failed(size, HAK_GRANULE);
}
HAK_INLINE void *new_block_quietly(size_t size) {
  void *block = block_alloc(size);
  return HAK_LIKELY(block != NULL) ? block : new_failed_quietly(size, HAK_GRANULE);
}
HAK_INLINE void *new_aligned_block(size_t size, size_t align) {
  void *block = bits_is_pow2(align) ? block_alloc_aligned(align, size) : NULL;
  return HAK_LIKELY(block != NULL) ? block : new_failed(size, align);
}
HAK_INLINE void *new_aligned_block_quietly(size_t size, size_t align) {
  void *block = bits_is_pow2(align) ? block_alloc_aligned(align, size) : NULL;
  return HAK_LIKELY(block != NULL) ? block : new_failed_quietly(size, align);
}

HAK_INLINE bool gate_is_open(void) { return HAK_LIKELY(owner_load(&region.gated_limit) != 0); }

/* False while the gate is shut, or if this is not a block. */
HAK_INLINE bool delete_block(void *block, size_t size, const char *function) {
  return HAK_LIKELY(block_free_below(owner_load(&region.gated_limit), true, block, size, function));
}

/* --- the forms --------------------------------------------------------------------------- */

/* Declared here, where they are defined, since no C header declares them. */
#define OPERATOR(type, own, name, ...)                                  \
  static type own(__VA_ARGS__);                                         \
  HAK_EXPORT type name(__VA_ARGS__) __attribute__((weak, alias(#own))); \
  static type own(__VA_ARGS__)

OPERATOR(void *, new_plain, _Znwm, size_t size) { return new_block(size); }
OPERATOR(void *, new_aligned, _ZnwmSt11align_val_t, size_t size, size_t align) { return new_aligned_block(size, align); }

#define NEW_OURS (gate_is_open() || _Znwm == new_plain)
#define NEW_ALIGNED_OURS (gate_is_open() || _ZnwmSt11align_val_t == new_aligned)

OPERATOR(void *, new_array, _Znam, size_t size) { return NEW_OURS ? new_block(size) : _Znwm(size); }
OPERATOR(void *, new_array_aligned, _ZnamSt11align_val_t, size_t size, size_t align) {
  return NEW_ALIGNED_OURS ? new_aligned_block(size, align) : _ZnwmSt11align_val_t(size, align);
}

#define NEW_ARRAY_OURS (gate_is_open() || (_Znam == new_array && _Znwm == new_plain))
#define NEW_ARRAY_ALIGNED_OURS (gate_is_open() || (_ZnamSt11align_val_t == new_array_aligned && _ZnwmSt11align_val_t == new_aligned))

static void *call_new(size_t size, size_t align) { return (void)align, _Znwm(size); }
static void *call_new_array(size_t size, size_t align) { return (void)align, _Znam(size); }

OPERATOR(void *, new_quiet, _ZnwmRKSt9nothrow_t, size_t size, const void *tag) {
  (void)tag;
  return NEW_OURS ? new_block_quietly(size) : quietly(size, 1, call_new);
}
OPERATOR(void *, new_array_quiet, _ZnamRKSt9nothrow_t, size_t size, const void *tag) {
  (void)tag;
  return NEW_ARRAY_OURS ? new_block_quietly(size) : quietly(size, 1, call_new_array);
}
OPERATOR(void *, new_aligned_quiet, _ZnwmSt11align_val_tRKSt9nothrow_t, size_t size, size_t align, const void *tag) {
  (void)tag;
  return NEW_ALIGNED_OURS ? new_aligned_block_quietly(size, align) : quietly(size, align, _ZnwmSt11align_val_t);
}
OPERATOR(void *, new_array_aligned_quiet, _ZnamSt11align_val_tRKSt9nothrow_t, size_t size, size_t align, const void *tag) {
  (void)tag;
  return NEW_ARRAY_ALIGNED_OURS ? new_aligned_block_quietly(size, align) : quietly(size, align, _ZnamSt11align_val_t);
}

OPERATOR(void, delete_plain, _ZdlPv, void *block) { block_free(block, 0, "operator delete"); }
OPERATOR(void, delete_aligned, _ZdlPvSt11align_val_t, void *block, size_t align) {
  (void)align;
  block_free(block, 0, "operator delete");
}

#define DELETE_OURS (_ZdlPv == delete_plain)
#define DELETE_ALIGNED_OURS (_ZdlPvSt11align_val_t == delete_aligned)

static HAK_NOINLINE void delete_gate(void *block, size_t size, const char *function) {
  if (DELETE_OURS) block_free(block, size, function);
  else _ZdlPv(block);
}
static HAK_NOINLINE void delete_gate_aligned(void *block, size_t size, size_t align, const char *function) {
  if (DELETE_ALIGNED_OURS) block_free(block, size, function);
  else _ZdlPvSt11align_val_t(block, align);
}

OPERATOR(void, delete_array, _ZdaPv, void *block) {
  if (!delete_block(block, 0, "operator delete[]")) delete_gate(block, 0, "operator delete[]");
}
OPERATOR(void, delete_sized, _ZdlPvm, void *block, size_t size) {
  if (!delete_block(block, size, "operator delete")) delete_gate(block, size, "operator delete");
}
OPERATOR(void, delete_quiet, _ZdlPvRKSt9nothrow_t, void *block, const void *tag) {
  (void)tag;
  if (!delete_block(block, 0, "operator delete")) delete_gate(block, 0, "operator delete");
}
OPERATOR(void, delete_array_aligned, _ZdaPvSt11align_val_t, void *block, size_t align) {
  if (!delete_block(block, 0, "operator delete[]")) delete_gate_aligned(block, 0, align, "operator delete[]");
}
OPERATOR(void, delete_sized_aligned, _ZdlPvmSt11align_val_t, void *block, size_t size, size_t align) {
  if (!delete_block(block, size, "operator delete")) delete_gate_aligned(block, size, align, "operator delete");
}
OPERATOR(void, delete_aligned_quiet, _ZdlPvSt11align_val_tRKSt9nothrow_t, void *block, size_t align, const void *tag) {
  (void)tag;
  if (!delete_block(block, 0, "operator delete")) delete_gate_aligned(block, 0, align, "operator delete");
}

#define DELETE_ARRAY_OURS (_ZdaPv == delete_array && DELETE_OURS)
#define DELETE_ARRAY_ALIGNED_OURS (_ZdaPvSt11align_val_t == delete_array_aligned && DELETE_ALIGNED_OURS)

static HAK_NOINLINE void delete_array_gate(void *block, size_t size, const char *function) {
  if (DELETE_ARRAY_OURS) block_free(block, size, function);
  else _ZdaPv(block);
}
static HAK_NOINLINE void delete_array_gate_aligned(void *block, size_t size, size_t align, const char *function) {
  if (DELETE_ARRAY_ALIGNED_OURS) block_free(block, size, function);
  else _ZdaPvSt11align_val_t(block, align);
}

OPERATOR(void, delete_array_sized, _ZdaPvm, void *block, size_t size) {
  if (!delete_block(block, size, "operator delete[]")) delete_array_gate(block, size, "operator delete[]");
}
OPERATOR(void, delete_array_quiet, _ZdaPvRKSt9nothrow_t, void *block, const void *tag) {
  (void)tag;
  if (!delete_block(block, 0, "operator delete[]")) delete_array_gate(block, 0, "operator delete[]");
}
OPERATOR(void, delete_array_sized_aligned, _ZdaPvmSt11align_val_t, void *block, size_t size, size_t align) {
  if (!delete_block(block, size, "operator delete[]")) delete_array_gate_aligned(block, size, align, "operator delete[]");
}
OPERATOR(void, delete_array_aligned_quiet, _ZdaPvSt11align_val_tRKSt9nothrow_t, void *block, size_t align, const void *tag) {
  (void)tag;
  if (!delete_block(block, 0, "operator delete[]")) delete_array_gate_aligned(block, 0, align, "operator delete[]");
}

static __attribute__((constructor)) void operators_start(void) {
  bool ours = NEW_ARRAY_OURS && NEW_ARRAY_ALIGNED_OURS && DELETE_ARRAY_OURS && DELETE_ARRAY_ALIGNED_OURS;
  if (ours) region_open_gate();
}

#endif
