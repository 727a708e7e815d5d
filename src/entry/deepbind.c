/* deepbind.c - makes lookups of malloc's family in an opened library, or in libc itself, find this malloc.
 *
 * dlsym with a handle searches the library and its dependencies, and for a library that is opened with RTLD_DEEPBIND the loader does so
 * first.  These include libc, so libc's malloc is found even if another library defines one, and blocks would pass between the two:
 * Python's ctypes.CDLL("libc.so.6").free gets what strdup has allocated here.  So before a library is opened, libc's symbol table is
 * changed, in this process's copy: the names of malloc's family lead to ours.  Every other name is bound as the flag says, since programs
 * rely on it to keep two versions of a library apart.  If the table cannot be written, the flag is cleared.
 *
 * libc's dlopen reads its return address, since the caller's RUNPATH says where to search.  So the dlopen here does not call libc's:
 * a few instructions jump to it and leave the return address in place. */
#include "entry/entry.h"

#if HAK_OVERRIDE && !HAK_ARCHIVE && defined(__GLIBC__)

#include <dlfcn.h>
#include <elf.h>
#include <gnu/libc-version.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/bits.h"
#include "os/os.h"
#include "os/syscall.h"
#include "kit/closed.h"
#include "kit/fault.h"
#include "kit/options.h"
#include "space/region.h"

/* --- libc's table of symbols ------------------------------------------------------------- */

/* What the names that take a block lead to.  Code that looked up malloc in libc before its table was changed holds blocks of libc's malloc,
 * and may look up these names only now: such blocks are passed on to libc.  The functions that the program itself is bound to do not pass
 * them on. */
static struct {
  void (*free)(void *);
  void *(*realloc)(void *, size_t);
  size_t (*usable_size)(void *);
} libc;

static bool is_libcs(const void *block) { return block != NULL && region_unit(block) >= load_relaxed(&region.units); }

static void free_either(void *block) {
  if (HAK_UNLIKELY(is_libcs(block))) libc.free(block);
  else hak_free(block);
}
static void *realloc_either(void *block, size_t size) {
  return HAK_UNLIKELY(is_libcs(block)) ? libc.realloc(block, size) : realloc(block, size);
}
static size_t usable_size_either(void *block) {
  return HAK_UNLIKELY(is_libcs(block)) ? libc.usable_size(block) : hak_malloc_usable_size(block);
}

static const struct {
  const char *name;
  void (*ours)(void);
} redirected[] = {
#define NAME(name, ours) {name, (void (*)(void))ours}
    NAME("malloc", hak_malloc),
    NAME("free", free_either),
    NAME("calloc", hak_calloc),
    NAME("realloc", realloc_either),
    NAME("reallocarray", hak_reallocarray),
    NAME("memalign", hak_memalign),
    NAME("aligned_alloc", hak_aligned_alloc),
    NAME("posix_memalign", hak_posix_memalign),
    NAME("valloc", hak_valloc),
    NAME("pvalloc", hak_pvalloc),
    NAME("malloc_usable_size", usable_size_either),
    NAME("cfree", free_either),
    NAME("free_sized", hak_free_sized),
    NAME("free_aligned_sized", hak_free_aligned_sized),
    NAME("malloc_trim", hak_malloc_trim),
    NAME("malloc_stats", hak_malloc_stats),
    NAME("malloc_info", hak_malloc_info),
    NAME("mallopt", hak_mallopt),
    NAME("mallinfo", report_mallinfo),
    NAME("mallinfo2", hak_mallinfo2),
    NAME("__libc_malloc", hak_malloc),
    NAME("__libc_free", free_either),
    NAME("__libc_calloc", hak_calloc),
    NAME("__libc_realloc", realloc_either),
    NAME("__libc_memalign", hak_memalign),
    NAME("__libc_valloc", hak_valloc),
    NAME("__libc_pvalloc", hak_pvalloc),
    NAME("__libc_reallocarray", hak_reallocarray),
    NAME("__posix_memalign", hak_posix_memalign),
#undef NAME
};
#define REDIRECTED (sizeof redirected / sizeof redirected[0])

/* What the dynamic section of a loaded object points to. */
typedef struct symbols {
  uintptr_t base;
  ElfW(Sym) *table;
  const char *names;
  const uint32_t *hash; /* DT_GNU_HASH */
} symbols_t;

static bool symbols_of(const struct link_map *object, symbols_t *symbols) {
  *symbols = (symbols_t){.base = object->l_addr};
  for (const ElfW(Dyn) *entry = object->l_ld; entry->d_tag != DT_NULL; entry++) {
    uintptr_t address = entry->d_un.d_ptr;
    if (address < symbols->base) address += symbols->base; /* some loaders do not relocate the section */
    if (entry->d_tag == DT_SYMTAB) symbols->table = (ElfW(Sym) *)address;
    if (entry->d_tag == DT_STRTAB) symbols->names = (const char *)address;
    if (entry->d_tag == DT_GNU_HASH) symbols->hash = (const uint32_t *)address;
  }
  return symbols->table != NULL && symbols->names != NULL && symbols->hash != NULL;
}

/* Calls `act` for each definition of the name: each version may have one. */
static void symbols_each(const symbols_t *symbols, size_t which, void (*act)(const symbols_t *, ElfW(Sym) *, size_t which, void *),
                         void *context) {
  const uint32_t *hash = symbols->hash, buckets = hash[0], first = hash[1], bloom_words = hash[2];
  const uint32_t *bucket = hash + 4 + bloom_words * (sizeof(ElfW(Addr)) / sizeof *hash), *chain = bucket + buckets;
  uint32_t wanted = 5381;
  for (const char *c = redirected[which].name; *c != '\0'; c++) wanted = wanted * 33 + (unsigned char)*c;
  uint32_t i = bucket[wanted % buckets];
  if (i < first) return;
  for (bool last = false; !last; i++) {
    ElfW(Sym) *symbol = &symbols->table[i];
    if (((chain[i - first] ^ wanted) >> 1) == 0 && symbol->st_shndx != SHN_UNDEF &&
        strcmp(symbols->names + symbol->st_name, redirected[which].name) == 0) {
      act(symbols, symbol, which, context);
    }
    last = (chain[i - first] & 1) != 0;
  }
}

typedef struct part {
  uintptr_t start, end;
} part_t;

static void range_extend(const symbols_t *symbols, ElfW(Sym) *symbol, size_t which, void *context) {
  part_t *range = context;
  uintptr_t start = (uintptr_t)symbol;
  (void)symbols, (void)which;
  if (range->end == 0 || start < range->start) range->start = start;
  if (start + sizeof *symbol > range->end) range->end = start + sizeof *symbol;
}

/* Writes a single word, so that a concurrent lookup finds either the old or the new address, and `libc` if the new one. */
static void symbol_lead(const symbols_t *symbols, ElfW(Sym) *symbol, size_t which, void *context) {
  (void)context;
  __atomic_store_n(&symbol->st_value, (uintptr_t)redirected[which].ours - symbols->base, __ATOMIC_RELEASE);
}

/* What libc's own names lead to, before they lead elsewhere. */
static void libc_note(const symbols_t *symbols, ElfW(Sym) *symbol, size_t which, void *context) {
  (void)context;
  void (*function)(void) = (void (*)(void))(symbols->base + symbol->st_value);
  if (strcmp(redirected[which].name, "__libc_free") == 0) libc.free = (void (*)(void *))function;
  if (strcmp(redirected[which].name, "__libc_realloc") == 0) libc.realloc = (void *(*)(void *, size_t))function;
  if (strcmp(redirected[which].name, "malloc_usable_size") == 0) libc.usable_size = (size_t (*)(void *))function;
}

static bool protect(const part_t *pages, int protection) {
  return syscall_3(SYS_mprotect, (long)pages->start, (long)(pages->end - pages->start), protection) == 0;
}

static bool libc_find(symbols_t *symbols) {
  Dl_info info;
  struct link_map *object;
  void *inside = dlsym(RTLD_NEXT, "gnu_get_libc_version");
  return inside != NULL && dladdr1(inside, &info, (void **)&object, RTLD_DL_LINKMAP) != 0 && symbols_of(object, symbols);
}

static bool redirect(const symbols_t *symbols) {
  part_t pages = {0, 0};
  for (size_t i = 0; i < REDIRECTED; i++) symbols_each(symbols, i, libc_note, NULL);
  if (libc.free == NULL || libc.realloc == NULL || libc.usable_size == NULL) return false;
  for (size_t i = 0; i < REDIRECTED; i++) symbols_each(symbols, i, range_extend, &pages);
  pages.start = bits_round_down(pages.start, os_page_size());
  pages.end = bits_round_up(pages.end, os_page_size());
  if (pages.end == 0 || !protect(&pages, PROT_READ | PROT_WRITE)) return false;
  for (size_t i = 0; i < REDIRECTED; i++) symbols_each(symbols, i, symbol_lead, NULL);
  (void)protect(&pages, PROT_READ);
  return true;
}

static _Atomic bool redirect_tried;

/* Runs once.  It asks the loader without our lock: a constructor's dlclose waits for our lock while its thread holds the loader's. */
static HAK_COLD bool redirected_all(void) {
  static bool done;
  symbols_t symbols;
  bool found = !load_relaxed(&redirect_tried) && libc_find(&symbols);
  lock_acquire(&loader_lock);
  if (!load_relaxed(&redirect_tried)) done = found && redirect(&symbols);
  store_relaxed(&redirect_tried, true);
  bool result = done;
  lock_release(&loader_lock);
  return result;
}

/* --- dlopen and dlmopen ------------------------------------------------------------------ */

typedef struct jump {
  void *target;
  long mode;
} jump_t;

static void *none(void) { return NULL; }

static jump_t jump_to(const char *name, int mode) {
  void *target = dlsym(RTLD_NEXT, name);
  return (jump_t){target != NULL ? target : (void *)none, mode};
}

static void suspect(const char *text) { store_relaxed(&fault_foreign, text); }

/* Whether malloc is ours.  Its address does not tell: in some programs that is a place of their own, which jumps to malloc. */
static bool is_used(void) {
  void *block = malloc(1);
  HAK_HIDE_VAR(block);
  bool used = block != NULL && !is_libcs(block);
  free(block);
  return used;
}

/* What a program's own filter allows is not known.  One who opens what is loaded already makes no other call of mprotect. */
static bool may_redirect(void) { return load_relaxed(&os_filters) == 0; }

static int mode_for(const char *file, int mode) {
  bool is_deep = (mode & RTLD_DEEPBIND) != 0;
  if (option_get(OPTION_deepbind) != 0) {
    if (is_deep) suspect("not from this allocator, but a library was opened with RTLD_DEEPBIND");
    return mode;
  }
  bool tried = load_relaxed(&redirect_tried);
  if (!is_deep && (tried || file == NULL || !may_redirect())) return mode;
  /* A program with a malloc of its own may search libc for the one below it. */
  if (!tried && !is_used()) return mode;
  return redirected_all() ? mode : mode & ~RTLD_DEEPBIND;
}

#pragma GCC visibility push(hidden)
jump_t deepbind_dlopen(const char *file, int mode) __attribute__((used));
jump_t deepbind_dlmopen(long space, const char *file, int mode) __attribute__((used));
#pragma GCC visibility pop

jump_t deepbind_dlopen(const char *file, int mode) { return jump_to("dlopen", mode_for(file, mode)); }

/* Another namespace has a libc of its own, with its malloc: blocks from there belong there. */
HAK_COLD jump_t deepbind_dlmopen(long space, const char *file, int mode) {
  if (space == LM_ID_BASE) return jump_to("dlmopen", mode_for(file, mode));
  suspect("not from this allocator, but a library was opened by dlmopen");
  return jump_to("dlmopen", mode);
}

/* clang-format off */
#define FUNCTION(name, code)                                                          \
  __asm__(".pushsection .text." name ", \"ax\", %progbits\n"                          \
          ".globl " name "\n.type " name ", %function\n.balign 16\n" name ":\n"       \
          ".cfi_startproc\n" code ".cfi_endproc\n.size " name ", . - " name "\n.popsection\n")
/* clang-format on */
#if defined(__x86_64__)
FUNCTION("dlopen",
         "  endbr64\n"
         "  pushq %rdi\n.cfi_adjust_cfa_offset 8\n"
         "  call deepbind_dlopen\n"
         "  movl %edx, %esi\n"
         "  popq %rdi\n.cfi_adjust_cfa_offset -8\n"
         "  jmp *%rax\n");
FUNCTION("dlmopen",
         "  endbr64\n"
         "  pushq %rdi\n.cfi_adjust_cfa_offset 8\n"
         "  pushq %rsi\n.cfi_adjust_cfa_offset 8\n"
         "  subq $8, %rsp\n.cfi_adjust_cfa_offset 8\n"
         "  call deepbind_dlmopen\n"
         "  addq $8, %rsp\n.cfi_adjust_cfa_offset -8\n"
         "  popq %rsi\n.cfi_adjust_cfa_offset -8\n"
         "  popq %rdi\n.cfi_adjust_cfa_offset -8\n"
         "  jmp *%rax\n");
#elif defined(__aarch64__)
FUNCTION("dlopen",
         "  hint #34\n" /* bti c */
         "  stp x0, x30, [sp, #-16]!\n.cfi_def_cfa_offset 16\n.cfi_offset x30, -8\n"
         "  bl deepbind_dlopen\n"
         "  mov x16, x0\n"
         "  ldp x0, x30, [sp], #16\n.cfi_def_cfa_offset 0\n.cfi_restore x30\n"
         "  br x16\n");
FUNCTION("dlmopen",
         "  hint #34\n"
         "  stp x0, x1, [sp, #-32]!\n.cfi_def_cfa_offset 32\n"
         "  str x30, [sp, #16]\n.cfi_offset x30, -16\n"
         "  bl deepbind_dlmopen\n"
         "  mov x16, x0\n"
         "  mov x2, x1\n"
         "  ldr x30, [sp, #16]\n.cfi_restore x30\n"
         "  ldp x0, x1, [sp], #32\n.cfi_def_cfa_offset 0\n"
         "  br x16\n");
#endif

#endif
