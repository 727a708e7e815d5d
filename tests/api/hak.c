/* hak.c - what hakmem offers beyond the C library: in-place growth, sized
 * allocation, batches, collection, statistics and options. */
#include "api.h"

#include <sys/mman.h>
#include <unistd.h>

/* ---- hak_is_live ---- */

TEST(any_address_may_be_asked_about) {
  ONLY(FAMILY_HAK);
  static char mine[64];
  char here[64], *mapping = mmap(NULL, 1 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(!hak.is_live(NULL) && !hak.is_live(mine) && !hak.is_live(here) && !hak.is_live(mapping));
  CHECK(!hak.is_live((void *)1) && !hak.is_live((void *)UINTPTR_MAX) && !hak.is_live((void *)(uintptr_t)strlen));
  munmap(mapping, 1 << 20);
  for EACH_SIZE(size) {
    char *block = fill(api.malloc(size), size, 1), *aligned = api.memalign(4096, size);
    CHECK(hak.is_live(block) && hak.is_live(aligned));
    CHECK(!hak.is_live(block + 1) && (size < 64 || !hak.is_live(block + size / 32 * 16)));
    CHECK(filled(block, size, 1));
    api.free(aligned);
    api.free(block);
    if (strcmp(check_context(), "beside") == 0) continue; /* another thread may have these blocks now */
    CHECK(!hak.is_live(block) && !hak.is_live(aligned));
  }
}

/* Other threads may ask about a block while its thread frees it and its pages are given back. */
TEST(whether_a_block_is_live_is_told_without_reading_it) {
  ONLY(FAMILY_HAK);
  enum { BYTES = 32760, PAGE = 4096 };
  if (sysconf(_SC_PAGESIZE) != PAGE) check_skip("pages of 4 KiB");
  char *block = api.aligned_alloc(PAGE, BYTES), *last = block + BYTES / PAGE * PAGE;
  REQUIRE(block != NULL && mprotect(last, PAGE, PROT_NONE) == 0);
  CHECK(hak.is_live(block));
  CHECK(mprotect(last, PAGE, PROT_READ | PROT_WRITE) == 0);
  api.free(block);
}

/* ---- hak_expand ---- */

TEST(expand_to_the_usable_size_succeeds) {
  ONLY(FAMILY_HAK);
  for EACH_SIZE(size) {
    void *block = fill(api.malloc(size), size, 1);
    size_t usable = api.malloc_usable_size(block);
    errno = MARK;
    CHECK(hak.expand(block, usable));
    CHECK(hak.expand(block, size));
    CHECK_EQ(errno, MARK);
    CHECK(api.malloc_usable_size(block) >= size);
    CHECK(filled(block, size, 1));
    api.free(block);
  }
}

TEST(expand_true_means_usable) {
  ONLY(FAMILY_HAK);
  for EACH_SIZE(size) {
    void *before = fill(api.malloc(size), size, 1), *block = fill(api.malloc(size), size, 2), *after = fill(api.malloc(size), size, 3);
    for (size_t wanted = size; wanted < 4 * size + 100; wanted += size / 3 + 1)
      if (hak.expand(block, wanted)) {
        CHECK(api.malloc_usable_size(block) >= wanted);
        memset((char *)block + size, 0xff, wanted - size);
      }
    CHECK(filled(before, size, 1) && filled(block, size, 2) && filled(after, size, 3));
    api.free(before), api.free(block), api.free(after);
  }
}

TEST(expand_to_less_is_the_size_that_a_sized_free_may_have) {
  ONLY(FAMILY_HAK);
  for EACH_SIZE(size) {
    void *block = fill(api.malloc(size), size, 1);
    size_t less = size / 2 + 1, now = hak.expand(block, less) ? less : size;
    CHECK(api.malloc_usable_size(block) >= now && filled(block, now, 1));
    api.free_sized(block, now);
  }
}

TEST(expand_false_leaves_block_and_errno) {
  ONLY(FAMILY_HAK);
  for EACH_SIZE(size) {
    void *block = fill(api.malloc(size), size, 1);
    size_t usable = api.malloc_usable_size(block);
    errno = MARK;
    for EACH_IMPOSSIBLE(wanted) CHECK(!hak.expand(block, wanted));
    CHECK(!hak.expand(block, (size_t)1 << 60));
    CHECK_EQ(errno, MARK);
    CHECK_EQ(api.malloc_usable_size(block), usable);
    CHECK(filled(block, size, 1));
    api.free(block);
  }
}

TEST(expand_of_a_small_block_beyond_its_class_is_false) {
  ONLY(FAMILY_HAK);
  for (size_t size = 16; size <= 16384; size *= 2) {
    void *first = api.malloc(size), *second = api.malloc(size);
    CHECK(!hak.expand(first, is_secure() ? 2 * size : api.malloc_usable_size(first) + 1)); /* secure: only requested bytes are usable */
    api.free(first), api.free(second);
  }
}

TEST(expand_shrinks_and_grows_back) {
  ONLY(FAMILY_HAK);
  for EACH_SIZE(size) {
    char *block = fill(api.malloc(size), size, 5);
    if (hak.expand(block, size / 2 + 1)) {
      CHECK(filled(block, size / 2 + 1, 5));
      CHECK(api.malloc_usable_size(block) >= size / 2 + 1);
    }
    block = api.realloc(block, size);
    CHECK(block && filled(block, size / 2 + 1, 5));
    api.free_sized(block, size);
  }
}

TEST(expand_grows_large_blocks_where_there_is_room) {
  ONLY(FAMILY_HAK);
  void *block = fill(api.malloc(300000), 300000, 5);
  int grown = 0;
  for (size_t size = 400000; size < 4000000; size += 100000) grown += hak.expand(block, size);
  CHECK(grown > 0 || strcmp(check_context(), "beside") == 0); /* no other thread allocates */
  CHECK(filled(block, 300000, 5));
  api.free(block);
}

/* ---- hak_alloc_at_least ---- */

TEST(alloc_at_least_tells_the_usable_size) {
  ONLY(FAMILY_HAK);
  for EACH_SIZE(size) {
    errno = MARK;
    hak_sized_t got = hak.alloc_at_least(size);
    CHECK_EQ(errno, MARK);
    REQUIRE(got.ptr);
    CHECK(got.size >= size);
    CHECK_EQ(got.size, api.malloc_usable_size(got.ptr));
    CHECK(aligned(got.ptr, 16));
    CHECK(filled(fill(got.ptr, got.size, 1), got.size, 1));
    api.free(got.ptr);
  }
}

TEST(alloc_at_least_may_be_freed_by_either_size) {
  ONLY(FAMILY_HAK);
  for EACH_SIZE(size) {
    api.free_sized(hak.alloc_at_least(size).ptr, size);
    hak_sized_t got = hak.alloc_at_least(size);
    api.free_sized(got.ptr, got.size);
  }
}

TEST(alloc_at_least_of_0_is_a_block) {
  ONLY(FAMILY_HAK);
  hak_sized_t first = hak.alloc_at_least(0), second = hak.alloc_at_least(0);
  CHECK(first.ptr && second.ptr && first.ptr != second.ptr);
  api.free(first.ptr), api.free(second.ptr);
}

TEST(alloc_at_least_failure_is_null_0_and_enomem) {
  ONLY(FAMILY_HAK);
  for EACH_IMPOSSIBLE(size) {
    errno = 0;
    hak_sized_t got = hak.alloc_at_least(size);
    CHECK(!got.ptr);
    CHECK_EQ(got.size, 0);
    CHECK_EQ(errno, ENOMEM);
  }
}

/* ---- Batches ---- */

static void *many[10000];

TEST(batch_gives_all_it_was_asked_for) {
  ONLY(FAMILY_HAK);
  for EACH_SIZE(size) {
    size_t count = size < 2000 ? 1000 : size < 100000 ? 50 : 5;
    errno = MARK;
    CHECK_EQ(hak.malloc_batch(size, count, many), count);
    for (size_t i = 0; i < count; i++) fill(many[i], size, (unsigned)i);
    for (size_t i = 0; i < count; i++) CHECK(filled(many[i], size, (unsigned)i) && aligned(many[i], 16));
    hak.free_batch(many, count);
    CHECK_EQ(errno, MARK);
  }
}

TEST(batch_of_10000_twice_reuses_memory) {
  ONLY(FAMILY_HAK);
  size_t before = check_resident();
  for (int round = 0; round < 30; round++) {
    CHECK_EQ(hak.malloc_batch(1000, 10000, many), 10000);
    for (int i = 0; i < 10000; i++) memset(many[i], 1, 1000);
    hak.free_batch(many, 10000);
  }
  CHECK(SANITIZED || check_resident() < before + ((size_t)32 << 20));
}

TEST(batch_of_size_0_gives_unique_blocks) {
  ONLY(FAMILY_HAK);
  CHECK_EQ(hak.malloc_batch(0, 100, many), 100);
  for (int i = 0; i < 100; i++)
    for (int j = 0; j < i; j++) CHECK(many[i] && many[i] != many[j]);
  hak.free_batch(many, 100);
}

TEST(batch_of_count_0_is_no_action) {
  ONLY(FAMILY_HAK);
  errno = MARK;
  CHECK_EQ(hak.malloc_batch(100, 0, NULL), 0);
  hak.free_batch(NULL, 0);
  CHECK_EQ(errno, MARK);
}

TEST(batch_failure_is_0_and_enomem) {
  ONLY(FAMILY_HAK);
  for EACH_IMPOSSIBLE(size) {
    errno = 0;
    CHECK_EQ(hak.malloc_batch(size, 10, many), 0);
    CHECK_EQ(errno, ENOMEM);
  }
}

TEST(batch_free_skips_null) {
  ONLY(FAMILY_HAK);
  CHECK_EQ(hak.malloc_batch(64, 300, many), 300);
  for (int i = 0; i < 300; i += 3) api.free(many[i]), many[i] = NULL;
  hak.free_batch(many, 300);
}

TEST(batch_mixes_with_single_calls) {
  ONLY(FAMILY_HAK);
  for (int i = 0; i < 2000; i++) many[i] = fill(api.malloc(sizes[(unsigned)i % 70]), sizes[(unsigned)i % 70], (unsigned)i);
  for (unsigned i = 0; i < 2000; i++) CHECK(filled(many[i], sizes[i % 70], i));
  hak.free_batch(many, 2000);
  CHECK_EQ(hak.malloc_batch(200, 1000, many), 1000);
  for (int i = 0; i < 500; i++) api.free(many[i]);
  for (int i = 500; i < 1000; i++) api.free_sized(many[i], 200);
}

static void *free_all(void *unused) {
  hak.free_batch(many, 5000);
  return unused;
}

TEST(batch_freed_in_another_thread) {
  ONLY(FAMILY_HAK);
  for (int round = 0; round < 10; round++) {
    CHECK_EQ(hak.malloc_batch(64, 5000, many), 5000);
    for (unsigned i = 0; i < 5000; i++) fill(many[i], 64, i);
    for (unsigned i = 0; i < 5000; i++) CHECK(filled(many[i], 64, i));
    in_thread(free_all, NULL);
  }
}

/* ---- hak_collect ---- */

static void use_and_free_20_mb(void) {
  for (int i = 0; i < 10000; i++) many[i] = new_bytes(2000, 1);
  for (int i = 0; i < 10000; i++) api.free(many[i]);
}

TEST(collect_by_force_returns_the_memory) {
  ONLY(FAMILY_HAK);
  use_and_free_20_mb();
  size_t full = check_resident();
  errno = MARK;
  CHECK(hak.collect(true) >= (size_t)15 << 20);
  CHECK_EQ(errno, MARK);
  CHECK(check_resident() + ((size_t)15 << 20) <= full);
}

TEST(collect_without_force_keeps_what_is_fresh) {
  ONLY(FAMILY_HAK);
  for (int i = 0; i < 10; i++) {
    use_and_free_20_mb();
    errno = MARK;
    hak.collect(false);
    CHECK_EQ(errno, MARK);
  }
}

/* ---- Statistics ---- */

static hak_stats_t read_stats(void) {
  hak_stats_t stats = {.struct_size = sizeof stats};
  CHECK(hak.stats_get(&stats));
  return stats;
}

static bool quiet(void) { return strcmp(check_context(), "beside") != 0; }

/* A structure of another version: `known` bytes that the caller has, and bytes behind them. */
typedef union other_stats {
  hak_stats_t known;
  unsigned char bytes[4096 + 64];
} other_stats_t;
enum { UNTOUCHED = 0xa5 };

static bool stats_of_size(other_stats_t *stats, uint32_t size) {
  memset(stats, UNTOUCHED, sizeof *stats);
  stats->known.struct_size = size;
  errno = 0;
  return hak.stats_get(&stats->known);
}

static bool all_are(const unsigned char *from, const unsigned char *end, unsigned char value) {
  while (from < end && *from == value) from++;
  return from == end;
}

TEST(stats_of_a_wrong_struct_size_are_einval) {
  ONLY(FAMILY_HAK);
  static const uint32_t wrong[] = {0, 1, 8, 15, 17, sizeof(hak_stats_t) - 4, sizeof(hak_stats_t) + 4, 4096 + 8, UINT32_MAX};
  for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
    other_stats_t stats;
    CHECK(!stats_of_size(&stats, wrong[i]));
    CHECK_EQ(errno, EINVAL);
    CHECK_EQ(stats.known.struct_size, wrong[i]);
    CHECK(all_are(stats.bytes + sizeof(uint32_t), stats.bytes + sizeof stats, UNTOUCHED));
  }
}

/* Programs are not recompiled with every version of the library. */
TEST(stats_fill_an_older_structure_and_nothing_behind_it) {
  ONLY(FAMILY_HAK);
  uint32_t classes = read_stats().classes;
  for (uint32_t size = 16; size <= sizeof(hak_stats_t); size += 8) {
    other_stats_t stats;
    REQUIRE(stats_of_size(&stats, size));
    CHECK_EQ(stats.known.struct_size, size);
    CHECK_EQ(stats.known.classes, classes);
    for (uint32_t field = 8; field < size; field += 8) CHECK(!all_are(stats.bytes + field, stats.bytes + field + 8, UNTOUCHED));
    CHECK(all_are(stats.bytes + size, stats.bytes + sizeof stats, UNTOUCHED));
  }
}

TEST(stats_of_a_newer_structure_are_zero_where_they_are_not_known) {
  ONLY(FAMILY_HAK);
  static const uint32_t newer[] = {sizeof(hak_stats_t) + 8, sizeof(hak_stats_t) + 200, 4096};
  for (size_t i = 0; i < sizeof newer / sizeof newer[0]; i++) {
    other_stats_t stats;
    REQUIRE(stats_of_size(&stats, newer[i]));
    CHECK_EQ(stats.known.struct_size, sizeof(hak_stats_t));
    CHECK(stats.known.committed > 0 && stats.known.sys_mmap > 0);
    CHECK(all_are(stats.bytes + sizeof(hak_stats_t), stats.bytes + newer[i], 0));
    CHECK(all_are(stats.bytes + newer[i], stats.bytes + sizeof stats, UNTOUCHED));
  }
}

/* The fields that programs were compiled with keep their offsets. */
_Static_assert(offsetof(hak_stats_t, requested) == 8 && offsetof(hak_stats_t, committed) == 72, "the first fields of 0.1");
_Static_assert(offsetof(hak_stats_t, sys_other) == 328 && sizeof(hak_stats_t) >= 336, "the last field of 0.1");

TEST(stats_live_follows_the_program) {
  ONLY(FAMILY_HAK);
  for (size_t size = 64; size <= 2000000; size *= 5) {
    size_t count = size < 10000 ? 5000 : 20;
    hak_stats_t before = read_stats();
    CHECK_EQ(hak.malloc_batch(size, count, many), count);
    hak_stats_t during = read_stats();
    hak.free_batch(many, count);
    hak_stats_t after = read_stats();
    uint64_t noise = quiet() ? 0 : 4 << 20;
    CHECK(during.live + noise >= before.live + size * count);
    CHECK(during.live <= before.live + size * count * 3 / 2 + 65536 * 20 + noise);
    CHECK(after.live <= before.live + noise);
  }
}

TEST(stats_committed_is_the_sum_of_its_parts) {
  ONLY(FAMILY_HAK);
  for (int i = 0; i < 5000; i++) many[i] = api.malloc(sizes[(unsigned)i % 80]);
  for (int i = 0; i < 5000; i += 3) api.free(many[i]), many[i] = NULL;
  hak_stats_t stats = read_stats();
  if (quiet()) CHECK_EQ(stats.committed, stats.live + stats.cached + stats.remote + stats.slab_free + stats.span_free);
  CHECK(stats.requested <= stats.live);
  CHECK(stats.purge_pending <= stats.span_free);
  CHECK(stats.committed <= stats.reserved);
  CHECK(stats.heaps_orphaned <= stats.heaps);
  hak.free_batch(many, 5000);
}

TEST(stats_count_slabs_spans_and_system_calls) {
  ONLY(FAMILY_HAK);
  hak_stats_t before = read_stats();
  for (int i = 0; i < 1000; i++) many[i] = api.malloc(i % 2 ? 1000 : 200000);
  hak_stats_t during = read_stats();
  CHECK(during.slabs > before.slabs || !quiet());
  CHECK(during.superslabs > before.superslabs);
  if (quiet()) CHECK_EQ(during.large_blocks - before.large_blocks, 500);
  CHECK(during.large_allocs - before.large_allocs >= 500);
  CHECK(during.refills > before.refills && during.refill_blocks > before.refill_blocks);
  CHECK(during.heaps >= 1 && during.classes > 20 && during.mappings > 3 && during.resident > 100000);
  CHECK(during.metadata > 0 && during.sys_mmap > 0);
  hak.free_batch(many, 1000);
  hak_stats_t after = read_stats();
  CHECK(after.large_frees - before.large_frees >= 500);
  CHECK(after.flushes > before.flushes && after.flush_blocks > before.flush_blocks);
}

TEST(stats_count_remote_frees) {
  ONLY(FAMILY_HAK);
  hak_stats_t before = read_stats();
  for (int i = 0; i < 5000; i++) many[i] = api.malloc(64);
  in_thread(free_all, NULL);
  hak.collect(true); /* they are counted when their owner collects them */
  hak_stats_t after = read_stats();
  CHECK(after.remote_frees - before.remote_frees >= 5000);
  CHECK(after.live <= before.live + (quiet() ? 1 << 16 : 4 << 20)); /* libc keeps the thread's stack and its tables */
}

TEST(stats_resident_is_the_kernel_s) {
  ONLY(FAMILY_HAK);
  use_and_free_20_mb();
  size_t mine = check_resident(), told = (size_t)read_stats().resident;
  CHECK(told + (8 << 20) > mine && mine + (8 << 20) > told);
}

TEST(stats_do_not_allocate) {
  ONLY(FAMILY_HAK);
  int null = check_file();
  hak_stats_t before = read_stats();
  for (int i = 0; i < 20; i++) CHECK(hak.stats_text(null) && hak.stats_json(null));
  hak_stats_t after = read_stats();
  if (quiet()) {
    CHECK_EQ(after.live, before.live);
    CHECK_EQ(after.refills, before.refills);
  }
  close(null);
}

TEST(stats_of_classes) {
  ONLY(FAMILY_HAK);
  /* Blocks of the secure library end with a canary. The last class is for blocks of no bytes. */
  uint32_t classes = read_stats().classes;
  uint64_t last = 0, live = 0, held = is_secure() ? 80 : 64;
  for (int i = 0; i < 1000; i++) many[i] = api.malloc(64);
  for (uint32_t i = 0; i < classes; i++) {
    hak_class_stats_t stats;
    REQUIRE(hak.stats_class(i, &stats));
    if (i == classes - 1) CHECK_EQ(stats.block_size, 0); /* the class of malloc(0) */
    else CHECK(stats.block_size > last && stats.block_size % 16 == 0), last = stats.block_size;
    CHECK(stats.slab_size >= stats.block_size);
    if (stats.block_size == held) CHECK(stats.live_blocks >= 1000 && stats.slabs >= 1);
    live += stats.live_blocks * stats.block_size;
  }
  CHECK(last >= 32768);
  CHECK(live <= read_stats().live || !quiet());
  hak.free_batch(many, 1000);
}

/* In the secure library with what waits in quarantine. */
TEST(stats_of_heaps_sum_to_those_of_all) {
  ONLY(FAMILY_HAK);
  for (int i = 0; i < 1000; i++) many[i] = api.malloc((size_t)i * 20);
  for (int i = 0; i < 1000; i++) api.free(many[i]);
  uint64_t cached = 0, slabs = 0;
  hak_heap_stats_t of_heap;
  for (uint32_t i = 0; hak.stats_heap(i, &of_heap); i++) cached += of_heap.cached, slabs += of_heap.slabs;
  CHECK(cached > 0);
  if (quiet()) CHECK(cached == read_stats().cached && slabs == read_stats().slabs);
}

TEST(stats_of_a_class_that_does_not_exist_are_einval) {
  ONLY(FAMILY_HAK);
  hak_class_stats_t stats;
  errno = 0;
  CHECK(!hak.stats_class(read_stats().classes, &stats));
  CHECK_EQ(errno, EINVAL);
  errno = 0;
  CHECK(!hak.stats_class(UINT32_MAX, &stats));
  CHECK_EQ(errno, EINVAL);
}

/* A JSON reader that keeps nothing: returns what follows a value, or NULL. */
static const char *skip_space(const char *text) { return text + strspn(text, " \t\r\n"); }

static const char *json_string(const char *text) {
  if (*text++ != '"') return NULL;
  while (*text && *text != '"') text += *text == '\\' && text[1] ? 2 : 1;
  return *text ? text + 1 : NULL;
}

static const char *json_value(const char *text) {
  text = skip_space(text);
  if (*text == '"') return json_string(text);
  if (*text == '{' || *text == '[') {
    char close = *text == '{' ? '}' : ']';
    text = skip_space(text + 1);
    if (*text == close) return text + 1;
    for (;;) {
      if (close == '}') {
        if (!(text = json_string(skip_space(text)))) return NULL;
        text = skip_space(text);
        if (*text++ != ':') return NULL;
      }
      if (!(text = json_value(text))) return NULL;
      text = skip_space(text);
      if (*text == close) return text + 1;
      if (*text++ != ',') return NULL;
    }
  }
  size_t literal = strncmp(text, "true", 4) == 0 || strncmp(text, "null", 4) == 0 ? 4 : strncmp(text, "false", 5) == 0 ? 5 : 0;
  char *end;
  if (!literal) strtod(text, &end), literal = (size_t)(end - text);
  return literal ? text + literal : NULL;
}

static bool json_whole(const char *text) {
  const char *end = json_value(text);
  return end && !*skip_space(end);
}

static char text[1 << 20];

static size_t written(bool (*report)(int)) {
  int fd = check_file();
  errno = MARK;
  CHECK(report(fd));
  CHECK_EQ(errno, MARK);
  ssize_t length = pread(fd, text, sizeof text - 1, 0);
  text[length > 0 ? length : 0] = 0;
  close(fd);
  return length > 0 ? (size_t)length : 0;
}

TEST(stats_json_is_json) {
  ONLY(FAMILY_HAK);
  CHECK(json_whole("{\"a\": [1, -2.5e3, {}], \"b\": null}") && !json_whole("{\"a\": 1,}") && !json_whole("[1 2]") && !json_whole("{a: 1}"));
  CHECK(written(hak.stats_json) > 200);
  CHECK(text[0] == '{' && json_whole(text));
  CHECK(strstr(text, "\"live\"") && strstr(text, "\"committed\"") && strstr(text, "\"sys_mmap\""));
}

TEST(stats_text_is_lines) {
  ONLY(FAMILY_HAK);
  size_t length = written(hak.stats_text);
  CHECK(length > 200 && text[length - 1] == '\n');
  CHECK(strstr(text, "live") && strstr(text, "resident"));
  for (size_t i = 0; i < length; i++) CHECK(text[i] == '\n' || (text[i] >= ' ' && text[i] <= '~'));
}

TEST(stats_to_a_bad_descriptor_are_false) {
  ONLY(FAMILY_HAK);
  CHECK(!hak.stats_text(-1));
  CHECK(!hak.stats_json(-1));
  CHECK(!hak.stats_json(1000));
}

/* ---- Options at run time ---- */

TEST(options_json_is_json_and_lists_what_can_be_got) {
  ONLY(FAMILY_HAK);
  CHECK(written(hak.options_json) > 200);
  CHECK(text[0] == '[' && json_whole(text));
  int count = 0, paths = 0;
  for (char *at = text; (at = strstr(at, "{\"name\": \"")) != NULL; count++) {
    char name[64] = "";
    int64_t value;
    REQUIRE(sscanf(at += 10, "%63[a-z_]\", ", name) == 1);
    const char *end = strchr(at, '}');
    bool path = strstr(at, "\"type\": \"path\"") != NULL && strstr(at, "\"type\": \"path\"") < end;
    CHECK(hak.option_get(name, &value) != path);
    const char *runtime = strstr(at, "\"runtime\": true");
    CHECK((!path && hak.option_set(name, value)) == (runtime != NULL && runtime < end));
    paths += path;
  }
  CHECK(count > 10 && paths >= 1);
  CHECK(!hak.options_json(-1));
}

TEST(options_have_names_in_any_case) {
  ONLY(FAMILY_HAK);
  int64_t first = -1, second = -2, third = -3;
  CHECK(hak.option_get("stats", &first) && hak.option_get("STATS", &second) && hak.option_get("Stats", &third));
  CHECK(first == second && second == third);
}

TEST(options_that_do_not_exist_are_einval) {
  ONLY(FAMILY_HAK);
  static const char *const names[] = {"", "nonsense", "hakmem_stats", "stat", "statss", "stats "};
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    int64_t value = MARK;
    errno = 0;
    CHECK(!hak.option_get(names[i], &value));
    CHECK_EQ(errno, EINVAL);
    CHECK_EQ(value, MARK);
    errno = 0;
    CHECK(!hak.option_set(names[i], 1));
    CHECK_EQ(errno, EINVAL);
  }
}

TEST(options_out_of_range_are_einval_and_unchanged) {
  ONLY(FAMILY_HAK);
  int64_t before = -1, after = -2;
  CHECK(hak.option_get("stats", &before));
  errno = 0;
  CHECK(!hak.option_set("stats", INT64_MIN));
  CHECK_EQ(errno, EINVAL);
  errno = 0;
  CHECK(!hak.option_set("stats", INT64_MAX));
  CHECK_EQ(errno, EINVAL);
  CHECK(hak.option_get("stats", &after));
  CHECK_EQ(after, before);
}

TEST(options_are_set_or_left_alone) {
  ONLY(FAMILY_HAK);
  int64_t before = -1, after = -2;
  CHECK(hak.option_get("stats", &before));
  errno = MARK;
  bool set = hak.option_set("stats", 0);
  CHECK_EQ(errno, set ? MARK : EINVAL);
  CHECK(hak.option_get("stats", &after));
  CHECK_EQ(after, set ? 0 : before);
}

TEST(options_of_the_start_cannot_be_set_later) {
  ONLY(FAMILY_HAK);
  static const char *const names[] = {"region_mb", "bin_kb", "guard", "stats"};
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    int64_t value = 0;
    REQUIRE(hak.option_get(names[i], &value));
    errno = 0;
    CHECK(!hak.option_set(names[i], value));
    CHECK_EQ(errno, EINVAL);
  }
  int64_t decay = 0;
  CHECK(hak.option_get("decay_ms", &decay) && hak.option_set("decay_ms", decay) == !is_secure());
}
