#include "front/block.h"

#include <string.h>

#include "front/secure.h"
#include "os/memcheck.h"
#include "slab/large.h"
#include "slab/sample.h"

void *block_alloc_zeroed(size_t size) {
  if (size >= LARGE_REQUEST_MIN) return alloc_any(size, 1, SPAN_ZEROED);
  void *block = block_alloc(size);
  if (HAK_SECURE || HAK_UNLIKELY(block == NULL)) return block;
  return memset(block, 0, size);
}

HAK_COLD void *block_alloc_own_zeroed(size_t size) {
  if (size >= LARGE_REQUEST_MIN) return alloc_own(size, 1, SPAN_ZEROED);
  void *block = block_alloc_own(size);
  if (HAK_SECURE || block == NULL) return block;
  return memset(block, 0, size);
}

void *block_alloc_aligned(size_t align, size_t size) {
  if (align <= HAK_GRANULE) return block_alloc(size);
  if (memcheck_on() || size > SMALL_REQUEST_MAX) return alloc_any(size, align, SPAN_PLAIN);
  unsigned c = class_of_request_aligned(size, align);
  if (c != CLASS_NONE) {
    void *block = block_alloc(class_usable(c));
    if (HAK_SECURE && block != NULL) secure_resize(block, c, size, "aligned_alloc");
    bool sampled = HAK_SAMPLED && block != NULL && !region_is_live(block);
    if (HAK_UNLIKELY(sampled)) sample_resize(block, size);
    return block;
  }
  void *block = alloc_any(large_request(size), align, SPAN_PLAIN);
  if (block != NULL) large_note_size(block, size);
  return block;
}

size_t block_alloc_batch(size_t size, size_t count, void **blocks) {
  size_t done = 0;
  while (done < count && (blocks[done] = block_alloc(size)) != NULL) done++;
  return done;
}
