#include "os/line.h"

#include <string.h>

#include "os/os.h"

/* What the thread of os_thread_start has left: end.c. */
static line_t left_line;

HAK_COLD format_t *line_begin(line_t *line) {
  format_init(&line->format, line->text, sizeof line->text - 1); /* leaves room for the newline */
  format_text(&line->format, "hakmem: ");
  return &line->format;
}

static void finish(line_t *line, bool leaves) {
  line->text[line->format.used++] = '\n';
  if (leaves) memcpy(&left_line, line, sizeof left_line);
  else (void)os_write(2, line->text, line->format.used);
}

HAK_COLD void line_end(line_t *line) { finish(line, os_thread_is_ours()); }
HAK_COLD void line_end_at_once(line_t *line) { finish(line, false); }

HAK_COLD void os_end_finish(void) {
  uint32_t waits = 1;
  if (!atomic_compare_exchange_strong(&os_end_pending, &waits, 2u)) return; /* another thread does */
  (void)os_write(2, left_line.text, left_line.format.used);
  os_abort();
}

HAK_COLD void line_write(const char *text) {
  line_t line;
  format_text(line_begin(&line), text);
  line_end(&line);
}
