/* report.c - where the names come from, and the libc statistics functions:
 * mallinfo, mallinfo2, malloc_info, malloc_stats, malloc_trim and mallopt. */
#include "api.h"

#include <malloc.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "symbol.h"

#pragma GCC diagnostic ignored "-Wdeprecated-declarations" /* mallinfo is part of the contract */

/* ---- Names ---- */

/* Names that serve whichever malloc the process uses: they are functions of their own. */
static bool is_companion(const char *name) {
  static const char *const names[] = {"reallocarray", "recallocarray", "reallocf", "nallocx", "sdallocx"};
  bool found = false;
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) found |= strcmp(name, names[i]) == 0;
  return found;
}

/* Each name must be defined by the object that defines hak_version. If hakmem has a function of its own for the same purpose, with hak_
 * in place of the prefix, the name must lead to that function, unless it is a companion. */
static void come_from_hakmem(const char *const *names, size_t count, const char *prefix) {
  void *hakmem = symbol_find("hak_version");
  if (!hakmem) {
    if (api_is_hakmem()) check_fail(__FILE__, __LINE__, "hak_version is not there");
    check_skip("the system's malloc runs");
  }
  for (size_t i = 0; i < count; i++) {
    char own[64];
    snprintf(own, sizeof own, "hak_%s", names[i] + strlen(prefix));
    void *found = symbol_find(names[i]), *same = symbol_find(own);
    if (!symbol_same_object(found, hakmem)) check_fail(__FILE__, __LINE__, "%s does not come from hakmem", names[i]);
    if (same && same != found && !is_companion(names[i])) check_fail(__FILE__, __LINE__, "%s is not %s", names[i], own);
  }
}

#define COME_FROM_HAKMEM(names, prefix) come_from_hakmem(names, sizeof names / sizeof names[0], prefix)

TEST(libc_names_come_from_hakmem) {
  ONLY(FAMILY_LIBC);
  static const char *const names[] = {
#define X(name, result, arguments) #name,
      API_FUNCTIONS(X)
#undef X
  };
  COME_FROM_HAKMEM(names, "");
#ifdef __GLIBC__ /* in structures of its own */
  CHECK(symbol_same_object(symbol_find("mallinfo"), symbol_find("hak_version")));
  CHECK(symbol_same_object(symbol_find("mallinfo2"), symbol_find("hak_version")));
#endif
}

TEST(internal_names_come_from_hakmem) {
  ONLY(FAMILY_INTERNAL);
  static const char *const names[] = {"__libc_malloc",   "__libc_calloc", "__libc_realloc", "__libc_free",
                                      "__libc_memalign", "__libc_valloc", "__libc_pvalloc"};
  COME_FROM_HAKMEM(names, "__libc_");
}

TEST(hak_names_come_from_hakmem) {
  ONLY(FAMILY_HAK);
  static const char *const names[] = {
#define X(name, result, arguments) "hak_" #name,
      API_FUNCTIONS(X)
#undef X
          "hak_version",
      "hak_expand",
      "hak_alloc_at_least",
      "hak_malloc_batch",
      "hak_free_batch",
      "hak_is_live",
      "hak_collect",
      "hak_stats_get",
      "hak_stats_class",
      "hak_stats_text",
      "hak_stats_json",
      "hak_option_get",
      "hak_option_set",
      "hak_options_json",
  };
  COME_FROM_HAKMEM(names, "hak_");
}

TEST(operator_names_come_from_hakmem) {
  ONLY(FAMILY_LIBC);
  static char here;
  if (symbol_same_object(symbol_find("hak_version"), &here)) check_skip("a member of the archive that C leaves out");
  static const char *const names[] = {
      "_Znwm",
      "_Znam",
      "_ZnwmRKSt9nothrow_t",
      "_ZnamRKSt9nothrow_t",
      "_ZnwmSt11align_val_t",
      "_ZnamSt11align_val_t",
      "_ZnwmSt11align_val_tRKSt9nothrow_t",
      "_ZnamSt11align_val_tRKSt9nothrow_t",
      "_ZdlPv",
      "_ZdaPv",
      "_ZdlPvm",
      "_ZdaPvm",
      "_ZdlPvRKSt9nothrow_t",
      "_ZdaPvRKSt9nothrow_t",
      "_ZdlPvSt11align_val_t",
      "_ZdaPvSt11align_val_t",
      "_ZdlPvmSt11align_val_t",
      "_ZdaPvmSt11align_val_t",
      "_ZdlPvSt11align_val_tRKSt9nothrow_t",
      "_ZdaPvSt11align_val_tRKSt9nothrow_t",
  };
  COME_FROM_HAKMEM(names, "");
}

TEST(version_is_the_header_s) {
  ONLY(FAMILY_HAK);
  NEED(hak.version);
  char text[32];
  snprintf(text, sizeof text, "%d.%d.%d", HAK_VERSION_MAJOR, HAK_VERSION_MINOR, HAK_VERSION_PATCH);
  CHECK(strcmp(hak.version(), text) == 0);
}

/* ---- mallinfo and mallinfo2: 32 MiB more, then less ---- */

enum { HELD = 32 << 20, SLACK = 8 << 20 };

static void hold(void **blocks, size_t size) {
  for (size_t i = 0; i < HELD / size; i++) blocks[i] = new_bytes(size, 1);
}

static void release(void **blocks, size_t size) {
  for (size_t i = 0; i < HELD / size; i++) api.free(blocks[i]);
}

static void *held_blocks[HELD / 64];

#ifdef __GLIBC__ /* the structures are glibc's */

static void follow_mallinfo2(size_t size) {
  ONLY(FAMILY_LIBC);
  struct mallinfo2 before = mallinfo2();
  hold(held_blocks, size);
  struct mallinfo2 during = mallinfo2();
  release(held_blocks, size);
  struct mallinfo2 after = mallinfo2();
  size_t start = before.uordblks + before.hblkhd, grown = during.uordblks + during.hblkhd - start;
  CHECK(grown >= HELD - (1 << 20));
  CHECK(grown <= HELD + HELD / 2);
  CHECK(after.uordblks + after.hblkhd <= start + SLACK);
}

TEST(mallinfo2_counts_small_blocks) { follow_mallinfo2(64); }
TEST(mallinfo2_counts_blocks_of_1000) { follow_mallinfo2(1000); }
TEST(mallinfo2_counts_blocks_of_20000) { follow_mallinfo2(20000); }
TEST(mallinfo2_counts_large_blocks) { follow_mallinfo2((size_t)2 << 20); }

TEST(mallinfo2_fields_add_up) {
  ONLY(FAMILY_LIBC);
  hold(held_blocks, 5000);
  for (size_t i = 0; i < HELD / 5000; i += 2) api.free(held_blocks[i]), held_blocks[i] = NULL;
  struct mallinfo2 info = mallinfo2();
  CHECK(info.uordblks >= HELD / 2 - (1 << 20));
  CHECK(info.arena >= info.uordblks);
  CHECK(info.arena >= info.fordblks);
  if (strcmp(check_context(), "beside") != 0) CHECK_EQ(info.arena, info.uordblks + info.fordblks);
  release(held_blocks, 5000);
}

TEST(mallinfo_agrees_with_mallinfo2) {
  ONLY(FAMILY_LIBC);
  hold(held_blocks, 1000);
  struct mallinfo2 wide = mallinfo2();
  struct mallinfo narrow = mallinfo();
  release(held_blocks, 1000);
  CHECK((size_t)narrow.uordblks + SLACK >= wide.uordblks && wide.uordblks + SLACK >= (size_t)narrow.uordblks);
  CHECK(narrow.uordblks > HELD / 2);
}

TEST(mallinfo_stops_at_the_largest_int) {
  ONLY(FAMILY_LIBC);
  NEED(api.malloc_good_size); /* glibc's figures wrap */
  void *block = api.malloc((size_t)3 << 30);
  REQUIRE(block);
  CHECK_EQ(mallinfo().uordblks, INT32_MAX);
  CHECK(mallinfo2().uordblks >= (size_t)3 << 30);
  api.free(block);
}

TEST(mallinfo_keeps_errno) {
  ONLY(FAMILY_LIBC);
  errno = MARK;
  CHECK(mallinfo().arena >= 0);
  CHECK(mallinfo2().arena + 1 > 0);
  CHECK_EQ(errno, MARK);
}

#endif

/* ---- malloc_info ---- */

/* Elements nest and close, and nothing follows the root: enough to detect a broken writer. */
static bool well_formed(const char *text) {
  char open[32][32];
  int depth = 0, roots = 0;
  while (*text) {
    if (*text != '<') {
      if (depth == 0 && !strchr(" \t\r\n", *text)) return false;
      text++;
      continue;
    }
    const char *end = strchr(text, '>');
    size_t name = strcspn(++text, " \t\r\n/>");
    if (!end) return false;
    if (*text == '?') {
      if (depth || roots || end[-1] != '?') return false;
    } else if (*text == '/') {
      size_t length = strcspn(++text, " >");
      if (!depth || strlen(open[depth - 1]) != length || strncmp(open[--depth], text, length) != 0) return false;
    } else {
      unsigned quotes = 0;
      for (const char *c = text; c < end; c++) quotes += *c == '"';
      if (!name || name >= 32 || quotes % 2) return false;
      if (!depth && roots++) return false;
      if (end[-1] != '/') {
        if (depth == 32) return false;
        memcpy(open[depth], text, name), open[depth++][name] = 0;
      }
    }
    text = end + 1;
  }
  return depth == 0 && roots == 1;
}

TEST(malloc_info_is_well_formed_xml) {
  static char text[1 << 20];
  CHECK(!well_formed("<a><b></a></b>") && !well_formed("<a/><b/>") && !well_formed("<a>") && !well_formed("<a x=\"1></a>"));
  for (int round = 0; round < 3; round++) {
    FILE *stream = fmemopen(text, sizeof text, "w");
    REQUIRE(stream);
    CHECK_EQ(api.malloc_info(0, stream), 0);
    fclose(stream);
    CHECK(strncmp(text, "<malloc version=", 16) == 0);
    CHECK(well_formed(text));
    for (int i = 0; i < 1000; i++) held_blocks[i] = api.malloc(sizes[(size_t)i % size_count / 2]);
  }
  for (int i = 0; i < 1000; i++) api.free(held_blocks[i]);
}

TEST(malloc_info_to_a_stream_that_allocates) {
  char *text = NULL;
  size_t size = 0;
  FILE *stream = open_memstream(&text, &size);
  REQUIRE(stream);
  CHECK_EQ(api.malloc_info(0, stream), 0);
  fclose(stream);
  CHECK(text && size > 40 && well_formed(text));
  free(text);
}

TEST(malloc_info_tells_more_after_more) {
  static char first[1 << 20], second[1 << 20];
  FILE *stream = fmemopen(first, sizeof first, "w");
  api.malloc_info(0, stream), fclose(stream);
  hold(held_blocks, 1000);
  stream = fmemopen(second, sizeof second, "w");
  api.malloc_info(0, stream), fclose(stream);
  release(held_blocks, 1000);
  CHECK(strcmp(first, second) != 0);
}

/* The number behind the text, which must be there. */
static unsigned long long number_behind(const char *in, const char *text) {
  const char *at = strstr(in, text);
  if (!at) check_fail(__FILE__, __LINE__, "%s is not there", text);
  return at ? strtoull(at + strlen(text), NULL, 10) : 0;
}

/* What is mapped alone is told with its bytes, which the heap's own do not include. */
TEST(malloc_info_has_the_bytes_of_large_blocks) {
  static char text[1 << 20];
  enum { LARGE = 8 << 20, BLOCKS = 10 };
  unsigned long long mapped[2], count[2], heap[2], system[2];
  for (int turn = 0; turn < 2; turn++) {
    for (int i = 0; i < BLOCKS * turn; i++) REQUIRE((held_blocks[i] = api.malloc(LARGE)) != NULL);
    FILE *stream = fmemopen(text, sizeof text, "w");
    REQUIRE(stream && api.malloc_info(0, stream) == 0);
    fclose(stream);
    const char *outside = strstr(text, "</heap>");
    for (const char *next = outside; next; next = strstr(next + 1, "</heap>")) outside = next;
    REQUIRE(outside);
    count[turn] = number_behind(outside, "<total type=\"mmap\" count=\"");
    const char *size = strstr(outside, "<total type=\"mmap\"");
    mapped[turn] = number_behind(size ? size : "", "size=\"");
    heap[turn] = number_behind(text, "<system type=\"current\" size=\"");
    system[turn] = number_behind(outside, "<system type=\"current\" size=\"");
    CHECK(!api_is_hakmem() || heap[turn] == system[turn]);
  }
  for (int i = 0; i < BLOCKS; i++) api.free(held_blocks[i]);
  if (!api_is_hakmem() || strcmp(check_context(), "beside") == 0) return;
  CHECK_EQ(count[1] - count[0], BLOCKS);
  CHECK(mapped[1] - mapped[0] >= (unsigned long long)BLOCKS * LARGE);
  CHECK(mapped[1] - mapped[0] < (unsigned long long)BLOCKS * (LARGE + 65536));
  CHECK(system[1] < system[0] + (unsigned long long)BLOCKS * LARGE);
}

TEST(malloc_info_with_options_is_einval) {
  char text[4096];
  FILE *stream = fmemopen(text, sizeof text, "w");
  CHECK_EQ(api.malloc_info(1, stream), EINVAL);
  CHECK_EQ(api.malloc_info(-1, stream), EINVAL);
  CHECK_EQ(ftell(stream), 0);
  fclose(stream);
}

/* ---- malloc_stats ---- */

TEST(malloc_stats_writes_to_stderr_only) {
  char text[4096];
  int error = check_file(), output = check_file();
  int saved_error = dup(STDERR_FILENO), saved_output = dup(STDOUT_FILENO);
  dup2(error, STDERR_FILENO), dup2(output, STDOUT_FILENO);
  api.malloc_stats();
  fflush(stderr), fflush(stdout);
  dup2(saved_error, STDERR_FILENO), dup2(saved_output, STDOUT_FILENO);
  ssize_t length = pread(error, text, sizeof text, 0);
  CHECK(length > 40);
  CHECK(length == sizeof text || text[length - 1] == '\n');
  CHECK_EQ(pread(output, text, sizeof text, 0), 0);
}

TEST(malloc_stats_does_not_fail_without_stderr) {
  int saved = dup(STDERR_FILENO);
  close(STDERR_FILENO);
  api.malloc_stats();
  dup2(saved, STDERR_FILENO);
  void *block = api.malloc(100);
  CHECK(block);
  api.free(block);
}

/* ---- malloc_trim ---- */

static void trim_after(size_t size) {
  hold(held_blocks, size);
  size_t full = check_resident();
  release(held_blocks, size);
  bool given = api.malloc_trim(0) == 1;
  CHECK(given || is_secure()); /* the secure library gives large blocks back when they are freed */
  CHECK(check_resident() + HELD * 3 / 4 < full);
}

TEST(malloc_trim_returns_small_blocks) { trim_after(64); }
TEST(malloc_trim_returns_blocks_of_1000) { trim_after(1000); }
TEST(malloc_trim_returns_blocks_of_60000) { trim_after(60000); }

TEST(malloc_trim_returns_large_blocks) {
  NEED(api.malloc_good_size); /* glibc has already unmapped them */
  trim_after((size_t)1 << 20);
}

/* By system calls, since under sanitizers mlock does nothing. */
static void trim_locked_after(size_t size) {
  enum { GIVE_BACK_LOCKED = 24 }; /* MADV_DONTNEED_LOCKED, since Linux 5.18 */
  NEED(api.malloc_good_size);     /* glibc keeps what lies below its heap's top */
  if (prctl(PR_GET_SECCOMP) > 0) check_skip("a filter of the process's own may forbid it"); /* then hakmem does not ask */
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  char *probe = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(probe != MAP_FAILED);
  *probe = 1;
  if (syscall(SYS_mlock, probe, page) != 0) check_skip("nothing may be locked here");
  if (madvise(probe, page, GIVE_BACK_LOCKED) != 0 || *probe != 0) check_skip("the kernel keeps locked pages");
  if (syscall(SYS_mlockall, MCL_CURRENT | MCL_FUTURE) != 0) check_skip("not all may be locked here");
  trim_after(size);
  CHECK(syscall(SYS_munlockall) == 0);
}
TEST(malloc_trim_returns_locked_blocks) { trim_locked_after(1000); }
TEST(malloc_trim_returns_locked_large_blocks) {
  if (is_secure()) check_skip("some freed large blocks stay, cleared");
  trim_locked_after((size_t)1 << 20);
}

TEST(malloc_trim_leaves_live_blocks_alone) {
  hold(held_blocks, 1000);
  for (size_t i = 0; i < HELD / 1000; i++) fill(held_blocks[i], 1000, (unsigned)i);
  for (size_t i = 0; i < HELD / 1000; i++)
    if (i % 64) api.free(held_blocks[i]);
  api.malloc_trim(0);
  for (size_t i = 0; i < HELD / 1000; i += 64) CHECK(filled(held_blocks[i], 1000, (unsigned)i));
  for (size_t i = 0; i < HELD / 1000; i += 64) api.free(held_blocks[i]);
}

TEST(malloc_trim_leaves_zero_memory_zero) {
  for (int round = 0; round < 3; round++) {
    for (size_t size = 16; size < 2000000; size = size * 3 + 5) dirty(size);
    api.malloc_trim(0);
    for (size_t size = 16; size < 2000000; size = size * 3 + 5) {
      void *block = api.calloc(1, size);
      CHECK(block && all_bytes(block, size, 0));
      memset(block, 0xff, size);
      api.free(block);
    }
  }
}

TEST(malloc_trim_keeps_errno) {
  hold(held_blocks, 1000);
  release(held_blocks, 1000);
  errno = MARK;
  int code = api.malloc_trim(SIZE_MAX);
  CHECK(code == 0 || code == 1);
  code = api.malloc_trim(0);
  CHECK(code == 0 || code == 1);
  CHECK_EQ(errno, MARK);
}

/* ---- mallopt ---- */

#ifndef __GLIBC__ /* the numbers are glibc's, and are valid with any libc */
enum {
  M_MXFAST = 1,
  M_TRIM_THRESHOLD = -1,
  M_TOP_PAD = -2,
  M_MMAP_THRESHOLD = -3,
  M_MMAP_MAX = -4,
  M_PERTURB = -6,
  M_ARENA_TEST = -7,
  M_ARENA_MAX = -8
};
#endif

TEST(mallopt_accepts_glibc_s_parameters) {
  CHECK_EQ(api.mallopt(M_MMAP_THRESHOLD, 1 << 20), 1);
  CHECK_EQ(api.mallopt(M_MMAP_MAX, 100), 1);
  CHECK_EQ(api.mallopt(M_TRIM_THRESHOLD, 1 << 20), 1);
  CHECK_EQ(api.mallopt(M_TOP_PAD, 1 << 16), 1);
  CHECK_EQ(api.mallopt(M_MXFAST, 64), 1);
  CHECK_EQ(api.mallopt(M_ARENA_MAX, 2), 1);
  CHECK_EQ(api.mallopt(M_ARENA_TEST, 2), 1);
  CHECK_EQ(api.mallopt(M_PERTURB, 0), 1);
}

TEST(mallopt_refuses_unknown_parameters) {
  NEED(api.malloc_good_size); /* glibc returns 1 for all */
  CHECK_EQ(api.mallopt(12345, 1), 0);
  CHECK_EQ(api.mallopt(-12345, 1), 0);
}

TEST(mallopt_changes_nothing_for_later_calls) {
  api.mallopt(M_MMAP_THRESHOLD, 0);
  api.mallopt(M_TRIM_THRESHOLD, 0);
  api.mallopt(M_ARENA_MAX, 1);
  for EACH_SIZE(size) {
    void *block = api.malloc(size);
    REQUIRE(block);
    CHECK(filled(fill(block, size, 1), size, 1));
    api.free(block);
  }
}

TEST(mallopt_keeps_errno) {
  errno = MARK;
  api.mallopt(M_ARENA_MAX, 1);
  api.mallopt(12345, 1);
  CHECK_EQ(errno, MARK);
}
