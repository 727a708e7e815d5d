#include "front/block_secure.h"

#include "base/thread.h"
#include "front/alloc.h"
#include "front/free.h"
#include "front/quarantine.h"
#include "front/secure.h"
#include "front/supply.h"
#include "front/thread.h"

HAK_INLINE void *pop_ready(size_t size) {
  heap_t *heap = thread_fast_heap;
  return size - 1 < SMALL_REQUEST_MAX ? secure_pop(heap, heap_bin_for(heap, size + CLASS_CANARY), size) : NULL;
}

void *alloc_secure(size_t size) {
  void *block = pop_ready(size);
  return HAK_LIKELY(block != NULL) ? block : alloc_miss(size);
}

void *alloc_secure_own(size_t size) {
  void *block = pop_ready(size);
  return HAK_LIKELY(block != NULL) ? block : alloc_miss_own(size);
}

static HAK_NOINLINE void free_waited(void *block) {
  thread_enter();
  heap_take_back(thread_heap, block);
  thread_leave_with_upkeep();
}

/* Puts a block that leaves quarantine into its bin, if that is the thread's own. */
static void free_to_bin(void *block) {
  bin_t *bin = bin_of_unit(owner_load(&region.live), region_unit(block));
  if (HAK_UNLIKELY(owner_load(&bin->shared.thread) != thread_self())) free_waited(block);
  else if (HAK_UNLIKELY(bin_push(bin, block))) free_overflow(bin);
}

/* Takes other heaps' blocks too: a block waits in its freer's quarantine. */
void free_secure(void *block, size_t size, const char *function) {
  uintptr_t place = region_index(block);
  heap_t *heap = thread_fast_heap;
  if (HAK_UNLIKELY(place >= owner_load(&region.limit) || heap->quarantine == NULL)) goto miss;
  const region_bin_t *bin = racy_load(region_bin(owner_load(&region.live), region_index_unit(place)));
  if (HAK_UNLIKELY(bin->block_size == 0)) goto miss;
  unsigned c = bin->size_class;
  if (size != 0 && (!region_is_live(block) || HAK_UNLIKELY(secure_size(block, c, function) != size))) goto miss;
  if (HAK_UNLIKELY(!secure_claim_live(block))) goto miss;
  secure_clear(block, c, function);
  block = quarantine_put(heap, block, c);
  if (block != NULL) free_to_bin(block);
  return;
miss:
  free_miss(block, size, function);
}
