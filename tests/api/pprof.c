/* pprof.c - the profile that the process writes itself: decoded, and compared with the statistics. */
#include "api.h"

#include <fcntl.h>
#include <hakmem/profile.h>
#include <math.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "places.h"
#include "symbol.h"

static bool (*pprof_write)(int fd);

static void find_pprof(void) {
  ONLY(FAMILY_HAK);
  pprof_write = (bool (*)(int))(uintptr_t)symbol_find("hak_profile_pprof");
  NEED(pprof_write);
}

/* ---- messages ---- */

typedef struct message {
  const unsigned char *at, *end;
} message_t;

typedef struct field {
  unsigned number;
  uint64_t value;    /* of a number, */
  message_t content; /* or of a field with a length */
} field_t;

static uint64_t take_varint(message_t *m) {
  uint64_t value = 0;
  for (unsigned shift = 0; m->at < m->end && shift < 64; shift += 7) {
    unsigned char byte = *m->at++;
    value |= (uint64_t)(byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
  check_fail(__FILE__, __LINE__, "a number is cut");
  m->at = m->end;
  return value;
}

static bool take_field(message_t *m, field_t *f) {
  if (m->at >= m->end) return false;
  uint64_t tag = take_varint(m);
  *f = (field_t){.number = (unsigned)(tag >> 3), .value = take_varint(m)};
  if ((tag & 7) == 0) return true;
  if ((tag & 7) == 2 && f->value <= (uint64_t)(m->end - m->at)) {
    f->content = (message_t){m->at, m->at + f->value};
    m->at += f->value;
    return true;
  }
  check_fail(__FILE__, __LINE__, "no field can be %u, of %llu bytes", (unsigned)tag, (unsigned long long)f->value);
  m->at = m->end;
  return false;
}

/* ---- a profile ---- */

enum { LOCATIONS = 1 << 16, MAPPINGS = 512, TEXTS = 2048, CLASSES = 64, SIZE_MOST = 32768 };
enum { OBJECTS, SPACE, SAMPLES, LIVE_VALUES, ALLOC_OBJECTS = LIVE_VALUES, ALLOC_SPACE, VALUES };
static const char *const types[VALUES] = {"inuse_objects", "inuse_space", "samples", "alloc_objects", "alloc_space"};
static unsigned columns = LIVE_VALUES; /* of a profile: all once the process was armed */

static uintptr_t addresses[LOCATIONS];
static uint32_t location_mappings[LOCATIONS];
static struct {
  uintptr_t start, end;
} mapped[MAPPINGS];
static message_t texts[TEXTS];

static struct {
  uint32_t locations, mappings, functions, texts, types;
  uint64_t period, sums[VALUES], rest[VALUES]; /* `rest`: of samples without a label */
  uint64_t small_objects[SIZE_MOST / 16 + 1], large_bytes;
  unsigned inexact; /* samples of blocks that are always sampled, with a wrong number of bytes */
  uint64_t bytes[PLACES], tagged[PLACES];
  uint64_t allocated[PLACES], allocated_bytes[PLACES];
} seen;

static bool text_is(uint64_t number, const char *want) {
  if (number >= seen.texts) return false;
  return (size_t)(texts[number].end - texts[number].at) == strlen(want) && memcmp(texts[number].at, want, strlen(want)) == 0;
}

static void see_type(message_t m) {
  REQUIRE(seen.types < VALUES);
  for (field_t f; take_field(&m, &f);) {
    if (f.number == 1) CHECK(text_is(f.value, types[seen.types]));
  }
  seen.types++;
}

static void see_mapping(message_t m) {
  uint64_t id = 0, build_id = 0, path = 0;
  REQUIRE(seen.mappings < MAPPINGS);
  for (field_t f; take_field(&m, &f);) {
    if (f.number == 1) id = f.value;
    if (f.number == 2) mapped[seen.mappings].start = (uintptr_t)f.value;
    if (f.number == 3) mapped[seen.mappings].end = (uintptr_t)f.value;
    if (f.number == 5) path = f.value;
    if (f.number == 6) build_id = f.value;
  }
  CHECK(path != 0 && path < seen.texts && build_id < seen.texts);
  CHECK_EQ(id, ++seen.mappings);
}

static void see_location(message_t m) {
  uint64_t id = 0, mapping = 0, address = 0;
  bool named = false;
  REQUIRE(seen.locations < LOCATIONS);
  for (field_t f; take_field(&m, &f);) {
    if (f.number == 1) id = f.value;
    if (f.number == 2) mapping = f.value;
    if (f.number == 3) address = f.value;
    named |= f.number == 4;
  }
  CHECK((address != 0) != named);
  addresses[seen.locations] = (uintptr_t)address;
  location_mappings[seen.locations] = (uint32_t)mapping;
  CHECK_EQ(id, ++seen.locations);
}

static void see_function(message_t m) {
  uint64_t id = 0;
  for (field_t f; take_field(&m, &f);) {
    if (f.number == 1) id = f.value;
    if (f.number == 2) CHECK(text_is(f.value, "(unknown)") || text_is(f.value, "(not sampled)"));
  }
  CHECK_EQ(id, ++seen.functions);
}

/* Returns the number; stores the text that names it in `key`. */
static uint64_t label_of(message_t m, uint64_t *key) {
  uint64_t number = 0;
  for (field_t f; take_field(&m, &f);) {
    if (f.number == 1) *key = f.value;
    if (f.number == 3) number = f.value;
  }
  return number;
}

static void see_place(uint32_t location, const uint64_t *values, bool tagged) {
  if (location == 0 || location > seen.locations) {
    check_fail(__FILE__, __LINE__, "there is no location %u", location);
    return;
  }
  unsigned place = place_at(addresses[location - 1]);
  if (place == PLACES) return;
  uint32_t mapping = location_mappings[location - 1];
  REQUIRE(mapping != 0 && mapping <= seen.mappings);
  CHECK(addresses[location - 1] >= mapped[mapping - 1].start && addresses[location - 1] < mapped[mapping - 1].end);
  seen.bytes[place] += values[SPACE];
  if (tagged) seen.tagged[place] += values[SPACE];
  seen.allocated[place] += values[ALLOC_OBJECTS];
  seen.allocated_bytes[place] += values[ALLOC_SPACE];
}

static void see_size(uint64_t size, const uint64_t *values) {
  if (size > SIZE_MOST) {
    seen.large_bytes += values[SPACE];
    seen.inexact += size >= RATE && values[SPACE] != size;
    return;
  }
  CHECK_EQ(values[SPACE], values[OBJECTS] * size);
  seen.small_objects[size / 16] += values[OBJECTS];
}

static void see_sample(message_t m) {
  uint32_t stack[64], depth = 0, column = 0;
  uint64_t values[VALUES] = {0}, size = 0, tag = 0;
  for (field_t f; take_field(&m, &f);) {
    if (f.number == 1 && depth < 64) stack[depth++] = (uint32_t)f.value;
    if (f.number == 2 && column < VALUES) values[column++] = f.value;
    if (f.number != 3) continue;
    uint64_t key = 0, number = label_of(f.content, &key);
    if (text_is(key, "bytes")) size = number;
    else if (text_is(key, "tag")) tag = number;
    else check_fail(__FILE__, __LINE__, "no label is text %u", (unsigned)key);
  }
  CHECK(depth > 0 && column == columns);
  for (unsigned i = 0; i < VALUES; i++) {
    CHECK((int64_t)values[i] >= 0);
    seen.sums[i] += values[i];
    if (size == 0) seen.rest[i] += values[i];
  }
  for (unsigned i = 0; i < depth; i++) see_place(stack[i], values, tag == 7);
  if (size != 0) see_size(size, values);
}

/* Turn 0 reads the texts, turn 1 what they name, turn 2 what refers to that. */
static void see_profile(message_t whole, unsigned turn) {
  for (field_t f; take_field(&whole, &f);) {
    if (turn == 0 && f.number == 6 && seen.texts < TEXTS) texts[seen.texts++] = f.content;
    if (turn == 0 && f.number == 12) seen.period = f.value;
    if (turn == 1 && f.number == 1) see_type(f.content);
    if (turn == 1 && f.number == 3) see_mapping(f.content);
    if (turn == 1 && f.number == 4) see_location(f.content);
    if (turn == 1 && f.number == 5) see_function(f.content);
    if (turn == 1 && f.number == 14) CHECK(text_is(f.value, "inuse_space"));
    if (turn == 2 && f.number == 2) see_sample(f.content);
  }
}

static void look_at(int fd) {
  off_t bytes = lseek(fd, 0, SEEK_END);
  REQUIRE(bytes > 0);
  const unsigned char *whole = mmap(NULL, (size_t)bytes, PROT_READ, MAP_PRIVATE, fd, 0);
  REQUIRE(whole != MAP_FAILED);
  memset(&seen, 0, sizeof seen);
  for (unsigned turn = 0; turn < 3; turn++) see_profile((message_t){whole, whole + bytes}, turn);
  munmap((void *)(uintptr_t)whole, (size_t)bytes);
  CHECK(text_is(0, "") && seen.types == columns && seen.texts < TEXTS);
}

/* ---- what the statistics count ---- */

typedef struct counted {
  hak_stats_t stats;
  hak_class_stats_t of_class[CLASSES];
} counted_t;
static counted_t before, after;

static void count(counted_t *c) {
  memset(c, 0, sizeof *c);
  c->stats.struct_size = sizeof c->stats;
  CHECK(hak.stats_get(&c->stats) && c->stats.classes <= CLASSES);
  for (uint32_t i = 0; i < c->stats.classes; i++) CHECK(hak.stats_class(i, &c->of_class[i]));
}

static bool is_beside(void) { return strcmp(check_context(), "beside") == 0; }

/* With HAKMEM_STATS=1, bin_hits counts every allocation; without it, blocks that are allocated and freed again may not be counted. */
static void check_untouched(void) {
  count(&after);
  CHECK(memcmp(before.of_class, after.of_class, sizeof before.of_class) == 0);
  CHECK_EQ(after.stats.bin_hits, before.stats.bin_hits);
  CHECK_EQ(after.stats.refills, before.stats.refills);
  CHECK_EQ(after.stats.large_allocs, before.stats.large_allocs);
  CHECK_EQ(after.stats.sys_mmap, before.stats.sys_mmap);
}

/* `seen` must equal what `before` has counted, to the block and to the byte. */
static void check_sums(void) {
  uint64_t objects = before.stats.large_blocks;
  for (uint32_t i = 0; i < before.stats.classes; i++) objects += before.of_class[i].live_blocks;
  CHECK_EQ(seen.sums[OBJECTS], objects);
  CHECK_EQ(seen.sums[SPACE], before.stats.live);
}

/* If a class has a sample, all of its blocks are in samples, as long as no block moves. */
static void check_classes(void) {
  for (uint32_t i = 0; i < before.stats.classes; i++) {
    const hak_class_stats_t *c = &before.of_class[i];
    if (c->block_size > SIZE_MOST) continue; /* counted as large: see_size */
    uint64_t shown = seen.small_objects[c->block_size / 16];
    if (c->block_size != 0 && shown != 0) CHECK_EQ(shown, c->live_blocks);
  }
}

/* ---- checks ---- */

TEST(pprof_sums_to_what_is_live) {
  find_pprof();
  int fd = check_file();
  REQUIRE(fd >= 0);
  hold_all();
  for (int i = 0; i < 100; i++) CHECK(api.malloc(0) != NULL && api.malloc(3000000) != NULL);
  count(&before);
  CHECK(pprof_write(fd));
  if (!is_beside()) check_untouched();
  look_at(fd);
  if (!is_beside()) {
    check_sums();
    check_classes();
    CHECK_EQ(seen.inexact, 0);
  }
  CHECK_EQ(seen.period, is_secure() ? 0 : RATE);
  CHECK_EQ(seen.rest[SAMPLES], 0);
  CHECK(is_secure() ? seen.rest[SPACE] == seen.sums[SPACE] : seen.rest[SPACE] < seen.sums[SPACE] / 100);
  CHECK(is_secure() || seen.large_bytes >= (uint64_t)100 * 3000000);
}

TEST(pprof_tells_who_holds_the_memory) {
  find_pprof();
  int fd = check_file();
  uint32_t (*tag_set)(uint32_t) = (uint32_t (*)(uint32_t))(uintptr_t)symbol_find("hak_tag_set");
  REQUIRE(fd >= 0 && tag_set != NULL);
  hold_all();
  let_go(1);
  /* A record that was opened too often in this second keeps the data of an earlier block, with the tag of this one. */
  usleep(1100000);
  (void)tag_set(7);
  while (held_bytes[1] < HELD / 4) hold(1);
  (void)tag_set(0);
  CHECK(pprof_write(fd));
  look_at(fd);
  for (unsigned place = 0; place < PLACES && !is_secure(); place++) {
    double off = (double)seen.bytes[place] - (double)held_bytes[place], error = sqrt((double)RATE * (double)held_bytes[place]);
    if (fabs(off) > 5 * error)
      check_fail(__FILE__, __LINE__, "place %u: %llu bytes, not %llu; the standard error is %g", place,
                 (unsigned long long)seen.bytes[place], (unsigned long long)held_bytes[place], error);
    /* Beside a busy thread, a block or two of another place in hold_all may seem to be of this one. */
    if (place != 1) CHECK_EQ(seen.tagged[place], 0);
    else if (is_beside()) CHECK(seen.bytes[place] - seen.tagged[place] <= 4 * (uint64_t)RATE);
    else CHECK_EQ(seen.tagged[place], seen.bytes[place]);
  }
}

/* A pipe stops the writer in the middle of its second pass. */
static void *write_slowly(void *fd) {
  static bool good;
  good = pprof_write(*(int *)fd);
  close(*(int *)fd);
  return &good;
}

static void drain(int from, int to) {
  char some[4096];
  for (ssize_t bytes; (bytes = read(from, some, sizeof some)) > 0;) CHECK_EQ(write(to, some, (size_t)bytes), bytes);
}

/* Waits until the pipe has data, and no more comes. */
static void wait_until_stuck(int fd) {
  for (int last = -1, now = 0; now == 0 || now != last;) {
    last = now;
    usleep(20000);
    REQUIRE(ioctl(fd, FIONREAD, &now) == 0);
  }
}

static void write_while(void (*move)(void)) {
  int fd = check_file(), ends[2];
  pthread_t thread;
  void *good = NULL;
  REQUIRE(fd >= 0 && pipe(ends) == 0 && fcntl(ends[1], F_SETPIPE_SZ, 4096) >= 0);
  REQUIRE(pthread_create(&thread, NULL, write_slowly, &ends[1]) == 0);
  wait_until_stuck(ends[0]);
  count(&before);
  move();
  drain(ends[0], fd);
  REQUIRE(pthread_join(thread, &good) == 0);
  CHECK(*(bool *)good);
  look_at(fd);
  if (!is_beside()) check_sums();
}

static void blocks_go(void) { let_go(0); }
static void blocks_come(void) {
  while (held_bytes[2] < HELD) hold(2);
}

TEST(pprof_keeps_its_sums_while_blocks_go) {
  find_pprof();
  hold_all();
  write_while(blocks_go);
  CHECK(is_secure() || seen.rest[SPACE] > seen.sums[SPACE] / 10);
}

TEST(pprof_keeps_its_sums_while_blocks_come) {
  find_pprof();
  hold_all();
  let_go(0); /* so that new blocks lie where the writer has not been yet */
  int fd = check_file();
  CHECK(pprof_write(fd));
  look_at(fd);
  uint64_t samples = seen.sums[SAMPLES];
  write_while(blocks_come);
  CHECK(is_secure() || seen.sums[SAMPLES] > samples + samples / 10); /* they are counted too, without a share of the estimate */
}

TEST(pprof_needs_no_memory) {
  UNSANITIZED();
  find_pprof();
  int fd = check_file();
  struct rlimit limit = {(size_t)400 << 20, RLIM_INFINITY};
  REQUIRE(fd >= 0 && setrlimit(RLIMIT_AS, &limit) == 0);
  while (api.malloc(30000) != NULL) continue;
  while (api.malloc(16) != NULL) continue;
  count(&before);
  CHECK(pprof_write(fd));
  if (is_beside()) return;
  check_untouched();
  limit.rlim_cur = RLIM_INFINITY;
  REQUIRE(setrlimit(RLIMIT_AS, &limit) == 0);
  look_at(fd);
  check_sums();
}

static void allocate(unsigned place, unsigned count, size_t bytes) {
  for (unsigned i = 0; i < count; i++) api.free(allocate_at(place, bytes));
}

/* The sums are exact; two places with the same group of sizes divide it by some 120 events. */
static void check_allocated(void) {
  uint64_t small = seen.allocated[0] + seen.allocated[1], small_bytes = seen.allocated_bytes[0] + seen.allocated_bytes[1];
  if (is_beside()) return;
  CHECK_EQ(small, 400000);
  CHECK_EQ(small_bytes, UINT64_C(400000) * 160);
  CHECK(fabs((double)seen.allocated[0] / (double)small - 0.75) < 5 * sqrt(0.75 * 0.25 / 120));
  /* Both are rounded, and what an event stands for is cut to whole blocks. */
  CHECK(fabs((double)seen.allocated_bytes[0] / 160 - (double)seen.allocated[0]) < 3);
  CHECK_EQ(seen.allocated[2], 40);
  CHECK_EQ(seen.allocated_bytes[2], UINT64_C(40) << 20);
  CHECK_EQ(seen.sums[ALLOC_OBJECTS], 400040);
  CHECK_EQ(seen.sums[ALLOC_SPACE], UINT64_C(400000) * 160 + (UINT64_C(40) << 20));
}

TEST(pprof_tells_what_was_allocated_while_armed) {
  find_pprof();
  bool (*arm)(uint32_t) = (bool (*)(uint32_t))(uintptr_t)symbol_find("hak_profile_arm");
  REQUIRE(arm != NULL && arm(600));
  allocate(0, 300000, 160);
  allocate(1, 100000, 160);
  allocate(2, 40, 1 << 20);
  columns = VALUES;
  for (unsigned turn = 0; turn < 2; turn++) { /* while the process is armed, and after that */
    int fd = check_file();
    count(&before);
    CHECK(pprof_write(fd));
    if (!is_beside()) check_untouched();
    look_at(fd);
    if (!is_beside()) check_sums();
    check_allocated();
    CHECK(arm(0));
  }
}

/* A group of sizes that has no event. */
TEST(pprof_has_what_no_event_tells_of) {
  find_pprof();
  bool (*arm)(uint32_t) = (bool (*)(uint32_t))(uintptr_t)symbol_find("hak_profile_arm");
  REQUIRE(arm != NULL && arm(600));
  allocate(0, 1, 16);
  CHECK(arm(0));
  int fd = check_file();
  columns = VALUES;
  CHECK(pprof_write(fd));
  look_at(fd);
  CHECK(is_beside() || seen.sums[ALLOC_OBJECTS] == 1);
  CHECK(is_beside() || seen.rest[ALLOC_SPACE] == 16);
}

TEST(pprof_that_cannot_be_written_is_said) {
  find_pprof();
  CHECK(!pprof_write(-1));
  errno = MARK;
  int fd = check_file();
  CHECK(pprof_write(fd));
  CHECK_EQ(errno, MARK);
}
