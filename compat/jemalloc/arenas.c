/* arenas.c - arenas that a program creates: named heaps, found by number.
 *
 * A slot is taken by one atomic addition and never used for another arena, so that looking one up takes a load.  Who resets or
 * destroys an arena must see to it that nobody uses it meanwhile: jemalloc asks the same. */
#include "jemalloc.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>

static hak_heap_t *_Atomic heaps[ARENAS_MOST];
static _Atomic unsigned taken = 1; /* ARENA_AUTOMATIC */

bool arena_heap(unsigned arena, hak_heap_t **heap) {
  *heap = NULL;
  if (arena == ARENA_AUTOMATIC) return true;
  if (arena >= ARENAS_MOST) return false;
  *heap = atomic_load_explicit(&heaps[arena], memory_order_acquire);
  return *heap != NULL;
}

unsigned arena_count(void) {
  unsigned count = atomic_load_explicit(&taken, memory_order_relaxed);
  return count < ARENAS_MOST ? count : ARENAS_MOST;
}

static hak_heap_t *heap_for(unsigned arena) {
  char name[16];
  (void)snprintf(name, sizeof name, "arena.%u", arena);
  return hak_heap_new(name);
}

int arena_create(unsigned *arena) {
  unsigned number = atomic_fetch_add_explicit(&taken, 1, memory_order_relaxed);
  if (number >= ARENAS_MOST) {
    atomic_fetch_sub_explicit(&taken, 1, memory_order_relaxed);
    return EAGAIN;
  }
  hak_heap_t *heap = heap_for(number);
  if (heap == NULL) return EAGAIN; /* the number is lost */
  atomic_store_explicit(&heaps[number], heap, memory_order_release);
  *arena = number;
  return 0;
}

int arena_destroy(unsigned arena) {
  if (arena == ARENA_AUTOMATIC || arena >= ARENAS_MOST) return EFAULT;
  hak_heap_t *heap = atomic_exchange_explicit(&heaps[arena], NULL, memory_order_acq_rel);
  if (heap == NULL) return EFAULT;
  hak_heap_free(heap);
  return 0;
}

int arena_reset(unsigned arena) {
  hak_heap_t *heap;
  if (arena == ARENA_AUTOMATIC || !arena_heap(arena, &heap)) return EFAULT;
  hak_heap_t *fresh = heap_for(arena);
  if (fresh == NULL) return EAGAIN;
  atomic_store_explicit(&heaps[arena], fresh, memory_order_release);
  hak_heap_free(heap);
  return 0;
}

bool arena_of(const void *block, unsigned *arena) {
  if (hak_malloc_usable_size(block) == 0) return false;
  hak_heap_t *heap = hak_heap_of(block);
  *arena = ARENA_AUTOMATIC;
  for (unsigned i = 1; heap != NULL && i < arena_count(); i++) {
    if (atomic_load_explicit(&heaps[i], memory_order_relaxed) == heap) *arena = i;
  }
  return true;
}
