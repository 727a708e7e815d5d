/* credentials.c - what the kernel reports about the calling thread: filters, privileges, and whether there are other threads. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "os/os.h"
#include "os/syscall.h"

/* malloc may be called on a small stack, so the file is read in parts.  Lines longer than a part are skipped; the lines needed here are
 * shorter. */
#define PART 512

/* UNKNOWN if the line is missing, as with some kernels and emulators. */
#define UNKNOWN UINT64_MAX
typedef struct status {
  uint64_t filter, capabilities, threads;
  bool one_user, one_group;
  unsigned lines; /* found */
} status_t;
#define STATUS_LINES 5

/* Returns the value after the key; NULL if the line has another key. */
static const char *value_of(const char *line, const char *key) {
  size_t length = strlen(key);
  return strncmp(line, key, length) == 0 ? line + length + strspn(line + length, "\t ") : NULL;
}

static uint64_t number_of(const char *text, unsigned base) {
  uint64_t number = 0;
  for (const char *first = text;; text++) {
    unsigned digit = *text >= '0' && *text <= '9'   ? (unsigned)(*text - '0')
                     : *text >= 'a' && *text <= 'f' ? (unsigned)(*text - 'a') + 10
                                                    : 16;
    if (digit >= base) return text == first ? UNKNOWN : number;
    number = number * base + digit;
  }
}

/* The line has four ids: real, effective, saved, and for files.  Returns whether they are equal. */
static bool is_one_identity(const char *text) {
  size_t length = strcspn(text, "\t ");
  const char *at = text;
  for (int i = 0; i < 4; i++) {
    if (length == 0 || strcspn(at, "\t ") != length || memcmp(at, text, length) != 0) return false;
    at += length;
    at += strspn(at, "\t ");
  }
  return true;
}

static void line_note(status_t *status, const char *line) {
  const char *value;
  status->lines++;
  if ((value = value_of(line, "Uid:")) != NULL) status->one_user = is_one_identity(value);
  else if ((value = value_of(line, "Gid:")) != NULL) status->one_group = is_one_identity(value);
  else if ((value = value_of(line, "Threads:")) != NULL) status->threads = number_of(value, 10);
  else if ((value = value_of(line, "CapPrm:")) != NULL) status->capabilities = number_of(value, 16);
  else if ((value = value_of(line, "Seccomp:")) != NULL) status->filter = number_of(value, 10);
  else status->lines--;
}

static void lines_read(long file, status_t *status) {
  char part[PART + 1];
  size_t used = 0;
  bool passing = false; /* the rest of a long line */
  while (status->lines < STATUS_LINES) {
    long bytes = syscall_3(SYS_read, file, (long)(part + used), (long)(PART - used));
    if (bytes == -EINTR) continue;
    if (bytes <= 0) return;
    used += (size_t)bytes;
    part[used] = '\0';
    char *line = part;
    for (char *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
      *end = '\0';
      if (!passing) line_note(status, line);
      passing = false;
    }
    used -= (size_t)(line - part);
    memmove(part, line, used);
    if (used == PART) passing = true, used = 0;
  }
}

/* Returns 0 or a negated error number. */
static long status_read(status_t *status) {
  *status = (status_t){.filter = UNKNOWN, .capabilities = UNKNOWN, .threads = UNKNOWN};
  if (load_relaxed(&os_filters) != 0) return -EPERM;
  long file = syscall_6(SYS_openat, AT_FDCWD, (long)"/proc/thread-self/status", O_RDONLY | O_CLOEXEC, 0, 0, 0);
  if (syscall_failed(file)) return file;
  lines_read(file, status);
  (void)syscall_3(SYS_close, file, 0, 0);
  return 0;
}

static bool no_descriptor_is_left(long error) { return error == -EMFILE || error == -ENFILE; }

/* What was last read. */
enum { NOTED = 1, NOTED_FILTERED = 2, NOTED_PRIVILEGED = 4 };
static _Atomic uint32_t noted;

/* Returns what the file reports about this thread, or, if it cannot be opened now, what it reported last; 0: neither is known. */
static uint32_t note_read(long *error) {
  status_t status;
  *error = status_read(&status);
  if (*error != 0) return *error == -ENOENT || no_descriptor_is_left(*error) ? load_relaxed(&noted) : 0;
  if (status.filter == UNKNOWN || status.capabilities == UNKNOWN) return 0;
  bool privileged = status.capabilities != 0 || !status.one_user || !status.one_group;
  uint32_t note = NOTED | (status.filter != 0 ? NOTED_FILTERED : 0) | (privileged ? NOTED_PRIVILEGED : 0);
  store_relaxed(&noted, note);
  return note; /* another thread may have noted its own meanwhile */
}

os_credentials_t os_credentials(void) {
  long error;
  uint32_t note = note_read(&error);
  return note == 0 ? (os_credentials_t){true, true} : (os_credentials_t){(note & NOTED_FILTERED) != 0, (note & NOTED_PRIVILEGED) != 0};
}

void os_credentials_note(void) {
  if (load_relaxed(&noted) == 0) (void)os_credentials();
}

/* A moment without free descriptors does not settle the answer. */
bool os_started_filtered(void) {
  enum { NOT_ASKED, NO, YES };
  static _Atomic uint32_t known;
  if (load_relaxed(&known) == NOT_ASKED) {
    long error;
    uint32_t note = note_read(&error);
    if (note == 0 && no_descriptor_is_left(error)) return true;
    store_relaxed(&known, note == 0 || (note & NOTED_FILTERED) != 0 ? YES : NO);
  }
  return load_relaxed(&known) == YES;
}

bool os_is_only_thread(void) {
  status_t status;
  return status_read(&status) == 0 && status.threads == 1;
}
