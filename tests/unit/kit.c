/* kit.c - options, the fault line and metadata memory. */
#include "kit/fault.h"
#include "kit/meta.h"
#include "kit/options.h"
#include "os/line.h"

#include <ctype.h>
#include <stdio.h>

#include "base/config.h"
#include "fake_os.h"
#include "unit.h"

/* ---- options: the table ---- */

TEST(every_option_starts_with_a_default_in_its_range) {
  for (unsigned i = 0; i < OPTION_COUNT; i++) {
    const option_info_t *info = &option_info[i];
    CHECK(info->min <= info->fallback && info->fallback <= info->max && info->min < info->max);
    CHECK_EQ(option_get((option_t)i), info->fallback);
    const char *help = option_help(info);
    CHECK(help[0] != '\0' && help[strlen(help) - 1] == '.');
    CHECK_EQ(option_find(info->name, strlen(info->name)), i);
  }
  for (unsigned i = 0; i < PATH_COUNT; i++) {
    CHECK(option_path((option_path_t)i)[0] == '\0');
    const char *help = option_help(&option_path_info[i]);
    CHECK(help[0] != '\0' && help[strlen(help) - 1] == '.');
    CHECK_EQ(option_find(option_path_info[i].name, strlen(option_path_info[i].name)), OPTION_COUNT);
  }
}

TEST(names_are_found_whole_and_in_any_case) {
  CHECK_EQ(option_find("DECAY_ms", 8), OPTION_decay_ms);
  CHECK_EQ(option_find("decay_ms_more", 8), OPTION_decay_ms);
  CHECK_EQ(option_find("decay_m", 7), OPTION_COUNT);
  CHECK_EQ(option_find("decay_mss", 9), OPTION_COUNT);
  CHECK_EQ(option_find("", 0), OPTION_COUNT);
}

TEST(setting_respects_the_range) {
  for (unsigned i = 0; i < OPTION_COUNT; i++) {
    const option_info_t *info = &option_info[i];
    option_t option = (option_t)i;
    CHECK(option_set(option, info->min) && option_get(option) == info->min);
    CHECK(option_set(option, info->max) && option_get(option) == info->max);
    CHECK(!option_set(option, info->max + 1) && !option_set(option, info->min - 1));
    CHECK_EQ(option_get(option), info->max);
  }
}

/* ---- options: text ---- */

/* Loads one entry; returns the complaints. */
static const char *load(const char *entry) {
  char *const environment[] = {(char *)(uintptr_t)"PATH=/bin", (char *)(uintptr_t)entry, (char *)(uintptr_t)"HAKMEM=1", NULL};
  fake_os_capture();
  options_load(environment);
  return fake_os_captured();
}

TEST(good_values_are_taken_in_silence) {
  static const struct {
    const char *entry;
    option_t option;
    int64_t value;
  } cases[] = {
      {"HAKMEM_DECAY_MS=250", OPTION_decay_ms, 250},
      {"HAKMEM_decay_ms=-1", OPTION_decay_ms, -1},
      {"HAKMEM_DECAY_MS=0", OPTION_decay_ms, 0},
      {"HAKMEM_DECAY_MS=000000000000000007", OPTION_decay_ms, 7},
      {"HAKMEM_STATS=on", OPTION_stats, 1},
      {"HAKMEM_STATS=OFF", OPTION_stats, 0},
      {"HAKMEM_STATS=yes", OPTION_stats, 1},
      {"HAKMEM_STATS=No", OPTION_stats, 0},
      {"HAKMEM_STATS=TRUE", OPTION_stats, 1},
      {"HAKMEM_STATS=false", OPTION_stats, 0},
      {"HAKMEM_KEEPER=off", OPTION_keeper, 0},
      {"HAKMEM_HUGE=no", OPTION_huge, 0},
      {"HAKMEM_STATS=", OPTION_stats, 0}, /* as if it were not set */
      {"HAKMEM_BIN_KB=512", OPTION_bin_kb, 512},
      {"HAKMEM_BIN_KB=1", OPTION_bin_kb, 1},
      {"HAKMEM_LIMIT_HARD=7", OPTION_limit_hard, 7},
      {"HAKMEM_LIMIT_HARD=7K", OPTION_limit_hard, 7 << 10},
      {"HAKMEM_LIMIT_SOFT=7m", OPTION_limit_soft, 7 << 20},
      {"HAKMEM_LIMIT_SOFT=7G", OPTION_limit_soft, INT64_C(7) << 30},
      {"HAKMEM_LIMIT_HARD=80%", OPTION_limit_hard, -80},
      {"HAKMEM_LIMIT_SOFT=100%", OPTION_limit_soft, -100},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    const char *said = load(cases[i].entry);
    if (said[0] != '\0' || option_get(cases[i].option) != cases[i].value) {
      check_fail(__FILE__, __LINE__, "%s gave %lld and \"%s\"", cases[i].entry, (long long)option_get(cases[i].option), said);
    }
  }
}

TEST(bad_values_are_one_line_and_the_default) {
  static const char *const values[] = {"-",
                                       "abc",
                                       "12x",
                                       "x12",
                                       "1e3",
                                       "0x10",
                                       "1.5",
                                       " 12",
                                       "--1",
                                       "+5",
                                       "on!",
                                       "on",
                                       "off",
                                       "86400001",
                                       "-2",
                                       "9223372036854775807",
                                       "9223372036854775808",
                                       "-9223372036854775808",
                                       "18446744073709551621",
                                       "99999999999999999999999999"};
  for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
    char entry[128], want[256];
    snprintf(entry, sizeof entry, "HAKMEM_DECAY_MS=%s", values[i]);
    snprintf(want, sizeof want, "hakmem: bad value \"%s\" for HAKMEM_DECAY_MS, wants -1 to 86400000; using 1000\n", values[i]);
    CHECK(option_set(OPTION_decay_ms, 5));
    const char *said = load(entry);
    if (strcmp(said, want) != 0) check_fail(__FILE__, __LINE__, "%s said \"%s\"", entry, said);
    CHECK_EQ(option_get(OPTION_decay_ms), 1000);
  }
}

TEST(a_bad_value_of_any_option_names_its_range) {
  for (unsigned i = 0; i < OPTION_COUNT; i++) {
    const option_info_t *info = &option_info[i];
    char entry[128], want[400];
    snprintf(entry, sizeof entry, "HAKMEM_%.15s", info->name);
    for (char *at = entry; *at != '\0'; at++) *at = (char)toupper((unsigned char)*at);
    char range[128] = "bytes, also with K, M or G, or 1% to 100%";
    bool may_be_percent = info->min == -100;
    if (!may_be_percent) snprintf(range, sizeof range, "%lld to %lld", (long long)info->min, (long long)info->max);
    snprintf(want, sizeof want, "hakmem: bad value \"many\" for %s, wants %s; using %lld\n", entry, range, (long long)info->fallback);
    strcat(entry, "=many");
    CHECK(strcmp(load(entry), want) == 0);
  }
}

TEST(amounts_that_are_none_are_one_line) {
  static const char *const settings[] = {"LIMIT_HARD=101%",        "LIMIT_HARD=K",    "LIMIT_HARD=-5M",
                                         "LIMIT_SOFT=9999999999G", "LIMIT_SOFT=1.5G", "DECAY_MS=1K"};
  for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) {
    char entry[64];
    snprintf(entry, sizeof entry, "HAKMEM_%s", settings[i]);
    CHECK(strncmp(load(entry), "hakmem: bad value \"", 19) == 0);
  }
  CHECK_EQ(option_get(OPTION_limit_hard), 0);
  CHECK_EQ(option_get(OPTION_limit_soft), 0);
}

TEST(unknown_names_are_one_line) {
  CHECK(strcmp(load("HAKMEM_DECAYMS=1"), "hakmem: unknown option \"DECAYMS\", ignored\n") == 0);
  CHECK(strcmp(load("HAKMEM_=1"), "hakmem: unknown option \"\", ignored\n") == 0);
  CHECK_EQ(load("HAKMEM_DECAY_MS")[0], '\0'); /* without a value it is not a setting */
  CHECK_EQ(load("hakmem_decay_ms=3")[0], '\0'); /* the prefix must be in capitals */
  CHECK_EQ(option_get(OPTION_decay_ms), 1000);
}

TEST(long_and_unprintable_text_stays_one_short_line) {
  char entry[4096];
  memcpy(entry, "HAKMEM_STATS=", 13);
  for (size_t i = 13; i < sizeof entry - 1; i++) entry[i] = (char)(1 + i % 254);
  entry[sizeof entry - 1] = '\0';
  const char *said = load(entry);
  size_t length = strlen(said);
  CHECK(length > 0 && length < 256 && said[length - 1] == '\n');
  for (size_t i = 0; i + 1 < length; i++) CHECK(said[i] >= ' ' && said[i] <= '~');
}

TEST(paths_are_kept_as_they_are) {
  CHECK_EQ(load("HAKMEM_STATS_FILE=/tmp/Some File.%p")[0], '\0');
  CHECK(strcmp(option_path(PATH_stats_file), "/tmp/Some File.%p") == 0);
  char entry[400] = "HAKMEM_STATS_FILE=";
  memset(entry + 18, 'x', 256);
  CHECK(strstr(load(entry), "hakmem: too long a path \"xxx") != NULL);
  CHECK(strcmp(option_path(PATH_stats_file), "/tmp/Some File.%p") == 0);
  entry[18 + 255] = '\0';
  CHECK_EQ(load(entry)[0], '\0');
  CHECK_EQ(strlen(option_path(PATH_stats_file)), 255);
}

/* ---- options: the file ---- */

TEST(a_file_is_read_line_by_line) {
  fake_os_set_file("/etc/hak.conf",
                   "# comment\n\n  decay_ms = 42 \r\nHAKMEM_BIN_KB=128\n\tstats=on\n#stats=off\nstats_file= /x y \nstats_json=1");
  CHECK_EQ(load("HAKMEM_CONF=/etc/hak.conf")[0], '\0');
  CHECK_EQ(option_get(OPTION_decay_ms), 42);
  CHECK_EQ(option_get(OPTION_bin_kb), 128);
  CHECK_EQ(option_get(OPTION_stats), 1);
  CHECK_EQ(option_get(OPTION_stats_json), 1);
  CHECK(strcmp(option_path(PATH_stats_file), "/x y") == 0);
}

TEST(each_bad_line_of_a_file_is_one_line) {
  fake_os_set_file("f", "decay_ms\nnothing=1\nbin_kb=0\n=\nstats=1\n");
  const char *said = load("HAKMEM_CONF=f");
  CHECK(strcmp(said,
               "hakmem: line without \"=\" \"decay_ms\", ignored\n"
               "hakmem: unknown option \"nothing\", ignored\n"
               "hakmem: bad value \"0\" for HAKMEM_BIN_KB, wants 1 to 512; using 64\n"
               "hakmem: unknown option \"\", ignored\n") == 0);
  CHECK_EQ(option_get(OPTION_stats), 1);
}

TEST(the_environment_wins_over_the_file_wherever_it_stands) {
  fake_os_set_file("f", "decay_ms=1\nbin_kb=2\n");
  char before[] = "HAKMEM_DECAY_MS=10", file[] = "HAKMEM_CONF=f", after[] = "HAKMEM_STATS=1";
  char *const environment[] = {before, file, after, NULL};
  options_load(environment);
  CHECK_EQ(option_get(OPTION_decay_ms), 10);
  CHECK_EQ(option_get(OPTION_bin_kb), 2);
  CHECK_EQ(option_get(OPTION_stats), 1);
}

TEST(a_missing_file_is_one_line) {
  CHECK(strcmp(load("HAKMEM_CONF=/does/not/exist"), "hakmem: cannot read HAKMEM_CONF \"/does/not/exist\", ignored\n") == 0);
}

/* Cut off at the buffer's end, the file could end in half a value, or lack the line that matters: so none of it counts. */
TEST(a_file_that_is_too_long_is_one_line_and_not_read) {
  static char text[16384];
  static const char line[] = "decay_ms=12345\n";
  size_t used = 0;
  while (used < 8191 - 11) used += (size_t)snprintf(text + used, sizeof text - used, "%s", line);
  snprintf(text + used, sizeof text - used, "%s%s", line, "bin_kb=3\n");
  fake_os_set_file("f", text);
  CHECK(strcmp(load("HAKMEM_CONF=f"), "hakmem: too long a HAKMEM_CONF \"f\", ignored\n") == 0);
  for (unsigned i = 0; i < OPTION_COUNT; i++) CHECK_EQ(option_get((option_t)i), option_info[i].fallback);
}

TEST(a_file_that_just_fits_is_read_to_its_end) {
  static char text[8191];
  static const char last[] = "decay_ms=12345";
  memset(text, '\n', sizeof text);
  memcpy(text + sizeof text - sizeof last, last, sizeof last);
  fake_os_set_file("f", text);
  CHECK_EQ(load("HAKMEM_CONF=f")[0], '\0');
  CHECK_EQ(option_get(OPTION_decay_ms), 12345);
}

TEST(privileged_processes_read_nothing) {
  fake_os_set_secure(true);
  fake_os_set_file("f", "bin_kb=2\n");
  CHECK_EQ(load("HAKMEM_DECAY_MS=bad")[0], '\0');
  CHECK_EQ(load("HAKMEM_CONF=f")[0], '\0');
  CHECK_EQ(load("HAKMEM_STATS_FILE=/etc/passwd")[0], '\0');
  for (unsigned i = 0; i < OPTION_COUNT; i++) CHECK_EQ(option_get((option_t)i), option_info[i].fallback);
  CHECK_EQ(option_path(PATH_stats_file)[0], '\0');
}

TEST(no_environment_is_no_setting) {
  options_load(NULL);
  char *const none[] = {NULL};
  options_load(none);
  for (unsigned i = 0; i < OPTION_COUNT; i++) CHECK_EQ(option_get((option_t)i), option_info[i].fallback);
}

/* ---- the fault line ---- */

static const char *printed_line(const char *fault, const char *detail, size_t size_class) {
  jmp_buf place;
  fake_os_capture();
  fake_os_catch_abort(&place);
  if (setjmp(place) == 0) fault_abort(fault, "free", (void *)(uintptr_t)0x7f00dead0010, detail, size_class);
  fake_os_catch_abort(NULL);
  return fake_os_captured();
}

TEST(a_fault_is_one_line_and_the_end) {
  CHECK(strcmp(printed_line("double free", "block is already free", 48),
               "hakmem: double free: free(0x7f00dead0010): block is already free, class 48\n") == 0);
  CHECK(strcmp(printed_line("foreign pointer", "not from this allocator", 0),
               "hakmem: foreign pointer: free(0x7f00dead0010): not from this allocator\n") == 0);
  CHECK(strcmp(printed_line("interior pointer", "not the start", FAULT_LARGE),
               "hakmem: interior pointer: free(0x7f00dead0010): not the start, class large\n") == 0);
}

TEST(a_fault_that_is_too_long_is_cut_but_ends_its_line) {
  char detail[600];
  memset(detail, 'd', sizeof detail - 1);
  detail[sizeof detail - 1] = '\0';
  const char *line = printed_line("double free", detail, 16);
  size_t length = strlen(line);
  CHECK(length <= sizeof((line_t *)NULL)->text && line[length - 1] == '\n' && strchr(line, '\n') == line + length - 1);
}

/* ---- metadata memory ---- */

TEST(metadata_is_zero_aligned_and_counted_in_pages) {
  size_t page = os_page_size();
  CHECK_EQ(meta_bytes(), 0);
  char *first = meta_alloc(1), *second = meta_alloc(page + 1);
  REQUIRE(first != NULL && second != NULL);
  CHECK_EQ(meta_bytes(), 3 * page);
  CHECK((uintptr_t)first % HAK_CACHE_LINE == 0 && (uintptr_t)second % HAK_CACHE_LINE == 0);
  CHECK(unit_is_zero(first, page) && unit_is_zero(second, 2 * page));
  memset(first, 1, page);
  memset(second, 2, 2 * page);
  CHECK(first[page - 1] == 1);
  fake_os_fail(FAKE_ONLY(FAKE_MAP), 1, 1);
  CHECK(meta_alloc(page) == NULL);
  CHECK_EQ(meta_bytes(), 3 * page);
  CHECK(meta_alloc(page) != NULL);
  CHECK_EQ(meta_bytes(), 4 * page);
}
