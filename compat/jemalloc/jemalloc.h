/* jemalloc.h - what the files of libjemalloc.so.2 share; the tests use it too. */
#ifndef COMPAT_JEMALLOC_H
#define COMPAT_JEMALLOC_H

#include "../common.h"
#include "hakmem/heap.h"

/* Bits of the flags: the alignment as its logarithm, zero, the cache plus 2, the arena plus 1. */
#define FLAG_ALIGN(flags) ((size_t)1 << ((flags) & 63))
#define FLAG_ZERO 0x40
#define FLAG_UNCACHED(flags) (((flags) >> 8 & 0xfff) == 1)
#define FLAG_ARENA(flags) ((unsigned)(flags) >> 20)

#define ARENAS_MOST 4095u   /* with the highest number that FLAG_ARENA can name */
#define ARENAS_ALL 4096u    /* the number that stands for all of them */
#define ARENA_AUTOMATIC 0u  /* what malloc serves: hakmem's heaps of threads */

/* --- arenas.c: an arena that was created is a named heap; all but arena_heap within mallctl alone --- */

/* False if there is no such arena.  NULL is the heap of ARENA_AUTOMATIC. */
HAK_MUST_USE bool arena_heap(size_t arena, hak_heap_t **heap);
/* Numbers given out so far; some of them may be no more. */
unsigned arena_count(void);
/* Those that there are, but ARENA_AUTOMATIC. */
unsigned arena_heaps(void);
/* Returns an errno. */
int arena_create(unsigned *arena);
/* Frees all blocks; the arena stays, or ends.  One that is a thread's cannot end (EFAULT). */
int arena_reset(unsigned arena);
int arena_destroy(unsigned arena);
/* Of an arena that was created; ARENA_AUTOMATIC for any other heap, and NULL. */
unsigned arena_number(const hak_heap_t *heap);
/* That of a live block; false if there is no such block. */
bool arena_of(const void *block, unsigned *arena);

/* --- snapshot.c: statistics as of the last epoch; within mallctl alone, of which one call runs at a time --- */

#define SNAPSHOT_CLASSES 64

typedef struct snapshot {
  uint64_t epoch;
  hak_stats_t stats;
  uint32_t bins; /* size classes, but for that of no bytes */
  hak_class_stats_t bin[SNAPSHOT_CLASSES];
  uint32_t nonfull[SNAPSHOT_CLASSES]; /* slabs with a free block, but one each that may be filling up */
  uint64_t threads; /* that have a heap */
  uint64_t started_ns;
} snapshot_t;

void snapshot_refresh(void);
/* The snapshot in force; the first call takes one. */
const snapshot_t *snapshot(void);

/* --- slabs.c: what only the inside knows --- */

typedef struct slab_use {
  size_t free, blocks, bytes;
} slab_use_t;

/* Of the slab, or large block, that `block` is in; all 0 for anything else. */
slab_use_t slab_use(const void *block);
/* An array of addresses to one of three words each, sizes in bytes: what defragmentation asks.  Returns an errno. */
int slab_use_of_each(const void *addresses, size_t size, void *uses, size_t uses_size);
/* A block past the caches of threads: of the lowest slab with room. */
HAK_MUST_USE void *slab_alloc(size_t size);
/* Frees all blocks of a heap, which stays; false where that cannot be done. */
HAK_MUST_USE bool heap_clear(hak_heap_t *heap);
/* named_tell; false where that cannot be done. */
HAK_MUST_USE bool heap_tell(hak_heap_t *heap, void (*call)(void *heap, void *span, size_t bytes));
/* Whether it is a thread's default; from outside only the calling one's is known. */
bool heap_has_threads(hak_heap_t *heap);
/* Fills in what is known of bins. */
void slabs_look(snapshot_t *snapshot);

/* --- profile.c --- */

/* jemalloc's text, which jeprof and pprof read; false with errno. */
HAK_MUST_USE bool profile_dump(const char *path);
bool profile_on(void);
/* "PREFIX.PID.NUMBER.LETTERNUMBER.heap" */
void profile_name(char *name, size_t size, char letter);

/* --- nodes.c: what mallctl knows, for mallctl.c --- */

#define CTL_DEPTH 6

typedef enum ctl_type { CTL_VOID, CTL_BOOL, CTL_UNSIGNED, CTL_SIZE, CTL_SSIZE, CTL_U64, CTL_TEXT } ctl_type_t;

/* The numbers of a name, or MIB, at their places in it. */
typedef struct ctl_at {
  const size_t *index;
  uint32_t of; /* ctl_node_t.of */
} ctl_at_t;

/* A node: values pass as 64 bits, texts as their addresses.  A function returns an errno. */
typedef struct ctl_node {
  const char *name; /* its parts between dots, a number being "*" */
  ctl_type_t type;
  uint32_t of; /* for the functions: a figure's offset, a constant */
  int (*read)(const ctl_at_t *at, uint64_t *value);
  int (*write)(const ctl_at_t *at, uint64_t value);
  /* In place of both where something else than one value is read or written. */
  int (*raw)(const ctl_at_t *at, void *old, size_t *old_size, const void *fresh, size_t fresh_size);
} ctl_node_t;

/* arenas.c */
int arena_create_raw(const ctl_at_t *at, void *old, size_t *old_size, const void *fresh, size_t fresh_size);
int arena_lookup_raw(const ctl_at_t *at, void *old, size_t *old_size, const void *fresh, size_t fresh_size);
/* threads.c: of the calling thread; for thread_bytes_read, whose pointers are size_t to mallctl, which of these. */
enum { BYTES_TAKEN, BYTES_GIVEN, BYTES_TAKEN_AT, BYTES_GIVEN_AT };
int thread_bytes_read(const ctl_at_t *at, uint64_t *value);
int thread_peak_read(const ctl_at_t *at, uint64_t *value);
int thread_peak_reset(const ctl_at_t *at, uint64_t value);
int thread_arena_read(const ctl_at_t *at, uint64_t *value);
int thread_arena_write(const ctl_at_t *at, uint64_t value);
/* hooks.c: the extent hooks of an arena, as a pointer; those of ARENA_AUTOMATIC cannot be set. */
int hooks_read(const ctl_at_t *at, uint64_t *value);
int hooks_write(const ctl_at_t *at, uint64_t value);
/* Its number may be another's now. */
void hooks_forget(unsigned arena);

extern const ctl_node_t ctl_nodes[];
extern const size_t ctl_node_count;
/* Whether there was ever an arena of the number in a name, and there is a bin of that, if its first parts have them. */
bool ctl_numbers_known(const ctl_node_t *node, const size_t *index, size_t parts);

/* --- conf.c: malloc_conf and MALLOC_CONF --- */

typedef struct conf {
  bool prof, prof_final, prof_leak, stats_print;
  char prof_prefix[512];
  char stats_opts[32];
} conf_t;

extern conf_t conf;

#endif
