/* unload.c - dlclose: what is known of unloaded code must not be applied to other code that is loaded at the same place later.
 *
 * The lists of modules before and after are compared, since closing a library also unloads those that only it needed.  This covers neither
 * static programs nor what libc closes itself: there cached unwind rules are renewed now and then (os/unwind.c). */
#include "entry/entry.h"

#if HAK_OVERRIDE && !HAK_ARCHIVE && defined(__GLIBC__)

#include <dlfcn.h>
#include <link.h>
#include <string.h>

#include "os/module.h"
#include "os/os.h"
#include "os/syscall.h"
#include "kit/closed.h"
#include "kit/site.h"

#define CODES_MOST 1000

typedef struct loaded {
  uint64_t removed; /* modules, since the start */
  uint32_t count;
  code_t codes[CODES_MOST];
} loaded_t;

static void code_read(code_t *code, const struct dl_phdr_info *info, const ElfW(Phdr) *part) {
  module_t module;
  const uint8_t *id;
  code_place(code, info->dlpi_addr, part);
  size_t bytes = module_find(info->dlpi_addr + part->p_vaddr, &module) ? module_build_id(&module, &id) : 0;
  code->id_bytes = bytes <= CLOSED_ID ? (uint32_t)bytes : 0;
  if (code->id_bytes > 0) memcpy(code->id, id, bytes);
  size_t length = strlen(info->dlpi_name);
  memcpy(code->path, info->dlpi_name, length < CLOSED_PATH ? length : CLOSED_PATH - 1); /* the memory is fresh, so the path ends with a 0 */
}

/* Calls `act` with each segment of code. */
static int parts_each(struct dl_phdr_info *info, void (*act)(loaded_t *, const struct dl_phdr_info *, const ElfW(Phdr) *),
                      loaded_t *loaded) {
  loaded->removed = info->dlpi_subs;
  for (size_t i = 0; i < info->dlpi_phnum; i++) {
    const ElfW(Phdr) *part = &info->dlpi_phdr[i];
    if (part->p_type == PT_LOAD && (part->p_flags & PF_X) != 0) act(loaded, info, part);
  }
  return 0;
}

static void part_add(loaded_t *loaded, const struct dl_phdr_info *info, const ElfW(Phdr) *part) {
  if (loaded->count < CODES_MOST && info->dlpi_name[0] != '\0') code_read(&loaded->codes[loaded->count++], info, part);
}

/* Marks code that is still loaded as not gone. */
static void part_remove(loaded_t *loaded, const struct dl_phdr_info *info, const ElfW(Phdr) *part) {
  code_t there;
  code_place(&there, info->dlpi_addr, part);
  for (uint32_t i = 0; i < loaded->count; i++) {
    code_t *code = &loaded->codes[i];
    if (code->start == there.start && strncmp(code->path, info->dlpi_name, CLOSED_PATH - 1) == 0) code->start = code->end;
  }
}

static int module_add_all(struct dl_phdr_info *info, size_t size, void *loaded) { return (void)size, parts_each(info, part_add, loaded); }
static int module_keep(struct dl_phdr_info *info, size_t size, void *loaded) { return (void)size, parts_each(info, part_remove, loaded); }

/* NULL if there are no sites, or no memory. */
static HAK_COLD loaded_t *loaded_list(void) {
  loaded_t *loaded = site_figures().sites > 0 ? os_map(sizeof *loaded) : NULL;
  if (loaded != NULL) (void)dl_iterate_phdr(module_add_all, loaded);
  return loaded;
}

/* The loader keeps the path as dlopen was given it, possibly relative.  A filter of the program's own may end the process for getcwd. */
static HAK_COLD void path_complete(code_t *code) {
  char path[2 * CLOSED_PATH];
  if (code->path[0] == '/' || load_relaxed(&os_filters) != 0) return;
  if (syscall_3(SYS_getcwd, (long)path, CLOSED_PATH, 0) <= 0) return;
  size_t length = strlen(path);
  path[length++] = '/';
  memcpy(path + length, code->path, strlen(code->path) + 1);
  if (strlen(path) < CLOSED_PATH) memcpy(code->path, path, strlen(path) + 1);
}

static HAK_COLD void loaded_compare(loaded_t *loaded) {
  uint64_t before = loaded->removed;
  (void)dl_iterate_phdr(module_keep, loaded);
  if (loaded->removed == before) return;
  lock_acquire(&loader_lock);
  site_forget();
  for (uint32_t i = 0; i < loaded->count; i++) {
    code_t *code = &loaded->codes[i];
    if (code->start == code->end) continue;
    path_complete(code);
    if (site_knows(code->start, code->end)) site_move(code->start, code->end, closed_enter(code));
  }
  lock_release(&loader_lock);
}

HAK_EXPORT HAK_COLD int dlclose(void *handle) {
  int (*next)(void *) = (int (*)(void *))(uintptr_t)dlsym(RTLD_NEXT, "dlclose");
  if (next == NULL) return 0;
  loaded_t *loaded = loaded_list();
  module_close_begin();
  int result = next(handle);
  module_close_end();
  if (loaded != NULL) {
    loaded_compare(loaded);
    os_unmap(loaded, sizeof *loaded);
  } else {
    lock_acquire(&loader_lock);
    site_forget();
    lock_release(&loader_lock);
  }
  return result;
}

#endif
