/* threads.c - nodes of the calling thread: how much it has allocated and freed, and which arena it allocates from. */
#include "jemalloc.h"

#include <errno.h>

#include "base/counted.h"

int thread_arena_read(const ctl_at_t *at, uint64_t *value) {
  (void)at;
  *value = arena_number(compat_default());
  return 0;
}
int thread_arena_write(const ctl_at_t *at, uint64_t value) {
  (void)at;
  hak_heap_t *heap;
  if (!arena_heap(value, &heap)) return EFAULT;
  (void)hak_heap_set_default(heap);
  return 0;
}

int thread_bytes_read(const ctl_at_t *at, uint64_t *value) {
  if (!compat_is_served()) return ENOENT;
  const uint64_t facts[] = {[BYTES_TAKEN] = counted_bytes.taken,
                            [BYTES_GIVEN] = counted_bytes.given,
                            [BYTES_TAKEN_AT] = (uintptr_t)&counted_bytes.taken,
                            [BYTES_GIVEN_AT] = (uintptr_t)&counted_bytes.given};
  *value = facts[at->of];
  return 0;
}

int thread_peak_read(const ctl_at_t *at, uint64_t *value) {
  (void)at;
  if (!compat_is_served()) return ENOENT;
  counted_note_peak();
  *value = (uint64_t)counted_bytes.peak;
  return 0;
}

int thread_peak_reset(const ctl_at_t *at, uint64_t value) {
  (void)at, (void)value;
  if (!compat_is_served()) return ENOENT;
  counted_bytes.base = counted_net();
  counted_bytes.peak = 0;
  return 0;
}
