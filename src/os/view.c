#include "os/view.h"

#include <string.h>
#include <sys/mman.h>
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

#include "base/atomics.h"
#include "base/config.h"
#include "os/file.h"
#include "os/os.h"
#include "os/probe.h"
#include "os/syscall.h"

/* What has been found out of a module; another one may have come in its place. */
typedef struct viewed {
  uintptr_t module, end, header;
  uint64_t id; /* a hash of its build id */
  view_t view;
  _Atomic bool read; /* since its pages were dropped */
} viewed_t;
_Static_assert(sizeof(viewed_t) == HAK_CACHE_LINE, "a page has 64");

enum { VIEWS_MOST = 2 * 4096 / sizeof(viewed_t) };
static HAK_APART viewed_t views[VIEWS_MOST]; /* but for `read`, each is written before it is counted, and never again */
static _Atomic uint32_t view_count;
static _Atomic bool view_wanted; /* addresses are not limited */
static _Atomic bool view_making; /* a thread is at it; in a fork's child it may stay so, and no more views are made */

static uint64_t id_of(const module_t *m) {
  const uint8_t *id = NULL;
  uint64_t hash = 0;
  for (size_t bytes = module_build_id(m, &id); bytes > 0; bytes--) hash = (hash ^ *id++) * UINT64_C(0x100000001b3);
  return hash;
}

static viewed_t *viewed_find(const module_t *m, uint64_t id) {
  for (uint32_t i = load_acquire(&view_count); i-- > 0;) {
    viewed_t *v = &views[i];
    if (v->module == m->start && v->end == m->end && v->header == m->header && v->id == id) return v;
  }
  return NULL;
}

static const uint8_t *view_map(int file, size_t bytes, uint64_t offset) {
  long start = syscall_6(SYS_mmap, 0, (long)bytes, PROT_READ, MAP_PRIVATE, file, (long)offset);
  return syscall_failed(start) ? NULL : (const uint8_t *)start;
}

static void view_unmap(const uint8_t *start, size_t bytes) { (void)syscall_3(SYS_munmap, (long)start, (long)bytes, 0); }

/* Whether the file has that page: where it has none, reading would be the process's end. False before Linux 5.14. */
static bool is_there(const uint8_t *page) {
  return syscall_3(SYS_madvise, (long)bits_round_down((uintptr_t)page, os_page_size()), (long)os_page_size(), MADV_POPULATE_READ) == 0;
}

/* Whether the file begins as the module does, and has the same build id. */
static bool is_of(int file, const module_t *m, uint64_t id) {
  const uint8_t *page = view_map(file, PROBE_PAGE, 0);
  module_t copy;
  size_t headers = (size_t)((const char *)(m->parts + m->count) - (const char *)m->start);
  bool same = page != NULL && is_there(page) && memcmp(page, (const void *)m->start, headers) == 0;
  same = same && module_of_copy(page, &copy) && id_of(&copy) == id;
  if (page != NULL) view_unmap(page, PROBE_PAGE);
  return same;
}

/* From the page of .eh_frame_hdr to the end of what is read-only there, where linkers put .eh_frame too. */
static view_t view_in(int file, const module_t *m) {
  view_t view = {0, 0, NULL};
  for (uint32_t i = 0; i < m->count; i++) {
    const ElfW(Phdr) *part = &m->parts[i];
    uintptr_t from = m->bias + part->p_vaddr, start = bits_round_down(m->header, os_page_size());
    if (part->p_type != PT_LOAD || (part->p_flags & PF_W) != 0 || m->header - from >= part->p_filesz || start < from) continue;
    size_t bytes = from + part->p_filesz - start;
    uint64_t offset = part->p_offset + start - from;
    if (offset % os_page_size() == 0) view = (view_t){start, start + bytes, view_map(file, bytes, offset)};
  }
  return view;
}

/* Memory that is locked cannot be dropped, and all of it is there at once. */
static bool may_be_dropped(const view_t *view) {
  return syscall_3(SYS_madvise, (long)view->at, (long)(view->end - view->start), MADV_DONTNEED) == 0;
}

static view_t view_make(const module_t *m, uint64_t id) {
  view_t none = {0, 0, NULL}, view = none;
  const char *path = module_path(m);
  int file = path != NULL ? file_open(path) : -1;
  if (file < 0) return none;
  if (is_of(file, m, id)) view = view_in(file, m);
  file_close(file);
  if (view.at == NULL) return none;
  if (is_there(view.at + (view.end - view.start) - 1) && may_be_dropped(&view)) return view;
  view_unmap(view.at, view.end - view.start);
  return none;
}

/* NULL where another thread is at it, or there are so many already. */
HAK_COLD static viewed_t *viewed_add(const module_t *m, uint64_t id) {
  if (load_relaxed(&view_count) == VIEWS_MOST) return NULL;
  if (atomic_exchange_explicit(&view_making, true, memory_order_acquire)) return NULL;
  uint32_t count = load_relaxed(&view_count);
  viewed_t *v = count < VIEWS_MOST ? &views[count] : NULL;
  if (v != NULL) {
    v->module = m->start, v->end = m->end, v->header = m->header, v->id = id;
    v->view = view_make(m, id);
    store_release(&view_count, count + 1);
  }
  store_release(&view_making, false);
  return v;
}

/* No call is made under a filter: also not to drop what would be read. */
view_t view_of(const module_t *m) {
  if (!load_relaxed(&view_wanted) || load_relaxed(&os_filters) != 0) return (view_t){0, 0, NULL};
  uint64_t id = id_of(m);
  viewed_t *v = viewed_find(m, id);
  if (v == NULL) v = viewed_add(m, id);
  if (v == NULL) return (view_t){0, 0, NULL};
  if (v->view.at != NULL) store_relaxed(&v->read, true);
  return v->view;
}

void view_prepare(void) { store_relaxed(&view_wanted, os_address_limit() == UINT64_MAX); }

HAK_COLD void view_drop_all(void) {
  for (uint32_t i = load_acquire(&view_count); i-- > 0 && load_relaxed(&os_filters) == 0;) {
    if (!load_relaxed(&views[i].read)) continue;
    store_relaxed(&views[i].read, false);
    (void)may_be_dropped(&views[i].view);
  }
}

const uint8_t *view_content(const view_t *view, const module_t *m, uintptr_t address, const uint8_t **end) {
  if (address - view->start < view->end - view->start) {
    *end = view->at + (view->end - view->start);
    return view->at + (address - view->start);
  }
  *end = (const uint8_t *)module_readable_end(m, address);
  return *end != NULL ? (const uint8_t *)address : NULL;
}
