#include "kit/closed.h"

#include <string.h>

#include "kit/meta.h"
#include "kit/site.h"

void *_Atomic closed_codes;
_Atomic uint32_t closed_count;

HAK_COLD const code_t *closed_at(uint32_t i) {
  return i < load_acquire(&closed_count) ? (const code_t *)load_relaxed(&closed_codes) + i : NULL;
}

static bool is_same(const code_t *a, const code_t *b) {
  return a->end - a->start == b->end - b->start && a->offset == b->offset && a->id_bytes == b->id_bytes &&
         memcmp(a->id, b->id, a->id_bytes) == 0 && strcmp(a->path, b->path) == 0;
}

/* Where such code is listed; it is entered if it is not. */
static uintptr_t place_of(const code_t *code) {
  code_t *all = meta_once(&closed_codes, CLOSED_MOST * sizeof(code_t));
  uint32_t count = load_relaxed(&closed_count), i = 0;
  while (all != NULL && i < count && !is_same(&all[i], code)) i++;
  uintptr_t place = CLOSED_START + ((uintptr_t)i << CLOSED_SHIFT);
  if (all == NULL || i == CLOSED_MOST) return CLOSED_START + ((uintptr_t)CLOSED_MOST << CLOSED_SHIFT);
  if (i < count) return place;
  all[i] = *code;
  all[i].start = place;
  all[i].end = place + (code->end - code->start);
  store_release(&closed_count, count + 1);
  return place;
}

HAK_COLD void closed_enter(const code_t *code) {
  if (site_knows(code->start, code->end)) site_move(code->start, code->end, place_of(code));
}
