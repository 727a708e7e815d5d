/* heap.h - what a thread allocates from: a bin for each size class it has used, and slabs.
 *
 * Only the heap's thread touches the bins (drain.h has the exception).  The slabs
 * below them are guarded by owner.lock, which the thread takes on its slow path. */
#ifndef FRONT_HEAP_H
#define FRONT_HEAP_H

#include "front/bin.h"

#define HEAP_TABLE_SMALL (HAK_TABLE_MAX / HAK_GRANULE + 1)
/* Above, classes lie at multiples of 256 bytes. */
#define HEAP_TABLE_STEP 256
#define HEAP_TABLE_MID (HAK_SMALL_MAX / HEAP_TABLE_STEP + 1)

typedef enum heap_state {
  HEAP_BARE,     /* no thread has it; it has neither slabs nor bins */
  HEAP_ATTACHED, /* a thread has it */
  HEAP_ORPHAN,   /* its thread has ended, or it was a named heap and has ended */
  HEAP_SHARED,   /* shared by all threads that take little */
  HEAP_NAMED     /* made by the program: front/named.c */
} heap_state_t;

/* What a named heap has in addition. Written under owner.lock, except `users`, which any thread changes atomically, and `given` in a
 * fork's child; the atomic members are read without the lock. */
#define HEAP_NAME 32
typedef void span_hook_t(void *heap, void *span, size_t bytes);
typedef struct heap_named {
  _Atomic bool given;      /* true from hak_heap_new to hak_heap_free */
  _Atomic char name[HEAP_NAME];
  _Atomic uint32_t tag;    /* the tag of its blocks in profiles */
  _Atomic uint32_t users;  /* how many threads have it as their default heap */
  _Atomic uint64_t limit;  /* bytes; 0: none */
  _Atomic uint64_t peak, allocs, refused;
  span_hook_t *span_hook;  /* from named_set_span_hook; NULL: none */
} heap_named_t;

/* What the heap's thread has allocated while the process was armed, by class; grows only. */
typedef struct heap_counts {
  _Atomic uint64_t counted_blocks[CLASS_COUNT];
  _Atomic uint64_t counted_bytes[CLASS_COUNT]; /* as requested */
} heap_counts_t;

/* What is known of a thread that may be idle: front/drain.c. */
typedef struct heap_idle {
  uint64_t activity; /* for the keeper alone, as is the next */
  uint8_t looks;
  _Atomic int64_t noted;        /* bytes; written with owner.lock, as are the next two */
  uint32_t grown;               /* budget.grown when that was noted */
  _Atomic uint32_t noted_units; /* the units in it that are cached large blocks */
} heap_idle_t;

typedef struct heap {
  /* The bin of classes that have none. `top` makes a pop read the BIN_END behind it, and the capacity makes the count 0. */
  bin_t none;
  void *none_entry;
  /* Offsets of bins from the heap, in 8-byte words: by size in granules, then by size in steps.
   * A class gets its bin at its first use, so that unused classes cost no memory. */
  uint16_t bin_at[HEAP_TABLE_SMALL + HEAP_TABLE_MID];
  uint16_t bin_at_class[CLASS_COUNT]; /* of each class, used or not */
  _Atomic bool has_bin[CLASS_COUNT];  /* bin_at leads there; else to `none`. Changed by the thread that has the heap */
  _Atomic bool watched;               /* all of bin_at leads to `none`: front/watch.h */
  bin_budget_t budget;
  uint64_t last_tick_ms;
  _Atomic uint32_t slow_paths;
  uint32_t number;           /* how many heaps were made before this one */
  struct heap *_Atomic next; /* in the list of all heaps; never removed */
  struct heap *link;         /* for heaps.c, as are the next two */
  _Atomic uint32_t state;
  uintptr_t thread;
  slab_owner_t owner;
  char *bins;               /* the memory of the bins */
  _Atomic uint32_t inside;  /* 1 while its thread is on a slow path; read by a fork's child */
  uint8_t shared_blocks[CLASS_COUNT]; /* how many were got from shared slabs so far */
  int64_t trimmed_free_bytes; /* owner.free_bytes as the last heap_trim left it */
  _Atomic bool unseen_marks; /* its slabs may have marks that are not visible yet: front/supply.c. With owner.lock, as are the next two */
  _Atomic uint32_t repairs_seen; /* repair_count when that was last found out */
  uint64_t reopened_ms;
  _Atomic uint64_t counted_allocs; /* while the heap is watched, as are the next two */
  uint32_t until_guarded; /* small allocations until the next guard slot */
  int64_t until_event; /* bytes of small allocations until the next event */
  uint64_t random;
  struct quarantine *quarantine; /* front/quarantine.c */
  _Atomic uint32_t forking; /* 1 while its thread forks; read by the child until its repair */
  struct heap *default_heap; /* the named heap that malloc takes from instead, in this heap's thread; NULL: none */
  heap_idle_t idle;
  heap_named_t named;
  heap_counts_t counts;
} heap_t;
_Static_assert(offsetof(heap_t, none) == 0, "an offset of 0 leads to the empty bin");

HAK_INLINE heap_t *heap_of(slab_owner_t *owner) { return (heap_t *)(void *)((char *)owner - offsetof(heap_t, owner)); }

/* A heap in which every bin is empty: a thread's before its first miss. */
extern heap_t heap_none;

HAK_INLINE bin_t *heap_bin(heap_t *heap, unsigned size_class) {
  return (bin_t *)(void *)((uint64_t *)(void *)heap + heap->bin_at_class[size_class]);
}

/* The index into bin_at for a size up to HAK_TABLE_MAX, and for a larger one. */
HAK_INLINE size_t heap_small_index(size_t size) { return (size + HAK_GRANULE - 1) >> HAK_GRANULE_SHIFT; }
HAK_INLINE size_t heap_mid_index(size_t size) { return HEAP_TABLE_SMALL + (size + HEAP_TABLE_STEP - 1) / HEAP_TABLE_STEP; }

HAK_INLINE bin_t *heap_bin_at(heap_t *heap, size_t index) {
  return (bin_t *)(void *)((uint64_t *)(void *)heap + owner_load(&heap->bin_at[index]));
}
/* The bin in which malloc looks for a block of up to HAK_SMALL_MAX bytes. */
HAK_INLINE bin_t *heap_bin_for(heap_t *heap, size_t size) {
  return heap_bin_at(heap, size <= HAK_TABLE_MAX ? heap_small_index(size) : heap_mid_index(size));
}

/* Every slow path runs inside (thread.h). `thread_inside` is how deep the calling thread is. `heapless` counts the threads inside that have
 * no heap, as heap->inside shows one that has; by thread number, so that many threads do not write to one cache line. */
extern __thread uint32_t thread_inside __attribute__((tls_model("initial-exec")));
#define HEAPLESS_SHIFT 6
#define HEAPLESS_LINES (1u << HEAPLESS_SHIFT)
typedef struct heapless {
  HAK_ALIGNED(HAK_CACHE_LINE) _Atomic uint32_t heapless_inside;
} heapless_t;
extern heapless_t heapless[HEAPLESS_LINES];
HAK_INLINE heapless_t *heapless_of(uintptr_t thread) { return &heapless[(uint64_t)thread * GOLDEN_RATIO_64 >> (64 - HEAPLESS_SHIFT)]; }

/* The counts of bins whose memory was given back. */
typedef struct bins_retired {
  _Atomic uint64_t refills, flushes, refill_blocks, flush_blocks;
} bins_retired_t;
extern bins_retired_t bins_retired[CLASS_COUNT];

size_t heap_bins_bytes(void); /* the size of the memory for a heap's bins */
/* Makes a heap in zeroed memory. */
void heap_init(heap_t *heap, char *bins);
/* The first class from c on that has a bin, or CLASS_COUNT. */
HAK_INLINE unsigned heap_next_bin(const heap_t *heap, unsigned c) {
  while (c < CLASS_COUNT && !load_relaxed(&heap->has_bin[c])) c++;
  return c;
}
/* Makes the class's bin at its first use: malloc finds it from now on. With the heap's lock. */
void heap_add_bin(heap_t *heap, unsigned c);
/* Rewrites where malloc finds the class's bin, or that the class has none. With the heap's lock, or where no other thread knows the
 * heap. */
void heap_set_table(heap_t *heap, unsigned c);
/* Sets whether all small allocations miss. With the heap's lock. */
void heap_set_watched(heap_t *heap, bool watched);
/* Makes `thread` the one whose frees of the heap's blocks take the fast path. With the heap's lock, or in a fork's child. */
void heap_set_thread(heap_t *heap, uintptr_t thread);
/* Gives a block back to its slab, bypassing the bins; if the slab is another heap's, by a remote free. With the heap's lock. */
void heap_give_block(heap_t *heap, void *block);
/* Frees a block of any heap's slab remotely; the block is not live any more. */
void heap_free_remotely(void *block);
/* Gives back the memory of the bins of a heap that has no slabs; the counts stay, in bins_retired. */
void heap_retire_bins(heap_t *heap);
/* Draws how many small allocations pass before the next one gets a guard slot: at random, guard_every on average. */
uint32_t heap_guard_interval(heap_t *heap);
/* Makes a named heap the default of the thread of `heap`; with NULL, its own again. By that thread, or where no thread has the heap. */
void heap_set_default(heap_t *heap, heap_t *named);
/* In a fork's child: returns whether the heap's thread exists here. Until the fork handler has named the forker, any of the threads that
 * were forking at the same time may pass for it. */
HAK_INLINE bool heap_survives(const heap_t *heap, const heap_t *mine, const heap_t *forker) {
  return heap == mine || (forker != NULL ? heap == forker : load_relaxed(&heap->forking) != 0);
}

#endif
