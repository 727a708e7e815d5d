/* symbol.c - see symbol.h. A statically linked program has no names for the dynamic linker, but its file has a symbol table
 * with its names. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "symbol.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

extern const ElfW(Ehdr) __ehdr_start __attribute__((visibility("hidden"))); /* defined by the linker: the program's first byte */

static const char *file; /* the program's, mapped */

static bool file_map(void) {
  struct stat status;
  int fd = file == NULL ? open("/proc/self/exe", O_RDONLY | O_CLOEXEC) : -1;
  if (fd < 0) return file != NULL;
  if (fstat(fd, &status) == 0) {
    const char *map = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (map != MAP_FAILED) file = map;
  }
  close(fd);
  return file != NULL;
}

/* The first part of this type that the kernel has loaded, or NULL.  The sanitizer would take the linker's symbol for the whole object. */
__attribute__((no_sanitize("undefined"))) static const ElfW(Phdr) *part_find(ElfW(Word) type) {
  const ElfW(Phdr) *part = (const void *)((const char *)&__ehdr_start + __ehdr_start.e_phoff);
  for (unsigned i = 0; i < __ehdr_start.e_phnum; i++)
    if (part[i].p_type == type) return &part[i];
  return NULL;
}

/* The difference between loaded addresses and those in the file; the file's first byte is the first that is loaded. */
static uintptr_t bias(void) { return (uintptr_t)&__ehdr_start - part_find(PT_LOAD)->p_vaddr; }

static void *named(const ElfW(Sym) *symbol, const ElfW(Sym) *end, const char *names, const char *name) {
  for (; symbol < end; symbol++)
    if (symbol->st_shndx != SHN_UNDEF && strcmp(names + symbol->st_name, name) == 0) return (void *)(bias() + symbol->st_value);
  return NULL;
}

/* The linker makes a global name local if another object of the program wants it hidden, as glibc's start code does with malloc. */
static void *own_symbol(const char *name) {
  if (!file_map()) return NULL;
  const ElfW(Ehdr) *header = (const void *)file;
  const ElfW(Shdr) *sections = (const void *)(file + header->e_shoff), *table = sections;
  for (; table < sections + header->e_shnum && table->sh_type != SHT_SYMTAB; table++) continue;
  if (table == sections + header->e_shnum) return NULL;
  const char *names = file + sections[table->sh_link].sh_offset;
  const ElfW(Sym) *local = (const void *)(file + table->sh_offset), *global = local + table->sh_info;
  void *found = named(global, local + table->sh_size / sizeof *local, names, name);
  return found != NULL ? found : named(local, global, names, name);
}

/* Without a dynamic linker, dlsym finds nothing, and musl's allocates an error message. */
void *symbol_find(const char *name) {
  void *found = part_find(PT_INTERP) != NULL ? dlsym(RTLD_DEFAULT, name) : NULL;
  return found != NULL ? found : own_symbol(name);
}

bool symbol_same_object(void *one, void *other) {
  Dl_info first, second;
  if (one == NULL || other == NULL) return false;
  return part_find(PT_INTERP) == NULL || (dladdr(one, &first) && dladdr(other, &second) && first.dli_fbase == second.dli_fbase);
}
