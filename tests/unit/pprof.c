/* pprof.c - what a profile in pprof's format costs in a process with many named heaps: its walks are counted. */
#include <stdio.h>
#include <unistd.h>

#include "front/alloc.h"
#include "front/named.h"
#include "hakmem/profile.h"
#include "heaps.h"

/* ---- the walks over heaps ---- */

static uint32_t visited;

heap_t *__real_heap_first(void);
heap_t *__wrap_heap_first(void);
heap_t *__wrap_heap_first(void) {
  visited++;
  return __real_heap_first();
}

bool __real_census_next_named(const heap_t **at, census_named_t *named);
bool __wrap_census_next_named(const heap_t **at, census_named_t *named);
bool __wrap_census_next_named(const heap_t **at, census_named_t *named) {
  visited++;
  return __real_census_next_named(at, named);
}

/* ---- checks ---- */

enum { HEAPS = 300, BLOCKS = 2, SIZE = 200000, ENDED = 17 };

static char profile[1 << 20];
static size_t written;

static void write_profile(void) {
  FILE *file = tmpfile();
  REQUIRE(file != NULL);
  CHECK(hak_profile_pprof(fileno(file)));
  ssize_t bytes = pread(fileno(file), profile, sizeof profile, 0);
  REQUIRE(bytes > 0 && (size_t)bytes < sizeof profile);
  written = (size_t)bytes;
  fclose(file);
}

static unsigned times_written(const char *text) {
  unsigned times = 0;
  size_t length = strlen(text);
  for (size_t at = 0; at + length <= written; at++) times += memcmp(profile + at, text, length) == 0;
  return times;
}

/* More heaps than a profile keeps texts of.  The blocks of one lie side by side, and each of them is sampled. */
TEST(many_named_heaps_cost_a_profile_no_walk_for_each_sample) {
  static heap_t *heaps[HEAPS];
  start_heap();
  for (unsigned i = 0; i < HEAPS; i++) {
    char name[HEAP_NAME];
    snprintf(name, sizeof name, "number-%u.", i);
    REQUIRE((heaps[i] = named_new(name)) != NULL);
    for (unsigned n = 0; n < BLOCKS; n++) REQUIRE(alloc_from(heaps[i], SIZE, 1, SPAN_PLAIN, "test") != NULL);
  }
  named_end(heaps[ENDED], "test");
  visited = 0;
  write_profile();
  CHECK(visited < HEAPS * BLOCKS);
  for (unsigned i = 0; i < HEAPS; i++) {
    char text[HEAP_NAME + 8];
    snprintf(text, sizeof text, "heap number-%u.", i);
    CHECK_EQ(times_written(text), i != ENDED);
  }
  check_heaps();
}

/* A small block's slab leads to its heap too, from each of its units; the blocks of threads have no such text. */
TEST(a_profile_names_the_heap_of_small_blocks) {
  start_heap();
  heap_t *heap = named_new("of-small-blocks");
  REQUIRE(heap != NULL);
  for (unsigned i = 0; i < 4000; i++) REQUIRE(block_alloc(3000) != NULL);
  write_profile();
  CHECK_EQ(times_written("heap of-small-blocks"), 0);
  for (unsigned i = 0; i < 4000; i++) REQUIRE(alloc_from(heap, 3000, 1, SPAN_PLAIN, "test") != NULL);
  write_profile();
  CHECK_EQ(times_written("heap of-small-blocks"), 1);
  check_heaps();
}
