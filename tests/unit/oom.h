/* oom.h - blocks that are watched while the kernel fails, and the scenarios that use them. */
#ifndef TESTS_UNIT_OOM_H
#define TESTS_UNIT_OOM_H

#include "fake_os.h"
#include "hakmem/hakmem.h"
#include "unit.h"

/* ---- Watched blocks ---- */

typedef struct held {
  unsigned char *block; /* NULL: nothing */
  size_t size;
  unsigned char mark; /* the content begins and ends with it */
} held_t;

/* A table of one thread. */
#define HELD_MAX 512
typedef struct table {
  held_t held[HELD_MAX];
  uint64_t seed;
  bool alone; /* no other thread calls the os meanwhile */
} table_t;

void table_init(table_t *table, uint64_t seed);
/* Frees what entry n holds, its content checked. */
void held_drop(table_t *table, unsigned n);
/* Each leaves entry n as it was when it fails. */
void held_malloc(table_t *table, unsigned n, size_t size);
void held_calloc(table_t *table, unsigned n, size_t size);
void held_aligned(table_t *table, unsigned n, size_t align, size_t size);
void held_posix(table_t *table, unsigned n, size_t align, size_t size);
void held_realloc(table_t *table, unsigned n, size_t size);
void held_reallocf(table_t *table, unsigned n, size_t size);
void held_recalloc(table_t *table, unsigned n, size_t size);
void held_expand(table_t *table, unsigned n, size_t size);
void held_batch(table_t *table, unsigned first, unsigned count, size_t size);
void held_drop_batch(table_t *table, unsigned first, unsigned count);
void table_check(table_t *table);
void table_drop(table_t *table);
/* One random operation. */
void table_step(table_t *table, size_t most);

/* ---- Judgement, with failures off ---- */

void check_all_works(void);
/* Everything was freed: nothing is live, cached or waiting, and all units are free. */
void check_nothing_is_lost(void);

/* ---- Scenarios ---- */

typedef struct scenario {
  const char *name;
  void (*run)(void);
  void (*prepare)(void); /* before the start, may be NULL */
} scenario_t;

extern const scenario_t scenarios[]; /* ends with a NULL name */

#endif
