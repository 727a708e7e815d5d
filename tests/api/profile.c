/* profile.c - snapshots of the heap: what three places in the code hold, estimated from the samples alone, and what they allocate while
 * the process is armed. */
#include "api.h"

#include <fcntl.h>
#include <hakmem/profile.h>
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <sys/auxv.h>
#include <sys/wait.h>

#include "places.h"
#include "symbol.h"

enum { SITES = 1 << 16 };

static struct {
  bool (*write)(int fd);
  uint32_t (*tag_set)(uint32_t tag);
  bool (*arm)(uint32_t seconds);
} profile;

static void find_profile(void) {
  ONLY(FAMILY_HAK);
  profile.write = (bool (*)(int))(uintptr_t)symbol_find("hak_profile_write");
  profile.tag_set = (uint32_t (*)(uint32_t))(uintptr_t)symbol_find("hak_tag_set");
  profile.arm = (bool (*)(uint32_t))(uintptr_t)symbol_find("hak_profile_arm");
  NEED(profile.write);
  NEED(profile.tag_set);
  NEED(profile.arm);
}

/* ---- a snapshot ---- */

static struct {
  uint32_t parent;
  uintptr_t address;
} sites[SITES];

static struct {
  double bytes[PLACES], variance[PLACES]; /* estimates */
  unsigned samples[PLACES], of_others, tagged[PLACES];
  unsigned of_4096, of_4096_asked_for_64, asked_for_3000000, large_asked_for_100;
  uint64_t events[PLACES], event_objects[PLACES], event_bytes[PLACES];
  uint64_t rate, classes, checked, wrong;
  uint64_t counted_blocks, counted_bytes; /* while armed, exact */
  uintptr_t program;
  bool begins, ends;
} seen;

static unsigned place_of(uint32_t site) {
  unsigned i = 0;
  for (; i < 64 && site != 0 && site < SITES; i++, site = sites[site].parent) {
    unsigned place = place_at(sites[site].address);
    if (place != PLACES) return place;
  }
  return PLACES;
}

static void see_sample(const char *line) {
  uint64_t address, size, asked, chance, site, tag, age, stale;
  int words = sscanf(line, "sample %" SCNx64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64, &address,
                     &size, &asked, &chance, &site, &tag, &age, &stale);
  CHECK_EQ(words, 8);
  CHECK(asked <= size && age < 10000);
  seen.of_4096 += size == 4096;
  seen.of_4096_asked_for_64 += size == 4096 && asked == 64;
  seen.asked_for_3000000 += asked == 3000000;
  seen.large_asked_for_100 += size > 65536 && asked == 100;
  unsigned place = place_of((uint32_t)site);
  if (place == PLACES) {
    seen.of_others++;
    return;
  }
  double p = chance == 0 ? 1 : (double)chance / 4294967296.0;
  seen.samples[place]++;
  seen.tagged[place] += tag == 7;
  seen.bytes[place] += (double)size / p;
  seen.variance[place] += (double)size * (double)size * (1 - p) / (p * p);
}

static void see_event(const char *line) {
  uint32_t site;
  uint64_t events, objects, bytes;
  CHECK_EQ(sscanf(line, "event %" SCNu32 " %" SCNu64 " %" SCNu64 " %" SCNu64, &site, &events, &objects, &bytes), 4);
  unsigned place = place_of(site);
  if (place == PLACES) return;
  seen.events[place] += events;
  seen.event_objects[place] += objects;
  seen.event_bytes[place] += bytes;
}

static void see_line(const char *line, bool sites_alone) {
  uint32_t number, parent;
  uint64_t address, size, slab, slabs, live;
  if (sscanf(line, "site %" SCNu32 " %" SCNu32 " %" SCNx64, &number, &parent, &address) == 3) {
    REQUIRE(number < SITES);
    sites[number].parent = parent;
    sites[number].address = address;
  }
  if (sites_alone) return;
  seen.begins |= strcmp(line, "hakmem-snapshot 1") == 0;
  seen.ends |= strcmp(line, "end") == 0;
  (void)sscanf(line, "program %" SCNxPTR, &seen.program);
  (void)sscanf(line, "sample_bytes %" SCNu64, &seen.rate);
  (void)sscanf(line, "sites %*u %" SCNu64 " %" SCNu64, &seen.checked, &seen.wrong);
  if (sscanf(line, "class %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64, &size, &slab, &slabs, &live) == 4) seen.classes += size * live;
  if (sscanf(line, "large %*u %" SCNu64, &live) == 1) seen.classes += live;
  if (strncmp(line, "sample ", 7) == 0) see_sample(line);
  if (strncmp(line, "event ", 6) == 0) see_event(line);
  if (sscanf(line, "allocated %*u %*u %" SCNu64 " %" SCNu64, &size, &live) == 2) {
    seen.counted_blocks += size;
    seen.counted_bytes += live;
  }
}

/* Reads the file twice, since sites follow the samples that refer to them. */
static void look(void) {
  FILE *file = tmpfile();
  char line[1024];
  REQUIRE(file != NULL && profile.write(fileno(file)));
  memset(sites, 0, sizeof sites);
  memset(&seen, 0, sizeof seen);
  for (int turn = 0; turn < 2; turn++) {
    rewind(file);
    while (fgets(line, sizeof line, file) != NULL) {
      line[strcspn(line, "\n")] = '\0';
      see_line(line, turn == 0);
    }
  }
  fclose(file);
  CHECK(seen.begins && seen.ends);
  CHECK_EQ(seen.program, getauxval(AT_ENTRY));
}

static bool looks(void) {
  look();
  if (seen.rate != 0) return true;
  CHECK(is_secure());
  return false;
}

/* ---- checks ---- */

TEST(samples_tell_who_holds_the_memory) {
  find_profile();
  hold_all();
  if (!looks()) return;
  CHECK_EQ(seen.rate, RATE);
  uint64_t sum = held_bytes[0] + held_bytes[1] + held_bytes[2];
  CHECK(seen.classes >= sum && seen.classes < sum + sum / 10);
  for (unsigned place = 0; place < PLACES; place++) {
    double off = seen.bytes[place] - (double)held_bytes[place], error = sqrt(seen.variance[place]);
    if (fabs(off) > 5 * error + RATE)
      check_fail(__FILE__, __LINE__, "place %u: %g bytes, not %g; the standard error is %g", place, seen.bytes[place],
                 (double)held_bytes[place], error);
    CHECK(error < 0.25 * (double)held_bytes[place]);
  }
}

TEST(samples_tell_what_was_requested) {
  NOT_COUNTED();
  enum { PAGES = 5000, LARGE = 100 };
  static void *pages[PAGES], *large[LARGE];
  find_profile();
  for (int i = 0; i < PAGES; i++) CHECK((pages[i] = api.aligned_alloc(4096, 64)) != NULL);
  for (int i = 0; i < LARGE; i++) CHECK((large[i] = api.aligned_alloc(131072, 100)) != NULL);
  void *growing = api.malloc(2000000), *whole = api.malloc(3000000);
  CHECK(growing != NULL && whole != NULL && (growing = api.realloc(growing, 3000000)) != NULL);
  bool any = looks();
  for (int i = 0; i < PAGES; i++) api.free(pages[i]);
  for (int i = 0; i < LARGE; i++) api.free(large[i]);
  api.free(growing);
  api.free(whole);
  if (!any) return;
  CHECK(seen.of_4096_asked_for_64 > 50 && seen.of_4096_asked_for_64 + 5 > seen.of_4096);
  CHECK(seen.large_asked_for_100 > 10);
  CHECK_EQ(seen.asked_for_3000000, 2);
}

TEST(what_was_freed_is_gone_from_samples) {
  find_profile();
  hold_all();
  let_go(0);
  if (!looks()) return;
  CHECK_EQ(seen.samples[0], 0);
  CHECK(seen.samples[1] > 0 && seen.samples[2] > 0);
  let_go(1);
  let_go(2);
  look();
  CHECK_EQ(seen.samples[1] + seen.samples[2], 0);
}

/* By its innermost calls alone; now and then the whole stack is checked. */
TEST(a_call_is_known_again) {
  NOT_COUNTED();
  enum { BLOCKS = 30000 };
  static void *blocks[BLOCKS];
  find_profile();
  for (unsigned i = 0; i < BLOCKS; i++) blocks[i] = allocate_at(0, 1000);
  bool any = looks();
  for (unsigned i = 0; i < BLOCKS; i++) api.free(blocks[i]);
  if (!any) return;
  CHECK(seen.checked > 0);
  CHECK(seen.wrong <= seen.checked / 4);
}

TEST(samples_have_the_tag_of_their_thread) {
  find_profile();
  CHECK_EQ(profile.tag_set(7), 0);
  for (int i = 0; i < 10000; i++) hold(1);
  CHECK_EQ(profile.tag_set(0), 7);
  for (int i = 0; i < 10000; i++) hold(0);
  if (!looks()) return;
  CHECK(seen.samples[1] > 0 && seen.tagged[1] == seen.samples[1]);
  CHECK(seen.samples[0] > 0 && seen.tagged[0] == 0);
}

static void allocate(unsigned place, unsigned count, size_t bytes) {
  for (unsigned i = 0; i < count; i++) api.free(allocate_at(place, bytes));
}

/* By so many events, several hundred, that chance exceeds the bound once in millions of times. */
static void check_events(unsigned place, double objects, double bytes) {
  CHECK(seen.events[place] > 10);
  double error = 5 / sqrt((double)seen.events[place]);
  if (fabs((double)seen.event_objects[place] / objects - 1) > error || fabs((double)seen.event_bytes[place] / bytes - 1) > error)
    check_fail(__FILE__, __LINE__, "place %u: %g objects of %g, %g bytes of %g, by %g events", place, (double)seen.event_objects[place],
               objects, (double)seen.event_bytes[place], bytes, (double)seen.events[place]);
}

/* Exact to the block and byte, if no other thread allocates. */
static void check_counted(uint64_t blocks, uint64_t bytes) {
  if (strcmp(check_context(), "beside") == 0) {
    CHECK(seen.counted_blocks >= blocks && seen.counted_bytes >= bytes);
    return;
  }
  CHECK_EQ(seen.counted_blocks, blocks);
  CHECK_EQ(seen.counted_bytes, bytes);
}

TEST(what_is_allocated_while_armed_is_counted) {
  find_profile();
  allocate(0, 300000, 160);
  CHECK(profile.arm(0)); /* it was not armed before */
  look();
  CHECK_EQ(seen.events[0], 0);
  CHECK(profile.arm(600) && profile.arm(0) && profile.arm(600));
  allocate(0, 1200000, 160);
  allocate(1, 80000, 2000);
  allocate(2, 40, 1 << 20);
  CHECK(profile.arm(0));
  look();
  check_counted(1200000 + 80000 + 40, UINT64_C(1200000) * 160 + UINT64_C(80000) * 2000 + (UINT64_C(40) << 20));
  check_events(0, 1200000, 1200000 * 160.0);
  check_events(1, 80000, 80000 * 2000.0);
  check_events(2, 40, 40 * (double)(1 << 20));
  uint64_t events = seen.events[0];
  allocate(0, 300000, 160);
  look();
  CHECK_EQ(seen.events[0], events);
}

static uint64_t bin_hits(void) {
  hak_stats_t stats = {.struct_size = sizeof stats};
  bool (*get)(hak_stats_t *) = (bool (*)(hak_stats_t *))(uintptr_t)symbol_find("hak_stats_get");
  CHECK(get != NULL && get(&stats));
  return stats.bin_hits;
}

/* A count of some allocations only would not be the number of all hits. */
TEST(hits_of_bins_do_not_fall_when_the_process_was_armed) {
  find_profile();
  for (int i = 0; i < 100000; i++) hold(0);
  uint64_t before = bin_hits();
  CHECK(profile.arm(600));
  allocate(1, 100, 64);
  CHECK(profile.arm(0));
  CHECK(bin_hits() >= before);
}

/* For every function a sampled block is like any other. */
TEST(sampled_blocks_are_like_others) {
  find_profile();
  enum { COUNT = 20000 };
  static void *blocks[COUNT];
  for (int i = 0; i < COUNT; i++) {
    size_t bytes = 1 + below(3000);
    REQUIRE((blocks[i] = api.malloc(bytes)) != NULL);
    size_t usable = api.malloc_usable_size(blocks[i]);
    CHECK(usable >= bytes);
    memset(blocks[i], i, usable);
  }
  for (int i = 0; i < COUNT; i++) {
    size_t usable = api.malloc_usable_size(blocks[i]), want = 1 + below(6000);
    size_t kept = usable < want ? usable : want;
    unsigned char *moved = api.realloc(blocks[i], want);
    REQUIRE(moved != NULL);
    CHECK(moved[0] == (unsigned char)i && moved[kept - 1] == (unsigned char)i);
    blocks[i] = moved;
  }
  for (int i = 0; i < COUNT; i++) api.free(blocks[i]);
}

/* The kernel's list of its mappings is empty then. */
static bool first_has_ended(void) {
  char byte;
  int file = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  bool ended = read(file, &byte, 1) <= 0;
  close(file);
  return ended;
}

/* In a process whose first thread has ended: checks whether a snapshot names the process's mappings. */
static void *look_alone(void *unused) {
  char line[1024];
  unsigned mappings = 0;
  FILE *file = tmpfile();
  (void)unused;
  for (int i = 0; i < 20000 && !first_has_ended(); i++) usleep(100); /* an emulator has a list of its own */
  bool written = file != NULL && profile.write(fileno(file));
  if (written) rewind(file);
  while (written && fgets(line, sizeof line, file) != NULL) mappings += strncmp(line, "mapping ", 8) == 0;
  hak_stats_t stats = {.struct_size = sizeof stats};
  bool told = ((bool (*)(hak_stats_t *))(uintptr_t)symbol_find("hak_stats_get"))(&stats);
  _exit(!written ? 2 : (mappings == 0 && !is_secure()) ? 3 : !told || stats.resident == 0 || stats.mappings == 0 ? 4 : 0);
}

TEST(a_process_whose_first_thread_has_ended_tells_of_itself) {
  pthread_t other;
  int status;
  find_profile();
  hold_all();
  pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    if (pthread_create(&other, NULL, look_alone, NULL) != 0) _exit(5);
    pthread_exit(NULL);
  }
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  CHECK(WIFEXITED(status));
  CHECK_EQ(WEXITSTATUS(status), 0);
}

TEST(a_snapshot_that_cannot_be_written_is_said) {
  find_profile();
  CHECK(!profile.write(-1));
}
