#include "kit/options.h"

#include "base/format.h"
#include "os/line.h"
#include "os/os.h"

/* Later sources override earlier ones: the default, the file that HAKMEM_CONF names, the environment, hak_option_set for options that may
 * change at run time.
 *
 * Options are read before libc is ready, so nothing here calls libc: no strlen, no strtol, no getenv. */

/* The help texts, one after the other. */
#define OPTION(name, fallback, min, max, at_run_time, help) char name[sizeof(help)];
#define OPTION_PATH OPTION_TEXT
#define OPTION_TEXT(name, help) char path_##name[sizeof(help)];
static const struct help_texts {
#include "kit/options.def"
}
#undef OPTION
#undef OPTION_TEXT
#define OPTION(name, fallback, min, max, at_run_time, help) help,
#define OPTION_TEXT(name, help) help,
help_texts = {
#include "kit/options.def"
};
#undef OPTION
#undef OPTION_TEXT
_Static_assert(sizeof help_texts <= UINT16_MAX, "option_info_t.help leads to all of them");

const char *option_help(const option_info_t *info) { return (const char *)&help_texts + info->help; }

#define OPTION(name, fallback, min, max, at_run_time, help) {#name, fallback, min, max, offsetof(struct help_texts, name), at_run_time},
#define OPTION_TEXT(name, help)
const option_info_t option_info[OPTION_COUNT] = {
#include "kit/options.def"
};
#undef OPTION
#undef OPTION_TEXT

#define OPTION(name, fallback, min, max, at_run_time, help) fallback,
#define OPTION_TEXT(name, help)
option_values_t option_values = {.number = {
#include "kit/options.def"
                                 }};
#undef OPTION
#undef OPTION_TEXT

#define OPTION(name, fallback, min, max, at_run_time, help)
#define OPTION_TEXT(name, help) {#name, 0, 0, 0, offsetof(struct help_texts, path_##name), false},
const option_info_t option_path_info[PATH_COUNT] = {
#include "kit/options.def"
};
#undef OPTION
#undef OPTION_TEXT
#undef OPTION_PATH

const char *option_path(option_path_t path) { return option_values.path[path]; }

static char to_lower(char c) { return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c; }

static char to_upper(char c) { return c >= 'a' && c <= 'z' ? (char)(c - 'a' + 'A') : c; }

static bool text_equal(const char *name, const char *text, size_t length) {
  for (size_t i = 0; i < length; i++) {
    if (name[i] == '\0' || name[i] != to_lower(text[i])) return false;
  }
  return name[length] == '\0';
}

static size_t text_length(const char *text) {
  size_t n = 0;
  while (text[n] != '\0') n++;
  return n;
}

HAK_COLD option_t option_find(const char *name, size_t length) {
  for (unsigned i = 0; i < OPTION_COUNT; i++) {
    if (text_equal(option_info[i].name, name, length)) return (option_t)i;
  }
  return OPTION_COUNT;
}

bool option_set(option_t option, int64_t value) {
  if (option_values.sealed || value < option_info[option].min || value > option_info[option].max) return false;
  store_relaxed(&option_values.number[option], value);
  return true;
}

HAK_COLD bool option_is_given(option_t option) { return option_values.given[option]; }

void options_seal(void) {
  if (!HAK_SECURE || option_values.sealed) return;
  option_values.sealed = true;
  (void)os_seal(&option_values, sizeof option_values, true);
}

/* The minimum of options that accept a percentage, stored as a negative number, or bytes with a unit letter. */
#define PERCENT_LEAST (-100)

/* One line: hakmem: <what> "<text>": <why> */
static HAK_COLD void option_complain(const char *what, const char *text, size_t length, const option_info_t *info) {
  line_t line;
  format_t *f = line_begin(&line);
  format_text(f, what);
  format_text(f, " \"");
  for (size_t i = 0; i < length && i < 80; i++) {
    bool printable = text[i] >= ' ' && text[i] <= '~';
    format_char(f, printable ? text[i] : '?');
  }
  format_text(f, "\"");
  if (info != NULL) {
    format_text(f, " for HAKMEM_");
    for (const char *c = info->name; *c != '\0'; c++) format_char(f, to_upper(*c));
    format_text(f, ", wants ");
    if (info->min == PERCENT_LEAST) {
      format_text(f, "bytes, also with K, M or G, or 1% to 100%");
    } else {
      format_signed(f, info->min);
      format_text(f, " to ");
      format_signed(f, info->max);
    }
    format_text(f, "; using ");
    format_signed(f, info->fallback);
  } else {
    format_text(f, ", ignored");
  }
  line_end(&line);
}

/* Whether the text is nothing but digits, at most 18. */
static bool parse_digits(const char *text, size_t length, int64_t *number) {
  *number = 0;
  for (size_t i = 0; i < length; i++) {
    if (!decimal_is_digit(text[i])) return false;
    *number = *number * 10 + (text[i] - '0');
  }
  return true;
}

static HAK_COLD bool parse_amount(const char *text, size_t length, const option_info_t *info, int64_t *value) {
  if (info->min != PERCENT_LEAST || length < 2 || length > 16) return false;
  unsigned shift = 0;
  bool percent = text[length - 1] == '%';
  switch (to_upper(text[length - 1])) {
    case '%': break;
    case 'K': shift = 10; break;
    case 'M': shift = 20; break;
    case 'G': shift = 30; break;
    default: return false;
  }
  int64_t number;
  if (!parse_digits(text, length - 1, &number)) return false;
  if (number > INT64_MAX >> shift || (percent && number > -PERCENT_LEAST)) return false;
  *value = percent ? -number : number << shift;
  return true;
}

#define SWITCH_MOST 2

/* Parses a decimal number with an optional minus sign; for a switch, which may have a third state, also on/off, true/false, yes/no. */
static HAK_COLD bool parse_value(const char *text, size_t length, const option_info_t *info, int64_t *value) {
  static const struct {
    const char *word;
    int64_t value;
  } words[] = {{"on", 1}, {"off", 0}, {"true", 1}, {"false", 0}, {"yes", 1}, {"no", 0}};
  for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
    if (text_equal(words[i].word, text, length)) {
      *value = words[i].value;
      return info->max <= SWITCH_MOST;
    }
  }
  if (parse_amount(text, length, info, value)) return true;
  bool negative = length > 0 && text[0] == '-';
  size_t digits = negative ? length - 1 : length;
  if (digits == 0 || digits > 18) return false;
  int64_t number;
  if (!parse_digits(text + length - digits, digits, &number)) return false;
  *value = negative ? -number : number;
  return true;
}

/* Returns whether the name is a path option, even if its value is too long to keep: then it is not looked up among the numbers. */
static bool path_read(const char *name, size_t name_length, const char *text, size_t length) {
  for (unsigned i = 0; i < PATH_COUNT; i++) {
    if (!text_equal(option_path_info[i].name, name, name_length)) continue;
    if (length >= sizeof option_values.path[i]) {
      option_complain("too long a path", text, length, NULL);
      return true;
    }
    for (size_t n = 0; n < length; n++) option_values.path[i][n] = text[n];
    option_values.path[i][length] = '\0';
    return true;
  }
  return false;
}

static HAK_COLD void option_read(const char *name, size_t name_length, const char *text, size_t length) {
  if (path_read(name, name_length, text, length)) return;
  option_t option = option_find(name, name_length);
  if (option == OPTION_COUNT) {
    option_complain("unknown option", name, name_length, NULL);
    return;
  }
  if (length == 0) return; /* as if it were not set, as shells clear a variable for one command */
  int64_t value;
  /* Use the default, not an earlier value from the file: the line says so. */
  if (!parse_value(text, length, &option_info[option], &value) || !option_set(option, value)) {
    option_complain("bad value", text, length, &option_info[option]);
    store_relaxed(&option_values.number[option], option_info[option].fallback);
  }
  option_values.given[option] = true;
}

static size_t trim(const char **text, size_t length) {
  while (length > 0 && (**text == ' ' || **text == '\t')) {
    (*text)++;
    length--;
  }
  while (length > 0 && ((*text)[length - 1] == ' ' || (*text)[length - 1] == '\t' || (*text)[length - 1] == '\r')) length--;
  return length;
}

/* A line is name=value, with an optional prefix hakmem_, or a comment that starts with #. */
static HAK_COLD void options_read_line(const char *line, size_t length) {
  length = trim(&line, length);
  if (length == 0 || line[0] == '#') return;
  size_t equals = 0;
  while (equals < length && line[equals] != '=') equals++;
  if (equals == length) {
    option_complain("line without \"=\"", line, length, NULL);
    return;
  }
  const char *name = line;
  const char *value = line + equals + 1;
  size_t name_length = trim(&name, equals);
  size_t value_length = trim(&value, length - equals - 1);
  if (name_length > 7 && text_equal("hakmem_", name, 7)) {
    name += 7;
    name_length -= 7;
  }
  option_read(name, name_length, value, value_length);
}

static HAK_COLD void options_read_file(const char *path) {
  char text[8192];
  long length = os_read_file(path, text, sizeof text);
  if (length < 0 || (size_t)length + 1 == sizeof text) {
    option_complain(length < 0 ? "cannot read HAKMEM_CONF" : "too long a HAKMEM_CONF", path, text_length(path), NULL);
    return;
  }
  for (const char *line = text; *line != '\0';) {
    size_t n = 0;
    while (line[n] != '\0' && line[n] != '\n') n++;
    options_read_line(line, n);
    line += n + (line[n] == '\n');
  }
}

void options_load(char *const *environment) {
  static const char prefix[] = "HAKMEM_";
  const size_t prefix_length = sizeof prefix - 1;
  if (environment == NULL || os_is_privileged()) return; /* the caller must not control a process with more privileges */
  for (int pass = 0; pass < 2; pass++) { /* the file first, so that the environment wins */
    for (char *const *entry = environment; *entry != NULL; entry++) {
      const char *name = *entry;
      size_t matched = 0;
      while (matched < prefix_length && name[matched] == prefix[matched]) matched++;
      if (matched < prefix_length) continue;
      name += prefix_length;
      size_t equals = 0;
      while (name[equals] != '\0' && name[equals] != '=') equals++;
      if (name[equals] == '\0') continue;
      const char *value = name + equals + 1;
      bool is_file = text_equal("conf", name, equals);
      if (is_file && pass == 0) options_read_file(value);
      if (!is_file && pass == 1) option_read(name, equals, value, text_length(value));
    }
  }
}
