/* heap.h - what a thread allocates from: a bin for each size class it has used, and slabs.
 *
 * Only the heap's thread touches the bins.  The slabs below them are guarded
 * by owner.lock, which the thread takes on its slow path. */
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
  HEAP_SHARED,   /* of all threads that take little */
  HEAP_NAMED     /* of the program: front/named.c */
} heap_state_t;

/* What a named heap has more; but for `given`, which is guarded by lists that the heap is not in, under its owner.lock. */
#define HEAP_NAME 32
typedef void heap_told_t(void *heap, void *span, size_t bytes);
typedef struct heap_named {
  _Atomic bool given;      /* from hak_heap_new to hak_heap_free */
  _Atomic char name[HEAP_NAME];
  _Atomic uint32_t tag;    /* of its blocks in profiles */
  _Atomic uint32_t users;  /* threads whose stand_in it is */
  _Atomic uint64_t limit;  /* bytes; 0: none */
  _Atomic uint64_t peak, allocs, refused;
  heap_told_t *told;       /* front/named.h; NULL: nobody */
} heap_named_t;

/* What its thread has allocated while the process was armed, by class; grows only. */
typedef struct heap_counts {
  _Atomic uint64_t counted_blocks[CLASS_COUNT];
  _Atomic uint64_t counted_bytes[CLASS_COUNT]; /* that were asked for */
} heap_counts_t;

/* What is known of a thread that may be at rest: front/drain.c. */
typedef struct heap_rest {
  uint64_t activity; /* the keeper's, as the next */
  uint8_t looks;
  _Atomic int64_t noted;        /* bytes; with owner.lock, as the next two */
  uint32_t grown;               /* budget.grown at the time */
  _Atomic uint32_t noted_units; /* of them, what the thread keeps of large blocks */
} heap_rest_t;

typedef struct heap {
  /* The bin of a heap without bins: `top` leads to the BIN_END behind it, and the capacity makes its count 0. */
  bin_t none;
  void *none_entry;
  /* Offset of the bin, in 8-byte words from the heap: by size in granules, and by size in steps.
   * A class's bin is there from its first use on, so that the others cost no memory. */
  uint16_t bin_at[HEAP_TABLE_SMALL + HEAP_TABLE_MID];
  uint16_t bin_at_class[CLASS_COUNT]; /* of every class */
  _Atomic bool has_bin[CLASS_COUNT];  /* bin_at leads there; else to `none`. Changed by the thread that has the heap */
  _Atomic bool watched;               /* bin_at leads to `none` alone: front/watch.h */
  bin_budget_t budget;
  uint64_t last_tick_ms;
  _Atomic uint32_t slow_paths;
  uint32_t number;           /* how many heaps were made before */
  struct heap *_Atomic next; /* of all heaps; never removed */
  struct heap *link;         /* heaps.c, as the next two */
  _Atomic uint32_t state;
  uintptr_t thread;
  slab_owner_t owner;
  char *bins;               /* what the bins lie in */
  _Atomic uint32_t inside;  /* 1 while its thread is on a slow path: for a fork's child */
  uint8_t shared_blocks[CLASS_COUNT]; /* got from shared slabs so far */
  int64_t trimmed_free_bytes; /* owner.free_bytes as the last heap_trim left it */
  _Atomic uint64_t counted_allocs; /* while it is watched, as the next two */
  uint32_t until_guarded;          /* small allocations */
  int64_t until_event;             /* bytes of small allocations */
  uint64_t random;
  struct quarantine *quarantine;   /* front/quarantine.c */
  _Atomic uint32_t forking;        /* 1 while its thread forks: for the child, until its repair */
  struct heap *stand_in;           /* the named heap that its thread takes from instead; NULL: none */
  heap_rest_t rest;
  heap_named_t named;
  heap_counts_t counts;
} heap_t;
_Static_assert(offsetof(heap_t, none) == 0, "an offset of 0 leads to the empty bin");

HAK_INLINE heap_t *heap_of(slab_owner_t *owner) { return (heap_t *)(void *)((char *)owner - offsetof(heap_t, owner)); }

/* A heap whose every bin is empty: what a thread has before its first miss. */
extern heap_t heap_none;

HAK_INLINE bin_t *heap_bin(heap_t *heap, unsigned size_class) {
  return (bin_t *)(void *)((uint64_t *)(void *)heap + heap->bin_at_class[size_class]);
}

/* The entry of bin_at for a size up to HAK_TABLE_MAX, and for one above. */
HAK_INLINE size_t heap_small_index(size_t size) { return (size + HAK_GRANULE - 1) >> HAK_GRANULE_SHIFT; }
HAK_INLINE size_t heap_mid_index(size_t size) { return HEAP_TABLE_SMALL + (size + HEAP_TABLE_STEP - 1) / HEAP_TABLE_STEP; }

HAK_INLINE bin_t *heap_bin_at(heap_t *heap, size_t index) {
  return (bin_t *)(void *)((uint64_t *)(void *)heap + owner_load(&heap->bin_at[index]));
}
/* Where malloc finds a block of up to HAK_SMALL_MAX bytes. */
HAK_INLINE bin_t *heap_bin_for(heap_t *heap, size_t size) {
  return heap_bin_at(heap, size <= HAK_TABLE_MAX ? heap_small_index(size) : heap_mid_index(size));
}

/* Every slow path runs inside: see thread.h.  How deep the calling thread is; threads inside that have no heap, as heap->inside is
 * for those that have one: by the thread's number, so that many do not write to one line. */
extern __thread uint32_t thread_inside __attribute__((tls_model("initial-exec")));
#define HEAPLESS_SHIFT 6
#define HEAPLESS_LINES (1u << HEAPLESS_SHIFT)
typedef struct heapless {
  HAK_ALIGNED(HAK_CACHE_LINE) _Atomic uint32_t heapless_inside;
} heapless_t;
extern heapless_t heapless[HEAPLESS_LINES];
HAK_INLINE heapless_t *heapless_of(uintptr_t thread) {
  return &heapless[(uint64_t)thread * UINT64_C(0x9e3779b97f4a7c15) >> (64 - HEAPLESS_SHIFT)];
}

/* What bins have counted whose memory was given back. */
typedef struct bins_retired {
  _Atomic uint64_t refills, flushes, refill_blocks, flush_blocks;
} bins_retired_t;
extern bins_retired_t bins_retired[CLASS_COUNT];

size_t heap_bins_bytes(void); /* what the bins of a heap lie in */
/* A new heap, in memory that is zero. */
void heap_init(heap_t *heap, char *bins);
/* The next class from c on that has a bin, or CLASS_COUNT. */
HAK_INLINE unsigned heap_next_bin(const heap_t *heap, unsigned c) {
  while (c < CLASS_COUNT && !load_relaxed(&heap->has_bin[c])) c++;
  return c;
}
/* The class's first use: malloc finds its bin from now on. With the heap's lock. */
void heap_add_bin(heap_t *heap, unsigned c);
/* Writes anew where malloc finds the class's bin, or that there is none. With the heap's lock, or where nobody else knows it. */
void heap_set_table(heap_t *heap, unsigned c);
/* Whether all small allocations miss. With the heap's lock. */
void heap_set_watched(heap_t *heap, bool watched);
/* Makes `thread` the one whose frees of the heap's blocks take the fast path. */
void heap_set_thread(heap_t *heap, uintptr_t thread);
/* A block goes back to its slab, past the bins; with the heap's lock. */
void heap_give_block(heap_t *heap, void *block);
/* Frees a block, of any heap's slab, that is not live any more. */
void heap_free_remotely(void *block);
/* Gives the memory of the bins of a heap without slabs back; what they have counted stays. */
void heap_retire_bins(heap_t *heap);
/* How many allocations the heap lets pass before the next one for a guard slot: at random, guard_every on average. */
uint32_t heap_guard_interval(heap_t *heap);
/* Has the thread of `heap` take from a named one; from its own with NULL.  By that thread, or where nobody has the heap. */
void heap_set_stand_in(heap_t *heap, heap_t *named);
/* In a fork's child, whether its thread is there; of threads that fork at the same time one may stand for the other until the handler
 * has said. */
HAK_INLINE bool heap_survives(const heap_t *heap, const heap_t *mine, const heap_t *forker) {
  return heap == mine || (forker != NULL ? heap == forker : load_relaxed(&heap->forking) != 0);
}

#endif
