#include "kit/meta.h"

#include "base/config.h"
#include "os/os.h"

/* One mapping per request: the users are heaps and tables of several pages each. */
static _Atomic size_t meta_total;

void *meta_alloc(size_t bytes) {
  bytes = bits_round_up(bytes, os_page_size());
  void *start = os_map(bytes);
  if (start != NULL) add_relaxed(&meta_total, bytes);
  return start;
}

void meta_return(void *start, size_t bytes) {
  bytes = bits_round_up(bytes, os_page_size());
  if (os_unmap(start, bytes)) add_relaxed(&meta_total, -bytes);
}

void *meta_once(void *_Atomic *place, size_t bytes) {
  void *found = load_acquire(place);
  if (found != NULL) return found;
  void *made = meta_alloc(bytes);
  if (made == NULL || atomic_compare_exchange_strong(place, &found, made)) return made;
  meta_return(made, bytes);
  return found;
}

size_t meta_bytes(void) { return load_relaxed(&meta_total); }
