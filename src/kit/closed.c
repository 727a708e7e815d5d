#include "kit/closed.h"

#include <string.h>

#include "kit/meta.h"
#include "os/os.h"

void *_Atomic closed_codes;
_Atomic uint32_t closed_count;
lock_t loader_lock;
static bool is_away[CLOSED_MOST];

HAK_COLD const code_t *closed_at(uint32_t i) {
  return i < load_acquire(&closed_count) ? (const code_t *)load_relaxed(&closed_codes) + i : NULL;
}

HAK_COLD void code_place(code_t *code, uintptr_t bias, const ElfW(Phdr) *part) {
  uintptr_t start = bias + part->p_vaddr;
  code->start = bits_round_down(start, os_page_size());
  code->end = start + part->p_memsz;
  code->offset = part->p_offset - (start - code->start);
}

HAK_COLD bool code_with(uintptr_t address, code_t *code) {
  module_t module;
  const uint8_t *id;
  if (!module_find(address, &module)) return false;
  size_t bytes = module_build_id(&module, &id);
  if (bytes == 0 || bytes > CLOSED_ID) return false;
  code->id_bytes = (uint32_t)bytes;
  memcpy(code->id, id, bytes);
  for (uint32_t i = 0; i < module.count; i++) {
    code_place(code, module.bias, &module.parts[i]);
    bool is_code = module.parts[i].p_type == PT_LOAD && (module.parts[i].p_flags & PF_X) != 0;
    if (is_code && address >= code->start && address < code->end) return true;
  }
  return false;
}

static bool is_same_place(const code_t *a, const code_t *b) {
  return a->end - a->start == b->end - b->start && a->offset == b->offset && a->id_bytes == b->id_bytes &&
         memcmp(a->id, b->id, a->id_bytes) == 0;
}
static bool is_same(const code_t *a, const code_t *b) { return is_same_place(a, b) && strcmp(a->path, b->path) == 0; }

static uintptr_t place_at(uint32_t i) { return CLOSED_START + ((uintptr_t)i << CLOSED_SHIFT); }

HAK_COLD uintptr_t closed_enter(const code_t *code) {
  code_t *all = meta_once(&closed_codes, CLOSED_MOST * sizeof(code_t));
  uint32_t count = load_relaxed(&closed_count), i = 0;
  while (all != NULL && i < count && !is_same(&all[i], code)) i++;
  /* Reuse an entry of the same code under another path whose sites have moved back: no site is at its place. */
  for (uint32_t k = 0; all != NULL && i == count && k < count; k++) {
    if (!is_away[k] && code->id_bytes != 0 && is_same_place(&all[k], code)) i = k;
  }
  if (all == NULL || i == CLOSED_MOST) return place_at(CLOSED_MOST);
  is_away[i] = true;
  if (i < count) return place_at(i);
  all[i] = *code;
  all[i].start = place_at(i);
  all[i].end = place_at(i) + (code->end - code->start);
  store_release(&closed_count, count + 1);
  return place_at(i);
}

HAK_COLD uintptr_t closed_leave(const code_t *code) {
  const code_t *all = load_relaxed(&closed_codes);
  for (uint32_t i = load_relaxed(&closed_count); i-- > 0;) {
    if (!is_away[i] || !is_same_place(&all[i], code)) continue;
    is_away[i] = false;
    return place_at(i);
  }
  return 0;
}
