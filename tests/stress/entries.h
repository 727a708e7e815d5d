/* entries.h - the entry points of the malloc in use as tables: the C library's names, and hak_*.
 *
 * Include it last, as names.h, which renames the members too.
 */
#ifndef STRESS_ENTRIES_H
#define STRESS_ENTRIES_H

#include <stdbool.h>
#include <stddef.h>

#include "hakmem/hakmem.h"
#include "names.h"

/* NULL where there is none. */
typedef struct api {
  void *(*malloc)(size_t);
  void *(*calloc)(size_t, size_t);
  void *(*realloc)(void *, size_t);
  void *(*reallocarray)(void *, size_t, size_t);
  void *(*recallocarray)(void *, size_t, size_t, size_t);
  void *(*reallocf)(void *, size_t);
  void *(*aligned_alloc)(size_t, size_t);
  void *(*memalign)(size_t, size_t);
  int (*posix_memalign)(void **, size_t, size_t);
  void *(*valloc)(size_t);
  void *(*pvalloc)(size_t);
  void (*free)(void *);
  void (*cfree)(void *);
  void (*free_sized)(void *, size_t);
  void (*free_aligned_sized)(void *, size_t, size_t);
  void (*sdallocx)(void *, size_t, int);
} api_t;

typedef struct entries {
  api_t apis[2];
  unsigned count;  /* of apis */
  bool on_hakmem;  /* which has what follows */
  hak_sized_t (*alloc_at_least)(size_t);
  size_t (*good_size)(size_t);
  bool (*expand)(void *, size_t);
  size_t (*malloc_batch)(size_t, size_t, void **);
  void (*free_batch)(void **, size_t);
  size_t (*collect)(bool);
} entries_t;

void entries_find(entries_t *entries);

#endif
