/* view.c - unwind tables that are read in a mapping of their file: the same answers, nothing that stays, and no view of another file. */
#include "os/view.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "os/cfi.h"
#include "os/os.h"
#include "unit.h"

static module_t module_at(uintptr_t text) {
  module_t m = {0};
  module_prepare();
  view_prepare();
  CHECK(module_find(text, &m));
  if (module_path(&m) == NULL) check_skip("the loader tells no paths");
  return m;
}
static module_t own_module(void) {
  module_t m = module_at((uintptr_t)own_module);
  if (m.header - m.start < os_page_size()) check_skip("all of it is on one page");
  return m;
}

/* Bytes of the view that the process has mapped pages of. */
static size_t resident(const view_t *view) {
  static char line[512];
  FILE *smaps = fopen("/proc/self/smaps", "re");
  size_t kb = 0, sum = 0;
  bool here = false;
  CHECK(smaps != NULL);
  while (smaps != NULL && fgets(line, sizeof line, smaps) != NULL) {
    uintptr_t start, end;
    if (sscanf(line, "%zx-%zx ", &start, &end) == 2) here = start == (uintptr_t)view->at;
    else if (here && sscanf(line, "Rss: %zu", &kb) == 1) sum += kb << 10;
  }
  if (smaps != NULL) (void)fclose(smaps);
  return sum;
}

TEST(a_view_has_the_tables_of_its_module) {
  module_t m = own_module();
  errno = 77;
  view_t view = view_of(&m);
  CHECK_EQ(errno, 77);
  REQUIRE(view.at != NULL && m.header >= view.start && m.header < view.end);
  uintptr_t end = module_readable_end(&m, m.header);
  CHECK_EQ(view.end, end);
  CHECK(memcmp(view.at + (m.header - view.start), (const void *)m.header, end - m.header) == 0);
  const uint8_t *until, *at = view_content(&view, &m, m.header, &until);
  CHECK(at == view.at + (m.header - view.start) && until == view.at + (view.end - view.start));
  CHECK_EQ(view_address(&view, at), m.header);
  CHECK_EQ(view_address(&view, until), view.end);
  CHECK(view_content(&view, &m, m.start, &until) == (const uint8_t *)m.start && view_address(&view, (const uint8_t *)m.start) == m.start);
  CHECK(view_content(&view, &m, m.end, &until) == NULL);
  view_t again = view_of(&m);
  CHECK(again.at == view.at);
}

TEST(rules_are_the_same_and_leave_no_pages) {
  module_t m = own_module(), direct = m;
  view_t view = view_of(&m);
  REQUIRE(view.at != NULL);
  direct.end += 4096; /* another module, of which there is no file */
  CHECK(view_of(&direct).at == NULL || view_of(&direct).at != view.at);
  unsigned found = 0, gone = 0;
  for (uintptr_t text = (uintptr_t)own_module; text < (uintptr_t)own_module + 2000; text += 16) {
    cfi_rules_t rules;
    if (!cfi_find(&m, text, &rules)) continue;
    found++;
    gone += resident(&view) == 0;
  }
  CHECK(found > 10 && gone >= found / 2 && gone < found);
  (void)*(volatile const uint8_t *)view.at;
  (void)view_of(&m);
  CHECK(resident(&view) > 0);
  view_drop_all();
  CHECK_EQ(resident(&view), 0);
}

/* ---- no view ---- */

static void expect_none(const module_t *m) {
  view_t view = view_of(m);
  CHECK(view.at == NULL && view.start == view.end);
  cfi_rules_t rules;
  CHECK(cfi_find(m, (uintptr_t)own_module, &rules) || m->start > (uintptr_t)own_module || m->end <= (uintptr_t)own_module);
}

TEST(none_before_they_are_prepared) {
  module_t m;
  module_prepare();
  REQUIRE(module_find((uintptr_t)own_module, &m));
  expect_none(&m);
}

TEST(none_under_a_filter) {
  module_t m = own_module();
  store_relaxed(&os_filters, 1);
  expect_none(&m);
  store_relaxed(&os_filters, 0);
  view_t view = view_of(&m);
  REQUIRE(view.at != NULL);
  (void)*(volatile const uint8_t *)view.at;
  store_relaxed(&os_filters, 1);
  expect_none(&m);
  view_drop_all();
  CHECK(resident(&view) > 0);
}

TEST(none_where_addresses_are_limited) {
  module_t m = own_module();
  CHECK_EQ(setrlimit(RLIMIT_AS, &(struct rlimit){(rlim_t)1 << 46, RLIM_INFINITY}), 0);
  view_prepare();
  expect_none(&m);
}

TEST(none_where_memory_is_locked) {
  module_t m = own_module();
  if (syscall(SYS_mlockall, MCL_FUTURE) != 0) check_skip("memory cannot be locked"); /* sanitizers make nothing of mlockall */
  expect_none(&m);
}

TEST(none_beyond_those_that_there_is_room_for) {
  module_t m = own_module(), other = m;
  CHECK(view_of(&m).at != NULL);
  for (unsigned i = 1; i < 1000; i++) {
    other.end = m.end + i;
    (void)view_of(&other);
  }
  CHECK(view_of(&m).at != NULL);
  other.end = m.end + 5000;
  view_t none = view_of(&other);
  CHECK(none.at == NULL);
}

/* ---- files that are not the module's any more ---- */

static char folder[64], path[128], other_path[128];

static void copy(const char *from, const char *to, size_t most) {
  static char buffer[1 << 16];
  int in = open(from, O_RDONLY | O_CLOEXEC), out = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0700);
  CHECK(in >= 0 && out >= 0);
  ssize_t n;
  while (most > 0 && (n = read(in, buffer, most < sizeof buffer ? most : sizeof buffer)) > 0) {
    CHECK_EQ(write(out, buffer, (size_t)n), n);
    most -= (size_t)n;
  }
  (void)close(in), (void)close(out);
}

/* A library of the system's, loaded from a file of its own. */
static module_t loaded_copy(void) {
  Dl_info info;
  (void)own_module(); /* or there are no views here */
  void *system = dlopen("libm.so.6", RTLD_NOW), *cosine = system != NULL ? dlsym(system, "cos") : NULL;
  if (cosine == NULL || dladdr(cosine, &info) == 0) check_skip("no library to load");
  (void)snprintf(folder, sizeof folder, "/tmp/hakmem-view.%d", (int)getpid());
  (void)snprintf(path, sizeof path, "%s/copy.so", folder);
  (void)snprintf(other_path, sizeof other_path, "%s/other.so", folder);
  CHECK_EQ(mkdir(folder, 0700), 0);
  copy(info.dli_fname, path, SIZE_MAX);
  void *library = dlopen(path, RTLD_NOW);
  cosine = library != NULL ? dlsym(library, "cos") : NULL;
  CHECK(cosine != NULL && dladdr(cosine, &info) != 0 && strcmp(info.dli_fname, path) == 0);
  return module_at((uintptr_t)cosine);
}

static void tidy(void) {
  (void)unlink(path), (void)unlink(other_path);
  CHECK_EQ(rmdir(folder), 0);
}

TEST(a_library_has_one_too) {
  module_t m = loaded_copy();
  CHECK(view_of(&m).at != NULL);
  tidy();
}

TEST(none_of_a_file_that_is_gone) {
  module_t m = loaded_copy();
  CHECK_EQ(unlink(path), 0);
  expect_none(&m);
  tidy();
}

TEST(none_of_a_file_in_its_place) {
  module_t m = loaded_copy();
  copy("/proc/self/exe", other_path, SIZE_MAX);
  CHECK_EQ(rename(other_path, path), 0);
  expect_none(&m);
  tidy();
}

TEST(none_of_a_file_with_another_build_id) {
  module_t m = loaded_copy();
  const uint8_t *id = NULL;
  if (module_build_id(&m, &id) == 0 || (uintptr_t)id - m.start >= 4096) check_skip("no build id to change");
  copy(path, other_path, SIZE_MAX);
  int out = open(other_path, O_WRONLY | O_CLOEXEC);
  uint8_t changed = (uint8_t)~*id;
  CHECK_EQ(pwrite(out, &changed, 1, (off_t)((uintptr_t)id - m.start)), 1);
  (void)close(out);
  CHECK_EQ(rename(other_path, path), 0);
  expect_none(&m);
  tidy();
}

TEST(none_of_a_file_that_was_cut) {
  module_t m = loaded_copy();
  copy(path, other_path, 4096 + 4096);
  CHECK_EQ(rename(other_path, path), 0);
  expect_none(&m);
  tidy();
}

TEST(none_that_the_current_folder_tells) {
  module_t m = loaded_copy();
  CHECK(module_path(&m) != NULL && strcmp(module_path(&m), path) == 0);
  CHECK_EQ(chdir(folder), 0);
  copy(path, other_path, SIZE_MAX);
  void *library = dlopen("./other.so", RTLD_NOW);
  REQUIRE(library != NULL);
  void *cosine = dlsym(library, "cos");
  module_t other;
  CHECK(module_find((uintptr_t)cosine, &other) && module_path(&other) == NULL);
  expect_none(&other);
  CHECK_EQ(chdir("/"), 0);
  tidy();
}

/* ---- threads ---- */

static bool are_equal(const cfi_rules_t *a, const cfi_rules_t *b) {
  bool rows = memcmp(a->row.value, b->row.value, sizeof a->row.value) == 0 && memcmp(a->row.kind, b->row.kind, sizeof a->row.kind) == 0;
  return rows && a->row.cfa == b->row.cfa && a->row.cfa_value == b->row.cfa_value && a->first == b->first && a->last == b->last;
}

static module_t shared_module;
static void *search(void *unused) {
  (void)unused;
  for (unsigned round = 0; round < 300; round++) {
    cfi_rules_t rules, same;
    uintptr_t text = (uintptr_t)own_module + round % 4;
    CHECK(cfi_find(&shared_module, text, &rules) && cfi_find(&shared_module, text, &same));
    CHECK(are_equal(&rules, &same));
  }
  return NULL;
}

TEST(threads_make_and_drop_them_together) {
  shared_module = own_module();
  pthread_t threads[4];
  for (unsigned i = 0; i < 4; i++) CHECK_EQ(pthread_create(&threads[i], NULL, search, NULL), 0);
  for (unsigned i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  CHECK(view_of(&shared_module).at != NULL);
}
