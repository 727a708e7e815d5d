#include "oom.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "hakmem/heap.h"
#include "space/region.h"

#define MIB ((size_t)1 << 20)

static table_t table;

static uint64_t next_seed(void) {
  static uint64_t seed;
  if (seed == 0) seed = unit_seed();
  return seed += 2;
}

static void begin(void) { table_init(&table, next_seed()); }

static void end(void) {
  table_check(&table);
  table_drop(&table);
}

/* ---- one thread ---- */

/* Each class in order, then frees that leave gaps, then the gaps again. */
static void run_small(void) {
  begin();
  for (unsigned n = 0; n < HELD_MAX; n++) held_malloc(&table, n, 1 + n % 128 * 256);
  for (unsigned n = 0; n < HELD_MAX; n += 3) held_drop(&table, n);
  for (unsigned n = 0; n < HELD_MAX; n += 3) held_malloc(&table, n, 1 + n * 7 % 1000);
  end();
}

static void run_large(void) {
  begin();
  for (unsigned round = 0; round < 4; round++) {
    for (unsigned n = 0; n < 40; n++) held_malloc(&table, n, 33000 + (size_t)n * n * 1500 * (round + 1));
    for (unsigned n = round; n < 40; n += 2) held_drop(&table, n);
  }
  end();
}

/* Beyond what the zones cover at first. */
static void run_huge(void) {
  begin();
  for (unsigned n = 0; n < 24; n++) held_malloc(&table, n, (size_t)(n + 1) * 2 * MIB);
  for (unsigned n = 0; n < 24; n += 2) held_drop(&table, n);
  held_malloc(&table, 100, 900 * MIB); /* in one growth */
  end();
}

static void run_realloc(void) {
  begin();
  for (size_t size = 10; size < 6 * MIB; size = size * 3 / 2) {
    for (unsigned n = 0; n < 6; n++) held_realloc(&table, n, size + n * 100);
  }
  for (size_t size = 6 * MIB; size > 10; size = size * 2 / 3) {
    for (unsigned n = 0; n < 6; n++) held_realloc(&table, n, size);
  }
  end();
}

static void run_bsd(void) {
  begin();
  for (size_t size = 20; size < 2 * MIB; size = size * 7 / 4) {
    for (unsigned n = 0; n < 4; n++) held_recalloc(&table, n, size);
    for (unsigned n = 4; n < 8; n++) held_reallocf(&table, n, size);
  }
  for (unsigned n = 0; n < 8; n++) held_recalloc(&table, n, 50);
  end();
}

static void run_expand(void) {
  begin();
  for (unsigned n = 0; n < 20; n++) held_malloc(&table, n, 40000 + n * 30000);
  for (unsigned n = 0; n < 20; n += 2) held_drop(&table, n);
  for (unsigned n = 1; n < 20; n += 2) held_expand(&table, n, 200000 + n * 20000);
  for (unsigned n = 1; n < 20; n += 2) held_expand(&table, n, 70000);
  for (unsigned n = 0; n < 20; n++) {
    hak_sized_t sized = hak_alloc_at_least(n * 5000 + 1);
    CHECK((sized.ptr == NULL) == (sized.size == 0));
    hak_free(sized.ptr);
  }
  end();
}

static void run_aligned(void) {
  begin();
  unsigned n = 0;
  for (size_t align = 16; align <= 16 * MIB; align *= 2) {
    held_aligned(&table, n++, align, 100);
    held_aligned(&table, n++, align, align);
    held_posix(&table, n++, align, 40000);
    held_posix(&table, n++, align, 3 * MIB / 2);
  }
  for (unsigned i = 0; i < n; i += 2) held_drop(&table, i);
  for (unsigned i = 0; i < n; i += 2) held_aligned(&table, i, 4096, 9000);
  end();
}

static void run_calloc(void) {
  begin();
  for (unsigned round = 0; round < 4; round++) {
    for (unsigned n = 0; n < 60; n++) held_calloc(&table, n, n % 4 != 0 ? n * 50 + 1 : 30000 + n * 4000);
    if (round == 2) (void)hak_collect(true);
  }
  end();
}

static void run_batch(void) {
  begin();
  for (unsigned round = 0; round < 3; round++) {
    for (unsigned n = 0; n < 8; n++) held_batch(&table, n * 64, 64, (size_t)16 << (n + round));
    for (unsigned n = round; n < 8; n += 2) held_drop_batch(&table, n * 64, 64);
  }
  held_batch(&table, 0, 40, 100000);
  end();
}

static void run_mixed(void) {
  begin();
  for (int i = 0; i < 800; i++) table_step(&table, i < 400 ? 20000 : 200000);
  end();
}

/* ---- giving back ---- */

static void run_trim(void) {
  begin();
  for (unsigned round = 0; round < 6; round++) {
    for (unsigned n = 0; n < 120; n++) held_malloc(&table, n, n % 3 == 0 ? 50000 + n * 900 : n * 100);
    for (unsigned n = round % 3; n < 120; n += 3) held_drop(&table, n);
    fake_os_pass_time(400);
    (void)hak_collect(round % 2 == 0);
    (void)hak_malloc_trim(0);
    table_check(&table);
  }
  end();
}

static void run_figures(void) {
  begin();
  for (unsigned n = 0; n < 100; n++) {
    held_malloc(&table, n, n * n * 20);
    if (n % 10 != 0) continue;
    hak_stats_t stats = {.struct_size = sizeof stats};
    CHECK(hak_stats_get(&stats));
    CHECK_EQ(stats.committed, stats.live + stats.cached + stats.remote + stats.slab_free + stats.span_free);
    if (!hak_stats_text(2)) CHECK(fake_os_injected() > 0);
    if (!hak_stats_json(2)) CHECK(fake_os_injected() > 0);
  }
  end();
}

/* ---- the start ---- */

static void prepare_options(void) {
  fake_os_set_file("hakmem.conf", "decay_ms=0\nbin_kb=nonsense\nstats=1\n");
  setenv("HAKMEM_CONF", "hakmem.conf", 1);
  setenv("HAKMEM_UNKNOWN", "1", 1);
}

static void run_boot(void) {
  begin();
  for (unsigned n = 0; n < 30; n++) {
    held_malloc(&table, n, n * 1000);
    held_calloc(&table, n + 30, 100000);
    held_drop(&table, n / 2);
  }
  end();
}

/* ---- threads ---- */

enum { THREADS = 6 };
static table_t tables[THREADS];
static pthread_barrier_t all_attached;

static void *step_in_thread(void *own) {
  for (int i = 0; i < 100; i++) table_step(own, 60000);
  table_check(own);
  return NULL;
}

static void start_and_join(pthread_t *thread, void *(*run)(void *), void *argument) {
  if (pthread_create(thread, NULL, run, argument) == 0) pthread_join(*thread, NULL);
}

/* One thread after another; each leaves its blocks, which this thread frees later. */
static void run_attach(void) {
  pthread_t thread;
  for (unsigned i = 0; i < THREADS; i++) {
    table_init(&tables[i], next_seed());
    start_and_join(&thread, step_in_thread, &tables[i]);
    if (i > 0) table_drop(&tables[i - 1]);
  }
  table_drop(&tables[THREADS - 1]);
}

static void *step_together(void *own) {
  void *first = hak_malloc(64);
  pthread_barrier_wait(&all_attached);
  (void)step_in_thread(own);
  pthread_barrier_wait(&all_attached);
  hak_free(first);
  return NULL;
}

/* All threads at the same time: a heap for each, with concurrent growth and purges. */
static void run_together(void) {
  pthread_t threads[THREADS];
  pthread_barrier_init(&all_attached, NULL, THREADS);
  for (unsigned i = 0; i < THREADS; i++) {
    table_init(&tables[i], next_seed());
    tables[i].alone = false;
    if (pthread_create(&threads[i], NULL, step_together, &tables[i]) != 0) abort();
  }
  for (unsigned i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  for (unsigned i = 0; i < THREADS; i++) table_drop(&tables[i]);
}

static void *fill_in_thread(void *own) {
  for (unsigned n = 0; n < 300; n++) held_malloc(own, n, 16 + n * 37 % 9000);
  return NULL;
}

static void *drop_in_thread(void *own) {
  for (unsigned n = 0; n < 300; n += 2) held_drop(own, n);
  return NULL;
}

/* Threads without a heap free blocks of this thread; this thread frees blocks of ended threads. */
static void run_remote(void) {
  pthread_t thread;
  begin();
  (void)fill_in_thread(&table);
  start_and_join(&thread, drop_in_thread, &table);
  (void)fill_in_thread(&table);
  for (unsigned i = 0; i < 3; i++) {
    table_init(&tables[i], next_seed());
    start_and_join(&thread, fill_in_thread, &tables[i]);
    (void)drop_in_thread(&tables[i]);
    start_and_join(&thread, drop_in_thread, &table);
  }
  for (unsigned i = 0; i < 3; i++) table_drop(&tables[i]);
  end();
}

static void *fill_heap(void *heap) {
  for (unsigned n = 0; n < 200; n++) {
    errno = 0;
    char *block = hak_heap_malloc(heap, n % 10 != 0 ? n * 37 : 40000 + n * 1000);
    if (block == NULL) CHECK_EQ(errno, ENOMEM);
    else if (n % 10 == 0) block = hak_realloc(block, 100000 + n * 2000);
    if (n % 3 == 0) hak_free(block);
  }
  return NULL;
}

/* The thread's first call may fail; it then has changed nothing. */
static void *take_by_default(void *heap) {
  errno = 0;
  (void)hak_heap_set_default(heap);
  bool refused = errno == ENOMEM;
  CHECK(hak_heap_set_default(heap) == (refused ? NULL : heap));
  void *block = hak_malloc(300);
  if (block != NULL && !refused) CHECK(hak_heap_of(block) == heap);
  hak_free(block);
  return NULL;
}

/* Named heaps, filled by two threads, end with blocks in them; a block whose realloc was refused still belongs to its heap. */
static void run_heaps(void) {
  pthread_t thread;
  for (unsigned round = 0; round < 4; round++) {
    errno = 0;
    hak_heap_t *heap = hak_heap_new("oom");
    if (heap == NULL) {
      CHECK_EQ(errno, ENOMEM);
      continue;
    }
    (void)fill_heap(heap);
    start_and_join(&thread, fill_heap, heap);
    start_and_join(&thread, take_by_default, heap);
    hak_heap_t *before = hak_heap_set_default(heap);
    void *block = hak_malloc(300);
    (void)hak_heap_set_default(before);
    hak_free(block);
    hak_heap_free(heap);
  }
}

const scenario_t scenarios[] = {
    {"small", run_small, NULL},          {"large", run_large, NULL},   {"huge", run_huge, NULL},
    {"realloc", run_realloc, NULL},      {"bsd", run_bsd, NULL},       {"expand", run_expand, NULL},
    {"aligned", run_aligned, NULL},      {"calloc", run_calloc, NULL}, {"batch", run_batch, NULL},
    {"mixed", run_mixed, NULL},          {"trim", run_trim, NULL},     {"figures", run_figures, NULL},
    {"boot", run_boot, prepare_options}, {"attach", run_attach, NULL}, {"together", run_together, NULL},
    {"remote", run_remote, NULL},        {"heaps", run_heaps, NULL},   {NULL, NULL, NULL},
};
