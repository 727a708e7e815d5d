/* conf.c - applies jemalloc's options where hakmem has an equivalent, and ignores all others.  docs/migrate.md lists them.
 *
 * Later sources win, as with jemalloc: the program's malloc_conf, the name that /etc/malloc.conf links to, the environment, the
 * program's malloc_conf_2_conf_harder.  HAKMEM_* in the environment wins over all. */
#include "jemalloc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Programs may define these. */
HAK_API extern const char *malloc_conf;
HAK_API extern const char *malloc_conf_2_conf_harder;
const char *malloc_conf;
const char *malloc_conf_2_conf_harder;

HAK_API void malloc_stats_print(void (*out)(void *, const char *), void *to, const char *opts);

conf_t conf = {.prof_prefix = "jeprof"};

static void set_flag(bool *flag, const char *value) { *flag = strcmp(value, "true") == 0; }

/* Ignores a value that is not a number. */
static void take_decay(const char *value) {
  char *end;
  long long ms = strtoll(value, &end, 10);
  if (end != value && *end == '\0') compat_option("decay_ms", ms < COMPAT_DECAY_MOST ? ms : COMPAT_DECAY_MOST);
}
static void take_keeper(const char *value) { compat_option("keeper", strcmp(value, "true") == 0); }
static void take_thp(const char *value) {
  if (strcmp(value, "always") == 0) compat_option("huge", 1);
  if (strcmp(value, "never") == 0) compat_option("huge", 0);
}
static void take_prof(const char *value) { set_flag(&conf.prof, value); }
static void take_final(const char *value) { set_flag(&conf.prof_final, value); }
static void take_leak(const char *value) { set_flag(&conf.prof_leak, value); }
static void take_print(const char *value) { set_flag(&conf.stats_print, value); }
static void take_prefix(const char *value) { strcpy(conf.prof_prefix, value); }
static void take_opts(const char *value) {
  if (strlen(value) < sizeof conf.stats_opts) strcpy(conf.stats_opts, value);
}

static const struct {
  const char *name;
  void (*take)(const char *value);
} keys[] = {
    {"background_thread", take_keeper}, {"dirty_decay_ms", take_decay},  {"prof", take_prof},
    {"prof_final", take_final},         {"prof_leak", take_leak},        {"prof_prefix", take_prefix},
    {"stats_print", take_print},        {"stats_print_opts", take_opts}, {"thp", take_thp},
};

static void take_pair(const char *pair, size_t length) {
  char value[sizeof conf.prof_prefix];
  const char *colon = memchr(pair, ':', length);
  if (colon == NULL) return;
  size_t name = (size_t)(colon - pair), rest = length - name - 1;
  if (rest >= sizeof value) return;
  memcpy(value, colon + 1, rest);
  value[rest] = '\0';
  for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
    if (strlen(keys[i].name) == name && memcmp(keys[i].name, pair, name) == 0) keys[i].take(value);
  }
}

static void take_all(const char *text) {
  while (text != NULL && *text != '\0') {
    size_t length = strcspn(text, ",");
    take_pair(text, length);
    text += length + (text[length] == ',');
  }
}

static __attribute__((constructor)) void conf_start(void) {
  char linked[512];
  take_all(malloc_conf);
  ssize_t length = readlink("/etc/malloc.conf", linked, sizeof linked - 1);
  linked[length > 0 ? length : 0] = '\0';
  take_all(linked);
  take_all(secure_getenv("MALLOC_CONF"));
  take_all(malloc_conf_2_conf_harder);
}

static __attribute__((destructor)) void conf_end(void) {
  if (conf.stats_print) malloc_stats_print(NULL, NULL, conf.stats_opts);
  if (!conf.prof || !conf.prof_final || conf.prof_prefix[0] == '\0' || !profile_on()) return;
  char name[600];
  profile_name(name, sizeof name, 'f');
  if (!profile_dump(name)) perror(name);
}
