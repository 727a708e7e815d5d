/* options.h - the options, in one table.
 *
 * Values are read once at start, from the file that HAKMEM_CONF names and then
 * from HAKMEM_* in the environment; neither is read when the process runs with
 * privileges that its caller lacks.  For a bad value, one line goes to standard
 * error and the default is used.  Any thread may read a value: it is a relaxed load. */
#ifndef KIT_OPTIONS_H
#define KIT_OPTIONS_H

#include "base/atomics.h"
#include "base/bits.h"
#include "base/config.h"

typedef enum option {
#define OPTION(name, fallback, min, max, at_run_time, help) OPTION_##name,
#define OPTION_PATH(name, help)
#include "kit/options.def"
#undef OPTION
#undef OPTION_PATH
  OPTION_COUNT
} option_t;

typedef enum option_path {
#define OPTION(name, fallback, min, max, at_run_time, help)
#define OPTION_PATH(name, help) PATH_##name,
#include "kit/options.def"
#undef OPTION
#undef OPTION_PATH
  PATH_COUNT
} option_path_t;

/* Contains no pointers, since the loader would have to relocate them in every process: see entry/descriptor.c. */
typedef struct option_info {
  char name[16];
  int64_t fallback, min, max;
  uint16_t help;    /* for option_help */
  bool at_run_time; /* may be changed after start */
} option_info_t;

extern const option_info_t option_info[OPTION_COUNT];
extern const option_info_t option_path_info[PATH_COUNT]; /* only name and help are used */
const char *option_help(const option_info_t *info);

typedef struct option_values {
  _Atomic int64_t number[OPTION_COUNT];
  char path[PATH_COUNT][256];
  bool given[OPTION_COUNT]; /* by the file or the environment */
  bool sealed;
} HAK_SEALED option_values_t;
extern option_values_t option_values;

HAK_INLINE int64_t option_get(option_t option) { return load_relaxed(&option_values.number[option]); }

/* The path, empty if not set.  Constant after start. */
const char *option_path(option_path_t path);

/* Reads the file and the environment.  `environment` may be NULL before libc has set it. */
void options_load(char *const *environment);
/* Returns whether the file or the environment has a value for the option. */
bool option_is_given(option_t option);
/* Finds the option called `name`, in upper or lower case; OPTION_COUNT if there is none. */
option_t option_find(const char *name, size_t length);
/* Makes the options of the secure library unwritable; no effect in other builds. */
void options_seal(void);
/* Sets the value; false if it is out of range, or if the options are sealed. */
HAK_CHECKED bool option_set(option_t option, int64_t value);

#endif
