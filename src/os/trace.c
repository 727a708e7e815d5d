#include "os/trace.h"

#include <fcntl.h>

#include "base/atomics.h"
#include "base/format.h"
#include "os/line.h"
#include "os/os.h"
#include "os/syscall.h"
#include "os/unwind.h"

static _Atomic bool ready;

HAK_COLD void trace_prepare(void) {
  unwind_prepare();
  store_release(&ready, true);
}

bool trace_ready(void) { return load_acquire(&ready); }

HAK_COLD void trace_take(trace_t *trace) {
  trace->thread = (uint32_t)syscall_3(SYS_gettid, 0, 0, 0);
  uint32_t depth = unwind_here(trace->frame, TRACE_FRAMES, NULL, NULL);
  trace->depth = depth > 0 ? depth : 1;
  if (depth == 0) trace->frame[0] = NULL;
}

/* --- printing ---------------------------------------------------------------------------- */

typedef struct reader {
  long fd;
  size_t at, end;
  char text[512];
} reader_t;

static int reader_next(reader_t *r) {
  if (r->at == r->end) {
    long n = syscall_3(SYS_read, r->fd, (long)r->text, sizeof r->text);
    if (n <= 0) return -1;
    r->at = 0;
    r->end = (size_t)n;
  }
  return (unsigned char)r->text[r->at++];
}

static uintptr_t read_hex(reader_t *r, int *last) {
  uintptr_t value = 0;
  int c = reader_next(r);
  for (; (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); c = reader_next(r)) {
    value = value * 16 + (uintptr_t)(c <= '9' ? c - '0' : c - 'a' + 10);
  }
  *last = c;
  return value;
}

/* Finds the mapping of the address in a list from the kernel: "start-end flags offset device inode path".  False: the list is empty. */
static bool format_place_of(format_t *f, uintptr_t address, const char *list) {
  reader_t r = {.fd = syscall_6(SYS_openat, AT_FDCWD, (long)list, O_RDONLY | O_CLOEXEC, 0, 0, 0)};
  if (syscall_failed(r.fd)) return false;
  for (int c = 0; c >= 0;) {
    uintptr_t start = read_hex(&r, &c), end = read_hex(&r, &c);
    while (c >= 0 && reader_next(&r) != ' ') continue; /* flags */
    uintptr_t offset = read_hex(&r, &c);
    bool here = address >= start && address < end;
    while (c >= 0 && c != '\n' && c != '/' && c != '[') c = reader_next(&r);
    if (here && (c == '/' || c == '[')) {
      format_char(f, ' ');
      for (; c >= 0 && c != '\n'; c = reader_next(&r)) format_char(f, (char)c);
      format_char(f, '+');
      format_hex(f, address - start + offset);
    }
    while (c >= 0 && c != '\n') c = reader_next(&r);
    if (here || (start == 0 && end == 0)) break;
  }
  (void)syscall_3(SYS_close, r.fd, 0, 0);
  return r.end != 0;
}

/* Does not use file_mappings, which makes a call that a program's filter may not allow. */
static void format_place(format_t *f, uintptr_t address) {
  if (!format_place_of(f, address, "/proc/self/maps")) (void)format_place_of(f, address, "/proc/thread-self/maps");
}

HAK_COLD void trace_print(const char *what, const trace_t *trace) {
  line_t line;
  format_t *f = line_begin(&line);
  format_text(f, what);
  format_text(f, " by thread ");
  format_unsigned(f, trace->thread);
  format_char(f, ':');
  line_end(&line);
  for (uint32_t i = 0; i < trace->depth; i++) {
    f = line_begin(&line);
    format_text(f, "  #");
    format_unsigned(f, i);
    format_char(f, ' ');
    format_hex(f, (uint64_t)(uintptr_t)trace->frame[i]);
    format_place(f, (uintptr_t)trace->frame[i]);
    line_end(&line);
  }
}
