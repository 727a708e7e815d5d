/* options.c - an environment and a file, with any text, against a model written from docs/options.md.
 *
 * The input: a byte of choices, the file's text up to a NUL, and the entries of the environment, each up to a NUL.  The values must
 * be those that the model reads, and each complaint must be one line of printable text. */
#include "kit/options.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "fake_os.h"
#include "fuzz.h"

enum { TEXT_MOST = 12288, ENTRIES_MOST = 64, FILE_MOST = 8190, CAPTURE_FULL = 16000 };

static char text[TEXT_MOST + 8], entry_text[TEXT_MOST + 8 * ENTRIES_MOST];
static char *entries[ENTRIES_MOST + 2];
static unsigned entry_count;

static int64_t want[OPTION_COUNT];
static char want_path[PATH_COUNT][256];
static unsigned complaints;

/* --- the model --------------------------------------------------------------------------- */

static bool same(const char *word, const char *at, size_t length) { return strlen(word) == length && strncasecmp(word, at, length) == 0; }

static bool model_number(const char *value, size_t length, bool words_too, int64_t *number) {
  static const char *const words[] = {"off", "on", "false", "true", "no", "yes"};
  for (unsigned i = 0; i < 6; i++) {
    if (!same(words[i], value, length)) continue;
    *number = i % 2;
    return words_too;
  }
  char digits[32] = "";
  if (length == 0 || length > 19) return false;
  memcpy(digits, value, length);
  const char *first = digits[0] == '-' ? digits + 1 : digits;
  size_t count = strspn(first, "0123456789");
  if (count == 0 || count > 18 || first[count] != '\0' || strlen(digits) != length) return false;
  *number = strtoll(digits, NULL, 10);
  return true;
}

static void model_set(const char *name, size_t name_length, const char *value, size_t length) {
  for (unsigned i = 0; i < PATH_COUNT; i++) {
    if (!same(option_path_info[i].name, name, name_length)) continue;
    if (length > 255) {
      complaints++;
      return;
    }
    memset(want_path[i], 0, sizeof want_path[i]);
    memcpy(want_path[i], value, length);
    return;
  }
  for (unsigned i = 0; i < OPTION_COUNT; i++) {
    const option_info_t *info = &option_info[i];
    if (!same(info->name, name, name_length)) continue;
    if (length == 0) return; /* as if it were not set */
    int64_t number;
    bool good = model_number(value, length, info->max <= 2, &number) && number >= info->min && number <= info->max;
    want[i] = good ? number : info->fallback;
    complaints += !good;
    return;
  }
  complaints++;
}

static void strip(const char **start, const char **end) {
  while (*start < *end && strchr(" \t", **start) != NULL) ++*start;
  while (*start < *end && strchr(" \t\r", (*end)[-1]) != NULL) --*end;
}

static void model_line(const char *start, const char *end) {
  strip(&start, &end);
  if (start == end || *start == '#') return;
  const char *equals = memchr(start, '=', (size_t)(end - start));
  if (equals == NULL) {
    complaints++;
    return;
  }
  const char *name_end = equals, *value = equals + 1;
  strip(&start, &name_end);
  strip(&value, &end);
  if (name_end - start > 7 && strncasecmp(start, "hakmem_", 7) == 0) start += 7;
  model_set(start, (size_t)(name_end - start), value, (size_t)(end - value));
}

static void model_file(const char *file) {
  size_t length = strlen(file);
  if (length > FILE_MOST) {
    complaints++;
    return;
  }
  for (const char *end = file + length; file < end;) {
    const char *stop = memchr(file, '\n', (size_t)(end - file));
    if (stop == NULL) stop = end;
    model_line(file, stop);
    file = stop + 1;
  }
}

/* The value of an entry that sets an option, or NULL. The name ends before the "=". */
static const char *entry_value(const char *entry) {
  const char *equals = strchr(entry, '=');
  return strncmp(entry, "HAKMEM_", 7) == 0 && equals != NULL ? equals + 1 : NULL;
}

static bool is_conf(const char *entry) { return strncasecmp(entry + 7, "conf=", 5) == 0; }

static void model_environment(const char *file) {
  for (unsigned i = 0; i < entry_count; i++) {
    if (entry_value(entries[i]) != NULL && is_conf(entries[i])) model_file(file);
  }
  for (unsigned i = 0; i < entry_count; i++) {
    const char *value = entry_value(entries[i]);
    if (value != NULL && !is_conf(entries[i])) model_set(entries[i] + 7, (size_t)(value - 1 - entries[i] - 7), value, strlen(value));
  }
}

/* --- a run ------------------------------------------------------------------------------- */

static void entry_add(char *entry) {
  /* Only the file that the input holds is read. */
  if (strncmp(entry, "HAKMEM_", 7) == 0 && is_conf(entry) && strcmp(entry + 12, "conf") != 0) return;
  if (entry_count < ENTRIES_MOST) entries[entry_count++] = entry;
}

static void entries_read(const char *at, const char *end, bool prefixed) {
  char *to = entry_text;
  for (unsigned n = 0; at < end && n < ENTRIES_MOST; n++) {
    char *entry = to;
    size_t length = strnlen(at, (size_t)(end - at));
    if (prefixed) to = stpcpy(to, "HAKMEM_");
    memcpy(to, at, length);
    to += length;
    *to++ = '\0';
    at += length + 1;
    entry_add(entry);
  }
}

static void check_complaints(const char *said) {
  unsigned lines = 0;
  size_t all = strlen(said);
  for (const char *line = said; *line != '\0' && all < CAPTURE_FULL;) {
    size_t length = strcspn(line, "\n");
    FUZZ_CHECK(line[length] == '\n' && length < 255 && strncmp(line, "hakmem: ", 8) == 0);
    for (size_t i = 0; i < length; i++) FUZZ_CHECK(line[i] >= ' ' && line[i] <= '~');
    line += length + 1;
    lines++;
  }
  if (all < CAPTURE_FULL) FUZZ_EQ(lines, complaints);
}

void fuzz_target(void) {
  unsigned choices = input_byte();
  size_t size;
  const uint8_t *rest = input_rest(&size);
  if (size > TEXT_MOST) size = TEXT_MOST;
  if (size > 0) memcpy(text, rest, size);
  size_t file = strlen(text);
  fake_os_set_file("conf", text);
  static char conf[] = "HAKMEM_CONF=conf";
  if ((choices & 1) != 0) entry_add(conf);
  if (file + 1 < size) entries_read(text + file + 1, text + size, (choices & 2) != 0);
  bool secure = (choices & 12) == 12;
  fake_os_set_secure(secure);
  for (unsigned i = 0; i < OPTION_COUNT; i++) want[i] = option_info[i].fallback;
  if (!secure) model_environment(text);
  options_load(entries);
  for (unsigned i = 0; i < OPTION_COUNT; i++) FUZZ_EQ(option_get((option_t)i), want[i]);
  for (unsigned i = 0; i < PATH_COUNT; i++) FUZZ_CHECK(strcmp(option_path((option_path_t)i), want_path[i]) == 0);
  check_complaints(fake_os_captured());
}
