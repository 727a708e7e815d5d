/* arenas.c - arenas that a program creates: named heaps, found by number.
 *
 * A lookup takes one load.  The numbers of destroyed arenas are given out again, as jemalloc's are.  A program that resets or destroys an
 * arena must ensure that nobody uses its blocks meanwhile, as with jemalloc.  Nodes that read the arena are safe, since one call of
 * mallctl runs at a time. */
#include "jemalloc.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

static hak_heap_t *_Atomic heaps[ARENAS_MOST];
static _Atomic bool ended[ARENAS_MOST]; /* numbers to give out again */
static _Atomic unsigned taken = 1;      /* ARENA_AUTOMATIC */

bool arena_heap(size_t arena, hak_heap_t **heap) {
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

unsigned arena_number(const hak_heap_t *heap) {
  for (unsigned i = 1; heap != NULL && i < arena_count(); i++) {
    if (atomic_load_explicit(&heaps[i], memory_order_relaxed) == heap) return i;
  }
  return ARENA_AUTOMATIC;
}

unsigned arena_heaps(void) {
  unsigned count = 0;
  for (unsigned i = 1; i < arena_count(); i++) count += atomic_load_explicit(&heaps[i], memory_order_relaxed) != NULL;
  return count;
}

static hak_heap_t *heap_for(unsigned arena) {
  char name[16];
  (void)snprintf(name, sizeof name, "arena.%u", arena);
  return hak_heap_new(name);
}

/* ARENA_AUTOMATIC if no number is left. */
static unsigned take_number(void) {
  for (unsigned i = 1; i < arena_count(); i++) {
    if (atomic_load_explicit(&ended[i], memory_order_relaxed) && atomic_exchange(&ended[i], false)) return i;
  }
  unsigned number = atomic_fetch_add_explicit(&taken, 1, memory_order_relaxed);
  if (number < ARENAS_MOST) return number;
  atomic_fetch_sub_explicit(&taken, 1, memory_order_relaxed);
  return ARENA_AUTOMATIC;
}

int arena_create(unsigned *arena) {
  unsigned number = take_number();
  if (number == ARENA_AUTOMATIC) return EAGAIN;
  hak_heap_t *heap = heap_for(number);
  if (heap == NULL) {
    atomic_store(&ended[number], true);
    return EAGAIN;
  }
  snapshot_forget(number);
  atomic_store_explicit(&heaps[number], heap, memory_order_release);
  *arena = number;
  return 0;
}

int arena_destroy(unsigned arena) {
  hak_heap_t *heap;
  if (arena == ARENA_AUTOMATIC || !arena_heap(arena, &heap) || heap_has_threads(heap)) return EFAULT;
  heap = atomic_exchange_explicit(&heaps[arena], NULL, memory_order_acq_rel);
  if (heap == NULL) return EFAULT;
  hak_heap_free(heap);
  hooks_forget(arena);
  atomic_store(&ended[arena], true);
  return 0;
}

int arena_reset(unsigned arena) {
  hak_heap_t *heap;
  if (arena == ARENA_AUTOMATIC || !arena_heap(arena, &heap)) return EFAULT;
  if (heap_clear(heap)) return 0;
  if (heap_has_threads(heap)) return EFAULT;
  hak_heap_t *fresh = heap_for(arena);
  if (fresh == NULL) return EAGAIN;
  atomic_store_explicit(&heaps[arena], fresh, memory_order_release);
  hak_heap_free(heap);
  return 0;
}

bool arena_of(const void *block, unsigned *arena) {
  if (!hak_is_live(block)) return false;
  *arena = arena_number(hak_heap_of(block));
  return true;
}

/* --- nodes --- */

/* The caller may pass hooks for the new arena. */
int arena_create_raw(const ctl_at_t *at, void *old, size_t *old_size, const void *fresh, size_t fresh_size) {
  uintptr_t hooks;
  unsigned arena;
  if (fresh_size != (fresh != NULL ? sizeof hooks : 0)) return EINVAL;
  if (old == NULL || old_size == NULL || *old_size != sizeof arena) return EINVAL;
  int error = arena_create(&arena);
  if (error == 0 && fresh != NULL) {
    memcpy(&hooks, fresh, sizeof hooks);
    error = hooks_write(&(ctl_at_t){(size_t[]){at->index[0], arena}, 0}, hooks);
    if (error != 0) (void)arena_destroy(arena);
  }
  if (error == 0) memcpy(old, &arena, sizeof arena);
  return error;
}

int arena_lookup_raw(const ctl_at_t *at, void *old, size_t *old_size, const void *fresh, size_t fresh_size) {
  (void)at;
  const void *block;
  if (fresh == NULL || fresh_size != sizeof block || old == NULL || old_size == NULL || *old_size != sizeof(unsigned)) return EINVAL;
  memcpy(&block, fresh, sizeof block);
  return arena_of(block, old) ? 0 : EINVAL;
}
