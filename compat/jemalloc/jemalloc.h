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

#define ARENAS_MOST 4095u   /* up to the highest number that FLAG_ARENA can name */
#define ARENAS_ALL 4096u    /* the number that stands for all of them */
#define ARENA_AUTOMATIC 0u  /* what malloc serves: hakmem's heaps of threads */

/* --- arenas.c: a created arena is a named heap; all functions but arena_heap are called only within mallctl --- */

/* False if there is no such arena.  The heap of ARENA_AUTOMATIC is NULL. */
HAK_MUST_USE bool arena_heap(size_t arena, hak_heap_t **heap);
/* How many numbers were given out so far; some of their arenas may have ended. */
unsigned arena_count(void);
/* How many arenas exist, without ARENA_AUTOMATIC. */
unsigned arena_heaps(void);
/* Returns an errno. */
int arena_create(unsigned *arena);
/* Both free all blocks; arena_destroy also ends the arena.  An arena that is a thread's default cannot end (EFAULT). */
int arena_reset(unsigned arena);
int arena_destroy(unsigned arena);
/* The number of a created arena; ARENA_AUTOMATIC for any other heap, and for NULL. */
unsigned arena_number(const hak_heap_t *heap);
/* The arena of a live block; false if there is no such block. */
bool arena_of(const void *block, unsigned *arena);

/* --- snapshot.c: statistics as of the last epoch; used only within mallctl, where one call runs at a time --- */

#define SNAPSHOT_CLASSES 64

/* What an arena holds. */
typedef struct holding {
  uint64_t small, large, large_blocks, active;
} holding_t;

typedef struct snapshot {
  uint64_t epoch;
  hak_stats_t stats;
  uint32_t bins; /* size classes, without the class of no bytes */
  hak_class_stats_t bin[SNAPSHOT_CLASSES];
  uint32_t nonfull[SNAPSHOT_CLASSES]; /* slabs with a free block, less one per class, which may be filling up */
  uint64_t threads; /* those that have a heap */
  uint64_t started_ns;
  holding_t all, arena[ARENAS_MOST]; /* of arenas that did not exist: zeros */
} snapshot_t;

void snapshot_refresh(void);
/* The bytes in use, with what lies between blocks. */
uint64_t snapshot_active(const hak_stats_t *stats);
/* The snapshot in force; the first call takes one. */
const snapshot_t *snapshot(void);
/* The arena is new: the snapshot has figures of an older one with its number. */
void snapshot_forget(unsigned arena);

/* --- slabs.c: what only hakmem's internals know --- */

typedef struct slab_use {
  size_t free, blocks, bytes;
} slab_use_t;

/* The use of the slab, or large block, that contains the live block; all 0 for anything else. */
slab_use_t slab_use(const void *block);
/* Turns an array of addresses into an array of slab_use, three words each, for defragmentation.  Sizes are in bytes.  Returns an errno. */
int slab_use_of_each(const void *addresses, size_t size, void *uses, size_t uses_size);
/* Allocates past the thread's bins, from the lowest slab with room. */
HAK_MUST_USE void *slab_alloc(size_t size);
/* Frees all blocks of a heap, which stays; false if that cannot be done. */
HAK_MUST_USE bool heap_clear(hak_heap_t *heap);
/* Calls named_set_span_hook; false if that cannot be done. */
HAK_MUST_USE bool heap_set_span_hook(hak_heap_t *heap, void (*call)(void *heap, void *span, size_t bytes));
/* Whether it is a thread's default.  If another library serves malloc, only the calling thread's default is known. */
bool heap_has_threads(hak_heap_t *heap);
/* Fills in the figures of bins, and how many threads there are. */
void slabs_look(snapshot_t *snapshot);

/* --- profile.c --- */

/* Writes jemalloc's text format, which jeprof and pprof read; false with errno. */
HAK_MUST_USE bool profile_dump(const char *path);
bool profile_on(void);
/* "PREFIX.PID.NUMBER.LETTERNUMBER.heap" */
void profile_name(char *name, size_t size, char letter);

/* --- nodes.c: the nodes, for mallctl.c --- */

#define CTL_DEPTH 6

typedef enum ctl_type { CTL_VOID, CTL_BOOL, CTL_UNSIGNED, CTL_SIZE, CTL_SSIZE, CTL_U64, CTL_TEXT } ctl_type_t;

/* The numbers in a name or MIB, by position. */
typedef struct ctl_at {
  const size_t *index;
  uint32_t of; /* ctl_node_t.of */
} ctl_at_t;

/* A node: values are passed as 64 bits, texts as their addresses.  The functions return an errno. */
typedef struct ctl_node {
  const char *name; /* its parts between dots; "*" stands for a number */
  ctl_type_t type;
  uint32_t of; /* for the functions: which figure, or a constant */
  int (*read)(const ctl_at_t *at, uint64_t *value);
  int (*write)(const ctl_at_t *at, uint64_t value);
  /* In place of both, if something other than one value is read or written. */
  int (*raw)(const ctl_at_t *at, void *old, size_t *old_size, const void *fresh, size_t fresh_size);
} ctl_node_t;

/* arenas.c */
int arena_create_raw(const ctl_at_t *at, void *old, size_t *old_size, const void *fresh, size_t fresh_size);
int arena_lookup_raw(const ctl_at_t *at, void *old, size_t *old_size, const void *fresh, size_t fresh_size);
/* threads.c: nodes of the calling thread.  thread_bytes_read returns one of these; to mallctl its pointers are size_t. */
enum { BYTES_TAKEN, BYTES_GIVEN, BYTES_TAKEN_AT, BYTES_GIVEN_AT };
int thread_bytes_read(const ctl_at_t *at, uint64_t *value);
int thread_peak_read(const ctl_at_t *at, uint64_t *value);
int thread_peak_reset(const ctl_at_t *at, uint64_t value);
int thread_arena_read(const ctl_at_t *at, uint64_t *value);
int thread_arena_write(const ctl_at_t *at, uint64_t value);
/* hooks.c: the extent hooks of an arena, as a pointer; those of ARENA_AUTOMATIC cannot be set. */
int hooks_read(const ctl_at_t *at, uint64_t *value);
int hooks_write(const ctl_at_t *at, uint64_t value);
/* Called when the arena has ended: its number may become another arena's. */
void hooks_forget(unsigned arena);

extern const ctl_node_t ctl_nodes[];
extern const size_t ctl_node_count;
/* Whether any numbers in the first parts of a name are valid: of an arena that exists or once did, and of a bin. */
bool ctl_numbers_known(const ctl_node_t *node, const size_t *index, size_t parts);

/* --- conf.c: malloc_conf and MALLOC_CONF --- */

typedef struct conf {
  bool prof, prof_final, prof_leak, stats_print;
  char prof_prefix[512];
  char stats_opts[32];
} conf_t;

extern conf_t conf;

#endif
