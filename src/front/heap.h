/* heap.h - what a thread allocates from: a bin for each size class it has used, and slabs.
 *
 * Only the heap's thread touches the bins.  The slabs below them are guarded
 * by owner.lock, which the thread takes on its slow path.
 *
 * Where there are many threads, each gets its first blocks of a class from
 * slabs that all share: a thread that takes little then has neither slabs nor
 * bins, and what many of them take lies side by side. */
#ifndef FRONT_HEAP_H
#define FRONT_HEAP_H

#include "front/bin.h"

#define HEAP_TABLE_SMALL (HAK_TABLE_MAX / HAK_GRANULE + 1)
/* Above, classes lie at multiples of 256 bytes. */
#define HEAP_TABLE_STEP 256
#define HEAP_TABLE_MID (HAK_SMALL_MAX / HEAP_TABLE_STEP + 1)

typedef enum heap_state {
  HEAP_BARE,     /* no thread's, without slabs and without bins */
  HEAP_ATTACHED, /* a thread's */
  HEAP_ORPHAN,   /* of a thread that has ended */
  HEAP_SHARED    /* of all threads that take little */
} heap_state_t;

typedef struct heap {
  /* The bin of a heap without bins: `top` leads to the NULL behind it, and the capacity makes its count 0. */
  bin_t none;
  void *none_entry;
  /* Offset of the bin, in 8-byte words from the heap: by size in granules, and by size in steps.
   * A class's bin is there from its first use on, so that the others cost no memory. */
  uint16_t bin_at[HEAP_TABLE_SMALL + HEAP_TABLE_MID];
  uint16_t bin_at_class[CLASS_COUNT]; /* of every class */
  _Atomic bool has_bin[CLASS_COUNT];  /* bin_at leads there; else to `none`. Changed by who has the heap */
  bin_budget_t budget;
  uint64_t last_tick_ms;
  uint32_t slow_paths;
  struct heap *_Atomic next; /* of all heaps; never removed */
  struct heap *link;         /* heaps.c, as the next two */
  _Atomic uint32_t state;
  uintptr_t thread;
  slab_owner_t owner;
  char *bins;               /* what the bins lie in */
  _Atomic uint32_t inside;  /* 1 while its thread is on a slow path: for a fork's child */
  uint8_t shared_blocks[CLASS_COUNT]; /* got from shared slabs so far */
  int64_t trimmed_free_bytes; /* owner.free_bytes as the last heap_trim left it */
  _Atomic uint64_t counted_allocs; /* see thread_watch_all, as for the next two */
  uint32_t until_guarded;          /* small allocations */
  uint64_t random;
  struct quarantine *quarantine;   /* secure.c */
  _Atomic uint32_t forking;        /* 1 while its thread forks: for the child, until its repair */
} heap_t;
_Static_assert(offsetof(heap_t, none) == 0, "an offset of 0 leads to the empty bin");

/* A heap whose every bin is empty: what a thread has before its first miss. */
extern heap_t heap_none;

HAK_INLINE bin_t *heap_bin(heap_t *heap, unsigned size_class) {
  return (bin_t *)(void *)((uint64_t *)(void *)heap + heap->bin_at_class[size_class]);
}

/* The entry of bin_at for a size up to HAK_TABLE_MAX, and for one above. */
HAK_INLINE size_t heap_small_index(size_t size) { return (size + HAK_GRANULE - 1) >> HAK_GRANULE_SHIFT; }
HAK_INLINE size_t heap_mid_index(size_t size) { return HEAP_TABLE_SMALL + (size + HEAP_TABLE_STEP - 1) / HEAP_TABLE_STEP; }

HAK_INLINE bin_t *heap_bin_at(heap_t *heap, size_t index) { return (bin_t *)(void *)((uint64_t *)(void *)heap + heap->bin_at[index]); }

/* Threads inside that have no heap, as heap->inside is for those that have one. */
extern _Atomic uint32_t heapless_inside;

/* What bins have counted whose memory was given back. */
typedef struct bins_retired {
  _Atomic uint64_t refills, flushes, refill_blocks, flush_blocks;
} bins_retired_t;
extern bins_retired_t bins_retired[CLASS_COUNT];

/* All heaps ever made, newest first; follow `next`. Any thread. */
heap_t *heap_first(void);
/* An orphan, or a new heap, attached to the calling thread. NULL when out of memory. */
HAK_CHECKED heap_t *heap_attach(void);
/* Gives the bins' blocks back to the slabs and lets another thread have the heap, which may be gone then. */
void heap_detach(heap_t *heap);
/* Gives the bins' blocks, collected remote frees and wholly free slabs back. */
void heap_trim(heap_t *heap);
/* Whether anything was freed to the heap since that was last done. */
HAK_CHECKED bool heap_may_trim(heap_t *heap);
/* Collects for all heaps, as far as that can be done from outside: remote frees, wholly
 * free slabs, and the bins of orphans, not what live threads have in theirs. */
void heap_trim_others(void);
/* Remote frees alone, of all heaps, for owners that are idle. False: there were none. */
bool heap_collect_all(void);
/* Brings blocks of the class into its empty bin and pops one; NULL when out of memory. */
HAK_CHECKED void *heap_refill(heap_t *heap, unsigned size_class);
/* One block of slabs that all threads share. NULL: there are few threads, the thread has had enough (*taken counts), or
 * it would have to wait. */
HAK_CHECKED void *heap_take_shared(unsigned size_class, uint8_t *taken, bool has_heap);
/* One block past the bins: memcheck would take their entries for pointers of the program's. */
HAK_CHECKED void *heap_take_one(heap_t *heap, unsigned size_class);
/* Makes unused bins smaller if it is time to. */
void heap_tick(heap_t *heap);
/* Gives half of a full bin of the heap back. */
void heap_flush(heap_t *heap, bin_t *bin);
/* Takes a free block that is in no bin: into a bin if it is from this heap's slabs, else it is a remote free. `heap` may be NULL. */
void heap_take_back(heap_t *heap, void *block);
/* In a fork's child, once, while no thread is inside anything of ours: orphans the heaps
 * of threads that are gone, and repairs what one of them had begun. `mine` is the calling
 * thread's heap, or NULL.  Does nothing elsewhere. */
void heap_after_fork(heap_t *mine);
/* From the fork handlers, with the thread's heap or NULL: before, and after in the parent. */
HAK_INLINE void heap_show_fork(heap_t *mine, bool forking) {
  if (mine != NULL) store_relaxed(&mine->forking, forking);
}
/* In the child, whose one thread may come by a slow path later than one that it starts. False: that has been repaired already, since
 * another library's handler has started a thread. */
HAK_CHECKED bool heap_note_fork(heap_t *mine);
/* Whether its thread is in the child; of threads that fork at the same time one may stand for the other until the handler has said. */
HAK_INLINE bool heap_survives(const heap_t *heap, const heap_t *mine, const heap_t *forker) {
  return heap == mine || (forker != NULL ? heap == forker : load_relaxed(&heap->forking) != 0);
}

/* How many allocations the heap lets pass before the next one for a guard slot: at random, guard_every on average. */
uint32_t heap_guard_interval(heap_t *heap);

size_t heap_bins_bytes(void); /* what the bins of a heap lie in */

#endif
